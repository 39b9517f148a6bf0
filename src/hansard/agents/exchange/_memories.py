"""Which spaces of memory belong to a run: those that its steps read or changed, up to there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hansard.agents.exchange import _events
from hansard.agents.memory.operations import KIND as STEPS
from hansard.agents.workspace import Workspace
from hansard.bus.log import AtPosition, Stored
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.memory.events import KIND, MemoryChanged, MemoryRejected, stream_of


class _Result(msgspec.Struct):
    """What a step of memory came to, as far as it says of which space."""

    space: str = ""


async def of_run(workspace: Workspace, commits: Sequence[Stored]) -> dict[str, list[Stored]]:
    """The spaces that a run's agents read or changed by its commits, with theirs up to its end."""
    end = 0
    spaces: set[str] = set()
    for stored in commits:
        tx = stored.commit.tx
        first, count = (
            (stored.position, 1) if tx is None else (stored.position - tx.index, tx.count)
        )
        end = max(end, first + count - 1)
        if isinstance(stored.stream, AgentStream) and count > 1:
            spaces |= await _beside(workspace, first, count)
    async for plain in _events.results(workspace, commits, STEPS):
        spaces |= _named(plain)
    return {
        space: await workspace.log.read(stream_of(space), up_to=AtPosition(end))
        for space in sorted(spaces)
    }


async def _beside(workspace: Workspace, first: int, count: int) -> set[str]:
    """The spaces that were changed in a transaction."""
    others = [await workspace.log.at(position) for position in range(first, first + count)]
    return {
        other.stream.id
        for other in others
        if isinstance(other.stream, WorkspaceStream) and other.stream.kind == KIND
    }


def _named(plain: object) -> set[str]:
    try:
        space = msgspec.convert(plain, _Result).space
    except msgspec.ValidationError:
        return set()
    return {space} if space else set()


def runs_of(commits: list[Stored]) -> list[str]:
    """The runs whose steps wrote what some commits say."""
    return _events.runs(commits, MemoryChanged, MemoryRejected)
