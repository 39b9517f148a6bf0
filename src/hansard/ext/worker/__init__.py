"""Requests to run forks, and the worker that does so: `hansard worker WORKFLOW -- COMMAND`.

A request names a fork; the program that runs in it is the worker's own, so that the page, which
makes requests, never sends code. Each request, claim and end is an event.
"""

from __future__ import annotations

from pathlib import Path

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


SLICE = Slice(
    name="work",
    streams={KIND: (WorkRequested, WorkClaimed, WorkExtended, WorkReleased, WorkEnded)},
    nouns=("hansard.ext.worker.requests:Work",),
    schema=Path(__file__).with_name("work.sql").read_text("utf-8"),
)
