"""Who is in a run, from tables: for a projector that goes on from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hansard.bus.quarantine import Members

_LINES = (
    "WITH RECURSIVE lines AS (SELECT $1 AS run, 0 AS depth UNION ALL SELECT l.parent, s.depth + 1 "
    "FROM lines AS s JOIN lineage AS l ON l.run = s.run WHERE s.depth < 100) "
)
_AGENTS = (
    "SELECT s.depth, a.agent, a.role, a.epoch FROM lines AS s "
    "JOIN agents AS a ON a.run = s.run ORDER BY s.depth DESC"
)
_JOINED = (
    "SELECT s.depth, e.data->>'agent', e.data->>'role' FROM lines AS s JOIN events AS e "
    "ON e.run = s.run AND e.stream = 'life' AND e.known_as = 'run.agent_joined.v1' "
    "ORDER BY s.depth DESC, e.position, e.event_index"
)
_BEGAN = "SELECT 1 FROM lines AS s JOIN runs AS r ON r.run = s.run WHERE r.workflow IS NOT NULL"


Ask = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]


def members(run: str, ask: Ask) -> Members | None:
    """Who is in a run, a fork's parents' agents included, from tables that `ask` asks; None where
    they have nothing of it.
    """
    found = ask(_LINES + _AGENTS, [run])
    whole = bool(ask(_LINES + _BEGAN, [run]))
    if not found and not whole:
        return None
    roles = {agent: role for _, agent, role, _ in found}
    for _, agent, role in ask(_LINES + _JOINED, [run]):  # those who have not begun, too
        roles.setdefault(agent, role)
    epochs = {agent: epoch for depth, agent, _, epoch in found if epoch and not depth}
    return Members(roles, epochs, whole)
