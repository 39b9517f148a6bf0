"""Experiences in the log: kept, confirmed, healed, executed and retired.

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
from hansard.domain.errors import BadValue, Corrupt
from hansard.domain.events import Actor
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.experience import (
    EXPERIENCES,
    FILES,
    Experience,
    ExperienceConfirmed,
    ExperienceDistilled,
    ExperienceHealed,
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
    return await version_of(
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
        number = experiences.at_digest(artifact.state, point) if point else artifact.state.newest
    return await version_of(workspace, name, artifact, number)


async def usable(workspace: Workspace, name: str) -> int:
    """Return the newest version. Raises NotFound, and Refused if it is retired, quarantined or not
    trusted.
    """
    state = (await versions.read(workspace, EXPERIENCES, name)).state
    experiences.demand_usable(state, name, state.newest)
    return state.newest


async def version_of(
    workspace: Workspace, name: str, artifact: Artifact[ExperienceState], version: int | None
) -> KeptVersion:
    """Return a version of an experience that was read, by default the newest. Raises as `get`."""
    number = artifact.state.newest if version is None else version
    event = artifact.state.demand(number)
    content = await versions.fetched(workspace, event.content)
    if not isinstance(content, dict) or experiences.digest_of(content) != event.digest:
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
    plain = experiences.content_of(experience)
    experiences.read({path: text.encode() for path, text in plain.items()})
    return {
        "digest": experiences.digest_of(plain),
        "content": await packed(workspace, plain),
        "about": experiences.about(experience),
    }


async def packed(workspace: Workspace, plain: Mapping[str, str]) -> msgspec.Raw:
    """Return files as an event holds them; large ones are stored as blobs.

    Raises BadValue if they hold a secret, since their digest is recorded beside them.
    """
    if workspace.clean(plain) is not plain:
        raise holds_secret("the experience")
    return await payloads.stored(workspace.blobs, dict(plain), "the experience")


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
    is from a pack, and its heals, stay unchanged and must be named by their digest.

    Raises NotFound, Refused, BadValue, Conflict.
    """
    artifact = await versions.read(workspace, EXPERIENCES, name)
    number = experiences.at_digest(artifact.state, digest) if digest else artifact.state.newest
    event, foreign = artifact.state.demand(number), number in artifact.state.untrusted
    if foreign and not digest:
        fact = f"version {number} is from a pack"
        least = event.digest[: experiences.DIGEST_CHARACTERS_MIN]
        raise BadValue("digest", fact, f"name the digest that you reviewed: {least} (--digest)")
    version = await version_of(workspace, name, artifact, number)
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
    if label is not None and foreign:  # a person who confirms its digest vouches for it
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
    digest = experiences.digest_of(experiences.content_of(experience))
    same = [number for number, each in state.versions.items() if each.digest == digest]
    if same and usable:
        experiences.demand_usable(state, experience.name, max(same))
    return max(same, default=0)
