"""When something was, and who says so.

Three clocks tell when something was: the log's own, that of the log a copied commit came from,
and what the source of an imported event claims. They are told with their name and never mixed up.
Of an imported event whose source says nothing, only the moment of the import is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from hansard.bus.log import Stored
from hansard.domain.events import Recorded
from hansard.domain.ids import run_of
from hansard.domain.integrity.authorship import IMPORTER


class Clock(StrEnum):
    """Who says when something was."""

    LOG = "log"
    ORIGIN = "origin"
    OCCURRED_AT = "occurred_at"
    IMPORT = "import"


class Time(msgspec.Struct, frozen=True):
    """A time as programs are told it: `at` is None where nobody knows."""

    at: str | None
    clock: Clock


class EventTime(msgspec.Struct, frozen=True):
    """When something was, as its clock says it: ISO 8601, for `occurred_at` as the source wrote it
    (what has no zone there has none here).
    """

    at: str
    clock: Clock

    @property
    def moment(self) -> datetime | None:
        """As a time, in UTC where it has a zone; None where the source wrote something else."""
        try:
            found = datetime.fromisoformat(self.at)
            return found.astimezone(UTC) if found.tzinfo else found
        except (ValueError, OverflowError):
            return None

    @property
    def is_known(self) -> bool:
        """Whether it says when something happened, and not just when it was imported."""
        return self.clock is not Clock.IMPORT

    @property
    def time(self) -> Time:
        """For programs."""
        return Time(self.at if self.is_known else None, self.clock)

    @property
    def kind(self) -> tuple[bool, bool] | None:
        """Which kind of time it is, of those that cannot be compared; None where it is no time of
        what happened.
        """
        moment = self.moment if self.is_known else None
        return None if moment is None else (self.clock is Clock.OCCURRED_AT, moment.tzinfo is None)


def earlier(found: EventTime, ms: float) -> EventTime:
    """So long before a log's time; what a source says stays as it is, and so does an import."""
    moment = found.moment
    if found.clock not in {Clock.LOG, Clock.ORIGIN} or moment is None or not ms:
        return found
    try:
        return EventTime((moment - timedelta(milliseconds=ms)).isoformat(), found.clock)
    except OverflowError:
        return found


def time_of(stored: Stored, recorded: Recorded) -> EventTime:
    """When an event was: as its source says, else as `time_stored`."""
    if recorded.occurred_at is not None:
        return EventTime(recorded.occurred_at, Clock.OCCURRED_AT)
    return time_stored(stored)


def time_stored(stored: Stored) -> EventTime:
    """When a commit was stored: in the log it was copied from, else in this one."""
    at = stored.origin.at if stored.origin is not None else stored.time.isoformat()
    if is_imported(stored):
        return EventTime(at, Clock.IMPORT)
    return EventTime(at, Clock.ORIGIN if stored.origin is not None else Clock.LOG)


def is_imported(stored: Stored) -> bool:
    """Whether an importer wrote a commit, so that log time and writer's clock are the import's.

    An importer writes on behalf of somebody; an agent that is called like it does not.
    """
    actor = stored.commit.actor
    return actor.agent == IMPORTER and bool(actor.on_behalf_of)


def own(run: str, history: Sequence[Stored]) -> Sequence[Stored]:
    """A run's own commits, without those before a fork's cut; all where it has none yet."""
    return [stored for stored in history if run_of(stored.stream) == run] or history


def began(history: Sequence[Stored]) -> EventTime:
    """When the first commit was; of an import the first time that its source tells, if any."""
    return _first(list(times(history)))


def last(history: Sequence[Stored]) -> EventTime:
    """When the newest commit was; of an import the last time that its source tells, if any."""
    return _first(list(times(history))[::-1])


def _first(found: list[EventTime]) -> EventTime:
    if found[0].is_known:
        return found[0]
    return next((each for each in found if each.clock is Clock.OCCURRED_AT), found[0])


def times(history: Iterable[Stored]) -> Iterator[EventTime]:
    """When each event was, in their order."""
    for stored in history:
        for recorded in stored.commit.events:
            yield time_of(stored, recorded)


def imported(found: Iterable[EventTime]) -> EventTime | None:
    """The import of which nobody knows when its events were; None where all are known."""
    return next((each for each in found if not each.is_known), None)


class Beginning:
    """When a run began, by each clock that can be compared with it.

    What logs say is one kind of time, what a source says with a zone another, without a third;
    each begins with the first event that has it. A fork begins with the run it goes on from.
    """

    def __init__(self, history: Iterable[Stored]) -> None:
        self.first: dict[tuple[bool, bool], EventTime] = {}
        for found in times(history):
            if found.kind is not None:
                self.first.setdefault(found.kind, found)

    def offset_ms(self, found: EventTime) -> float | None:
        """How long after the beginning something was, in ms; None where nobody can tell."""
        key, moment = found.kind, found.moment
        first = self.first[key].moment if key in self.first else None
        if first is None or moment is None:
            return None
        return (moment - first).total_seconds() * 1_000
