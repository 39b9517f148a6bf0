"""Aggregates of a program's own: each change of one, as its program declares it. One stream each;
it outlives runs.

Names, events, errors. The event is the storage format: a tag never changes its meaning, a field is
only added with a default. What the program's own events mean stands in the program: here are the
name and the versioned tag that it declared for its classes, and plain values; never a class path.
How those classes are told, and made again: `hansard.domain.aggregate_types`.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from hansard.domain.errors import HansardError, RecordError
from hansard.domain.events import Event, event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.ids import name as checked_name

KIND = "aggregate"
"""The kind of its stream; its id is the aggregate's, as a text."""

FOLLOWER = "follower"
"""The kind of the streams that say where an application stands in the notifications of another."""

SHORT = 400
"""Most characters that an error tells of each side of a lost race."""


@event("aggregate.changed.v1")
class AggregateChanged(Event, frozen=True, kw_only=True):
    """An aggregate changed, and its version is that of its stream.

    `aggregate` is the name of its class and `event` the versioned tag of what happened to it, as
    the program declared them; `state` is what the program's event holds, as plain JSON in the form
    of `hansard.domain.values`, a large one a blob reference. `run` and `step` say which step of the
    commit's actor saved it; where no session did, they are left out.
    """

    aggregate: str
    event: str
    state: msgspec.Raw
    run: str = ""
    step: int = 0


@event("aggregate.followed.v1")
class AggregateFollowed(Event, frozen=True, kw_only=True):
    """An application of the program's, that follows another one, has processed its notifications up
    to this one. One stream a pair of them.
    """

    application: str
    upstream: str
    notification: int


def stream_of(aggregate_id: UUID | str) -> WorkspaceStream:
    """The stream of an aggregate. Raises BadName for what is no id."""
    named = str(aggregate_id) if isinstance(aggregate_id, UUID) else aggregate_id
    return WorkspaceStream(KIND, checked_name("aggregate id", named))


class AggregateConflict(HansardError):
    """An aggregate was to be saved that somebody else has changed meanwhile; nothing was written,
    of none of the aggregates that were to be saved with it.

    `expected` is the version that it was changed from, `found` the one it is at; `mine` and
    `theirs` say in short what each side made happen, `author` who did the newest of theirs. An
    ordinary outcome: get the aggregate again, and decide again.
    """

    def __init__(
        self,
        aggregate: str,
        aggregate_id: str,
        expected: int,
        found: int,
        mine: str,
        theirs: str,
        author: str,
    ) -> None:
        text = (
            f"{aggregate} {aggregate_id} is at version {found}, not {expected}: {author!r} made "
            f"happen {theirs}, where this save would have had {mine}; nothing was written: "
            "get it again and decide again"
        )
        super().__init__(text, aggregate, aggregate_id, expected, found, mine, theirs, author)

    def __str__(self) -> str:
        return str(self.args[0])

    # From the arguments: an error that is raised again from the record has nothing else.
    aggregate = property(lambda self: self.args[1])
    aggregate_id = property(lambda self: self.args[2])
    expected = property(lambda self: self.args[3])
    found = property(lambda self: self.args[4])
    mine = property(lambda self: self.args[5])
    theirs = property(lambda self: self.args[6])
    author = property(lambda self: self.args[7])


class UndeclaredEvent(RecordError):
    """An aggregate has an event on record under a tag that this program has not declared.

    Attributes:
        aggregate: The name of the aggregate's class, as the event has it.
        tag: The event's tag.
        position: Where it stands in the log.
    """

    def __init__(self, aggregate: str, aggregate_id: str, tag: str, position: int) -> None:
        super().__init__(
            f"{aggregate} {aggregate_id} has the event {tag!r} at position {position}, which this "
            "program has not declared: declare the class that reads it, "
            f"hansard.aggregate_type(..., name={aggregate!r}, events={{{tag!r}: ...}}), or where "
            f"a newer tag took its place, older={{{tag!r}: (newer tag, function of its state)}}"
        )
        self.aggregate = aggregate
        self.tag = tag
        self.position = position


def short(told: Any) -> str:
    """What happened as JSON that fits an error's text."""
    text = msgspec.json.encode(told).decode()
    return text if len(text) <= SHORT else f"{text[:SHORT]}... ({len(text):,} characters)"
