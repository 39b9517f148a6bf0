"""A fair queue: a bounded number of places, given to the principals who wait in turn.

Whoever has the fewest places is next, and of those who have equally many the one whose turn was
longest ago. One principal alone never has all places, so that who comes next finds one free; and
it has only so many requests waiting: one more is refused, with the time after which to ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncGenerator

import msgspec

from hansard.client.protocol.errors import ServiceBusy


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue allows."""

    what: str
    """What a place is for, as a refusal names it."""
    places: int
    """So many at a time, of all principals together."""
    places_each: int
    """So many of one principal: fewer than there are."""
    waiting_each: int
    """So many of one principal may wait besides."""
    wait_s: float
    """The longest wait for a place, in seconds."""
    retry_after_s: float
    """After so long one who was refused may find room, in seconds."""


class FairQueue:
    """Places, and who waits for one. On one event loop."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._taken: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By principal."""
        self._turns: dict[str, int] = {}
        """The number of each principal's last turn: as many as there are principals."""
        self._turn = 0

    @contextlib.asynccontextmanager
    async def place(self, name: str) -> AsyncGenerator[None, None]:
        """Have a place for as long as the block runs. Raises ServiceBusy: nothing was done."""
        await self._take(name)
        try:
            yield
        finally:
            self._give_back(name)

    async def _take(self, name: str) -> None:
        waiting = self._waiting.get(name, ())
        if len(waiting) >= self._bounds.waiting_each:
            raise self._busy(len(waiting))
        place = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(place)
        self._hand_out()
        try:
            async with asyncio.timeout(self._bounds.wait_s):
                await place
        except TimeoutError as error:
            self._leave(name, place)
            raise self._busy(len(self._waiting.get(name, ())) + 1) from error
        except asyncio.CancelledError:
            self._leave(name, place)
            raise

    def _busy(self, waiting: int) -> ServiceBusy:
        return ServiceBusy(f"{self._bounds.what} waiting", waiting, self._bounds.retry_after_s)

    def _leave(self, name: str, place: asyncio.Future[None]) -> None:
        """Wait no longer; a place that was given meanwhile goes to the next."""
        if place.done() and not place.cancelled():
            self._give_back(name)
            return
        waiting = self._waiting.get(name)
        if waiting is not None and place in waiting:
            waiting.remove(place)
            if not waiting:
                del self._waiting[name]

    def _give_back(self, name: str) -> None:
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]
        self._hand_out()

    def _hand_out(self) -> None:
        """Give what is free to those whose turn it is."""
        while self._taken.total() < self._bounds.places:
            may = [name for name in self._waiting if self._taken[name] < self._bounds.places_each]
            if not may:
                return
            name = min(may, key=lambda each: (self._taken[each], self._turns.get(each, 0)))
            place = self._waiting[name].popleft()
            if not self._waiting[name]:
                del self._waiting[name]
            if not place.done():
                place.set_result(None)
                self._taken[name] += 1
                self._turn += 1
                self._turns[name] = self._turn
