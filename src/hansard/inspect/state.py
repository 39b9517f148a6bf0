"""A run's state as data, and what is different between two such states.

A path in a difference is an address in the data of the run or of its agent:
`("steps", "3", "status")`. What is keyed by what never changes (a step's number, a fact's version)
is told as an object, so that one more step is one difference. Payloads stand as they are recorded,
references included.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.domain.agent import (
    AgentState,
    CheckpointSaved,
    DecisionMade,
    HandedOff,
    MessageAdded,
    ResourceAccessed,
)
from hansard.domain.board import BoardState
from hansard.domain.conversation import ContextCompacted
from hansard.inspect.answer import Answer
from hansard.inspect.messages import total
from hansard.inspect.payloads import recorded
from hansard.state.replay import RunView

NOW = "now"
"""The point that is the newest one."""

DEPTH_MAX = 200
"""Deepest nesting that is compared part by part; what is deeper is compared as a whole."""

Path = tuple[str | int, ...]

_KINDS: dict[type[Any], str] = {
    MessageAdded: "messages",
    DecisionMade: "decisions",
    ResourceAccessed: "resources",
    HandedOff: "hand_offs",
}
SUMMARIES = "summaries"
"""Of a window that was compacted; what never was has no word of it."""


class What(StrEnum):
    """What happened to a value between two points."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Change(msgspec.Struct, frozen=True):
    """One difference, of an agent or (None) of the run itself. `before` is None of what was added,
    `after` of what was removed.
    """

    run: str
    agent: str | None
    path: Path
    change: What
    before: Any
    after: Any


class Data(Answer):
    """A run's state at a position as plain data: its life, and its agents by name."""

    run: str
    position: int
    life: dict[str, Any]
    agents: dict[str, dict[str, Any]]

    def lines(self) -> Iterator[dict[str, Any]]:
        """The run, then each agent."""
        yield {"kind": "run", "run": self.run, "position": self.position, **self.life}
        for name, told in self.agents.items():
            yield {"kind": "agent", "run": self.run, "agent": name, **told}


class Difference(Answer):
    """What is different at a second position of a run, which may be an earlier one."""

    run: str
    before: int
    after: int
    changes: list[Change]

    def lines(self) -> Iterable[Change]:
        """Each change."""
        return self.changes


async def state(workspace: Workspace, run: str, at: str | None, only: str | None) -> Data:
    """A run's state at a point, or one agent's in it. Raises NotFound, BadName, UnknownEvent,
    Corrupt.
    """
    return data(await _view(workspace, run, at), only)


async def difference(
    workspace: Workspace, run: str, points: tuple[str, str], only: str | None
) -> Difference:
    """What is different at the second of two points, of one agent where one is named.

    Raises NotFound, BadName, UnknownEvent, Corrupt.
    """
    before, after = [await _view(workspace, run, point) for point in points]
    if only is not None:
        if only not in before.agents:
            after.agent(only)  # who is at neither point is told
        for view in (before, after):
            view.agents = {name: told for name, told in view.agents.items() if name == only}
    found = list(changes(data(before), data(after)))
    return Difference(run, before.position, after.position, found)


async def _view(workspace: Workspace, run: str, at: str | None) -> RunView:
    point = None if at == NOW else at
    return await workspace.states.run(run, await workspace.points.up_to(run, point))


def data(view: RunView, only: str | None = None) -> Data:
    """A run's state, or one agent's in it. Raises NotFound."""
    names = view.agents if only is None else {only: view.agent(only)}
    agents = {name: agent(view.agents[name]) for name in names}
    return Data(view.run, view.position, life(view), agents)


def life(view: RunView) -> dict[str, Any]:
    """A run's life, with the versions of its streams and its shared state. Judgements by their
    number, from 1.
    """
    told = _plain(msgspec.structs.replace(view.life, judged=[]))
    told["assigned"] = view.life.assigned and _plain(view.life.assigned)
    told["judged"] = {str(n): _plain(each) for n, each in enumerate(view.life.judged, 1)}
    told["scores"] = view.life.scores
    told["streams"] = view.vector
    told["board"] = {name: key(state) for name, state in sorted(view.boards.items())}
    return told


def key(state: BoardState) -> dict[str, Any]:
    """A key of a run's shared state, its value as recorded. `expires` is a time of the log's."""
    return {**key_head(state), "value": state.plain}


def key_head(state: BoardState) -> dict[str, Any]:
    """The same without its value."""
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
    """An agent's state. Steps by number, facts by version, tools and checkpoints by name."""
    told: dict[str, Any] = {
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
            told["checkpoints"][noted.fact.name] = found
        elif isinstance(noted.fact, ContextCompacted):
            told.setdefault(SUMMARIES, {})[str(noted.version)] = found
        else:
            told[_KINDS[type(noted.fact)]][str(noted.version)] = found
    return told


def turn(state: AgentState) -> int:
    """Which turn of the user's an agent stands in, over its whole conversation."""
    return state.turns_before + sum(message.role == "user" for message in state.messages)


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    """A record as plain values, those included that are as ever."""
    fields = msgspec.structs.asdict(record)
    told = recorded(msgspec.Raw(msgspec.json.encode(fields)))
    if told.keys() == fields.keys():
        return told  # type: ignore[no-any-return]  # an object of these keys
    return {name: recorded(_raw(value)) for name, value in fields.items()}


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


# ---------------------------------------------------------------- differences


def changes(before: Data, after: Data) -> Iterator[Change]:
    """What is different, in the order of the data. An agent that is not there has nothing yet."""
    yield from _between(after.run, None, before.life, after.life)
    for name in {**before.agents, **after.agents}:
        sides = [side.agents.get(name, _NOBODY) for side in (before, after)]
        yield from _between(after.run, name, *sides)


_NOBODY: dict[str, Any] = {kind: {} for kind in ("tools", "steps", "checkpoints", *_KINDS.values())}


def _between(run: str, agent_name: str | None, before: Any, after: Any) -> Iterator[Change]:
    """Differences of two values. Iterative: recorded values may be nested deep."""
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
    """The parts of two values, side by side; None where they have no parts to compare."""
    match old, new:
        case dict(), dict():
            return [(key, old.get(key, _ABSENT), new.get(key, _ABSENT)) for key in {**old, **new}]
        case list(), list():
            count = max(len(old), len(new))
            sides = [[*side, *[_ABSENT] * (count - len(side))] for side in (old, new)]
            return [(index, *pair) for index, pair in enumerate(zip(*sides, strict=True))]
        case _:
            return None


def _change(old: Any, new: Any) -> tuple[What, Any, Any]:
    """What happened to a value, and what it was before and is after."""
    if old is _ABSENT:
        return What.ADDED, None, new
    if new is _ABSENT:
        return What.REMOVED, old, None
    return What.CHANGED, old, new
