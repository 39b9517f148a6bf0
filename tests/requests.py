"""What a client asks of the broker, and what it is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream._client import Broker

WAIT_S = 30.0


class Asked:
    """`subjects` of what one log's connections sent, `received` the messages they were sent."""

    def __init__(self, log: JetStreamLog) -> None:
        self.subjects: list[str] = []
        self.brokers = (log._reads, log._writes)
        self._before = self._in()
        self._more = asyncio.Event()

    @property
    def received(self) -> int:
        """Messages since the counting began, answers and what was pushed."""
        return self._in() - self._before

    async def until(self, part: str) -> None:
        """Until something was sent whose subject has a part."""
        async with asyncio.timeout(WAIT_S):
            while not any(part in subject for subject in self.subjects):
                self._more.clear()
                await self._more.wait()

    def sent(self, subjects: list[str]) -> None:
        """Count some more."""
        self.subjects.extend(subjects)
        self._more.set()

    def _in(self) -> int:
        return sum(int(broker._nc.stats["in_msgs"]) for broker in self.brokers)


@contextlib.contextmanager
def counted(log: object) -> Generator[Asked]:
    """Count while the block runs; everything is sent as it would be."""
    assert isinstance(log, JetStreamLog)
    asked, original = Asked(log), Broker.send_all

    async def send_all(self: Broker, messages: list[tuple[str, bytes, str, bytes]]) -> None:
        if self in asked.brokers:
            asked.sent([subject for subject, *_ in messages])
        await original(self, messages)

    Broker.send_all = send_all  # type: ignore[method-assign] # counts, and sends
    try:
        yield asked
    finally:
        Broker.send_all = original  # type: ignore[method-assign]
