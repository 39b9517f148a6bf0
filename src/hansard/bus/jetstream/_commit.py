"""Sending commits: straight where one caller waits, grouped where many do.

On a server that syncs every message, each ack costs an fsync; an atomic batch costs about 4 ms
and one fsync whatever its size. So few callers publish side by side, and many share a batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from hansard.bus.jetstream.calls import Known, publish, publish_all
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.wire import FIRST, NoAnswer, Rejected
from hansard.bus.portal import own_task

SINGLES_MAX = 8
"""Single publishes in flight in strict mode: the server syncs them one after the other anyway."""

GROUP_MIN = 16
"""Fewest waiting commits that are worth a batch: 16 fsyncs against one and the batch's own cost."""

GROUP_WHOLE_MAX = 128
"""Up to this many go together. Of more, half: while the server commits those, their successors
are encoded here (256 callers: 27,000 commits/s instead of 19,000)."""

GROUP_MAX = 512
GROUP_BYTES_MAX = 4 * 1024 * 1024
"""Largest batch: about 12 ms, and half of what the connection buffers."""


class _Waiting(msgspec.Struct):
    subject: str
    body: bytes
    future: asyncio.Future[int | None]


class Committer:
    """Publishes commits of one process to the log that `known` describes. Only `send` is called
    from outside.
    """

    def __init__(self, broker: Broker, known: Known, *, group: bool) -> None:
        self._broker = broker
        self._known = known
        self._group = group
        self._waiting: deque[_Waiting] = deque()
        self._singles = 0
        self._batch: asyncio.Task[None] | None = None
        self._scheduled = False
        self._crowded = False

    async def send(self, subject: str, body: bytes, headers: bytes) -> int:
        """Publish one commit once; returns its position.

        Raises Rejected (nothing stored), NoAnswer (unknown), NoResponders. Cancelling it leaves
        the outcome open; others are not affected.
        """
        if not self._group or headers is not FIRST:
            return (await publish(self._broker, subject, body, headers, self._known)).seq
        if self._singles >= SINGLES_MAX or self._waiting or self._crowded:
            position = await self._queue(subject, body)
            if position is not None:
                return position
        else:
            self._singles += 1
        try:
            return (await publish(self._broker, subject, body, headers, self._known)).seq
        finally:
            self._singles -= 1
            if self._waiting:
                self._schedule()

    async def _queue(self, subject: str, body: bytes) -> int | None:
        """Wait for a place in a batch (a position) or a turn alone (None: one of `_singles`)."""
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(subject, body, future))
        self._schedule()
        try:
            return await future
        except asyncio.CancelledError:
            told = future.done() and not future.cancelled() and future.exception() is None
            if told and future.result() is None:  # a turn was given, and is given back
                self._singles -= 1
                self._schedule()
            raise

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Decide for those who wait, one turn of the loop after the first of them came: callers
        whose batch has just ended come back together.
        """
        self._scheduled = False
        while self._waiting and self._waiting[0].future.done():
            self._waiting.popleft()
        if self._batch is not None:
            return
        if len(self._waiting) >= GROUP_MIN:
            self._crowded = True
            self._batch = own_task(self._send_groups())
            return
        self._crowded = False
        while self._waiting and self._singles < SINGLES_MAX:
            self._give_turn(self._waiting.popleft())

    def _give_turn(self, entry: _Waiting) -> None:
        if not entry.future.done():
            self._singles += 1
            entry.future.set_result(None)

    def _take(self) -> list[_Waiting]:
        """Those that go together; of one stream at most one, else the batch would fail."""
        most = min(GROUP_MAX, max(GROUP_WHOLE_MAX, len(self._waiting) // 2))
        group: list[_Waiting] = []
        later: list[_Waiting] = []
        streams: set[str] = set()
        size = 0
        while self._waiting and len(group) < most and size < GROUP_BYTES_MAX:
            entry = self._waiting.popleft()
            if entry.future.done():
                continue
            stream = entry.subject.rpartition(".")[0]
            if stream in streams:
                later.append(entry)
                continue
            streams.add(stream)
            size += len(entry.body)
            group.append(entry)
        self._waiting.extendleft(reversed(later))
        return group

    async def _send_groups(self) -> None:
        """Send groups one after the other while enough wait. The next one is handed to the socket
        before the callers of the last one wake, since what they do next takes its time.
        """
        group = self._take()
        settle: Callable[[], None] | None = None
        try:
            while group:
                messages = [(entry.subject, entry.body, FIRST) for entry in group]
                sending = own_task(publish_all(self._broker, messages, self._known))
                await asyncio.sleep(0)
                if settle is not None:
                    settle()
                await asyncio.wait({sending})
                settle = partial(self._settle, group, sending)
                group = self._take() if len(self._waiting) >= GROUP_MIN else []
        finally:
            if settle is not None:
                settle()
            self._batch = None
            self._schedule()

    def _settle(self, group: list[_Waiting], sent: asyncio.Task[int]) -> None:
        error = None if sent.cancelled() else sent.exception()
        if sent.cancelled() or (error is not None and not isinstance(error, Rejected)):
            for entry in group:
                if not entry.future.done():
                    entry.future.set_exception(NoAnswer(f"a batch of commits: {error!r}"))
        elif error is not None:  # one of them lost: each goes alone and learns for itself
            for entry in group:
                self._give_turn(entry)
        else:
            for position, entry in enumerate(group, sent.result()):
                if not entry.future.done():
                    entry.future.set_result(position)

    async def close(self) -> None:
        """Wait for the batch in flight."""
        if self._batch is not None:
            await asyncio.wait({self._batch})
