"""Where time and identity come from: the edge hands both to the domain, which knows neither."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from hansard.domain.ids import uuid7


def _now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> str:
    return uuid7(time.time_ns() // 1_000_000, os.urandom(10))


class Clock(msgspec.Struct, frozen=True):
    """The writer's clock and its source of UUIDv7 ids. Tests give their own."""

    now: Callable[[], datetime] = _now
    new_id: Callable[[], str] = _new_id
