"""Two runs beside each other: their differences, and in which respects they compare.

Long because the moves, their alignment and the comparison of the runs are one answer.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.log import AtPosition, Stored
from hansard.bus.reads import began, last, own
from hansard.domain.agent import Alternative, DecisionMade, MessageAdded, SessionBegan
from hansard.domain.choices import counted, listed
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import RunStream, run_of
from hansard.domain.payload import as_blob, rolling
from hansard.domain.run import RunAssigned, RunState
from hansard.domain.steps import KINDS_IN_RECORD, Failure, Step, ToolDeclared, Withheld
from hansard.inspect import trace
from hansard.inspect.answer import Answer, by_name, plain_text
from hansard.inspect.state import summed
from hansard.inspect.trace import AgentHistory, by_agent, recorded
from hansard.state.replay import fold_life

# Two paths of an agent side by side: its calls, decisions and messages, and where they part.
#
# A move is a step, a decision or a message. Two moves are the same call if tool and arguments are
# equal (of a decision: its question; of a message: its role and text); their results are compared
# then. A message's tool calls and results that are steps are compared as steps alone. Equal calls
# are the longest runs of equal moves (difflib), the rest is matched by name; the order of branches
# that ran side by side does not count.

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
    own_moves = [_step(agent, step) for step in state.steps.values()]
    calls = {step.call_id for step in state.steps.values() if step.call_id is not None}
    for noted in state.facts:
        if isinstance(noted.fact, DecisionMade):
            own_moves.append(_decision(agent, noted.version, noted.fact))
        elif isinstance(noted.fact, MessageAdded):
            own_moves += _message(agent, noted.version, noted.fact, calls)
    return sorted(own_moves, key=lambda move: move.version)


def _move(
    agent: AgentHistory, version: int, name: str, call: str, result: str, **subject: Any
) -> Move:
    stored = agent.events[version].stored
    place = (version, stored.position, run_of(stored.stream))
    return Move(agent.name, name, call, result, *place, **subject)


def _step(agent: AgentHistory, step: Step) -> Move:
    error = step.error
    failure = (error.type, error.message, step.rule) if error is not None else ()
    results = [_digest(raw) for raw in (step.items if step.streamed else (step.result,))]
    outcome = (step.status.value, *failure, *results)
    call = digest(b"step", step.tool.encode(), _arguments(step.arguments).encode())
    result = digest(*(part.encode("utf-8", "replace") for part in outcome))
    branch = trace.branch(step)
    return _move(agent, step.version, step.tool, call, result, branch=branch, step=step)


def _decision(agent: AgentHistory, version: int, made: DecisionMade) -> Move:
    chosen = (made.selected, made.alternatives, made.threshold, made.confidence, made.because)
    call = digest(b"decision", made.question.encode("utf-8", "replace"))
    result = digest(msgspec.json.encode(chosen))
    branch = made.scope.partition("/")[2]
    return _move(agent, version, made.question, call, result, branch=branch, decision=made)


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
    call = digest(b"message", added.role.encode("utf-8", "replace"), *map(str.encode, text))
    yield _move(agent, version, f"{added.role} message", call, "", message=added)


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
        place = named.popleft()
        yield from _pairs_of_b(b, at, place, taken)
        what = Match.ARGUMENTS if a[i].message is None else Match.TEXT
        yield Pair(what, a[i], b[place])
        at = place + 1
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
    pairs = [(n, n) for n in range(head)]
    i, j, end_a, end_b = head, head, len(a) - tail, len(b) - tail
    while i < end_a and j < end_b:
        window_a, window_b = (
            a[i : min(i + WINDOW_MOVES, end_a)],
            b[j : min(j + WINDOW_MOVES, end_b)],
        )
        blocks = SequenceMatcher(None, window_a, window_b, autojunk=False).get_matching_blocks()
        pairs += [(i + x, j + y) for x, y, size in blocks for x, y in _run(x, y, size)]
        x, y = (
            (blocks[-2].a + blocks[-2].size, blocks[-2].b + blocks[-2].size)
            if blocks[1:]
            else (0, 0)
        )
        if max(x, y) < WINDOW_MOVES // 2:
            # At most half a window matches: continue with the other half of both.
            x, y = max(x, WINDOW_MOVES // 2), max(y, WINDOW_MOVES // 2)
        i, j = i + x, j + y
    return pairs + [(end_a + n, end_b + n) for n in range(tail)]


def _run(x: int, y: int, size: int) -> Iterator[tuple[int, int]]:
    return ((x + n, y + n) for n in range(size))


def _equal(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the number of equal elements at the beginning."""
    most = min(len(a), len(b))
    return next((n for n in range(most) if a[n] != b[n]), most)


USER = "user"
"""Role of messages that are not the agent's own; their cost is counted separately."""


class ComparedRun(msgspec.Struct, tag_field="kind", tag="run", kw_only=True):
    """A run's outcome and costs, those that a fork shares with its parents included.

    Attributes:
        side: `a` or `b`.
        assigned: Its experiment, arm and task; None if it is no trial.
        edits: The values of the parent that the fork replaced: steps as `agent#number`.
        error: The type and message of the error that ended it; None if none did.
        duration_ms: From its first event to its last; None if its source gives no times.
        usage: What its agents used, by name: tokens, cost in US dollars.
        own_usage: The part of `usage` that is not a parent's.
        user_usage: What the simulated user used: the usage of messages with the role `user`.
    """

    side: str
    run: str
    assigned: RunAssigned | None
    forked_from: str | None
    edits: list[str]
    status: str
    error: str | None
    scores: dict[str, float]
    steps: int
    statuses: dict[str, int]
    attempts: int
    decisions: int
    duration_ms: float | None
    usage: dict[str, float]
    own_usage: dict[str, float]
    user_usage: dict[str, float]

    @property
    def outcome(self) -> tuple[str, str | None, dict[str, float]]:
        """Outcome of the run: status, error and scores."""
        return self.status, self.error, self.scores


class At(msgspec.Struct, kw_only=True):
    """Place of a move."""

    place: str
    recorded_in: str | None
    version: int
    position: int


class DecisionAt(At, kw_only=True):
    """Decision of a run."""

    decision: str
    selected: str
    threshold: float | None
    confidence: float | None
    alternatives: tuple[Alternative, ...]
    because: str | None


class MessageAt(At, kw_only=True):
    """Message of a run, as recorded."""

    role: str
    content: msgspec.Raw
    fields: msgspec.Raw
    usage: dict[str, float]


class StepAt(At, kw_only=True):
    """Step of a run, with its values as recorded."""

    step: int
    tool: str
    arguments: msgspec.Raw
    status: str
    in_doubt: bool
    result: Any
    error: Failure | None
    attempts: int
    duration_ms: float | None
    usage: dict[str, float]
    withheld: Withheld | None
    would: str | None


class Moves(msgspec.Struct, kw_only=True):
    """Move of either run or of both."""

    agent_a: str | None
    agent_b: str | None
    what: Match
    shared: bool
    a: At | None
    b: At | None


class MoveLine(Moves, tag_field="kind", tag="move", kw_only=True):
    """Move as a line for programs."""


class AgentNames(msgspec.Struct):
    """Compared agents."""

    a: str | None
    b: str | None


class RunComparison(msgspec.Struct, tag_field="kind", tag="compared", kw_only=True):
    """Result of a comparison.

    `parts` is the first difference of the runs' moves; `ended_alike` is true if status, error
    and scores are equal.
    """

    equal: bool
    ended_alike: bool
    agents: list[AgentNames]
    shared: int
    counts: dict[str, int]
    parts: Moves | None
    position: int


class Side(msgspec.Struct):
    """Run as one side of a comparison."""

    run: str
    life: RunState
    agents: dict[str, AgentHistory]
    history: list[Stored]
    doubts: trace.Doubts


class AgentPair(msgspec.Struct, frozen=True):
    """Agent of one run paired with one of the other; either may be missing."""

    a: AgentHistory | None
    b: AgentHistory | None
    pairs: list[Pair]

    @property
    def parts(self) -> Pair | None:
        """First difference."""
        return next((pair for pair in self.pairs if pair.what is not Match.SAME), None)

    @property
    def differs(self) -> bool:
        """True if their calls, results, decisions or messages differ."""
        return self.a is None or self.b is None or self.parts is not None


class RunDiff(Answer):
    """Differences of two runs; `costs` are the outcome and costs of each."""

    sides: list[Side]
    couples: list[AgentPair]
    costs: list[ComparedRun]

    @property
    def differs(self) -> bool:
        """True if they differ in calls, results, decisions, messages or outcome."""
        return not self.ended_alike or any(couple.differs for couple in self.couples)

    @property
    def ended_alike(self) -> bool:
        """True if status, error and scores are equal."""
        a, b = self.costs
        return a.outcome == b.outcome

    @property
    def comparability(self) -> Comparability:
        """Respects other than the first difference in which the runs differ."""
        a, b = self.sides
        return comparability(a.agents, b.agents)

    @property
    def shared(self) -> int:
        """Number of moves that are the same events."""
        return sum(pair.shared for couple in self.couples for pair in couple.pairs)

    def lines(self) -> Iterator[ComparedRun | Comparability | MoveLine | RunComparison]:
        """Yield both runs, their comparability, each move, and the result."""
        yield from self.costs
        yield self.comparability
        for couple in self.couples:
            for pair in couple.pairs:
                yield MoveLine(**self._moves(couple, pair))
        counts = Counter(pair.what for couple in self.couples for pair in couple.pairs)
        first = self.first
        yield RunComparison(
            equal=not self.differs,
            ended_alike=self.ended_alike,
            agents=[AgentNames(_name(couple.a), _name(couple.b)) for couple in self.couples],
            shared=self.shared,
            counts={what.value: counts[what] for what in Match},
            parts=Moves(**self._moves(*first)) if first is not None else None,
            position=max(side.history[-1].position for side in self.sides),
        )

    def _moves(self, couple: AgentPair, pair: Pair) -> dict[str, Any]:
        a, b = self.sides
        return {
            "agent_a": _name(couple.a),
            "agent_b": _name(couple.b),
            "what": pair.what,
            "shared": pair.shared,
            "a": _at(pair.a, a.doubts),
            "b": _at(pair.b, b.doubts),
        }

    @property
    def first(self) -> tuple[AgentPair, Pair] | None:
        """First difference, counted in commits of its run."""
        orders = [
            {stored.position: order for order, stored in enumerate(side.history)}
            for side in self.sides
        ]

        def order(pair: Pair) -> int:
            both = zip(orders, (pair.a, pair.b), strict=True)
            return min(known[move.position] for known, move in both if move is not None)

        couples = [(couple, couple.parts) for couple in self.couples if couple.parts is not None]
        return min(couples, key=lambda each: order(each[1]), default=None)


async def run_diff(workspace: Workspace, a: str, b: str) -> RunDiff:
    """Compare two runs. Raises NotFound, UnknownEvent, Corrupt."""
    head = AtPosition(await workspace.log.head())
    sides = [await _side(workspace, run, head) for run in (a, b)]
    costs = [_cost(name, side) for name, side in zip("ab", sides, strict=True)]
    return RunDiff(sides, list(_couples(*sides)), costs)


async def _side(workspace: Workspace, run: str, up_to: AtPosition) -> Side:
    history = await workspace.states.history(run, up_to)
    life = fold_life(stored for stored in history if isinstance(stored.stream, RunStream))
    agents = by_agent(history)
    doubtful = trace.doubts({name: agent.state for name, agent in agents.items()})
    return Side(run, life, agents, history, doubtful)


def _couples(a: Side, b: Side) -> Iterator[AgentPair]:
    """Yield agents paired by name, then by role in the order of joining, then the rest."""
    left = {name: agent for name, agent in b.agents.items() if name not in a.agents}
    for name, agent in a.agents.items():
        other = b.agents.get(name)
        if other is None:
            role = agent.state.role
            index = next((n for n, each in left.items() if each.state.role == role), None)
            other = left.pop(index) if index is not None else None
        yield _couple(agent, other)
    for agent in left.values():
        yield _couple(None, agent)


def _couple(a: AgentHistory | None, b: AgentHistory | None) -> AgentPair:
    paths = [moves(agent) if agent is not None else [] for agent in (a, b)]
    return AgentPair(a, b, aligned(*paths))


def _cost(name: str, side: Side) -> ComparedRun:
    agents = [agent for agent in side.agents.values() if agent.state.version]
    steps = [step for agent in agents for step in agent.steps]
    used: list[tuple[str | None, dict[str, float]]] = []
    users: list[dict[str, float]] = []
    for agent in agents:
        at = {version: run_of(event.stored.stream) for version, event in agent.events.items()}
        used += [(at[step.outcome_version or step.version], step.usage) for step in agent.steps]
        for noted in agent.state.facts:
            if isinstance(noted.fact, MessageAdded):
                if noted.fact.role == USER:
                    users.append(noted.fact.usage)
                else:
                    used.append((at[noted.version], noted.fact.usage))
    forked, error = side.life.forked, side.life.error
    return by_name(
        ComparedRun,
        side.life,
        side=name,
        run=side.run,
        forked_from=forked.parent if forked is not None else None,
        edits=[each.target for each in forked.edits] if forked is not None else [],
        status=side.life.status.value,
        error=error.text if error is not None else None,
        steps=len(steps),
        statuses=dict(Counter(step.status.value for step in steps)),
        attempts=sum(step.attempt for step in steps),
        decisions=sum(len(agent.state.decisions) for agent in agents),
        duration_ms=_duration_ms(side),
        usage=summed([usage for _, usage in used]),
        own_usage=summed([usage for run, usage in used if run == side.run]),
        user_usage=summed(users),
    )


def _duration_ms(side: Side) -> float | None:
    """Return the time from a run's first event to its last, in ms; for a fork from its own first.

    None if unknown, as for an import without times.
    """
    ours = own(side.run, side.history)
    first, newest = began(ours), last(ours)
    if first.kind is None or first.kind != newest.kind:
        return None
    if first.moment is None or newest.moment is None:
        return None
    return (newest.moment - first.moment).total_seconds() * 1_000


def _name(agent: AgentHistory | None) -> str | None:
    return agent.name if agent is not None else None


def _at(move: Move | None, doubts: trace.Doubts) -> At | None:
    if move is None:
        return None
    decision, step = move.decision, move.step
    if decision is not None:
        because = decision.because or None
        return by_name(
            DecisionAt,
            move,
            decision,
            recorded_in=move.run,
            decision=decision.question,
            because=because,
        )
    if move.message is not None:
        return by_name(MessageAt, move, move.message, recorded_in=move.run)
    if step is None:
        return by_name(At, move, recorded_in=move.run)
    return by_name(
        StepAt,
        move,
        step,
        recorded_in=move.run,
        step=step.number,
        status=step.status.value,
        in_doubt=doubts.has(move.agent, step),
        result=step.items if step.streamed else step.result,
        attempts=step.attempt,
        duration_ms=step.duration_ms or None,
        would=step.would or None,
    )


PROMPT_ROLES = frozenset({"system", "developer"})
"""Roles of messages that instruct a model."""

NAMED_MAX = 4
"""Most tools and models named in a sentence."""


class Sameness(StrEnum):
    """Result of comparing two runs in one respect."""

    SAME = "same"
    DIFFERS = "differs"
    NOT_ON_RECORD = "not on record"


class Comparable(StrEnum):
    """Verdict on the comparability of two runs.

    Attributes:
        COMPARABLE: Everything relevant is on record and equal.
        DIFFERS: Something differs, and may explain other differences.
        CANNOT_TELL: Nothing on record differs, but not everything relevant is on record.
        NOTHING_RAN: Nothing ran in one of them after the fork point.
    """

    COMPARABLE = "comparable"
    DIFFERS = "differs"
    CANNOT_TELL = "cannot tell"
    NOTHING_RAN = "nothing ran"


class Respect(msgspec.Struct, frozen=True):
    """Respect: `name` is one of `RESPECTS`, `because` explains it."""

    name: str
    sameness: Sameness
    because: str


class Comparability(msgspec.Struct, tag_field="kind", tag="comparability", kw_only=True):
    """Verdict with its respects, and the number of effects either run withheld after the cut."""

    verdict: Comparable
    differs_in: list[str]
    not_on_record: list[str]
    respects: list[Respect]
    withheld_a: dict[str, int]
    withheld_b: dict[str, int]


RESPECTS = ("code", "model", "prompt", "effects")
"""Respects in which runs are compared, in their order."""


class _Side(msgspec.Struct):
    """Record of a run after the cut; idle if the runs share events and it adds none."""

    idle: bool = False
    code: dict[str, set[tuple[str, str, str]]] = {}
    models: set[str] = set()
    prompts: set[bytes] = set()
    withheld: Counter[Withheld] = msgspec.field(default_factory=Counter)


def comparability(a: Mapping[str, AgentHistory], b: Mapping[str, AgentHistory]) -> Comparability:
    """Compare two runs, given as agents by name, in respects other than their moves."""
    sides = [_build_side(one, other) for one, other in ((a, b), (b, a))]
    idle = [letter for letter, side in zip("AB", sides, strict=True) if side.idle]
    if idle:
        why = f"nothing ran in {listed(idle)} after the fork point"
        respects = [Respect(name, Sameness.NOT_ON_RECORD, why) for name in RESPECTS]
    else:
        respects = [_code(*sides), _model(*sides), _prompt(*sides), _effects(*sides)]
    differs = [each.name for each in respects if each.sameness is Sameness.DIFFERS]
    unknown = [each.name for each in respects if each.sameness is Sameness.NOT_ON_RECORD]
    known = Comparable.CANNOT_TELL if unknown else Comparable.COMPARABLE
    found = Comparable.DIFFERS if differs else known
    return Comparability(
        verdict=Comparable.NOTHING_RAN if idle else found,
        differs_in=differs,
        not_on_record=unknown,
        respects=respects,
        withheld_a=_counts(sides[0]),
        withheld_b=_counts(sides[1]),
    )


def _counts(side: _Side) -> dict[str, int]:
    return {how.value: side.withheld[how] for how in Withheld}


# ---------------------------------------------------------------- what is on record


def _build_side(ours: Mapping[str, AgentHistory], theirs: Mapping[str, AgentHistory]) -> _Side:
    cuts = {name: _cut(agent, theirs.get(name)) for name, agent in ours.items()}
    ran = any(max(agent.events, default=0) > cuts[name] for name, agent in ours.items())
    side = _Side(idle=any(cuts.values()) and not ran)
    for name, agent in ours.items():
        cut = cuts[name]
        declared: dict[str, list[tuple[int, ToolDeclared]]] = {}
        sessions: list[tuple[int, str]] = []
        for version, stored in agent.events.items():
            event = revive(stored.event)
            if isinstance(event, SessionBegan):
                sessions.append((version, event.server_version))
            elif isinstance(event, ToolDeclared):
                declared.setdefault(event.tool, []).append((version, event))
        for noted in agent.state.facts:
            if isinstance(noted.fact, MessageAdded):
                _add_message(side, noted.fact, after=noted.version > cut)
        for step in agent.steps:
            if step.version > cut:
                _add_step(side, step, declared.get(step.tool, []), sessions)
    return side


def _cut(agent: AgentHistory, other: AgentHistory | None) -> int:
    """Return the newest version that both share as one event; 0 if they share none."""
    if other is None:
        return 0
    shared = (
        version
        for version, event in agent.events.items()
        if version in other.events and other.events[version].event.id == event.event.id
    )
    return max(shared, default=0)


def _add_message(side: _Side, message: MessageAdded, *, after: bool) -> None:
    if message.role in PROMPT_ROLES:
        side.prompts.add(bytes(message.content))
    if after:
        _add_model(side, recorded(message.fields))


_HANSARD = "Hansard"
"""Source of its own tools, whose version is that of the session's process."""


def _add_step(
    side: _Side,
    step: Step,
    declared: list[tuple[int, ToolDeclared]],
    sessions: list[tuple[int, str]],
) -> None:
    _add_model(side, recorded(step.arguments))
    if step.withheld is not None:
        side.withheld[step.withheld] += 1
    place = bisect.bisect_right(declared, step.version, key=lambda one: one[0])
    if place:
        tool = declared[place - 1][1]
        parts = (tool.version, tool.source, tool.effects.value)
        session = bisect.bisect_right(sessions, step.version, key=lambda one: one[0])
        if step.kind in KINDS_IN_RECORD and session and (by := sessions[session - 1][1]):
            parts = (by, _HANSARD, tool.effects.value)
        side.code.setdefault(step.tool, set()).add(parts)


def _add_model(side: _Side, plain: Any) -> None:
    model = plain.get("model") if isinstance(plain, dict) else None
    if isinstance(model, str) and model:
        side.models.add(model)


# ---------------------------------------------------------------- how that compares


def _code(a: _Side, b: _Side) -> Respect:
    """Compare the code of tools that both called; a tool that only one called is no code change."""
    both = sorted(a.code.keys() & b.code.keys())
    other = [tool for tool in both if a.code[tool] != b.code[tool]]
    if other:
        return _differs("code", f"{_listed(other)}: {_changed_declarations(a.code, b.code, other)}")
    blind = [tool for tool in both if any(not source for _, source, _ in a.code[tool])]
    if blind or not both:
        why = f"no source of {_listed(blind)}" if blind else "they called no tool that both called"
        return Respect("code", Sameness.NOT_ON_RECORD, why)
    own = sorted({v for tool in both for v, source, _ in a.code[tool] if source == _HANSARD})
    of_hansard = f", those of Hansard of version {_listed(own)}" if own else ""
    because = (
        f"{counted(len(both), 'tool')} that both called{of_hansard}; other code is not recorded"
    )
    return Respect("code", Sameness.SAME, because)


def _changed_declarations(
    a: Mapping[str, set[tuple[str, str, str]]],
    b: Mapping[str, set[tuple[str, str, str]]],
    tools: Iterable[str],
) -> str:
    """Return the parts of the declarations that differ."""
    parts = ("version", "source", "effects")
    names = [
        part
        for index, part in enumerate(parts)
        if any({one[index] for one in a[tool]} != {one[index] for one in b[tool]} for tool in tools)
    ]
    return f"another {' and '.join(names)}" if names else "declared alternately"


def _model(a: _Side, b: _Side) -> Respect:
    if not a.models or not b.models:
        return Respect(
            "model", Sameness.NOT_ON_RECORD, _missing(a.models, b.models, "names a model")
        )
    if a.models == b.models:
        return Respect("model", Sameness.SAME, _listed(sorted(a.models)))
    return _differs("model", f"A: {_listed(sorted(a.models))}; B: {_listed(sorted(b.models))}")


def _prompt(a: _Side, b: _Side) -> Respect:
    if a.prompts == b.prompts and a.prompts:
        return Respect(
            "prompt", Sameness.SAME, f"{counted(len(a.prompts), 'message')} with instructions"
        )
    if not a.prompts and not b.prompts:
        why = _missing(a.prompts, b.prompts, "has a message of the role system or developer")
        return Respect("prompt", Sameness.NOT_ON_RECORD, why)
    only = [len(one.prompts - other.prompts) for one, other in ((a, b), (b, a))]
    return _differs(
        "prompt", f"messages with instructions only in A: {only[0]}, only in B: {only[1]}"
    )


def _effects(a: _Side, b: _Side) -> Respect:
    """Compare effects; one answered with the parent's outcome is equal for its caller."""
    words = "; ".join(
        f"{letter}: {text}" for letter, side in (("A", a), ("B", b)) for text in _withheld(side)
    )
    if any(side.withheld[how] for side in (a, b) for how in (Withheld.SHADOW, Withheld.REFUSED)):
        return _differs("effects", words)
    return Respect("effects", Sameness.SAME, words or "none was withheld")


def _withheld(side: _Side) -> Iterator[str]:
    """Yield the effects that a run withheld, in words."""
    withheld = side.withheld
    if not withheld.total():
        return
    texts = {
        Withheld.OUTCOME: "answered with an outcome on record",
        Withheld.SHADOW: "answered by a shadow",
        Withheld.REFUSED: "refused",
        Withheld.EDIT: "answered with an edited result",
    }
    parts = [f"{withheld[how]:,} {text}" for how, text in texts.items() if withheld[how]]
    yield f"{counted(withheld.total(), 'effect')} withheld ({', '.join(parts)})"


def _differs(name: str, reason: str) -> Respect:
    return Respect(name, Sameness.DIFFERS, reason)


def _missing(a: set[Any], b: set[Any], what: str) -> str:
    """Return which side of A and B lacks something on record."""
    if not a and not b:
        return f"nothing {what}" if what.startswith("names") else f"neither {what}"
    return f"nothing in {'B' if a else 'A'} {what}"


def _listed(names: list[str]) -> str:
    shown = [plain_text(name) for name in names[:NAMED_MAX]]
    more = len(names) - len(shown)
    return listed([*shown, f"{more:,} more"] if more else shown)
