"""Following the workspace's aggregates as the library's subscription: a blocking iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from eventsourcing.persistence import ApplicationRecorder, Notification

from hansard.bus.log import Stored
from hansard.bus.recorder._chunked import ChunkedSubscription

WAITING_MAX = 256
"""Commits that wait for the iterating thread; then the broker waits."""


class NativeSubscription(ChunkedSubscription):
    """Notifications after `gt`, without gap or repeat across reconnects.

    Iterate it in one thread; `stop()` may be called from any.
    """

    def __init__(
        self,
        recorder: ApplicationRecorder,
        loop: asyncio.AbstractEventLoop,
        follow: Callable[[], Any],
        notified: Callable[[Stored], Awaitable[list[Notification]]],
        gt: int | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        super().__init__(recorder, loop, WAITING_MAX, gt, topics)
        self._notified = notified
        self._follow = follow
        self._begin(asyncio.run_coroutine_threadsafe(self._run(), loop))

    async def _run(self) -> None:
        after = self._last_notification_id or 0
        async with aclosing(self._follow()) as commits:
            async for stored in commits:
                found = [
                    each
                    for each in await self._notified(stored)
                    if each.id > after and (not self._chosen or each.topic in self._chosen)
                ]
                await self._hand_on(found)
