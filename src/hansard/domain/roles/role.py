"""A role: what its agents may see and do, deny by default. One stream a role, which outlives runs.

Its rules are replaced as a whole, so that what a role could see at a position is one event. The
events stand in `hansard.domain.roles.model`; what a set of rules must be is checked when it is
applied (`check`), so that judging (`judge`) and showing (`view`) never fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

import msgspec

from hansard.domain import values
from hansard.domain.errors import Refused
from hansard.domain.events import Event
from hansard.domain.quarantined import Quarantined
from hansard.domain.roles import check as role_check
from hansard.domain.roles.model import RoleDefined, RoleEvent, RoleWithdrawn


class RoleState(msgspec.Struct):
    """A role at a version. `rules` is None before it is defined and after it is withdrawn."""

    version: int = 0
    rules: RoleDefined | None = None
    withdrawn: RoleWithdrawn | None = None


def initial() -> RoleState:
    """The state before the first event."""
    return RoleState()


def fold(state: RoleState, events: Iterable[Event]) -> RoleState:
    """The state after more events; the given one is left as it is."""
    state = msgspec.structs.replace(state)
    for each in events:
        state.version += 1
        match each:
            case RoleDefined():
                state.rules, state.withdrawn = each, None
            case RoleWithdrawn():
                state.rules, state.withdrawn = None, each
            case Quarantined():
                continue
            case _:
                message = f"{each.tag} is not an event of a role"
                raise Refused(message)
    return state


def decide(state: RoleState, event: RoleEvent) -> Sequence[RoleEvent]:
    """The events that stating one leads to; none where it is so already.

    Raises Refused, and BadValue or BadName for rules that are broken.
    """
    match event:
        case RoleDefined():
            role_check.check(event)
            return () if state.rules == event else (event,)
        case RoleWithdrawn():
            values.plain(event.because, "because")
            if not state.version:
                message = "it is not defined: apply its rules first"
                raise Refused(message)
            return () if state.rules is None else (event,)
        case _:
            assert_never(event)
