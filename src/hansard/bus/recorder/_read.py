"""Reading stored events: those of an aggregate, or the notifications of the whole application.

A subject is written once and never changes, so a read may take several requests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec
from eventsourcing.persistence import Notification, StoredEvent

from hansard.bus import subjects
from hansard.bus.jetstream.direct import PAGE_BYTES_MAX, Direct
from hansard.bus.jetstream.wire import Message, TooMany
from hansard.bus.recorder._stream import RecorderStream
from hansard.bus.recorder._wire import is_event, notification, stored_event

PAGE_MESSAGES_MAX = 1_000
"""Messages asked for at once: some 7 ms. More would not make it quicker."""


class Range(msgspec.Struct, frozen=True):
    """Which of an aggregate's events: versions in (gt, lte], from either end, at most `limit`."""

    gt: int | None
    lte: int | None
    desc: bool
    limit: int | None

    @property
    def is_all(self) -> bool:
        """Whether it leaves nothing out."""
        return self.gt is None and self.lte is None and self.limit is None

    def of(self, versions: Collection[int]) -> list[int]:
        """Those versions that are asked for, in the order asked for."""
        chosen = sorted(
            version
            for version in versions
            if (self.gt is None or version > self.gt) and (self.lte is None or version <= self.lte)
        )
        if self.desc:
            chosen.reverse()
        return chosen if self.limit is None else chosen[: max(0, self.limit)]


class Page(msgspec.Struct, frozen=True):
    """Which notifications: positions from `first` to `stop`, of these topics, at most `limit`."""

    first: int
    stop: int | None
    limit: int
    topics: frozenset[str]


async def select_events(
    direct: Direct, place: RecorderStream, originator_id: UUID | str, wanted: Range
) -> list[StoredEvent]:
    """An aggregate's events. One request for all of up to 1,023; else their names first, then
    only what is wanted, a thousand a request.
    """
    originator = subjects.recorder_originator(place.prefix, str(originator_id))
    if wanted.is_all:
        try:
            messages = await direct.many(place.stream, [f"{originator}.*"])
        except TooMany:
            pass
        else:
            return _in_order(place, messages, wanted)
    listed, head = await direct.names(place.stream, f"{originator}.*")
    versions = {int(name.rpartition(".")[2]) for name in listed}
    names = [f"{originator}.{version}" for version in wanted.of(versions)]
    return _in_order(place, await direct.named(place.stream, names, head), wanted)


async def select_notifications(
    direct: Direct, place: RecorderStream, wanted: Page
) -> list[Notification]:
    """Notifications by position, read in pages of messages."""
    found: list[Notification] = []
    position = max(1, wanted.first)
    wanted_to = await direct.wanted(place.stream)
    while len(found) < wanted.limit and (wanted.stop is None or position <= wanted.stop):
        # Some of what is read may be left out, so a filter always asks for full pages.
        asked = PAGE_MESSAGES_MAX if wanted.topics else wanted.limit - len(found)
        if wanted.stop is not None:
            asked = min(asked, wanted.stop - position + 1)
        asked = min(asked, PAGE_MESSAGES_MAX)
        messages = await direct.following(place.stream, position, asked, wanted_to)
        for message in messages:
            if wanted.stop is not None and message.position > wanted.stop:
                return found
            told = notified(place, message, wanted.topics)
            if told is not None:
                found.append(told)
                if len(found) == wanted.limit:
                    return found
        if _is_end(messages, asked):
            break
        position = messages[-1].position + 1
    return found


def notified(
    place: RecorderStream, message: Message, topics: Collection[str]
) -> Notification | None:
    """The notification in a message; None for a tracking record or another topic."""
    if not is_event(place.prefix, message.subject):
        return None
    told = notification(place.prefix, message.subject, message.data, message.position)
    return told if not topics or told.topic in topics else None


async def head(direct: Direct, place: RecorderStream) -> int:
    """The newest position of the stream, whatever stands there; 0 if it is empty."""
    return int((await direct.info(place.stream))["state"]["last_seq"])


async def max_notification_id(direct: Direct, place: RecorderStream) -> int | None:
    """The newest event's position.

    Mostly that is the end of the stream (0.5 ms). Where a tracking record stands there, the server
    looks for the event (some 4 ms and more).
    """
    last = await head(direct, place)
    message = await direct.at(place.stream, last) if last else None
    if message is not None and not is_event(place.prefix, message.subject):
        message = await direct.last(place.stream, f"{place.prefix}.event.>")
    return message.position if message is not None else None


def _is_end(messages: Sequence[Message], asked: int) -> bool:
    """Whether a page is the last one: it is short, and was not cut for its size."""
    size = sum(len(message.data) for message in messages)
    return not messages or (len(messages) < asked and size < PAGE_BYTES_MAX // 2)


def _in_order(place: RecorderStream, messages: list[Message], wanted: Range) -> list[StoredEvent]:
    events = [stored_event(place.prefix, each.subject, each.data) for each in messages]
    events.sort(key=lambda event: event.originator_version, reverse=wanted.desc)
    return events
