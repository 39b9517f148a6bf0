"""Requests of a client to the broker, and the replies."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.client import Broker


class Asked:
    """`requests`: messages that one log's connections sent; `received`: that they were sent."""

    def __init__(self, log: JetStreamLog) -> None:
        self.brokers = (log._reads, log._writes)  # noqa: SLF001 -- what is counted is what goes over these two
        self.requests = 0
        self._before = self._in()

    @property
    def received(self) -> int:
        """Number of messages since the counting began, replies and pushed ones."""
        return self._in() - self._before

    def sent(self, subjects: list[str]) -> None:
        """Count some more."""
        self.requests += len(subjects)

    def _in(self) -> int:
        counts = [broker._nc.stats for broker in self.brokers]  # noqa: SLF001 -- nats-py counts it
        return sum(int(each["in_msgs"]) for each in counts)


@contextlib.contextmanager
def counting(asked: Asked) -> Generator[None]:
    """Count while the block runs; everything is sent as it would be."""
    original = Broker.send_all

    async def send_all(self: Broker, messages: list[tuple[str, bytes, str, bytes]]) -> None:
        if self in asked.brokers:
            asked.sent([subject for subject, *_ in messages])
        await original(self, messages)

    Broker.send_all = send_all  # type: ignore[method-assign] # counts, and sends
    try:
        yield
    finally:
        Broker.send_all = original  # type: ignore[method-assign] # as it was before


@contextlib.contextmanager
def counted(log: object) -> Generator[Asked]:
    """Count a log's requests while the block runs."""
    assert isinstance(log, JetStreamLog)
    asked = Asked(log)
    with counting(asked):
        yield asked
