"""The sync client's bridge to the bus: one event loop in one daemon thread per process.

Rebuilt after a fork, since threads do not survive one. Refused inside a running event loop, which
it would block: the async client is the remedy.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from hansard.bus.errors import BusError

# Tasks of the bus, which the shutdown of a program's event loop does not cancel.
#
# `asyncio.run` cancels all tasks of its loop at once, and so does a usual SIGTERM handler. If the
# connection's tasks were among them, a cancelled program could not record the end of its run. They
# end when the broker is closed: by the record, or else as the loop shuts down.

T = TypeVar("T")


def own_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a task of the bus on the running loop."""
    task = asyncio.get_running_loop().create_task(work)
    disown(task)
    return task


def disown(task: asyncio.Task[Any] | None) -> None:
    """Hide a task from `asyncio.all_tasks`, which a loop's shutdown cancels."""
    if task is not None:
        asyncio._unregister_task(task)  # noqa: SLF001 -- documented for those who extend asyncio
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 -- as `asyncio.gather` does


class SyncInLoop(BusError):
    """The sync client was used inside a running event loop.

    State: nothing was done.
    Remedy: use `connect_async`, or call it in a thread.
    """

    def __init__(self) -> None:
        super().__init__(
            "the sync client was called inside a running event loop, which it would block: "
            "use hansard.AsyncSession or connect_async(...) and await, or call from a thread (in a "
            "notebook: record = await hansard.connect_async(...), session = await record.open(...))"
        )


class AfterFork(BusError):
    """A record opened before a process fork was used in the child.

    State: nothing was done.
    Remedy: call `connect` again in the child.
    """

    def __init__(self, opened_by: int) -> None:
        super().__init__(
            f"process {os.getpid()} was forked from process {opened_by} and used a record opened "
            "there, whose connection and thread a fork does not carry over: "
            "call hansard.connect(...) in the child and use what that returns"
        )
        self.opened_by = opened_by


class OtherLoop(BusError):
    """A record or session of one event loop was used in another.

    State: nothing was done.
    Remedy: connect in the loop that uses it.
    """

    def __init__(self) -> None:
        super().__init__(
            "a record or session that was opened in one event loop was used in another, in which "
            "its connection does not work: call hansard.connect_async(...) in each loop (each "
            "asyncio.run(...) makes one), or keep one loop for the program (asyncio.Runner)"
        )


class Arrival:
    """A result that an event loop sets and a thread waits for.

    It is not a `concurrent.futures.Future`: that holds a lock in Python code, and an exception of a
    signal handler (Ctrl-C, a soft time limit) that hits the waiting thread there leaves it locked,
    so the loop would block forever. Here the loop never waits.
    """

    __slots__ = ("_error", "_gate", "_is_done", "_task", "_value")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self._is_done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[Any] | None = None

    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self._is_done

    def cancelled(self) -> bool:
        """Return False: the caller still waits for the result."""
        return False

    def set_result(self, value: Any) -> None:
        """Set the result."""
        self._value = value
        self._arrived()

    def set_exception(self, error: BaseException) -> None:
        """Set the error."""
        self._error = error
        self._arrived()

    def _arrived(self) -> None:
        self._is_done = True
        self._gate.release()

    def result(self) -> Any:
        """Wait for the result. Raises the error."""
        if not self._is_done:
            with self._gate:  # open for the next waiting thread, whatever interrupts this one
                pass
        if self._error is not None:
            raise self._error
        return self._value

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Start the work on the loop, and resolve this with its result."""
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._take)

    def _take(self, task: asyncio.Task[Any]) -> None:
        error = CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())

    def cancel(self) -> None:
        """Cancel the work. On the loop."""
        if self._task is not None:
            self._task.cancel()


def arriving(work: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Arrival:
    """Run a coroutine on a loop of another thread."""
    arrival = Arrival()
    loop.call_soon_threadsafe(arrival.begin, work)
    return arrival


class Portal:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="hansard-loop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it. A KeyboardInterrupt does not cancel it.

        Raises SyncInLoop, AfterFork.
        """
        self._accept(work)
        result: T = arriving(work, self.loop).result()
        return result

    def release(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that closes what was opened on the loop. A forked child closes nothing:
        it would close its parent's.
        """
        if os.getpid() == self.pid:
            self.run(work)
        else:
            work.close()

    def watch(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a read-only coroutine as `run` does, but cancel it if the wait ends early for any
        reason.
        """
        self._accept(work)
        arrival = arriving(work, self.loop)
        try:
            result: T = arrival.result()
        finally:
            if not arrival.done():
                self.loop.call_soon_threadsafe(arrival.cancel)
        return result

    def _accept(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self.refuse()
        except BaseException:
            work.close()
            raise

    def refuse(self) -> None:
        """Raise SyncInLoop or AfterFork if `run` would.

        During interpreter shutdown the loop's thread is gone, and nothing may wait for it. Only
        finalizers run then, mostly of generators: a GeneratorExit ends them quietly.
        """
        if sys.is_finalizing():
            raise GeneratorExit
        refuse_in_loop()
        if os.getpid() != self.pid:
            raise AfterFork(self.pid)

    def post(self, call: Callable[[], None]) -> None:
        """Schedule a call on the loop, in the order of posting. Raises AfterFork."""
        if os.getpid() != self.pid:
            raise AfterFork(self.pid)
        self.loop.call_soon_threadsafe(call)

    def future(self) -> Arrival:
        """Return a result that the loop resolves and a thread waits for."""
        return Arrival()


class LoopPortal(Portal):
    """The bridge from a worker thread to a running loop of an async program that waits for the
    thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = os.getpid()
        self.loop = loop
        self._lock = threading.Lock()
        self._running: Arrival | None = None
        self._is_ended = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as `Portal.run` does. Raises CancelledError once the program no longer
        waits.
        """
        self._accept(work)
        with self._lock:
            if self._is_ended:
                work.close()
                raise CancelledError
            arrival = self._running = arriving(work, self.loop)
        result: T = arrival.result()
        return result

    def end(self) -> None:
        """Cancel what runs, and accept nothing more."""
        with self._lock:
            self._is_ended = True
            if self._running is not None:
                self.loop.call_soon_threadsafe(self._running.cancel)


def demand_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise OtherLoop unless the running event loop is the given one."""
    if asyncio.get_running_loop() is not loop:
        raise OtherLoop


def in_loop() -> bool:
    """Return whether an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_in_loop() -> None:
    """Raise SyncInLoop inside a running event loop."""
    if in_loop():
        raise SyncInLoop


_lock = threading.Lock()
_portal: Portal | None = None


def portal() -> Portal:
    """Return this process's portal."""
    global _portal  # noqa: PLW0603 -- one per process by design
    with _lock:
        if _portal is None or _portal.pid != os.getpid():
            _portal = Portal()
        return _portal


def _forked() -> None:
    global _portal, _lock  # noqa: PLW0603 -- the parent's thread and lock are not the child's
    _portal = None
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
