"""Workspace data that a run's commits refer to: memory spaces and aggregates that its steps read,
saved or changed. Events of unknown types are exported as bytes only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from hansard.agents.aggregates import operations as aggregates
from hansard.agents.memory import operations as memories
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive, whole_at
from hansard.bus.log import AtPosition, Stored
from hansard.domain import aggregate_types
from hansard.domain.aggregate_types import AggregateChanged
from hansard.domain.errors import RecordError
from hansard.domain.events import UPCASTERS, Event
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.memory import events as memory
from hansard.domain.memory.events import MemoryChanged, MemoryRejected
from hansard.domain.steps import StepCompleted, StepRequested
from hansard.domain.values import Plain
from hansard.state.aggregates import in_full

_E = TypeVar("_E", bound=Event)
_S = TypeVar("_S", bound=msgspec.Struct)


def events(commits: Iterable[Stored], *kinds: type[_E]) -> Iterator[tuple[Stored, _E]]:
    """Yield the events of some types, each with its commit, in order."""
    tags = {*UPCASTERS, *(kind.tag for kind in kinds)}
    for stored in commits:
        for recorded in stored.commit.events:
            if recorded.type not in tags:
                continue
            try:
                event = revive(recorded)
            except RecordError:
                continue
            if isinstance(event, kinds):
                yield stored, event


async def results(
    workspace: Workspace, commits: Iterable[Stored], kind: str
) -> AsyncIterator[Plain]:
    """Yield the full results of completed steps of a kind, if the commits also hold their
    requests.
    """
    names: set[tuple[AgentStream, int]] = set()
    of_steps: Iterator[tuple[Stored, StepRequested | StepCompleted]]
    of_steps = events(commits, StepRequested, StepCompleted)
    for stored, event in of_steps:
        if not isinstance(stored.stream, AgentStream):
            continue
        step = (stored.stream, event.step)
        match event:
            case StepRequested(kind=of) if of == kind:
                names.add(step)
            case StepCompleted() if step in names:
                yield await in_full(workspace.blobs, event.result)
            case _:
                pass


def runs(
    commits: Iterable[Stored],
    *kinds: type[AggregateChanged | MemoryChanged | MemoryRejected],
) -> list[str]:
    """Return the runs whose steps recorded these events, each once, in order."""
    return list(dict.fromkeys(event.run for _, event in events(commits, *kinds) if event.run))


async def _transaction(workspace: Workspace, stored: Stored, kind: str) -> list[Stored]:
    """Return a transaction's commits to streams of a kind, by one of its commits."""
    tx = stored.commit.tx
    if tx is None:
        return []
    first = stored.position - tx.index
    whole = [await workspace.log.at(position) for position in range(first, first + tx.count)]
    return [
        each
        for each in whole
        if isinstance(each.stream, WorkspaceStream) and each.stream.kind == kind
    ]


class _Space(msgspec.Struct):
    """Result of a memory step, reduced to its space."""

    space: str = ""


class _Saved(msgspec.Struct):
    """An aggregate as named in a step's outcome."""

    id: str
    version: int


class _SavedOrGot(msgspec.Struct):
    """Result of a save (several aggregates) or a get (one)."""

    saved: list[_Saved] = []
    id: str = ""
    version: int = 0


def _converted(plain: Plain, kind: type[_S]) -> _S | None:
    try:
        return None if plain is None else msgspec.convert(plain, kind)
    except msgspec.ValidationError:
        return None


async def spaces_of(workspace: Workspace, commits: Sequence[Stored]) -> dict[str, list[Stored]]:
    """Return the commits of the spaces that a run's agents read or changed, up to the run's end."""
    spaces: set[str] = set()
    for stored in commits:
        if isinstance(stored.stream, AgentStream):
            changed = await _transaction(workspace, stored, memory.KIND)
            spaces.update(getattr(each.stream, "id", "") for each in changed)
    async for plain in results(workspace, commits, memories.KIND):
        result = _converted(plain, _Space)
        if result is not None and result.space:
            spaces.add(result.space)
    end = AtPosition(max(map(whole_at, commits), default=0))
    return {
        space: await workspace.log.read(memory.stream_of(space), up_to=end)
        for space in sorted(spaces)
    }


async def aggregates_of(workspace: Workspace, commits: Sequence[Stored]) -> dict[str, int]:
    """Return the aggregates that a run's agents saved or got, by id, with the newest version
    involved.
    """
    versions: dict[str, int] = {}
    async for plain in results(workspace, commits, aggregates.KIND):
        result = _converted(plain, _SavedOrGot)
        if result is not None:
            for each in result.saved or [_Saved(result.id, result.version)]:
                versions[each.id] = max(each.version, versions.get(each.id, 0))
    return versions


async def saved_beside(workspace: Workspace, stored: Stored) -> dict[str, int]:
    """Return the aggregates saved in a commit's transaction, with their versions."""
    saved = await _transaction(workspace, stored, aggregate_types.KIND)
    return {getattr(each.stream, "id", ""): each.commit.last_version for each in saved}
