"""Where time and identity come from: the edge hands both to the domain, which knows neither."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from hansard.domain.errors import CallerError
from hansard.domain.ids import uuid7


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
