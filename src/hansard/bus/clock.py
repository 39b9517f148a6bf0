"""Time and identity, which the edge passes into the domain."""

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
"""Return the default of `by=`: the principal that approves, settles or changes something."""


# Long work on the loop, in slices, with other tasks in between.
#
# Decoding and checking a run takes time in proportion to its length. If one loop serves many
# callers, such work runs in slices of half a millisecond, at most one in each turn of the loop,
# however many callers do it. Between two slices, other tasks with work run for up to `YIELDED_S`
# and `YIELDED_MAX` turns: a request that needs about ten turns is then delayed by a slice or two
# each time it waits for the broker, and not by one each turn; and the long work keeps a share of
# the loop that does not depend on the others' load.
#
# Long work that `rests` (one of many pieces that a caller requests at once) also leaves the loop
# idle for a millisecond after each slice.

SLICE_S = 0.0005
"""Longest time that a slice keeps the loop from other tasks, in seconds."""

IDLE_S = 0.0001
"""A loop turn shorter than this, in seconds, had no work for other tasks."""

YIELDED_MAX = 20
YIELDED_S = 0.001
"""Longest wait before the next slice, in loop turns and in seconds."""

REST_S = 0.001
"""Pause after a slice of resting work, in seconds; few timers are finer."""

rests: ContextVar[bool] = ContextVar("rests", default=False)
"""True if the long work of this context also pauses between its slices."""

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class Slices:
    """One piece of work: use it in `async with`, and await `pause` after each small step; await
    nothing else inside.
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
        """True if it is time to `pause`."""
        return time.perf_counter() >= self._until

    async def pause(self) -> None:
        """Yield to other tasks for as long as they have work, up to a bound."""
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
    """Return Python's own datetime class, even while a test library has replaced it (by a class
    with its own metaclass).
    """
    return next(kind for kind in datetime.__mro__ if type(kind) is type)


def _now(real: type[datetime] = _real()) -> datetime:  # noqa: B008 -- a name of the module may be mocked
    return real.now(UTC)


def _new_id() -> str:
    return uuid7(time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000_000, os.urandom(10))


class MockedClock(CallerError):
    """The clock of this process is mocked.

    State: nothing was sent.
    Remedy: open the record before the clock is frozen.
    """

    def __init__(self) -> None:
        super().__init__(
            "the clock of this process is mocked (as by freezegun), and by it a broker can neither "
            "be reached nor waited for: open the record before the clock is frozen, as in 'with "
            "hansard.connect() as record, freeze_time(...)'; what is recorded has the real time"
        )


def demand_real_clock() -> None:
    """Raise MockedClock if waits would not end in time, or if times could not be decoded."""
    away_s = time.monotonic() - time.clock_gettime(time.CLOCK_MONOTONIC)
    if abs(away_s) > MOCKED_S_MIN or _IMPORTED_WHILE_MOCKED:
        raise MockedClock


_IMPORTED_WHILE_MOCKED = _real() is not datetime
"""True if `datetime` was replaced when this module was imported: event fields would then have a
class that cannot be decoded.
"""

MOCKED_S_MIN = 1.0
"""Largest difference between two readings of one clock, however busy the machine is."""


class Clock(msgspec.Struct, frozen=True):
    """The writer's clock and its source of UUIDv7 ids. Tests pass their own."""

    now: Callable[[], datetime] = _now
    new_id: Callable[[], str] = _new_id
