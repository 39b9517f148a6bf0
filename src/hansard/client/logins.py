"""The broker is told whom to let in, as the record says it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator
from functools import partial

from hansard.agents.access import principals
from hansard.agents.workspace import Workspace
from hansard.bus import access
from hansard.bus.loggers import logger
from hansard.bus.server.hosting import join_in_thread
from hansard.client.opening import data_dir_of
from hansard.domain.errors import HansardError
from hansard.settings import Settings

LOOK_S = 30.0
"""Between two looks for tokens that have expired: what their holders reach until then is a service
that refuses them already.
"""

_log = logger(__name__)
_LOGIN = re.compile(r"(?<=://)[^@/\s]+@")


async def tell_broker(settings: Settings, workspace: Workspace) -> bool:
    """Bring the embedded server up to the record; False for an outside one, whose configuration
    is its operator's. The workspace must be open: it holds the server. Raises AccessNotTold.
    """
    if settings.nats_url is not None:
        return False
    await access.tell_server(
        data_dir_of(settings), workspace.log.workspace, partial(principals.broker_users, workspace)
    )
    return True


@contextlib.asynccontextmanager
async def telling(
    settings: Settings, workspace: Workspace, *, look_s: float = LOOK_S
) -> AsyncGenerator[None]:
    """Keep the embedded server up to the record for as long as the block runs: whose token has
    expired is put out, too, although no event says so. Raises AccessNotTold for the first time.
    """
    if not await tell_broker(settings, workspace):
        yield
        return
    task = asyncio.create_task(_keep_told(settings, workspace, look_s))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def _keep_told(settings: Settings, workspace: Workspace, look_s: float) -> None:
    told = await principals.broker_users(workspace)
    while True:
        await asyncio.sleep(look_s)
        try:
            users = await principals.broker_users(workspace)
            if users != told:
                await tell_broker(settings, workspace)
                told = users
        except HansardError as error:  # the server may be on its way back: look again
            _log.warning("the broker could not be told whom to let in", error=str(error))


async def url_of(settings: Settings) -> str:
    """Where the broker is, without anybody's login; waits for one that is being restarted.

    Raises ServerError.
    """
    if settings.nats_url is not None:
        return _LOGIN.sub("", settings.nats_url)
    lease = await join_in_thread(data_dir_of(settings))
    with lease:
        return lease.info.url
