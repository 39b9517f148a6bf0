"""What reflections and compactions propose, and a person's word that makes one of them a change.

A proposal is open until it is made. It goes by the file that it was made of: where that has changed
since, by anything but its own neighbours, it is refused with both texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from hansard.agents.memory import drafts
from hansard.agents.memory.drafts import Op, worked_out
from hansard.agents.memory.store import MemoryStore
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain.choices import Brief
from hansard.domain.errors import BadValue
from hansard.domain.label import Label
from hansard.domain.label import text as label_text
from hansard.domain.memory.events import MemoryChanged, MemoryProposal, MemoryReflected
from hansard.domain.memory.lines import unified
from hansard.domain.memory.space import BECAUSE_MAX, SOURCES_MAX, MemoryConflict, MemoryFile
from hansard.state.memories import MemoryEventAt

LAST = "last"
"""Names the newest event that proposes something."""


class ProposalStanding(StrEnum):
    """How a proposal stands."""

    OPEN = "open"
    MADE = "made"
    CHANGED = "changed"


class ListedProposal(Brief, msgspec.Struct, frozen=True):
    """What is proposed for a file.

    Attributes:
        proposal: The id of the event that proposes it.
        path: The file.
        standing: `open`; `made`; `changed`: the file is another since, so it cannot be made.
        because: Why it is proposed.
        sources: The ids of the events that it rests on.
        label: Of what it rests on; empty for public and trusted.
        diff: What it does, in git's unified format; empty unless it is open.
    """

    proposal: str
    path: str
    standing: ProposalStanding
    because: str
    sources: tuple[str, ...]
    label: str
    diff: str


class _Proposed(msgspec.Struct, frozen=True):
    """What an event proposes for a file, in order."""

    at: MemoryEventAt
    path: str
    parts: list[MemoryProposal]

    @property
    def because(self) -> str:
        return "; ".join(dict.fromkeys(each.because for each in self.parts if each.because))

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each for part in self.parts for each in part.sources))

    @property
    def label(self) -> Label | None:
        return self.at.stored.commit.label

    def text(self, stands: MemoryFile | None) -> str | None:
        """What the file is to hold; None where it goes."""
        text = stands.text if stands is not None else ""
        for part in self.parts:
            if part.gone:
                return None
            between = "" if text.endswith("\n") or not text else "\n"
            text = part.text if part.whole else f"{text}{between}{part.text}"
        return text


async def listed(workspace: Workspace, space: str) -> list[ListedProposal]:
    """What is proposed for a space's files, the newest last. Raises BadName."""
    history = await workspace.memories.history(space)
    now = await workspace.memories.state(space)
    found: list[ListedProposal] = []
    for each in _proposed(history):
        standing = await _standing(workspace, space, history, each)
        stands = now.file(each.path)
        await workspace.memories.load([stands])
        is_open = standing is ProposalStanding.OPEN
        before = stands.text if stands is not None else None
        found.append(
            ListedProposal(
                proposal=each.at.id,
                path=each.path,
                standing=standing,
                because=each.because,
                sources=each.sources,
                label=label_text(each.label) if each.label is not None else "",
                diff=unified(each.path, before, each.text(stands)) if is_open else "",
            )
        )
    return found


async def make(
    workspace: Workspace, space: str, proposal: str, paths: Sequence[str], by: str
) -> tuple[int, str]:
    """Have what an event proposes be a change, by a person's word; the version that the space is
    at, and the change as a diff. What is made already is left.

    Args:
        workspace: Of the space.
        space: Which.
        proposal: The event's id, or `last` for the newest.
        paths: Of which files; all that it proposes something for, if empty.
        by: Who says so.

    Raises:
        NotFound: There is no such proposal.
        BadValue: All of it is made already.
        MemoryConflict: A file is another than it was proposed for; nothing was changed.
        MemoryInvalid: A file would not be valid.
    """
    history = await workspace.memories.history(space)
    chosen = _chosen(_proposed(history), space, proposal, paths)
    now = await workspace.memories.state(space)
    ops: list[Op] = []
    made: list[_Proposed] = []
    for each in chosen:
        standing = await _standing(workspace, space, history, each)
        stands = now.file(each.path)
        await workspace.memories.load([stands])
        text = each.text(stands)
        if standing is ProposalStanding.CHANGED:
            stood = (await workspace.memories.at(space, f"@{each.at.version}")).file(each.path)
            expected = stood.digest if stood is not None else ""
            raise MemoryConflict(space, each.path, expected, text or "", stands)
        if standing is ProposalStanding.OPEN:
            ops.append(drafts.delete(each.path) if text is None else drafts.create(each.path, text))
            made.append(each)
    if not ops:
        raise BadValue("proposal", f"{proposal} is made already", "see 'hansard memory log'")
    seen = {path: file.digest for path, file in now.files.items()}
    diff = drafts.shown(now, worked_out(space, now, ops, seen))
    because = "; ".join(dict.fromkeys(each.because for each in made if each.because))
    sources = dict.fromkeys([made[0].at.id, *(each for it in made for each in it.sources)])
    version = await MemoryStore(workspace, space).change(
        ops,
        by,
        f"proposed: {because}"[:BECAUSE_MAX] if because else "proposed",
        list(sources)[:SOURCES_MAX],
        seen=seen,
        label=made[0].label,
    )
    return version, diff


def _proposed(history: Sequence[MemoryEventAt]) -> list[_Proposed]:
    found: list[_Proposed] = []
    for each in history:
        if isinstance(each.event, MemoryReflected):
            parts: dict[str, list[MemoryProposal]] = {}
            for part in each.event.proposals:
                parts.setdefault(part.path, []).append(part)
            found += [_Proposed(each, path, of_it) for path, of_it in parts.items()]
    return found


def _chosen(
    found: Sequence[_Proposed], space: str, proposal: str, paths: Sequence[str]
) -> list[_Proposed]:
    """Those that are meant. Raises NotFound."""
    wanted = found[-1].at.id if proposal == LAST and found else proposal
    of_it = [each for each in found if each.at.id == wanted]
    has = {each.path for each in of_it}
    missing = [path for path in paths if path not in has]
    if not of_it or missing:
        what = f"proposal {proposal!r:.80} of {space}"
        what += f" for {missing[0]!r:.200}" if of_it else ""
        raise NotFound(what, "see 'hansard memory proposals'")
    return [each for each in of_it if not paths or each.path in paths]


async def _standing(
    workspace: Workspace, space: str, history: Sequence[MemoryEventAt], proposed: _Proposed
) -> ProposalStanding:
    """By the changes since of the same file: one that rests on the event has made it, any other has
    the file be another one.
    """
    for each in history:
        if each.version <= proposed.at.version or not isinstance(each.event, MemoryChanged):
            continue
        paths = {path for file in each.event.files for path in (file.path, file.was)}
        if proposed.path in paths:
            ours = proposed.at.id in each.event.sources
            return ProposalStanding.MADE if ours else ProposalStanding.CHANGED
    whole = [each for each in proposed.parts if each.whole or each.gone]
    if whole:
        stood = (await workspace.memories.at(space, f"@{proposed.at.version}")).file(proposed.path)
        before = stood.digest if stood is not None else ""
        if any(each.before != before for each in whole):
            return ProposalStanding.CHANGED
    return ProposalStanding.OPEN
