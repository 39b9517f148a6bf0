"""What was asked in SQL as a role: one summary event an answer.

The events of a role stand in one stream, which outlives runs, as a question concerns all of them.
Which events an answer drew on is not known: it had the role's tables, as made by its rules up to a
point. So both are named, and the same question can be asked again.
"""

from __future__ import annotations

from hansard.domain.events import Event, event

KIND = "query"
"""The kind of its stream; its id is the role's name."""


@event("query.answered.v1")
class QueryAnswered(Event, frozen=True, kw_only=True):
    """A question was answered, to whom this commit names.

    `at` is the id of the log's newest commit then (empty: it had none), `rules` that of the event
    that gave the role its rules. `statement` is the SHA-256 of the SQL in UTF-8, in hex, and of its
    parameters as a JSON list after it, where it has any; `position` is the role's own, which the
    answer told. `rows` were given; `cut` says that there were more.
    """

    role: str
    at: str
    rules: str
    statement: str
    position: int
    rows: int
    cut: bool = False
