"""What the recorder stores: one stored event or one tracking record a message.

Bodies are msgpack arrays, which keep the state's bytes as they are. This is the storage format:
`tests/bus/recorder` keeps golden bytes of it. The topic is text; nothing here revives it.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

import msgspec
from eventsourcing.persistence import DataError, Notification, StoredEvent, Tracking

from hansard.bus import subjects
from hansard.domain.errors import Corrupt

LAYOUT = 1
"""The first element of every body: how the rest is to be read."""


class EventBody(msgspec.Struct, frozen=True, array_like=True):
    """A stored event. `mark` is random and the same for all that one insert stored, so that a
    writer that got no answer recognises its own.
    """

    layout: int
    mark: bytes
    originator_id: str
    is_uuid: bool
    originator_version: int
    topic: str
    state: bytes


class TrackingBody(msgspec.Struct, frozen=True, array_like=True):
    """A tracking record."""

    layout: int
    mark: bytes
    application_name: str
    notification_id: int


Body = TypeVar("Body", EventBody, TrackingBody)

_encode = msgspec.msgpack.Encoder().encode
_events = msgspec.msgpack.Decoder(EventBody)
_trackings = msgspec.msgpack.Decoder(TrackingBody)


def event_subject(prefix: str, event: StoredEvent) -> str:
    """Where an event is stored. Raises DataError."""
    try:
        originator = subjects.recorder_originator(prefix, str(event.originator_id))
    except UnicodeEncodeError as error:
        raise DataError(_unstorable(event, str(error))) from error
    return f"{originator}.{event.originator_version}"


def event_body(event: StoredEvent, mark: bytes) -> bytes:
    """The message of an event. Raises DataError for what would not come back as it is."""
    known = isinstance(event.originator_id, UUID | str)
    if not known or type(event.originator_version) is not int or not isinstance(event.topic, str):
        why = "its id must be a UUID or text, its version an int, its topic text"
        raise DataError(_unstorable(event, why))
    if not isinstance(event.state, bytes):
        raise DataError(_unstorable(event, f"its state must be bytes, not {type(event.state)}"))
    body = EventBody(
        LAYOUT,
        mark,
        str(event.originator_id),
        isinstance(event.originator_id, UUID),
        event.originator_version,
        event.topic,
        event.state,
    )
    try:
        return _encode(body)
    except (OverflowError, UnicodeEncodeError) as error:
        raise DataError(_unstorable(event, str(error))) from error


def tracking_subject(prefix: str, tracking: Tracking) -> str:
    """Where a tracking record is stored."""
    upstream = subjects.recorder_upstream(prefix, tracking.application_name)
    return f"{upstream}.{tracking.notification_id}"


def tracking_body(tracking: Tracking, mark: bytes) -> bytes:
    """The message of a tracking record."""
    return _encode(TrackingBody(LAYOUT, mark, tracking.application_name, tracking.notification_id))


def mark_of(data: bytes, subject: str) -> bytes:
    """The mark of a body, whichever it is. Raises Corrupt."""
    is_tracking = subject.split(".", 4)[3] == "tracking"
    return (
        _decoded(_trackings, data, subject) if is_tracking else _decoded(_events, data, subject)
    ).mark


def is_event(prefix: str, subject: str) -> bool:
    """Whether a subject of the stream is an event's, not a tracking record's."""
    return subject.startswith(f"{prefix}.event.")


def stored_event(prefix: str, subject: str, data: bytes) -> StoredEvent:
    """The event in a message. Raises Corrupt if the body is none, or is not its subject's."""
    return StoredEvent(*_event(prefix, subject, data))


def notification(prefix: str, subject: str, data: bytes, position: int) -> Notification:
    """The notification in a message; its id is the position. Raises Corrupt."""
    return Notification(*_event(prefix, subject, data), position)


def tracked(prefix: str, subject: str, data: bytes) -> Tracking:
    """The tracking record in a message. Raises Corrupt."""
    body = _decoded(_trackings, data, subject)
    tracking = Tracking(body.application_name, body.notification_id)
    _agree(subject, tracking_subject(prefix, tracking))
    return tracking


def _event(prefix: str, subject: str, data: bytes) -> tuple[UUID | str, int, str, bytes]:
    body = _decoded(_events, data, subject)
    originator = subjects.recorder_originator(prefix, body.originator_id)
    _agree(subject, f"{originator}.{body.originator_version}")
    name = body.originator_id
    return UUID(name) if body.is_uuid else name, body.originator_version, body.topic, body.state


def _decoded(decoder: msgspec.msgpack.Decoder[Body], data: bytes, subject: str) -> Body:
    try:
        body = decoder.decode(data)
    except msgspec.DecodeError as error:
        raise Corrupt(f"the message on {subject!r}", str(error)) from error
    if body.layout != LAYOUT:
        fact = f"its layout is {body.layout}, this version reads {LAYOUT}: upgrade hansard"
        raise Corrupt(f"the message on {subject!r}", fact)
    return body


def _agree(subject: str, told: str) -> None:
    if subject != told:
        raise Corrupt(f"the message on {subject!r}", f"its body says {told!r}")


def _unstorable(event: StoredEvent, why: str) -> str:
    return (
        f"version {event.originator_version!r} of {event.originator_id!r} cannot be stored: {why}"
    )
