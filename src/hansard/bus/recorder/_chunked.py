"""A subscription that is fed from an event loop: notifications in chunks, behind a blocking
iterator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from queue import SimpleQueue

from eventsourcing.persistence import ApplicationRecorder, Notification, Subscription

from hansard.bus.recorder._errors import translated


class ChunkedSubscription(Subscription[ApplicationRecorder]):
    """What both subscriptions have in common; who makes one says by `_begin` what feeds it.

    Iterate it in one thread; `stop()` may be called from any.
    """

    _following: Future[None]

    def __init__(
        self,
        recorder: ApplicationRecorder,
        loop: asyncio.AbstractEventLoop,
        chunks_waiting_max: int,
        gt: int | None,
        topics: Sequence[str],
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._chosen = frozenset(topics)
        self._arrived: SimpleQueue[list[Notification] | None] = SimpleQueue()
        self._chunk: Iterator[Notification] = iter(())
        self._room = asyncio.Semaphore(chunks_waiting_max)
        self._loop = loop

    def _begin(self, following: Future[None]) -> None:
        """What follows the notifications, on the loop; its end is the iteration's."""
        self._following = following
        following.add_done_callback(lambda _: self._arrived.put(None))

    async def _hand_on(self, found: list[Notification]) -> None:
        """Give a chunk to the iterating thread, as soon as there is room."""
        if found:
            await self._room.acquire()
            self._arrived.put(found)

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
                    self._raise_why()
                break
            self._loop.call_soon_threadsafe(self._room.release)
            self._chunk = iter(chunk)
        raise StopIteration

    def _raise_why(self) -> None:
        """Raise what ended the following, if it broke."""
        with translated():
            self._following.result()
