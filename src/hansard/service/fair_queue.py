"""A fair queue: a bounded number of places, given in turn to waiting principals.

The principal with the fewest places is next, and of equal ones the one whose turn was longest ago.
One principal alone never holds all places, so that the next one finds one free. Each has a bounded
number of waiting requests: one more is refused, with the time after which to retry.
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
from hansard.operations.protocol.faults import ServiceBusy, ServiceGone
from hansard.operations.protocol.wire import Pending

# Requests received and not yet processed: per principal in order, the principals in turn.
#
# A packet of the broker may hold dozens of requests of one principal, and processing one takes a
# fraction of a millisecond. So a few are processed in each turn of the loop, one per principal at a
# time: another's request waits for one of each busy principal, not for all received before it.
#
# Processed requests start further work on the loop. A principal with many waiting requests is
# therefore paced while another principal is present: its next few are processed once the loop has
# been idle for as long as it worked since the last few. So paced principals get half of the loop
# together, and others find it free.

T = TypeVar("T")

AT_ONCE = 4
"""Requests processed in one turn of the loop: together about a millisecond."""

WAITING_EACH_MAX = 256
"""Most waiting requests of one principal; one more, and its oldest is processed at once."""

PACED_FROM = 8
"""Waiting requests above which a principal is paced."""

SHARE = 0.5
"""Share of the loop's time for all paced principals together."""

PACED_AT_ONCE = 8
"""Requests processed between two pauses: their events are committed together."""

PACE_S_MAX = 0.1
"""Longest pause between two batches, in seconds."""

THERE_S = 15.0
"""Seconds after a request for which a principal counts as present; heartbeats are more frequent."""


class Arrivals(Generic[T]):
    """Requests in order of arrival.

    On the service's loop; `take` is called for each, and must not block.
    """

    def __init__(self, take: Callable[[T], None]) -> None:
        self._take = take
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """By principal, whose turn it is first."""
        self._next: asyncio.Handle | None = None
        self._heard: dict[str, float] = {}
        """The time of the last request of each present principal, the latest at the end."""
        self._paced_at = (-math.inf, 0.0)
        """The time at which the last paced batch began, and the loop's CPU time at that moment."""
        self._left = 0
        """Requests of the next batch that may be processed without a pause."""

    def put(self, name: str, one: T) -> None:
        """Add a request of a principal."""
        self._mark_present(name)
        mine = self._waiting.setdefault(name, deque())
        mine.append(one)
        if len(mine) == 1 or self._next is None:
            self._soon()
        if len(mine) > WAITING_EACH_MAX:
            self._take(mine.popleft())

    @property
    def crowded(self) -> bool:
        """True if more than one principal is present."""
        return len(self._heard) > 1

    def close(self) -> None:
        """Drop all waiting requests."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _mark_present(self, name: str) -> None:
        now = time.monotonic()
        self._heard.pop(name, None)
        self._heard[name] = now
        while now - self._heard[next(iter(self._heard))] > THERE_S:
            del self._heard[next(iter(self._heard))]

    def _soon(self, delay_s: float = 0) -> None:
        """Schedule the next turn, instead of a later one."""
        loop = asyncio.get_running_loop()
        if self._next is not None:
            self._next.cancel()
        self._next = loop.call_later(delay_s, self._turn) if delay_s else loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Run one turn of the loop."""
        self._next = None
        wait_s = 0.0
        try:
            for _ in range(AT_ONCE):
                name, wait_s = self._next_principal()
                if name is None:
                    break
                self._take(self._oldest(name))
        finally:
            if self._waiting and self._next is None:
                self._soon(wait_s)

    def _next_principal(self) -> tuple[str | None, float]:
        """Return the next principal; or None and the seconds until the next check."""
        wait_s = self._pace_s() if self.crowded else 0.0
        for name, mine in self._waiting.items():
            if len(mine) <= PACED_FROM:
                return name, 0.0
            if not wait_s:
                self._left -= 1
                return name, 0.0
        return None, wait_s

    def _pace_s(self) -> float:
        """Return the seconds until the next paced request may be processed."""
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
        """Take the oldest request of a principal, who is last from now on."""
        mine = self._waiting.pop(name)
        one = mine.popleft()
        if mine:
            self._waiting[name] = mine
        return one


# Requests outside of sessions that are under way.
#
# Such a request may take long, and the client must be able to tell a busy service from one that
# hangs. So it is answered within `PENDING_S`: with the result, or with "not yet"; then the client
# sends the same nonce again. A request that is not fetched any more is ended.


class _Question(msgspec.Struct):
    task: asyncio.Task[bytes]
    heard: float
    is_waited_for: bool = False


class Questions:
    """Requests by the principal's name and nonce. On the service's loop."""

    def __init__(self, instance: str) -> None:
        self.pending_answers = 0
        """The number of answers "not yet"."""
        self._pending = wire.encode(Pending(instance))
        self._open: dict[tuple[str, str], _Question] = {}
        self._count: Counter[str] = Counter()

    def under_way(self, name: str) -> int:
        """Return how many requests of a principal are under way."""
        return self._count[name]

    def knows(self, name: str, nonce: str) -> bool:
        """Return whether a request is under way, or its answer was not fetched yet."""
        return (name, nonce) in self._open

    def begin(self, name: str, nonce: str, task: asyncio.Task[bytes]) -> None:
        """Add a request."""
        task.add_done_callback(
            lambda done: done.cancelled() or done.exception()
        )  # retrieved, so that asyncio does not log it
        self._open[name, nonce] = _Question(task, time.monotonic())
        self._count[name] += 1

    async def answer(self, name: str, nonce: str, pending_s: float) -> bytes | None:
        """Return the answer, or "not yet"; None if another request already waits for it.

        Raises the request's error, and ServiceGone if it is unknown or was ended.
        """
        question = self._open.get((name, nonce))
        if question is None:
            why = "it knows no such request, or ended it since its answer was not fetched"
            raise ServiceGone(why)
        if question.is_waited_for:
            return None
        question.is_waited_for = True
        try:
            await asyncio.wait({question.task}, timeout=pending_s)
        finally:
            question.is_waited_for = False
            question.heard = time.monotonic()
        if not question.task.done():
            self.pending_answers += 1
            return self._pending
        self._forget(name, nonce)
        if question.task.cancelled():
            why = "it ended the request"
            raise ServiceGone(why)
        return question.task.result()

    def sweep(self, heard_before: float) -> None:
        """End requests that nobody has fetched since a moment (`time.monotonic`)."""
        self._end(lambda each: not each.is_waited_for and each.heard < heard_before)

    def close(self) -> None:
        """End all requests."""
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
    """The limits of a queue."""

    what: str
    """The purpose of a place, as a refusal names it."""
    places: int
    """Most places in use at a time, by all principals together."""
    places_each: int = 1
    """Most places of one principal: fewer than there are."""
    waiting_each: int = 64
    """Most waiting requests of one principal."""
    wait_s: float = 30.0
    """The longest wait for a place, in seconds."""
    retry_after_s: float = 1.0
    """Seconds after which a refused request may be retried."""


class FairQueue:
    """Places, and the requests that wait for one. On one event loop."""

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
        """Hold a place while the block runs. Raises ServiceBusy: nothing was done."""
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
        """Stop waiting; pass on a place that was assigned in the meantime."""
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
        """Assign free places to the principals whose turn it is."""
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
