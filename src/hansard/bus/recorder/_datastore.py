"""What the recorders of one factory share: two connections, opened when first needed.

The library calls from any thread and waits; the work is done on the process's one event loop. A
call blocks its thread, also one that runs an event loop of its own, as every recorder of the
library does.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from eventsourcing.persistence import InterfaceError, ProgrammingError

from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.log import named
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.portal import portal
from hansard.bus.recorder._access import Access
from hansard.bus.recorder._errors import translated
from hansard.bus.recorder._stream import RecorderStream
from hansard.bus.server.hosting import Host
from hansard.bus.server.lease import Login

FINISH_S = 1.0
"""How long `close` lets calls of other threads finish; they mostly take milliseconds."""

CANCELLED_END_S = 5.0
"""How long `close` waits for what it cancelled: a subscription drops its consumer, which the server
would do too.
"""

T = TypeVar("T")


class Connections:
    """One process's connections: one for writes, one for reads and following."""

    def __init__(
        self,
        writes: Broker,
        reads: Broker,
        admin: BrokerOptions | None,
        host: Host | None,
        replicas: int | None = None,
    ) -> None:
        self.writes = writes
        self.direct = Direct(reads)
        self.points = Direct(writes, self.direct.known)
        self.reads = reads
        self.running: set[asyncio.Task[Any]] = set()
        self.followers: set[asyncio.Task[Any]] = set()
        self.checked: set[str] = set()
        self._admin = admin
        self._host = host
        self._replicas = replicas

    @classmethod
    async def open(cls, access: Access) -> Connections:
        """Connect, to the embedded broker if no other is named. Raises BusError."""
        host = None
        runtime, admin = access.outside, None
        if runtime is None:
            host = await Host.open(access.data_dir, access.durability)
            runtime = _options(host, host.info.runtime)
            admin = _options(host, host.info.admin)
        writes = None
        try:
            writes = await Broker.open(named(runtime, "writes"))
            reads = await Broker.open(named(runtime, "reads"))
        except BaseException:
            if writes is not None:
                await writes.close()
            if host is not None:
                host.close()
            raise
        return cls(writes, reads, admin, host, access.replicas)

    async def create(self, place: RecorderStream) -> None:
        """Make a stream where it is missing, as the administrator where there is one."""
        if self._admin is None:
            await place.create(self.writes, self._replicas)
        else:
            administrator = await Broker.open(self._admin)
            try:
                await place.create(administrator, self._replicas)
            finally:
                await administrator.close()
        await self.check(place)

    async def check(self, place: RecorderStream) -> None:
        """Look once whether a stream is there and as it must be."""
        if place.stream not in self.checked:
            await place.check(self.writes)
            if self._host is not None:
                self._host.hold(place.stream)
            self.checked.add(place.stream)

    async def close(self) -> None:
        """End what runs, close both connections, let go of the embedded broker."""
        calls = self.running - self.followers
        if calls:
            await asyncio.wait(calls, timeout=FINISH_S)
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running, timeout=CANCELLED_END_S)
        await self.writes.close()
        await self.reads.close()
        if self._host is not None:
            self._host.close()


def _options(host: Host, login: Login) -> BrokerOptions:
    return BrokerOptions(
        urls=(host.info.url,),
        user=login.user,
        password=login.password,
        name="hansard recorder",
        host=host,
    )


class _Opening:
    """Opens once per process: after a fork the parent's sockets and loop are not the child's.

    What a parent opened is kept, unused, in its child: closing it there would write on a socket
    that both share.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._by_process: dict[int, asyncio.Task[Connections]] = {}
        self.closed = False

    @property
    def is_open(self) -> bool:
        """Whether this process has connections, or is about to."""
        return os.getpid() in self._by_process

    async def opened(self) -> Connections:
        """This process's connections. Only called on the loop, so nobody opens twice."""
        if self.closed:
            message = "the factory was closed: construct another"
            raise InterfaceError(message)
        process = os.getpid()
        task = self._by_process.get(process)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.get_running_loop().create_task(Connections.open(self._access))
            self._by_process[process] = task
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close this process's connections; later calls raise InterfaceError."""
        self.closed = True
        task = self._by_process.pop(os.getpid(), None)
        if task is not None:
            try:
                connections = await task
            except BusError:  # it never opened, and said so to who asked
                return
            await connections.close()


class Datastore:
    """Where the recorders of one factory write and read.

    Closed by `close()`, else when it is collected.
    """

    def __init__(self, access: Access) -> None:
        self._opening = _Opening(access)
        self._finalizer = weakref.finalize(self, _let_go, self._opening)
        self._finalizer.atexit = False  # at the end of the process the kernel closes everything

    def run(self, work: Callable[[Connections], Awaitable[T]]) -> T:
        """Do some work on the loop and wait for it. Raises the library's errors.

        A KeyboardInterrupt does not cancel it; closing the factory in another thread does.
        """
        with translated():
            try:
                return self.start(work).result()
            except CancelledError as error:
                message = (
                    "the factory was closed in another thread while this was waited for: "
                    "what was to be inserted may be stored or not"
                )
                raise InterfaceError(message) from error

    def start(self, work: Callable[[Connections], Awaitable[T]]) -> Future[T]:
        """Have some work begun on the loop."""

        async def working() -> T:
            connections = await self._opening.opened()
            task = asyncio.current_task()
            if task is None:
                return await work(connections)
            connections.running.add(task)
            try:
                return await work(connections)
            finally:
                connections.running.discard(task)
                connections.followers.discard(task)

        return _posted(working())

    def close(self) -> None:
        """Close the connections and let go of the embedded broker. May be called again."""
        if self._finalizer.detach() is not None:
            with translated():
                _posted(self._opening.close()).result()


def _posted(work: Coroutine[Any, Any, T]) -> Future[T]:
    loop = portal().loop
    if _runs_here(loop):
        work.close()
        message = "a recorder was called on Hansard's own event loop, which it would block for ever"
        raise ProgrammingError(message)
    return asyncio.run_coroutine_threadsafe(work, loop)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _let_go(opening: _Opening) -> None:
    """Close without waiting: the collector runs in any thread, the loop's own included."""
    if opening.is_open:
        asyncio.run_coroutine_threadsafe(opening.close(), portal().loop)
