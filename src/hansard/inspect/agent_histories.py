"""A run's agents with the events behind their states."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive
from hansard.bus.log import AtPosition, Stored, UpTo
from hansard.bus.states.replay import RunView
from hansard.bus.times import EventTime, time_of
from hansard.domain import agent as agents
from hansard.domain.agent import AgentState
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream
from hansard.domain.label import raised
from hansard.domain.payload.parts import in_full
from hansard.domain.steps import Step, StepAttempted, StepRequested


class StoredEvent(msgspec.Struct, frozen=True):
    """One event of a stream, with the commit that holds it."""

    stored: Stored
    event: Recorded

    @property
    def time(self) -> EventTime:
        """When it was."""
        return time_of(self.stored, self.event)


class AgentHistory(msgspec.Struct):
    """An agent's state and the events it was folded from, by version.

    `attempted` are the versions at which a step's attempts failed, by step.
    """

    name: str
    state: AgentState
    events: dict[int, StoredEvent] = {}
    attempted: dict[int, list[int]] = {}

    @property
    def steps(self) -> list[Step]:
        """The agent's steps, in order."""
        return list(self.state.steps.values())


def folded(name: str, commits: Iterable[Stored]) -> AgentHistory:
    """An agent from its stream's commits, from the first. Raises UnknownEvent, Corrupt."""
    made = AgentHistory(name, agents.initial())
    for stored in commits:
        made.state.label = raised(made.state.label, stored.commit.label)
        for recorded in stored.commit.events:
            event = revive(recorded)
            agents.evolve(made.state, event)
            version = made.state.version
            made.events[version] = StoredEvent(stored, recorded)
            if isinstance(event, StepRequested):
                made.attempted[event.step] = []
            elif isinstance(event, StepAttempted):
                made.attempted[event.step].append(version)
    in_full(made.state.steps)
    return made


def by_agent(history: Iterable[Stored]) -> dict[str, AgentHistory]:
    """Every agent of a run, in the order in which they came. Raises UnknownEvent, Corrupt."""
    return {name: folded(name, found) for name, found in commits_by_agent(history).items()}


def commits_by_agent(history: Iterable[Stored]) -> dict[str, list[Stored]]:
    """Each agent's commits."""
    found: dict[str, list[Stored]] = {}
    for stored in history:
        if isinstance(stored.stream, AgentStream):
            found.setdefault(stored.stream.agent, []).append(stored)
    return found


async def agents_at(
    workspace: Workspace, run: str, up_to: UpTo, only: str | None
) -> tuple[RunView, list[AgentHistory]]:
    """A run at a point, and its agents (or one) with their events.

    Reads the streams of these agents alone. Raises NotFound, UnknownEvent, Corrupt.
    """
    view = await workspace.states.run(run, up_to)
    end = AtPosition(view.position)
    found: list[AgentHistory] = []
    for name in view.agents if only is None else [only]:
        commits = await workspace.states.commits(view.stream_of(name), up_to=end)
        found.append(folded(name, commits))
    return view, found
