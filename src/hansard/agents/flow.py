"""A call from resolve to record, written once for the sync and the async client.

A flow is a generator: it yields the operations to perform (`Wait`, `Io`, `Watch`, `Body`, `Pause`)
and is sent their results; its two drivers differ only in how they wait.

A method of the sync client is the async client's, run in the calling thread (`sync`) or on the
process's loop (`on_portal`): `get = sync(AsyncBoard.get)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sys
import threading
import time
import typing
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import copy_context
from types import FunctionType
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, assert_never
from weakref import WeakSet

import msgspec

from hansard.agents.errors import ToolError
from hansard.agents.steps.scope import Scope, enter, leave
from hansard.bus.loggers import logger
from hansard.bus.portal import Portal, demand_loop, own_task

# Inspection of callables: functions, and what acts as one (a partial, a callable object, a
# static method, a C function). All such checks are here.

_ITEMS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
"""Code flags of functions that yield items."""

_PLAIN = inspect.Parameter.POSITIONAL_OR_KEYWORD


def underlying(function: Any) -> Any:
    """Return the function whose code runs, unwrapping partials, static methods and callable
    objects.
    """
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, staticmethod):
            function = function.__func__
        elif _is_object(function):
            return type(function).__call__
        else:
            return function


def _is_object(function: Any) -> bool:
    return (
        callable(function)
        and not inspect.isroutine(function)
        and not isinstance(function, type)
        and inspect.isfunction(type(function).__call__)
    )


def is_coroutine_function(function: Any) -> bool:
    """Return whether calling it returns a coroutine, as far as can be determined without a call."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        underlying(function)
    )


def is_async_generator_function(function: Any) -> bool:
    """Return whether calling it returns an async generator."""
    return inspect.isasyncgenfunction(underlying(function))


def is_stream(function: Any) -> bool:
    """Return whether calling it yields items one by one."""
    if type(function) is FunctionType:  # on every call: a tenth of the time of `inspect`
        return bool(function.__code__.co_flags & _ITEMS)
    inner = underlying(function)
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def arguments(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a call's arguments by name, with defaults. Raises TypeError as the call would.

    Plain parameters are bound here, in a quarter of the time that `bind` takes; all others, and
    arguments that do not match, are bound by `bind`.
    """
    by_name: dict[str, Any] = {}
    count, named = len(args), len(kwargs)
    for at, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is not _PLAIN:
            break
        if at < count:
            by_name[name] = args[at]
        elif name in kwargs:
            by_name[name] = kwargs[name]
            named -= 1
        elif parameter.default is not inspect.Parameter.empty:
            by_name[name] = parameter.default
        else:
            break
    else:
        if not named and count <= len(by_name):
            return by_name
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def name_of(function: Any) -> str:
    """Return a callable's name: its own, else its wrapped function's, else its class's."""
    inner = underlying(function) if isinstance(function, functools.partial) else function
    return str(getattr(inner, "__name__", type(inner).__name__))


def check(function: Any) -> None:
    """Raise ToolError for an object that cannot be called, or is not meant to be."""
    if not callable(function) and not isinstance(function, classmethod | property):
        message = f"a {type(function).__name__} ({function!r:.80}) is not a tool: give a function"
        raise ToolError(message)


def own_name(function: Any) -> str:
    """Return the name that a tool takes from its function. Raises ToolError if it has none."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        message = (
            f"a {type(function).__name__} ({name_of(function)}) has no name of its own to record "
            "its calls by: give name=, different for each"
        )
        raise ToolError(message)
    return name


def signature(function: Any, name: str) -> inspect.Signature:
    """Return a tool's signature. Raises ToolError if it cannot be determined."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError) as error:
        kind = type(function).__name__
        remedy = (
            f"declare the function, and put @{kind} above the tool"
            if isinstance(function, classmethod | property)
            else "wrap it in a function whose parameters have names"
        )
        message = f"the parameters of tool {name!r:.80}, a {kind}, are unknown ({error}): {remedy}"
        raise ToolError(message) from None


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of that name, or accepts any."""
    parameters = signature(function, own_name(function)).parameters
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def hints(function: Any, around: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the annotations, with forward references resolved, also to names `around` it;
    annotations that cannot be resolved are left out.
    """
    inner: Any = inspect.unwrap(underlying(function))
    if isinstance(inner, type):  # a class's annotations are its attributes'
        return {}
    resolved: dict[str, Any] = {}
    for name, annotation in getattr(inner, "__annotations__", {}).items():
        holder = type("Holder", (), {"__annotations__": {name: annotation}})
        known = {**getattr(inner, "__globals__", {}), **(around or {})}
        with contextlib.suppress(
            Exception
        ):  # an annotation is an expression, which may raise anything
            resolved |= typing.get_type_hints(holder, globalns=known, localns=known)
    return resolved


def around() -> dict[str, Any]:
    """Return the names visible to the code that calls Hansard; local annotations refer to them."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("hansard."):
        frame = frame.f_back
    return dict(frame.f_locals) if frame is not None else {}


def calling(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a plain function. Its own StopIteration becomes an error, as in a generator: it would
    end the generator that drives the call.
    """
    try:
        return function(*args, **kwargs)
    except StopIteration as stop:
        message = f"{name_of(function)} raised StopIteration"
        raise RuntimeError(message) from stop


async def awaited(result: Awaitable[Any]) -> Any:
    """Await an awaitable that need not be a coroutine."""
    return await result


P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)


_log = logger(__name__)


class Wait(msgspec.Struct, frozen=True):
    """Wait for a future that the writer resolves, and return its result."""

    future: Any


class Io(msgspec.Struct, frozen=True):
    """Run a coroutine on the bus's loop and return its result. It is never cancelled."""

    work: Callable[[], Coroutine[Any, Any, Any]]


class Watch(msgspec.Struct, frozen=True):
    """Run a read-only coroutine on the bus's loop and return its result. A cancellation or an
    interrupt cancels it.
    """

    work: Callable[[], Coroutine[Any, Any, Any]]


class Body(msgspec.Struct, frozen=True):
    """Run a tool's function in a scope and return (result, milliseconds)."""

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
        """Run the flow and return its value."""
        ...


class AsyncDrive(Protocol):
    """Runs a flow in the running loop."""

    async def __call__(self, flow: Flow[T], /) -> T:
        """Run the flow and return its value."""
        ...


def drive(flow: Flow[T], portal: Portal) -> T:
    """Run a flow in the calling thread. Raises SyncInLoop, AfterFork.

    An exception from a signal handler reaches the flow wherever it is raised, so that the flow
    records the state it leaves.
    """
    portal.refuse()
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            while True:  # inside `try`: a signal handler may raise at a loop's jump back
                op = flow.send(value) if error is None else flow.throw(error)
                value = error = None
                try:
                    value = _perform(op, portal)
                except BaseException as caught:  # noqa: BLE001 -- handed to the flow, which decides
                    error = caught
        except StopIteration as stop:
            done: T = stop.value
            return done
        except BaseException as late:  # from a signal handler, between two of the lines above
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
    """Run a sync body under a timeout. The body cannot be stopped, so a timeout leaves the call in
    doubt.
    """
    future = _in_thread(op, call)
    if not wait([future], op.timeout_s).done:
        message = f"no answer within {op.timeout_s} s; the call's thread may still be running"
        raise TimeoutError(message)
    result: tuple[Any, float] = future.result()
    return result


def _in_thread(op: Body, work: Callable[[], Any]) -> Future[Any]:
    """Run the work of a body in its own thread, which does not keep the program from ending."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 -- raised again where it is awaited
            future.set_exception(error)

    threading.Thread(target=run, name=f"hansard-{name_of(op.function)}", daemon=True).start()
    return future


def _body(op: Body) -> tuple[Any, float]:
    enter(op.scope)
    begin = time.perf_counter()
    result = calling(op.function, op.args, op.kwargs)
    if inspect.isawaitable(result):
        result = asyncio.run(asyncio.wait_for(awaited(result), op.timeout_s))
    return result, (time.perf_counter() - begin) * 1_000


def driver(loop: asyncio.AbstractEventLoop) -> AsyncDrive:
    """Return the driver of one loop; called in another loop, it raises OtherLoop."""

    def drive_here(flow: Flow[T]) -> Coroutine[Any, Any, T]:
        demand_loop(loop)
        return drive_async(flow)

    return drive_here


async def drive_async(flow: Flow[T]) -> T:
    """Run a flow in the running loop. Cancellation reaches the flow, but no write is cancelled."""
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
"""Longest wait for a write after a signal handler's exception ended the loop, in seconds."""

_ending: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
"""Loops that a signal handler's exception ended. It may have interrupted asyncio's own code, which
then lost its callbacks: no wait in such a loop is certain to end."""


class Unbroken(asyncio.Future[Any]):
    """A future that is always awaited to its end: a cancelled waiter receives the cancellation once
    it is done. Saves the second future of `asyncio.shield`, and a turn of the loop.
    """

    _wakes: list[tuple[Callable[[Any], object], Any]] | None = None
    """Callbacks of the waiters."""

    def bounded(self) -> Self:
        """Return this future, with a bounded wait if its loop is ending."""
        if self.get_loop() in _ending:
            self._hurry()
        return self

    def set_result(self, result: Any) -> None:
        """Set the result, as a plain future does."""
        self._wakes = self._callbacks
        super().set_result(result)

    def cancel(self, msg: Any | None = None) -> bool:
        """Ignore the cancellation: an in-flight append always completes."""
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
    """Wait to the end even when cancelled, then raise the cancellation."""
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
            except Exception:  # noqa: BLE001 -- the cancellation below takes precedence
                break
        raise


async def _called(op: Body) -> Any:
    """Run a body; a plain function runs in a thread. An awaitable result is awaited."""
    if is_coroutine_function(op.function):
        return await op.function(*op.args, **op.kwargs)
    call = functools.partial(copy_context().run, calling, op.function, op.args, op.kwargs)
    if op.scope.nests:  # a pool would deadlock once bodies that make calls occupy its threads
        result = await asyncio.wrap_future(_in_thread(op, call))
    else:
        result = await asyncio.get_running_loop().run_in_executor(None, call)
    return await result if inspect.isawaitable(result) else result


async def _run_body_async(op: Body) -> tuple[Any, float]:
    begin = time.perf_counter()
    token = enter(op.scope)
    try:
        async with asyncio.timeout(op.timeout_s):  # in Python 3.11, `wait_for` would create a task
            result = await _called(op)
    finally:
        leave(token)
    return result, (time.perf_counter() - begin) * 1_000


def sync(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that runs an async one in the calling thread. Whatever it awaits must
    complete in place, as with a drive of `in_place`.
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
    """Return a context manager of the sync client from one of the async client, run as by
    `sync`.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> AbstractContextManager[V_co]:
        return _Block(method(self, *args, **kwargs), done)

    return call


def portal_block(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[V_co]],
) -> Callable[Concatenate[Any, P], AbstractContextManager[V_co]]:
    """Return a context manager of the sync client from one of the async client, run as by
    `on_portal`.
    """

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
        is_handled: bool | None = self._run(self._block.__aexit__(*raised))  # type: ignore[arg-type]  # the three arguments of __exit__
        return is_handled


def done(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits. Raises RuntimeError if it does."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    message = "an async method waited where the sync client runs it in place"
    raise RuntimeError(message)


def in_place(drive: Drive) -> AsyncDrive:
    """Return a driver that runs flows in the calling thread, for `await`."""

    async def driven(flow: Flow[T]) -> T:
        return drive(flow)

    return driven


END = object()
"""Returned by `following` after the last item."""


async def following(items: Any) -> Any:
    """Return the next item of a generator of either kind, or END."""
    return await anext(items, END) if inspect.isasyncgen(items) else next(items, END)


async def close(items: Any) -> None:
    """Close a generator of either kind."""
    if inspect.isasyncgen(items):
        await items.aclose()
    else:
        items.close()
