"""Inserting: one event is one publish, several are an atomic batch, all or none.

The server itself refuses a second message on a subject, so a version is stored once whoever
writes. When no answer comes, the same is sent again until it is stored or refused: every message
of an insert carries the same random mark, so that a writer recognises its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import msgspec
from eventsourcing.persistence import (
    DataError,
    IntegrityError,
    OperationalError,
    StoredEvent,
    Tracking,
)

from hansard.bus import subjects
from hansard.bus.errors import NotWritable, Unreachable
from hansard.bus.jetstream.calls import BATCH_MESSAGES_MAX, Outgoing, publish, publish_all
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.patience import Patience
from hansard.bus.jetstream.wire import (
    EXPECTED_SEQUENCE,
    EXPECTED_SUBJECT,
    FIRST,
    NoAnswer,
    NotSent,
    Rejected,
    block,
)
from hansard.bus.recorder._datastore import Connections
from hansard.bus.recorder._errors import OutcomeUnknown
from hansard.bus.recorder._stream import RecorderStream
from hansard.bus.recorder._wire import (
    event_body,
    event_subject,
    mark_of,
    tracked,
    tracking_body,
    tracking_subject,
)
from hansard.domain.errors import Corrupt

HEADROOM_BYTES = 8 * 1024
"""What of the server's limit for a message its subject and headers may take: a subject has at most
some 700 bytes and stands twice, in a condition too."""

INSERT_BYTES_MAX = 8 * 1024 * 1024
"""Largest sum of an insert's bodies: what the connection buffers."""


class Newest(msgspec.Struct, frozen=True):
    """The newest tracking record of an upstream application, and where it stands."""

    notification_id: int
    position: int


NOTHING = Newest(-1, 0)


class Writer:
    """Writes to one place. It remembers the newest tracking records, which saves reading them:
    a wrong memory is refused by the server and read again.
    """

    def __init__(self, place: RecorderStream) -> None:
        self._place = place
        self._newest: dict[str, Newest] = {}

    async def insert(
        self, connections: Connections, events: Sequence[StoredEvent], tracking: Tracking | None
    ) -> list[int]:
        """Store events, and perhaps a tracking record, all or none; returns the events' positions.

        Raises IntegrityError, DataError, OperationalError, OutcomeUnknown, BusError.
        """
        mark = uuid4().bytes
        messages = self._events(events, mark, connections.writes.max_payload)
        count = len(messages) + (tracking is not None)
        if count > BATCH_MESSAGES_MAX:
            message = (
                f"{count:,} records at once are more than the {BATCH_MESSAGES_MAX:,} that "
                "JetStream stores whole or not at all: save fewer events at a time"
            )
            raise DataError(message)
        if not count:
            return []
        return await _Insert(self, connections, messages, tracking, mark).run()

    def _events(self, events: Sequence[StoredEvent], mark: bytes, limit: int) -> list[Outgoing]:
        messages: list[Outgoing] = []
        seen: set[str] = set()
        total = 0
        for event in events:
            body = event_body(event, mark)
            subject = event_subject(self._place.prefix, event)
            if subject in seen:
                raise IntegrityError(_twice(subject))
            seen.add(subject)
            total += len(body)
            if len(body) > limit - HEADROOM_BYTES or total > INSERT_BYTES_MAX:
                raise DataError(_too_large(event, len(body), limit - HEADROOM_BYTES, total))
            messages.append((subject, body, FIRST))
        return messages

    async def newest(self, direct: Direct, upstream: str) -> Newest:
        """The newest tracking record of an upstream application, read."""
        filter_ = f"{subjects.recorder_upstream(self._place.prefix, upstream)}.*"
        message = await direct.last(self._place.stream, filter_)
        if message is None:
            return NOTHING
        tracking = tracked(self._place.prefix, message.subject, message.data)
        return Newest(tracking.notification_id, message.position)

    async def condition(self, direct: Direct, tracking: Tracking, *, read: bool) -> bytes:
        """The header under which a tracking record is stored: it is newer than every other.

        Raises IntegrityError.
        """
        upstream = tracking.application_name
        newest = self._newest.get(upstream)
        if newest is None or read:
            newest = await self.newest(direct, upstream)
        if newest.notification_id >= tracking.notification_id:
            raise IntegrityError(_processed(tracking, newest.notification_id))
        filter_ = f"{subjects.recorder_upstream(self._place.prefix, upstream)}.*"
        return block({EXPECTED_SEQUENCE: str(newest.position), EXPECTED_SUBJECT: filter_})

    def remember(self, tracking: Tracking, position: int) -> None:
        """Note a tracking record that was stored."""
        self._newest[tracking.application_name] = Newest(tracking.notification_id, position)

    @property
    def place(self) -> RecorderStream:
        """Where this writes."""
        return self._place


class _Insert:
    """One insert, sent until its outcome is known or its time is over."""

    def __init__(
        self,
        writer: Writer,
        connections: Connections,
        events: list[Outgoing],
        tracking: Tracking | None,
        mark: bytes,
    ) -> None:
        self._writer = writer
        self._broker = connections.writes
        self._points = connections.points
        self._events = events
        self._tracking = tracking
        self._mark = mark
        self._patience = Patience(connections.writes)
        self._unknown = False

    async def run(self) -> list[int]:
        """Returns the events' positions."""
        again = False
        while True:
            try:
                messages = await self._messages(read=again)
            except IntegrityError as error:
                standing = await self._standing(error) if again else None
                if standing is None:
                    raise
                return standing
            try:
                first = await self._publish(messages)
            except Rejected as error:
                standing = await self._standing(error)
                if standing is not None:
                    return standing
                await self._wait(error)
            except NoAnswer as error:
                await self._wait(error)
            else:
                return self._stored(first)
            again = True

    async def _messages(self, *, read: bool) -> list[Outgoing]:
        tracking = self._tracking
        if tracking is None:
            return self._events
        condition = await self._writer.condition(self._points, tracking, read=read)
        subject = tracking_subject(self._writer.place.prefix, tracking)
        return [*self._events, (subject, tracking_body(tracking, self._mark), condition)]

    async def _publish(self, messages: list[Outgoing]) -> int:
        known = self._points.known.of(self._writer.place.stream)
        if len(messages) == 1:
            subject, body, headers = messages[0]
            return (await publish(self._broker, subject, body, headers, known)).seq
        return await publish_all(self._broker, messages, known)

    def _stored(self, first: int) -> list[int]:
        host = self._broker.options.host
        if host is not None:
            host.check(self._writer.place.stream)
        known = self._points.known.of(self._writer.place.stream)
        for subject, body, _ in self._events[:1]:
            known.note(first, subject, len(body))
        if self._tracking is not None:
            self._writer.remember(self._tracking, first + len(self._events))
        return list(range(first, first + len(self._events)))

    async def _standing(self, error: Rejected | IntegrityError) -> list[int] | None:
        """Our own messages from an earlier attempt; None if nothing explains the rejection (yet).

        Raises IntegrityError for one that another writer stored, OperationalError for a rejection
        that is no lost race.
        """
        refused = isinstance(error, Rejected) and not error.passing
        if refused and not self._unknown:
            raise self._given_up(error) from error
        place, tracking = self._writer.place, self._tracking
        names = [subject for subject, _, _ in self._events]
        if tracking is not None:
            names.append(tracking_subject(place.prefix, tracking))
        found = {each.subject: each for each in await self._points.named(place.stream, names)}
        for subject, message in found.items():
            if mark_of(message.data, subject) != self._mark:
                if tracking is not None and subject == names[-1]:
                    told = _processed(tracking, tracking.notification_id)
                    raise IntegrityError(told) from error
                raise IntegrityError(_twice(subject)) from error
        if not found:
            if refused:
                raise self._given_up(error) from error
            return None
        if len(found) != len(names):
            fact = f"{len(found)} of its {len(names)} records are stored"
            raise Corrupt(self._what(), fact) from error
        return [found[subject].position for subject, _, _ in self._events]

    async def _wait(self, error: NoAnswer | Rejected) -> None:
        """Return when it is time to send again. Raises OutcomeUnknown, OperationalError."""
        self._unknown = self._unknown or not isinstance(error, NotSent | Rejected)
        try:
            await self._patience.again(error)
        except Unreachable as unreachable:
            hindered = isinstance(unreachable, NotWritable)
            told = error if isinstance(error, Rejected) and not hindered else unreachable
            raise self._given_up(told) from error

    def _given_up(self, error: Exception) -> Exception:
        if self._unknown:
            why = str(error) if isinstance(error, NotWritable) else ""
            return OutcomeUnknown(self._what(), self._patience.waited_s, why)
        if isinstance(error, Unreachable):
            return error
        return OperationalError(f"{self._what()} could not be stored, nothing was: {error}")

    def _what(self) -> str:
        subject = self._events[0][0] if self._events else f"tracking {self._tracking}"
        more = f" and {len(self._events) - 1} more" if len(self._events) > 1 else ""
        return f"the insert of {subject!r}{more}"


def _twice(subject: str) -> str:
    return f"{subject!r} is already recorded: get the aggregate again and decide again"


def _processed(tracking: Tracking, newest: int) -> str:
    return (
        f"notification {tracking.notification_id} of {tracking.application_name!r} cannot be "
        f"tracked: {newest} was processed before; go on after the newest"
    )


def _too_large(event: StoredEvent, size: int, limit: int, total: int) -> str:
    what = f"version {event.originator_version} of {event.originator_id}"
    if size > limit:
        return (
            f"{what} has {size:,} bytes as a message, the server takes {limit:,}: "
            "keep large values elsewhere and record a reference to them"
        )
    return (
        f"the events up to {what} have {total:,} bytes, {INSERT_BYTES_MAX:,} can be stored "
        "at once: save fewer at a time"
    )
