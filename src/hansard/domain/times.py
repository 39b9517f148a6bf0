"""Times from people: a zone is required, so that no machine's local clock decides the meaning."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from hansard.domain.errors import BadValue

SECONDS_MIN, SECONDS_MAX = 1e8, 1e11
"""Range of plausible seconds since 1970: 1973 to the year 5138; ms, us and ns scale it by 1,000
each. Smaller numbers cannot be distinguished from a count."""

PER_SECOND = (1, 1_000, 1_000_000, 1_000_000_000)
"""Units a second: seconds, milliseconds, microseconds, nanoseconds."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def claimed_time(text: str) -> datetime | None:
    """Return a time, in UTC where it names no zone; None for a text that is no time.

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


def moment(where: str, value: object) -> datetime:
    """Return a time with its zone, from a `datetime` or from ISO 8601. Raises BadValue."""
    result = value
    if isinstance(value, str):
        try:
            result = datetime.fromisoformat(value)
        except ValueError:
            result = None
    if not isinstance(result, datetime) or result.utcoffset() is None:
        remedy = "give a time with a zone: 2024-10-01T00:00:00Z"
        raise BadValue(where, f"{value!r:.80}", remedy)
    return result
