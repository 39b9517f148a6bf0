"""Following an application's notifications: an ordered push consumer behind a blocking iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from eventsourcing.persistence import ApplicationRecorder, InterfaceError

from hansard.bus.jetstream.push import Push
from hansard.bus.portal import portal
from hansard.bus.recorder._chunked import ChunkedSubscription
from hansard.bus.recorder._datastore import Connections, Datastore
from hansard.bus.recorder._read import head, notified
from hansard.bus.recorder._stream import RecorderStream

CHUNKS_WAITING_MAX = 4
"""Chunks of up to 256 notifications that wait for the iterating thread; then the server waits."""


class JetStreamSubscription(ChunkedSubscription):
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
        super().__init__(recorder, portal().loop, CHUNKS_WAITING_MAX, gt, topics)
        self._place = place
        self._begin(datastore.start(self._follow))

    def _raise_why(self) -> None:
        if self._following.cancelled():
            message = f"the factory was closed while {self._place.stream!r} was followed"
            raise InterfaceError(message)
        super()._raise_why()

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
                await self._hand_on(found)
        finally:
            await chunks.aclose()
