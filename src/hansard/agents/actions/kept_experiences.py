"""Experiences in the log: kept, confirmed, healed, done, retired. On the bus's loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents.actions import store
from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive_all
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue, Corrupt
from hansard.domain.events import Actor
from hansard.domain.experience import experience as experiences
from hansard.domain.experience import kept
from hansard.domain.experience.experience import Experience
from hansard.domain.experience.kept import (
    KIND,
    REMEDY,
    ExperienceConfirmed,
    ExperienceDistilled,
    ExperienceEvent,
    ExperienceHealed,
    ExperienceReplayed,
    ExperienceRetired,
    ExperienceStanding,
    KeptExperienceState,
)
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import Label, join
from hansard.domain.redaction import holds_secret


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
        told = {path: text.encode() for path, text in self.content.items()}
        read = experiences.read(told, f"experience {self.name!r}, version {self.version}")
        made: Experience = msgspec.structs.replace(read, name=self.name, version=self.version)
        return made


def stream_of(name: object) -> WorkspaceStream:
    """The stream of an experience. Raises BadName, BadValue."""
    return WorkspaceStream(KIND, kept.check_name(name))


def folded(stored: Sequence[Stored]) -> KeptExperienceState:
    """An experience's state after its commits."""
    return kept.fold(kept.initial(), revive_all(each.commit for each in stored))


async def find(workspace: Workspace, name: str) -> tuple[KeptExperienceState, list[Stored]]:
    """An experience's state, and its commits: none where it is not kept. Raises BadName."""
    stored = await workspace.log.read(stream_of(name))
    return folded(stored), stored


async def read(workspace: Workspace, name: str) -> tuple[KeptExperienceState, list[Stored]]:
    """An experience's state, and its commits. Raises NotFound, BadName, BadValue."""
    state, stored = await find(workspace, name)
    if not stored:
        raise NotFound(f"experience {name!r:.80}", REMEDY)
    return state, stored


async def get(workspace: Workspace, name: str, version: int | None = None) -> KeptVersion:
    """A version, the newest if none is named. Raises NotFound (no such experience, or its bytes
    were erased), Refused (no such version), BadName, BadValue, Corrupt.
    """
    state, stored = await read(workspace, name)
    return await _version(workspace, name, state, stored, version)


async def at(workspace: Workspace, name: str, point: str = "") -> KeptVersion:
    """A version by its number (`3`) or its digest's beginning; the newest for an empty one. Raises
    what `get` raises.
    """
    if not point.isdecimal():
        state, stored = await read(workspace, name)
        number = kept.at_digest(state, point) if point else state.newest
        return await _version(workspace, name, state, stored, number)
    return await get(workspace, name, int(point[:9]))


async def usable(workspace: Workspace, name: str, version: int | None = None) -> KeptVersion:
    """A version by which something may be done. Raises what `get` raises, and Refused where it is
    retired, quarantined or not trusted.
    """
    state, stored = await read(workspace, name)
    number = state.newest if version is None else version
    kept.demand(state, number)
    kept.demand_usable(state, name, number)
    return await _version(workspace, name, state, stored, number)


async def _version(
    workspace: Workspace,
    name: str,
    state: KeptExperienceState,
    stored: Sequence[Stored],
    version: int | None,
) -> KeptVersion:
    number = state.newest if version is None else version
    told = kept.demand(state, number)
    content = await store.fetched(workspace, told.content)
    if not isinstance(content, dict) or kept.digest_of(content) != told.digest:
        raise Corrupt(f"version {number} of experience {name!r}", "it is not its digest's")
    return KeptVersion(
        name=name,
        version=number,
        digest=told.digest,
        content=content,
        standing=state.standing_of(number),
        label=_labels(stored).get(number),
    )


def label_of(stored: Sequence[Stored]) -> Label | None:
    """The label of what an experience's commits rest on; None for public and trusted."""
    return join(*(each.commit.label for each in stored)).stored


def _labels(stored: Sequence[Stored]) -> dict[int, Label | None]:
    """The label of each version: that of its commit."""
    return {
        event.version: each.commit.label
        for each in stored
        for event in revive_all([each.commit])
        if isinstance(event, kept.ExperienceVersion)
    }


async def keep(
    workspace: Workspace,
    experience: Experience,
    *,
    because: str = "",
    by: str | Actor,
    label: Label | None = None,
) -> int:
    """Make what runs taught the next version of the experience of that name: its number, or that of
    the newest, where that is equal, or only heals of it and a person's word on it have come since.

    Raises BadName, BadValue, Refused, Conflict after 50 lost races.
    """
    told = ExperienceDistilled(
        version=0,
        **await content(workspace, experience),
        sources=experience.sources,
        failed=experience.failed,
        because=workspace.text(because),
    )
    return await tell(workspace, experience.name, told, by, label)


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
) -> int:
    """Confirm the check functions of a version, the newest if no digest is named: the number of the
    version that has them, and may act.

    Of what runs taught they are those that are proposed, or of these the ones that are named. What
    came in a bundle, and its heals, stand as they are, and are named by their digest.

    Raises NotFound, Refused, BadValue, Conflict.
    """
    state, stored = await read(workspace, name)
    number = kept.at_digest(state, digest) if digest else state.newest
    told = kept.demand(state, number)
    if number in state.untrusted and not digest:
        fact = f"version {number} came in a bundle"
        least = told.digest[: kept.DIGEST_CHARACTERS_MIN]
        raise BadValue("digest", fact, f"name what you looked at: {least} (--digest)")
    found = await _version(workspace, name, state, stored, number)
    asks = told.about.checks == 0 or isinstance(told, ExperienceDistilled)
    if checks and not asks and number in state.untrusted:
        fact = f"version {number} has {counted(told.about.checks, 'check function')} already"
        raise BadValue("checks", fact, "confirm it whole")
    if asks or checks:
        made = await content(workspace, found.experience.confirmed(*checks))
    else:
        raw = await packed(workspace, found.content)
        made = {"digest": told.digest, "content": raw, "about": told.about}
    stated = ExperienceConfirmed(version=0, **made, parent=number, because=workspace.text(because))
    return await tell(workspace, name, stated, by, _vouched(found.label, number, state))


def _vouched(label: Label | None, number: int, state: KeptExperienceState) -> Label | None:
    """The label of what a person confirms: who confirms a bundle's digest vouches for it."""
    if label is None or number not in state.untrusted:
        return label
    return Label(label.confidentiality).stored


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
) -> int:
    """Make an experience in which a node's element is another the next version: its number, or that
    of the newest where `before` is not the newest any more. Raises Refused, Conflict.
    """
    told = ExperienceHealed(
        version=0,
        **await content(workspace, experience),
        parent=before.version,
        node=node,
        run=run,
        because=because,
    )
    return await tell(workspace, before.name, told, by, join(label, before.label).stored)


async def replayed(
    workspace: Workspace,
    name: str,
    told: ExperienceReplayed,
    *,
    by: str | Actor,
    label: Label | None = None,
) -> None:
    """State what came of a replay; the same step is stated once. Raises Refused, Conflict."""
    await tell(workspace, name, told, by, label)


async def retire(
    workspace: Workspace,
    name: str,
    *,
    because: str = "",
    by: str | Actor,
) -> bool:
    """State that it is not to be used any more, until a version is confirmed again; whether that is
    new. Raises NotFound, Conflict.
    """
    before, stored = await read(workspace, name)
    told = ExperienceRetired(version=0, because=workspace.text(because))
    await tell(workspace, name, told, by, label_of(stored))
    return before.retired is None


async def tell(
    workspace: Workspace,
    name: str,
    told: ExperienceEvent,
    by: str | Actor,
    label: Label | None = None,
) -> int:
    """State an event; the number of the newest version then. Raises Refused, BadName, Conflict."""
    return await store.tell(workspace, stream_of(name), kept, told, by, label)


async def demand_usable(workspace: Workspace, experience: Experience) -> int:
    """Which version an experience is of the one that the record keeps by its name; 0 for none.

    Raises Refused where that is retired, quarantined or not trusted.
    """
    state, _ = await find(workspace, experience.name)
    number = _number_in(state, experience)
    if number:
        kept.demand_usable(state, experience.name, number)
    return number


async def number_of(workspace: Workspace, experience: Experience) -> int:
    """Which version an experience is of the one that the record keeps by its name; 0 for none."""
    state, _ = await find(workspace, experience.name)
    return _number_in(state, experience)


def _number_in(state: KeptExperienceState, experience: Experience) -> int:
    digest = kept.digest_of(kept.content_of(experience))
    same = [number for number, each in state.versions.items() if each.digest == digest]
    return max(same, default=0)
