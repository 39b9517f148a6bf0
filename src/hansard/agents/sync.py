"""Methods of the async client for the sync one: the same body, run in the calling thread or, where
it waits for the broker, on the loop of the process.

    class Board:
        def __init__(self, flows: BoardFlows, drive: Drive) -> None:
            self._drive = in_place(drive)

        get = sync(AsyncBoard.get)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

if TYPE_CHECKING:
    from hansard.agents.flow import AsyncDrive, Drive, Flow

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)


class Method(Generic[P, R_co]):
    """A method with the signature of an async one, for type checkers."""

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[P, R_co]: ...
    def __get__(self, instance: object, owner: type) -> object:
        """Bind it."""
        raise NotImplementedError

    def __call__(self, instance: Any, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call it as a function."""
        raise NotImplementedError


def sync(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R_co]]) -> Method[P, R_co]:
    """Return a method that runs an async one in the calling thread. All that it awaits must be done
    in place, as by a drive of `in_place`.
    """

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> R_co:
        return done(method(self, *args, **kwargs))

    made: Any = call
    found: Method[P, R_co] = made
    return found


def on_portal(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R_co]]) -> Method[P, R_co]:
    """Return a method that runs an async one on the loop of `self._portal`, and waits for it."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._portal.run(method(self, *args, **kwargs))

    made: Any = call
    found: Method[P, R_co] = made
    return found


def sync_block(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[V_co]],
) -> Method[P, AbstractContextManager[V_co]]:
    """Return a block of the sync client for one of the async client, run as by `sync`."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> AbstractContextManager[V_co]:
        return _Block(method(self, *args, **kwargs), done)

    made: Any = call
    found: Method[P, AbstractContextManager[V_co]] = made
    return found


def portal_block(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[V_co]],
) -> Method[P, AbstractContextManager[V_co]]:
    """Return a block of the sync client for one of the async client, run as by `on_portal`."""

    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> AbstractContextManager[V_co]:
        return _Block(method(self, *args, **kwargs), self._portal.run)

    made: Any = call
    found: Method[P, AbstractContextManager[V_co]] = made
    return found


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
