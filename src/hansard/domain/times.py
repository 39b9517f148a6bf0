"""Times as people give them: with their zone, for nobody's own clock decides what one means."""

from __future__ import annotations

from datetime import datetime

from hansard.domain.errors import BadValue


def moment(where: str, value: object) -> datetime:
    """A time with its zone, from a `datetime` or from ISO 8601. Raises BadValue."""
    found = value
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
    if not isinstance(found, datetime) or found.utcoffset() is None:
        remedy = "give a time with a zone: 2024-10-01T00:00:00Z"
        raise BadValue(where, f"{value!r:.80}", remedy)
    return found
