"""Logs that hold an append back, until released (an exact slow broker) or for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from hansard.bus.log import Append, EventLog, Stored
from tests.faults._inside import Inside

T = TypeVar("T")


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


class EndlessLog:
    """The real log, except that the first append of an event type never returns."""

    def __init__(self, log: EventLog, inside: Inside, tag: str = "") -> None:
        self._log = log
        self._inside = inside
        self._tag = tag or inside.job.settings.get("tag", "")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Stored:
        """The real append, and perhaps no end."""
        return await self._around([append], lambda: self._log.append(append))

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append several, and perhaps never return."""
        return await self._around(appends, lambda: self._log.append_all(appends))

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """Append several transactions, and perhaps never return."""
        appends = [append for group in groups for append in group]
        return await self._around(appends, lambda: self._log.append_groups(groups))

    async def _around(self, appends: Iterable[Append], work: Callable[[], Awaitable[T]]) -> T:
        tags = {event.type for append in appends for event in append.commit.events}
        await self._hold("before", tags)
        stored = await work()
        await self._hold("after", tags)
        return stored

    async def _hold(self, when: str, tags: set[str]) -> None:
        if self._inside.job.settings.get("when") == when and self._tag in tags:
            self._inside.stops.reach()
            await asyncio.Event().wait()
