"""Requests of a client to the broker, subject by subject, and the replies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from benchmarks import _requests
from hansard.bus.jetstream import JetStreamLog

WAIT_S = 30.0


class RequestLog(_requests.Asked):
    """`subjects` of messages sent by one log's connections, `received` messages of theirs."""

    def __init__(self, log: JetStreamLog) -> None:
        super().__init__(log)
        self.subjects: list[str] = []
        self._more = asyncio.Event()

    async def until(self, part: str) -> None:
        """Wait until a message was sent whose subject has this part."""
        async with asyncio.timeout(WAIT_S):
            while not any(part in subject for subject in self.subjects):
                self._more.clear()
                await self._more.wait()

    def sent(self, subjects: list[str]) -> None:
        """Count some more."""
        super().sent(subjects)
        self.subjects.extend(subjects)
        self._more.set()


@contextlib.contextmanager
def counted(log: object) -> Generator[RequestLog]:
    """Count a log's requests while the block runs."""
    assert isinstance(log, JetStreamLog)
    log_requests = RequestLog(log)
    with _requests.counting(log_requests):
        yield log_requests
