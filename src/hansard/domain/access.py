"""Access that was refused, on record: one stream for each principal, and one for all strangers.

A name that is no principal's never makes a stream, and a minute of attempts at one operation is one
event with their number, so that nobody can flood the record by being refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from hansard.domain.board import VIEWS
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.quarantined import Quarantined

# What was served to a role: one summary event a view.
#
# The event stands in a stream of its own in the run, `Board(run, key_of(role))`: it is no part of
# the run's state, nor of a view, unless a rule names its kind (see `hansard.domain.roles.judge`).
# Events are named by stream and version, since positions are those of one log: a copy has others.

SEEN_BYTES_MAX = 160 * 1024
"""Most bytes of `seen` that are put on record, some 25,000 ranges: it must fit into one commit."""


@event("view.served.v1")
class ViewServed(Event, frozen=True, kw_only=True):
    """A view was served: to an agent, or, where `agent` is empty, to the person who wrote this.

    `at` is the id of the run's newest commit that was read, `rules` that of the event that gave the
    role its rules (empty: it had none). `seen` are the events shown: ranges of versions by stream,
    such as `1-4,7`. `events` and `digest` are those of the view's lines.
    """

    role: str
    agent: str = ""
    at: str
    rules: str = ""
    events: int
    seen: dict[str, str] = {}
    digest: str


def key_of(role: str) -> str:
    """The reserved key under which a role's views stand."""
    return f"{VIEWS}{role}"


def ranges(places: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Versions by stream, as ranges; within a stream they must ascend. Raises BadValue."""
    found: dict[str, list[list[int]]] = {}
    for stream, version in places:
        parts = found.setdefault(stream, [])
        if parts and parts[-1][1] == version - 1:
            parts[-1][1] = version
        else:
            parts.append([version, version])
    fields = {
        stream: ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in parts)
        for stream, parts in found.items()
    }
    size = sum(len(stream) + len(text) for stream, text in fields.items())
    if size > SEEN_BYTES_MAX:
        fact = f"what it shows takes {size:,} bytes to name, the limit is {SEEN_BYTES_MAX:,}"
        raise BadValue("view", fact, "look at an earlier point, or let the role see whole streams")
    return fields


def versions(text: str) -> Iterator[int]:
    """The versions that ranges of one stream name."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


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
