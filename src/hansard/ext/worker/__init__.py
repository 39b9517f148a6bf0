"""Requests to run forks, and the worker that does so: `hansard worker WORKFLOW -- COMMAND`.

A request names a fork; the program that runs in it is the worker's own, so that the page, which
makes requests, never sends code. Each request, claim and end is an event.
"""

from __future__ import annotations

from hansard.bus.slices import Slice
from hansard.domain.events import Event, event

KIND = "work"
"""Kind of the stream of the requests to run a fork; its name is the fork's id."""


@event("work.requested.v1")
class WorkRequested(Event, frozen=True, kw_only=True):
    """Somebody requests that a worker run a fork.

    Attributes:
        workflow: The fork's workflow: its workers take the request.
        because: The reason.
    """

    workflow: str
    because: str = ""


@event("work.claimed.v1")
class WorkClaimed(Event, frozen=True, kw_only=True):
    """A worker takes the request. The claim ends with the lease, unless it is extended.

    Attributes:
        number: Number of the claim, from 1.
        worker: Name of the worker.
        lease_ms: Length of the lease, from the log's time of this event.
    """

    number: int
    worker: str
    lease_ms: int


@event("work.extended.v1")
class WorkExtended(Event, frozen=True, kw_only=True):
    """A worker is still at work: the lease begins again."""

    number: int
    lease_ms: int


@event("work.released.v1")
class WorkReleased(Event, frozen=True, kw_only=True):
    """A worker was stopped: another may take the request."""

    number: int


@event("work.ended.v1")
class WorkEnded(Event, frozen=True, kw_only=True):
    """The program ended.

    Attributes:
        number: Number of the claim.
        code: Exit code of the program.
        last: Last line of its output.
    """

    number: int
    code: int
    last: str = ""


SCHEMA = """
CREATE VIEW work AS
WITH history AS (
    SELECT url_decode(split_part(stream, '/', 2)) AS run, type, data, actor, logged_at, position
    FROM events WHERE starts_with(type, 'work.')
), newest AS (
    SELECT run, max(position) FILTER (type = 'work.requested.v1') AS requested FROM history GROUP BY run
)
SELECT
    t.run,
    any_value(t.data->>'workflow') FILTER (t.type = 'work.requested.v1') AS workflow,
    any_value(t.actor) FILTER (t.type = 'work.requested.v1') AS requested_by,
    min(t.logged_at) AS requested_at,
    arg_max(split_part(t.type, '.', 2), t.position) AS last_event,
    arg_max(t.data->>'worker', t.position) FILTER (t.type = 'work.claimed.v1') AS worker,
    count(*) FILTER (t.type = 'work.claimed.v1') AS claims,
    arg_max(CAST(t.data->>'code' AS INTEGER), t.position) FILTER (t.type = 'work.ended.v1') AS code,
    arg_max(t.data->>'last', t.position) FILTER (t.type = 'work.ended.v1') AS last_line,
    max(t.logged_at) FILTER (t.type = 'work.ended.v1') AS ended_at,
    max(t.position) AS position
FROM history AS t JOIN newest AS n ON n.run = t.run AND t.position >= n.requested
GROUP BY t.run;
COMMENT ON VIEW work IS
    'One row per fork that a worker was requested to run, by its newest request. last_event: requested, claimed, extended, released or ended. claims: workers that took it. code: exit code of the program.';
"""  # noqa: E501 -- the comment of a view is one text

SLICE = Slice(
    name="work",
    streams={KIND: (WorkRequested, WorkClaimed, WorkExtended, WorkReleased, WorkEnded)},
    nouns=("hansard.ext.worker.requests:Work",),
    schema=SCHEMA,
)
