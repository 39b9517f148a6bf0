"""Bundles of experiences: published with a signature, verified without a record, and installed as
what nobody trusts yet. Keys are files; nothing of a bundle is run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.artifacts import experiences as kept_store
from hansard.agents.artifacts import versions
from hansard.agents.artifacts.experiences import KeptVersion
from hansard.agents.memory.search import imported
from hansard.agents.workspace import Workspace
from hansard.bus.file_lock import read_bounded, write_whole
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Actor
from hansard.domain.experience import bundle as bundles
from hansard.domain.experience import kept
from hansard.domain.experience.bundle import BUNDLE_BYTES_MAX, Bundle, FileFact, Signature
from hansard.domain.experience.kept import EXPERIENCES, ExperienceInstalled, ExperiencePublished
from hansard.domain.label import Label

KEY_BYTES_MAX = 64 * 1024
"""Of a file with a key."""

LICENSE_CHARACTERS_MAX = 1_000

SUFFIX = ".hansard-experience.tar"
"""How a bundle is called if nothing else is said."""


class VerifiedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle is, as it stands: whole, and signed by whom.

    Attributes:
        name: The experience's.
        version: Its number where it was published.
        digest: SHA-256 of its files in RFC 8785 form: what a person confirms.
        bundle: SHA-256 of the whole file.
        key: The public key that signed it, hexadecimal; empty where nobody did.
        license: Under which terms.
        sources: The runs that it was distilled from.
        description: What it is for.
        task: How the task is said.
        checks: How many check functions guard it.
        files: By path.
    """

    name: str
    version: int
    digest: str
    bundle: str
    key: str
    license: str
    sources: tuple[str, ...]
    description: str
    task: str
    checks: int
    files: dict[str, FileFact]


class PublishedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that was written.

    Attributes:
        file: Where.
        bundle: What it is.
        constants: What every doing fills in alike: it travels, and only a person can say whether it
            may.
    """

    file: str
    bundle: VerifiedBundle
    constants: list[str]


async def publish(
    workspace: Workspace,
    name: str,
    path: Path,
    *,
    terms: str,
    key: Path | None = None,
    point: str = "",
    because: str = "",
    by: str | Actor,
) -> PublishedBundle:
    """Write a version, the newest if none is named, as one file for others, signed if there is a
    key. It is on record before the file is there: a kill leaves the whole file or none, and the
    same again gives the same file.

    Raises:
        NotFound: There is no such experience.
        Refused: It has a label, or is not to be used.
        BadValue: It holds what looks like a secret or a personal value; the file is there and is
            another; the key is none.
        ExtraMissing: There is a key, and the extra `experience` is not installed.
    """
    found = await kept_store.at(workspace, name, point)
    state = (await versions.read(workspace, EXPERIENCES, name)).state
    _demand_open(state, found)
    terms = terms.strip()
    if not 0 < len(terms) <= LICENSE_CHARACTERS_MAX:
        raise BadValue("license", f"{terms!r:.80}", "give an SPDX expression: Apache-2.0")
    signer = _private(key) if key is not None else None
    named = signer.public_key().public_bytes_raw().hex() if signer is not None else ""
    manifest = bundles.manifest(found.version, found.content, terms, named)
    bundles.demand_clean(manifest, found.content)
    signature = None
    if signer is not None:
        signature = Signature(key=named, signature=signer.sign(bundles.signed(manifest)).hex())
    raw = bundles.write(manifest, found.content, signature)
    made = bundles.read(raw)
    _demand_free(path, raw)
    stated = ExperiencePublished(
        version=found.version,
        bundle=made.sha256,
        key=named,
        license=manifest.license,
        because=workspace.text(because),
    )
    await versions.change(workspace, EXPERIENCES, name, stated, by=by)
    write_whole(path, raw)
    return PublishedBundle(
        file=str(path), bundle=_verified(made), constants=bundles.constants(made.experience)
    )


def _demand_open(state: kept.ExperienceState, found: KeptVersion) -> None:
    """Raise Refused for what is not to be shown to others, or used."""
    if found.label is not None:
        message = (
            f"version {found.version} of experience {found.name!r} is {found.label}: what has a "
            "label is not published; distil it from runs without one"
        )
        raise Refused(message)
    kept.demand_usable(state, found.name, found.version)


def _demand_free(path: Path, raw: bytes) -> None:
    """Raise BadValue where something else is there."""
    try:
        taken = path.exists() and (not path.is_file() or path.read_bytes() != raw)
    except OSError as error:
        raise BadValue(str(path), f"{error.strerror}", "name another file") from error
    if taken:
        raise BadValue(str(path), "it is there already, and is another", "name another file")


def verify(path: Path, key: Path | None = None) -> VerifiedBundle:
    """What a bundle is; no record is needed, and nothing of it is run.

    Args:
        path: The bundle.
        key: A public key (PEM) that must have signed it; else the one that it names is told.

    Raises:
        BadValue: It is none, was changed, or is not signed by that key.
        ExtraMissing: It is signed, and the extra `experience` is not installed.
    """
    return _verified(_opened(path, key))


def _verified(found: Bundle) -> VerifiedBundle:
    manifest, about = found.manifest, kept.about(found.experience)
    return VerifiedBundle(
        name=manifest.name,
        version=manifest.version,
        digest=manifest.digest,
        bundle=found.sha256,
        key=manifest.key,
        license=manifest.license,
        sources=manifest.sources,
        description=about.description,
        task=about.task,
        checks=about.checks,
        files=manifest.files,
    )


def _opened(path: Path, key: Path | None) -> Bundle:
    """A bundle's bytes, read and verified."""
    found = bundles.read(_bytes(path, BUNDLE_BYTES_MAX), str(path))
    target = _public(key) if key is not None else ""
    if target and found.manifest.key != target:
        signed = f"by the key {found.manifest.key:.64}" if found.manifest.key else "by nobody"
        fact = f"it is signed {signed}, not by {target}"
        raise BadValue(str(path), fact, "install it only if you trust that key")
    if found.signature is not None:
        _demand_signed(found, found.signature, str(path))
    return found


def _demand_signed(found: Bundle, signature: Signature, where: str) -> None:
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    try:
        public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key))
        public.verify(bytes.fromhex(signature.signature), bundles.signed(found.manifest))
    except (ValueError, _crypto("exceptions").InvalidSignature):
        fact = f"the key {signature.key:.64} has not signed it"
        remedy = "it was changed on its way: ask who published it for it again"
        raise BadValue(where, fact, remedy) from None


class InstalledBundle(msgspec.Struct, frozen=True, kw_only=True):
    """A bundle that is kept, untrusted.

    Attributes:
        name: What the record keeps it by.
        version: The newest version there.
        bundle: What it is.
    """

    name: str
    version: int
    bundle: VerifiedBundle


async def install(
    workspace: Workspace,
    path: Path,
    *,
    name: str = "",
    key: Path | None = None,
    because: str = "",
    by: str | Actor,
) -> InstalledBundle:
    """Keep a bundle as what nobody trusts yet, until a person confirms its digest. The same again
    changes nothing.

    Raises:
        BadValue: It is none, was changed, or is not signed by that key; nothing was kept.
        Refused: The name is taken by what did not come in bundles of the same key.
        ExtraMissing: It is signed, and the extra `experience` is not installed.
    """
    found = _opened(path, key)
    manifest = found.manifest
    name = name or manifest.name
    stated = ExperienceInstalled(
        version=0,
        digest=manifest.digest,
        content=await kept_store.packed(workspace, found.content),
        about=kept.about(found.experience),
        bundle=found.sha256,
        sources=manifest.sources,
        key=manifest.key,
        license=manifest.license,
        because=workspace.text(because),
    )
    untrusted = Label(untrusted=True)
    done = await versions.change(
        workspace, EXPERIENCES, name, stated, by=by, label=untrusted, begins=True
    )
    return InstalledBundle(name=name, version=done.version, bundle=_verified(found))


# ------------------------------------------------------------ files and keys


def _bytes(path: Path, most: int) -> bytes:
    """The bytes of a plain file. Raises BadValue."""
    if not path.is_file():
        raise BadValue(str(path), "it is no file", "name a file")
    return read_bounded(path, most, "name another file")


def _crypto(module: str) -> Any:
    what = "a signature"
    return imported(f"cryptography.{module}", what, "cryptography", "experience")


def _private(path: Path) -> Any:
    """A private key. Raises BadValue, which says nothing of it."""
    raw = _bytes(path, KEY_BYTES_MAX)
    serialization = _crypto("hazmat.primitives.serialization")
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    try:
        key = serialization.load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, _crypto("exceptions").UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        fact = "it is no private Ed25519 key in PEM without a password"
        raise BadValue(str(path), fact, f"make one: openssl genpkey -algorithm ed25519 -out {path}")
    return key


def _public(path: Path) -> str:
    """A public key, hexadecimal. Raises BadValue."""
    raw = _bytes(path, KEY_BYTES_MAX)
    serialization = _crypto("hazmat.primitives.serialization")
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    try:
        key = serialization.load_pem_public_key(raw)
    except (ValueError, _crypto("exceptions").UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        remedy = "openssl pkey -in PRIVATE -pubout -out PUBLIC gives it"
        raise BadValue(str(path), "it is no public Ed25519 key in PEM", remedy)
    text: str = key.public_bytes_raw().hex()
    return text
