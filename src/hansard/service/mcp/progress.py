"""Word of a call that takes long, for a client that asked to be told: that it goes on, and what it
waits for. A call that is answered at once brings none.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from hansard.agents.policy.approvals import listed
from hansard.bus.loggers import logger, unexpected
from hansard.domain.approval import ApprovalStatus
from hansard.service.mcp.sessions import Sessions

FIRST_S, GROWTH, MOST_S = 1.0, 2, 5.0
"""After so many seconds the first word comes, each next one after twice as long, and never later
than the last says: a client that gives up on a silent call commonly waits for a minute.
"""

Report = Callable[[float, float | None, str], Awaitable[None]]
"""Is given the seconds since the call began, how many it may take at most, where that was said, and
what it waits for.
"""

_log = logger(__name__)


@contextlib.asynccontextmanager
async def reporting(
    sessions: Sessions, name: str, arguments: Mapping[str, Any], report: Report | None
) -> AsyncGenerator[None]:
    """Report while what is inside goes on; without `report` nobody asked."""
    if report is None:
        yield
        return
    telling = asyncio.create_task(_telling(sessions, name, arguments, report))
    try:
        yield
    finally:
        telling.cancel()
        await asyncio.wait([telling])


async def _telling(
    sessions: Sessions, name: str, arguments: Mapping[str, Any], report: Report
) -> None:
    began_s, pause_s = time.monotonic(), FIRST_S
    most = arguments.get("timeout_s")
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, MOST_S)
        try:
            what = await _awaited(sessions, name, arguments)
            passed_s = round(time.monotonic() - began_s, 3)
            total_s = float(most) if isinstance(most, int | float) and most >= passed_s else None
            await report(passed_s, total_s, what)
        except Exception as error:  # noqa: BLE001 -- the call goes on whether or not it is told of
            _log.debug("no word of a call", call=name, **unexpected(error))


async def _awaited(sessions: Sessions, name: str, arguments: Mapping[str, Any]) -> str:
    """What a call waits for: an answer of a person's, what it names, or its own work."""
    work = sessions.under_way(arguments.get("run_id"), in_run=True)
    if work is not None and sessions.workspace is not None:
        for each in await listed(sessions.workspace, [work.session.run]):
            asked, name_of = each.approval.asked, each.approval.id
            if asked.agent == work.session.agent and each.standing is ApprovalStatus.PENDING:
                return f"{asked.tool} waits for a person: hansard approvals grant {name_of}"
    for field in ("key", "task"):
        if name == "team_wait_for" and arguments.get(field) is not None:
            return f"waiting for {field} {arguments[field]!r:.80}"
    return "waiting for a task" if name == "team_claim" else f"{name} is under way"
