"""Re-derive an agent's calls: every call key, fingerprint and digest, from the record.

No tool runs: the calls' arguments and results are fetched and digested as
`hansard.agents.steps.engine` does when it places a call. A scope's head before a call is not
recorded; it is derived from the results and the joins before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.steps.failures import failure_digest
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain import agent as agents
from hansard.domain import payload
from hansard.domain.agent import CheckpointSaved
from hansard.domain.decider import evolve
from hansard.domain.errors import Corrupt
from hansard.domain.fingerprint import (
    UNORDERED,
    call_base,
    call_key,
    canonical,
    digest,
    fingerprint,
)
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.payload import Fetch
from hansard.domain.run import Chain, RunStarted
from hansard.domain.steps import (
    JOIN_TIMES_MAX,
    Failure,
    Join,
    Step,
    StepBlocked,
    StepCompleted,
    StepEvent,
    StepFailed,
    StepRequested,
    StepSettled,
    StepStatus,
    ToolDeclared,
    Verdict,
)
from hansard.inspect.answer import Answer, by_name
from hansard.inspect.trace import Doubts, Fetcher, Line, doubts, steps_of

# Derivation of a call's fingerprint from the record before it.
#
# A scope's head before a call is the digest of its last result, or the result of joins of child
# scopes (`hansard.agents.steps.scope`). A step lists the joins that led to its head and that no
# earlier step lists; each must join heads that are on record, so that a changed result is noticed
# behind any join.

HEADS_MAX = 64
"""Most newest heads of a scope, and of joins, that a call may follow: more than an edited run
leaves.
"""


class Derived(Enum):
    """Result of deriving a fingerprint from the record before it."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Heads:
    """Heads of one agent's scopes; `full` if a call's chain continues from its fingerprint."""

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self._known = {"", UNORDERED}
        """All heads on record: digests of results, and results of joins."""
        self._joined: dict[str, None] = {}
        """Results of joins, in order."""
        self._own: dict[str, list[str]] = {}
        """Heads of each scope, in order."""
        self._marks: dict[int, list[str]] = {}
        """Heads that each step left, one per outcome."""

    def checkpoint(self, head: str, joins: Sequence[Join]) -> None:
        """Add the head of a checkpoint, from which a later session may continue: the result of its
        joins.
        """
        if joins:
            self._after(joins)
        else:
            self._known.add(head)

    def outcome(self, step: Step) -> None:
        """Advance a step's scope after its outcome."""
        mark = step.fingerprint if self._full else step.digest
        self._known.add(mark)
        self._marks.setdefault(step.number, []).append(mark)
        if not step.unordered:
            self._own.setdefault(step.scope, []).append(mark)

    def derive(self, step: Step, steps: Mapping[int, Step], joins: Sequence[Join]) -> Derived:
        """Return whether a call's fingerprint follows from the record before it and from its joins.

        UNKNOWN: it follows joins that are not sufficiently on record.
        """
        self._known.add(step.fingerprint)  # the start of its body
        if joins:
            head = self._after(joins)
            if head is None or fingerprint(step.call, head) != step.fingerprint:
                return Derived.NO
            return Derived.YES if all(join.ends for join in joins) else Derived.UNKNOWN
        heads = dict.fromkeys(self._before(step, steps))
        if any(fingerprint(step.call, head) == step.fingerprint for head in heads):
            return Derived.YES
        before = [steps[number] for number in step.after if number in steps]
        is_linear = all(f"{step.scope}/".startswith(f"{other.scope}/") for other in before)
        return Derived.NO if is_linear else Derived.UNKNOWN

    def _before(self, step: Step, steps: Mapping[int, Step]) -> Iterator[str]:
        """Yield the heads that a call without joins may follow, likely ones first."""
        for number in step.after:
            yield from reversed(self._marks.get(number, ()))
        if step.parent is not None and step.parent in steps:
            yield steps[step.parent].fingerprint
        yield from self._own.get(step.scope, [])[: -HEADS_MAX - 1 : -1]
        yield from itertools.islice(reversed(self._joined), HEADS_MAX)
        yield ""

    def _after(self, joins: Sequence[Join]) -> str | None:
        """Return the head after joins; None if a joined head is not on record."""
        head = None
        for join in joins:
            if join.times > JOIN_TIMES_MAX or (join.ends and not self._is_known_head(join)):
                return None
            head = join.result()
            self._known.add(head)
            self._joined.pop(head, None)
            self._joined[head] = None
        return head

    def _is_known_head(self, join: Join) -> bool:
        if join.times > 1:
            return join.head in self._known and {*join.ends} == {join.head}
        return self._known.issuperset((join.head, *join.ends))


OCCURRENCE_SLACK = 64
"""Most equal calls of a scope that left no record (interrupted pure calls) and yet counted."""

Fetched = Callable[[Fetch], Awaitable[Any]]


class CheckedCall(msgspec.Struct):
    """Call and the result of re-deriving it.

    `differs` names the differences; `unproven` what could not be derived because the record
    lacks an input of it.
    """

    step: Step
    arguments: Any = None
    result: Any = None
    differs: list[str] = []
    unproven: list[str] = []


class Rederiver:
    """Re-derives one agent's commits, taken in order."""

    def __init__(self, agent: str, fetch: Fetched, *, full: bool = False) -> None:
        """full: whether the run's chain is the full one (`hansard.domain.run.Chain`)."""
        self._agent = agent
        self._fetch = fetch
        self._state = agents.AgentState()
        self._reader = payloads.Reader(lambda: self._state)
        self._versions: dict[str, list[str]] = {}
        self._equals: dict[str, int] = {}
        self._heads = Heads(full=full)
        self._digests: dict[int, set[str]] = {}
        self.checked: dict[int, CheckedCall] = {}

    async def take(self, stored: Stored) -> None:
        """Re-derive the calls of a commit."""
        for recorded in stored.commit.events:
            event: Any = revive(recorded)
            evolve(self._state, event)
            await self._event(event)
            if isinstance(event, StepEvent):
                self.checked[event.step].step = self._state.steps[event.step]

    async def _event(self, event: agents.AgentEvent) -> None:
        match event:
            case CheckpointSaved():
                self._heads.checkpoint(event.head, event.joins)
            case ToolDeclared():
                self._versions.setdefault(event.tool, []).append(event.version)
            case StepRequested():
                checked = self.checked[event.step] = CheckedCall(self._state.steps[event.step])
                try:
                    await self._request(checked, event.joins)
                except (NotFound, Corrupt, msgspec.DecodeError) as error:
                    checked.differs.append(f"its arguments cannot be read: {error}")
            case StepCompleted() | StepFailed() | StepBlocked() | StepSettled():
                checked = self.checked[event.step]
                checked.step = self._state.steps[event.step]
                try:
                    await self._outcome(checked, event)
                except (NotFound, Corrupt, msgspec.DecodeError) as error:
                    checked.differs.append(f"its result cannot be read: {error}")
                self._advance(checked.step)
            case _:
                pass

    # ------------------------------------------------------------ the call

    async def _request(self, checked: CheckedCall, joins: Sequence[Join]) -> None:
        step = checked.step
        fetch = self._reader.arguments(step)
        checked.arguments = await self._fetch(fetch)
        self._lists(checked)
        self._call(checked)
        if step.unordered:
            if fingerprint(step.call, UNORDERED) != step.fingerprint:
                checked.differs.append("its fingerprint is not that of an unordered call")
            return
        after = ", ".join(map(str, step.after)) or "the begin"
        match self._heads.derive(step, self._state.steps, joins):
            case Derived.NO:
                fact = f"its fingerprint does not follow from the results of {after}"
                checked.differs.append(fact)
            case Derived.UNKNOWN:
                fact = f"it follows a join after {after} that left too little on record"
                checked.unproven.append(fact)
            case Derived.YES:
                pass

    def _lists(self, checked: CheckedCall) -> None:
        """Check the digests of growing lists, which the record states beside the appended items."""
        recorded = msgspec.json.decode(checked.step.arguments)
        for name, value in recorded.items():
            if isinstance(value, dict) and value.keys() == {"$append"}:
                items = [digest(canonical(item)) for item in checked.arguments[name]]
                if payload.rolling(items) != value["$append"]["digest"]:
                    checked.differs.append(f"the digest of its argument {name!r}")

    def _call(self, checked: CheckedCall) -> None:
        step = checked.step
        declared = self._versions.get(step.tool, [])
        named = checked.arguments.items()
        form = canonical({name: each for name, each in named if name not in step.defaults})
        for version in dict.fromkeys((*reversed(declared), "")):
            base = call_base(step.tool, version, self._agent, step.scope, form)
            equals = self._equals.get(base, 0)
            for occurrence in _likely_first(equals, equals + OCCURRENCE_SLACK):
                if call_key(base, occurrence) == step.call:
                    self._equals[base] = max(equals, occurrence + 1)
                    return
        if declared:
            checked.differs.append("its call key does not follow from its arguments")
        else:
            checked.unproven.append(f"the version of {step.tool} was never declared")

    # ------------------------------------------------------------ the outcome

    async def _outcome(
        self, checked: CheckedCall, event: StepCompleted | StepFailed | StepBlocked | StepSettled
    ) -> None:
        step = checked.step
        match event:
            case StepFailed():
                if failure_digest(event.error) != event.digest:
                    checked.differs.append("the digest of its error")
            case StepCompleted():
                actual = await self._result(checked)
                if actual != event.digest:
                    self._reused(checked, event)
            case StepSettled() if event.verdict is Verdict.HAPPENED:
                if await self._result(checked) != event.digest:
                    checked.differs.append("the digest of its settled result")
            case _:
                pass
        self._digests.setdefault(step.number, set()).add(step.digest)

    async def _result(self, checked: CheckedCall) -> str:
        """Return the digest of a step's recorded result."""
        step = checked.step
        if not step.streamed or step.verdict is Verdict.HAPPENED:
            checked.result = await self._fetch(self._reader.result(step))
            return digest(canonical(checked.result))
        checked.result = [await self._fetch(payload.unpack(item)) for item in step.items]
        return payload.rolling([digest(canonical(item)) for item in checked.result])

    def _reused(self, checked: CheckedCall, event: StepCompleted) -> None:
        if event.reused is None:
            checked.differs.append("the digest of its result")
        elif event.reused not in self._digests:
            checked.unproven.append(f"its outcome is that of step {event.reused} of another run")
        elif event.digest not in self._digests[event.reused]:
            checked.differs.append(f"the digest of step {event.reused}, whose outcome it has")

    def _advance(self, step: Step) -> None:
        if step.status in (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.BLOCKED):
            self._heads.outcome(step)


def _likely_first(begin: int, end: int) -> list[int]:
    """Yield the likely occurrence, then the later ones, then the earlier ones."""
    return [*range(begin, end), *range(begin - 1, -1, -1)]


# A run re-derived from its record: no tool runs.


class Call(msgspec.Struct, tag_field="kind", tag="call", kw_only=True):
    """Call with its values in full, and the result of re-deriving it."""

    run: str
    agent: str
    step: int
    tool: str
    arguments: Any
    status: str
    in_doubt: bool
    result: Any
    error: Failure | None
    differs: list[str]
    unproven: list[str]


class Summary(msgspec.Struct, tag_field="kind", tag="summary", kw_only=True):
    """Numbers of calls by result."""

    run: str
    tools_run: int = 0
    calls: int = 0
    differ: int = 0
    unproven: int = 0


class Replayed(Answer):
    """Re-derived calls of a run, in the order of their intents."""

    run: str
    calls: list[tuple[Line, CheckedCall]]
    doubts: Doubts

    def lines(self) -> Iterator[Call | Summary]:
        """Yield each call, then the summary."""
        for line, checked in self.calls:
            step = line.step
            yield by_name(
                Call,
                self,
                checked,
                line,
                step,
                step=step.number,
                status=step.status.value,
                in_doubt=self.doubts.has(line.agent, step),
            )
        yield self.summary

    @property
    def summary(self) -> Summary:
        """Summary of all calls; one that differs does not count as unproven."""
        calls = [checked for _, checked in self.calls]
        return Summary(
            run=self.run,
            calls=len(calls),
            differ=sum(bool(checked.differs) for checked in calls),
            unproven=sum(bool(checked.unproven and not checked.differs) for checked in calls),
        )


async def replay(workspace: Workspace, run: str) -> Replayed:
    """Derive every call of a run again from its recorded arguments and result.

    Raises NotFound, UnknownEvent, Corrupt.
    """
    history = await workspace.states.history(run)
    fetch = Fetcher(workspace)
    full = _is_full(history)
    agents: dict[str, Rederiver] = {}
    for stored in history:
        if isinstance(stored.stream, AgentStream):
            name = stored.stream.agent
            if name not in agents:
                agents[name] = Rederiver(name, fetch, full=full)
            await agents[name].take(stored)
    lines = [(line, agents[line.agent].checked[line.step.number]) for line in steps_of(history)]
    return Replayed(run, lines, doubts({line.agent: line.state for line, _ in lines}))


def _is_full(history: list[Stored]) -> bool:
    """Return whether the run, or the run it was forked from, began with the full chain.

    Only that event is read: the rest of its life may be of a newer version.
    """
    begun = (
        revive(recorded)
        for stored in history
        if isinstance(stored.stream, RunStream)
        for recorded in stored.commit.events
        if recorded.type == RunStarted.tag
    )
    return any(isinstance(each, RunStarted) and each.chain is Chain.FULL for each in begun)
