"""The times of events, each with the clock that gave it.

There are three clocks: the log's own, that of the log a copied commit was read from, and the source
of an imported event. A time is always reported with its clock; times of different clocks are never
mixed. If the source of an imported event gives no time, only that of the import is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from hansard.bus.log import Stored
from hansard.domain.events import Recorded
from hansard.domain.ids import run_of
from hansard.domain.integrity import IMPORTER


class Clock(StrEnum):
    """The clock that gave a time."""

    LOG = "log"
    ORIGIN = "origin"
    OCCURRED_AT = "occurred_at"
    IMPORT = "import"


class Time(msgspec.Struct, frozen=True):
    """A time for programs: `at` is None if it is unknown."""

    at: str | None
    clock: Clock


class EventTime(msgspec.Struct, frozen=True):
    """An event's time by its clock: ISO 8601; for `occurred_at` as the source wrote it (without a
    zone if the source gave none).
    """

    at: str
    clock: Clock

    @property
    def moment(self) -> datetime | None:
        """The datetime, in UTC if it has a zone; None if the source's text is no time."""
        try:
            moment = datetime.fromisoformat(self.at)
            return moment.astimezone(UTC) if moment.tzinfo else moment
        except (ValueError, OverflowError):
            return None

    @property
    def is_known(self) -> bool:
        """True if it is the time of the event, not only of its import."""
        return self.clock is not Clock.IMPORT

    @property
    def time(self) -> Time:
        """The time for programs."""
        return Time(self.at if self.is_known else None, self.clock)

    @property
    def kind(self) -> tuple[bool, bool] | None:
        """The kind of time, among kinds that cannot be compared; None if it is not the event's own
        time.
        """
        moment = self.moment if self.is_known else None
        return None if moment is None else (self.clock is Clock.OCCURRED_AT, moment.tzinfo is None)


def earlier(time: EventTime, ms: float) -> EventTime:
    """Return the time `ms` milliseconds before a log's time; a source's or an import's time is
    unchanged.
    """
    moment = time.moment
    if time.clock not in {Clock.LOG, Clock.ORIGIN} or moment is None or not ms:
        return time
    try:
        return EventTime((moment - timedelta(milliseconds=ms)).isoformat(), time.clock)
    except OverflowError:
        return time


def time_of(stored: Stored, recorded: Recorded) -> EventTime:
    """Return the time of an event: its source's, else as `time_stored`."""
    if recorded.occurred_at is not None:
        return EventTime(recorded.occurred_at, Clock.OCCURRED_AT)
    return time_stored(stored)


def time_stored(stored: Stored) -> EventTime:
    """Return the time a commit was stored: in the log it was copied from, else in this one."""
    at = stored.origin.at if stored.origin is not None else stored.time.isoformat()
    if is_imported(stored):
        return EventTime(at, Clock.IMPORT)
    return EventTime(at, Clock.ORIGIN if stored.origin is not None else Clock.LOG)


def is_imported(stored: Stored) -> bool:
    """Return whether an importer wrote a commit, so that log time and writer's clock are the
    import's.

    An importer writes on behalf of another principal; an agent of the same name does not.
    """
    actor = stored.commit.actor
    return actor.agent == IMPORTER and bool(actor.on_behalf_of)


def own(run: str, history: Sequence[Stored]) -> Sequence[Stored]:
    """Return a run's own commits, without those before a fork's cut; all if it has none yet."""
    return [stored for stored in history if run_of(stored.stream) == run] or history


def began(history: Sequence[Stored]) -> EventTime:
    """Return the time of the first commit; of an import the source's first time, if any."""
    return _first(times(history))


def last(history: Sequence[Stored]) -> EventTime:
    """Return the time of the newest commit; of an import the source's last time, if any."""
    return _first(
        time_of(stored, recorded)
        for stored in reversed(history)
        for recorded in reversed(stored.commit.events)
    )


def _first(moments: Iterator[EventTime]) -> EventTime:
    first = next(moments)
    if first.is_known:
        return first
    return next((each for each in moments if each.clock is Clock.OCCURRED_AT), first)


def times(history: Iterable[Stored]) -> Iterator[EventTime]:
    """Yield the time of each event, in order."""
    for stored in history:
        for recorded in stored.commit.events:
            yield time_of(stored, recorded)


def imported(moments: Iterable[EventTime]) -> EventTime | None:
    """Return the import time of events whose own times are unknown; None if all are known."""
    return next((each for each in moments if not each.is_known), None)


class Beginning:
    """The beginning of a run, by each kind of clock.

    Times of logs are one kind, a source's with a zone another, without a zone a third; each begins
    with the first event that has it. A fork begins with the run it was forked from.
    """

    def __init__(self, history: Iterable[Stored]) -> None:
        self.first: dict[tuple[bool, bool], EventTime] = {}
        for time in times(history):
            if time.kind is not None:
                self.first.setdefault(time.kind, time)

    def offset_ms(self, time: EventTime) -> float | None:
        """Return the offset from the beginning, in ms; None if the times cannot be compared."""
        key, moment = time.kind, time.moment
        first = self.first[key].moment if key in self.first else None
        if first is None or moment is None:
            return None
        return (moment - first).total_seconds() * 1_000
