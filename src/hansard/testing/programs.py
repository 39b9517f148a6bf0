"""`given(...).when(...).then(...)` of programs: what is on record, what runs, what comes of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import msgspec

from hansard.agents.runs import find_step
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.bus.portal import refuse_in_loop
from hansard.client.options import RecordOptions
from hansard.client.record import AsyncRecord, Record
from hansard.client.session import AsyncSession, Session
from hansard.domain import values
from hansard.domain.agent import DecisionMade
from hansard.domain.choices import nearest
from hansard.domain.errors import BadName
from hansard.domain.events import REGISTRY
from hansard.domain.ids import AgentStream
from hansard.domain.payload.references import run_fetch, unpack
from hansard.domain.steps import Step, StepStatus
from hansard.state.replay import RunView
from hansard.testing.memory import Memory, finished, record_async_of, record_of, workspace_of

# Two sides beside each other, so that a failed test says at once what is different.

SHOWN_LETTERS_MAX = 120
"""Most letters of one value in a message."""


class Row(msgspec.Struct, frozen=True):
    """A line of a comparison: `mark` is `-` for what was expected and is not there, `+` for what is
    there and was not expected, and a blank for both.
    """

    mark: str
    text: str


def rows(
    expected: Sequence[Any],
    found: Sequence[Any],
    fits: Callable[[Any, Any], bool],
    text: Callable[[Any], str],
) -> list[Row]:
    """The two sides in order, with as many pairs that fit as there can be."""
    longest = [[0] * (len(found) + 1) for _ in range(len(expected) + 1)]
    for i in reversed(range(len(expected))):
        for j in reversed(range(len(found))):
            beside = max(longest[i + 1][j], longest[i][j + 1])
            pair = fits(expected[i], found[j])
            longest[i][j] = max(beside, longest[i + 1][j + 1] + 1) if pair else beside
    made: list[Row] = []
    i = j = 0
    while i < len(expected) or j < len(found):
        both = i < len(expected) and j < len(found)
        if both and fits(expected[i], found[j]):
            made.append(Row(" ", text(found[j])))
            i, j = i + 1, j + 1
        elif i < len(expected) and (not both or longest[i + 1][j] >= longest[i][j + 1]):
            made.append(Row("-", text(expected[i])))
            i += 1
        else:
            made.append(Row("+", text(found[j])))
            j += 1
    return made


def check(
    what: str,
    expected: Sequence[Any],
    found: Sequence[Any],
    *,
    fits: Callable[[Any, Any], bool],
    text: Callable[[Any], str] = str,
) -> None:
    """Raise AssertionError, with both sides, unless each fits its counterpart, in order."""
    __tracebackhide__ = True
    lines = rows(expected, found, fits, text)
    if any(row.mark != " " for row in lines):
        words = "\n".join(f"  {row.mark} {row.text}" for row in lines)
        message = f"{what} are not as expected (- expected, + found):\n{words}"
        raise AssertionError(message)


def brief(value: object) -> str:
    """A value's repr on one line, cut where it is long."""
    shown = repr(value)
    return shown if len(shown) <= SHOWN_LETTERS_MAX else f"{shown[:SHOWN_LETTERS_MAX]}..."


# What a test may expect of a program: calls and decisions, by what it cares to say of them.

UNSAID = msgspec.UNSET
"""Of a field that a test does not care about."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call, as it is expected or as it was made; of what is expected only what is given counts.

    Attributes:
        tool: The tool's name.
        how: `answered` from what was on record before the session began, else `ran`.
        agent: Who made it.
        step: Its number.
        arguments: What it was given, by name; of what is expected, each that is named.
        result: What it returned.
        status: What became of it: `completed`, `failed`, `blocked`, `in_doubt`, `requested`.
        error: Of what it raised: the class's name, a colon and its text; or a part of that.
    """

    tool: str
    how: str
    agent: str | None = None
    step: int | None = None
    arguments: Mapping[str, Any] = {}
    result: Any = UNSAID
    status: str | None = None
    error: str | None = None

    def fits(self, made: Call) -> bool:
        """Whether a call that was made is as this one expects."""
        same = (self.tool, self.how) == (made.tool, made.how)
        named = all(
            name in made.arguments and made.arguments[name] == value
            for name, value in self.arguments.items()
        )
        return (
            same
            and named
            and self.agent in (None, made.agent)
            and self.step in (None, made.step)
            and self.status in (None, made.status)
            and (self.result is UNSAID or self.result == made.result)
            and (self.error is None or self.error in (made.error or ""))
        )

    def __str__(self) -> str:
        given = ", ".join(f"{name}={brief(value)}" for name, value in self.arguments.items())
        number = f"#{self.step}" if self.step is not None else ""
        who = f"{self.agent or ''}{number} " if self.agent or number else ""
        text = f"{self.how} {who}{self.tool}" + (f"({given})" if given else "")
        if self.error is not None:
            return f"{text} {self.status or 'raised'}: {self.error}"
        if self.status not in (None, "completed"):
            return f"{text} {self.status}"
        return text if self.result is UNSAID else f"{text} -> {brief(self.result)}"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, as it is expected or as it was made; of what is expected only what is given
    counts.

    Attributes:
        question: What was decided.
        selected: What was chosen.
        because: Why, or a part of it.
        agent: Who decided.
    """

    question: str
    selected: str | None = None
    because: str = ""
    agent: str | None = None

    def fits(self, made: Decision) -> bool:
        """Whether a decision that was made is as this one expects."""
        return (
            self.question == made.question
            and self.selected in (None, made.selected)
            and self.because in made.because
            and self.agent in (None, made.agent)
        )

    def __str__(self) -> str:
        who = f"{self.agent} " if self.agent else ""
        chosen = f": {self.selected}" if self.selected is not None else ""
        why = f" because {self.because}" if self.because else ""
        return f"{who}decided {self.question!r}{chosen}{why}"


def answered(tool: str, **value: Any) -> Call:
    """A call that the record answers: its tool's body does not run.

    Args:
        tool: The tool's name.

    Keyword Args:
        arguments (Mapping): What it is given: each argument that is named here.
        result (Any): What it returns.
        status (str): What became of it, such as `failed`.
        error (str): The class's name of what it raises, its text, or a part of either.
        agent (str): Who makes it.
        step (int): Its number.
    """
    return Call(tool=tool, how="answered", **value)


def ran(tool: str, **value: Any) -> Call:
    """A call whose tool's body runs, or that is refused or interrupted; takes what `answered`
    takes.
    """
    return Call(tool=tool, how="ran", **value)


def decided(
    question: str, selected: str | None = None, *, because: str = "", agent: str | None = None
) -> Decision:
    """A decision that comes on record.

    Args:
        question: What is decided.
        selected: What is chosen.
        because: Why, or a part of it.
        agent: Who decides.
    """
    return Decision(question=question, selected=selected, because=because, agent=agent)


# `decider(...).given(...).when(...).then(...)`: rules as examples that can be read.
#
# Pure: the events given are folded from nothing, the command is decided once.


def decider(
    initial: Callable[[], Any],
    fold: Callable[[Any, Iterable[Any]], Any],
    decide: Callable[[Any, Any], Sequence[Any]],
) -> Decider:
    """Examples of rules that are three functions: `decider(...).given(events).when(command)`.

    Args:
        initial: The state before the first event.
        fold: The state after more events: a function of the state and the events.
        decide: What comes of a command in a state: events, or an error.
    """
    return Decider(initial, fold, decide, ())


class Decider:
    """Rules, and what has happened so far. Made by `testing.decider`."""

    def __init__(
        self,
        initial: Callable[[], Any],
        fold: Callable[[Any, Iterable[Any]], Any],
        decide: Callable[[Any, Any], Sequence[Any]],
        events: tuple[Any, ...],
    ) -> None:
        self._initial = initial
        self._fold = fold
        self._decide = decide
        self._events = events

    def given(self, *events: Any) -> Decider:
        """What has happened so far, after what was given before."""
        return Decider(self._initial, self._fold, self._decide, self._events + events)

    def when(self, command: Any) -> Decided:
        """What is asked."""
        state = self._fold(self._initial(), self._events)
        try:
            made = tuple(self._decide(state, command))
        except Exception as error:  # noqa: BLE001 -- what is refused is told by `then_raises`, or is raised by the others
            return Decided((), error, state)
        return Decided(made, None, self._fold(state, made))


class Decided:
    """What came of a command.

    Attributes:
        events: What was decided.
        error: What was raised in place of that.
        state: The state after it.
    """

    def __init__(self, events: tuple[Any, ...], error: Exception | None, state: Any) -> None:
        self.events = events
        self.error = error
        self.state = state

    def then(self, *events: Any) -> Decided:
        """Exactly these events come of it, in this order; none means that it is so already."""
        __tracebackhide__ = True
        self._not_refused()
        check("the events", events, self.events, fits=lambda a, b: a == b, text=repr)
        return self

    def then_raises(self, kind: type[Exception], *, saying: str = "") -> Decided:
        """It is refused by an error of a class, whose text holds what is said here."""
        __tracebackhide__ = True
        raised(self.error, kind, saying, f"decided {list(self.events)}")
        return self

    def then_state(self, **fields: Any) -> Decided:
        """What the state says once the command's events are folded."""
        __tracebackhide__ = True
        self._not_refused()
        found = {name: getattr(self.state, name, UNSAID) for name in fields}
        check(
            "the state's fields",
            list(fields.items()),
            list(found.items()),
            fits=lambda a, b: a == b,
            text=lambda field: f"{field[0]} = {brief(field[1])}",
        )
        return self

    def _not_refused(self) -> None:
        __tracebackhide__ = True
        if self.error is not None:
            message = f"it was refused: {type(self.error).__name__}: {self.error}"
            raise AssertionError(message) from self.error


def raised(
    error: BaseException | None, kind: type[BaseException], saying: str, instead: str
) -> None:
    """Raise AssertionError, with both sides, unless there is such an error."""
    __tracebackhide__ = True
    if isinstance(error, kind) and saying in str(error):
        return
    target = kind.__name__ + (f": ... {saying} ..." if saying else "")
    found = f"{type(error).__name__}: {error}" if error is not None else f"no error: {instead}"
    message = f"the error is not as expected (- expected, + found):\n  - {target}\n  + {found}"
    raise AssertionError(message) from error


Program = Callable[[Any], Any]
"""Takes a record; a coroutine function takes that of the async client."""

History = Program | Memory | str | Path


class _Opened(msgspec.Struct, frozen=True):
    """A session, and its stream's version where it began: up to there it is answered."""

    session: Session | AsyncSession
    version: int


class _Watched(Record):
    """A record that knows the sessions it opened."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.opened: list[_Opened] = []

    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> Session:
        session = super()._begin(workflow, agent, role, options)
        self.opened.append(_Opened(session, session.state.version))
        return session


class _WatchedAsync(AsyncRecord):
    """The async twin of that."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.opened: list[_Opened] = []

    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncSession:
        session = await super()._begin(workflow, agent, role, options)
        self.opened.append(_Opened(session, session.state.version))
        return session


class _Played(msgspec.Struct):
    """What a program came to."""

    opened: list[_Opened]
    returned: Any = None
    error: BaseException | None = None


def given(
    *history: History,
    raises: type[BaseException] | tuple[type[BaseException], ...] = (),
    **options: Unpack[RecordOptions],
) -> Given:
    """What is on record before: nothing, or what some programs did, a file, or another memory.

    Args:
        *history: In this order: programs, which are functions of a record (a coroutine function
            gets that of the async client) and are run; paths of files that `hansard export` wrote;
            or first a `Memory`, which stays as it is.
        raises: Which errors those programs may end with. Any other is raised.
        **options: What `testing.record` takes, for all programs.
    """
    return Given(history, raises, dict(options))


class Given:
    """What is on record before. Made by `testing.given`; nothing runs before `when`."""

    def __init__(
        self,
        history: Sequence[History],
        raises: type[BaseException] | tuple[type[BaseException], ...],
        options: dict[str, Any],
    ) -> None:
        self._history = history
        self._raises = raises
        self._options = options
        self._killed: list[tuple[str, str | None]] = []

    def killed_at(self, step: str, run: str | None = None) -> Given:
        """Only what was on record while a step was under way: what a kill at that moment leaves.

        Of the step there is at most the intent. Where the run goes on, what it did before is
        answered, and the step is what its tool's `effects=` says: run again, or in doubt.

        Args:
            step: As `agent#number`, or the number alone where the run has one agent.
            run: Its run, where there are several.
        """
        self._killed.append((step, run))
        return self

    def when(self, program: Program, **options: Unpack[RecordOptions]) -> Then:
        """Run a program, or any function of a record, and see what comes of it.

        Where there is one run on record, and the program does not say which it works in, it goes on
        with that.

        Args:
            program: Takes a record; a coroutine function takes that of the async client.
            **options: What `testing.record` takes, in place of what `given` was given.

        Raises:
            SyncInLoop: Inside a running event loop: use `when_async`.
        """
        refuse_in_loop()
        plays = self._plays(program, dict(options))
        try:
            request = next(plays)
            while True:
                request = plays.send(_play_here(request))
        except StopIteration as done:
            made: Then = done.value
            return made

    async def when_async(self, program: Program, **options: Unpack[RecordOptions]) -> Then:
        """As `when`, inside a running event loop. A program of the sync client runs in a thread."""
        plays = self._plays(program, dict(options))
        try:
            request = next(plays)
            while True:
                request = plays.send(await _play_there(request))
        except StopIteration as done:
            made: Then = done.value
            return made

    def _plays(self, program: Program, options: dict[str, Any]) -> Generator[_Play, _Played, Then]:
        """What is to be run, one after the other, by whoever knows how to wait."""
        memory = Memory()
        for place, each in enumerate(self._history):
            if isinstance(each, Memory):
                if place:
                    message = "a Memory is what others follow: give it first"
                    raise TypeError(message)
                memory = each.copy()
            elif isinstance(each, str | Path):
                memory.load(each)
            else:
                played = yield _Play(each, memory, self._options)
                if played.error is not None and not isinstance(played.error, self._raises):
                    raise played.error
        for step, run in self._killed:
            memory = memory.copy(_cut(memory, step, run))
        before = finished(memory.log.head())
        runs = finished(memory.log.runs())
        only = {"run": runs[0]} if len(runs) == 1 else {}
        played = yield _Play(program, memory, only | self._options | options)
        return Then(memory, before, played)


class _Play(msgspec.Struct, frozen=True):
    """A program to run over a memory."""

    program: Program
    memory: Memory
    options: dict[str, Any]


def _play_here(request: _Play) -> _Played:
    """Run a program in this thread. What it raises is what it came to."""
    if inspect.iscoroutinefunction(request.program):
        return asyncio.run(_play_there(request))
    record = record_of(request.memory, _Watched, request.options)
    try:
        with record:
            return _Played(record.opened, request.program(record))
    except Exception as error:  # noqa: BLE001 -- what the program raises is told by `then_raises`, or is raised by the others
        return _Played(record.opened, error=error)


async def _play_there(request: _Play) -> _Played:
    """Run a program on this loop; one of the sync client in a thread."""
    if not inspect.iscoroutinefunction(request.program):
        return await asyncio.to_thread(_play_here, request)
    record = record_async_of(request.memory, _WatchedAsync, request.options)
    try:
        async with record:
            return _Played(record.opened, await request.program(record))
    except Exception as error:  # noqa: BLE001 -- what the program raises is told by `then_raises`, or is raised by the others
        return _Played(record.opened, error=error)


def _view(memory: Memory, run: str | None) -> RunView:
    """A run, or the only one there is. Raises NotFound, BadName."""
    runs = finished(memory.log.runs())
    if run is None:
        if len(runs) != 1:
            raise BadName("run", "", f"say which: {', '.join(sorted(runs)) or 'there is none'}")
        [run] = runs
    view: RunView = finished(workspace_of(memory).points.view(run, None))
    return view


def _cut(memory: Memory, step: str, run: str | None) -> int:
    """The position up to which stood what was on record while a step was under way."""
    view = _view(memory, run)
    agent, found = find_step(view, step)
    stream = view.stream_of(agent)
    for stored in memory.log.after(0):
        if stored.stream == stream:
            first, last = stored.commit.version, stored.commit.last_version
            if found.outcome_version is not None and first <= found.outcome_version <= last:
                return stored.position - 1
            if found.outcome_version is None and first <= found.version <= last:
                return stored.position
    raise NotFound(f"step {step} of run {view.run}", "it belongs to the parent of a fork")


class Then:
    """What came of a program. Made by `Given.when`.

    Attributes:
        memory: What is on record after it: for another `given`, or to `export`.
        returned: What the program returned.
        error: What it raised.
        calls: The calls that it made, session by session, each in the order of their outcomes.
        decisions: The decisions that came on record, in order.
        kinds: The kinds of the events that came on record, in order, such as `step.completed.v1`.
    """

    def __init__(self, memory: Memory, before: int, played: _Played) -> None:
        self.memory = memory
        self.returned = played.returned
        self.error = played.error
        new = memory.log.after(before)
        self.kinds = [recorded.type for stored in new for recorded in stored.commit.events]
        self.decisions = [each for stored in new for each in _decisions(stored)]
        self.calls = [call for opened in played.opened for call in _calls(memory, opened)]

    def then(self, *expected: Call | Decision | str) -> Then:
        """The program ends without an error; and of what is named here, exactly this came of it.

        With calls among what is expected, these are all the calls that it made, in this order; with
        decisions, all that came on record; with kinds of events, all events of those kinds. What
        nothing is said of is not looked at.

        Args:
            *expected: `answered(...)`, `ran(...)`, `decided(...)`, or the kind of an event, such as
                `message.added` (with its version, `message.added.v1`, or without).

        Raises:
            AssertionError: It is otherwise; the message has both sides.
            BadName: There is no such kind of event.
        """
        __tracebackhide__ = True
        if self.error is not None:
            message = f"it ended by an error: {type(self.error).__name__}: {self.error}"
            raise AssertionError(message) from self.error
        return self._on_record(expected)

    def _on_record(self, expected: Sequence[Call | Decision | str]) -> Then:
        __tracebackhide__ = True
        calls = [each for each in expected if isinstance(each, Call)]
        decisions = [each for each in expected if isinstance(each, Decision)]
        kinds = [each for each in expected if isinstance(each, str)]
        if calls:
            self._check_calls(calls)
        if decisions:
            check("the decisions", decisions, self.decisions, fits=Decision.fits)
        if kinds:
            named = {tag for kind in kinds for tag in _tags(kind)}
            found = [tag for tag in self.kinds if tag in named]
            check("the events", kinds, found, fits=lambda kind, tag: tag in _tags(kind))
        return self

    def _check_calls(self, calls: list[Call]) -> None:
        """Several agents may be at work at once: where each call names its own, the order between
        them is nobody's.
        """
        __tracebackhide__ = True
        found = self.calls
        if all(call.agent for call in calls):
            calls = sorted(calls, key=lambda call: call.agent or "")
            found = sorted(found, key=lambda call: call.agent or "")
        check("the calls", calls, found, fits=Call.fits)

    def then_no(self, *kinds: str) -> Then:
        """No event of these kinds came on record.

        Raises:
            AssertionError: One did.
            BadName: There is no such kind of event.
        """
        __tracebackhide__ = True
        named = {tag for kind in kinds for tag in _tags(kind)}
        found = [tag for tag in self.kinds if tag in named]
        check("the events", [], found, fits=str.__eq__)
        return self

    def then_raises(
        self, kind: type[BaseException], *expected: Call | Decision | str, saying: str = ""
    ) -> Then:
        """The program ends by an error; and what came of it until then is as `then` has it. A call
        that is stopped because it is in doubt is not made: it stands in the error.

        Args:
            kind: The error's class.
            *expected: As `then` takes it.
            saying: A part of the error's text.

        Raises:
            AssertionError: It is otherwise; the message has both sides.
        """
        __tracebackhide__ = True
        raised(self.error, kind, saying, f"it returned {brief(self.returned)}")
        return self._on_record(expected)

    def then_returns(self, value: Any) -> Then:
        """The program ends without an error and returns something equal.

        Raises:
            AssertionError: It is otherwise; the message has both sides.
        """
        __tracebackhide__ = True
        self.then()
        check("what it returned", [value], [self.returned], fits=lambda a, b: a == b, text=repr)
        return self

    def state(self, run: str | None = None) -> RunView:
        """A run as it stands after the program; the only one, where none is named.

        Raises:
            BadName: There are several runs, or none.
        """
        return _view(self.memory, run)


def _tags(kind: str) -> list[str]:
    """The tags of events of a kind, with a version or without. Raises BadName."""
    names = {tag: tag.rpartition(".v")[0] for tag in REGISTRY}
    found = [tag for tag, name in names.items() if kind in (tag, name)]
    if not found:
        raise BadName("kind of event", kind, nearest(kind, sorted(set(names.values()))))
    return found


def _decisions(stored: Stored) -> list[Decision]:
    if not isinstance(stored.stream, AgentStream):
        return []
    made = [revive(recorded) for recorded in stored.commit.events]
    agent = stored.stream.agent
    return [
        Decision(question=each.question, selected=each.selected, because=each.because, agent=agent)
        for each in made
        if isinstance(each, DecisionMade)
    ]


def _calls(memory: Memory, opened: _Opened) -> list[Call]:
    """The calls of a session: first those whose outcomes it was given, in that order, then those
    that came to none.
    """
    session = opened.session
    known = session.state.steps
    handed = [number for number in session.engine.ledger.handed if number in known]
    begun = [
        number
        for number, step in known.items()
        if number not in handed and max(step.version, step.outcome_version or 0) > opened.version
    ]
    whole = _view(memory, session.run).agent(session.agent).steps
    return [
        _call(memory, session.agent, whole.get(number, known[number]), opened.version)
        for number in (*handed, *begun)
    ]


def _call(memory: Memory, agent: str, step: Step, version: int) -> Call:
    def load(raw: msgspec.Raw) -> Any:
        return values.revive(run_fetch(unpack(raw), memory.blobs.at_hand))

    before = step.outcome_version is not None and step.outcome_version <= version
    error = step.error.text if step.error is not None else None
    if step.status is StepStatus.BLOCKED:
        error = step.rule
    return Call(
        tool=step.tool,
        how="answered" if before else "ran",
        agent=agent,
        step=step.number,
        arguments=load(step.arguments),
        result=load(step.result) if step.status is StepStatus.COMPLETED else UNSAID,
        status=step.status.value,
        error=error,
    )
