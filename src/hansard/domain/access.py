"""Access on record: refused access, views of a run and SQL queries served to a role.

Refused access has one stream for each principal, and one for all unknown names. An unknown name
never gets a stream of its own, and one minute of attempts at one operation is one event with their
count, so that refused attempts cannot flood the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hansard.domain.board import VIEWS
from hansard.domain.conversation import ranges as as_ranges
from hansard.domain.errors import BadValue
from hansard.domain.events import Event, event
from hansard.domain.ids import KeyStream, StreamId

# SQL queries of a role: one summary event an answer.
#
# The events of a role share one stream, which outlives runs, since a query covers all runs. The
# events that an answer drew on are not known: the query ran on the role's tables, built by its
# rules up to a point. Both are named, so that the same query can be run again.

QUERY_KIND = "query"
"""The kind of its stream; its id is the role's name."""


@event("query.answered.v1")
class QueryAnswered(Event, frozen=True, kw_only=True):
    """A query was answered, for the actor of this commit.

    `at` is the id of the log's newest commit at that time (empty: it had none), `rules` the id of
    the event that gave the role its rules. `statement` is the SHA-256 in hex of the SQL in UTF-8,
    followed by its parameters as a JSON list where it has any; `position` is the role's own, as in
    the answer. `rows` is the number of rows returned; `cut` is true if there were more.
    """

    role: str
    at: str
    rules: str
    statement: str
    position: int
    rows: int
    cut: bool = False


# Views served to a role: one summary event a view.
#
# The event has its own stream in the run, `Board(run, key_of(role))`: it is neither part of the
# run's state nor of a view, unless a rule names its kind (see `hansard.domain.roles.view`).
# Events are named by stream and version: a position is valid in one log only, not in a copy of it.

SEEN_BYTES_MAX = 160 * 1024
"""Most bytes of `seen` in one event, some 25,000 ranges: it must fit into one commit."""


@event("view.served.v1")
class ViewServed(Event, frozen=True, kw_only=True):
    """A view was served: to an agent, or, where `agent` is empty, to the person who wrote this.

    `at` is the id of the run's newest commit that was read, `rules` the id of the event that gave
    the role its rules (empty: it had none). `seen` are the events shown: ranges of versions by
    stream, such as `1-4,7`. `events` is the number of the view's lines, `digest` their digest.
    """

    role: str
    agent: str = ""
    at: str
    rules: str = ""
    events: int
    seen: dict[str, str] = {}
    digest: str


def key_of(role: str) -> str:
    """Return the reserved key of a role's served views."""
    return f"{VIEWS}{role}"


def is_views(stream: StreamId) -> bool:
    """Return whether a stream holds the views served to a role: they change nothing of the run."""
    return isinstance(stream, KeyStream) and stream.key.startswith(VIEWS)


def ranges(places: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Return versions by stream as ranges; within a stream they must ascend. Raises BadValue."""
    by_stream: dict[str, list[int]] = {}
    for stream, version in places:
        by_stream.setdefault(stream, []).append(version)
    fields = {
        stream: ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in as_ranges(numbers))
        for stream, numbers in by_stream.items()
    }
    size = sum(len(stream) + len(text) for stream, text in fields.items())
    if size > SEEN_BYTES_MAX:
        fact = f"what it shows takes {size:,} bytes to name, the limit is {SEEN_BYTES_MAX:,}"
        raise BadValue("view", fact, "view an earlier point, or let the role see whole streams")
    return fields


def versions(text: str) -> Iterator[int]:
    """Yield the versions in the ranges of one stream."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


KIND = "access"
"""The kind of its stream; its id is the principal's name, or `STRANGER`."""

STRANGER = "stranger"
"""The stream id for unknown names. It is reserved: no principal has this name."""


@event("access.refused.v1")
class AccessRefused(Event, frozen=True, kw_only=True):
    """An `operation` was refused to a caller that claimed to be `principal` in `role`, `count`
    times.

    Both are the caller's unverified claims. `because` is the reason, which the caller did not
    receive.
    """

    principal: str
    role: str
    operation: str
    because: str
    count: int = 1
