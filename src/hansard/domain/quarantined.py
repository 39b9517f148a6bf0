"""The replacement that a reader gets for an invalid event: it takes the version, and has no effect.

No log holds such an event: it is made when a log is read (`hansard.bus.reads`). So it
has a tag, but is not registered under it, and a stored event with this tag is itself invalid.
"""

from __future__ import annotations

from typing import ClassVar

from hansard.domain.events import Event

TAG = "commit.quarantined.v1"


class Quarantined(Event, frozen=True, kw_only=True):
    """Takes the version of an invalid event; `reason` is why it is invalid."""

    tag: ClassVar[str] = TAG

    reason: str
