"""The session: one agent at work in one run.

Long because it holds all operations of an agent, with their arguments and errors. The methods are
written once, in the classes of the async client; those of the sync client run them in the calling
thread (`hansard.agents.flow`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import math
import os
import threading
from abc import abstractmethod
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar, Unpack
from uuid import UUID

import msgspec

from hansard.agents.access.roles import View
from hansard.agents.aggregates import AggregateFlows
from hansard.agents.annotations import statements
from hansard.agents.annotations.statements import Checkpoint, Every, stated
from hansard.agents.annotations.windows import Compaction, Windows, summarizer
from hansard.agents.board import AsyncBoard, Board, TransactedFlows
from hansard.agents.errors import NotBegun, RunAddress, SessionEnded, ToolError
from hansard.agents.experiments import Arm
from hansard.agents.flow import (
    AsyncDrive,
    Drive,
    Flow,
    Io,
    drive,
    driver,
    in_place,
    is_async_generator_function,
    on_portal,
    sync,
)
from hansard.agents.memory.operations import MemoryFlows
from hansard.agents.memory.search import Embedder, Rankers
from hansard.agents.memory.twins import AsyncMemory, Memory
from hansard.agents.steps.atomic import ViewFlows
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.ledger import Ledger, Mode
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope, drop, enter, keep, leave, opens
from hansard.agents.steps.streams import iterate, iterate_async
from hansard.agents.steps.tools import Declare, ToolSpec
from hansard.agents.team.tasks import MailFlows
from hansard.agents.team.twins import AsyncTeam, Team, WaitFlows
from hansard.bus.loggers import logger
from hansard.bus.portal import OtherLoop, Portal, arriving, demand_loop, in_loop
from hansard.client.beginning import OpeningRequest, open_session, open_session_async
from hansard.client.options import SessionOptions, explain
from hansard.domain import ids
from hansard.domain.agent import AgentState
from hansard.domain.choices import NOTHING, Brief, by_name
from hansard.domain.conversation import Bound
from hansard.domain.errors import BadValue, Refused
from hansard.domain.label import Label
from hansard.domain.redaction import check_names
from hansard.domain.snapshot import Snapshot
from hansard.domain.steps import Effects
from hansard.inspect import state as snapshots
from hansard.inspect.savings import Saved, saved

# Resumable loops: `session.resumable`, of both clients.

T = TypeVar("T")


class Reached(Generic[T]):
    """Progress of a loop over items, and its results."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.last_item: T | None = None


class _Loop(Generic[T]):
    """The progress that both kinds of loop expose."""

    def __init__(self) -> None:
        self._reached: Reached[T] = Reached()

    @property
    def results(self) -> list[Any]:
        """The values that the loop's body appended, in order.

        They include those of earlier processes of the run, as far as they were recorded, so that
        the list is complete at the end. They are recorded with the loop's progress, after every
        `every` items.
        """
        return self._reached.results

    @property
    def last_item(self) -> T | None:
        """The last item that is done, in this process or an earlier one; None before the first."""
        return self._reached.last_item


async def remaining_async(
    items: Iterable[T], progress: Any, drive: Any, reached: Reached[T]
) -> AsyncGenerator[T, None]:
    """Yield the items not yet done.

    It holds no reference to its loop object, so that dropping that object leaves the loop.
    """
    going = progress()
    reached.results += await drive(going.begin())
    kept = len(reached.results)
    try:
        for item in items:
            if not await drive(going.skips(item)):
                yield item
                await drive(going.done(reached.results[kept:]))
                kept = len(reached.results)
            reached.last_item = item
        await drive(going.end(reached.results[kept:]))
    finally:
        await drive(going.leave())


class AsyncResumable(_Loop[T]):
    """A loop over items not yet done (`session.resumable`), and its results."""

    def __init__(self, items: Iterable[T], progress: Any, drive: Any) -> None:
        super().__init__()
        self._left = remaining_async(items, progress, drive, self._reached)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await self._left.__anext__()

    async def aclose(self) -> None:
        """Leave the loop: later calls are outside it."""
        await self._left.aclose()


def remaining(
    items: Iterable[T], progress: Any, drive: Any, reached: Reached[T]
) -> Generator[T, None, None]:
    """Yield the items not yet done.

    It holds no reference to its loop object, so that dropping that object leaves the loop.
    """
    going = progress()
    reached.results += drive(going.begin())
    kept = len(reached.results)
    try:
        for item in items:
            if not drive(going.skips(item)):
                yield item
                drive(going.done(reached.results[kept:]))
                kept = len(reached.results)
            reached.last_item = item
        drive(going.end(reached.results[kept:]))
    finally:
        drive(going.leave())


class Resumable(_Loop[T]):
    """A loop over items not yet done (`session.resumable`), and its results."""

    def __init__(self, items: Iterable[T], progress: Any, drive: Any) -> None:
        super().__init__()
        self._left = remaining(items, progress, drive, self._reached)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return self._left.__next__()

    def close(self) -> None:
        """Leave the loop: later calls are outside it."""
        self._left.close()


# Search indexes of memory, from the tables' package.


class SessionRankers:
    """Search indexes of one session or space, so that nothing is indexed twice."""

    def __init__(self) -> None:
        self._words: Rankers | None = None
        self._by_embedder: dict[str, Rankers] = {}

    def __call__(self, embedder: Embedder | None) -> Rankers:
        """Return the indexes by words and, with an embedder, by meaning."""
        from hansard.projections.file_search import FileVectors, FileWords  # noqa: PLC0415 -- slow to import, needed only for searches

        if self._words is None:
            self._words = Rankers(FileWords())
        if embedder is None:
            return self._words
        name = f"{embedder.name}@{embedder.digest}"
        if name not in self._by_embedder:
            self._by_embedder[name] = Rankers(self._words.words, FileVectors(embedder))
        return self._by_embedder[name]


_log = logger(__name__)

NOT_CLOSED = "a tool failed while its half-read stream was closed"

Ending = Callable[[BaseException | None], Coroutine[Any, Any, None]]
"""Records the end of a session, with the error that ended it, if any."""


def _labelled(fields: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return a message's fields with its label. Raises BadValue if they already have one."""
    value = by_name("fields", fields)
    if "label" in value:
        raise BadValue("fields", "'label' is the message's own", "give it as label=")
    return value | {"label": label} if label else value


class SessionFlows(msgspec.Struct):
    """The operations of a session by group: on the log, or on the service if restricted."""

    facts: Any
    views: Any
    board: Any
    team: Any
    mail: Any
    memory: Any = None
    aggregates: Any = None
    windows: Any = None


class _Session(Brief):
    """The base of all sessions; no method here waits.

    `arm` is that of the run in its experiment; None outside an experiment. `now` runs a flow in the
    calling thread, where blocking is allowed.
    """

    def __init__(
        self, engine: Any, arm: Arm | None, ending: Ending | None, now: Drive | None = None
    ) -> None:
        self.engine = engine
        self._ending = ending
        stream: ids.AgentStream = engine.stream
        self.run = stream.run
        """The run's id."""
        self._log = _log.bind(run=stream.run, agent=stream.agent, role=stream.role)
        self.arm = arm
        """The arm of the run in its experiment; None outside an experiment."""
        self.tool = Declare(self)
        """Declares a function as a tool of this session: `@session.tool(effects="pure")`."""
        self._flows = self._made(now)
        self.facts = self._flows.facts
        self._pid = os.getpid()
        self._streams: dict[int, Any] = {}
        """Half-read streams of tools, by identity: the session's end closes them."""
        engine.ledger.client = self
        opens(self)

    _flow: AsyncDrive
    _closed = False

    @abstractmethod
    def _made(self, now: Drive | None) -> SessionFlows: ...

    @abstractmethod
    def _progress(self, name: str, every: Every) -> Any:
        """Return the progress of a loop."""

    @abstractmethod
    def _items(self, call: Any) -> Any:
        """Iterate over a call of a streaming tool."""

    def _closing(self) -> Ending | None:
        """Return the function that records the end; None the second time, and in a forked child.

        A forked child has no part in this session.
        """
        if os.getpid() != self._pid:
            return None
        drop(self)
        ending = None if self._closed else self._ending
        self._closed = True
        return ending

    def _explain(self, error: BaseException | None) -> None:
        """Make the exception that ends the session's block readable."""
        if error is not None and error.__traceback__ is not None and not self.mode.reads_only:
            explain(error, self.run, self._last_step(), self._settle_first())

    def _settle_first(self) -> str:
        """Return the command that settles the first call in doubt; empty for none."""
        return ""

    def _last_step(self) -> str:
        """Name the agent's last step for people."""
        return f"agent {self.agent!r} joined it"

    @property
    def is_left_open(self) -> bool:
        """True if the run would stay open if this process ended now."""
        ours = os.getpid() == self._pid
        return ours and not self.engine.ledger.ended and not self.mode.reads_only

    def _brief(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "agent": self.agent,
            "role": self.role,
            "mode": self.mode.value,
            "status": "ended" if self.engine.ledger.ended else "open",
        }

    @contextlib.contextmanager
    def use(self) -> Generator[None]:
        """Send calls of `@hansard.tool` inside the block to this session, if several are open."""
        token = enter(self.engine.ledger.here)
        try:
            yield
        finally:
            leave(token)

    @property
    def agent(self) -> str:
        """This agent's name."""
        agent: str = self.engine.stream.agent
        return agent

    @property
    def role(self) -> str:
        """This agent's role in the run."""
        role: str = self.engine.stream.role
        return role

    @property
    def mode(self) -> Mode:
        """The session's mode: live, or one that reads the record."""
        mode: Mode = self.engine.settings.mode
        return mode

    def usage(self, /, **figures: float) -> None:
        """Report the usage of the current call; figures of one call are summed.

        Args:
            **figures: Finite numbers by name: `input_tokens`, `output_tokens`, `cost` ...

        Raises:
            BadName: A name is malformed.
            BadValue: A figure is not a finite number.
        """
        self.engine.ledger.demand_open()
        amounts: dict[str, Any] = dict(figures)
        check_names("usage", {"name": list(amounts)}, self.engine.settings.scrub)
        for name, amount in amounts.items():
            ids.name("usage", name)
            if not isinstance(amount, int | float) or not math.isfinite(amount):
                raise BadValue(f"usage({name})", f"{amount!r:.80}", "give a finite number")
        scope = self.engine.ledger.here
        for name, amount in figures.items():
            scope.usage[name] = scope.usage.get(name, 0.0) + float(amount)

    async def _io(
        self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any
    ) -> T:
        def flow() -> Flow[T]:
            value: T = yield Io(functools.partial(work, *args, **kwargs))
            return value

        return await self._flow(flow())

    def _spawn(self, count: int, *, waits: bool = False) -> tuple[Scope, list[Scope]]:
        ledger = self.engine.ledger
        parent: Scope = self.engine.scope("gather")
        with ledger.lock:
            children = parent.spawn(count, waits=waits)
            ledger.busy += count
        return parent, children

    def _join(self, parent: Scope, children: list[Scope]) -> None:
        with self.engine.ledger.lock:
            parent.join(children)
            self.engine.ledger.busy -= len(children)


class SyncMixin(_Session):
    """The parts of a session that differ in the sync client.

    A call waits in its thread; one that is on record is answered there, without the broker.
    """

    def __init__(self, engine: Any, arm: Arm | None, portal: Portal, ending: Ending) -> None:
        super().__init__(engine, arm, ending, self._drive)
        self._portal = portal
        self._flow = in_place(self._drive)
        self.board = Board(self._flows.board, self._flow)
        self.memory = Memory(self._flows.memory, self._flow)
        self.team = Team(self._flows.team, self._flows.mail, self._flow)
        self.wait_for = self.team.wait_for

    def _drive(self, flow: Flow[T]) -> T:
        redaction = self.engine.settings.scrub
        if redaction is None:
            return drive(flow, self._portal)
        with redaction.in_errors():
            return drive(flow, self._portal)

    @property
    def is_within_reach(self) -> bool:
        """True if calls can still be made: the session has not ended and its driver runs."""
        return not self.engine.ledger.ended

    def _closing(self) -> Ending | None:
        if os.getpid() == self._pid:
            self._portal.refuse()
        return super()._closing()

    def _end_streams(self) -> None:
        """Close half-read streams."""
        for items in list(self._streams.values()):
            if self._streams.pop(id(items), None) is not None:
                try:
                    items.close()
                except Exception as error:  # noqa: BLE001 -- on record as the step's failure
                    self._log.warning(NOT_CLOSED, error=repr(error))

    def _read(self, call: Any) -> Generator[Any, None, None]:
        """Call a streaming tool for its reader, item by item."""
        with contextlib.closing(self._items(call)) as items:
            for item in items:
                self._streams[id(items)] = items
                try:
                    yield item
                finally:
                    mine = self._streams.pop(id(items), None)
                if mine is None:
                    raise SessionEnded(self.run, self.agent)

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Execute a call of a declared tool: resolve, gate, run, record.

        Programs call the tool itself.

        Raises:
            SyncInLoop: Inside a running event loop.
            AfterFork: In a forked process: connect there.
            Blocked: The gate refused the call.
            NeedsSettling: A call in doubt must be settled first.
            Miss: Strict or offline replay met a call that is not on record.
            NoScope: The thread or task was not started through the session.
        """
        self._portal.refuse()
        is_stream = spec.is_stream
        if is_stream and is_async_generator_function(spec.function):
            message = f"{spec.name} is an async generator: use the async client, or a generator"
            raise ToolError(message)
        call = self.engine.begin(spec, args, kwargs)
        if is_stream:
            return self._read(call)
        answered, value = self.engine.answer(call)
        return value if answered else self._drive(self.engine.execute(call))

    def thread(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> SessionThread[T]:
        """Run a function in a thread with a scope of its own; `.result()` joins it."""
        parent, [child] = self._spawn(1)
        return SessionThread(self, parent, child, function, args, kwargs)

    def gather(self, *functions: Callable[[], Any]) -> list[Any]:
        """Run functions in concurrent threads, each in a scope of its own; return results in order.

        All run to their end; then the first error, if any, is raised.
        """
        parent, children = self._spawn(len(functions), waits=True)
        workers = [
            SessionThread(self, parent, child, function, (), {})
            for child, function in zip(children, functions, strict=True)
        ]
        for worker in workers:
            worker.wait()
        self._join(parent, children)
        return [worker.value() for worker in workers]


class SessionThread(Generic[T]):
    """A function running in a thread, in a scope of its own."""

    def __init__(
        self,
        session: SyncMixin,
        parent: Scope,
        scope: Scope,
        function: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._session = session
        self._parent = parent
        self._scope = scope
        self._work = (function, args, kwargs)
        self._values: list[T] = []
        self._error: BaseException | None = None
        self._joined = False
        context = copy_context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)
        self._thread.start()

    def _run(self) -> None:
        enter(self._scope)
        function, args, kwargs = self._work
        try:
            self._values.append(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 -- raised again by `value`
            self._error = error

    def wait(self) -> None:
        """Wait until the function has ended."""
        self._thread.join()

    def value(self) -> T:
        """Return the function's result; raise its exception."""
        if self._error is not None:
            raise self._error
        return self._values[0]

    def result(self) -> T:
        """Wait, join the thread's scope into its parent, and return the value."""
        self.wait()
        if not self._joined:
            self._joined = True
            self._session._join(self._parent, [self._scope])  # noqa: SLF001 -- its other half
        return self.value()


class AsyncMixin(_Session):
    """The parts of a session that differ in the async client."""

    def __init__(self, engine: Any, arm: Arm | None, ending: Ending | None = None) -> None:
        super().__init__(engine, arm, ending)
        self._loop = asyncio.get_running_loop()
        self._drive_here = driver(self._loop)
        redacts = engine.settings.scrub is not None
        self._drive = self._drive_redacted if redacts else self._drive_here
        self._flow = self._drive
        self.board = AsyncBoard(self._flows.board, self._drive)
        self.memory = AsyncMemory(self._flows.memory, self._drive)
        self.team = AsyncTeam(self._flows.team, self._flows.mail, self._drive)
        self.wait_for = self.team.wait_for

    async def _drive_redacted(self, flow: Flow[T]) -> T:
        with self.engine.settings.scrub.in_errors():
            return await self._drive_here(flow)

    @property
    def is_within_reach(self) -> bool:
        """True if calls can still be made: the session has not ended and its loop is not closed."""
        return not self.engine.ledger.ended and not self._loop.is_closed()

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a declared tool: return a coroutine, or an async iterator for a streaming tool.

        In a thread without a loop (the body of a plain composite tool) wait for the result, or
        iterate.
        """
        if spec.is_stream:
            return handed_items(self._iterate(spec, args, kwargs), self._loop, spec.name)
        return handed(self._call(spec, args, kwargs), self._loop, spec.name)

    async def _call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = self.engine.begin(spec, args, kwargs)
        answered, value = self.engine.answer(call)
        return value if answered else await self._drive(self.engine.execute(call))

    async def _iterate(
        self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        call = self.engine.begin(spec, args, kwargs)
        async with contextlib.aclosing(self._items(call)) as items:
            async for item in items:
                self._streams[id(items)] = items
                try:
                    yield item
                finally:
                    mine = self._streams.pop(id(items), None)
                if mine is None:
                    raise SessionEnded(self.run, self.agent)

    async def _end_streams(self) -> None:
        """Close half-read streams."""
        for items in list(self._streams.values()):
            if self._streams.pop(id(items), None) is not None:
                try:
                    await items.aclose()
                except Exception as error:  # noqa: BLE001 -- on record as the step's failure
                    self._log.warning(NOT_CLOSED, error=repr(error))

    async def gather(self, *awaitables: Awaitable[Any]) -> list[Any]:
        """Await awaitables concurrently, each in a scope of its own; return results in order.

        All run to their end; then the first error, if any, is raised. A cancellation reaches all.
        """
        parent, children = self._spawn(len(awaitables), waits=True)
        tasks = [
            asyncio.ensure_future(_scoped(child, awaitable))
            for child, awaitable in zip(children, awaitables, strict=True)
        ]
        try:
            results: Sequence[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._join(parent, children)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return list(results)

    @contextlib.asynccontextmanager
    async def task_group(self) -> AsyncGenerator[SessionTasks, None]:
        """Open an asyncio.TaskGroup whose tasks have scopes of their own, joined at its end."""
        parent, _ = self._spawn(0)
        children: list[Scope] = []
        try:
            async with asyncio.TaskGroup() as group:
                yield SessionTasks(self, group, parent, children)
        finally:
            self._join(parent, children)


class SessionTasks:
    """Starts tasks in scopes of their own."""

    def __init__(
        self, session: AsyncMixin, group: asyncio.TaskGroup, parent: Scope, children: list[Scope]
    ) -> None:
        self._session = session
        self._group = group
        self._parent = parent
        self._children = children

    def create_task(self, awaitable: Awaitable[T]) -> asyncio.Task[T]:
        """Start an awaitable as a task of the group."""
        ledger = self._session.engine.ledger
        with ledger.lock:
            ledger.demand_open()
            [child] = self._parent.spawn(1)
            ledger.busy += 1
        self._children.append(child)
        return self._group.create_task(_scoped(child, awaitable))


async def _scoped(scope: Scope, awaitable: Awaitable[T]) -> T:
    token = enter(scope)
    try:
        return await awaitable
    finally:
        leave(token)
        if inspect.iscoroutine(awaitable):
            awaitable.close()


def handed(work: Any, loop: asyncio.AbstractEventLoop, tool: str) -> Any:
    """Return the coroutine to a caller in the loop; in a thread without a loop, its result.

    Raises OtherLoop in another loop than the session's, and ToolError if the session's loop does
    not run, since nothing would run the call.
    """
    if in_loop():
        if asyncio.get_running_loop() is not loop:
            work.close()  # else Python warns that it was never awaited
            raise OtherLoop
        work.__qualname__ = tool  # Python names it in its warning if it is never awaited
        return work
    if not loop.is_running():
        work.close()
        message = f"{tool} was called where no event loop runs: await it inside the async session"
        raise ToolError(message)
    return arriving(work, loop).result()


def handed_items(
    items: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop, tool: str
) -> AsyncGenerator[Any, None] | Iterator[Any]:
    """Return the items of a streamed call: see `handed`."""
    if in_loop():
        demand_loop(loop)
        return items
    return _items(items, loop, tool)


def _items(
    items: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop, tool: str
) -> Iterator[Any]:
    async def following() -> list[Any]:
        async for item in items:
            return [item]
        return []

    try:
        while batch := handed(following(), loop, tool):
            yield batch[0]
    finally:
        handed(items.aclose(), loop, tool)


class AsyncCommonSession(AsyncMixin):
    """One agent at work in one run, for the async client. Returned by `record.run(...)`.

    The common base of a trusted program's session (`AsyncSession`) and a restricted agent's.

    After its `with` block every method raises `SessionEnded`.
    """

    board: AsyncBoard
    """Shared state of all agents of the run, by key."""
    memory: AsyncMemory
    """Files that outlive runs: the agent's own, those of the user it acts for, and shared ones."""
    team: AsyncTeam
    """The tasks that the run's agents share, and the messages between them."""

    async def close(self, error: BaseException | None = None) -> None:
        """End the session, as leaving its block would: completed, or failed if an error is given.

        Half-read streams of tools are closed first. Does nothing the second time, nor in a forked
        child. Raises as any write.
        """
        ending = self._closing()
        if ending is not None:
            self._explain(error)
            await self._end_streams()
            await ending(error)

    async def view(self, at: object = None, *, key: bytes | None = None) -> View:
        """Return the view of the run that this agent's role allows; record that it was served.

        Args:
            at: A point of the run; by default now.
            key: 32 secret bytes or more for masks that hash, in place of the role's own key.

        Raises:
            NotFound: There is no such point.
            ViewDiffers: The view is on record, and derived again it differs.
        """
        result: View = await self._flow(self._flows.views.view(at, key))
        return result

    async def checkpoint(self, name: str, /, **data: Any) -> None:
        """Record a named checkpoint, with data that can be read back."""
        await self._flow(self.facts.checkpoint(name, data))

    async def checkpoint_data(self, name: str) -> dict[str, Any] | None:
        """Return the data of the newest checkpoint of a name; None without one."""
        data: dict[str, Any] | None = await self._flow(self.facts.checkpoint_data(name))
        return data

    async def decide(
        self,
        question: str,
        *,
        selected: str,
        alternatives: Iterable[Any] = (),
        inputs: Iterable[Any] = (),
        threshold: float | None = None,
        confidence: float | None = None,
        reason: str = "",
    ) -> None:
        """Record a decision.

        Args:
            question: The question that is decided.
            selected: The chosen alternative.
            alternatives: Texts, or dicts of id, score, reason, rejected_because.
            inputs: The inputs of the decision: values that calls returned or parts of them, steps
                (`ada#3`), entries of the board (or `key@version`), views, ids of events and
                commits. Each is recorded as the event that it was read from.
            threshold: The least score to be chosen.
            confidence: The agent's confidence.
            reason: The reason on record.

        Raises:
            BadValue: An input has no known origin, or a number is not finite; nothing is recorded.
        """
        await self._flow(
            self.facts.decide(
                question,
                selected,
                alternatives=alternatives,
                inputs=stated(inputs),
                threshold=threshold,
                confidence=confidence,
                reason=reason,
            )
        )

    async def message(
        self,
        role: str,
        content: Any,
        *,
        tokens: int | None = None,
        label: str = "",
        fields: Mapping[str, Any] = NOTHING,
    ) -> None:
        """Add a message to the context window, in the provider's form.

        Args:
            role: The message's role: `user`, `assistant`, `tool` ...
            content: A text, or another form that the provider accepts.
            tokens: The number of tokens; None if unknown.
            label: The message's label, such as `secret untrusted`; public and trusted by default.
            fields: Further fields of the provider's form (`tool_calls`, `name` ...).

        Raises:
            BadValue: The message cannot be recorded, or `tokens` is not a whole number.
        """
        await self._flow(self.facts.message(role, content, tokens, _labelled(fields, label)))

    async def resource(self, uri: str, operation: str = "read") -> None:
        """Record the use of a resource."""
        await self._flow(self.facts.resource(uri, operation))

    async def hand_off(
        self, to: str, payload: Mapping[str, Any] = NOTHING, *, reason: str = ""
    ) -> None:
        """Hand the work over to another agent or role.

        Args:
            to: The agent or role.
            payload: Data for it, by name.
            reason: The reason on record.

        Raises:
            BadName, BadValue: `to` is malformed, or the payload cannot be recorded.
        """
        await self._flow(self.facts.hand_off(to, reason, by_name("payload", payload)))

    async def context(self) -> list[dict[str, Any]]:
        """Return this run's part of the context window in the provider's message form.

        It holds the messages of this agent in this run, with a summary in place of those that were
        compacted. `window()` returns the whole window.
        """
        return await self._flow(self.facts.context())

    async def latest_checkpoint(self) -> Checkpoint | None:
        """Return the newest checkpoint of this agent, of any name; None without one."""
        checkpoint: Checkpoint | None = await self._flow(self.facts.latest_checkpoint())
        return checkpoint

    def resumable(
        self, items: Iterable[T], *, every: Every = 1, name: str = "items"
    ) -> AsyncResumable[T]:
        """Iterate over the items not yet done; a resumed run continues where the loop stopped.

        Args:
            items: The items, in the same order each time.
            every: Items between two records of progress; up to as many are processed again on
                resume. `auto` chooses them from the measured time of a record and of an item, and
                from recorded failures of the run's workflow (Young 1974, Daly 2006); each record
                states its choice.
            name: The loop's name, if an agent has several.

        Raises:
            BadValue: `every` is neither 1 or more nor `auto`; raised when the loop begins.
        """
        progress = functools.partial(self._progress, name, every)
        return AsyncResumable(items, progress, self._drive)


_OPEN_ATTRIBUTES = frozenset(
    {"arm", "board", "engine", "facts", "memory", "run", "team", "tool", "wait_for"}
    | {
        "_drive",
        "_drive_here",
        "_ending",
        "_flow",
        "_flows",
        "_loop",
        "_pid",
        "_portal",
        "_streams",
    }
)
"""Attributes that a session has once it has begun."""


class Trusted(_Session):
    """The parts of a trusted program's session, in either client.

    It holds the agent's whole state, and may be one that has not begun.
    """

    _request: OpeningRequest | None = None

    def __init__(
        self,
        workflow: str | None = None,
        *,
        agent: str | None = None,
        role: str | None = None,
        workspace: str | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        self._request = OpeningRequest(
            workflow=workflow, agent=agent, role=role, workspace=workspace, options=dict(options)
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if self._request is not None and name in _OPEN_ATTRIBUTES:
                raise NotBegun
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=self)

    def _beginning(self) -> OpeningRequest:
        """Return the arguments to begin with. Raises SessionEnded, and Refused if it has begun."""
        if self._request is None:
            self.engine.ledger.demand_open()
            message = (
                f"the session of agent {self.agent!r} in run {self.run} is open already: use it "
                "without a second 'with'"
            )
            raise Refused(message)
        return self._request

    def _made(self, now: Drive | None) -> SessionFlows:  # noqa: ARG002 -- a write of the log waits for its commit
        engine: StepEngine = self.engine
        team = WaitFlows(engine)
        facts = statements.Annotations(engine)
        return SessionFlows(
            facts=facts,
            views=ViewFlows(engine),
            board=TransactedFlows(engine),
            team=team,
            mail=MailFlows(engine, team.store),
            memory=MemoryFlows(engine, SessionRankers()),
            aggregates=AggregateFlows(engine),
            windows=Windows(facts),
        )

    def _progress(self, name: str, every: Every) -> statements.Progress:
        return statements.Progress(self.facts, name, every)

    def _brief(self) -> dict[str, Any]:
        if self._request is not None:
            return {"workflow": self._request.workflow, "status": "not begun"}
        state: AgentState = self.engine.ledger.state
        steps = len(state.steps)
        return super()._brief() | {"epoch": state.epoch, "version": state.version, "steps": steps}

    @property
    def label(self) -> Label:
        """The join of the labels of all data that this agent was shown."""
        label: Label = self.engine.ledger.label
        return label

    def _last_step(self) -> str:
        steps = self.engine.ledger.state.steps
        if not steps:
            return super()._last_step()
        number = max(steps)
        return f"{self.agent}#{number} ({steps[number].tool})"

    def _settle_first(self) -> str:
        steps = (
            s for s in self.engine.ledger.state.in_doubt if s.effects is not Effects.IDEMPOTENT
        )
        first = next(steps, None)
        if first is None:
            return ""
        address: RunAddress = self.engine.outcomes.address
        return address.settle(first.number, "--happened RESULT", "--did-not-happen")

    @property
    def saved(self) -> Saved:
        """The usage that answers from the record saved this session so far.

        Usage that was not recorded is unknown, not 0.
        """
        return saved(self.engine.ledger)

    @property
    def state(self) -> AgentState:
        """A copy of the agent's present state."""
        ledger: Ledger = self.engine.ledger
        with ledger.lock:
            return ledger.state.copy()


class AsyncSession(Trusted, AsyncCommonSession):
    """A trusted program's session, for the async client. Returned by `record.run`.

    Without a record, `async with hansard.AsyncSession() as session` opens the record and a run, and
    closes both at the end of the block.

    Until its block is entered each of its methods raises `NotBegun`, after it `SessionEnded`.

    Args:
        workflow: What a new run is an execution of; by default HANSARD_WORKFLOW, else the program's
            name: `agent` for `python agent.py`, `interactive` at a prompt, in a notebook and for
            `python -c`.
        agent: The agent's name; by default HANSARD_AGENT, or `agent`.
        role: The agent's role; by default HANSARD_ROLE, or `agent`.
        workspace: The workspace's name; by default HANSARD_WORKSPACE, or `default`.
        **options: Options of `connect` and `record.run`: `run`, `mode`, `gate`, `settle` ...; see
            `SessionOptions`.

    Raises:
        BadOption: An option is unknown; the message names the nearest one.
    """

    _block: AbstractAsyncContextManager[Self]

    async def __aenter__(self) -> Self:
        """Open the record and begin, join or resume the run.

        Raises as `connect` and `record.run`; Refused if it is already open, SessionEnded if it has
        ended.
        """
        request = self._beginning()
        AsyncMixin.__init__(self, *await open_session_async(request))
        self._request = None
        self._block = within_async(self)
        return await self._block.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the session, and close the record and run that it opened."""
        await self._block.__aexit__(kind, error, trace)

    async def snapshot(self) -> Snapshot:
        """Return the agent's present state, large payloads included; reads its whole stream.

        Its id is a point for `at=`, and an argument of `record.replay_from`.
        """
        self.engine.ledger.demand_open()
        return await snapshots.now(self.engine.workspace, self.engine.stream)

    async def window(self, *, full: bool = False, close: bool = True) -> list[dict[str, Any]]:
        """Return the whole context window in the provider's form, ready to be sent to a model.

        It holds the conversation before this run, then this agent's messages, with a summary in
        place of messages that were compacted. This agent has seen them: their labels are joined
        into its own.

        Args:
            full: True for all messages, without the summaries.
            close: Add an answer to each tool call that has none on record and will get none, as
                after a run that was cut off: providers refuse a window with unanswered calls. The
                answer says so, and is not recorded.
        """
        flow = self._flows.windows.window(full=full, close=close)
        messages: list[dict[str, Any]] = await self._flow(flow)
        return messages

    async def compact(
        self,
        summarize: Callable[..., Any],
        *,
        keep: int = 4,
        max_messages: int | None = None,
        max_tokens: int | None = None,
        count: Callable[[dict[str, Any]], int] | None = None,
        role: str = "system",
    ) -> Compaction | None:
        """Replace the window's earlier messages by a summary, if the window is too long.

        The messages stay on record; `compaction.dropped` and `window(full=True)` have them.

        It is atomic: the summary is one event, which names the messages that it replaces.
        Instructions at the beginning of the window stay, and an answer to a call stays with that
        call.

        Args:
            summarize: A function of the messages to be dropped, in the provider's form, that
                returns a text. Its call is a step like any other, answered from the record on a
                resume: of the tool that it was declared as, else `pure` and of kind `model`.
            keep: Number of newest messages that stay.
            max_messages: Compact only if the window has more messages.
            max_tokens: Compact only if it has more tokens. Without either bound it is compacted at
                once.
            count: Returns the number of tokens of a message that was recorded without one
                (`tokens=`).
            role: The role of the summary's message.

        Returns:
            The window now, and the messages that were dropped; None if the window was within its
                bounds.

        Raises:
            Refused: No message can be dropped, or another agent of the run compacted some of these
                messages.
            BadValue: The summary is empty, or longer than the messages it replaces; or the tokens
                of some message are unknown, and `max_tokens` is given. Only the failed call is
                recorded.
        """
        bound = Bound(keep=keep, messages=max_messages, tokens=max_tokens)
        plan = await self._flow(self._flows.windows.planned(bound, count, role))
        if plan is None:
            return None
        spec = summarizer(summarize, plan)
        summary = await self._flow(self._flows.windows.summarized(spec, plan))
        made: Compaction = await self._flow(self._flows.windows.compacted(plan, summary))
        return made

    async def save(self, *aggregates: Any) -> list[int]:
        """Save new events of the program's own aggregates, with their step, in one commit.

        Return the aggregates' versions, in order.

        When a program that is resumed or replayed calls it again, nothing is written, and the
        aggregates become what was saved: with the recorded ids and times.

        Args:
            *aggregates: Aggregates of the `eventsourcing` library, of classes declared with
                `hansard.aggregate_type`. One without new events is left unchanged.

        Raises:
            AggregateConflict: Another writer was first: an aggregate is at another version. Get it
                again, and decide again.
            BadValue: A class or event is not declared, or an event cannot be recorded so that an
                equal one is read back.
            ShadowedEffect: In a fork that shadows effects, for events that its parent never saved.
        """
        versions: list[int] = await self._flow(self._flows.aggregates.save(aggregates))
        return versions

    async def get(
        self,
        cls: type[T],
        aggregate_id: UUID | str,
        *,
        at: object = None,
        version: int | None = None,
    ) -> T:
        """Return an aggregate of the program's own, rebuilt from its events.

        The read and the version are recorded; a replay gets the same version.

        Args:
            cls: The aggregate's class, declared with `hansard.aggregate_type`.
            aggregate_id: The aggregate's id.
            at: A point: a position, a time, the id of a commit or event of it, or '@3' for its
                version; by default now.
            version: The version, as in `at='@3'`.

        Raises:
            NotFound: There was no such aggregate at that point.
            UndeclaredEvent: It has an event on record whose tag is not declared.
            BadValue: The class is not declared.
        """
        aggregate: T = await self._flow(self._flows.aggregates.get(cls, aggregate_id, at, version))
        return aggregate

    def _items(self, call: Call) -> AsyncGenerator[Any, None]:
        return iterate_async(self.engine, call, self._drive)


def async_session_of(*made_of: Any) -> AsyncSession:
    """Build a session that is already open, from the arguments of `AsyncMixin`."""
    session = AsyncSession.__new__(AsyncSession)
    AsyncMixin.__init__(session, *made_of)
    return session


AsyncS = TypeVar("AsyncS", bound=AsyncCommonSession)


@contextlib.asynccontextmanager
async def within_async(session: AsyncS) -> AsyncGenerator[AsyncS, None]:
    """Make the session current inside the block, and end it with the block."""
    with session.use():
        try:
            yield session
        except BaseException as error:
            await session.close(error)
            raise
        else:
            await session.close()


async def stay_async(session: AsyncS, record: Any, where: str) -> AsyncS:
    """Keep a session open without a block; end one that it replaces."""
    for old in keep(session, record, where):
        await old.close(SessionEnded(old.run, old.agent))
    return session


class CommonSession(SyncMixin):
    """The methods of every session for the sync client: those of `AsyncCommonSession`."""

    board: Board
    memory: Memory
    team: Team

    def close(self, error: BaseException | None = None) -> None:
        """End the session, as leaving its block would: completed, or failed if an error is given.

        Half-read streams of tools are closed first. Does nothing the second time, nor in a forked
        child. Raises as any write.
        """
        ending = self._closing()
        if ending is not None:
            self._explain(error)
            self._end_streams()
            self._portal.run(ending(error))

    def resumable(
        self, items: Iterable[T], *, every: Every = 1, name: str = "items"
    ) -> Resumable[T]:
        """Iterate over the items not yet done; a resumed run continues where the loop stopped.

        Args:
            items: The items, in the same order each time.
            every: Items between two records of progress; up to as many are processed again on
                resume. `auto` chooses them from the measured time of a record and of an item, and
                from recorded failures of the run's workflow (Young 1974, Daly 2006); each record
                states its choice.
            name: The loop's name, if an agent has several.

        Raises:
            BadValue: `every` is neither 1 or more nor `auto`; raised when the loop begins.
        """
        progress = functools.partial(self._progress, name, every)
        return Resumable(items, progress, self._drive)

    view = sync(AsyncCommonSession.view)
    checkpoint = sync(AsyncCommonSession.checkpoint)
    checkpoint_data = sync(AsyncCommonSession.checkpoint_data)
    decide = sync(AsyncCommonSession.decide)
    message = sync(AsyncCommonSession.message)
    resource = sync(AsyncCommonSession.resource)
    hand_off = sync(AsyncCommonSession.hand_off)
    context = sync(AsyncCommonSession.context)
    latest_checkpoint = sync(AsyncCommonSession.latest_checkpoint)


class Session(Trusted, CommonSession):
    """A trusted program's session, for the sync client. Returned by `record.run`.

    Without a record, `with hansard.Session() as session` opens the record and a run, and closes
    both at the end of the block.

    Until its block is entered each of its methods raises `NotBegun`, after it `SessionEnded`.

    Args:
        workflow: What a new run is an execution of; by default HANSARD_WORKFLOW, else the program's
            name: `agent` for `python agent.py`, `interactive` at a prompt, in a notebook and for
            `python -c`.
        agent: The agent's name; by default HANSARD_AGENT, or `agent`.
        role: The agent's role; by default HANSARD_ROLE, or `agent`.
        workspace: The workspace's name; by default HANSARD_WORKSPACE, or `default`.
        **options: Options of `connect` and `record.run`: `run`, `mode`, `gate`, `settle` ...; see
            `SessionOptions`.

    Raises:
        BadOption: An option is unknown; the message names the nearest one.
    """

    _block: AbstractContextManager[Self]

    def __enter__(self) -> Self:
        """Open the record and begin, join or resume the run.

        Raises as `connect` and `record.run`; Refused if it is already open, SessionEnded if it has
        ended.
        """
        request = self._beginning()
        SyncMixin.__init__(self, *open_session(request))
        self._request = None
        self._block = within(self)
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the session, and close the record and run that it opened."""
        self._block.__exit__(kind, error, trace)

    def _items(self, call: Call) -> Generator[Any, None, None]:
        return iterate(self.engine, call, self._drive)

    snapshot = on_portal(AsyncSession.snapshot)
    window = sync(AsyncSession.window)
    compact = sync(AsyncSession.compact)
    save = sync(AsyncSession.save)
    get = sync(AsyncSession.get)


def opened(*made_of: Any) -> Session:
    """Build a session that is already open, from the arguments of `SyncMixin`."""
    session = Session.__new__(Session)
    SyncMixin.__init__(session, *made_of)
    return session


S = TypeVar("S", bound=CommonSession)


@contextlib.contextmanager
def within(session: S) -> Generator[S, None, None]:
    """Make the session current inside the block, and end it with the block."""
    with session.use():
        try:
            yield session
        except BaseException as error:
            session.close(error)
            raise
        else:
            session.close()


def stay(session: S, record: Any, where: str) -> S:
    """Keep a session open without a block; end one that it replaces."""
    for old in keep(session, record, where):
        old.close(SessionEnded(old.run, old.agent))
    return session
