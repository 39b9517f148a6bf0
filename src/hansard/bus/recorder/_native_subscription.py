"""Following the workspace's aggregates as the library's subscription: a blocking iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from queue import SimpleQueue
from typing import Any

from eventsourcing.persistence import ApplicationRecorder, Notification, Subscription

from hansard.bus.log import Stored
from hansard.bus.recorder._errors import translated

WAITING_MAX = 256
"""Commits that wait for the iterating thread; then the broker waits."""


class NativeSubscription(Subscription[ApplicationRecorder]):
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
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._chosen = frozenset(topics)
        self._notified = notified
        self._follow = follow
        self._arrived: SimpleQueue[list[Notification] | None] = SimpleQueue()
        self._chunk: Iterator[Notification] = iter(())
        self._room = asyncio.Semaphore(WAITING_MAX)
        self._loop = loop
        self._following = asyncio.run_coroutine_threadsafe(self._run(), loop)
        self._following.add_done_callback(lambda _: self._arrived.put(None))

    def stop(self) -> None:
        """End the iteration, also one that waits in another thread."""
        super().stop()
        self._following.cancel()
        self._arrived.put(None)

    def __next__(self) -> Notification:
        """The next notification; waits for it. Raises OperationalError, InternalError."""
        while not self._has_been_stopped:
            notification = next(self._chunk, None)
            if notification is not None:
                self._last_notification_id = notification.id
                return notification
            chunk = self._arrived.get()
            if chunk is None:
                self._arrived.put(None)  # whoever comes next does not wait for what will not come
                if not self._has_been_stopped:
                    with translated():
                        self._following.result()
                break
            self._loop.call_soon_threadsafe(self._room.release)
            self._chunk = iter(chunk)
        raise StopIteration

    async def _run(self) -> None:
        after = self._last_notification_id or 0
        async with aclosing(self._follow()) as commits:
            async for stored in commits:
                found = [
                    each
                    for each in await self._notified(stored)
                    if each.id > after and (not self._chosen or each.topic in self._chosen)
                ]
                if found:
                    await self._room.acquire()
                    self._arrived.put(found)
