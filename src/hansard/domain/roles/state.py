"""The state and context as a role sees them: what follows from a view's lines, and nothing else.

What is hidden from a role has no influence: a key is what its shown events come to, which need not
be what stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hansard.domain.board import BoardState, By, KeyRemoved, ValuePut, evolve
from hansard.domain.brief import Brief
from hansard.domain.errors import HansardError
from hansard.domain.events import REGISTRY
from hansard.domain.roles.view import ShownEvent

Line = tuple[int, ShownEvent]
"""An event as a role is shown it, with the role's own number."""


class ShownKey(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key of shared state as far as a role was shown it. `is_whole` is False where an event of
    it could not be folded, because part of it is hidden. `ttl_ms` counts from when it was put: only
    the log knows whether it has expired.

    Attributes:
        kind: What the key holds: `value`, `list` ...
        value: What stands there.
        agent: Who changed it last.
        role: That agent's role.
    """

    kind: str
    value: Any
    agent: str = ""
    role: str = ""
    ttl_ms: int | None = None
    is_whole: bool = True


class ShownAgent(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An agent as far as a role was shown it: its events and steps, and how it left.

    Attributes:
        role: The agent's.
        events: How many of its events are shown.
        steps: How many of its steps are.
        decisions: How many of its decisions are.
        outcome: How it left; None while it is at work.
    """

    role: str
    events: int = 0
    steps: int = 0
    decisions: int = 0
    outcome: str | None = None


class ShownState(Brief, msgspec.Struct, kw_only=True):
    """What follows from a view's lines: of the run, its agents and keys by name, and the messages
    of each agent in the provider's form (large contents by reference).

    Attributes:
        run: Its status and what else of its life is shown.
        agents: By name.
        board: Keys of shared state, by key.
        context: Each agent's messages, by its name.
    """

    run: dict[str, Any] = msgspec.field(default_factory=dict)
    agents: dict[str, ShownAgent] = msgspec.field(default_factory=dict)
    board: dict[str, ShownKey] = msgspec.field(default_factory=dict)
    context: dict[str, list[dict[str, Any]]] = msgspec.field(default_factory=dict)


_RUN_STATUS = {
    "run.started": "open",
    "run.forked": "open",
    "run.resumed": "open",
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}


def state(lines: Iterable[Line]) -> ShownState:
    """The state that follows from a view's lines, and from nothing else."""
    folding = Folding()
    for _, line in lines:
        folding.add(line)
    return folding.state()


class Folding:
    """The state that follows from a view's lines, one after the other."""

    def __init__(self) -> None:
        self._told = ShownState()
        self._keys: dict[str, BoardState] = {}
        self._broken: set[str] = set()

    def add(self, line: ShownEvent) -> None:
        """The next line."""
        told = self._told
        data = msgspec.json.decode(line.data)
        data = data if isinstance(data, dict) else {}
        kind = line.type.rpartition(".")[0]
        if kind in _RUN_STATUS:
            told.run["status"] = _RUN_STATUS[kind]
            told.run |= {name: data[name] for name in ("workflow", "labels") if name in data}
        if kind == "run.agent_joined" and isinstance(data.get("agent"), str):
            told.agents.setdefault(data["agent"], ShownAgent(role=str(data.get("role", ""))))
        if kind.startswith("board."):
            _fold(line, self._keys, self._broken)
        elif not kind.startswith("run.") and line.agent:
            _of_agent(told, line, kind, data)

    def state(self) -> ShownState:
        """What follows from all of them."""
        told = self._told
        for key, found in self._keys.items():
            if found.kind is not None:
                told.board[key] = ShownKey(
                    kind=found.kind.value,
                    value=found.plain,
                    agent=found.author,
                    role=found.role,
                    ttl_ms=None if found.expires is None else found.expires // 1_000_000,
                    is_whole=key not in self._broken,
                )
        return told


def _of_agent(told: ShownState, line: ShownEvent, kind: str, data: dict[str, Any]) -> None:
    found = told.agents.setdefault(line.agent, ShownAgent(role=line.role))
    found.events += 1
    step = data.get("step")
    if kind.startswith("step.") and type(step) is int:
        found.steps = max(found.steps, step)  # numbered for the role alone, from 1
    found.decisions += kind == "decision.made"
    if kind == "agent.session_began":
        found.outcome = None
    if kind == "agent.left":
        found.outcome = data.get("outcome")
    if kind == "message.added":
        fields = data.get("fields")
        message: dict[str, Any] = {name: data[name] for name in ("role", "content") if name in data}
        message |= fields if isinstance(fields, dict) else {}
        told.context.setdefault(line.agent, []).append(message)


def _fold(line: ShownEvent, keys: dict[str, BoardState], broken: set[str]) -> None:
    """Fold an event of a key, which the log let happen: what fails is what the role is not shown
    of it, or before it.
    """
    found = keys.setdefault(line.key, BoardState())
    try:
        happened = msgspec.json.decode(line.data, type=REGISTRY[line.type])
        evolve(found, happened, By(line.agent, 0, line.id))
        if isinstance(happened, ValuePut | KeyRemoved):  # whatever came before no longer counts
            broken.discard(line.key)
    except (msgspec.MsgspecError, HansardError, KeyError, TypeError, ValueError):
        broken.add(line.key)
