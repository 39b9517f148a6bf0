"""The library's four recorders over one JetStream stream each.

The id of a notification is its message's sequence in the stream. Where tracking records stand
among the events (a process recorder's do, to be stored with them), ids have gaps; they are never
given twice, and never become visible out of order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    Notification,
    ProcessRecorder,
    Recorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)

from hansard.bus.recorder import _read
from hansard.bus.recorder._datastore import Connections, Datastore
from hansard.bus.recorder._stream import RecorderStream
from hansard.bus.recorder._subscription import JetStreamSubscription
from hansard.bus.recorder._write import Writer

T = TypeVar("T")

EVENTS = "events"
"""The purpose that application, process and tracking recorders share, as they share tables in the
library's own database recorders."""


class JetStreamRecorder(Recorder):
    """What the recorders have in common. Threads may share one."""

    def __init__(self, datastore: Datastore, name: str = "", purpose: str = EVENTS) -> None:
        self.datastore = datastore
        self.place = RecorderStream(name, purpose)
        self._writer = Writer(self.place)

    def create_table(self) -> None:
        """Make the stream where it is missing. Raises OperationalError."""
        self.datastore.run(lambda connections: connections.create(self.place))

    def _run(self, work: Callable[[Connections], Awaitable[T]]) -> T:
        async def checked(connections: Connections) -> T:
            await connections.check(self.place)
            return await work(connections)

        return self.datastore.run(checked)


class JetStreamAggregateRecorder(JetStreamRecorder, AggregateRecorder):
    """Stored events of aggregates; used by itself, of snapshots."""

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        """Store up to 1,000 events, all or none.

        One event costs a publish, several about 4 ms however many. Raises IntegrityError (a version
        is already recorded; nothing was stored), DataError, OperationalError, OutcomeUnknown.
        """
        self._insert(stored_events, **kwargs)
        return None

    def _insert(self, stored_events: Sequence[StoredEvent], **_: Any) -> list[int]:
        return self._run(lambda each: self._writer.insert(each, stored_events, None))

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """An aggregate's events with versions in (gt, lte]. One request, or two where some are
        left out. Raises OperationalError, InternalError.
        """
        wanted = _read.Range(gt, lte, desc, limit)
        return self._run(
            lambda each: _read.select_events(each.direct, self.place, originator_id, wanted)
        )


class JetStreamApplicationRecorder(JetStreamAggregateRecorder, ApplicationRecorder):
    """Stored events of aggregates, in one order for the whole application."""

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        """As of an aggregate recorder; returns the ids of the notifications."""
        return self._insert(stored_events, **kwargs)

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Notifications from `start` to `stop`. Topics are chosen here, not on the server: all
        between are read. Raises OperationalError, InternalError.
        """
        first = 1 if start is None else start + (not inclusive_of_start)
        wanted = _read.Page(first, stop, limit, frozenset(topics))
        return self._run(lambda each: _read.select_notifications(each.direct, self.place, wanted))

    def max_notification_id(self) -> int | None:
        """The id of the newest notification; None if there is none."""
        return self._run(lambda each: _read.max_notification_id(each.direct, self.place))

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """Notifications after `gt`, waiting for new ones; the server pushes them."""
        return JetStreamSubscription(self, self.datastore, self.place, gt, topics)


class JetStreamTrackingRecorder(JetStreamRecorder, TrackingRecorder):
    """How far the notifications of upstream applications are processed."""

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record a position. Raises IntegrityError unless it is later than all before it."""
        self._run(lambda each: self._writer.insert(each, (), tracking))

    def max_tracking_id(self, application_name: str) -> int | None:
        """The latest position recorded for an upstream application; None if there is none."""
        newest = self._run(lambda each: self._writer.newest(each.direct, application_name))
        return newest.notification_id if newest.position else None


class JetStreamProcessRecorder(
    JetStreamTrackingRecorder, JetStreamApplicationRecorder, ProcessRecorder
):
    """Events together with the position of the notification that they follow from."""

    def _insert(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> list[int]:
        tracking: Tracking | None = kwargs.get("tracking")
        return self._run(lambda each: self._writer.insert(each, stored_events, tracking))
