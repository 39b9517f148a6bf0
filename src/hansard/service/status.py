"""How the broker and a workspace stand, as the settings lead there."""

from __future__ import annotations

from hansard.bus.jetstream.raw import RawWorkspace
from hansard.bus.server import private_copy
from hansard.bus.server.lease import peek
from hansard.client.opening import Broker, check_data_dir, data_dir_of, find_broker, reading
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
        raw = await RawWorkspace.open(broker.runtime, settings.workspace)
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
            async with reading(settings) as workspace:
                held = await workspace_status(
                    workspace.log, place, figures, replicas=asked, served=served
                )
                held.reflects = str(daily(settings) or "")
    finally:
        await broker.release()
    return Status(broker=told, workspace=held, workspaces=workspaces)


def broker_status(settings: Settings, broker: Broker) -> BrokerStatus:
    """A running broker."""
    folder = data_dir_of(settings) if settings.nats_url is None else None
    return status_of(broker.runtime.urls, broker.durability, folder)
