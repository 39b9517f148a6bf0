"""Two paths of an agent side by side: its calls, decisions and messages, and where they part.

A move is a step, a decision or a message. Two moves are the same call if tool and arguments are
equal (of a decision: its question; of a message: its role and text); their results are compared
then. A message's tool calls and results that are steps are compared as steps alone. Equal calls are
the longest runs of equal moves (difflib), the rest is matched by name; the order of branches that
ran side by side does not count.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

import msgspec

from hansard.domain.agent import DecisionMade, MessageAdded, StatedFact
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import run_of
from hansard.domain.payload.parts import as_blob
from hansard.domain.payload.references import rolling
from hansard.domain.steps import Step
from hansard.inspect import trace
from hansard.inspect.payloads import recorded
from hansard.inspect.trace import AgentHistory

WINDOW_MOVES = 1_024
"""Moves of each side aligned at once, after the equal ones at both ends.

The cost of aligning grows with the square of it. A move that was shifted further is still found, as
moved.
"""

Matched = list[tuple[int, int]]
"""Pairs of matching indices in two sequences, both ascending."""


class Match(StrEnum):
    """Result of comparing the two sides of a pair."""

    SAME = "same"
    RESULT = "result"
    ARGUMENTS = "arguments"
    TEXT = "text"
    MOVED = "moved"
    ONLY_A = "only_a"
    ONLY_B = "only_b"


class Move(msgspec.Struct, frozen=True):
    """Move of an agent: a step, a decision or a message, with its place in the record.

    `call` is the digest of the request, `result` that of the result. `branch` is its place among
    parallel branches, empty outside of them.
    """

    agent: str
    name: str
    call: str
    result: str
    version: int
    position: int
    run: str | None
    branch: str = ""
    step: Step | None = None
    decision: DecisionMade | None = None
    message: MessageAdded | None = None

    @property
    def place(self) -> str:
        """Name of the move: agent#step, or agent@version of a decision or a message."""
        return f"{self.agent}#{self.step.number}" if self.step else f"{self.agent}@{self.version}"


class Pair(msgspec.Struct, frozen=True):
    """Move of one side, of the other, or of both; `shared` if both are one recorded event."""

    what: Match
    a: Move | None
    b: Move | None

    @property
    def shared(self) -> bool:
        """True if both are the same event: a fork shares the events of its parent."""
        if self.a is None or self.b is None or self.what is not Match.SAME:
            return False
        return (self.a.run, self.a.agent, self.a.version) == (
            self.b.run,
            self.b.agent,
            self.b.version,
        )


# ---------------------------------------------------------------- moves


def moves(agent: AgentHistory) -> list[Move]:
    """Return an agent's calls, decisions and messages in the order of the record."""
    state = agent.state
    found = [_step(agent, step) for step in state.steps.values()]
    calls = {step.call_id for step in state.steps.values() if step.call_id is not None}
    for noted in state.facts:
        if isinstance(noted.fact, DecisionMade):
            found.append(_decision(agent, noted))
        elif isinstance(noted.fact, MessageAdded):
            found += _message(agent, noted.version, noted.fact, calls)
    return sorted(found, key=lambda move: move.version)


def _step(agent: AgentHistory, step: Step) -> Move:
    stored = agent.events[step.version].stored
    error = step.error
    failure = (error.type, error.message, step.rule) if error is not None else ()
    results = [_digest(raw) for raw in (step.items if step.streamed else (step.result,))]
    outcome = (step.status.value, *failure, *results)
    return Move(
        agent.name,
        step.tool,
        digest(b"step", step.tool.encode(), _arguments(step.arguments).encode()),
        digest(*(part.encode("utf-8", "replace") for part in outcome)),
        step.version,
        stored.position,
        run_of(stored.stream),
        trace.branch(step),
        step=step,
    )


def _decision(agent: AgentHistory, noted: StatedFact) -> Move:
    made, stored = noted.fact, agent.events[noted.version].stored
    if not isinstance(made, DecisionMade):
        message = f"{made} is not a decision"
        raise TypeError(message)
    chosen = (made.selected, made.alternatives, made.threshold, made.confidence, made.because)
    return Move(
        agent.name,
        made.question,
        digest(b"decision", made.question.encode("utf-8", "replace")),
        digest(msgspec.json.encode(chosen)),
        noted.version,
        stored.position,
        run_of(stored.stream),
        made.scope.partition("/")[2],
        decision=made,
    )


def _message(
    agent: AgentHistory, version: int, added: MessageAdded, calls: set[str]
) -> Iterator[Move]:
    """Return a message as a move; none if it holds only steps.

    Ids drawn by a provider are left out: two runs never share them.
    """
    fields = recorded(added.fields)
    fields = dict(fields) if isinstance(fields, dict) else {}
    if fields.pop("tool_call_id", None) in calls:
        return
    question = fields.get("tool_calls")
    if isinstance(question, list):
        new = [
            call for call in question if not isinstance(call, dict) or call.get("id") not in calls
        ]
        fields["tool_calls"] = [_without_id(call) for call in new]
        if not new and not recorded(added.content):
            return
    text = (_digest(added.content), digest(canonical(as_blob(fields))))
    stored = agent.events[version].stored
    yield Move(
        agent.name,
        f"{added.role} message",
        digest(b"message", added.role.encode("utf-8", "replace"), *map(str.encode, text)),
        "",
        version,
        stored.position,
        run_of(stored.stream),
        message=added,
    )


def _without_id(call: Any) -> Any:
    return {key: call[key] for key in call if key != "id"} if isinstance(call, dict) else call


def _arguments(raw: msgspec.Raw) -> str:
    """Return a digest of recorded arguments.

    A list that grew from call to call counts as the whole list, whichever way it is recorded.
    """
    plain = recorded(raw)
    if not isinstance(plain, dict):
        return _digest(raw)
    try:
        fields = {name: _argument(value) for name, value in plain.items()}
        return digest(canonical(fields))
    except RecursionError:  # nested too deep for this process
        return digest(bytes(raw))


def _argument(value: Any) -> Any:
    match value:
        case {"$append": {"digest": str(whole)}} if len(value) == 1:
            return {"$list": whole}
        case list():
            return {"$list": rolling([digest(canonical(item)) for item in value])}
        case _:
            return as_blob(value)


def _digest(raw: msgspec.Raw) -> str:
    try:
        return digest(canonical(as_blob(recorded(raw))))
    except RecursionError:  # nested too deep for this process
        return digest(bytes(raw))


# ---------------------------------------------------------------- alignment


def aligned(a: Sequence[Move], b: Sequence[Move]) -> list[Pair]:
    """Return two paths as one list: every move once, in the order of both."""
    firm = matched([move.call for move in a], [move.call for move in b])
    of_a = {i: _both(a[i], b[j], ordered=True) for i, j in firm}
    taken = {j for _, j in firm}
    for i, j in _moved_pairs(a, b, of_a.keys(), taken):
        of_a[i] = _both(a[i], b[j], ordered=bool(a[i].branch and b[j].branch))
        taken.add(j)
    made: list[Pair] = []
    since = (0, 0)
    for end in (*firm, (len(a), len(b))):
        made += _between(a, b, since, end, of_a, taken)
        if end[0] < len(a):
            made.append(of_a[end[0]])
        since = (end[0] + 1, end[1] + 1)
    return made


def _both(a: Move, b: Move, *, ordered: bool) -> Pair:
    same = Match.SAME if a.result == b.result else Match.RESULT
    return Pair(same if ordered else Match.MOVED, a, b)


def _moved_pairs(
    a: Sequence[Move], b: Sequence[Move], known_a: Any, known_b: set[int]
) -> Iterator[tuple[int, int]]:
    """Find equal calls at other places."""
    left: defaultdict[str, deque[int]] = defaultdict(deque)
    for j, move in enumerate(b):
        if j not in known_b:
            left[move.call].append(j)
    for i, move in enumerate(a):
        if i not in known_a and left.get(move.call):
            yield i, left[move.call].popleft()


def _between(
    a: Sequence[Move],
    b: Sequence[Move],
    since: tuple[int, int],
    end: tuple[int, int],
    of_a: dict[int, Pair],
    taken: set[int],
) -> Iterator[Pair]:
    """Pair the moves between two equal calls by name, the rest on one side only."""
    open_b: defaultdict[tuple[str, bool], deque[int]] = defaultdict(deque)
    for j in range(since[1], end[1]):
        if j not in taken:
            open_b[b[j].name, b[j].step is None].append(j)
    at = since[1]
    for i in range(since[0], end[0]):
        if i in of_a:
            yield of_a[i]
            continue
        named = open_b[a[i].name, a[i].step is None]
        while named and named[0] < at:
            named.popleft()
        if not named:
            yield Pair(Match.ONLY_A, a[i], None)
            continue
        found = named.popleft()
        yield from _pairs_of_b(b, at, found, taken)
        what = Match.ARGUMENTS if a[i].message is None else Match.TEXT
        yield Pair(what, a[i], b[found])
        at = found + 1
    yield from _pairs_of_b(b, at, end[1], taken)


def _pairs_of_b(b: Sequence[Move], since: int, end: int, taken: set[int]) -> Iterator[Pair]:
    for j in range(since, end):
        if j not in taken:
            yield Pair(Match.ONLY_B, None, b[j])


def matched(a: Sequence[str], b: Sequence[str]) -> Matched:
    """Return the matching indices of two sequences, ascending in both.

    Equal elements at both ends match; between them the longest equal runs, one window after the
    other.
    """
    head = _equal(a, b)
    tail = _equal(a[head:][::-1], b[head:][::-1])
    found = [(n, n) for n in range(head)]
    i, j, end_a, end_b = head, head, len(a) - tail, len(b) - tail
    while i < end_a and j < end_b:
        window_a, window_b = (
            a[i : min(i + WINDOW_MOVES, end_a)],
            b[j : min(j + WINDOW_MOVES, end_b)],
        )
        blocks = SequenceMatcher(None, window_a, window_b, autojunk=False).get_matching_blocks()
        found += [(i + x, j + y) for x, y, size in blocks for x, y in _run(x, y, size)]
        x, y = (
            (blocks[-2].a + blocks[-2].size, blocks[-2].b + blocks[-2].size)
            if blocks[1:]
            else (0, 0)
        )
        if max(x, y) < WINDOW_MOVES // 2:
            # At most half a window matches: continue with the other half of both.
            x, y = max(x, WINDOW_MOVES // 2), max(y, WINDOW_MOVES // 2)
        i, j = i + x, j + y
    return found + [(end_a + n, end_b + n) for n in range(tail)]


def _run(x: int, y: int, size: int) -> Iterator[tuple[int, int]]:
    return ((x + n, y + n) for n in range(size))


def _equal(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of equal elements at the beginning."""
    most = min(len(a), len(b))
    return next((n for n in range(most) if a[n] != b[n]), most)
