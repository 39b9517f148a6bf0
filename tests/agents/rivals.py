"""An exact lost race: another writer appends between a reader's read and its append."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hansard.bus.errors import Conflict
from hansard.bus.log import Append, EventLog, Stored


class RivalLog:
    """The real log; before some of its appends another writer appends through its own log."""

    def __init__(
        self, log: EventLog, rival: Callable[[], Awaitable[Any]], times: int = 1, after: int = 0
    ) -> None:
        self.tries: list[float] = []
        self.lost = 0
        self.won = asyncio.Event()
        self._log = log
        self._rival = rival
        self._numbers = range(after, after + times)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Stored:
        """Append for real, perhaps too late."""
        stored: Stored = await self._raced(lambda: self._log.append(append))
        return stored

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append several for real, perhaps too late."""
        stored: list[Stored] = await self._raced(lambda: self._log.append_all(appends))
        return stored

    async def _raced(self, work: Callable[[], Awaitable[Any]]) -> Any:
        number = len(self.tries)
        self.tries.append(asyncio.get_running_loop().time())
        if number in self._numbers:
            await self._rival()
        try:
            result = await work()
        except Conflict:
            self.lost += 1
            raise
        self.won.set()
        return result
