"""What has come and was not looked at yet: of each principal in order, the principals in turn.

A packet of the broker may hold dozens of requests of one principal, and to look at one takes a
fraction of a millisecond. So a few are looked at in each turn of the loop, one of each principal at
a time: the request of another waits for one of each who burns, not for all that came before it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 4
"""So many are looked at in one turn of the loop: together about a millisecond."""

WAITING_EACH_MAX = 256
"""So many of one principal wait; one more, and its oldest is looked at in the same turn."""


class Arrivals(Generic[T]):
    """On the service's loop. `take` is called for each; it may not wait."""

    def __init__(self, take: Callable[[T], None]) -> None:
        self._take = take
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """By principal, whose turn it is first."""
        self._next: asyncio.Handle | None = None

    def put(self, name: str, one: T) -> None:
        """One of a principal has come."""
        mine = self._waiting.setdefault(name, deque())
        mine.append(one)
        if self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._turn)
        if len(mine) > WAITING_EACH_MAX:
            self._take(mine.popleft())

    def close(self) -> None:
        """Look at none of them any more."""
        self._waiting.clear()
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def _turn(self) -> None:
        """One turn of the loop."""
        self._next = None
        try:
            for _ in range(AT_ONCE):
                if self._waiting:
                    self._take(self._oldest())
        finally:
            if self._waiting and self._next is None:
                self._next = asyncio.get_running_loop().call_soon(self._turn)

    def _oldest(self) -> T:
        """Of the one whose turn it is, who is the last from now on."""
        name, mine = self._waiting.popitem(last=False)
        one = mine.popleft()
        if mine:
            self._waiting[name] = mine
        return one
