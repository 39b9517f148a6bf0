"""Waiting for a state of the log: the log is followed, never polled.

Everything here runs on the bus's loop, and may be cancelled at any time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from hansard.bus.log import EventLog, Stored
from hansard.domain.ids import StreamId

READY, OVER, TIMEOUT = "ready", "over", "timeout"
"""Results of a wait: the state is reached; it can never be reached; the time is up."""


async def until(
    log: EventLog,
    check: Callable[[], Awaitable[str | None]],
    concerns: Callable[[Stored], bool],
    timeout_s: float | None,
    of: StreamId | None = None,
) -> str:
    """Follow the log, or one stream of it, until `check` returns a result; it is called at once,
    and after each commit that `concerns` it.
    """
    after = (
        await log.head()
    )  # before the first `check`, so that no commit between the two is missed
    verdict = await check()
    if verdict is not None:
        return verdict
    try:
        async with asyncio.timeout(timeout_s):
            async with contextlib.aclosing(log.follow(after, of=of)) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
                async for stored in commits:
                    if concerns(stored):
                        verdict = await check()
                        if verdict is not None:
                            return verdict
    except TimeoutError:
        pass
    return TIMEOUT
