"""What the commits of a run say, as far as this version knows their events: of others the bytes
alone go along.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TypeVar

from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive
from hansard.bus.log import Stored
from hansard.domain.aggregate_types import AggregateChanged
from hansard.domain.errors import RecordError
from hansard.domain.events import UPCASTERS, Event
from hansard.domain.ids import AgentStream
from hansard.domain.memory.events import MemoryChanged, MemoryRejected
from hansard.domain.steps import StepCompleted, StepRequested
from hansard.domain.values import Plain
from hansard.state.aggregates import in_full

_E = TypeVar("_E", bound=Event)


def known(commits: Iterable[Stored], *kinds: type[_E]) -> Iterator[tuple[Stored, _E]]:
    """The events of some kinds, each with its commit, in order."""
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
    """What the completed steps of a kind came to, in full, where the commits ask for them, too."""
    asked: set[tuple[AgentStream, int]] = set()
    of_steps: Iterator[tuple[Stored, StepRequested | StepCompleted]]
    of_steps = known(commits, StepRequested, StepCompleted)
    for stored, event in of_steps:
        if not isinstance(stored.stream, AgentStream):
            continue
        step = (stored.stream, event.step)
        match event:
            case StepRequested(kind=of) if of == kind:
                asked.add(step)
            case StepCompleted() if step in asked:
                yield await in_full(workspace.blobs, event.result)
            case _:
                pass


def runs(
    commits: Iterable[Stored],
    *kinds: type[AggregateChanged | MemoryChanged | MemoryRejected],
) -> list[str]:
    """The runs whose steps stated these events, each once, in order."""
    return list(dict.fromkeys(event.run for _, event in known(commits, *kinds) if event.run))
