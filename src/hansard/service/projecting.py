"""The projectors of `hansard up`: one per workspace, each into its own file."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable

from hansard.bus import errors
from hansard.bus.errors import StoreGone, Unreachable
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.wire import NoAnswer
from hansard.client.opening import Broker, data_dir_of
from hansard.domain.errors import HansardError
from hansard.projections.errors import Held, NoRoom
from hansard.projections.rows import Batch
from hansard.projections.runner import Projector
from hansard.projections.table_files import TableFiles
from hansard.service.watching import Watcher
from hansard.settings import Settings

TAKE_OVER_S = 1.0
"""Seconds between two attempts while another process projects: it may end."""


TRY_AGAIN_S = 1.0
"""Seconds between two checks for room on the disk."""

TELL_AGAIN_S = 10.0
"""Seconds of success after which the same obstacle is reported again."""

LOOK_S = 2.0
"""Seconds between two checks for new workspaces."""


@contextlib.asynccontextmanager
async def projecting(
    settings: Settings,
    mine: str | None,
    broker: Broker,
    tell: Callable[[str], None],
    stop: asyncio.Event,
    watcher: Watcher,
) -> AsyncGenerator[None]:
    """Keep the tables of every workspace up to date while the block runs, and watch each.

    `mine` is projected first. If one cannot be projected that is reported and stops nothing else;
    an unexpected error sets `stop` and is raised.
    """
    task = asyncio.ensure_future(_project_all(settings, mine, broker, tell, watcher))
    task.add_done_callback(lambda done: stop.set() if _failed(done) else None)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _failed(done: asyncio.Future[None]) -> bool:
    return not done.cancelled() and done.exception() is not None


async def _project_all(
    settings: Settings,
    mine: str | None,
    broker: Broker,
    tell: Callable[[str], None],
    watcher: Watcher,
) -> None:
    """Start a projector for each workspace, present or new."""
    folder = data_dir_of(settings)
    async with asyncio.TaskGroup() as group:
        begun: set[str] = set()
        looked = workspaces(settings, mine, broker, tell)
        async with contextlib.aclosing(looked):
            async for found in looked:
                for name in sorted(found - begun):
                    watcher.workspace(name)
                    place = TableFiles.of(folder, name)
                    group.create_task(_project(place, name, broker, tell, watcher))
                begun |= found


async def workspaces(
    settings: Settings, mine: str | None, broker: Broker, tell: Callable[[str], None]
) -> AsyncGenerator[set[str], None]:
    """Yield the names of the workspaces, periodically; the requested one first."""
    if mine is not None:
        yield {mine}
    while True:
        try:
            raw = await RawWorkspace.open(broker.runtime, settings.workspace, damaged=True)
            try:
                while True:
                    yield set(await raw.workspaces())
                    await asyncio.sleep(LOOK_S)
            finally:
                await raw.close()
        except (Unreachable, NoAnswer):  # it may be back later
            await asyncio.sleep(LOOK_S)
        except HansardError as error:
            tell(f"stopped looking for new workspaces: {error}")
            return


async def _project(
    place: TableFiles,
    workspace: str,
    broker: Broker,
    tell: Callable[[str], None],
    watcher: Watcher,
) -> None:
    """Project; retry once an obstacle is gone: a full disk, an unreachable broker."""
    error_type: type[HansardError] | None = None
    while True:
        began_s = time.monotonic()
        try:
            await _project_once(place, workspace, broker, tell, watcher)
        except (NoRoom, Unreachable, NoAnswer) as error:
            if type(error) is not error_type or time.monotonic() - began_s > TELL_AGAIN_S:
                tell(f"workspace {workspace!r} is not projected for now: {error}")
            error_type = type(error)
        except HansardError as error:
            tell(f"workspace {workspace!r} is not projected: {error}")
            return
        await _has_room(place)


async def _project_once(
    place: TableFiles,
    workspace: str,
    broker: Broker,
    tell: Callable[[str], None],
    watcher: Watcher,
) -> None:
    def moved(batch: Batch, _head: int) -> None:
        watcher.problems(workspace, batch.problems)

    source = await RawWorkspace.open(broker.runtime, workspace)
    try:
        projector = await _taken(source, place, broker, tell)
        try:
            if projector.store.restarted:
                tell(f"rebuilding {str(place.path)!r} from the log: another schema made it")
            await projector.run(moved=moved)
        finally:
            await projector.close()
    finally:
        await source.close()


async def _has_room(place: TableFiles) -> None:
    """Wait at least once, and until there is room to project."""
    while True:
        await asyncio.sleep(TRY_AGAIN_S)
        with contextlib.suppress(OSError):
            await asyncio.to_thread(errors.try_room, place.path.parent.parent)
            return


async def _taken(
    source: RawWorkspace, place: TableFiles, broker: Broker, tell: Callable[[str], None]
) -> Projector:
    """Open the projector as soon as no other process has it.

    Raises StoreGone: tables are not written where a data directory was removed.
    """
    other: int | None = None
    value = False
    while True:
        gone = broker.runtime.host.obstacle() if broker.runtime.host is not None else None
        if isinstance(gone, StoreGone):
            raise gone
        try:
            projector = await Projector.open(source, place)
        except Held as error:
            if not value:
                tell(f"{error}; this one takes over when that one is gone")
            value, other = True, error.pid
        else:
            if value:
                who = f"process {other}" if other else "the other process"
                tell(f"{who} projects into {str(place.path)!r} no more: this one does now")
            return projector
        await asyncio.sleep(TAKE_OVER_S)
