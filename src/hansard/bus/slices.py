"""Long work on the loop, in slices: others go on in between.

Decoding and judging a whole run takes the longer the longer the run is. Where one loop serves many,
that is done in slices of half a millisecond, and one slice in each turn of the loop, however many
are at it: so a request of another, which needs some ten turns, waits for some milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Self
from weakref import WeakKeyDictionary

SLICE_S = 0.0005
"""So long the loop is kept from others at a time, in seconds."""

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class Slices:
    """One piece of work: use it in `async with`, and await `pause` after each small step; nothing
    else may be awaited inside.
    """

    def __init__(self) -> None:
        self._lock = _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        self._until = 0.0
        self._holds = False

    async def __aenter__(self) -> Self:
        await self._take()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._holds:
            self._give_back()

    @property
    def over(self) -> bool:
        """Whether it is time to `pause`."""
        return time.perf_counter() >= self._until

    async def pause(self) -> None:
        """Let others go on."""
        self._give_back()
        await asyncio.sleep(0)
        await self._take()

    async def _take(self) -> None:
        await self._lock.acquire()
        self._holds = True
        self._until = time.perf_counter() + SLICE_S

    def _give_back(self) -> None:
        self._holds = False
        self._lock.release()
