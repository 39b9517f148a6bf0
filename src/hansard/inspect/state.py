"""State and snapshots of an agent at any point."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition, Stored
from hansard.domain import agent as agents
from hansard.domain import values
from hansard.domain.agent import (
    AgentState,
    CheckpointSaved,
    DecisionMade,
    Fact,
    HandedOff,
    MessageAdded,
    Moment,
    ResourceAccessed,
)
from hansard.domain.board import BoardState
from hansard.domain.choices import counted
from hansard.domain.conversation import ContextCompacted
from hansard.domain.ids import AgentStream
from hansard.domain.payload import references
from hansard.domain.snapshot import Snapshot, snapshot, snapshot_id
from hansard.inspect.answer import Answer
from hansard.inspect.messages import total
from hansard.inspect.payloads import Fetcher, jsonable, recorded
from hansard.inspect.trace import commits_by_agent
from hansard.state.replay import RunView, snapshot_version

NOW = "now"
"""Name of the newest point."""

DEPTH_MAX = 200
"""Deepest nesting compared part by part; deeper values are compared as a whole."""

Path = tuple[str | int, ...]

_KINDS: dict[type[Any], str] = {
    MessageAdded: "messages",
    DecisionMade: "decisions",
    ResourceAccessed: "resources",
    HandedOff: "hand_offs",
}
SUMMARIES = "summaries"
"""Field of a compacted window; absent if the window never was."""


class Edit(StrEnum):
    """Kind of a difference between two points."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Change(msgspec.Struct, frozen=True):
    """Difference of an agent, or (None) of the run itself.

    `before` is None for an added value, `after` for a removed one.
    """

    run: str
    agent: str | None
    path: Path
    change: Edit
    before: Any
    after: Any


class Data(Answer):
    """State of a run at a position as plain data: its life, and its agents by name."""

    run: str
    position: int
    life: dict[str, Any]
    agents: dict[str, dict[str, Any]]

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the run, then each agent."""
        yield {"kind": "run", "run": self.run, "position": self.position, **self.life}
        for name, item in self.agents.items():
            yield {"kind": "agent", "run": self.run, "agent": name, **item}


class Difference(Answer):
    """Differences at a second position of a run, which may be an earlier one."""

    run: str
    before: int
    after: int
    changes: list[Change]

    def lines(self) -> Iterable[Change]:
        """Yield each change."""
        return self.changes


async def state(workspace: Workspace, run: str, at: str | None, only: str | None) -> Data:
    """Return a run's state at a point, or one agent's.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    return data(await _view(workspace, run, at), only)


async def difference(
    workspace: Workspace, run: str, points: tuple[str, str], only: str | None
) -> Difference:
    """Return the differences at the second of two points, of one agent if it is named.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    before, after = [await _view(workspace, run, point) for point in points]
    if only is not None:
        if only not in before.agents:
            after.agent(only)  # an agent at neither point is an error
        for view in (before, after):
            view.agents = {name: item for name, item in view.agents.items() if name == only}
    found = list(changes(data(before), data(after)))
    return Difference(run, before.position, after.position, found)


async def _view(workspace: Workspace, run: str, at: str | None) -> RunView:
    point = None if at == NOW else at
    return await workspace.states.run(run, await workspace.points.up_to(run, point))


def data(view: RunView, only: str | None = None) -> Data:
    """Return a run's state, or one agent's. Raises NotFound."""
    names = view.agents if only is None else {only: view.agent(only)}
    agents = {name: agent(view.agents[name]) for name in names}
    return Data(view.run, view.position, life(view), agents)


def life(view: RunView) -> dict[str, Any]:
    """Return a run's life, with the versions of its streams and its shared state.

    Judgements are keyed by number, from 1.
    """
    plain = _plain(msgspec.structs.replace(view.life, judged=[]))
    plain["assigned"] = view.life.assigned and _plain(view.life.assigned)
    plain["judged"] = {str(n): _plain(each) for n, each in enumerate(view.life.judged, 1)}
    plain["scores"] = view.life.scores
    plain["streams"] = view.vector
    plain["board"] = {name: key(state) for name, state in sorted(view.boards.items())}
    return plain


def key(state: BoardState) -> dict[str, Any]:
    """Return a key of a run's shared state with its recorded value; `expires` is a log time."""
    return {**key_head(state), "value": state.plain}


def key_head(state: BoardState) -> dict[str, Any]:
    """Return a key of a run's shared state without its value."""
    expires = state.expiry
    return {
        "kind": state.kind.value if state.kind is not None else None,
        "version": state.changed,
        "author": state.author,
        "role": state.role,
        "labels": state.labels,
        "expires": expires.isoformat() if expires is not None else None,
        "event": state.event,
    }


def agent(state: AgentState) -> dict[str, Any]:
    """Return an agent's state: steps by number, facts by version, tools and checkpoints by name."""
    fields: dict[str, Any] = {
        "role": state.role,
        "version": state.version,
        "epoch": state.epoch,
        "left": state.left,
        "conversation_id": state.conversation_id,
        "turn_number": turn(state),
        "total_tokens": total(state.messages).tokens,
        "server_version": state.server_version,
        "protocol_version": state.protocol_version,
        "tools": {name: _plain(tool) for name, tool in state.tools.items()},
        "steps": {str(number): _plain(step) for number, step in state.steps.items()},
        "checkpoints": {},
        **{kind: {} for kind in _KINDS.values()},
    }
    for noted in state.facts:
        found = {**_plain(noted.fact), "version": noted.version}
        if isinstance(noted.fact, CheckpointSaved):
            fields["checkpoints"][noted.fact.name] = found
        elif isinstance(noted.fact, ContextCompacted):
            fields.setdefault(SUMMARIES, {})[str(noted.version)] = found
        else:
            fields[_KINDS[type(noted.fact)]][str(noted.version)] = found
    return fields


def turn(state: AgentState) -> int:
    """Return the number of the user's current turn, over the agent's whole conversation."""
    return state.turns_before + sum(message.role == "user" for message in state.messages)


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    """Return a record as plain values, including fields with default values."""
    fields = msgspec.structs.asdict(record)
    decoded = recorded(msgspec.Raw(msgspec.json.encode(fields)))
    if decoded.keys() == fields.keys():
        return decoded  # type: ignore[no-any-return]  # an object of these keys
    return {name: recorded(values.dump(value)) for name, value in fields.items()}


# ---------------------------------------------------------------- differences


def changes(before: Data, after: Data) -> Iterator[Change]:
    """Yield the differences in the order of the data; an absent agent has no fields."""
    yield from _between(after.run, None, before.life, after.life)
    for name in {**before.agents, **after.agents}:
        sides = [side.agents.get(name, _NOBODY) for side in (before, after)]
        yield from _between(after.run, name, *sides)


_NOBODY: dict[str, Any] = {kind: {} for kind in ("tools", "steps", "checkpoints", *_KINDS.values())}


def _between(run: str, agent_name: str | None, before: Any, after: Any) -> Iterator[Change]:
    """Yield the differences of two values; iterative, since recorded values may be nested deep."""
    waiting: list[tuple[Any, Any, Path]] = [(before, after, ())]
    while waiting:
        old, new, at = waiting.pop()
        pairs = _pairs(old, new) if len(at) < DEPTH_MAX else None
        if pairs is None:
            if type(old) is not type(new) or old != new:
                yield Change(run, agent_name, at, *_change(old, new))
            continue
        waiting += [(a, b, (*at, key)) for key, a, b in reversed(pairs)]


_ABSENT = object()


def _pairs(old: Any, new: Any) -> list[tuple[str | int, Any, Any]] | None:
    """Return the parts of two values side by side; None if they have no comparable parts."""
    match old, new:
        case dict(), dict():
            return [(key, old.get(key, _ABSENT), new.get(key, _ABSENT)) for key in {**old, **new}]
        case list(), list():
            count = max(len(old), len(new))
            sides = [[*side, *[_ABSENT] * (count - len(side))] for side in (old, new)]
            return [(index, *pair) for index, pair in enumerate(zip(*sides, strict=True))]
        case _:
            return None


def _change(old: Any, new: Any) -> tuple[Edit, Any, Any]:
    """Return the kind of a value's difference, and the value before and after."""
    if old is _ABSENT:
        return Edit.ADDED, None, new
    if new is _ABSENT:
        return Edit.REMOVED, old, None
    return Edit.CHANGED, old, new


class _Fold:
    """State of an agent, with the time and the stream of each of its versions."""

    def __init__(self, workspace: Workspace) -> None:
        self.fetch = Fetcher(workspace)
        self.state = agents.initial()
        self.times: dict[int, datetime] = {}
        self.streams: dict[int, AgentStream] = {}
        self.reader = payloads.Reader(lambda: self.state)

    def take(self, stored: Stored, event: agents.AgentEvent) -> None:
        """Fold one event."""
        agents.evolve(self.state, event)
        self.times[self.state.version] = stored.time
        if isinstance(stored.stream, AgentStream):
            self.streams[self.state.version] = stored.stream

    async def snapshot(self) -> Snapshot:
        """Return the snapshot of the current state."""
        state = await self._whole()
        version = state.version
        made = snapshot(self.streams[version], state, self.times, self.times[version])
        before = state.moment_before if made.moment is state.moment else state.moment_version
        if before:  # a fork's versions before its cut are its parent's, and so are their ids
            above = snapshot_id(self.streams[before], before)
            made = msgspec.structs.replace(made, parent_snapshot=above)
        return made

    async def _whole(self) -> AgentState:
        """Return the state with its blobs fetched."""
        state = self.state.copy()
        state.facts = [
            msgspec.structs.replace(noted, fact=await self._messages(noted.fact))
            for noted in state.facts
        ]
        step = state.steps.get(state.call_step) if state.call_step is not None else None
        if step is not None:
            given = await self.fetch(self.reader.arguments(step))
            result = await self.fetch(self.reader.result(step))
            state.steps[step.number] = msgspec.structs.replace(
                step, arguments=values.dump(given), result=values.dump(result)
            )
        return state

    async def _messages(self, message: Fact) -> Fact:
        if isinstance(message, ContextCompacted):
            whole = values.dump(await self.fetch(references.unpack(message.summary)))
            return msgspec.structs.replace(message, summary=whole)
        if not isinstance(message, MessageAdded):
            return message
        if b'"$blob"' not in bytes(message.content) + bytes(message.fields):
            return message
        return msgspec.structs.replace(
            message,
            content=values.dump(await self.fetch(references.unpack(message.content))),
            fields=values.dump(await self.fetch(references.unpack(message.fields))),
        )


async def chain(workspace: Workspace, commits: Sequence[Stored]) -> AsyncIterator[Snapshot]:
    """Yield an agent's chain of snapshots in order; `commits` are all commits of its stream."""
    fold = _Fold(workspace)
    ahead: Snapshot | None = None
    for stored in commits:
        for each in stored.commit.events:
            event: Any = revive(each)
            fold.take(stored, event)
            if fold.state.moment_version != fold.state.version:
                continue
            if ahead is not None and fold.state.moment is not Moment.REQUEST:
                yield ahead
            ahead = await fold.snapshot()
    if ahead is not None:
        yield ahead


async def at_end(workspace: Workspace, commits: Sequence[Stored]) -> Snapshot:
    """Return the snapshot of an agent's state after these commits."""
    return await _at_version(workspace, commits, commits[-1].commit.last_version)


async def of_run(
    workspace: Workspace, run: str, agent: str | None = None, at: object = None
) -> list[Snapshot]:
    """Return the chain of snapshots of each agent of a run, or of one, up to a point.

    Raises NotFound.
    """
    up_to = await workspace.points.up_to(run, at)
    view = await workspace.states.run(run, up_to)
    named = [agent] if agent is not None else [*view.agents]
    for each in named:
        view.agent(each)
    commits = commits_by_agent(await workspace.states.history(run, AtPosition(view.position)))
    return [made for each in named async for made in chain(workspace, commits.get(each, []))]


async def one(workspace: Workspace, target: str, run: str | None = None) -> Snapshot:
    """Return the snapshot with an id; without a run, all runs are searched, newest first.

    Raises NotFound.
    """
    runs = [run] if run is not None else [each for each, _ in await workspace.runs()]
    for each in runs:
        for commits in commits_by_agent(await workspace.states.history(each)).values():
            for number, stored in enumerate(commits):
                version = snapshot_version(stored, target)
                if version is not None:
                    return await _at_version(workspace, commits[: number + 1], version)
    where = f"in run {run}" if run is not None else f"in any of {counted(len(runs), 'run')}"
    raise NotFound(
        f"a snapshot {target!r:.80} {where}", "'hansard run show RUN --snapshots' has them"
    )


async def now(workspace: Workspace, stream: AgentStream) -> Snapshot:
    """Return the snapshot of an agent's current state. Raises NotFound."""
    commits = await workspace.states.commits(stream)
    if not commits:
        raise NotFound(f"{stream.agent!r} in run {stream.run}", "it has not begun")
    return await at_end(workspace, commits)


async def is_newest(workspace: Workspace, made: Snapshot) -> bool:
    """Return whether the agent neither began nor ended a call after the snapshot, nor left."""
    state = await workspace.states.agent(AgentStream(made.run, made.role, made.agent))
    return state.moment_version <= made.version


async def _at_version(workspace: Workspace, commits: Sequence[Stored], version: int) -> Snapshot:
    """Return the snapshot at a version inside the last of an agent's commits."""
    fold = _Fold(workspace)
    for stored in commits:
        for each in stored.commit.events:
            event: Any = revive(each)
            fold.take(stored, event)
            if fold.state.version == version:
                return await fold.snapshot()
    message = f"version {version} is not in the commits that were read for it"
    raise AssertionError(message)


def as_json(made: Snapshot) -> dict[str, Any]:
    """Return a snapshot in JSON's types; other values stay tagged."""
    shape: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(made, tool_execution=None, agent_state=None)
    )
    mind = made.agent_state
    window = msgspec.structs.replace(mind.context_window, messages=[])
    shape["agent_state"] = {
        "conversation_id": mind.conversation_id,
        "turn_number": mind.turn_number,
        "context_window": {
            **msgspec.to_builtins(window),
            "messages": [jsonable(message) for message in mind.context_window.messages],
        },
    }
    execution = made.tool_execution
    if execution is not None:
        result = execution.result
        shape["tool_execution"] = {
            "tool_name": execution.tool_name,
            "parameters": jsonable(execution.parameters),
            "result": None
            if result is None
            else {
                "status": result.status.value,
                "data": jsonable(result.data),
                "execution_time_ms": result.execution_time_ms,
            },
        }
    return shape
