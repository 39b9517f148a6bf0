"""A call from resolve to record, written once for the sync and the async client.

A flow is a generator: it yields what must be done to the world (`Wait`, `Io`, `Watch`, `Body`,
`Pause`) and is sent what came of it; its two drivers differ only in how they wait.

A method of the sync client is the one of the async client, run in the calling thread (`sync`) or on
the loop of the process (`on_portal`): `get = sync(AsyncBoard.get)`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import copy_context
from typing import (
    Any,
    Concatenate,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    assert_never,
)
from weakref import WeakSet

import msgspec

from hansard.agents.callables import awaited, calling, is_coroutine_function, name_of
from hansard.agents.steps.scope import Scope, enter, leave
from hansard.bus.loggers import logger
from hansard.bus.portal import Portal, demand_loop, own_task

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)


_log = logger(__name__)


class Wait(msgspec.Struct, frozen=True):
    """Wait for a future that the writer resolves; the answer is its result."""

    future: Any


class Io(msgspec.Struct, frozen=True):
    """Run a coroutine on the bus's loop; the answer is its result. Never cut short."""

    work: Callable[[], Coroutine[Any, Any, Any]]


class Watch(msgspec.Struct, frozen=True):
    """Run a coroutine on the bus's loop that only looks; the answer is its result. A cancellation
    or an interrupt cuts it short.
    """

    work: Callable[[], Coroutine[Any, Any, Any]]


class Body(msgspec.Struct, frozen=True):
    """Run a tool's function in a scope; the answer is (result, milliseconds)."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    scope: Scope
    timeout_s: float | None = None


class Pause(msgspec.Struct, frozen=True):
    """Wait some seconds before the next attempt."""

    seconds: float


Op = Wait | Io | Watch | Body | Pause
Flow = Generator[Op, Any, T]


class Drive(Protocol):
    """Runs a flow in the calling thread."""

    def __call__(self, flow: Flow[T], /) -> T:
        """The flow's value."""
        ...


class AsyncDrive(Protocol):
    """Runs a flow in the running loop."""

    async def __call__(self, flow: Flow[T], /) -> T:
        """The flow's value."""
        ...


def drive(flow: Flow[T], portal: Portal) -> T:
    """Run a flow in the calling thread. Raises SyncInLoop, AfterFork.

    What a signal handler raises reaches the flow wherever it comes, so that what it leaves is on
    record.
    """
    portal.refuse()
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            op = flow.send(value) if error is None else flow.throw(error)
            value = error = None
            try:
                value = _perform(op, portal)
            except BaseException as caught:  # noqa: BLE001 -- handed to the flow, which decides
                error = caught
        except StopIteration as stop:
            done: T = stop.value
            return done
        except BaseException as late:  # of a signal handler, between two of the lines above
            if inspect.getgeneratorstate(flow) != inspect.GEN_SUSPENDED:
                raise
            value, error = None, late


def _perform(op: Op, portal: Portal) -> Any:
    match op:
        case Wait():
            return op.future.result()
        case Io():
            return portal.run(op.work())
        case Watch():
            return portal.watch(op.work())
        case Pause():
            return time.sleep(op.seconds)
        case Body():
            return _run_body(op)
        case _:
            assert_never(op)


def _run_body(op: Body) -> tuple[Any, float]:
    context = copy_context()

    def call() -> tuple[Any, float]:
        return context.run(_body, op)

    if op.timeout_s is None or is_coroutine_function(op.function):
        return call()
    return _bounded(call, op)


def _bounded(call: Callable[[], tuple[Any, float]], op: Body) -> tuple[Any, float]:
    """A sync body under a timeout: it cannot be stopped, so after it the call is in doubt."""
    done: list[tuple[Any, float]] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            done.append(call())
        except BaseException as error:  # noqa: BLE001 -- raised again in the caller's thread
            raised.append(error)

    thread = threading.Thread(target=work, name=f"hansard-{name_of(op.function)}", daemon=True)
    thread.start()
    thread.join(op.timeout_s)
    if raised:
        raise raised[0]
    if not done:
        message = f"no answer within {op.timeout_s} s; the call's thread may still be running"
        raise TimeoutError(message)
    return done[0]


def _body(op: Body) -> tuple[Any, float]:
    enter(op.scope)
    begin = time.perf_counter()
    result = calling(op.function, op.args, op.kwargs)
    if inspect.isawaitable(result):
        result = asyncio.run(asyncio.wait_for(awaited(result), op.timeout_s))
    return result, (time.perf_counter() - begin) * 1_000


def driver(loop: asyncio.AbstractEventLoop) -> AsyncDrive:
    """Return what runs flows in one loop; called in another, it raises OtherLoop."""

    def drive_here(flow: Flow[T]) -> Coroutine[Any, Any, T]:
        demand_loop(loop)
        return drive_async(flow)

    return drive_here


async def drive_async(flow: Flow[T]) -> T:
    """Run a flow in the running loop. Cancellation reaches the flow, but no write is cut short."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            op = flow.send(value) if error is None else flow.throw(error)
        except StopIteration as stop:
            done: T = stop.value
            return done
        value = error = None
        try:
            value = await _perform_async(op)
        except BaseException as caught:  # noqa: BLE001 -- handed to the flow, which decides
            error = caught


async def _perform_async(op: Op) -> Any:
    match op:
        case Wait():
            return await _shielded(op.future)
        case Io():
            return await _shielded(own_task(op.work()))
        case Watch():
            return await op.work()
        case Pause():
            return await asyncio.sleep(op.seconds)
        case Body():
            return await _run_body_async(op)
        case _:
            assert_never(op)


ENDING_WAIT_S = 1.0
"""Longest wait for one write where an exception of a signal handler ended the event loop."""

_ending: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""The loops that such an exception ended. It may have hit asyncio's own code, which then has
forgotten whom to wake: no wait in such a loop is sure to end."""


class Unbroken(asyncio.Future[Any]):
    """A future that is waited for to its end: who waits and is cancelled gets the cancellation once
    this is done. What `asyncio.shield` does with a second future, and a turn of the loop more.
    """

    _wakes: list[tuple[Callable[[Any], object], Any]] | None = None
    """Whom the result wakes."""

    def bounded(self) -> Self:
        """This future, which is given up in a loop that is ending."""
        if self.get_loop() in _ending:
            self._hurry()
        return self

    def set_result(self, result: Any) -> None:
        """As that of a future."""
        self._wakes = self._callbacks
        super().set_result(result)

    def cancel(self, msg: Any | None = None) -> bool:
        """It is not: what is on its way comes to something."""
        del msg
        if isinstance(sys.exc_info()[1], SystemExit | KeyboardInterrupt):
            _ending.add(self.get_loop())
            self._hurry()
        return False

    def _hurry(self) -> None:
        self.get_loop().call_later(ENDING_WAIT_S, self._give_up)

    def _give_up(self) -> None:
        if not self.done():
            _log.warning("write given up", why="a signal handler's exception ended the event loop")
            self.set_exception(asyncio.CancelledError())
        elif any(getattr(task, "_fut_waiter", None) is self for task in asyncio.all_tasks()):
            for wake, _ in self._wakes or ():
                wake(self)


async def _shielded(future: asyncio.Future[Any]) -> Any:
    """Wait to the end even when cancelled, then let the cancellation through."""
    if isinstance(future, Unbroken):
        return await future
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError:
                continue
            except Exception:  # noqa: BLE001 -- the cancellation below is the stronger news
                break
        raise


async def _called(op: Body) -> Any:
    """What a body gives; a plain function runs in a thread. What it gives to await is awaited."""
    if is_coroutine_function(op.function):
        return await op.function(*op.args, **op.kwargs)
    result = await (_nesting(op) if op.scope.nests else _in_pool(op))
    return await result if inspect.isawaitable(result) else result


async def _in_pool(op: Body) -> Any:
    return await asyncio.to_thread(calling, op.function, op.args, op.kwargs)


async def _nesting(op: Body) -> Any:
    """A body that may wait for calls of its own has a thread of its own: in a pool, as many such
    bodies as it has threads would wait for ever for one to do their calls.
    """
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()
    context = copy_context()

    def work() -> None:
        try:
            future.set_result(context.run(calling, op.function, op.args, op.kwargs))
        except BaseException as error:  # noqa: BLE001 -- raised again where it is awaited
            future.set_exception(error)

    threading.Thread(target=work, name=f"hansard-{name_of(op.function)}", daemon=True).start()
    return await asyncio.wrap_future(future)


async def _run_body_async(op: Body) -> tuple[Any, float]:
    begin = time.perf_counter()
    token = enter(op.scope)
    try:
        async with asyncio.timeout(op.timeout_s):  # `wait_for` makes a task of it in Python 3.11
            result = await _called(op)
    finally:
        leave(token)
    return result, (time.perf_counter() - begin) * 1_000


def sync(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that runs an async one in the calling thread. All that it awaits must be done
    in place, as by a drive of `in_place`.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> R:
        return done(method(self, *args, **kwargs))

    return call


def on_portal(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that runs an async one on the loop of `self._portal`, and waits for it."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._portal.run(method(self, *args, **kwargs))

    return call


def sync_block(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[V_co]],
) -> Callable[Concatenate[Any, P], AbstractContextManager[V_co]]:
    """Return a block of the sync client for one of the async client, run as by `sync`."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> AbstractContextManager[V_co]:
        return _Block(method(self, *args, **kwargs), done)

    return call


def portal_block(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[V_co]],
) -> Callable[Concatenate[Any, P], AbstractContextManager[V_co]]:
    """Return a block of the sync client for one of the async client, run as by `on_portal`."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> AbstractContextManager[V_co]:
        return _Block(method(self, *args, **kwargs), self._portal.run)

    return call


class _Block(AbstractContextManager[V_co]):
    def __init__(
        self,
        block: AbstractAsyncContextManager[V_co],
        run: Callable[[Coroutine[Any, Any, Any]], Any],
    ) -> None:
        self._block = block
        self._run = run

    def __enter__(self) -> V_co:
        entered: V_co = self._run(self._block.__aenter__())
        return entered

    def __exit__(self, *raised: object) -> bool | None:
        is_handled: bool | None = self._run(self._block.__aexit__(*raised))  # type: ignore[arg-type]  # the three of a block's end
        return is_handled


def done(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing. Raises RuntimeError if it does."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    message = "an async method waited where the sync client runs it in place"
    raise RuntimeError(message)


def in_place(drive: Drive) -> AsyncDrive:
    """Return what runs flows in the calling thread, for `await`."""

    async def driven(flow: Flow[T]) -> T:
        return drive(flow)

    return driven
