"""Rolling the log of a served workspace, and moving its sealed generations to the archive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable

from hansard.bus.archive import archive_at
from hansard.bus.jetstream import roll
from hansard.bus.jetstream.client import Broker as Connection
from hansard.bus.jetstream.log import named
from hansard.bus.marks import Witness
from hansard.client.opening import Broker
from hansard.domain.errors import HansardError
from hansard.settings import Settings

TEND_S = 60.0
"""Seconds between two checks of a log: how late a roll may be."""


async def tend(
    settings: Settings, broker: Broker, policy: roll.Policy | None, *, keep_s: float = roll.KEEP_S
) -> roll.Tended:
    """Roll the workspace's log if it is due (at once without a policy), archive what is sealed, and
    delete the streams that the archive has verified. Raises BusError, Corrupt, BadArchive.
    """
    options = broker.admin or broker.runtime
    archive = archive_at(settings.workspace, settings.archive) if settings.archive else None
    admin = await Connection.open(named(options, "roll"))
    try:
        witness: Witness | None = options.witness
        return await roll.tend(
            admin, settings.workspace, policy, archive, keep_s=keep_s, witness=witness
        )
    finally:
        await admin.close()


@contextlib.asynccontextmanager
async def rolling(
    settings: Settings, broker: Broker, tell: Callable[[str], None]
) -> AsyncGenerator[None]:
    """Tend the log while the block runs, if the settings name an archive; report each step, and
    each obstacle once.
    """
    if not settings.archive:
        yield
        return
    task = asyncio.ensure_future(_keep(settings, broker, tell))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _keep(settings: Settings, broker: Broker, tell: Callable[[str], None]) -> None:
    policy = roll.Policy(
        settings.roll_commits or None,
        settings.roll_hours * 3_600 if settings.roll_hours else None,
    )
    obstacle = ""
    while True:
        try:
            for line in (await tend(settings, broker, policy)).lines():
                tell(line)
            obstacle = ""
        except HansardError as error:
            if str(error) != obstacle:
                obstacle = str(error)
                tell(f"older commits stay on the broker for now: {error}")
        await asyncio.sleep(TEND_S)
