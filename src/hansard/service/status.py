"""How the broker and a workspace stand, as the settings lead there."""

from __future__ import annotations

from pathlib import Path

from hansard.agents import run_index
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.bus.server import private_copy
from hansard.bus.server.lease import peek
from hansard.client.opening import Broker, check_data_dir, data_dir_of, find_broker, reading
from hansard.domain.errors import Corrupt
from hansard.inspect import watch as watches
from hansard.inspect.status import Absent, BrokerStatus, Status, status_of, workspace_status
from hansard.projections.table_files import TableFiles
from hansard.service.reflecting import daily
from hansard.service.running import is_served
from hansard.settings import Settings


async def read_status(settings: Settings, *, start: bool) -> Status:
    """The status; starts no broker unless asked to.

    Raises NotFound (no data directory), Unreachable, ServerError, BadName.
    """
    folder = data_dir_of(settings)
    if settings.nats_url is None and not start and private_copy.origin(folder) is None:
        check_data_dir(settings)
        if peek(folder) is None:
            return Status(broker=BrokerStatus(running=False, embedded=True, data_dir=str(folder)))
    broker = await find_broker(settings)
    try:
        raw = await RawWorkspace.open(broker.runtime, settings.workspace, damaged=True)
        try:
            told = broker_status(settings, broker)
            told.version = told.version or raw.server_version
            workspaces = await raw.workspaces()
            figures = await raw.figures()
        finally:
            await raw.close()
        held = Absent(workspace=settings.workspace)
        if settings.workspace in workspaces:
            place = TableFiles.of(folder, settings.workspace)
            served = await is_served(broker.runtime, settings.workspace)
            asked = settings.nats_replicas or 1
            lives, damage = [], []
            try:
                async with reading(settings) as workspace:
                    lives = await run_index.read(workspace.log)
            except Corrupt as error:
                damage.append(str(error))
            held = workspace_status(
                settings.workspace, lives, place, figures, replicas=asked, served=served
            )
            held.reflects = str(daily(settings) or "")
            held.damage = damage + _found(folder, settings.workspace)
    finally:
        await broker.release()
    return Status(broker=told, workspace=held, workspaces=workspaces)


def _found(folder: Path, workspace: str) -> list[str]:
    """What a 'hansard up' that watches found in a workspace's log."""
    watch = watches.read(folder)
    if watch is None or watch.stale() is not None or workspace not in watch.workspaces:
        return []
    return [each.fact for each in watch.workspaces[workspace].findings]


def broker_status(settings: Settings, broker: Broker) -> BrokerStatus:
    """A running broker."""
    folder = data_dir_of(settings) if settings.nats_url is None else None
    return status_of(broker.runtime.urls, broker.durability, folder)
