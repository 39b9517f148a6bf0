"""Which aggregates of a program's own belong to a run: those that it saved or got, up to there."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hansard.agents.aggregates.operations import KIND as STEPS
from hansard.agents.exchange import _events
from hansard.agents.workspace import Workspace
from hansard.bus.log import AtPosition, Stored
from hansard.domain.aggregate_types import KIND, AggregateChanged, stream_of
from hansard.domain.ids import WorkspaceStream


class _Told(msgspec.Struct):
    """An aggregate as a step's outcome names it."""

    id: str
    version: int


class _Result(msgspec.Struct):
    """What a save or a get came to: several, or one."""

    saved: list[_Told] = []
    id: str = ""
    version: int = 0


async def of_run(workspace: Workspace, commits: Sequence[Stored]) -> dict[str, int]:
    """The aggregates that a run's agents saved or got by its commits, by id, with their newest
    version there.
    """
    found: dict[str, int] = {}
    async for plain in _events.results(workspace, commits, STEPS):
        for told in _named(plain):
            found[told.id] = max(told.version, found.get(told.id, 0))
    return found


def _named(plain: object) -> list[_Told]:
    if plain is None:
        return []
    try:
        result = msgspec.convert(plain, _Result)
    except msgspec.ValidationError:
        return []
    return result.saved or [_Told(result.id, result.version)]


async def up_to_version(
    workspace: Workspace, named: str, version: int, up_to: AtPosition
) -> list[Stored]:
    """An aggregate's commits up to a version."""
    return await workspace.log.read(stream_of(named), to=version, up_to=up_to)


def runs_of(commits: list[Stored]) -> list[str]:
    """The runs whose steps saved what some commits say."""
    return _events.runs(commits, AggregateChanged)


async def beside(workspace: Workspace, stored: Stored) -> dict[str, int]:
    """The other aggregates that were saved in the transaction of a commit, with their versions."""
    tx = stored.commit.tx
    if tx is None:
        return {}
    first = stored.position - tx.index
    found: dict[str, int] = {}
    for position in range(first, first + tx.count):
        other = stored if position == stored.position else await workspace.log.at(position)
        if isinstance(other.stream, WorkspaceStream) and other.stream.kind == KIND:
            found[other.stream.id] = other.commit.last_version
    return found
