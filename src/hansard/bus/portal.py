"""The sync twin's way to the bus: one event loop in one daemon thread per process.

Rebuilt after a fork, since threads do not survive one. Refused inside a running loop, where it
would block that loop: the async client is the remedy.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from hansard.bus.errors import BusError

T = TypeVar("T")


class SyncInLoop(BusError):
    """The sync client was used inside a running event loop; nothing was done."""

    def __init__(self) -> None:
        super().__init__(
            "the sync client was called inside a running event loop, which it would block: "
            "use hansard.AsyncSession or connect_async(...) and await, or call from a thread (in a "
            "notebook: record = await hansard.connect_async(...), session = await record.open(...))"
        )


class AfterFork(BusError):
    """A record opened before a fork was used in the child; nothing was done."""

    def __init__(self, opened_by: int) -> None:
        super().__init__(
            f"process {os.getpid()} was forked from process {opened_by} and used a record opened "
            "there, whose connection and thread a fork does not carry over: "
            "call hansard.connect(...) in the child and use what that returns"
        )
        self.opened_by = opened_by


class Portal:
    """A loop in a thread."""

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
        try:
            self.refuse()
        except BusError:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def watch(self, work: Coroutine[Any, Any, T]) -> T:
        """Like `run`, for what only looks: whatever ends the wait here, cancels it there, too."""
        try:
            self.refuse()
        except BusError:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def refuse(self) -> None:
        """Raise SyncInLoop or AfterFork where `run` would."""
        refuse_in_loop()
        if os.getpid() != self.pid:
            raise AfterFork(self.pid)

    def post(self, call: Callable[[], None]) -> None:
        """Have something called on the loop, in the order of posting. Raises AfterFork."""
        if os.getpid() != self.pid:
            raise AfterFork(self.pid)
        self.loop.call_soon_threadsafe(call)

    def future(self) -> Future[Any]:
        """A future that the loop resolves and a thread waits for."""
        return Future()


class LoopPortal(Portal):
    """The way from a thread of its own to a loop that runs already: that of an async program, which
    waits for the thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = os.getpid()
        self.loop = loop
        self._lock = threading.Lock()
        self._running: Future[Any] | None = None
        self._is_ended = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """As `Portal.run`. Raises CancelledError once the program waits no more."""
        try:
            self.refuse()
        except BusError:
            work.close()
            raise
        with self._lock:
            if self._is_ended:
                work.close()
                raise CancelledError
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
            self._running = future
        return future.result()

    def end(self) -> None:
        """Cancel what runs, and take nothing more."""
        with self._lock:
            self._is_ended = True
            if self._running is not None:
                self._running.cancel()


def in_loop() -> bool:
    """Whether an event loop runs in this thread."""
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
    """This process's portal."""
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
