"""From settings to a workspace that is there. Whoever only reads makes nothing: no data directory,
no workspace. A mistyped name is an error and not an empty answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.bus.marks import Witness
from hansard.client.connect import find_broker, open_workspace
from hansard.settings import Settings


def data_dir_of(settings: Settings) -> Path:
    """The embedded broker's folder, in full."""
    return Path(settings.data_dir).absolute()


def check_data_dir(settings: Settings) -> None:
    """Raise NotFound where there is no embedded broker's folder, and none other is named."""
    folder = data_dir_of(settings)
    if settings.nats_url is None and not folder.is_dir():
        remedy = "give --data-dir or --nats, or begin a record with 'hansard up' or connect()"
        raise NotFound(f"data directory {str(folder)!r}", remedy)


async def check_workspace(raw: RawWorkspace, witness: Witness | None = None) -> None:
    """Raise NotFound where the broker has no such workspace; with a witness Corrupt where it had
    one.
    """
    found = await raw.workspaces()
    if raw.workspace not in found:
        if witness is not None:
            await raw.refuse_loss(witness)
        known = ", ".join(found) or "none yet"
        raise NotFound(f"workspace {raw.workspace!r}", f"give --workspace; there are: {known}")


@contextlib.asynccontextmanager
async def reading_raw(settings: Settings, *, damaged: bool = False) -> AsyncGenerator[RawWorkspace]:
    """A workspace that exists, undecoded. Raises NotFound, Unreachable, ServerError, BadName, and
    Corrupt where the broker lost something of it; `damaged` only where it is not there at all.
    """
    check_data_dir(settings)
    broker = await find_broker(settings)
    try:
        raw = await RawWorkspace.open(broker.runtime, settings.workspace)
        try:
            await check_workspace(raw, broker.witness)
            if broker.witness is not None and not damaged:
                await raw.refuse_loss(broker.witness)
            yield raw
        finally:
            await raw.close()
    finally:
        await broker.release()


@contextlib.asynccontextmanager
async def reading(settings: Settings) -> AsyncGenerator[Workspace]:
    """A workspace that exists. Raises as `reading_raw`, and Contradiction."""
    async with reading_raw(settings), beginning(settings) as workspace:
        yield workspace


@contextlib.asynccontextmanager
async def beginning(settings: Settings) -> AsyncGenerator[Workspace]:
    """A workspace, made where it is not there. Raises as `open_workspace`."""
    workspace = await open_workspace(settings)
    try:
        yield workspace
    finally:
        await workspace.close()
