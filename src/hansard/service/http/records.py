"""The open records of the workspaces that requests name."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from hansard.agents.access.principals import Authenticator, Denials, Principal
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.bus.jetstream import BrokerOptions
from hansard.bus.loggers import logger, unexpected
from hansard.client.opening import Broker, data_dir_of, open_with_tables, raw_of
from hansard.client.options import Defaults
from hansard.client.record import AsyncRecord
from hansard.domain import ids
from hansard.domain.errors import HansardError
from hansard.inspect.answer import Answer
from hansard.operations.declare import TRUSTED, Context, Operation
from hansard.operations.protocol.faults import NotOffered
from hansard.projections.snapshots import Reader
from hansard.projections.sql_sandbox.rows import Bounds
from hansard.projections.sql_sandbox.sandbox import Door
from hansard.projections.table_files import TableFiles
from hansard.service.workspace_requests import Asker, RoleContext, RoleTables, WorkspaceRequests
from hansard.settings import Settings

WORKS_MAX = 2
"""Works that were put off and are done at the same time; they leave the loop to requests."""

END_S = 10.0
"""Longest wait for work that is under way when the listener ends, in seconds."""

IDLE_S, SWEEP_S = 300.0, 5.0
"""Seconds without a request after which a workspace is closed, and between two checks."""

WORKERS = Bounds(workers_max=2, spares=0)
"""Workers for queries of the operator on one workspace; one is started by the first query."""

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R", bound=Answer)

_log = logger(__name__)


class _Shared(Generic[T]):
    """Something open, which is entered and left in a task of its own."""

    def __init__(self, opening: AbstractAsyncContextManager[T]) -> None:
        self.opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.ending = asyncio.Event()
        self.users = 0
        self.used_s = time.monotonic()
        self.task = asyncio.create_task(self._run(opening))

    async def _run(self, opening: AbstractAsyncContextManager[T]) -> None:
        try:
            async with opening as value:
                self.opened.set_result(value)
                await self.ending.wait()
        except Exception as error:  # noqa: BLE001 -- its users get it, else the log
            if self.opened.done():
                _log.warning("a workspace or client did not close", **unexpected(error))
            else:
                self.opened.set_exception(error)
                self.opened.exception()  # nobody may wait for it any more


class Pool(Generic[K, T]):
    """What is opened by its first use, shared by all, and closed once nothing used it for long.

    Args:
        idle_s: Returns the seconds without a use after which one is closed.
        is_pinned: Returns whether one stays open all the same.
    """

    def __init__(
        self, idle_s: Callable[[], float], is_pinned: Callable[[T], bool] = lambda _: False
    ) -> None:
        self.kept: dict[K, _Shared[T]] = {}
        self._idle_s, self._is_pinned = idle_s, is_pinned
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweep = asyncio.create_task(self._close_idle())

    @contextlib.asynccontextmanager
    async def use(
        self, key: K, opening: Callable[[], AbstractAsyncContextManager[T]]
    ) -> AsyncGenerator[T]:
        """Yield what is open under a key, which stays open meanwhile. Raises as `opening`."""
        shared = self.kept.get(key)
        if shared is None:
            shared = self.kept[key] = _Shared(opening())
            self._tasks.add(shared.task)
            shared.task.add_done_callback(partial(self._ended, key, shared))
        shared.users += 1
        try:
            yield await asyncio.shield(shared.opened)  # one cut off leaves nothing half open
        finally:
            shared.users -= 1
            shared.used_s = time.monotonic()

    def close(self, key: K) -> None:
        """Start closing the member with this key; its next use opens a new one."""
        self.kept.pop(key).ending.set()

    async def aclose(self) -> None:
        """Close all, and wait for it."""
        self._sweep.cancel()
        for key in list(self.kept):
            self.close(key)
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def opened(self) -> dict[K, T]:
        """What is open now."""
        return {
            key: each.opened.result()
            for key, each in self.kept.items()
            if each.opened.done() and not each.opened.exception()
        }

    def _ended(self, key: K, shared: _Shared[T], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self.kept.get(key) is shared:  # else another one has its place
            del self.kept[key]

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            late_s = time.monotonic() - self._idle_s()
            for key, value in self.opened.items():
                shared = self.kept[key]
                if not shared.users and shared.used_s <= late_s and not self._is_pinned(value):
                    self.close(key)


class Later:
    """Work that is done once after a delay; what waits at the end of the listener is done then."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(WORKS_MAX)
        self._ending = asyncio.Event()

    def __call__(self, name: str, delay_s: float, work: Callable[[], Awaitable[object]]) -> None:
        """Do `work` after `delay_s` seconds, instead of what waits under this name."""
        if name in self._waiting:
            self._waiting[name].cancel()
        task = self._waiting[name] = asyncio.create_task(self._do(name, delay_s, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, name: str, delay_s: float, work: Callable[[], Awaitable[object]]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._ending.wait()
        del self._waiting[name]
        try:
            async with self._places:
                await work()
        except HansardError as error:
            _log.warning("work of the listener failed", work=name, error=str(error))
        except Exception as error:  # noqa: BLE001 -- the log gets its place, and the rest continues
            _log.warning("work of the listener failed", work=name, **unexpected(error))

    async def end(self) -> None:
        """Do what waits, and wait for it at most `END_S` seconds."""
        self._ending.set()
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=END_S)
            for task in left:
                task.cancel()


class RoleCallerContext(Context):
    """The context of a record for a caller in a role, which behaves as for a restricted agent.

    Trusted methods are not offered; each operation is checked, takes its turn, and is recorded as
    if it had been sent to the service over the broker.
    """

    is_remote = True

    def __init__(self, role: RoleContext, requests: WorkspaceRequests) -> None:
        self._asker = role.asker
        self._requests = requests

    def demand_own(self, method: str, by: str) -> None:
        """Raise NotOffered: a principal acts in its own name."""
        if by != OS_USER:
            raise NotOffered(f"record.{method}(by=)", TRUSTED)

    async def send(
        self, operation: Operation, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run an operation as the role. Raises RoleRefused, NotOffered, ServiceBusy."""
        query = operation.build_request(args, kwargs, None)
        return await self._requests.perform(operation, self._asker, query)

    def read(self, reads: Callable[[Reader], R], what: str, *words: object) -> Awaitable[R]:
        """Run one of our own reads on the role's tables."""
        return self._requests.read(self._asker, reads, what, *words)


class OpenWorkspace:
    """An open workspace: its record, its tables for roles, and the checks of its tokens."""

    def __init__(self, settings: Settings, record: AsyncRecord, runtime: BrokerOptions) -> None:
        self.settings = settings
        self.record = record
        self.runtime = runtime
        self.raw = partial(raw_of, runtime, settings.workspace)
        """Open the log for the block, without decoding its events."""
        self.tables = RoleTables(settings, record.workspace)
        self.requests = WorkspaceRequests(self.tables)
        self.denials = Denials(record.workspace)
        self.pinned = False
        """True if a slice keeps something for it: it is then not closed before the listener is."""
        self._authenticator: asyncio.Task[Authenticator] | None = None
        self._parts: dict[type[Any], Any] = {}
        self.ends = contextlib.AsyncExitStack()
        """What is closed with it."""
        self._doors: dict[bool, Door] = {}
        self._doors_lock = asyncio.Lock()

    @property
    def name(self) -> str:
        """The name of the workspace."""
        return self.settings.workspace

    def part(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return the workspace's object of a type, made on first use."""
        if kind not in self._parts:
            self._parts[kind] = make()
        part: T = self._parts[kind]
        return part

    async def authenticator(self) -> Authenticator:
        """Return the checks of tokens, which follow the principals. Raises Unreachable, Corrupt."""
        task = self._authenticator
        if task is None or (task.done() and task.exception() is not None):
            opening = Authenticator.open(self.record.workspace)
            task = self._authenticator = asyncio.create_task(opening)
        return await asyncio.shield(task)

    async def door(self, *, arrow: bool) -> Door:
        """Return the workers for queries of the operator; they are kept until it is closed."""
        async with self._doors_lock:
            if arrow not in self._doors:
                place = TableFiles.of(data_dir_of(self.settings), self.name)
                door = Door(place, WORKERS, arrow=arrow)
                self._doors[arrow] = await self.ends.enter_async_context(door)
        return self._doors[arrow]

    async def role_context(self, who: Principal) -> RoleContext:
        """Return the workspace and tables as a principal's role sees them."""
        asker = await Asker.of(await self.authenticator(), self.record.workspace, who)
        return RoleContext(asker, self.tables)

    async def close(self) -> None:
        """Close it. Raises as closing a record does."""
        await self.ends.aclose()
        if self._authenticator is not None:
            with contextlib.suppress(HansardError):
                await (await self._authenticator).close()
        with contextlib.suppress(HansardError):
            await self.denials.close()
        await self.record.close()


class Records:
    """The open workspaces, opened by their first request and closed when idle."""

    def __init__(self, settings: Settings, broker: Broker, only: Sequence[str] | None) -> None:
        self.settings = settings
        self.broker = broker
        self.only = None if only is None else frozenset(only)
        self.later = Later()
        self._pool = Pool[str, OpenWorkspace](lambda: IDLE_S, lambda each: each.pinned)

    async def aclose(self) -> None:
        """Do what was put off, and close the workspaces."""
        await self.later.end()
        await self._pool.aclose()

    @property
    def opened(self) -> dict[str, OpenWorkspace]:
        """The workspaces that are open now, by name."""
        return self._pool.opened

    def of(self, workspace: str | None) -> AbstractAsyncContextManager[OpenWorkspace]:
        """Yield an open workspace, which stays open meanwhile.

        Raises BadName, NotFound, and as `connect`.
        """
        name = ids.workspace_name(workspace or self.settings.workspace)
        return self._pool.use(name, partial(self._opened, name))

    @contextlib.asynccontextmanager
    async def _opened(self, name: str) -> AsyncGenerator[OpenWorkspace]:
        await self._check(name)
        settings = msgspec.structs.replace(self.settings, workspace=name)
        workspace, tables = await open_with_tables(settings)
        record = AsyncRecord(workspace, Defaults.of(settings, {}), tables)
        opened = OpenWorkspace(settings, record, self.broker.runtime)
        try:
            yield opened
        finally:
            await opened.close()

    async def names(self) -> list[str]:
        """Return the names of the workspaces that are served. Raises Unreachable."""
        if self.only is not None:
            return sorted(self.only)
        async with raw_of(self.broker.runtime, self.settings.workspace, damaged=True) as raw:
            return sorted(await raw.workspaces())

    async def _check(self, name: str) -> None:
        """Raise NotFound for a workspace that is not served here; the default one is created."""
        if self.only is not None and name not in self.only:
            known = ", ".join(sorted(self.only))
            raise NotFound(f"workspace {name!r}", f"this listener serves only: {known}")
        if name != self.settings.workspace and name not in await self.names():
            raise NotFound(f"workspace {name!r}", f"create it: hansard up --workspace {name}")
