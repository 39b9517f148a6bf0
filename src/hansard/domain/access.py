"""Access that was refused, on record: one stream for each principal, and one for all strangers.

A name that is no principal's never makes a stream, and a minute of attempts at one operation is one
event with their number, so that nobody can flood the record by being refused.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.quarantined import Quarantined

KIND = "access"
"""The kind of its stream; its id is the principal's name, or `STRANGER`."""

STRANGER = "stranger"
"""Who is refused without being known. No principal is called so."""


@event("access.refused.v1")
class AccessRefused(Event, frozen=True, kw_only=True):
    """Somebody asked for `operation` as `principal` in `role`, `count` times, and got nothing.

    Both are what was claimed, not who it was. `because` is the reason, which was not told.
    """

    principal: str
    role: str
    operation: str
    because: str
    count: int = 1


class AccessState(msgspec.Struct):
    """What was refused, by (operation, reason): how often."""

    version: int = 0
    refused: dict[tuple[str, str], int] = msgspec.field(default_factory=dict)


def initial() -> AccessState:
    """The state before the first event."""
    return AccessState()


def fold(state: AccessState, events: Iterable[Event]) -> AccessState:
    """The state after more events; the given one is left as it is."""
    state = AccessState(state.version, dict(state.refused))
    for each in events:
        if not isinstance(each, AccessRefused | Quarantined):
            message = f"{each.tag} is not an event of refused access"
            raise Refused(message)
        state.version += 1
        if isinstance(each, Quarantined):
            continue
        reason = each.operation, each.because
        state.refused[reason] = state.refused.get(reason, 0) + each.count
    return state
