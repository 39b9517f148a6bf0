"""What a reader is given in the place of an event that does not fit: its version is taken by it,
and nothing of what it says counts.

No log holds such an event: it is made when a log is read (`hansard.bus.validation.reads`). So
it has a tag, but is not registered under it, and a stored event with this tag is one that does not
fit.
"""

from __future__ import annotations

from typing import ClassVar

from hansard.domain.events import Event

TAG = "commit.quarantined.v1"


class Quarantined(Event, frozen=True, kw_only=True):
    """Stands at the version of an event that does not fit; `reason` says why it does not."""

    tag: ClassVar[str] = TAG

    reason: str
