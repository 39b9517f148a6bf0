"""Rolling the log of a served workspace, and moving its sealed generations to the archive."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

from hansard.bus.archive import archive_at
from hansard.bus.jetstream import roll
from hansard.bus.jetstream.client import Broker as Connection
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.generations import listed
from hansard.bus.jetstream.log import named
from hansard.bus.marks import Witness
from hansard.bus.sources import Archived
from hansard.client.opening import Broker, alongside, data_dir_of
from hansard.domain.errors import HansardError
from hansard.projections import snapshots
from hansard.projections.table_files import TableFiles
from hansard.settings import Settings

if TYPE_CHECKING:
    from hansard.bus.archive.archived import WorkspaceArchive

TEND_S, RETRY_S = 60.0, 5.0
"""Seconds between two checks of a log: how late a roll may be; after one that failed."""


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
        result = await roll.tend(
            admin, settings.workspace, policy, archive, keep_s=keep_s, witness=witness
        )
        if archive is not None:
            entries, _ = await listed(Direct(admin), settings.workspace)
            await _store_rows(settings, archive, entries)
        return result
    finally:
        await admin.close()


async def _store_rows(
    settings: Settings, archive: WorkspaceArchive, entries: list[Archived]
) -> None:
    """Store the rows of archived generations, once the published tables have them."""
    if not entries:
        return
    with snapshots.holding(TableFiles.of(data_dir_of(settings), settings.workspace)) as current:
        if current is None or current.position < entries[0].last:
            return
        from hansard.projections.archived import store_all_tables  # noqa: PLC0415 -- DuckDB takes long
        from hansard.projections.store import Store  # noqa: PLC0415 -- DuckDB takes long

        with contextlib.closing(Store(current.path, read_only=True)) as store:
            await store_all_tables(archive, store, entries)


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
    async with alongside(_keep(settings, broker, tell)):
        yield


async def _keep(settings: Settings, broker: Broker, tell: Callable[[str], None]) -> None:
    policy = roll.Policy(
        settings.roll_commits or None, settings.roll_hours * 3_600 if settings.roll_hours else None
    )
    obstacle = ""
    while True:
        pause_s = TEND_S
        try:
            for line in (await tend(settings, broker, policy)).lines():
                tell(line)
            obstacle = ""
        except (HansardError, OSError) as error:  # OSError: as of a full disk
            pause_s = RETRY_S  # writers wait if it failed in the middle of a roll
            if str(error) != obstacle:
                obstacle = str(error)
                tell(f"older commits stay on the broker for now: {error}")
        await asyncio.sleep(pause_s)
