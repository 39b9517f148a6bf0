"""Bundles of experiences: published with a signature, verified without a record, and installed as
untrusted. Keys are files; nothing in a bundle is executed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hansard.agents.artifacts import experiences as kept_store
from hansard.agents.artifacts import versions
from hansard.agents.artifacts.experiences import KeptVersion
from hansard.agents.memory.search import import_extra
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
"""Most bytes of a file with a key."""

LICENSE_CHARACTERS_MAX = 1_000

SUFFIX = ".hansard-experience.tar"
"""Default suffix of a bundle's file name."""


class VerifiedBundle(msgspec.Struct, frozen=True, kw_only=True):
    """A verified bundle, with its signer.

    Attributes:
        name: Name of the experience.
        version: Version number where it was published.
        digest: SHA-256 of its files in RFC 8785 form, which a person confirms.
        bundle: SHA-256 of the whole file.
        key: Public key of the signature, hexadecimal; empty if not signed.
        license: License terms.
        sources: Runs that it was distilled from.
        description: Purpose.
        task: Wording of the task.
        checks: Number of its check functions.
        files: Text by path.
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
    """A written bundle.

    Attributes:
        file: Path of the file.
        bundle: The verified bundle.
        constants: Values that were the same in every recorded run of the task. They are part of the
            bundle, and only a person can decide whether they may be.
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
    reason: str = "",
    by: str | Actor,
) -> PublishedBundle:
    """Write a version, by default the newest, as one file for others, signed if a key is given. It
    is recorded before the file exists. A killed call leaves the whole file or none, and repeating
    it gives the same file.

    Raises:
        NotFound: There is no such experience.
        Refused: It has a label, or is not to be used.
        BadValue: It seems to hold a secret or a personal value; a different file exists at the
            path; the key is invalid.
        ExtraMissing: A key is given, and the extra `experience` is not installed.
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
        because=workspace.text(reason),
    )
    await versions.change(workspace, EXPERIENCES, name, stated, by=by)
    write_whole(path, raw)
    return PublishedBundle(
        file=str(path), bundle=_verified(made), constants=bundles.constants(made.experience)
    )


def _demand_open(state: kept.ExperienceState, kept_version: KeptVersion) -> None:
    """Raise Refused for a version that must not be published, or not be used."""
    if kept_version.label is not None:
        message = (
            f"version {kept_version.version} of experience {kept_version.name!r} is labelled "
            f"{kept_version.label}, so it cannot be published; distil it from runs without a label"
        )
        raise Refused(message)
    kept.demand_usable(state, kept_version.name, kept_version.version)


def _demand_free(path: Path, raw: bytes) -> None:
    """Raise BadValue if the path holds another file."""
    try:
        taken = path.exists() and (not path.is_file() or path.read_bytes() != raw)
    except OSError as error:
        raise BadValue(str(path), f"{error.strerror}", "name another file") from error
    if taken:
        raise BadValue(str(path), "it already exists with other content", "name another file")


def verify(path: Path, key: Path | None = None) -> VerifiedBundle:
    """Verify a bundle; needs no record, and executes nothing in it.

    Args:
        path: The bundle.
        key: Public key (PEM) that must have signed it; None returns the key that it names.

    Raises:
        BadValue: It is no bundle, was changed, or is not signed by that key.
        ExtraMissing: It is signed, and the extra `experience` is not installed.
    """
    return _verified(_read_verified(path, key))


def _verified(bundle: Bundle) -> VerifiedBundle:
    manifest, about = bundle.manifest, kept.about(bundle.experience)
    return VerifiedBundle(
        name=manifest.name,
        version=manifest.version,
        digest=manifest.digest,
        bundle=bundle.sha256,
        key=manifest.key,
        license=manifest.license,
        sources=manifest.sources,
        description=about.description,
        task=about.task,
        checks=about.checks,
        files=manifest.files,
    )


def _read_verified(path: Path, key: Path | None) -> Bundle:
    """Read and verify a bundle."""
    found = bundles.read(_bytes(path, BUNDLE_BYTES_MAX), str(path))
    target = _public(key) if key is not None else ""
    if target and found.manifest.key != target:
        signed = f"by the key {found.manifest.key:.64}" if found.manifest.key else "by no key"
        fact = f"it is signed {signed}, not by {target}"
        raise BadValue(str(path), fact, "install it only if you trust that key")
    if found.signature is not None:
        _demand_signed(found, found.signature, str(path))
    return found


def _demand_signed(bundle: Bundle, signature: Signature, where: str) -> None:
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    try:
        public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.key))
        public.verify(bytes.fromhex(signature.signature), bundles.signed(bundle.manifest))
    except (ValueError, _crypto("exceptions").InvalidSignature):
        fact = f"the key {signature.key:.64} has not signed it"
        remedy = "it was changed after it was signed: get it again from its publisher"
        raise BadValue(where, fact, remedy) from None


class InstalledBundle(msgspec.Struct, frozen=True, kw_only=True):
    """An installed, untrusted bundle.

    Attributes:
        name: Its name in the record.
        version: Newest version there.
        bundle: The verified bundle.
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
    reason: str = "",
    by: str | Actor,
) -> InstalledBundle:
    """Install a bundle as untrusted until a person confirms its digest. Repeating it changes
    nothing.

    Raises:
        BadValue: It is no bundle, was changed, or is not signed by that key; nothing was kept.
        Refused: The name belongs to an experience that is not from bundles of the same key.
        ExtraMissing: It is signed, and the extra `experience` is not installed.
    """
    found = _read_verified(path, key)
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
        because=workspace.text(reason),
    )
    untrusted = Label(untrusted=True)
    done = await versions.change(
        workspace, EXPERIENCES, name, stated, by=by, label=untrusted, begins=True
    )
    return InstalledBundle(name=name, version=done.version, bundle=_verified(found))


# ------------------------------------------------------------ files and keys


def _bytes(path: Path, most: int) -> bytes:
    """Return the bytes of a plain file. Raises BadValue."""
    if not path.is_file():
        raise BadValue(str(path), "it is not a regular file", "name a file")
    return read_bounded(path, most, "name another file")


def _crypto(module: str) -> Any:
    what = "a signature"
    return import_extra(f"cryptography.{module}", what, "cryptography", "experience")


def _private(path: Path) -> Any:
    """Read a private key. Raises BadValue, which reveals nothing of it."""
    raw = _bytes(path, KEY_BYTES_MAX)
    serialization = _crypto("hazmat.primitives.serialization")
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    try:
        key = serialization.load_pem_private_key(raw, password=None)
    except (ValueError, TypeError, _crypto("exceptions").UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        fact = "it is not a private Ed25519 key in PEM without a password"
        raise BadValue(str(path), fact, f"make one: openssl genpkey -algorithm ed25519 -out {path}")
    return key


def _public(path: Path) -> str:
    """Read a public key, as hexadecimal. Raises BadValue."""
    raw = _bytes(path, KEY_BYTES_MAX)
    serialization = _crypto("hazmat.primitives.serialization")
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    try:
        key = serialization.load_pem_public_key(raw)
    except (ValueError, _crypto("exceptions").UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ed25519.Ed25519PublicKey):
        remedy = "make one: openssl pkey -in PRIVATE -pubout -out PUBLIC"
        raise BadValue(str(path), "it is not a public Ed25519 key in PEM", remedy)
    text: str = key.public_bytes_raw().hex()
    return text
