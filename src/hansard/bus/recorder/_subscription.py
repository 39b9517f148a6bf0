"""Following an application's notifications: an ordered push consumer behind a blocking iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from queue import SimpleQueue

from eventsourcing.persistence import (
    ApplicationRecorder,
    InterfaceError,
    Notification,
    Subscription,
)

from hansard.bus.jetstream.push import Push
from hansard.bus.portal import portal
from hansard.bus.recorder._datastore import Connections, Datastore
from hansard.bus.recorder._errors import translated
from hansard.bus.recorder._read import head, notified
from hansard.bus.recorder._stream import RecorderStream

CHUNKS_WAITING_MAX = 4
"""Chunks of up to 256 notifications that wait for the iterating thread; then the server waits."""


class JetStreamSubscription(Subscription[ApplicationRecorder]):
    """Notifications after `gt`, without gap or repeat across reconnects and restarts.

    Iterate it in one thread; `stop()` may be called from any. Closing the factory ends it with
    InterfaceError. It needs no thread of its own.
    """

    def __init__(
        self,
        recorder: ApplicationRecorder,
        datastore: Datastore,
        place: RecorderStream,
        gt: int | None = None,
        topics: Sequence[str] = (),
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._place = place
        self._chosen = frozenset(topics)
        self._arrived: SimpleQueue[list[Notification] | None] = SimpleQueue()
        self._chunk: Iterator[Notification] = iter(())
        self._room = asyncio.Semaphore(CHUNKS_WAITING_MAX)
        self._loop = portal().loop
        self._following = datastore.start(self._follow)
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
                self._ended()
            else:
                self._loop.call_soon_threadsafe(self._room.release)
                self._chunk = iter(chunk)
        raise StopIteration

    def _ended(self) -> None:
        self._arrived.put(None)  # whoever comes next does not wait for what will not come
        if self._has_been_stopped:
            return
        if self._following.cancelled():
            message = f"the factory was closed while {self._place.stream!r} was followed"
            raise InterfaceError(message)
        with translated():
            self._following.result()

    async def _follow(self, connections: Connections) -> None:
        task = asyncio.current_task()
        if task is not None:
            connections.followers.add(task)
        await connections.check(self._place)
        # Push takes a start after the end for a sign of lost messages; here it may be meant.
        after = self._last_notification_id or 0
        start = min(after, await head(connections.direct, self._place))
        push = Push(connections.reads, self._place.stream, self._place.everything, start)
        chunks = push.chunks()
        try:
            async for chunk in chunks:
                found = [
                    told
                    for message in chunk
                    if message.position > after
                    and (told := notified(self._place, message, self._chosen)) is not None
                ]
                if found:
                    await self._room.acquire()
                    self._arrived.put(found)
        finally:
            await chunks.aclose()
