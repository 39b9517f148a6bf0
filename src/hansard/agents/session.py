"""The session: one agent at work in one run. A sync and an async twin over the same core."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from hansard.agents import facts
from hansard.agents.board_twins import AsyncBoard, SyncBoard
from hansard.agents.callables import is_async_generator_function
from hansard.agents.core import Core
from hansard.agents.effects import Declare, ToolSpec
from hansard.agents.errors import SessionEnded, ToolError
from hansard.agents.experiments import Arm
from hansard.agents.flow import Flow, drive, drive_async
from hansard.agents.inputs import stated
from hansard.agents.ledger import Ledger, Mode
from hansard.agents.scope import Scope, current, drop, enter, keep, kept, leave
from hansard.agents.secrets import check_names
from hansard.agents.streams import iterate, iterate_async
from hansard.agents.team_twins import AsyncTeam, SyncTeam
from hansard.agents.view_steps import ViewFlows
from hansard.agents.views import View
from hansard.bus.portal import Portal
from hansard.domain import ids
from hansard.domain.agent import AgentState
from hansard.domain.brief import Brief
from hansard.domain.errors import BadValue
from hansard.domain.label import Label

T = TypeVar("T")

Ending = Callable[[BaseException | None], Coroutine[Any, Any, None]]
"""Puts the end of a session on record, with the error that ended it, if any."""


class _Session(Brief):
    """What both twins share: no method here waits. `arm` is the run's in its experiment; None
    where it has none.
    """

    def __init__(self, core: Core, run: str, arm: Arm | None, ending: Ending | None) -> None:
        self.core = core
        self._ending = ending
        self.run = run
        """The run's id."""
        self.arm = arm
        """The arm that the run has in its experiment; None where it has none."""
        self.tool = Declare(self)
        """Declares a function as a tool of this session: `@session.tool(effects="pure")`."""
        self.facts = facts.Facts(core)
        self._views = ViewFlows(core)
        core.ledger.client = self

    _closed = False

    def _closing(self) -> Ending | None:
        """What puts its end on record; None the second time."""
        drop(self)
        ending = None if self._closed else self._ending
        self._closed = True
        return ending

    def _brief(self) -> dict[str, Any]:
        ledger = self.core.ledger
        return {
            "run": self.run,
            "agent": self.agent,
            "role": self.role,
            "mode": self.mode.value,
            "status": "ended" if ledger.ended else "open",
            "epoch": ledger.state.epoch,
            "version": ledger.state.version,
            "steps": len(ledger.state.steps),
        }

    @contextlib.contextmanager
    def use(self) -> Generator[None]:
        """Have calls of `@hansard.tool` inside go to this session, where several are open."""
        token = enter(current(self.core.ledger) or self.core.ledger.root)
        try:
            yield
        finally:
            leave(token)

    @property
    def agent(self) -> str:
        """This agent's name."""
        return self.core.stream.agent

    @property
    def role(self) -> str:
        """This agent's role in the run."""
        return self.core.stream.role

    @property
    def label(self) -> Label:
        """The join of the labels of all that this agent was shown."""
        return self.core.ledger.label

    @property
    def mode(self) -> Mode:
        """How this session treats what is on record."""
        return self.core.settings.mode

    @property
    def state(self) -> AgentState:
        """A copy of the agent's state as it stands."""
        with self.core.ledger.lock:
            return self.core.ledger.state.copy()

    def usage(self, **figures: float) -> None:
        """Report what the current call used; it is summed over the call.

        Args:
            **figures: Finite numbers by name: `input_tokens`, `output_tokens`, `cost` ...

        Raises:
            BadName: A name is not one.
            BadValue: A figure is no finite number.
        """
        self.core.ledger.demand_open()
        given: dict[str, Any] = dict(figures)
        check_names("usage", {"name": list(given)}, self.core.settings.scrub)
        for name, amount in given.items():
            ids.name("usage", name)
            if not isinstance(amount, int | float) or not math.isfinite(amount):
                raise BadValue(f"usage({name})", f"{amount!r:.80}", "give a finite number")
        scope = current(self.core.ledger) or self.core.ledger.root
        for name, amount in figures.items():
            scope.usage[name] = scope.usage.get(name, 0.0) + float(amount)

    def _spawn(self, count: int) -> tuple[Scope, list[Scope]]:
        ledger: Ledger = self.core.ledger
        parent = self.core.scope("gather")
        with ledger.lock:
            children = parent.spawn(count)
            ledger.busy += count
        return parent, children

    def _join(self, parent: Scope, children: list[Scope]) -> None:
        with self.core.ledger.lock:
            parent.join(children)
            self.core.ledger.busy -= len(children)


class Session(_Session):
    """One agent at work in one run, for the sync client. Made by `record.run(...)`.

    A call waits in its thread; one that is on record is answered there, without the broker. After
    its `with` each of these raises `SessionEnded`.
    """

    def __init__(
        self, core: Core, run: str, arm: Arm | None, portal: Portal, ending: Ending
    ) -> None:
        super().__init__(core, run, arm, ending)
        self._portal = portal
        self.board = SyncBoard(core, self._drive)
        """State that all agents of the run share, by key."""
        self.team = SyncTeam(core, self._drive)
        """The tasks that the run's agents share, and the messages between them."""
        self.wait_for = self.team.wait_for

    def _drive(self, flow: Flow[T]) -> T:
        return drive(flow, self._portal)

    @property
    def is_within_reach(self) -> bool:
        """Whether calls can still be made: nobody has ended it, and what drives it runs."""
        return not self.core.ledger.ended

    def close(self, error: BaseException | None = None) -> None:
        """End the session, as leaving its block would: completed, or failed where an error is
        given. The second time it does nothing. Raises as any write.
        """
        self._portal.refuse()
        ending = self._closing()
        if ending is not None:
            self._portal.run(ending(error))

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of a declared tool comes to: resolve, gate, run, record. Call the tool.

        Raises:
            SyncInLoop: Inside a running event loop.
            AfterFork: In a process that was forked: connect there.
            Blocked: The gate refused the call.
            NeedsSettling: Somebody must say what is true first.
            Miss: Strict or offline replay met a call that is not on record.
            NoScope: The thread or task is not one that the session knows.
        """
        self._portal.refuse()
        if is_async_generator_function(spec.function):
            message = f"{spec.name} is an async generator: use the async client, or a generator"
            raise ToolError(message)
        call = self.core.begin(spec, args, kwargs)
        if spec.is_stream:
            return iterate(self.core, call, self._drive)
        answered, value = self.core.answer(call)
        return value if answered else self._drive(self.core.execute(call))

    def view(self, at: object = None, *, key: bytes | None = None) -> View:
        """What this agent's role may see of the run; that it was served is put on record.

        Args:
            at: A point of the run; now without one.
            key: 32 secret bytes or more, where a mask of the role hashes.

        Raises:
            NotFound: There is no such point.
            ViewDiffers: It is on record, and derived again it is another one.
        """
        return self._drive(self._views.view(at, key))

    def checkpoint(self, name: str, /, **data: Any) -> None:
        """Put a named stage on record, with data that can be read back."""
        self._drive(self.facts.checkpoint(name, data))

    def checkpoint_data(self, name: str) -> dict[str, Any] | None:
        """The data of the newest checkpoint of a name; None where there is none."""
        return self._drive(self.facts.checkpoint_data(name))

    def decide(self, question: str, *, selected: str, **fields: Any) -> None:
        """Put a decision on record.

        Args:
            question: What is decided.
            selected: What is chosen.

        Keyword Args:
            alternatives (Iterable): Texts, or dicts of id, score, reason, rejected_because.
            inputs (Iterable): What it was made from: values that calls returned or parts of them,
                steps (`ada#3`), entries of the board (or `key@version`), views, ids of events and
                commits. Each is recorded as the event that it came from.
            threshold (float): What a score had to reach.
            confidence (float): How sure the agent was.
            because (str): Why.

        Raises:
            BadValue: An input came from nowhere, or a number is not finite; nothing is recorded.
        """
        self._drive(self.facts.decide(question, selected, **stated(fields)))

    def message(self, role: str, content: Any, *, tokens: int | None = None, **fields: Any) -> None:
        """Add a message to the context window, in the provider's form.

        Args:
            role: The message's: `user`, `assistant`, `tool` ...
            content: A text, or what the provider takes.
            tokens: How many tokens it has; None where nobody counted.
            **fields: What else the provider's form has (`tool_calls`, `name` ...); and `label`:
                `secret untrusted`, say, where it is more than public and trusted.

        Raises:
            BadValue: It cannot be recorded, or `tokens` is no whole number.
        """
        self._drive(self.facts.message(role, content, tokens, fields))

    def resource(self, uri: str, operation: str = "read") -> None:
        """Put on record that a resource was used."""
        self._drive(self.facts.resource(uri, operation))

    def hand_off(self, to: str, *, because: str = "", **payload: Any) -> None:
        """Hand the work over to another agent or role, with what it needs."""
        self._drive(self.facts.hand_off(to, because, payload))

    def context(self) -> list[dict[str, Any]]:
        """The context window in the provider's message form."""
        return self._drive(self.facts.context())

    def resumable(self, items: Iterable[T], *, every: int = 1, name: str = "items") -> Iterator[T]:
        """The items not yet done: a loop that goes on where it stood.

        Args:
            items: In the same order each time.
            every: Progress is recorded after so many; up to as many are done again on resume.
            name: Of the loop, where an agent has several.

        Raises:
            BadValue: `every` is less than 1.
        """
        progress = facts.Progress(self.facts, name, every)
        self._drive(progress.begin())
        try:
            for item in items:
                if not progress.skips(item):
                    yield item
                    self._drive(progress.done())
        finally:
            progress.leave()
        self._drive(progress.end())

    def thread(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> SessionThread[T]:
        """Run a function in a thread with a scope of its own; `.result()` joins it."""
        parent, [child] = self._spawn(1)
        return SessionThread(self, parent, child, function, args, kwargs)

    def gather(self, *functions: Callable[[], Any]) -> list[Any]:
        """Run functions side by side in threads, each a scope of its own; their results in order.

        All run to their end; then the first error, if any, is raised.
        """
        parent, children = self._spawn(len(functions))
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
        session: Session,
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
        except BaseException as error:  # noqa: BLE001 -- raised again where the result is asked for
            self._error = error

    def wait(self) -> None:
        """Wait until the function has ended."""
        self._thread.join()

    def value(self) -> T:
        """What the function returned; raises what it raised."""
        if self._error is not None:
            raise self._error
        return self._values[0]

    def result(self) -> T:
        """Wait, let the parent's scope go on after this one, and give the value."""
        self.wait()
        if not self._joined:
            self._joined = True
            self._session._join(self._parent, [self._scope])  # noqa: SLF001 -- its other half
        return self.value()


class AsyncSession(_Session):
    """One agent at work in one run, for the async client. Each method is as that of `Session`."""

    def __init__(self, core: Core, run: str, arm: Arm | None, ending: Ending | None = None) -> None:
        super().__init__(core, run, arm, ending)
        self._loop = asyncio.get_running_loop()
        self.board = AsyncBoard(core)
        self.team = AsyncTeam(core)
        self.wait_for = self.team.wait_for

    @property
    def is_within_reach(self) -> bool:
        """Whether calls can still be made: nobody has ended it, and its loop was not closed."""
        return not self.core.ledger.ended and not self._loop.is_closed()

    async def close(self, error: BaseException | None = None) -> None:
        """End the session, as leaving its block would; see `Session.close`."""
        ending = self._closing()
        if ending is not None:
            await ending(error)

    def call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a declared tool: a coroutine, or an async iterator for a streaming tool. In a thread
        without a loop (the body of a plain composite tool) it waits for the result, or iterates.
        """
        if spec.is_stream:
            return handed_items(self._iterate(spec, args, kwargs), self._loop, spec.name)
        return handed(self._call(spec, args, kwargs), self._loop, spec.name)

    async def _call(self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = self.core.begin(spec, args, kwargs)
        answered, value = self.core.answer(call)
        return value if answered else await drive_async(self.core.execute(call))

    async def _iterate(
        self, spec: ToolSpec, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        call = self.core.begin(spec, args, kwargs)
        async with contextlib.aclosing(iterate_async(self.core, call, drive_async)) as items:
            async for item in items:
                yield item

    async def view(self, at: object = None, *, key: bytes | None = None) -> View:
        """What this agent's role may see of the run: now, or at a point; see `Session.view`."""
        return await drive_async(self._views.view(at, key))

    async def checkpoint(self, name: str, /, **data: Any) -> None:
        """Put a named stage on record, with data that can be read back."""
        await drive_async(self.facts.checkpoint(name, data))

    async def checkpoint_data(self, name: str) -> dict[str, Any] | None:
        """The data of the newest checkpoint of a name; None where there is none."""
        return await drive_async(self.facts.checkpoint_data(name))

    async def decide(self, question: str, *, selected: str, **fields: Any) -> None:
        """Put a decision on record; see `Session.decide`."""
        await drive_async(self.facts.decide(question, selected, **stated(fields)))

    async def message(
        self, role: str, content: Any, *, tokens: int | None = None, **fields: Any
    ) -> None:
        """Add a message to the context window, in the provider's form."""
        await drive_async(self.facts.message(role, content, tokens, fields))

    async def resource(self, uri: str, operation: str = "read") -> None:
        """Put on record that a resource was used."""
        await drive_async(self.facts.resource(uri, operation))

    async def hand_off(self, to: str, *, because: str = "", **payload: Any) -> None:
        """Hand the work over to another agent or role, with what it needs."""
        await drive_async(self.facts.hand_off(to, because, payload))

    async def context(self) -> list[dict[str, Any]]:
        """The context window in the provider's message form."""
        return await drive_async(self.facts.context())

    async def resumable(
        self, items: Iterable[T], *, every: int = 1, name: str = "items"
    ) -> AsyncIterator[T]:
        """The items not yet done; progress is recorded every so many and skipped on resume."""
        progress = facts.Progress(self.facts, name, every)
        await drive_async(progress.begin())
        try:
            for item in items:
                if not progress.skips(item):
                    yield item
                    await drive_async(progress.done())
        finally:
            progress.leave()
        await drive_async(progress.end())

    async def gather(self, *awaitables: Awaitable[Any]) -> list[Any]:
        """Await things side by side, each in a scope of its own; their results in order.

        All run to their end; then the first error, if any, is raised. A cancellation reaches all.
        """
        parent, children = self._spawn(len(awaitables))
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
        """An asyncio.TaskGroup whose tasks have scopes of their own, joined at its end."""
        parent, _ = self._spawn(0)
        children: list[Scope] = []
        try:
            async with asyncio.TaskGroup() as group:
                yield SessionTasks(self, group, parent, children)
        finally:
            self._join(parent, children)


def handed(work: Any, loop: asyncio.AbstractEventLoop, tool: str) -> Any:
    """A call for who made it: the coroutine in a loop; in a thread without one, what it comes to.

    Raises ToolError where the session's own loop does not run: nobody would do the call.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        work.__qualname__ = tool  # what Python names where it was never awaited
        return work
    if not loop.is_running():
        work.close()
        message = f"{tool} was called where no event loop runs: await it inside the async session"
        raise ToolError(message)
    return asyncio.run_coroutine_threadsafe(work, loop).result()


def handed_items(
    items: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop, tool: str
) -> AsyncGenerator[Any, None] | Iterator[Any]:
    """A streamed call for who made it: see `handed`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _items(items, loop, tool)
    return items


def _items(
    items: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop, tool: str
) -> Iterator[Any]:
    async def following() -> list[Any]:
        async for item in items:
            return [item]
        return []

    try:
        while found := handed(following(), loop, tool):
            yield found[0]
    finally:
        handed(items.aclose(), loop, tool)


@contextlib.contextmanager
def within(session: Session) -> Generator[Session]:
    """A session's block: it is current inside, and ends with it."""
    with session.use():
        try:
            yield session
        except BaseException as error:
            session.close(error)
            raise
        else:
            session.close()


@contextlib.asynccontextmanager
async def within_async(session: AsyncSession) -> AsyncGenerator[AsyncSession]:
    """A session's block: it is current inside, and ends with it."""
    with session.use():
        try:
            yield session
        except BaseException as error:
            await session.close(error)
            raise
        else:
            await session.close()


def stay(session: Session, record: Any, where: str) -> Session:
    """Have calls find a session without a block; one that it takes the place of ends."""
    for old in keep(session, record, where):
        old.close(SessionEnded(old.run, old.agent))
    return session


async def stay_async(session: AsyncSession, record: Any, where: str) -> AsyncSession:
    """See `stay`."""
    for old in keep(session, record, where):
        await old.close(SessionEnded(old.run, old.agent))
    return session


def sessions() -> list[Session | AsyncSession]:
    """The sessions of this process that `record.open` opened and nobody has closed, the oldest
    first. A call of a `@hansard.tool` outside of any block goes to the only one of them.
    """
    return kept()


class SessionTasks:
    """Starts tasks in scopes of their own."""

    def __init__(
        self, session: AsyncSession, group: asyncio.TaskGroup, parent: Scope, children: list[Scope]
    ) -> None:
        self._session = session
        self._group = group
        self._parent = parent
        self._children = children

    def create_task(self, awaitable: Awaitable[T]) -> asyncio.Task[T]:
        """Start something as a task of the group."""
        ledger = self._session.core.ledger
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
