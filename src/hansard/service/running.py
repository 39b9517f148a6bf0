"""A service with all that it needs: who may enter, and where refusals go."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator

from hansard.agents.access.authenticator import Authenticator
from hansard.agents.access.denials import Denials
from hansard.agents.workspace import Workspace
from hansard.bus.jetstream.options import BrokerOptions
from hansard.client.protocol import wire
from hansard.service.server import Service
from hansard.service.workspace_requests import Sql


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
    async with Denials(workspace) as denials, await Authenticator.open(workspace) as authenticator:
        service = await Service.open(workspace, options, authenticator, denials, sql, quiet_s)
        try:
            yield service
        finally:
            await service.close()
