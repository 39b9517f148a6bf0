"""A fair queue: a bounded number of places, given to the principals who wait in turn.

Whoever has the fewest places is next, and of those who have equally many the one whose turn was
longest ago. One principal alone never has all places, so that who comes next finds one free; and
it has only so many requests waiting: one more is refused, with the time after which to ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from typing import Generic, TypeVar

import msgspec

from hansard.operations.protocol import wire
from hansard.operations.protocol.errors import ServiceBusy, ServiceGone
from hansard.operations.protocol.wire import Pending

# What has come and was not looked at yet: of each principal in order, the principals in turn.
#
# A packet of the broker may hold dozens of requests of one principal, and to look at one takes a
# fraction of a millisecond. So a few are looked at in each turn of the loop, one of each
# principal at a time: the request of another waits for one of each who burns, not for all that
# came before it.
#
# What is looked at goes on to be worked on, and the loop has other work than looking. Whoever has
# many requests waiting is therefore paced for as long as another principal is there, too: the
# next few of theirs are looked at once the loop has been idle for as long as it worked since the
# last few. So they get half of the loop together, and others find it free.

T = TypeVar("T")

AT_ONCE = 4
"""So many are looked at in one turn of the loop: together about a millisecond."""

WAITING_EACH_MAX = 256
"""So many of one principal wait; one more, and its oldest is looked at in the same turn."""

PACED_FROM = 8
"""Who has more than so many waiting is paced."""

SHARE = 0.5
"""Of the loop's time, for all who are paced together."""

PACED_AT_ONCE = 8
"""So many are looked at between two pauses: what is stated together is committed together."""

PACE_S_MAX = 0.1
"""The next few are looked at no later than so many seconds after the last few."""

THERE_S = 15.0
"""A principal is there for so many seconds after a request: a client gives a sign of life more
often.
"""


class Arrivals(Generic[T]):
    """On the service's loop. `take` is called for each; it may not wait."""

    def __init__(self, take: Callable[[T], None]) -> None:
        self._take = take
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """By principal, whose turn it is first."""
        self._next: asyncio.Handle | None = None
        self._heard: dict[str, float] = {}
        """When each principal who may be there asked last, who did so last at the end."""
        self._paced_at = (-math.inf, 0.0)
        """When the last few who were paced began, and how long the loop had worked by then."""
        self._left = 0
        """So many of the next few may be looked at without a pause."""

    def put(self, name: str, one: T) -> None:
        """One of a principal has come."""
        self._hear(name)
        mine = self._waiting.setdefault(name, deque())
        mine.append(one)
        if len(mine) == 1 or self._next is None:
            self._soon()
        if len(mine) > WAITING_EACH_MAX:
            self._take(mine.popleft())

    @property
    def crowded(self) -> bool:
        """Whether more than one principal is there."""
        return len(self._heard) > 1

    def close(self) -> None:
        """Look at none of them any more."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _hear(self, name: str) -> None:
        now = time.monotonic()
        self._heard.pop(name, None)
        self._heard[name] = now
        while now - self._heard[next(iter(self._heard))] > THERE_S:
            del self._heard[next(iter(self._heard))]

    def _soon(self, delay_s: float = 0) -> None:
        """See to the next turn, in place of one that was to come later."""
        loop = asyncio.get_running_loop()
        if self._next is not None:
            self._next.cancel()
        self._next = loop.call_later(delay_s, self._turn) if delay_s else loop.call_soon(self._turn)

    def _turn(self) -> None:
        """One turn of the loop."""
        self._next = None
        wait_s = 0.0
        try:
            for _ in range(AT_ONCE):
                name, wait_s = self._whose()
                if name is None:
                    break
                self._take(self._oldest(name))
        finally:
            if self._waiting and self._next is None:
                self._soon(wait_s)

    def _whose(self) -> tuple[str | None, float]:
        """Whose turn it is; or nobody's, and in how many seconds to look again."""
        wait_s = self._pace_s() if self.crowded else 0.0
        for name, mine in self._waiting.items():
            if len(mine) <= PACED_FROM:
                return name, 0.0
            if not wait_s:
                self._left -= 1
                return name, 0.0
        return None, wait_s

    def _pace_s(self) -> float:
        """In how many seconds the next of those who are paced may be looked at."""
        if self._left > 0:
            return 0.0
        at, worked = self._paced_at
        now, works = time.monotonic(), time.thread_time()
        wait_s = min((works - worked) / SHARE, PACE_S_MAX) - (now - at)
        if wait_s <= 0:
            self._paced_at = (now, works)
            self._left = PACED_AT_ONCE
        return max(0.0, wait_s)

    def _oldest(self, name: str) -> T:
        """Of one whose turn it is, who is the last from now on."""
        mine = self._waiting.pop(name)
        one = mine.popleft()
        if mine:
            self._waiting[name] = mine
        return one


# Requests outside of sessions that are under way.
#
# Such a request may take long, and who asks must be able to tell a service that is at work from one
# that hangs. So it is answered within `PENDING_S` in any case: with what came of it, or with "not
# yet"; then its client asks again under the same nonce. What nobody asks for any more is ended.


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
