"""Where time and identity come from: the edge hands both to the domain, which knows neither."""

from __future__ import annotations

import asyncio
import os
import pwd
import time
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Self
from weakref import WeakKeyDictionary

import msgspec

from hansard.domain.errors import CallerError
from hansard.domain.ids import uuid7


def os_user() -> str:
    """Return the login name of this process's effective user, or `uid-1000` if it has none."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


OS_USER = os_user()
"""The default of `by=`: who approves, settles or changes something, for the record."""


# Long work on the loop, in slices: others go on in between.
#
# Decoding and judging a whole run takes the longer the longer the run is. Where one loop serves
# many, that is done in slices of half a millisecond, at most one in each turn of the loop,
# however many are at it. Between two slices, others who have something to do go on, for up to
# `YIELDED_S` and `YIELDED_MAX` turns: so a request of another, which needs some ten turns, is
# held up by a slice or two each time that it waits for the broker, and not by one a turn; and the
# long work has a part of the loop that does not depend on how much others want of it.
#
# Long work that `rests` (one piece of many that somebody wants at once) leaves the loop alone after
# each slice for a millisecond besides.

SLICE_S = 0.0005
"""So long the loop is kept from others at a time, in seconds."""

IDLE_S = 0.0001
"""A turn of the loop in which nobody else had anything to do is shorter than this, in seconds."""

YIELDED_MAX = 20
YIELDED_S = 0.001
"""So many turns of the loop, and so many seconds, the next slice waits for others: it comes in any
case.
"""

REST_S = 0.001
"""So long the loop is left alone after a slice of long work that rests, in seconds: there are few
timers that are finer.
"""

rests: ContextVar[bool] = ContextVar("rests", default=False)
"""Whether the long work of this context rests between its slices."""

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

    async def __aexit__(self, *_: object) -> None:
        if self._holds:
            self._give_back()

    @property
    def over(self) -> bool:
        """Whether it is time to `pause`."""
        return time.perf_counter() >= self._until

    async def pause(self) -> None:
        """Let others go on, for as long as they have something to do, up to a bound."""
        self._give_back()
        if rests.get():
            await asyncio.sleep(REST_S)
        now = time.perf_counter()
        until = now + YIELDED_S
        for _ in range(YIELDED_MAX):
            began = now
            await asyncio.sleep(0)
            now = time.perf_counter()
            if now - began < IDLE_S or now >= until:
                break
        await self._take()

    async def _take(self) -> None:
        await self._lock.acquire()
        self._holds = True
        self._until = time.perf_counter() + SLICE_S

    def _give_back(self) -> None:
        self._holds = False
        self._lock.release()


def _real() -> type[datetime]:
    """Return Python's own class, also while what mocks clocks in tests has put another in its place
    (a class of a metaclass of its own).
    """
    return next(kind for kind in datetime.__mro__ if type(kind) is type)


def _now(real: type[datetime] = _real()) -> datetime:  # noqa: B008 -- a name of the module may be mocked
    return real.now(UTC)


def _new_id() -> str:
    return uuid7(time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000, os.urandom(10))


class MockedClock(CallerError):
    """The clock of this process is mocked: no broker can be waited for by it, no event dated."""

    def __init__(self) -> None:
        super().__init__(
            "the clock of this process is mocked (as by freezegun), and by it a broker can neither "
            "be reached nor waited for: open the record before the clock is frozen, as in 'with "
            "hansard.connect() as record, freeze_time(...)'; what is recorded has the real time"
        )


def demand_real_clock() -> None:
    """Raise MockedClock where waits would not end in time, or times could not be read back."""
    away_s = time.monotonic() - time.clock_gettime(time.CLOCK_MONOTONIC)
    if abs(away_s) > MOCKED_S_MIN or _IMPORTED_WHILE_MOCKED:
        raise MockedClock


_IMPORTED_WHILE_MOCKED = _real() is not datetime
"""Then the fields of events are of a class that nobody can decode."""

MOCKED_S_MIN = 1.0
"""Two readings of one clock are this close, whatever the machine does in between."""


class Clock(msgspec.Struct, frozen=True):
    """The writer's clock and its source of UUIDv7 ids. Tests give their own."""

    now: Callable[[], datetime] = _now
    new_id: Callable[[], str] = _new_id
