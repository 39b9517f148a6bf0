"""A service with all that it needs: who may enter, and where refusals go."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from hansard.agents.denials import Denials
from hansard.agents.gatekeeper import Gatekeeper
from hansard.agents.workspace import Workspace
from hansard.bus.jetstream.options import BrokerOptions
from hansard.service import wire
from hansard.service.door import Service
from hansard.service.lobby import Sql


@contextlib.asynccontextmanager
async def serving(
    workspace: Workspace,
    options: BrokerOptions,
    *,
    sql: Sql | None = None,
    quiet_s: float = wire.QUIET_S_MAX,
) -> AsyncGenerator[Service, None]:
    """Serve a workspace's restricted agents for as long as the block runs.

    Raises Unreachable, Corrupt (who may enter cannot be read).
    """
    async with Denials(workspace) as denials, await Gatekeeper.open(workspace) as gatekeeper:
        service = await Service.open(workspace, options, gatekeeper, denials, sql, quiet_s)
        try:
            yield service
        finally:
            await service.close()
