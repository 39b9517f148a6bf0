"""The projectors inside `hansard up`: one a workspace, each into a file of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from hansard._connect import Broker
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.commands._open import data_dir_of
from hansard.domain.errors import HansardError
from hansard.projections.errors import Held
from hansard.projections.place import Place
from hansard.projections.runner import Projector
from hansard.settings import Settings

TAKE_OVER_S = 1.0
"""Pause between two tries where another process projects: it may end, and then this one does."""


LOOK_S = 2.0
"""Pause between two looks for workspaces that somebody has begun."""


@contextlib.asynccontextmanager
async def projecting(
    settings: Settings, broker: Broker, tell: Callable[[str], None], stop: asyncio.Event
) -> AsyncGenerator[None]:
    """Keep the tables of every workspace of the broker up to date meanwhile. Why one cannot be is
    told and stops nothing else; what nobody foresaw sets `stop` and is raised.
    """
    task = asyncio.ensure_future(_project_all(settings, broker, tell))
    task.add_done_callback(lambda done: stop.set() if _failed(done) else None)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _failed(done: asyncio.Future[None]) -> bool:
    return not done.cancelled() and done.exception() is not None


async def _project_all(settings: Settings, broker: Broker, tell: Callable[[str], None]) -> None:
    """A projector for each workspace that is there, and for each that somebody begins."""
    folder = data_dir_of(settings)
    async with asyncio.TaskGroup() as group:
        begun: set[str] = set()
        looked = _workspaces(settings.workspace, broker, tell)
        async with contextlib.aclosing(looked):
            async for found in looked:
                for name in sorted(found - begun):
                    group.create_task(_project(Place.of(folder, name), name, broker, tell))
                begun |= found


async def _workspaces(
    mine: str, broker: Broker, tell: Callable[[str], None]
) -> AsyncGenerator[set[str], None]:
    """The names of the workspaces, looked up again and again; first the one that was asked for."""
    yield {mine}
    try:
        raw = await RawWorkspace.open(broker.runtime, mine)
        try:
            while True:
                yield set(await raw.workspaces())
                await asyncio.sleep(LOOK_S)
        finally:
            await raw.close()
    except HansardError as error:
        tell(f"new workspaces are not looked for: {error}")


async def _project(
    place: Place, workspace: str, broker: Broker, tell: Callable[[str], None]
) -> None:
    try:
        source = await RawWorkspace.open(broker.runtime, workspace)
        try:
            projector = await _taken(source, place, tell)
            try:
                await projector.run()
            finally:
                await projector.close()
        finally:
            await source.close()
    except HansardError as error:
        tell(f"workspace {workspace!r} is not projected: {error}")


async def _taken(source: RawWorkspace, place: Place, tell: Callable[[str], None]) -> Projector:
    """The projector, as soon as no other process has one."""
    told = False
    while True:
        try:
            return await Projector.open(source, place)
        except Held as error:
            if not told:
                tell(str(error))
                told = True
        await asyncio.sleep(TAKE_OVER_S)
