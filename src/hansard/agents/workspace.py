"""A workspace, open: its log, its blobs, and what is read from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from hansard.agents.board_store import Boards
from hansard.bus.blobs import Blobs
from hansard.bus.clock import Clock
from hansard.bus.codec import record
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, EventLog
from hansard.bus.points import Points
from hansard.bus.snapshots import Snapshots
from hansard.bus.states import States, fold_life
from hansard.domain import run as runs
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import Life
from hansard.domain.run import RunEvent, RunState

RACES_MAX = 50
"""Most lost races over a run's life before giving up; each means that another agent got through."""


class Workspace:
    """A workspace's log and blobs, and who to tell when it is closed."""

    def __init__(
        self,
        log: EventLog,
        blobs: Blobs,
        clock: Clock,
        close: Callable[[], Awaitable[None]],
        snapshots: Snapshots | None = None,
    ) -> None:
        self.log = log
        self.blobs = blobs
        self.clock = clock
        self.snapshots = snapshots
        self.states = States(log, snapshots)
        self.points = Points(self.states)
        self.boards = Boards(self.states)
        self._close = close

    async def close(self) -> None:
        """Let go of the broker."""
        await self._close()

    def commit(self, version: int, agent: str, events: Sequence[Event], epoch: int = 0) -> Commit:
        """A commit of events by an agent, with ids and time."""
        return Commit(
            id=self.clock.new_id(),
            version=version,
            at=self.clock.now(),
            actor=Actor(agent),
            epoch=epoch,
            events=tuple(record(event, self.clock.new_id()) for event in events),
        )

    async def tell_life(self, run: str, agent: str, *events: RunEvent) -> None:
        """State something of a run's life; what is so already is not stated again.

        Raises Refused, NotFound, and Conflict after 50 lost races.
        """
        for race in range(RACES_MAX):
            state = await self.states.life(run)
            told = decided(state, events)
            if not told:
                return
            commit = self.commit(state.version + 1, agent, told)
            try:
                await self.log.append(Append(Life(run), commit))
            except Conflict:
                if race == RACES_MAX - 1:
                    raise
                continue
            return

    async def runs(self) -> list[tuple[str, RunState]]:
        """Every run with its life, the newest first."""
        found: list[tuple[int, str, RunState]] = []
        for run in await self.log.runs():
            commits = await self.states.commits(Life(run))
            own = [stored for stored in commits if stored.stream == Life(run)]
            if own:
                found.append((own[0].position, run, fold_life(commits)))
        return [(run, life) for _, run, life in sorted(found, key=lambda item: -item[0])]


def decided(state: RunState, events: Sequence[RunEvent]) -> list[RunEvent]:
    """What of some events is news to a run's life, in order."""
    told: list[RunEvent] = []
    for event in events:
        news = runs.decide(state, event)
        state = runs.fold(state, news)
        told.extend(news)
    return told
