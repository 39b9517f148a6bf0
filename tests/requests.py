"""Requests of a client to the broker, subject by subject, and the replies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from benchmarks import _requests
from hansard.bus.jetstream import JetStreamLog

WAIT_S = 30.0


class Asked(_requests.Asked):
    """`subjects` of what one log's connections sent, `received` the messages they were sent."""

    def __init__(self, log: JetStreamLog) -> None:
        super().__init__(log)
        self.subjects: list[str] = []
        self._more = asyncio.Event()

    async def until(self, part: str) -> None:
        """Until something was sent whose subject has a part."""
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
def counted(log: object) -> Generator[Asked]:
    """Count what a log asks while the block runs."""
    assert isinstance(log, JetStreamLog)
    asked = Asked(log)
    with _requests.counting(asked):
        yield asked
