"""The first step of a run after which a check fails, by binary search over its states."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from functools import partial
from typing import Any, Literal

import msgspec

from hansard.agents.edits import find_step
from hansard.agents.workspace import Workspace
from hansard.bus.commits import whole_at
from hansard.domain.errors import BadValue, CallerError
from hansard.domain.ids import AgentStream, run_of
from hansard.inspect import state as state_reads
from hansard.inspect.answer import Answer
from hansard.inspect.state import Change
from hansard.inspect.trace import recorded

SKIP = 125
"""Exit code of a check that cannot judge a state, as for `git bisect run`."""

START, END = "the beginning of the run", "the end of the run"

ASSUMPTION = (
    "assumed: once the check fails, it fails after every later step; states that were not checked "
    "may differ"
)


class Verdict(StrEnum):
    """Judgement of a check on a state."""

    GOOD = "good"
    BAD = "bad"
    SKIPPED = "skipped"


class Outcome(StrEnum):
    """End of a search."""

    FOUND = "found"
    AMONG_SKIPPED = "among skipped steps"
    NEVER_FAILS = "the check passes at the end"
    FAILS_AT_START = "the check fails before the first step"


class State(msgspec.Struct, frozen=True):
    """A state to check.

    Attributes:
        after: The steps whose outcomes the state has and the one before it has not, as
            `agent#number`; of the first and the last state, where in the run it is.
        at: Its position in the log; None for the end of the run.
    """

    after: tuple[str, ...]
    at: int | None


class CheckedState(msgspec.Struct, frozen=True, kw_only=True):
    """A state that was checked: the fork of it if there is one, and the check's result."""

    kind: Literal["probe"] = "probe"
    after: tuple[str, ...]
    at: int | None
    verdict: Verdict
    code: int
    fork: str | None
    last_line: str


class FailingStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step after which the check fails: its call and its result, as recorded."""

    kind: Literal["step"] = "step"
    step: str
    tool: str
    arguments: Any
    result: Any
    status: str


class Bisection(Answer):
    """Result of a search.

    Attributes:
        run: The run.
        check: The check's command.
        outcome: The end of the search.
        states: The number of states between which it searched.
        good: The last state in which the check passed.
        bad: The first state in which it failed.
        probes: The states that were checked, in that order.
        steps: The steps after which the check fails first; several if they were recorded together,
            or if those between them were skipped.
        changes: The differences between the good and the bad state.
    """

    run: str
    check: str
    outcome: Outcome
    states: int
    good: State | None
    bad: State | None
    probes: list[CheckedState]
    steps: list[FailingStep]
    changes: list[Change]

    def lines(self) -> Iterator[object]:
        """Yield the result, then the steps, the probes and the differences."""
        head: dict[str, Any] = {"run": self.run, "check": self.check, "outcome": self.outcome}
        head |= {"states": self.states, "good": self.good, "bad": self.bad}
        yield {"kind": "bisect", **head, "checked": len(self.probes), "assumed": ASSUMPTION}
        yield from self.steps
        yield from self.probes
        yield from self.changes


Check = Callable[[State], Awaitable[CheckedState]]
"""Judges a state."""


async def bisected(
    workspace: Workspace, run: str, agent: str | None, name: str, check: Check
) -> Bisection:
    """Find the first step of a run, or of one of its agents, after which a check fails.

    `name` is the check's text in the result. Raises NotFound, CallerError, and as the check.
    """
    states = await _states(workspace, run, agent)
    probes: list[CheckedState] = []

    async def probe(number: int) -> Verdict:
        checked = await check(states[number])
        probes.append(checked)
        return checked.verdict

    outcome, good, bad = await search(len(states) - 1, probe)
    steps: list[FailingStep] = []
    changes: list[Change] = []
    if good is not None and bad is not None:
        names = [name for state in states[good + 1 : bad + 1] for name in state.after]
        steps = await _failing(workspace, run, names)
        changes = await _changes(workspace, run, states[good], states[bad])
    return Bisection(
        run=run,
        check=name,
        outcome=outcome,
        states=len(states),
        good=states[good] if good is not None else None,
        bad=states[bad] if bad is not None else None,
        probes=probes,
        steps=steps,
        changes=changes,
    )


async def search(
    last: int, probe: Callable[[int], Awaitable[Verdict]]
) -> tuple[Outcome, int | None, int | None]:
    """Search the states 0 to `last` for the first bad one; return the end of the search, the last
    good state before it, and itself.

    Between both are only skipped states. Raises CallerError if the first or last state is skipped.
    """
    for number, ended, name in (
        (last, (Verdict.GOOD, Outcome.NEVER_FAILS), END),
        (0, (Verdict.BAD, Outcome.FAILS_AT_START), START),
    ):
        verdict = await probe(number)
        if verdict is Verdict.SKIPPED:
            message = f"the check skips {name} (exit code {SKIP}): let it judge that state"
            raise CallerError(message)
        if verdict is ended[0]:
            only = (number, None) if verdict is Verdict.GOOD else (None, number)
            return (ended[1], *only)
    good, bad = 0, last
    skipped: set[int] = set()
    while left := [number for number in range(good + 1, bad) if number not in skipped]:
        number = left[len(left) // 2]
        match await probe(number):
            case Verdict.GOOD:
                good = number
            case Verdict.BAD:
                bad = number
            case Verdict.SKIPPED:
                skipped.add(number)
    return (Outcome.FOUND if bad - good == 1 else Outcome.AMONG_SKIPPED), good, bad


async def _states(workspace: Workspace, run: str, agent: str | None) -> list[State]:
    """Return the states of a run to search: before its first step, after each, and at its end.

    Of a fork, only those after its beginning. Raises NotFound, CallerError.
    """
    commits = await workspace.states.history(run)
    view = await workspace.states.run(run)
    names = [agent] if agent is not None else list(view.agents)
    places = {
        (stored.stream.agent, version): stored
        for stored in commits
        if isinstance(stored.stream, AgentStream)
        for version in range(stored.commit.version, stored.commit.last_version + 1)
    }
    first = next(stored for stored in commits if run_of(stored.stream) == run)
    ended: dict[int, list[str]] = {}
    begun: list[int] = []
    for name in names:
        cut = view.life.forked.at.get(str(view.stream_of(name)), 0) if view.life.forked else 0
        for step in view.agent(name).steps.values():
            if step.version > cut and step.outcome_version is not None:
                intent = places[name, step.version]
                begun.append(intent.position - (intent.commit.tx.index if intent.commit.tx else 0))
                at = whole_at(places[name, step.outcome_version])
                ended.setdefault(at, []).append(f"{name}#{step.number}")
    if not ended:
        of = f" of agent {agent!r}" if agent is not None else ""
        message = f"run {run} has no step{of} with an outcome: there is nothing to search"
        raise CallerError(message)
    start = State((START,), max(whole_at(first), min(begun) - 1))
    return [start, *(State(tuple(ended[at]), at) for at in sorted(ended)), State((END,), None)]


async def _failing(workspace: Workspace, run: str, names: list[str]) -> list[FailingStep]:
    """Return steps with their calls and results; a name of no step is left out."""
    view = await workspace.states.run(run)
    steps = []
    for name in names:
        if name not in (START, END):
            _, step = find_step(view, name)
            result = recorded(step.result) if not step.streamed else [*map(recorded, step.items)]
            step_of = partial(FailingStep, step=name, tool=step.tool, status=step.status.value)
            steps.append(step_of(arguments=recorded(step.arguments), result=result))
    return steps


async def _changes(workspace: Workspace, run: str, good: State, bad: State) -> list[Change]:
    points = (_point(good), _point(bad))
    difference = await state_reads.difference(workspace, run, points, None)
    return difference.changes


# ------------------------------------------------------------ conditions


class Relation(StrEnum):
    """Test of a condition on a value."""

    EXISTS = "exists"
    MISSING = "is missing"
    EQUALS = "equals"
    DIFFERS = "differs from"
    CONTAINS = "contains"
    LACKS = "does not contain"
    BELOW = "is below"
    ABOVE = "is above"


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """A check without a program: it passes while a test of one value of the state holds.

    Attributes:
        pointer: The value, as a JSON Pointer (RFC 6901) into the state, such as
            `/life/board/plan/value`; empty for the whole state.
        test: The test. `contains` is about a part of a text, an item of a list, a name of an
            object, or any text within one.
        value: The other side of the test.
    """

    pointer: str
    test: Relation
    value: Any = None

    def __str__(self) -> str:
        value = "" if self.test in (Relation.EXISTS, Relation.MISSING) else f" {_text(self.value)}"
        return f"{self.pointer or 'the state'} {self.test.value}{value}"

    def holds(self, state: Any) -> bool:
        """Test a state; a test of a missing value or of an unfit type does not hold."""
        exists, value = _at(state, self.pointer)
        match self.test:
            case Relation.EXISTS | Relation.MISSING:
                return exists == (self.test is Relation.EXISTS)
            case Relation.EQUALS | Relation.DIFFERS:
                return (exists and value == self.value) == (self.test is Relation.EQUALS)
            case Relation.CONTAINS | Relation.LACKS:
                return (exists and _contains(value, self.value)) == (self.test is Relation.CONTAINS)
            case Relation.BELOW | Relation.ABOVE:
                sides = (value, self.value) if self.test is Relation.BELOW else (self.value, value)
                numbers = all(isinstance(side, int | float) for side in sides)
                return exists and numbers and sides[0] < sides[1]

    async def check(self, workspace: Workspace, run: str, state: State) -> CheckedState:
        """Judge a state of a run."""
        data = await state_reads.state(workspace, run, _point(state), None)
        plain = msgspec.json.decode(msgspec.json.encode({"life": data.life, "agents": data.agents}))
        holds = self.holds(plain)
        line = f"{self}: {'yes' if holds else 'no'}"
        verdict = Verdict.GOOD if holds else Verdict.BAD
        return CheckedState(
            after=state.after,
            at=state.at,
            verdict=verdict,
            code=0 if holds else 1,
            fork=None,
            last_line=line,
        )


def _point(state: State) -> str:
    return state_reads.NOW if state.at is None else str(state.at)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _at(value: Any, pointer: str) -> tuple[bool, Any]:
    """Return whether a pointer names a value, and the value. Raises BadValue."""
    if pointer and not pointer.startswith("/"):
        raise BadValue("pointer", f"{pointer!r:.80}", "begin it with '/', as in /life/status")
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return False, None
    return True, value


def _contains(value: Any, part: Any) -> bool:
    match value:
        case str():
            return str(part) in value
        case list():
            return part in value or any(_contains(each, part) for each in value)
        case dict():
            return part in value or any(_contains(each, part) for each in value.values())
        case _:
            return False
