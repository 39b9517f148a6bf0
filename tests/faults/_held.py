"""A log that holds one append back until it is told to go on: a slow broker, made exact."""

from __future__ import annotations

import asyncio
from typing import Any

from hansard.bus.log import Append, EventLog, Stored


class HeldLog:
    """The real log; the first append of a commit with an event of a type waits for `release`."""

    def __init__(self, log: EventLog, tag: str) -> None:
        self.reached = asyncio.Event()
        self.release = asyncio.Event()
        self._log = log
        self._tag = tag

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Stored:
        """The real append, perhaps later."""
        if any(event.type == self._tag for event in append.commit.events):
            self.reached.set()
            await self.release.wait()
        return await self._log.append(append)
