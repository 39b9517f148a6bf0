"""Experiences in the log: kept, confirmed, healed, done, retired. On the bus's loop."""

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
from hansard.domain.experience import checks as checking
from hansard.domain.experience import experience as experiences
from hansard.domain.experience import kept
from hansard.domain.experience.experience import CHECKS, FILES, Experience
from hansard.domain.experience.kept import (
    EXPERIENCES,
    ExperienceConfirmed,
    ExperienceDistilled,
    ExperienceHealed,
    ExperienceRetired,
    ExperienceStanding,
    ExperienceState,
)
from hansard.domain.label import Label, join
from hansard.domain.redaction import holds_secret

# An experience's folder: written whole or not at all, and read as bytes from outside.

FILE_BYTES_MAX = 16 * 1024 * 1024


def is_name(given: object) -> TypeGuard[str]:
    """Whether what is given names an experience that the record keeps: a text without a slash; one
    with a slash is a folder's path (`./invite`), as a `Path` is.
    """
    return isinstance(given, str) and "/" not in given and os.sep not in given


def write_folder(experience: Experience, folder: Path) -> None:
    """Write all files of an experience into a folder that is not there yet.

    They are written beside it first, so that a kill leaves the whole folder or none.

    Raises:
        BadValue: Something of that name is there, or it cannot be written.
    """
    value = experiences.files(experience)
    if folder.exists():
        raise BadValue(str(folder), "it is there already", "name a folder that is not")
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
    """The experience of a folder; nothing in it is run.

    Raises:
        BadValue: A file is missing, a link, too large, or says what cannot be.
    """
    fields: dict[str, bytes] = {}
    for name in FILES:
        path = folder / name
        if path.is_symlink():
            raise BadValue(str(path), "it is a link", "give files, not links")
        if path.exists():
            fields[name] = read_bounded(path, FILE_BYTES_MAX, "give a folder that can be read")
    return experiences.read(fields, str(folder))


def confirm_folder(folder: Path, names: Sequence[str] = ()) -> Experience:
    """Write down the checks that a person confirms: those named, or all that are proposed.

    Raises:
        BadValue: The folder cannot be read, or none of its proposed checks has that name.
    """
    experience = read_folder(folder).confirmed(*names)
    write_whole(folder / CHECKS, checking.encode(experience.checks))
    return experience


class KeptVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of an experience that is kept.

    Attributes:
        name: The experience's.
        version: Its number.
        digest: SHA-256 of its files in RFC 8785 form, hexadecimal.
        content: Its files, text by path.
        standing: What it may be used for.
        label: How confidential it is, and whether it rests on untrusted input; None for neither.
    """

    name: str
    version: int
    digest: str
    content: dict[str, str]
    standing: ExperienceStanding
    label: Label | None = None

    @property
    def experience(self) -> Experience:
        """What was learned. Raises BadValue."""
        fields = {path: text.encode() for path, text in self.content.items()}
        read = experiences.read(fields, f"experience {self.name!r}, version {self.version}")
        made: Experience = msgspec.structs.replace(read, name=self.name, version=self.version)
        return made


async def get(workspace: Workspace, name: str, version: int | None = None) -> KeptVersion:
    """Return a version, the newest if none is named. Raises NotFound (no such experience, or its
    bytes were erased), Refused (no such version), BadName, BadValue, Corrupt.
    """
    return await _version(
        workspace, name, await versions.read(workspace, EXPERIENCES, name), version
    )


async def at(workspace: Workspace, name: str, point: str = "") -> KeptVersion:
    """Return a version by its number (`3`) or its digest's beginning; the newest for an empty one.
    Raises what `get` raises.
    """
    found = await versions.read(workspace, EXPERIENCES, name)
    if point.isdecimal():
        number = int(point[:9])
    else:
        number = kept.at_digest(found.state, point) if point else found.state.newest
    return await _version(workspace, name, found, number)


async def usable(workspace: Workspace, name: str) -> int:
    """Return the newest version. Raises NotFound, and Refused where it is retired, quarantined or
    not trusted.
    """
    state = (await versions.read(workspace, EXPERIENCES, name)).state
    kept.demand_usable(state, name, state.newest)
    return state.newest


async def _version(
    workspace: Workspace, name: str, found: Artifact[ExperienceState], version: int | None
) -> KeptVersion:
    number = found.state.newest if version is None else version
    event = found.state.demand(number)
    content = await versions.fetched(workspace, event.content)
    if not isinstance(content, dict) or kept.digest_of(content) != event.digest:
        raise Corrupt(f"version {number} of experience {name!r}", "it is not its digest's")
    return KeptVersion(
        name=name,
        version=number,
        digest=event.digest,
        content=content,
        standing=found.state.standing_of(number),
        label=found.by_version()[number].commit.label,
    )


async def keep(
    workspace: Workspace,
    experience: Experience,
    *,
    because: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> ArtifactChange:
    """Make what runs taught the next version of the experience of that name; the newest stays where
    it is equal, or only heals and confirmations of it have followed.

    Raises BadName, BadValue, Refused, Conflict after 50 lost races.
    """
    event = ExperienceDistilled(
        version=0,
        **await content(workspace, experience),
        sources=experience.sources,
        failed=experience.failed,
        because=workspace.text(because),
    )
    return await versions.change(
        workspace, EXPERIENCES, experience.name, event, by=by, label=label, begins=True
    )


async def content(workspace: Workspace, experience: Experience) -> dict[str, Any]:
    """What the event of a version says of its files, large ones put where they are kept."""
    experience = workspace.clean(experience)
    plain = kept.content_of(experience)
    experiences.read({path: text.encode() for path, text in plain.items()})
    return {
        "digest": kept.digest_of(plain),
        "content": await packed(workspace, plain),
        "about": kept.about(experience),
    }


async def packed(workspace: Workspace, plain: Mapping[str, str]) -> msgspec.Raw:
    """Files as an event has them; large ones are put where they are kept.

    Raises BadValue where they hold a secret: their digest is stated beside them.
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
    because: str = "",
    by: str | Actor,
) -> ArtifactChange:
    """Confirm the check functions of a version, the newest if no digest is named: the next version
    has them, and may act.

    Of what runs taught they are those that are proposed, or of these the ones that are named. What
    came in a bundle, and its heals, stay as they are, and are named by their digest.

    Raises NotFound, Refused, BadValue, Conflict.
    """
    found = await versions.read(workspace, EXPERIENCES, name)
    number = kept.at_digest(found.state, digest) if digest else found.state.newest
    event, foreign = found.state.demand(number), number in found.state.untrusted
    if foreign and not digest:
        fact = f"version {number} came in a bundle"
        least = event.digest[: kept.DIGEST_CHARACTERS_MIN]
        raise BadValue("digest", fact, f"name what you looked at: {least} (--digest)")
    version = await _version(workspace, name, found, number)
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
        version=0, **made, parent=number, because=workspace.text(because)
    )
    return await versions.change(workspace, EXPERIENCES, name, confirmed, by=by, label=label)


async def heal(
    workspace: Workspace,
    before: KeptVersion,
    experience: Experience,
    node: str,
    *,
    because: str,
    run: str,
    by: str | Actor,
    label: Label | None = None,
) -> ArtifactChange:
    """Make an experience in which a node's element is another the next version; the newest stays
    where `before` is not the newest any more. Raises Refused, Conflict.
    """
    event = ExperienceHealed(
        version=0,
        **await content(workspace, experience),
        parent=before.version,
        node=node,
        run=run,
        because=because,
    )
    label = join(label, before.label).stored
    return await versions.change(workspace, EXPERIENCES, before.name, event, by=by, label=label)


async def retire(
    workspace: Workspace, name: str, *, because: str = "", by: str | Actor
) -> ArtifactChange:
    """Retire an experience until a version is confirmed again. Raises NotFound, Conflict."""
    label = (await versions.read(workspace, EXPERIENCES, name)).label
    event = ExperienceRetired(version=0, because=workspace.text(because))
    return await versions.change(workspace, EXPERIENCES, name, event, by=by, label=label)


async def number_of(workspace: Workspace, experience: Experience, *, usable: bool = False) -> int:
    """Return which version an experience is of the one that the record keeps by its name; 0 for
    none. Raises Refused where it must be `usable`, and is retired, quarantined or not trusted.
    """
    state = (await versions.find(workspace, EXPERIENCES, experience.name)).state
    digest = kept.digest_of(kept.content_of(experience))
    same = [number for number, each in state.versions.items() if each.digest == digest]
    if same and usable:
        kept.demand_usable(state, experience.name, max(same))
    return max(same, default=0)
