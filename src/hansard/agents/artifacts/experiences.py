"""Experiences in the log: kept, confirmed, healed, executed, retired, and published as bundles.

Runs on the bus's loop.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from hansard.agents.artifacts import versions
from hansard.agents.artifacts.versions import Artifact, ArtifactChange
from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.file_lock import read_bounded, write_whole
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, Corrupt, Refused, import_extra
from hansard.domain.events import Actor
from hansard.domain.experience import bundle as bundles
from hansard.domain.experience import experience as experiences
from hansard.domain.experience import experience as kept
from hansard.domain.experience.bundle import BUNDLE_BYTES_MAX, Bundle, FileFact, Signature
from hansard.domain.experience.experience import (
    EXPERIENCES,
    FILES,
    Experience,
    ExperienceConfirmed,
    ExperienceDistilled,
    ExperienceHealed,
    ExperienceInstalled,
    ExperiencePublished,
    ExperienceRetired,
    ExperienceStanding,
    ExperienceState,
)
from hansard.domain.label import Label, join
from hansard.domain.redaction import holds_secret

# An experience's folder: written atomically, and read as untrusted bytes.

FILE_BYTES_MAX = 16 * 1024 * 1024


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value names an experience of the record: a text without a slash. A text with
    one (`./invite`), and a `Path`, is the path of a folder.
    """
    return isinstance(value, str) and "/" not in value and os.sep not in value


def write_folder(experience: Experience, folder: Path) -> None:
    """Write all files of an experience into a new folder.

    They are written beside it first, so that a killed call leaves the whole folder or none.

    Raises:
        BadValue: The path exists, or cannot be written.
    """
    value = experiences.files(experience)
    if folder.exists():
        raise BadValue(str(folder), "it already exists", "name a new folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True
        ) as beside:
            made = Path(beside) / folder.name
            made.mkdir()
            for name, raw in value.items():
                write_whole(made / name, raw)
            made.rename(folder)
    except OSError as error:
        fact = f"it cannot be written: {error.strerror}"
        raise BadValue(str(folder), fact, "name a folder that can be written") from error


def read_folder(folder: Path) -> Experience:
    """Read an experience from a folder; nothing in it is executed.

    Raises:
        BadValue: A file is missing, a link, too large, or invalid.
    """
    fields: dict[str, bytes] = {}
    for name in FILES:
        path = folder / name
        if path.is_symlink():
            raise BadValue(str(path), "it is a link", "give files, not links")
        if path.exists():
            fields[name] = read_bounded(path, FILE_BYTES_MAX, "give a folder that can be read")
    return experiences.read(fields, str(folder))


class KeptVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of an experience in the record.

    Attributes:
        name: Name of the experience.
        version: Version number.
        digest: SHA-256 of its files in RFC 8785 form, hexadecimal.
        content: Text of its files, by path.
        standing: State that determines its permitted use.
        label: Confidentiality, and whether it rests on untrusted input; None for public and
            trusted.
    """

    name: str
    version: int
    digest: str
    content: dict[str, str]
    standing: ExperienceStanding
    label: Label | None = None

    @property
    def experience(self) -> Experience:
        """Content of the version. Raises BadValue."""
        fields = {path: text.encode() for path, text in self.content.items()}
        read = experiences.read(fields, f"experience {self.name!r}, version {self.version}")
        return msgspec.structs.replace(read, name=self.name, version=self.version)


async def get(workspace: Workspace, name: str, version: int | None = None) -> KeptVersion:
    """Return a version, by default the newest. Raises NotFound (no such experience, or its bytes
    were erased), Refused (no such version), BadName, BadValue, Corrupt.
    """
    return await _version(
        workspace, name, await versions.read(workspace, EXPERIENCES, name), version
    )


async def at(workspace: Workspace, name: str, point: str = "") -> KeptVersion:
    """Return a version by its number (`3`) or a prefix of its digest; the newest for an empty text.
    Raises as `get`.
    """
    artifact = await versions.read(workspace, EXPERIENCES, name)
    if point.isdecimal():
        number = int(point[:9])
    else:
        number = kept.at_digest(artifact.state, point) if point else artifact.state.newest
    return await _version(workspace, name, artifact, number)


async def usable(workspace: Workspace, name: str) -> int:
    """Return the newest version. Raises NotFound, and Refused if it is retired, quarantined or not
    trusted.
    """
    state = (await versions.read(workspace, EXPERIENCES, name)).state
    kept.demand_usable(state, name, state.newest)
    return state.newest


async def _version(
    workspace: Workspace, name: str, artifact: Artifact[ExperienceState], version: int | None
) -> KeptVersion:
    number = artifact.state.newest if version is None else version
    event = artifact.state.demand(number)
    content = await versions.fetched(workspace, event.content)
    if not isinstance(content, dict) or kept.digest_of(content) != event.digest:
        raise Corrupt(
            f"version {number} of experience {name!r}", "its content does not match its digest"
        )
    return KeptVersion(
        name=name,
        version=number,
        digest=event.digest,
        content=content,
        standing=artifact.state.standing_of(number),
        label=artifact.by_version()[number].commit.label,
    )


async def keep(
    workspace: Workspace,
    experience: Experience,
    *,
    reason: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> ArtifactChange:
    """Append an experience learned from runs as the next version; return the newest if it is equal,
    or if only heals and confirmations of it have followed.

    Raises BadName, BadValue, Refused, Conflict after 50 lost races.
    """
    event = ExperienceDistilled(
        version=0,
        **await content(workspace, experience),
        sources=experience.sources,
        failed=experience.failed,
        because=workspace.text(reason),
    )
    return await versions.change(
        workspace, EXPERIENCES, experience.name, event, by=by, label=label, begins=True
    )


async def content(workspace: Workspace, experience: Experience) -> dict[str, Any]:
    """Return the content of a version's event; large files are stored as blobs."""
    experience = workspace.clean(experience)
    plain = kept.content_of(experience)
    experiences.read({path: text.encode() for path, text in plain.items()})
    return {
        "digest": kept.digest_of(plain),
        "content": await packed(workspace, plain),
        "about": kept.about(experience),
    }


async def packed(workspace: Workspace, plain: Mapping[str, str]) -> msgspec.Raw:
    """Return files as an event holds them; large ones are stored as blobs.

    Raises BadValue if they hold a secret, since their digest is recorded beside them.
    """
    if workspace.clean(plain) is not plain:
        raise holds_secret("the experience")
    made = payloads.pack(dict(plain), "the experience")
    for blob in made.blobs:
        await workspace.blobs.put(blob)
    return made.raw


async def confirm(
    workspace: Workspace,
    name: str,
    checks: Sequence[str] = (),
    *,
    digest: str = "",
    reason: str = "",
    by: str | Actor,
) -> ArtifactChange:
    """Confirm the check functions of a version, by default the newest: the next version has them,
    and may act.

    For an experience learned from runs, all proposed checks, or the named ones among them. One that
    was installed from a bundle, and its heals, stay unchanged and must be named by their digest.

    Raises NotFound, Refused, BadValue, Conflict.
    """
    artifact = await versions.read(workspace, EXPERIENCES, name)
    number = kept.at_digest(artifact.state, digest) if digest else artifact.state.newest
    event, foreign = artifact.state.demand(number), number in artifact.state.untrusted
    if foreign and not digest:
        fact = f"version {number} was installed from a bundle"
        least = event.digest[: kept.DIGEST_CHARACTERS_MIN]
        raise BadValue("digest", fact, f"name the digest that you reviewed: {least} (--digest)")
    version = await _version(workspace, name, artifact, number)
    chooses = event.about.checks == 0 or isinstance(event, ExperienceDistilled)
    if checks and not chooses and foreign:
        fact = f"version {number} has {counted(event.about.checks, 'check function')} already"
        raise BadValue("checks", fact, "confirm it whole")
    if chooses or checks:
        made = await content(workspace, version.experience.confirmed(*checks))
    else:
        raw = await packed(workspace, version.content)
        made = {"digest": event.digest, "content": raw, "about": event.about}
    label = version.label
    if label is not None and foreign:  # a person who confirms a bundle's digest vouches for it
        label = Label(label.confidentiality).stored
    confirmed = ExperienceConfirmed(
        version=0, **made, parent=number, because=workspace.text(reason)
    )
    return await versions.change(workspace, EXPERIENCES, name, confirmed, by=by, label=label)


async def heal(
    workspace: Workspace,
    before: KeptVersion,
    experience: Experience,
    node: str,
    *,
    reason: str,
    run: str,
    by: str | Actor,
    label: Label | None = None,
) -> ArtifactChange:
    """Append an experience with a changed element of a node as the next version; return the newest
    if `before` no longer is that. Raises Refused, Conflict.
    """
    event = ExperienceHealed(
        version=0,
        **await content(workspace, experience),
        parent=before.version,
        node=node,
        run=run,
        because=reason,
    )
    label = join(label, before.label).stored
    return await versions.change(workspace, EXPERIENCES, before.name, event, by=by, label=label)


async def retire(
    workspace: Workspace, name: str, *, reason: str = "", by: str | Actor
) -> ArtifactChange:
    """Retire an experience until a version is confirmed again. Raises NotFound, Conflict."""
    label = (await versions.read(workspace, EXPERIENCES, name)).label
    event = ExperienceRetired(version=0, because=workspace.text(reason))
    return await versions.change(workspace, EXPERIENCES, name, event, by=by, label=label)


async def number_of(workspace: Workspace, experience: Experience, *, usable: bool = False) -> int:
    """Return the version number of an experience among those recorded under its name; 0 for none.
    Raises Refused if it must be `usable`, and is retired, quarantined or not trusted.
    """
    state = (await versions.find(workspace, EXPERIENCES, experience.name)).state
    digest = kept.digest_of(kept.content_of(experience))
    same = [number for number, each in state.versions.items() if each.digest == digest]
    if same and usable:
        kept.demand_usable(state, experience.name, max(same))
    return max(same, default=0)


# Bundles of experiences: published with a signature, verified without a record, and installed as
# untrusted. Keys are files; nothing in a bundle is executed.

KEY_BYTES_MAX = 64 * 1024
"""Most bytes of a file with a key."""

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
    selected = await at(workspace, name, point)
    state = (await versions.read(workspace, EXPERIENCES, name)).state
    _demand_open(state, selected)
    terms = bundles.license_terms(terms)
    signer = private_key(key) if key is not None else None
    named = signer.public_key().public_bytes_raw().hex() if signer is not None else ""
    manifest = bundles.manifest(selected.version, selected.content, terms, named)
    bundles.demand_clean(manifest, selected.content)
    signature = None
    if signer is not None:
        signature = Signature(key=named, signature=signer.sign(bundles.signed(manifest)).hex())
    raw = bundles.write(manifest, selected.content, signature)
    made = bundles.read(raw)
    _demand_free(path, raw)
    stated = ExperiencePublished(
        version=selected.version,
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
    bundle = bundles.read(_bytes(path, BUNDLE_BYTES_MAX), str(path))
    target = public_key(key) if key is not None else ""
    if target and bundle.manifest.key != target:
        signed = f"by the key {bundle.manifest.key:.64}" if bundle.manifest.key else "by no key"
        fact = f"it is signed {signed}, not by {target}"
        raise BadValue(str(path), fact, "install it only if you trust that key")
    if bundle.signature is not None:
        _demand_signed(bundle, bundle.signature, str(path))
    return bundle


def _demand_signed(bundle: Bundle, signature: Signature, where: str) -> None:
    if not is_signed(signature.key, signature.signature, bundles.signed(bundle.manifest)):
        fact = f"the key {signature.key:.64} has not signed it"
        remedy = "it was changed after it was signed: get it again from its publisher"
        raise BadValue(where, fact, remedy)


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
    verified = _read_verified(path, key)
    manifest = verified.manifest
    name = name or manifest.name
    stated = ExperienceInstalled(
        version=0,
        digest=manifest.digest,
        content=await packed(workspace, verified.content),
        about=kept.about(verified.experience),
        bundle=verified.sha256,
        sources=manifest.sources,
        key=manifest.key,
        license=manifest.license,
        because=workspace.text(reason),
    )
    untrusted = Label(untrusted=True)
    done = await versions.change(
        workspace, EXPERIENCES, name, stated, by=by, label=untrusted, begins=True
    )
    return InstalledBundle(name=name, version=done.version, bundle=_verified(verified))


# ------------------------------------------------------------ files and keys


def _bytes(path: Path, most: int) -> bytes:
    """Return the bytes of a plain file. Raises BadValue."""
    if not path.is_file():
        fact = "it is not a regular file" if path.exists() else "there is no such file"
        raise BadValue(str(path), fact, "name a file")
    return read_bounded(path, most, "name another file")


def _crypto(module: str) -> Any:
    what = "a signature"
    return import_extra(f"cryptography.{module}", what, "cryptography", "experience")


def is_signed(key: str, signature: str, data: bytes) -> bool:
    """Return whether a public key, in hexadecimal as the signature, has signed some bytes."""
    ed25519 = _crypto("hazmat.primitives.asymmetric.ed25519")
    try:
        public = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), data)
    except (ValueError, _crypto("exceptions").InvalidSignature):
        return False
    return True


def private_key(path: Path) -> Any:
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
        remedy = "name another file; a new key: openssl genpkey -algorithm ed25519 -out NEW_FILE"
        raise BadValue(str(path), fact, remedy)
    return key


def public_key(path: Path) -> str:
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
