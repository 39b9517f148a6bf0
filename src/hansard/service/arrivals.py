"""What has come and was not looked at yet: of each principal in order, the principals in turn.

A packet of the broker may hold dozens of requests of one principal, and to look at one takes a
fraction of a millisecond. So a few are looked at in each turn of the loop, one of each principal at
a time: the request of another waits for one of each who burns, not for all that came before it.

What is looked at goes on to be worked on, and the loop has other work than looking. Whoever has
many requests waiting is therefore paced for as long as another principal is there, too: the next
few of theirs are looked at once the loop has been idle for as long as it worked since the last few.
So they get half of the loop together, and others find it free.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

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
