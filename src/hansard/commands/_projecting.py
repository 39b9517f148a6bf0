"""The projector inside `hansard up`."""

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


@contextlib.asynccontextmanager
async def projecting(
    settings: Settings, broker: Broker, tell: Callable[[str], None], stop: asyncio.Event
) -> AsyncGenerator[None]:
    """Keep the workspace's tables up to date meanwhile. Why it cannot is told and stops nothing
    else; what nobody foresaw sets `stop` and is raised.
    """
    task = asyncio.ensure_future(_project(settings, broker, tell))
    task.add_done_callback(lambda done: stop.set() if _failed(done) else None)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _failed(done: asyncio.Future[None]) -> bool:
    return not done.cancelled() and done.exception() is not None


async def _project(settings: Settings, broker: Broker, tell: Callable[[str], None]) -> None:
    place = Place.of(data_dir_of(settings), settings.workspace)
    try:
        source = await RawWorkspace.open(broker.runtime, settings.workspace)
        try:
            projector = await _taken(source, place, tell)
            try:
                await projector.run()
            finally:
                await projector.close()
        finally:
            await source.close()
    except HansardError as error:
        tell(f"nothing is projected: {error}")


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
