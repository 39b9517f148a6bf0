"""SQL queries of a role: one summary event an answer.

The events of a role share one stream, which outlives runs, since a query covers all runs. The
events that an answer drew on are not known: the query ran on the role's tables, built by its rules
up to a point. Both are named, so that the same query can be run again.
"""

from __future__ import annotations

from hansard.domain.events import Event, event

KIND = "query"
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
