"""`given(...).when(...).then(...)` of programs: what is on record, what runs, what comes of it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Unpack

import msgspec

from hansard.agents.runs import find_step
from hansard.bus.codec import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.bus.portal import refuse_in_loop
from hansard.bus.states.replay import RunView
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
from hansard.testing.comparison import brief, check
from hansard.testing.deciders import raised
from hansard.testing.expected import UNSAID, Call, Decision
from hansard.testing.memory import Memory, finished, record_async_of, record_of, workspace_of

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
            asked = next(plays)
            while True:
                asked = plays.send(_play_here(asked))
        except StopIteration as done:
            made: Then = done.value
            return made

    async def when_async(self, program: Program, **options: Unpack[RecordOptions]) -> Then:
        """As `when`, inside a running event loop. A program of the sync client runs in a thread."""
        plays = self._plays(program, dict(options))
        try:
            asked = next(plays)
            while True:
                asked = plays.send(await _play_there(asked))
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


def _play_here(asked: _Play) -> _Played:
    """Run a program in this thread. What it raises is what it came to."""
    if inspect.iscoroutinefunction(asked.program):
        return asyncio.run(_play_there(asked))
    record = record_of(asked.memory, _Watched, asked.options)
    try:
        with record:
            return _Played(record.opened, asked.program(record))
    except Exception as error:  # noqa: BLE001 -- what the program raises is told by `then_raises`, or is raised by the others
        return _Played(record.opened, error=error)


async def _play_there(asked: _Play) -> _Played:
    """Run a program on this loop; one of the sync client in a thread."""
    if not inspect.iscoroutinefunction(asked.program):
        return await asyncio.to_thread(_play_here, asked)
    record = record_async_of(asked.memory, _WatchedAsync, asked.options)
    try:
        async with record:
            return _Played(record.opened, await asked.program(record))
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
