"""Records in memory, and tests of programs: `given(...).when(...).then(...)`.

Long because a record in memory, and the programs that run over it, are one interface.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, Unpack

import msgspec

from hansard.agents.edits import find_step
from hansard.agents.exchange.files import Bad
from hansard.agents.exchange.reader import import_events
from hansard.agents.exchange.writer import export
from hansard.agents.flow import done
from hansard.agents.steps.ledger import Mode
from hansard.agents.workspace import Workspace
from hansard.bus.clock import Clock
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored, verified
from hansard.bus.portal import arriving, portal, refuse_in_loop
from hansard.client.options import Defaults, RecordOptions
from hansard.client.record import AsyncRecord, Record
from hansard.client.session import AsyncSession, Session
from hansard.domain import values
from hansard.domain.agent import DecisionMade
from hansard.domain.choices import check_options, chosen, nearest
from hansard.domain.errors import BadName, BadValue
from hansard.domain.events import REGISTRY
from hansard.domain.ids import AgentStream
from hansard.domain.payload import run_fetch, unpack
from hansard.domain.steps import Step, StepStatus
from hansard.state.memory_log import MemoryLog
from hansard.state.replay import RunView

# A workspace in this process's memory, and the client over it.

WORKSPACE = "memory"

T = TypeVar("T")
R = TypeVar("R", bound=Record)
A = TypeVar("A", bound=AsyncRecord)


class MemoryBlobs:
    """Large payloads, by the hash of their bytes."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    async def put(self, data: bytes) -> str:
        """Store bytes, and return their SHA-256 in hex."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._held[sha256] = data
        return sha256

    async def get(self, sha256: str, size: int) -> bytes:
        """Return the bytes with a hash. Raises NotFound, Corrupt."""
        return self.at_hand(sha256, size)

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Return the bytes with each of several hashes. Raises as `get`."""
        return {blob[0]: await self.get(*blob) for blob in blobs}

    def at_hand(self, sha256: str, size: int) -> bytes:
        """Return the same as `get`, without awaiting."""
        if sha256 not in self._held:
            raise NotFound(f"blob {sha256}", "nothing stored it in this memory")
        return verified(sha256, size, self._held[sha256])


class _Strict:
    """Import observer that stops at the first record that cannot be read."""

    def read(self, count: int) -> None:
        """Ignore the progress: `count` more bytes were read."""

    def bad(self, bad: Bad) -> None:
        """Raise BadValue."""
        where = f"file {bad.file!r}, line {bad.line}"
        raise BadValue(where, bad.reason, "export the runs again")


async def _nothing() -> None:
    return None


class Memory:
    """An in-memory workspace: runs, boards, tasks, roles, large payloads.

    It lives as long as this object. Everything that needs a broker is missing: other processes
    (so the command line with its tables, SQL, search and pages), restricted agents, and data that
    survives a kill of this process. `export` writes a file that `hansard import events` loads
    into a workspace on a broker.
    """

    def __init__(self) -> None:
        self.log = MemoryLog(WORKSPACE)
        """The commits, as a `hansard.bus.log.EventLog`."""
        self.blobs = MemoryBlobs()
        """The large payloads."""

    def record(self, **options: Unpack[RecordOptions]) -> Record:
        """Open it as a record for the sync client, as another process would.

        Keyword Args:
            gate (Sequence): Rules, as `hansard.connect` takes them.
            redact (Mapping): Secrets to keep out of the record, as `connect` takes them.
            secrets (Provider): Provider that returns them to live calls, as `connect` takes it.
            settle (Settle): Policy for steps in doubt, as `connect` takes it.
            run (str): The run that sessions join if they name none.
            mode (str): `strict` or `offline`: read only, run no tool.

        Raises:
            BadOption: Unknown option; the message suggests the nearest.
            SyncInLoop: Called inside a running event loop; use `record_async`.
        """
        return record_of(self, Record, dict(options))

    def record_async(self, **options: Unpack[RecordOptions]) -> AsyncRecord:
        """Open it as a record for the async client; takes the options of `record`."""
        return record_async_of(self, AsyncRecord, dict(options))

    def copy(self, up_to: int | None = None) -> Memory:
        """Return an independent copy, byte for byte; with `up_to` only the commits up to that
        position, as a kill would have left it.
        """
        memory = Memory()
        memory.log = self.log.copy(up_to)
        memory.blobs = self.blobs
        return memory

    def load(self, path: str | Path) -> None:
        """Load the runs of a file that `hansard export` wrote.

        Raises:
            BadValue: The file is damaged; the message names the line.
            OSError: It cannot be read.
        """
        finished(import_events(workspace_of(self), Path(path), _Strict()))

    def export(self, path: str | Path, *runs: str) -> None:
        """Write the named runs, or all if none is named, as `hansard export` does.

        Raises:
            NotFound: A run does not exist.
            OSError: The file cannot be written.
        """
        request = list(runs) or finished(self.log.runs())
        with Path(path).open("wb") as file:
            finished(export(workspace_of(self), request, file.write))


def workspace_of(memory: Memory) -> Workspace:
    """Return a new workspace over the memory. Each record needs its own: one event loop cannot wake
    a waiter of another.
    """
    return Workspace(memory.log, memory.blobs, Clock(), _nothing, command="hansard")


def record_of(memory: Memory, kind: Callable[..., R], options: dict[str, Any]) -> R:
    """Open a record of a given class for the sync client. Raises BadOption, SyncInLoop."""
    refuse_in_loop()
    return kind(workspace_of(memory), portal(), _defaults(options))


def record_async_of(memory: Memory, kind: Callable[..., A], options: dict[str, Any]) -> A:
    """Open a record of a given class for the async client. Raises BadOption."""
    return kind(workspace_of(memory), _defaults(options))


def finished(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits only memory, and return its result; works inside a running loop,
    which it blocks meanwhile.
    """
    value: T = arriving(work, portal().loop).result()
    return value


def _defaults(options: dict[str, Any]) -> Defaults:
    check_options("testing.record", options, RecordOptions.__annotations__)
    defaults = {name: value for name, value in options.items() if value is not None}
    if "mode" in defaults:
        defaults["mode"] = chosen(Mode, defaults["mode"], "mode")
    return msgspec.structs.replace(Defaults(), **defaults)


def record(**options: Unpack[RecordOptions]) -> Record:
    """Open an in-memory record for the sync client: `with testing.record() as record:`.

    No broker is started and no file is written; the record is gone with the object.

    Keyword Args:
        gate (Sequence): Rules, as `hansard.connect` takes them.
        redact (Mapping): Secrets to keep out of the record, as `connect` takes them.
        secrets (Provider): Provider that returns them to live calls, as `connect` takes it.
        settle (Settle): Policy for steps in doubt, as `connect` takes it.
        run (str): The run that sessions join if they name none.
        mode (str): `strict` or `offline`: read only, run no tool.

    Raises:
        BadOption: Unknown option; the message suggests the nearest.
        SyncInLoop: Called inside a running event loop; use `record_async`.
    """
    return Memory().record(**options)


def record_async(**options: Unpack[RecordOptions]) -> AsyncRecord:
    """Open an in-memory record for the async client; takes the options of `record`."""
    return Memory().record_async(**options)


# Comparison of two lists, printed as a diff in a failed assertion.

SHOWN_LETTERS_MAX = 120
"""Longest text of a value in a message, in characters."""


def check(
    what: str,
    expected: Sequence[Any],
    actual: Sequence[Any],
    *,
    fits: Callable[[Any, Any], bool],
    text: Callable[[Any], str] = str,
) -> None:
    """Raise AssertionError, showing both sides, unless each item fits its counterpart, in order."""
    __tracebackhide__ = True
    if len(expected) == len(actual) and all(map(fits, expected, actual)):
        return
    numbers = [expected.index(each) for each in expected]  # equal items have one number
    fitting = [
        next((numbers[n] for n, each in enumerate(expected) if fits(each, item)), -1)
        for item in actual
    ]
    lines: list[str] = []
    alignment = difflib.SequenceMatcher(None, numbers, fitting, autojunk=False)
    for tag, begin, end, from_, to in alignment.get_opcodes():
        if tag == "equal":
            lines += [f"    {text(each)}" for each in actual[from_:to]]
        else:
            lines += [f"  - {text(each)}" for each in expected[begin:end]]
            lines += [f"  + {text(each)}" for each in actual[from_:to]]
    words = "\n".join(lines)
    message = f"{what} are not as expected (- expected, + found):\n{words}"
    raise AssertionError(message)


def brief(value: object) -> str:
    """Return a value's repr, truncated if it is long."""
    shown = repr(value)
    return shown if len(shown) <= SHOWN_LETTERS_MAX else f"{shown[:SHOWN_LETTERS_MAX]}..."


# Expected calls and decisions: only the fields that a test sets are compared.

UNSET = msgspec.UNSET
"""Marks a field that the test does not check."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call, expected or made; of an expected call only the fields that are set are compared.

    Attributes:
        tool: The tool's name.
        how: `answered` if its outcome was on record before the session began, else `ran`.
        agent: The agent that made it.
        step: The step's number.
        arguments: The arguments by name; an expected call may name only some of them.
        result: The returned value.
        status: `completed`, `failed`, `blocked`, `in_doubt` or `requested`.
        error: The raised error, as class name, colon and text; an expected call may give a part.
    """

    tool: str
    how: str
    agent: str | None = None
    step: int | None = None
    arguments: Mapping[str, Any] = {}
    result: Any = UNSET
    status: str | None = None
    error: str | None = None

    def fits(self, actual: Call) -> bool:
        """Return whether a call that was made matches this expected one."""
        same = (self.tool, self.how) == (actual.tool, actual.how)
        named = all(
            name in actual.arguments and actual.arguments[name] == value
            for name, value in self.arguments.items()
        )
        return (
            same
            and named
            and self.agent in (None, actual.agent)
            and self.step in (None, actual.step)
            and self.status in (None, actual.status)
            and (self.result is UNSET or self.result == actual.result)
            and (self.error is None or self.error in (actual.error or ""))
        )

    def __str__(self) -> str:
        named = ", ".join(f"{name}={brief(value)}" for name, value in self.arguments.items())
        number = f"#{self.step}" if self.step is not None else ""
        who = f"{self.agent or ''}{number} " if self.agent or number else ""
        text = f"{self.how} {who}{self.tool}" + (f"({named})" if named else "")
        if self.error is not None:
            return f"{text} {self.status or 'raised'}: {self.error}"
        if self.status not in (None, "completed"):
            return f"{text} {self.status}"
        return text if self.result is UNSET else f"{text} -> {brief(self.result)}"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, expected or made; of an expected one only the fields that are set are compared.

    Attributes:
        question: The question decided.
        selected: The selected option.
        because: The reason, or a part of it.
        agent: The agent that decided.
    """

    question: str
    selected: str | None = None
    because: str = ""
    agent: str | None = None

    def fits(self, actual: Decision) -> bool:
        """Return whether a decision that was made matches this expected one."""
        return (
            self.question == actual.question
            and self.selected in (None, actual.selected)
            and self.because in actual.because
            and self.agent in (None, actual.agent)
        )

    def __str__(self) -> str:
        who = f"{self.agent} " if self.agent else ""
        chosen = f": {self.selected}" if self.selected is not None else ""
        why = f" because {self.because}" if self.because else ""
        return f"{who}decided {self.question!r}{chosen}{why}"


def answered(tool: str, **value: Any) -> Call:
    """Expect a call that is answered from the record: its tool's body does not run.

    Args:
        tool: The tool's name.

    Keyword Args:
        arguments (Mapping): Arguments to compare, by name.
        result (Any): The returned value.
        status (str): The step's status, such as `failed`.
        error (str): The raised error's class name, its text, or a part of either.
        agent (str): The agent that makes it.
        step (int): The step's number.
    """
    return Call(tool=tool, how="answered", **value)


def ran(tool: str, **value: Any) -> Call:
    """Expect a call whose tool's body runs, or that is refused or interrupted; takes the arguments
    of `answered`.
    """
    return Call(tool=tool, how="ran", **value)


def decided(
    question: str, selected: str | None = None, *, reason: str = "", agent: str | None = None
) -> Decision:
    """Expect a decision to be recorded.

    Args:
        question: The question decided.
        selected: The selected option.
        reason: The reason, or a part of it.
        agent: The agent that decides.
    """
    return Decision(question=question, selected=selected, because=reason, agent=agent)


# `decider(...).given(...).when(...).then(...)`: tests of a decider by example.
#
# Pure: the events given are folded from the initial state, the command is decided once.


def decider(
    initial: Callable[[], Any],
    fold: Callable[[Any, Iterable[Any]], Any],
    decide: Callable[[Any, Any], Sequence[Any]],
) -> Decider:
    """Test a decider given as three functions: `decider(...).given(events).when(command)`.

    Args:
        initial: Returns the state before the first event.
        fold: Takes a state and events, and returns the state after them.
        decide: Takes a state and a command, and returns events or raises an error.
    """
    return Decider(initial, fold, decide, ())


class Decider:
    """A decider and its past events. Created by `testing.decider`."""

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
        """Add past events after those given before."""
        return Decider(self._initial, self._fold, self._decide, self._events + events)

    def when(self, command: Any) -> Decided:
        """Decide a command in the state of the given events."""
        state = self._fold(self._initial(), self._events)
        try:
            events = tuple(self._decide(state, command))
        except Exception as error:  # noqa: BLE001 -- checked by `then_raises`, raised by the other checks
            return Decided((), error, state)
        return Decided(events, None, self._fold(state, events))


class Decided:
    """The result of a command.

    Attributes:
        events: The events decided.
        error: The error raised instead.
        state: The state after the events.
    """

    def __init__(self, events: tuple[Any, ...], error: Exception | None, state: Any) -> None:
        self.events = events
        self.error = error
        self.state = state

    def then(self, *events: Any) -> Decided:
        """Check that the command produced exactly these events, in order; none for a no-op."""
        __tracebackhide__ = True
        self._not_refused()
        check("the events", events, self.events, fits=lambda a, b: a == b, text=repr)
        return self

    def then_raises(self, kind: type[Exception], *, saying: str = "") -> Decided:
        """Check that the command raised an error of a class, whose text contains `saying`."""
        __tracebackhide__ = True
        raised(self.error, kind, saying, f"decided {list(self.events)}")
        return self

    def then_state(self, **fields: Any) -> Decided:
        """Check fields of the state after the command's events are folded."""
        __tracebackhide__ = True
        self._not_refused()
        values = {name: getattr(self.state, name, UNSET) for name in fields}
        check(
            "the state's fields",
            list(fields.items()),
            list(values.items()),
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
    """Raise AssertionError, showing both sides, unless the error is of that class and text."""
    __tracebackhide__ = True
    if isinstance(error, kind) and saying in str(error):
        return
    target = kind.__name__ + (f": ... {saying} ..." if saying else "")
    actual = f"{type(error).__name__}: {error}" if error is not None else f"no error: {instead}"
    message = f"the error is not as expected (- expected, + found):\n  - {target}\n  + {actual}"
    raise AssertionError(message) from error


Program = Callable[[Any], Any]
"""A function of a record; a coroutine function takes a record of the async client."""

History = Program | Memory | str | Path


class _Opened(msgspec.Struct, frozen=True):
    """A session and its stream's version when it began; earlier outcomes are answered."""

    session: Session | AsyncSession
    version: int


class _Watched(Record):
    """A record that keeps the sessions it opened."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.opened: list[_Opened] = []

    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> Session:
        session = super()._begin(workflow, agent, role, options)
        self.opened.append(_Opened(session, session.state.version))
        return session


class _WatchedAsync(AsyncRecord):
    """The async counterpart of `_Watched`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.opened: list[_Opened] = []

    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncSession:
        session = await super()._begin(workflow, agent, role, options)
        self.opened.append(_Opened(session, session.state.version))
        return session


class _Played(msgspec.Struct):
    """The result of running a program."""

    opened: list[_Opened]
    returned: Any = None
    error: BaseException | None = None


def given(
    *history: History,
    raises: type[BaseException] | tuple[type[BaseException], ...] = (),
    **options: Unpack[RecordOptions],
) -> Given:
    """Set up a record: empty, or with the runs of programs, a file, or another memory.

    Args:
        *history: In order: programs to run, which are functions of a record (a coroutine function
            gets an async one); paths of files written by `hansard export`; or, only as the first, a
            `Memory`, which is copied.
        raises: Errors with which those programs may end. Any other is raised.
        **options: Options of `testing.record`, for all programs.
    """
    return Given(history, raises, dict(options))


class Given:
    """A record to start from. Created by `testing.given`; nothing runs before `when`."""

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
        """Cut the record to what a kill during a step would have left.

        Of the step at most the intent remains. When the run is resumed, earlier calls are answered
        from the record; the step is run again or in doubt, as its tool's `effects=` decides.

        Args:
            step: As `agent#number`, or the number alone if the run has one agent.
            run: The step's run, if there are several.
        """
        self._killed.append((step, run))
        return self

    def when(self, program: Program, **options: Unpack[RecordOptions]) -> Then:
        """Run a program, or any function of a record, and return its result.

        If there is one run on record, and the program names none, it continues that run.

        Args:
            program: Takes a record; a coroutine function takes a record of the async client.
            **options: Options of `testing.record` that override those of `given`.

        Raises:
            SyncInLoop: Called inside a running event loop; use `when_async`.
        """
        refuse_in_loop()
        return done(self._then(program, dict(options), _play_here))

    async def when_async(self, program: Program, **options: Unpack[RecordOptions]) -> Then:
        """Run a program as `when` does, inside a running event loop; one of the sync client runs in
        a thread.
        """
        return await self._then(program, dict(options), _play_there)

    async def _then(self, program: Program, options: dict[str, Any], play: _Play) -> Then:
        """Run the programs of the history and then this one, each by `play`."""
        memory = Memory()
        for place, each in enumerate(self._history):
            if isinstance(each, Memory):
                if place:
                    message = "a Memory must be the first argument of given()"
                    raise TypeError(message)
                memory = each.copy()
            elif isinstance(each, str | Path):
                memory.load(each)
            else:
                played = await play(each, memory, self._options)
                if played.error is not None and not isinstance(played.error, self._raises):
                    raise played.error
        for step, run in self._killed:
            memory = memory.copy(_cut(memory, step, run))
        before = finished(memory.log.head())
        runs = finished(memory.log.runs())
        only = {"run": runs[0]} if len(runs) == 1 else {}
        return Then(memory, before, await play(program, memory, only | self._options | options))


_Play = Callable[[Program, Memory, dict[str, Any]], Awaitable[_Played]]
"""Runs a program over a memory, with options of the record."""


async def _play_here(program: Program, memory: Memory, options: dict[str, Any]) -> _Played:
    """Run a program in this thread, without waiting; an exception it raises is part of the
    result.
    """
    if inspect.iscoroutinefunction(program):
        return asyncio.run(_play_there(program, memory, options))
    record = record_of(memory, _Watched, options)
    try:
        with record:
            return _Played(record.opened, program(record))
    except Exception as error:  # noqa: BLE001 -- checked by `then_raises`, raised by the other checks
        return _Played(record.opened, error=error)


async def _play_there(program: Program, memory: Memory, options: dict[str, Any]) -> _Played:
    """Run a program on this loop; one of the sync client in a thread."""
    if not inspect.iscoroutinefunction(program):
        return await asyncio.to_thread(done, _play_here(program, memory, options))
    record = record_async_of(memory, _WatchedAsync, options)
    try:
        async with record:
            return _Played(record.opened, await program(record))
    except Exception as error:  # noqa: BLE001 -- checked by `then_raises`, raised by the other checks
        return _Played(record.opened, error=error)


def _view(memory: Memory, run: str | None) -> RunView:
    """Return a run, or the only one if none is named. Raises NotFound, BadName."""
    runs = finished(memory.log.runs())
    if run is None:
        if len(runs) != 1:
            raise BadName("run", "", f"say which: {', '.join(sorted(runs)) or 'there is none'}")
        [run] = runs
    view: RunView = finished(workspace_of(memory).points.view(run, None))
    return view


def _cut(memory: Memory, step: str, run: str | None) -> int:
    """Return the last position on record while a step was in progress."""
    view = _view(memory, run)
    agent, cut_step = find_step(view, step)
    stream = view.stream_of(agent)
    for stored in memory.log.after(0):
        if stored.stream == stream:
            first, last = stored.commit.version, stored.commit.last_version
            if cut_step.outcome_version is not None and first <= cut_step.outcome_version <= last:
                return stored.position - 1
            if cut_step.outcome_version is None and first <= cut_step.version <= last:
                return stored.position
    raise NotFound(f"step {step} of run {view.run}", "it belongs to the parent of the fork")


class Then:
    """The result of a program. Created by `Given.when`.

    Attributes:
        memory: The record after it: for another `given`, or to `export`.
        returned: The program's return value.
        error: The exception it raised.
        calls: The calls it made, session by session, each in the order of their outcomes.
        decisions: The decisions it recorded, in order.
        kinds: The kinds of the events it recorded, in order, such as `step.completed.v1`.
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
        """Check that the program ended without an error and did exactly what is expected.

        If calls are expected, they must be all calls that the program made, in this order; if
        decisions, all that it recorded; if kinds of events, all events of those kinds. Anything
        else is not checked.

        Args:
            *expected: `answered(...)`, `ran(...)`, `decided(...)`, or a kind of event, such as
                `message.added` (with its version, `message.added.v1`, or without).

        Raises:
            AssertionError: The two differ; the message shows both sides.
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
            tags = [tag for tag in self.kinds if tag in named]
            check("the events", kinds, tags, fits=lambda kind, tag: tag in _tags(kind))
        return self

    def _check_calls(self, calls: list[Call]) -> None:
        """Compare the calls; the order between agents is free if each call names its agent."""
        __tracebackhide__ = True
        actual = self.calls
        if all(call.agent for call in calls):
            calls = sorted(calls, key=lambda call: call.agent or "")
            actual = sorted(actual, key=lambda call: call.agent or "")
        check("the calls", calls, actual, fits=Call.fits)

    def then_no(self, *kinds: str) -> Then:
        """Check that no event of these kinds was recorded.

        Raises:
            AssertionError: One was.
            BadName: There is no such kind of event.
        """
        __tracebackhide__ = True
        named = {tag for kind in kinds for tag in _tags(kind)}
        tags = [tag for tag in self.kinds if tag in named]
        check("the events", [], tags, fits=str.__eq__)
        return self

    def then_raises(
        self, kind: type[BaseException], *expected: Call | Decision | str, saying: str = ""
    ) -> Then:
        """Check that the program raised an error, and what it did before as `then` does.

        A call that is stopped because it is in doubt does not count as made: the error describes
        it.

        Args:
            kind: The error's class.
            *expected: As for `then`.
            saying: A part of the error's text.

        Raises:
            AssertionError: The two differ; the message shows both sides.
        """
        __tracebackhide__ = True
        raised(self.error, kind, saying, f"it returned {brief(self.returned)}")
        return self._on_record(expected)

    def then_returns(self, value: Any) -> Then:
        """Check that the program ended without an error and returned an equal value.

        Raises:
            AssertionError: It did not; the message shows both sides.
        """
        __tracebackhide__ = True
        self.then()
        check("what it returned", [value], [self.returned], fits=lambda a, b: a == b, text=repr)
        return self

    def state(self, run: str | None = None) -> RunView:
        """Return a run's state after the program; the only run's if none is named.

        Raises:
            BadName: None is named, and there are several runs or none.
        """
        return _view(self.memory, run)


def _tags(kind: str) -> list[str]:
    """Return the tags of a kind of event, named with its version or without. Raises BadName."""
    names = {tag: tag.rpartition(".v")[0] for tag in REGISTRY}
    tags = [tag for tag, name in names.items() if kind in (tag, name)]
    if not tags:
        raise BadName("kind of event", kind, nearest(kind, sorted(set(names.values()))))
    return tags


def _decisions(stored: Stored) -> list[Decision]:
    if not isinstance(stored.stream, AgentStream):
        return []
    revived = [revive(recorded) for recorded in stored.commit.events]
    agent = stored.stream.agent
    return [
        Decision(question=each.question, selected=each.selected, because=each.because, agent=agent)
        for each in revived
        if isinstance(each, DecisionMade)
    ]


def _calls(memory: Memory, opened: _Opened) -> list[Call]:
    """Return a session's calls: first those with outcomes, in the order they were delivered, then
    those without.
    """
    session = opened.session
    known = session.state.steps
    received = [number for number in session.engine.ledger.received if number in known]
    begun = [
        number
        for number, step in known.items()
        if number not in received and max(step.version, step.outcome_version or 0) > opened.version
    ]
    whole = _view(memory, session.run).agent(session.agent).steps
    return [
        _call(memory, session.agent, whole.get(number, known[number]), opened.version)
        for number in (*received, *begun)
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
        result=load(step.result) if step.status is StepStatus.COMPLETED else UNSET,
        status=step.status.value,
        error=error,
    )
