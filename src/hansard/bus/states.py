"""States by replay: a stream, an agent, a whole run, at any point; forks read through to parents.

No read of the past replays the log or keeps a list of states: one agent at a version costs its
nearest snapshot and what came after, one run at a position costs that run's own commits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hansard.bus.codec import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, EventLog, Stored, UpTo
from hansard.domain import agent as agents
from hansard.domain import run as runs
from hansard.domain.agent import AgentState
from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream, Life, StreamId, in_run
from hansard.domain.run import RunForked, RunState

FORK_DEPTH_MAX = 100
"""Longest line of forks of forks that is read through."""


class RunView(msgspec.Struct):
    """A run at a point: its life, its agents, and what was read for it.

    `commits` are those of the run and, before a fork's cut, of its parents, by position.
    `vector` is the version of each stream, by stream name.
    """

    run: str
    life: RunState
    agents: dict[str, AgentState]
    streams: dict[str, StreamId]
    vector: dict[str, int]
    commits: list[Stored]

    @property
    def position(self) -> int:
        """The position of the newest commit that counts."""
        return max((stored.position for stored in self.commits), default=0)

    def agent(self, name: str) -> AgentState:
        """One agent's state. Raises NotFound."""
        try:
            return self.agents[name]
        except KeyError:
            known = ", ".join(sorted(self.agents)) or "none yet"
            what = f"agent {name!r} of run {self.run}"
            raise NotFound(what, f"its agents at this point are: {known}") from None

    def stream_of(self, agent: str) -> AgentStream:
        """An agent's stream in this run."""
        return AgentStream(self.run, self.agent(agent).role, agent)


class States:
    """Reads states from a log."""

    def __init__(self, log: EventLog) -> None:
        self.log = log

    async def forked(self, run: str) -> RunForked | None:
        """How a run began, if as a fork."""
        first = await self._life_begin(run)
        if first is None:
            return None
        event = revive(first.commit.events[0])
        return event if isinstance(event, RunForked) else None

    async def _life_begin(self, run: str) -> Stored | None:
        last = await self.log.last(Life(run))
        if last is None:
            return None
        if last.commit.version == 1:
            return last
        whole = await self.log.read_streams([Life(run)])
        return whole[0]

    async def commits(
        self, stream: StreamId, to: int | None = None, up_to: UpTo = None
    ) -> list[Stored]:
        """One stream's commits from version 1, through its parents where its run is a fork."""
        run = getattr(stream, "run", None)
        forked = await self.forked(run) if run is not None else None
        if run is None or forked is None:
            return await self.log.read(stream, to=to, up_to=up_to)
        cut = forked.at.get(str(stream), 0)
        before: list[Stored] = []
        if cut:
            limit = cut if to is None else min(cut, to)
            before = await self.commits(in_run(stream, forked.parent), to=limit)
        if to is not None and to <= cut:
            return before
        return before + await self.log.read(stream, after=cut, to=to, up_to=up_to)

    async def agent(self, stream: AgentStream, to: int | None = None) -> AgentState:
        """An agent at a version of its stream; None is the newest."""
        return fold_agent(await self.commits(stream, to), to)

    async def life(self, run: str) -> RunState:
        """A run's life now. Raises NotFound."""
        commits = await self.commits(Life(run))
        if not commits:
            raise _no_run(run)
        return fold_life(commits)

    async def run(self, run: str, up_to: UpTo = None) -> RunView:
        """A whole run at a point. Raises NotFound where it had not begun by then."""
        commits = await self._run_commits(run, up_to, 0)
        if not commits:
            raise _no_run(run)
        return view(run, commits)

    async def _run_commits(self, run: str, up_to: UpTo, depth: int) -> list[Stored]:
        if depth > FORK_DEPTH_MAX:
            raise Corrupt(f"run {run}", f"it has more than {FORK_DEPTH_MAX} parents")
        own = await self.log.read_run(run, up_to)
        begin = next((stored for stored in own if isinstance(stored.stream, Life)), None)
        if begin is None or begin.commit.version == 1:
            return own
        event = revive(begin.commit.events[0])
        if not isinstance(event, RunForked):
            raise Corrupt(f"run {run}", f"its life begins at version {begin.commit.version}")
        parents = await self._run_commits(event.parent, None, depth + 1)
        kept = [
            stored
            for stored in parents
            if stored.commit.version <= event.at.get(str(stored.stream), 0)
        ]
        return kept + own


def _no_run(run: str) -> NotFound:
    return NotFound(f"run {run}", "see 'hansard runs'; at an early point it may not have begun")


def view(run: str, commits: Sequence[Stored]) -> RunView:
    """A run's view from its commits, parents' first."""
    by_stream: dict[str, list[Stored]] = {}
    streams: dict[str, StreamId] = {}
    for stored in commits:
        name = str(stored.stream)
        by_stream.setdefault(name, []).append(stored)
        streams[name] = in_run(stored.stream, run)
    found: dict[str, AgentState] = {}
    vector: dict[str, int] = {}
    for name, stream in streams.items():
        mine = by_stream[name]
        _contiguous(name, mine)
        vector[name] = mine[-1].commit.last_version
        if isinstance(stream, AgentStream):
            found[stream.agent] = fold_agent(mine)
    life = fold_life(by_stream.get("life", []))
    return RunView(run, life, found, streams, vector, list(commits))


def _contiguous(name: str, commits: Sequence[Stored]) -> None:
    expected = 1
    for stored in commits:
        if stored.commit.version != expected:
            raise Corrupt(f"stream {name}", f"version {expected} is missing")
        expected = stored.commit.last_version + 1


def fold_agent(commits: Sequence[Stored], to: int | None = None) -> AgentState:
    """An agent's state from its stream's commits."""
    state = agents.initial()
    for stored in commits:
        for recorded in stored.commit.events:
            if to is not None and state.version >= to:
                return state
            agents.evolve(state, revive(recorded))
    return state


def fold_life(commits: Sequence[Stored]) -> RunState:
    """A run's life from its stream's commits."""
    state = runs.initial()
    for stored in commits:
        for recorded in stored.commit.events:
            runs.evolve(state, revive(recorded))
    return state


def up_to_version(commits: Sequence[Stored], stream: str, version: int) -> AtPosition | None:
    """The position of the commit that holds a version of a stream."""
    for stored in commits:
        if str(stored.stream) == stream and stored.commit.last_version >= version:
            return AtPosition(stored.position)
    return None


__all__ = ["AtPosition", "AtTime", "RunView", "States", "fold_agent", "fold_life", "view"]
