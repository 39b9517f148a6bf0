"""Times as the sources of imports write them: ISO 8601, or a number since 1970."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

SECONDS_MIN, SECONDS_MAX = 1e8, 1e11
"""Between 1973 and the year 5138 a number is of seconds; a thousand times that, of ms; and so on.
What is below says nothing that could be told from a count."""

PER_SECOND = (1, 1_000, 1_000_000, 1_000_000_000)
"""Seconds, milliseconds, microseconds, nanoseconds."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def claimed_time(text: str) -> datetime | None:
    """A time, in UTC where it names no zone; None for what is none.

    ISO 8601 as `datetime.fromisoformat` reads it, or seconds, ms, us or ns since 1970.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _of_number(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _of_number(text: str) -> datetime | None:
    try:
        number = float(text)
    except ValueError:
        return None
    for unit in PER_SECOND:
        if math.isfinite(number) and SECONDS_MIN * unit <= number < SECONDS_MAX * unit:
            return EPOCH + timedelta(seconds=number / unit)
    return None
