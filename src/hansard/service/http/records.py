"""The open records of the workspaces that requests name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from hansard.agents.access.principals import Authenticator, Denials
from hansard.bus.errors import NotFound
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.loggers import logger, unexpected
from hansard.client.opening import Broker, open_with_tables
from hansard.client.options import Defaults
from hansard.client.record import AsyncRecord
from hansard.domain import ids
from hansard.domain.errors import HansardError
from hansard.service.running import Tables
from hansard.settings import Settings

WORKS_MAX = 2
"""Works that were put off and are done at the same time; they leave the loop to requests."""

END_S = 10.0
"""Longest wait for work that is under way when the listener ends, in seconds."""

_log = logger(__name__)


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


class OpenWorkspace:
    """An open workspace: its record, its tables for roles, and the checks of its tokens."""

    def __init__(self, settings: Settings, record: AsyncRecord) -> None:
        self.settings = settings
        self.record = record
        self.tables = Tables(settings, record.workspace)
        self.denials = Denials(record.workspace)
        self._authenticator: asyncio.Task[Authenticator] | None = None

    @property
    def name(self) -> str:
        """The name of the workspace."""
        return self.settings.workspace

    async def authenticator(self) -> Authenticator:
        """Return the checks of tokens, which follow the principals. Raises Unreachable, Corrupt."""
        task = self._authenticator
        if task is None or (task.done() and task.exception() is not None):
            opening = Authenticator.open(self.record.workspace)
            task = self._authenticator = asyncio.create_task(opening)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Close it. Raises as closing a record does."""
        if self._authenticator is not None:
            with contextlib.suppress(HansardError):
                await (await self._authenticator).close()
        with contextlib.suppress(HansardError):
            await self.denials.close()
        await self.record.close()


class Records:
    """The open workspaces."""

    def __init__(self, settings: Settings, broker: Broker, only: str | None) -> None:
        self.settings = settings
        self.broker = broker
        self.only = only
        self._open: dict[str, asyncio.Task[OpenWorkspace]] = {}
        self.later = Later()

    async def aclose(self) -> None:
        """Do what was put off, and close the workspaces."""
        await self.later.end()
        for opening in self._open.values():
            with contextlib.suppress(HansardError):
                await (await opening).close()

    @contextlib.asynccontextmanager
    async def of(self, workspace: str | None) -> AsyncGenerator[OpenWorkspace]:
        """Yield an open workspace. Raises BadName, NotFound, and as `connect`."""
        name = ids.workspace_name(workspace or self.settings.workspace)
        opening = self._open.get(name)
        if opening is None or (opening.done() and opening.exception() is not None):
            opening = self._open[name] = asyncio.create_task(self._opened(name))
        yield await asyncio.shield(opening)  # a request that is cut off leaves nothing half open

    async def _opened(self, name: str) -> OpenWorkspace:
        await self._check(name)
        settings = msgspec.structs.replace(self.settings, workspace=name)
        workspace, tables = await open_with_tables(settings)
        return OpenWorkspace(settings, AsyncRecord(workspace, Defaults.of(settings, {}), tables))

    async def names(self) -> list[str]:
        """Return the names of the workspaces that are served. Raises Unreachable."""
        if self.only is not None:
            return [self.only]
        raw = await RawWorkspace.open(self.broker.runtime, self.settings.workspace, damaged=True)
        try:
            return sorted(await raw.workspaces())
        finally:
            await raw.close()

    async def _check(self, name: str) -> None:
        """Raise NotFound for a workspace that is not served here; the default one is created."""
        if self.only not in (None, name):
            raise NotFound(f"workspace {name!r}", f"this listener serves only {self.only!r}")
        if name == self.settings.workspace:
            return
        if name not in await self.names():
            raise NotFound(f"workspace {name!r}", f"create it: hansard up --workspace {name}")
