"""A procedure: the actions that may follow each other, their order and their bounds.

A node is an action; the state of the page is the node that was done last. From it the next actions
are tried in the order of its edges: the first whose element is present is done. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from hansard.domain.actions import cache as caches
from hansard.domain.actions.cache import CachedAction
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue

FORMAT = "hansard.procedure.v1"
START, END = "start", "end"
NODES_MAX = 1_000
EDGES_MAX = 10_000
VISITS_MAX = 1_000
"""Most visits of one node in an execution: a loop has a bound."""

FILE_BYTES_MAX = 4 * 1024 * 1024


class ProcedureNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An action of the procedure.

    Attributes:
        name: Its name in the graph: `n1`, `n2` ...
        action: The action, with slots in the place of values.
        visits_max: Its most occurrences in one demonstration.
        support: The number of demonstrations that have it.
        requires: The nodes that precede it in every demonstration that has it.
    """

    name: str
    action: CachedAction
    visits_max: int
    support: int
    requires: tuple[str, ...] = ()


class ProcedureEdge(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A permitted transition.

    Attributes:
        before: A node's name, or `start`.
        after: A node's name, or `end`.
        count: The number of its occurrences.
    """

    before: str
    after: str
    count: int


class Procedure(msgspec.Struct, frozen=True, kw_only=True, rename="camel", dict=True):
    """The graph.

    Attributes:
        format: `hansard.procedure.v1`.
        slots: Names of the values that an execution fills in.
        nodes: In the order of their first occurrence.
        edges: Those of one node are in the order in which they are tried.
        end_requires: The nodes that every demonstration has.
    """

    format: str
    slots: tuple[str, ...]
    nodes: tuple[ProcedureNode, ...]
    edges: tuple[ProcedureEdge, ...]
    end_requires: tuple[str, ...] = ()

    def node(self, name: str) -> ProcedureNode:
        """Return a node by its name. Raises KeyError."""
        return self._by_name[name]

    def after(self, name: str) -> tuple[str, ...]:
        """Return the names of the successors of a node, or of `start`, in the order in which they
        are tried.
        """
        return self._after.get(name, ())

    @cached_property
    def _by_name(self) -> Mapping[str, ProcedureNode]:
        return {each.name: each for each in self.nodes}

    @cached_property
    def _after(self) -> Mapping[str, tuple[str, ...]]:
        successors: dict[str, list[str]] = {}
        for each in self.edges:
            successors.setdefault(each.before, []).append(each.after)
        return {name: tuple(every) for name, every in successors.items()}


class Walk(msgspec.Struct, frozen=True, kw_only=True):
    """An execution's place in a procedure: an immutable state; `stepped` returns the next.

    Attributes:
        at: The node that was done last, or `start`.
        visits: The visits of each node.
    """

    at: str = START
    visits: Mapping[str, int] = {}

    def candidates(self, procedure: Procedure) -> list[str]:
        """Return the permitted next nodes and `end`, in the order in which they are tried."""
        return [name for name in procedure.after(self.at) if not self.refusal(procedure, name)]

    def stepped(self, procedure: Procedure, name: str) -> Walk:
        """Return the state after one of `candidates`. Raises BadValue for any other node."""
        refusal = self.refusal(procedure, name)
        if refusal:
            raise BadValue("the procedure", refusal, "do one of the permitted actions")
        return Walk(at=name, visits={**self.visits, name: self.visits.get(name, 0) + 1})

    def refusal(self, procedure: Procedure, name: str) -> str:
        """Return the reason why a node may not come next; empty where it may."""
        if name not in procedure.after(self.at):
            return f"{name} does not follow {self.at}"
        if name == END:
            required = procedure.end_requires
        else:
            node = procedure.node(name)
            required = node.requires
            if self.visits.get(name, 0) >= node.visits_max:
                return f"{name} was done {counted(self.visits[name], 'time')}, its most"
        missing = [each for each in required if each not in self.visits]
        return f"{name} was never done without {missing[0]} before it" if missing else ""


def encode(procedure: Procedure) -> bytes:
    """Encode the file `graph.json`: indented, equal for equal procedures."""
    return msgspec.json.format(msgspec.json.encode(procedure), indent=2) + b"\n"


def decode(raw: bytes, where: str = "graph.json") -> Procedure:
    """Read a file, checked. Raises BadValue."""
    read = caches.loaded(raw, where, FILE_BYTES_MAX, "distil it again, from fewer runs")
    return checked(caches.formed(read, Procedure, FORMAT, where), where)


def checked(procedure: Procedure, where: str = "graph.json") -> Procedure:
    """Check that a procedure's edges name nodes and its loops have bounds. Raises BadValue."""
    for what, count, most in (
        ("nodes", len(procedure.nodes), NODES_MAX),
        ("edges", len(procedure.edges), EDGES_MAX),
    ):
        if count > most:
            raise BadValue(where, f"{count:,} {what}, more than {most:,}", "distil from fewer runs")
    names = [each.name for each in procedure.nodes]
    twice = [name for name, count in Counter((*names, START, END)).items() if count > 1]
    if twice:
        raise BadValue(where, f"{twice[0]!r:.80} names two nodes", "give each a name of its own")
    for edge in procedure.edges:
        for name, besides in ((edge.before, START), (edge.after, END)):
            if name != besides and name not in names:
                raise BadValue(
                    where, f"an edge names {name!r:.80}, which is no node", "distil again"
                )
    for required in (procedure.end_requires, *(each.requires for each in procedure.nodes)):
        for name in required:
            if name not in names:
                raise BadValue(where, f"{name!r:.80} is required, and no node", "distil again")
    for node in procedure.nodes:
        if not 1 <= node.visits_max <= VISITS_MAX:
            fact = f"visitsMax {node.visits_max} of {node.name!r:.80}"
            raise BadValue(where, fact, f"give 1 to {VISITS_MAX:,}")
    _checked_actions(procedure.nodes, where)
    return procedure


def _checked_actions(nodes: Sequence[ProcedureNode], where: str) -> None:
    """Check each action by the rules of an action cache."""
    numbered = [
        msgspec.structs.replace(each.action, step_index=at) for at, each in enumerate(nodes)
    ]
    end = caches.ActionsEnd(success=True, duration=0.0)
    kept = caches.checked(
        caches.ActionCache(actions=numbered, final_state=end, format=caches.FORMAT), where
    )
    if len(kept.actions) != len(nodes):
        raise BadValue(where, "a node is an action that failed", "distil again")


def paths(procedure: Procedure, every: Iterable[Sequence[str]]) -> list[bool]:
    """Return for each list of nodes whether it is a path from `start` to `end`."""
    return [_possible(procedure, names) for names in every]


def _possible(procedure: Procedure, names: Sequence[str]) -> bool:
    walk = Walk()
    for name in (*names, END):
        if walk.refusal(procedure, name):
            return False
        walk = walk.stepped(procedure, name)
    return True
