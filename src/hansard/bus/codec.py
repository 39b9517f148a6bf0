"""Commits and events to bytes and back; old event versions are lifted to today's here.

The body of a message is the record: JSON in a fixed field order, read back exactly. Every decode
asserts that body and subject agree.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hansard.bus import subjects
from hansard.domain import streams as streams  # noqa: PLC0414 -- every event type is registered there
from hansard.domain.errors import Corrupt, UnknownEvent
from hansard.domain.events import REGISTRY, UPCASTERS, Commit, Event, Recorded
from hansard.domain.ids import StreamId
from hansard.domain.quarantined import Quarantined

UPCAST_STEPS_MAX = 32
"""Longest chain of upcasters; more is a circle."""

_encoder = msgspec.json.Encoder()
_commit = msgspec.json.Decoder(Commit)
_decoders: dict[type[Event], msgspec.json.Decoder[Any]] = {}


def encode(stream: StreamId, commit: Commit) -> bytes:
    """A commit as the exact bytes to store."""
    if commit.stream is None and subjects.is_digested(stream):
        commit = msgspec.structs.replace(commit, stream=stream)
    return _encoder.encode(commit)


def decode(subject: str, body: bytes) -> tuple[StreamId, Commit]:
    """The stream and commit of a stored message. Raises Corrupt where body and subject differ."""
    stream, version = subjects.parse(subject)
    try:
        commit = _commit.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"message on {subject!r}", f"its body is not a commit ({error})") from error
    if commit.version != version:
        raise Corrupt(f"message on {subject!r}", f"its body says version {commit.version}")
    if not commit.events:
        raise Corrupt(f"message on {subject!r}", "its commit has no events")
    if commit.stream is not None:
        workspace = subject.split(".", 2)[1]
        if subjects.subject(workspace, commit.stream, version) != subject:
            raise Corrupt(f"message on {subject!r}", f"its body says stream {commit.stream}")
        stream = commit.stream
    elif ".==" in subject:
        raise Corrupt(f"message on {subject!r}", "its body does not give the name behind a digest")
    return stream, commit


def record(event: Event, event_id: str) -> Recorded:
    """A domain event as it is stored."""
    return Recorded(event.tag, event_id, msgspec.Raw(_encoder.encode(event)))


def revive(recorded: Recorded) -> Event:
    """The domain event behind a stored one, upcast to today's version.

    Raises UnknownEvent for a tag of a newer version, Corrupt for data that is not its event's.
    """
    where = f"event {recorded.id}"
    if recorded.enc is not None:
        raise UnknownEvent(f"{recorded.type} (encrypted with {recorded.enc.alg})", where)
    cls = REGISTRY.get(recorded.type)
    if cls is None and recorded.type == Quarantined.tag:
        cls = Quarantined  # not registered: no log holds one
    try:
        if cls is not None and recorded.type not in UPCASTERS:
            decoder = _decoders.get(cls)
            if decoder is None:
                decoder = _decoders[cls] = msgspec.json.Decoder(cls)
            event: Event = decoder.decode(recorded.data)
            return event
        return _upcast(recorded, where)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(where, f"its data is not a {recorded.type} ({error})") from error


def _upcast(recorded: Recorded, where: str) -> Event:
    tag = recorded.type
    if tag not in UPCASTERS:
        raise UnknownEvent(tag, where)
    data: dict[str, Any] = msgspec.json.decode(recorded.data)
    for _ in range(UPCAST_STEPS_MAX):
        upcaster = UPCASTERS.get(tag)
        if upcaster is None:
            break
        tag, data = upcaster(data)
    cls = REGISTRY.get(tag)
    if cls is None or tag in UPCASTERS:
        raise UnknownEvent(tag, where)
    return msgspec.json.decode(_encoder.encode(data), type=cls)


def revive_all(commits: Iterable[Commit]) -> list[Event]:
    """The domain events of commits, in order."""
    return [revive(recorded) for commit in commits for recorded in commit.events]
