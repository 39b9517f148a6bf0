"""States by replay: a stream, an agent, a whole run, at any point; forks read through to parents.

No read of the past replays the log or keeps a list of states: an agent at a point costs its nearest
chunk and the commits after it, a run its agents. Past states are cached in bounded memory, since
the past does not change. A point is one of:

    None                 the newest
    1234                 a position
    1234.2               an event's address: the end of the commit at its position
    researcher_1@12      a version of an agent's stream (or life@3)
    researcher_1#8       a step: where its outcome was recorded, or its intent while it has none
    2026-11-21T10:00Z    a time; the log's own time of each commit decides
    a UUID               a commit, event or snapshot of the run
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Self

import msgspec
from cachetools import LRUCache

from hansard.bus.commits import check_begins, check_versions, is_stand_in, revive, until, whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, AtTime, EventLog, RunStreams, Snapshots, Stored, UpTo, utc
from hansard.domain import agent as agents
from hansard.domain import run as runs
from hansard.domain import team as task
from hansard.domain.agent import AgentState
from hansard.domain.board import RESERVED, BoardState
from hansard.domain.choices import Brief, first
from hansard.domain.decider import Quarantined, evolve
from hansard.domain.errors import BadName, Corrupt, Refused
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, in_run, run_of
from hansard.domain.label import Label, raised
from hansard.domain.run import FORK_DEPTH_MAX, RunForked, RunState
from hansard.domain.snapshot import snapshot_id
from hansard.domain.team import MAIL_KEY, MailSent, TeamState
from hansard.state.histories import ChunkMaker, Histories
from hansard.state.repository import follow

# A team's tasks and messages from their commits.


class Mail(msgspec.Struct, frozen=True):
    """A sent message: its version in the stream, sender, event, and label."""

    version: int
    sender: str
    sent: MailSent
    label: Label | None = None


def tasks_of(run: str) -> KeyStream:
    """Return the stream of a run's tasks."""
    return KeyStream(run, task.TASKS_KEY)


def mail_of(run: str) -> KeyStream:
    """Return the stream of a run's messages."""
    return KeyStream(run, MAIL_KEY)


def fold_team(commits: Iterable[Stored]) -> TeamState:
    """Fold the tasks of a run from commits of its board, by position; other keys are skipped."""
    state = TeamState()
    for stored in commits:
        if isinstance(stored.stream, KeyStream) and stored.stream.key == task.TASKS_KEY:
            follow(state, stored)
    return state


def mails(commits: Iterable[Stored]) -> list[Mail]:
    """Return the messages of commits, in order. Raises Refused for an event of another kind."""
    messages: list[Mail] = []
    for stored in commits:
        for index, recorded in enumerate(stored.commit.events):
            sent = revive(recorded)
            if isinstance(sent, Quarantined):
                continue
            if not isinstance(sent, MailSent):
                message = f"{recorded.type} is not an event of a team's mail"
                raise Refused(message)
            commit = stored.commit
            messages.append(Mail(commit.version + index, commit.actor.agent, sent, commit.label))
    return messages


SKELETONS_MAX = 256
"""Most runs whose life and boards are cached."""

NEWS_MIN = 1_000
"""Positions since a cached read of a run's life and boards up to which only newer commits are read;
more for one of more commits.
"""

NEAR_MAX = 32
"""Most commits before a point that are read to find the newest of a run."""

BEGINS_MAX = 4_096
"""Most runs of which it is cached whether they began as a fork."""


class RunView(Brief, msgspec.Struct):
    """A run at a point.

    Attributes:
        run: Id of the run.
        life: State of the whole run: status, roster, labels, scores.
        agents: State of each agent, by name.
        streams: Streams of the run, by name.
        vector: Version of each stream, by name.
        position: Position at which the read ended.
        boards: Present keys of its shared state, by key.
        team: Tasks of the run.
    """

    run: str
    life: RunState
    agents: dict[str, AgentState]
    streams: dict[str, StreamId]
    vector: dict[str, int]
    position: int
    boards: dict[str, BoardState] = msgspec.field(default_factory=dict)
    team: TeamState = msgspec.field(default_factory=TeamState)

    def _brief(self) -> dict[str, Any]:
        """Return the fields of its short representation."""
        return {
            "run": self.run,
            "workflow": self.life.workflow,
            "status": self.life.status.value,
            "position": self.position,
            "agents": first(
                self.agents.values(),
                lambda each: f"{each.agent} ({each.role}), version {each.version}",
            ),
            "board": first(self.boards.items(), lambda each: f"{each[0]} @ {each[1].version}"),
            "tasks": first(
                self.team.tasks.values(), lambda each: f"{each.id}: {each.status.value}"
            ),
        }

    def agent(self, name: str) -> AgentState:
        """Return one agent's state. Raises NotFound."""
        try:
            return self.agents[name]
        except KeyError:
            raise _no_agent(self.run, name, self.agents) from None

    def stream_of(self, agent: str) -> AgentStream:
        """Return an agent's stream in this run."""
        return AgentStream(self.run, self.agent(agent).role, agent)


class _Skeleton(msgspec.Struct):
    """Life and boards of a run up to a position: everything except its agents. Newer commits are
    added in place.
    """

    commits: list[Stored]
    horizon: int
    forked: RunForked | None


class _FoldedBoards(msgspec.Struct):
    """The first commits of a run's boards, folded: their number, and the position of the last."""

    count: int = 0
    position: int = 0
    states: dict[str, BoardState] = msgspec.field(default_factory=dict)


class States:
    """Reads states from a log."""

    def __init__(self, log: EventLog, snapshots: Snapshots | None = None) -> None:
        self.log = log
        self.hash_key: Callable[[str], bytes] | None = None
        """Returns a role's key of hashed values; None where no such keys are kept."""
        self._histories = Histories(log, snapshots, self._begin)
        self._maker = ChunkMaker(log, self._histories) if snapshots is not None else None
        self._skeletons: LRUCache[str, _Skeleton] = LRUCache(SKELETONS_MAX)
        self._begins: LRUCache[str, RunForked | None] = LRUCache(BEGINS_MAX)
        self._folded: LRUCache[str, _FoldedBoards] = LRUCache(SKELETONS_MAX)

    def through(self, log: EventLog) -> Self:
        """Return the same states, written through another log of the same record; caches are
        shared.
        """
        states = copy.copy(self)
        states.log = log
        return states

    def written(self, stream: AgentStream) -> Callable[[Stored], None] | None:
        """Return the function to call with the acknowledged commits of the writer of an agent's
        stream, so that their chunks are made (`hansard.state.histories`); None if none are made.
        """
        return self._maker.written(stream) if self._maker is not None else None

    async def close(self) -> None:
        """Stop making chunks."""
        if self._maker is not None:
            await self._maker.close()

    async def forked(self, run: str) -> RunForked | None:
        """Return the event with which a run began, if it is a fork. Cached, since it does not
        change.
        """
        if run in self._begins:
            return self._begins[run]
        life = await self.log.read_streams([RunStream(run)])
        return self._begun(run, life)

    def _begun(self, run: str, life: Sequence[Stored]) -> RunForked | None:
        forked = _forked(run, life)
        if life:
            self._begins[run] = forked
        return forked

    async def commits(
        self, stream: StreamId, to: int | None = None, up_to: UpTo = None
    ) -> list[Stored]:
        """Return one stream's commits from version 1, through its parents if its run is a fork."""
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
        """Return an agent at a version of its stream; None is the newest."""
        if to is None:
            head = await self.log.end(None)
            return await self._histories.at_position(stream, head, head)
        state: AgentState | None = None
        if stream.run not in self._begins:  # requested together with the rest
            state = await self._histories.at_version(stream, to)
        forked = await self.forked(stream.run)
        if forked is not None and to <= forked.at.get(str(stream), 0):
            parent = msgspec.structs.replace(stream, run=forked.parent)
            return await self.agent(parent, to)
        return state if state is not None else await self._histories.at_version(stream, to)

    async def _begin(self, stream: AgentStream) -> tuple[AgentState, int]:
        """Return the initial state of a stream: empty, or the parent's at a fork's cut."""
        forked = await self.forked(stream.run)
        cut = forked.at.get(str(stream), 0) if forked is not None else 0
        if forked is None or not cut:
            return agents.AgentState(), 0
        parent = msgspec.structs.replace(stream, run=forked.parent)
        return await self.agent(parent, cut), 0

    async def life(self, run: str) -> RunState:
        """Return the current life of a run. Raises NotFound."""
        commits = await self.commits(RunStream(run))
        if not commits:
            raise NotFound(f"run {run}", "see 'hansard runs'")
        return fold_life(commits)

    async def run(
        self, run: str, up_to: UpTo = None, only: Collection[str] | None = None
    ) -> RunView:
        """Return a whole run at a point; with `only`, of no other agents anything is read. Raises
        NotFound if the run or one of these agents had not begun at that point.

        Steps' values are returned in full up to 64 KiB (`hansard.domain.payload.in_full`).
        """
        position = await self.log.end(up_to)
        newest = up_to is None
        life, vector, streams, boards, horizon = await self._skeleton_at(
            run, position, newest=newest
        )
        if life.status is runs.RunStatus.UNKNOWN:
            raise _no_run(run)
        members = [
            AgentStream(run, role, agent)
            for agent, role in life.roster.items()
            if only is None or agent in only
        ]
        states = await asyncio.gather(
            *(self._histories.in_full_at_position(stream, position, horizon) for stream in members)
        )
        agents: dict[str, AgentState] = {}
        for stream, state in zip(members, states, strict=True):
            if state.version:
                agents[stream.agent] = state
                vector[str(stream)] = state.version
                streams[str(stream)] = stream
        for agent in only or ():
            if agent not in agents:
                raise _no_agent(run, agent, life.roster)
        present = await self._present_boards(run, boards, position, up_to)
        team = fold_team(boards)
        return RunView(run, life, agents, streams, vector, position, present, team)

    async def boards(self, run: str, up_to: UpTo = None) -> dict[str, BoardState]:
        """Return the present keys of a run's shared state at a point, by key."""
        position = await self.log.end(up_to)
        *_, boards, _ = await self._skeleton_at(run, position, newest=up_to is None)
        return await self._present_boards(run, boards, position, up_to)

    async def _present_boards(
        self, run: str, commits: list[Stored], position: int, up_to: UpTo
    ) -> dict[str, BoardState]:
        """Fold boards' commits up to a point, without removed and expired keys."""
        folded = self._fold_boards(run, commits)
        now = up_to.stamp if isinstance(up_to, AtTime) else 0
        if not now and any(state.expires is not None for state in folded.values()):
            now = (await self.log.at(min(position, await self.log.head()))).stamp
        return {key: state for key, state in folded.items() if not state.absent(now)}

    def _fold_boards(self, run: str, commits: list[Stored]) -> dict[str, BoardState]:
        """Fold a run's boards, on from the commits that an earlier call folded, if it had fewer."""
        known = self._folded.get(run, _FoldedBoards())
        size = known.count
        if len(commits) < size or (size and commits[size - 1].position != known.position):
            return fold_boards(commits)
        self._folded.pop(run, None)  # an event may be unknown
        fold_boards(commits[size:], known.states)
        if commits:
            position = commits[-1].position
            self._folded[run] = _FoldedBoards(len(commits), position, known.states)
        return {key: state.copy() for key, state in known.states.items()}

    async def vector(self, run: str, up_to: UpTo = None) -> tuple[RunState, dict[str, int]]:
        """Return a run's life and the version of each of its streams at a point, without their
        states.

        Raises NotFound if it had not begun at that point.
        """
        position = await self.log.end(up_to)
        life, vector, *_, horizon = await self._skeleton_at(run, position, newest=up_to is None)
        if life.status is runs.RunStatus.UNKNOWN:
            raise _no_run(run)
        members = [AgentStream(run, role, agent) for agent, role in life.roster.items()]
        versions = await asyncio.gather(
            *(self._histories.version_at(stream, position, horizon) for stream in members)
        )
        for stream, version in zip(members, versions, strict=True):
            if version:
                vector[str(stream)] = version
        return life, vector

    async def position_of(self, stream: AgentStream, version: int) -> int | None:
        """Return the position of the commit that holds a version of an agent, in a parent's run if
        needed.
        """
        forked = await self.forked(stream.run)
        if forked is not None and version <= forked.at.get(str(stream), 0):
            parent = msgspec.structs.replace(stream, run=forked.parent)
            return await self.position_of(parent, version)
        return await self._histories.position_of(stream, version)

    async def _skeleton_at(
        self, run: str, position: int, *, newest: bool
    ) -> tuple[RunState, dict[str, int], dict[str, StreamId], list[Stored], int]:
        """Return a run's life, the versions of it and its boards, and its boards' commits, at a
        position, by position; and a known past head of the log.
        """
        commits, horizon = await self._without_agents(run, position, newest=newest)
        lives = [stored for stored in commits if isinstance(stored.stream, RunStream)]
        ends = {stored.stream: stored.commit.last_version for stored in commits}
        vector = {str(stream): version for stream, version in ends.items()}
        streams = {str(stream): in_run(stream, run) for stream in ends}
        boards = [stored for stored in commits if isinstance(stored.stream, KeyStream)]
        return fold_life(lives), vector, streams, boards, horizon

    async def _without_agents(
        self, run: str, position: int, *, newest: bool
    ) -> tuple[list[Stored], int]:
        """Return the commits of a run's life and boards at a position, by position, those of its
        parents included; and a known past head of the log.
        """
        skeleton = await self._skeleton(run, position, newest=newest)
        own = until(skeleton.commits, position)
        if skeleton.forked is None or not own:
            return own, skeleton.horizon
        return [*await self._parents(skeleton.forked, 1), *own], skeleton.horizon

    async def outline(self, view: RunView) -> list[Stored]:
        """Return the commits of a run's life and boards at a view's point, and its newest commit,
        by position. Of its agents' other commits none is read.
        """
        commits, _ = await self._without_agents(view.run, view.position, newest=False)
        newest = await self._newest_near(view)
        if newest is not None:
            return [*commits, newest] if newest.position > commits[-1].position else commits
        if len(view.agents) < len(view.life.roster):  # some may be left out of the view
            view = await self.run(view.run, AtPosition(view.position))
        places = [
            await self.position_of(view.stream_of(agent), state.version)
            for agent, state in view.agents.items()
        ]
        end = max((place for place in places if place is not None), default=0)
        # The end of a transaction may be a commit of another run or of none.
        for place in range(end, commits[-1].position, -1):
            stored = await self.log.at(place)
            if run_of(stored.stream) == view.run:
                return [*commits, stored]
        return commits

    async def _newest_near(self, view: RunView) -> Stored | None:
        """Return the newest commit of a run at a view's point, if it is that of the log or near the
        point.
        """
        newest = await self.log.last(RunStreams(view.run))
        if newest is None or whole_at(newest) <= view.position:
            return newest
        for place in range(view.position, max(0, view.position - NEAR_MAX), -1):
            stored = await self.log.at(place)
            if run_of(stored.stream) == view.run and whole_at(stored) <= view.position:
                return stored
        return None

    async def _skeleton(self, run: str, position: int, *, newest: bool) -> _Skeleton:
        """Return life and boards up to a position; `newest`: it was the log's head just now."""
        known = self._skeletons.get(run)
        if known is not None and known.horizon >= position:
            return known
        horizon = position if newest else await self.log.end(None)
        if known is not None and horizon - known.horizon <= max(NEWS_MIN, len(known.commits)):
            await self._extend(known, run, horizon)
            return known
        life, boards = await asyncio.gather(
            self.log.read_streams([RunStream(run)]), self.log.read_boards(run)
        )
        commits = sorted((*life, *boards), key=lambda stored: stored.position)
        commits = [stored for stored in commits if stored.position <= horizon]
        forked = self._begun(run, life)
        check_begins(commits, forked.at if forked is not None else {})
        skeleton = _Skeleton(commits, horizon, forked)
        if commits:
            self._skeletons[run] = skeleton
        return skeleton

    async def _extend(self, known: _Skeleton, run: str, horizon: int) -> None:
        """Add the commits of a run's life and boards since a read of them, up to a position."""
        newest = await self.log.last(RunStreams(run))
        if newest is not None and newest.position > known.horizon:
            following = self.log.follow(known.horizon, until=newest.position, of=RunStreams(run))
            async with contextlib.aclosing(following) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
                news = [each async for each in commits if not isinstance(each.stream, AgentStream)]
            ends = {each.stream: each.commit.last_version for each in known.commits}
            for stored in news:
                if stored.position <= known.horizon:  # another read added it
                    continue
                if not is_stand_in(stored):
                    begin = known.forked.at.get(str(stored.stream), 0) if known.forked else 0
                    check_versions(stored.stream, [stored], ends.get(stored.stream, begin) + 1)
                ends[stored.stream] = stored.commit.last_version
                known.commits.append(stored)
                known.horizon = stored.position  # also if a later one is refused
            horizon = max(horizon, newest.position)
        known.horizon = max(known.horizon, horizon)

    async def _parents(self, forked: RunForked, depth: int) -> list[Stored]:
        """Return the parents' life and boards before a fork's cut, by position."""
        if depth > FORK_DEPTH_MAX:
            raise Corrupt(f"run {forked.parent}", f"it has more than {FORK_DEPTH_MAX} parents")
        skeleton = await self._skeleton(forked.parent, await self.log.end(None), newest=True)
        before: list[Stored] = []
        if skeleton.forked is not None:
            before = await self._parents(skeleton.forked, depth + 1)
        return _within([*before, *skeleton.commits], forked)

    async def history(self, run: str, up_to: UpTo = None) -> list[Stored]:
        """Return all commits of a run by position; before a fork's cut, its parents'. Raises
        NotFound.

        Reads the whole run: for a listing or a search, not for a state.
        """
        commits = await self._history(run, up_to, 0)
        if not commits:
            raise _no_run(run)
        return commits

    async def _history(self, run: str, up_to: UpTo, depth: int) -> list[Stored]:
        if depth > FORK_DEPTH_MAX:
            raise Corrupt(f"run {run}", f"it has more than {FORK_DEPTH_MAX} parents")
        own = await self.log.read_run(run, up_to)
        lives = [stored for stored in own if isinstance(stored.stream, RunStream)]
        forked = _forked(run, lives)
        check_begins(own, forked.at if forked is not None else {})
        if forked is None:
            return own
        return _within(await self._history(forked.parent, None, depth + 1), forked) + own


def _within(commits: Iterable[Stored], forked: RunForked) -> list[Stored]:
    """Return a parent's commits that a fork inherits."""
    return [
        stored
        for stored in commits
        if stored.commit.version <= forked.at.get(str(stored.stream), 0)
    ]


def _forked(run: str, life: Sequence[Stored]) -> RunForked | None:
    if not life or life[0].commit.version == 1:
        return None
    event = revive(life[0].commit.events[0])
    if not isinstance(event, RunForked):
        raise Corrupt(f"run {run}", f"its life begins at version {life[0].commit.version}")
    return event


def _no_agent(run: str, name: str, known: Iterable[str]) -> NotFound:
    names = ", ".join(sorted(known)) or "none yet"
    return NotFound(f"agent {name!r} of run {run}", f"its agents at this point are: {names}")


def _no_run(run: str) -> NotFound:
    remedy = (
        "see 'hansard runs'; at an early point it may not have begun; a granted run needs a pack"
    )
    return NotFound(f"run {run!r}", remedy)


def fold_agent(commits: Iterable[Stored], to: int | None = None) -> AgentState:
    """Fold an agent's state from its stream's commits, from the first."""
    state = agents.AgentState()
    for stored in commits:
        if to is not None and state.version >= to:
            return state
        state.label = raised(state.label, stored.commit.label)
        for recorded in stored.commit.events:
            if to is not None and state.version >= to:
                return state
            evolve(state, revive(recorded))
    return state


def fold_boards(
    commits: Iterable[Stored], states: dict[str, BoardState] | None = None
) -> dict[str, BoardState]:
    """Fold the keys of a run's shared state from their commits, by key, on from `states`, which
    change; budgets are not included.
    """
    states = {} if states is None else states
    for stored in commits:
        if isinstance(stored.stream, KeyStream) and not stored.stream.key.startswith(RESERVED):
            follow(states.setdefault(stored.stream.key, BoardState()), stored)
    return states


def fold_life(commits: Iterable[Stored]) -> RunState:
    """Fold a run's life from its stream's commits."""
    state = runs.RunState()
    for stored in commits:
        events = [revive(recorded) for recorded in stored.commit.events]
        runs.begun_under(state, events, stored.commit.label)
        for event in events:
            evolve(state, event)
    return state


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})")
_STEP = re.compile(r"(.+)#([0-9]{1,18})")

_ROUNDED_NS = 999
"""What a time of a point is rounded up by."""

_TIME = "%Y-%m-%dT%H:%M:%SZ"

_REMEDY = (
    "give a position (1234), an event's address (1234.2), a step (researcher_1#8), agent@version "
    "(researcher_1@12), life@version, a time (2026-11-21T10:00:00Z), or the id of a commit, event "
    "or snapshot"
)


class Points:
    """Converts points to reads."""

    def __init__(self, states: States) -> None:
        self._states = states

    async def view(self, run: str, at: object = None) -> RunView:
        """Return a run at a point. Raises NotFound, BadName."""
        return await self._states.run(run, await self.up_to(run, at))

    async def vector(self, run: str, at: object = None) -> tuple[RunState, dict[str, int]]:
        """Return a run's life and its streams' versions at a point. Raises NotFound, BadName."""
        return await self._states.vector(run, await self.up_to(run, at))

    async def up_to(self, run: str, at: object) -> UpTo:
        """Return the point at which a read of a run ends. Raises NotFound, BadName."""
        point = parsed_point(at, _REMEDY)
        if isinstance(point, str):
            return await self._text(run, point)
        await check_reached(self._states.log, point)
        return point

    async def _text(self, run: str, text: str) -> UpTo:
        if _ADDRESS.fullmatch(text):
            return AtPosition(whole_at((await self.event(run, text))[0]))
        if step := _STEP.fullmatch(text):
            return await self._step(run, step[1], int(step[2]))
        if _UUID.fullmatch(text.lower()):
            return await self._id(run, text.lower())
        stream, at, version = text.rpartition("@")
        if at and version.isascii() and version.isdigit():
            return await self._version(run, stream, int(version))
        raise BadName("point", text, _REMEDY)

    async def step_name(self, run: str, text: str) -> str:
        """Return `agent#number` for the address of one of a step's events; any other text
        unchanged. Raises NotFound.
        """
        if not _ADDRESS.fullmatch(text):
            return text
        stored, version = await self.event(run, text)
        recorded = stored.commit.events[version - stored.commit.version]
        if isinstance(stored.stream, AgentStream) and recorded.type.startswith("step."):
            event: Any = revive(recorded)
            return f"{stored.stream.agent}#{event.step}"
        raise NotFound(f"a step at {text} ({recorded.type})", "see 'hansard run trace'")

    async def event(self, run: str, address: str) -> tuple[Stored, int]:
        """Return the commit of the event at `position.index`, and its version in its stream. Reads
        that commit alone, unless it belongs to another run: a fork has commits of its parents.
        """
        position, index = (int(part) for part in address.split("."))
        remedy = "see 'hansard trail'"
        commits: list[Stored] = []
        with contextlib.suppress(NotFound):
            commits = [await self._states.log.at(position)]
        other = run_of(commits[0].stream) if commits else None
        if other != run:
            remedy = f"{address} is in run {other}" if other else remedy
            commits = await self._states.history(run)
        for stored in commits:
            if stored.position == position and index < len(stored.commit.events):
                return stored, stored.commit.version + index
        raise NotFound(f"an event at {address} in run {run}", remedy)

    async def _step(self, run: str, agent: str, number: int) -> AtPosition:
        life = await self._states.life(run)
        _check_agent(life, run, agent)
        if agent in life.roster:
            state = await self._states.agent(AgentStream(run, life.roster[agent], agent))
            if number in state.steps:
                step = state.steps[number]
                return await self._version(run, agent, step.outcome_version or step.version)
        remedy = f"see 'hansard run trace {run}'"
        raise NotFound(f"step {number} of {agent!r} in run {run}", remedy)

    async def _version(self, run: str, name: str, version: int) -> AtPosition:
        life = await self._states.life(run)
        if name in life.roster:
            stream = AgentStream(run, life.roster[name], name)
            position = await self._states.position_of(stream, version) if version else None
            if position is not None:
                return AtPosition(position)
        else:
            for stored in await self._states.history(run):
                last = stored.commit.last_version
                if str(stored.stream) == name and stored.commit.version <= version <= last:
                    return AtPosition(whole_at(stored))
            if "/" not in name and name != "life":
                _check_agent(life, run, name)
        raise NotFound(f"version {version} of {name!r} in run {run}", _REMEDY)

    async def history(self, run: str, at: object) -> tuple[UpTo, list[Stored] | None]:
        """Return the point at which a read of a run ends, and its commits up to there if they had
        to be read to find it, as ids have no index. Raises NotFound, BadName.
        """
        target = at.strip().lower() if isinstance(at, str) else ""
        if not _UUID.fullmatch(target):
            return await self.up_to(run, at), None
        commits = await self._states.history(run)
        up_to = _of_id(run, target, commits)
        return up_to, [stored for stored in commits if stored.position <= up_to.position]

    async def _id(self, run: str, target: str) -> AtPosition:
        return _of_id(run, target, await self._states.history(run))


def _check_agent(life: RunState, run: str, name: str) -> None:
    """Raise NotFound if no agent of this name has joined a run."""
    if name not in life.roster:
        agents_there = f"its agents are {', '.join(life.roster)}" if life.roster else "it has none"
        raise NotFound(f"agent {name!r:.80} in run {run}", agents_there)


def _of_id(run: str, target: str, commits: list[Stored]) -> AtPosition:
    for stored in commits:
        if target in (stored.commit.id, *(event.id for event in stored.commit.events)):
            return AtPosition(whole_at(stored))
    for stored in commits:
        if snapshot_version(stored, target) is not None:
            return AtPosition(whole_at(stored))
    raise NotFound(f"a commit, event or snapshot {target} in run {run}", _REMEDY)


def snapshot_version(stored: Stored, target: str) -> int | None:
    """Return the version in an agent's commit whose snapshot has this id; None if none has."""
    stream = stored.stream
    if not isinstance(stream, AgentStream):
        return None
    versions = range(stored.commit.version, stored.commit.last_version + 1)
    return next((each for each in versions if snapshot_id(stream, each) == target), None)


def parsed_point(at: object, remedy: str) -> UpTo | str:
    """Return a position or a time as the end of a read, and any other text stripped. Raises
    BadName.
    """
    match at:
        case None | AtPosition() | AtTime():
            return at
        case int() if not isinstance(at, bool):
            return AtPosition(at)
        case datetime():
            return at_time(at)
        case str():
            text = at.strip()
            if text.isascii() and text.isdigit():
                return AtPosition(int(text))
            with contextlib.suppress(ValueError):
                return at_time(datetime.fromisoformat(text))
            return text
        case _:
            raise BadName("point", at, remedy)


async def check_reached(log: EventLog, point: UpTo) -> None:
    """Raise NotFound for a position after the newest, and for a time in the future."""
    head = 0 if point is None else await log.head()
    match point:
        case AtPosition(position) if position > head:
            what = f"position {position}"
        case AtTime(stamp) if stamp - _ROUNDED_NS > time.time_ns():
            what = f"time {utc(stamp):{_TIME}}"
        case _:
            return
    newest = (await log.at(head)).stamp if head else 0
    if isinstance(point, AtTime) and point.stamp - _ROUNDED_NS <= newest:
        return  # the log's clock is ahead of this one
    end = f"position {head}, {utc(newest):{_TIME}}" if head else "position 0: it is empty"
    raise NotFound(what, f"the record ends at {end}; without a point you get the newest state")


def at_time(moment: datetime) -> AtTime:
    """Return the end of the moment's microsecond: the log counts ns, and shows its times cut to
    microseconds.
    """
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = delta.days * 86_400 + delta.seconds
    return AtTime(seconds * 1_000_000_000 + delta.microseconds * 1_000 + _ROUNDED_NS)
