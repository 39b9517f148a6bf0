"""Requests outside of sessions that are under way.

Such a request may take long, and who asks must be able to tell a service that is at work from one
that hangs. So it is answered within `PENDING_S` in any case: with what came of it, or with "not
yet"; then its client asks again under the same nonce. What nobody asks for any more is ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import msgspec

from hansard.client.protocol import wire
from hansard.client.protocol.errors import ServiceGone
from hansard.client.protocol.wire import Pending


class _Question(msgspec.Struct):
    task: asyncio.Task[bytes]
    heard: float
    is_waited_for: bool = False


class Questions:
    """Requests by the principal's name and nonce. On the service's loop."""

    def __init__(self, instance: str) -> None:
        self.told = 0
        """How often "not yet" was answered."""
        self._pending = wire.encode(Pending(instance))
        self._open: dict[tuple[str, str], _Question] = {}
        self._count: Counter[str] = Counter()

    def under_way(self, name: str) -> int:
        """How many a principal has."""
        return self._count[name]

    def knows(self, name: str, nonce: str) -> bool:
        """Whether one is under way, or its answer was not fetched yet."""
        return (name, nonce) in self._open

    def begin(self, name: str, nonce: str, task: asyncio.Task[bytes]) -> None:
        """One is under way from now on."""
        task.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # it was looked at
        self._open[name, nonce] = _Question(task, time.monotonic())
        self._count[name] += 1

    async def answer(self, name: str, nonce: str, pending_s: float) -> bytes | None:
        """What came of it, or "not yet"; None where another answer to it is waited for already.

        Raises what it raised, and ServiceGone for one that is not known or was ended.
        """
        found = self._open.get((name, nonce))
        if found is None:
            why = "it knows of no such request, or ended it since nobody asked for its answer"
            raise ServiceGone(why)
        if found.is_waited_for:
            return None
        found.is_waited_for = True
        try:
            await asyncio.wait({found.task}, timeout=pending_s)
        finally:
            found.is_waited_for = False
            found.heard = time.monotonic()
        if not found.task.done():
            self.told += 1
            return self._pending
        self._forget(name, nonce)
        if found.task.cancelled():
            why = "it ended the request"
            raise ServiceGone(why)
        return found.task.result()

    def sweep(self, heard_before: float) -> None:
        """End what nobody has asked for since a moment (`time.monotonic`)."""
        self._end(lambda each: not each.is_waited_for and each.heard < heard_before)

    def close(self) -> None:
        """End them all."""
        self._end(lambda _: True)

    def _end(self, which: Callable[[_Question], bool]) -> None:
        for (name, nonce), each in list(self._open.items()):
            if which(each):
                each.task.cancel()
                if not each.is_waited_for:
                    self._forget(name, nonce)

    def _forget(self, name: str, nonce: str) -> None:
        if self._open.pop((name, nonce), None) is not None:
            self._count[name] -= 1
            if not self._count[name]:
                del self._count[name]
