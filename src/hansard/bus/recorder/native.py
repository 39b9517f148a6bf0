"""The library's recorders over a workspace's own log: one place of truth for its aggregates.

An application that is made with the environment of an open record (`lent`) reads and writes the
streams that `session.save` and `session.get` do: the same commits, names, tags and values. What the
library calls a topic lives in this process alone. How this differs from the persistence module
beside it, which keeps a stream of its own: `hansard.bus.recorder`.

The id of a notification is its commit's position times 1,000, plus its place there; ids have gaps,
and never become visible out of order. An application's notifications are of all aggregates that are
declared, or of those whose names stand in its environment under AGGREGATES ("account,order").
Where a follower stands is on record, in one transaction with what it makes of a notification.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from eventsourcing.domain import CanSnapshotAggregate
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    InfrastructureFactoryError,
    IntegrityError,
    InterfaceError,
    Mapper,
    Notification,
    ProcessRecorder,
    Recorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.popo import POPOAggregateRecorder
from eventsourcing.utils import Environment, EnvType, get_topic, resolve_topic

from hansard.bus.blobs import Blobs
from hansard.bus.clock import Clock
from hansard.bus.codec import revive
from hansard.bus.commits import new_commit
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, EventLog, Kind, Stored
from hansard.bus.portal import arriving, refuse_in_loop
from hansard.bus.recorder._errors import translated
from hansard.bus.recorder._native_subscription import NativeSubscription
from hansard.bus.states.aggregates import in_full, since
from hansard.bus.writer import MERGE_EVENTS_MAX
from hansard.domain import aggregate_types
from hansard.domain.aggregate import (
    FOLLOWER,
    KIND,
    AggregateChanged,
    AggregateFollowed,
    UndeclaredEvent,
    stream_of,
)
from hansard.domain.aggregate_types import AggregateType
from hansard.domain.errors import BadValue
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.payload.references import reference
from hansard.domain.values import Plain

T = TypeVar("T")
R = TypeVar("R", bound="NativeRecorder")

STEP = 1_000
"""How far apart the notification ids of two commits are; a commit has at most 500 events."""

INLINE_BYTES_MAX = 64 * 1024
"""Largest state kept inside an event; a larger one is a blob."""

AHEAD_MAX = 500
"""Most notifications that are read at once: a reader of sections asks for ten at a time."""

TOKEN = "HANSARD_RECORD"  # noqa: S105 -- the name of a variable of the library's environment
AGGREGATES = "AGGREGATES"


class Place(msgspec.Struct):
    """An open record's log, and the loop it lives on; `closed` once the record is."""

    log: EventLog
    blobs: Blobs
    clock: Clock
    loop: asyncio.AbstractEventLoop
    closed: bool = False

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do some work on the loop and wait for it, in another thread. Raises SyncInLoop where an
        event loop runs, which this would block, and the library's errors.
        """
        refuse_in_loop()
        if self.closed:
            message = "the record that this application was made with is closed: make it again"
            raise InterfaceError(message)
        with translated():
            found: T = arriving(work(), self.loop).result()
            return found


_lent: dict[str, Place] = {}


def lent(place: Place) -> dict[str, str]:
    """The environment with which the library's applications find an open record."""
    token = next((each for each, known in _lent.items() if known is place), None)
    if token is None:
        token = uuid.uuid4().hex
        _lent[token] = place
    return {"PERSISTENCE_MODULE": f"{__name__}:{NativeFactory.__name__}", TOKEN: token}


def taken_back(place: Place) -> None:
    """The record is closed: what was made with it raises InterfaceError."""
    place.closed = True
    for token in [each for each, known in _lent.items() if known is place]:
        del _lent[token]


class _State(msgspec.Struct):
    """What the library carries of an event in this process: its tag, and its state as recorded."""

    tag: str
    state: msgspec.Raw


_state = msgspec.json.Decoder(_State)
_encoder = msgspec.json.Encoder()


class NativeMapper(Mapper[Any]):
    """The program's events as what is recorded of them, and back. Snapshots, which are kept in this
    process alone, hold the library's own state.
    """

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """An event with its tag and plain values. Raises BadValue."""
        if isinstance(domain_event, CanSnapshotAggregate):
            return _held(domain_event)
        made = aggregate_types.of_event(domain_event)
        if made is None:
            where = type(domain_event).__qualname__
            remedy = "declare it: hansard.aggregate_type(cls, name=..., events={'tag.v1': ...})"
            raise BadValue(where, "it is an event of no aggregate that is declared", remedy)
        tag, plain = aggregate_types.told(made, domain_event)
        return _stored(
            made, tag, domain_event.originator_id, domain_event.originator_version, plain
        )

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """The program's event behind a stored one."""
        held: Any = stored_event.state
        if isinstance(held, _Held):
            snapshot: Any = object.__new__(held.cls)
            object.__setattr__(snapshot, "__dict__", copy.deepcopy(held.fields))
            return snapshot
        made = _type_of(stored_event.topic)
        carried = _state.decode(stored_event.state)
        plain = msgspec.json.decode(carried.state)
        named = made.id_of(stored_event.originator_id)
        version = stored_event.originator_version
        return aggregate_types.revived(made, named, version, carried.tag, plain)


class _Held:
    """A snapshot as it is kept: what it held when it was taken."""

    def __init__(self, cls: type, fields: dict[str, Any]) -> None:
        self.cls = cls
        self.fields = fields


def _held(snapshot: Any) -> StoredEvent:
    held: Any = _Held(type(snapshot), copy.deepcopy(vars(snapshot)))
    named, version = snapshot.originator_id, snapshot.originator_version
    return StoredEvent(named, version, get_topic(type(snapshot)), held)


def _stored(
    made: AggregateType, tag: str, named: UUID | str, version: int, plain: Plain
) -> StoredEvent:
    state = _encoder.encode(_State(tag, msgspec.Raw(_encoder.encode(plain))))
    return StoredEvent(made.id_of(named), version, get_topic(made.class_of(tag)), state)


def _type_of(topic: str) -> AggregateType:
    cls = resolve_topic(topic)
    found = aggregate_types.of_event_class(cls)
    if found is None:
        raise BadValue(topic, "it is the event of no aggregate that is declared", "declare it")
    return found


class NativeRecorder(Recorder):
    """What the recorders have in common. Threads may share one."""

    def __init__(self, place: Place, name: str = "", names: Iterable[str] = ()) -> None:
        self.place = place
        self._name = name or "application"
        self._names = frozenset(names)
        self._newest: tuple[int, int | None] = (0, None)
        self._ahead: tuple[int, int, list[Notification]] = (0, -1, [])

    def _insert(self, events: Sequence[StoredEvent], tracking: Tracking | None) -> list[int]:
        if not events and tracking is None:
            return []
        return self.place.run(functools.partial(self._put, events, tracking))

    async def _put(self, events: Sequence[StoredEvent], tracking: Tracking | None) -> list[int]:
        by_stream: dict[WorkspaceStream, list[StoredEvent]] = {}
        for each in events:
            by_stream.setdefault(stream_of(each.originator_id), []).append(each)
        appends = [await self._append(stream, group) for stream, group in by_stream.items()]
        if tracking is not None:
            appends.append(await self._followed(tracking))
        log = self.place.log
        try:
            if len(appends) == 1:
                stored = [await log.append(appends[0])]
            else:
                stored = await log.append_all(appends)
        except Conflict as lost:
            raise IntegrityError(str(lost)) from lost
        begins = {each.stream: each for each in stored}
        ids: list[int] = []
        for each in events:
            commit = begins[stream_of(each.originator_id)]
            ids.append(commit.position * STEP + each.originator_version - commit.commit.version)
        return ids

    async def _append(self, stream: WorkspaceStream, group: list[StoredEvent]) -> Append:
        first = group[0].originator_version
        versions = [each.originator_version for each in group]
        if versions != list(range(first, first + len(group))) or len(group) > MERGE_EVENTS_MAX:
            message = (
                f"events {versions[:3]} ... of {stream} are not one after the other, or too many"
            )
            raise IntegrityError(message)
        last = await self.place.log.last(stream) if first > 1 else None
        stands = last.commit.last_version if last is not None else 0
        if stands != first - 1:
            message = f"{stream} is at version {stands}, and is to get version {first}"
            raise IntegrityError(message)
        changes: list[AggregateChanged] = []
        for each in group:
            made, carried = _type_of(each.topic), _state.decode(each.state)
            raw = carried.state
            if len(bytes(raw)) > INLINE_BYTES_MAX:
                await self.place.blobs.put(bytes(raw))
                raw = msgspec.Raw(_encoder.encode(reference(bytes(raw))))
            changes.append(AggregateChanged(aggregate=made.name, event=carried.tag, state=raw))
        return Append(stream, new_commit(self.place.clock, first, Actor(self._name), changes))

    async def _followed(self, tracking: Tracking) -> Append:
        stream = self._follower(tracking.application_name)
        last, version = await self._tracked(stream)
        if tracking.notification_id <= (last or 0):
            message = f"notification {tracking.notification_id} is not after {last}"
            raise IntegrityError(message)
        event = AggregateFollowed(
            application=self._name,
            upstream=tracking.application_name,
            notification=tracking.notification_id,
        )
        commit = new_commit(self.place.clock, version + 1, Actor(self._name), [event])
        return Append(stream, commit)

    def _follower(self, upstream: str) -> WorkspaceStream:
        return WorkspaceStream(FOLLOWER, f"{self._name} of {upstream}")

    async def _tracked(self, stream: WorkspaceStream) -> tuple[int | None, int]:
        last = await self.place.log.last(stream)
        if last is None:
            return None, 0
        event = revive(last.commit.events[-1])
        told = event.notification if isinstance(event, AggregateFollowed) else None
        return told, last.commit.last_version


class NativeAggregateRecorder(NativeRecorder, AggregateRecorder):
    """Events of aggregates in the workspace's log."""

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        """Store events, all or none: one commit an aggregate. The ids of their notifications.

        Raises IntegrityError (another was first; nothing was stored), DataError, OperationalError.
        """
        return self._insert(stored_events, kwargs.get("tracking"))

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """An aggregate's events with versions in (gt, lte]: one read. Raises UndeclaredEvent."""
        found = self.place.run(functools.partial(self._events, originator_id, gt or 0, lte))
        chosen = found[::-1] if desc else found
        return chosen if limit is None else chosen[:limit]

    async def _events(
        self, originator_id: UUID | str, after: int, to: int | None
    ) -> list[StoredEvent]:
        found = await since(self.place.log, self.place.blobs, originator_id, after, to)
        return [
            _stored(
                _declared(change.event, str(originator_id), change.position),
                change.event.event,
                originator_id,
                change.version,
                change.state,
            )
            for change in found
            if change.event is not None
        ]


def _declared(event: AggregateChanged, named: str, position: int) -> AggregateType:
    """How what an event is of is declared. Raises UndeclaredEvent."""
    made = aggregate_types.of_name(event.aggregate)
    if made is None or (event.event not in made.events and event.event not in made.older):
        raise UndeclaredEvent(event.aggregate, named, event.event, position)
    return made


class NativeApplicationRecorder(NativeAggregateRecorder, ApplicationRecorder):
    """Events of aggregates in the order of the workspace's log."""

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Notifications from `start` to `stop`. Read 500 at a time, and kept for the next one who
        asks.
        """
        first = 1 if start is None else start + (not inclusive_of_start)
        chosen = frozenset(topics)
        found: list[Notification] = []
        while len(found) < limit:
            page, more = self._page(first)
            for each in page:
                if stop is not None and each.id > stop:
                    return found
                if not chosen or each.topic in chosen:
                    found.append(each)
                if len(found) == limit:
                    return found
                first = each.id + 1
            if not more:
                break
        return found

    def _page(self, first: int) -> tuple[list[Notification], bool]:
        """Notifications from an id on, and whether there may be more after them."""
        begin, end, held = self._ahead
        if not begin <= first <= end:
            end, held = self.place.run(functools.partial(self._read, first))
            self._ahead = first, end, held
        page = [each for each in held if each.id >= first]
        return page, len(held) >= AHEAD_MAX

    async def _read(self, first: int) -> tuple[int, list[Notification]]:
        """Some notifications from an id on, and the last id that they are all up to."""
        head = await self.place.log.head()
        after = max(0, first // STEP - 1)
        found: list[Notification] = []
        if after >= head:
            return first - 1, found
        commits: Any = self.place.log.follow(after, until=head, of=Kind(KIND))
        async with aclosing(commits) as following:
            async for stored in following:
                if stored.position > head:
                    break
                found += [each for each in await self.notified(stored) if each.id >= first]
                if len(found) >= AHEAD_MAX:
                    return found[-1].id, found
        return (found[-1].id if found else first - 1), found

    async def notified(self, stored: Stored) -> list[Notification]:
        """What a commit notifies of: of aggregates that this application is about."""
        found: list[Notification] = []
        for place, recorded in enumerate(stored.commit.events):
            event = revive(recorded)
            if not isinstance(event, AggregateChanged) or not self._is_about(event):
                continue
            named = getattr(stored.stream, "id", "")
            made = _declared(event, named, stored.position)
            plain = await in_full(self.place.blobs, event.state)
            told = _stored(made, event.event, named, stored.commit.version + place, plain)
            found.append(
                Notification(
                    told.originator_id,
                    told.originator_version,
                    told.topic,
                    told.state,
                    id=stored.position * STEP + place,
                )
            )
        return found

    def _is_about(self, event: AggregateChanged) -> bool:
        if self._names:
            return event.aggregate in self._names
        return aggregate_types.of_name(event.aggregate) is not None

    def max_notification_id(self) -> int | None:
        """The id of the newest notification; None if there is none. The first time it reads all
        that there is, later what has come since.
        """
        return self.place.run(self._max)

    async def _max(self) -> int | None:
        position, newest = self._newest
        head = await self.place.log.head()
        if head > position:
            commits: Any = self.place.log.follow(position, until=head, of=Kind(KIND))
            async with aclosing(commits) as following:
                async for stored in following:
                    if stored.position > head:
                        break
                    for each in await self.notified(stored):
                        newest = each.id
            self._newest = head, newest
        return newest

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """Notifications after `gt`, waiting for new ones; the broker pushes them."""
        place = self.place
        after = max(0, (gt or 0) // STEP - 1)

        def follow() -> Any:
            return place.log.follow(after, of=Kind(KIND))

        return NativeSubscription(self, place.loop, follow, self.notified, gt, topics)


class NativeTrackingRecorder(NativeRecorder, TrackingRecorder):
    """Where an application stands in the notifications of others."""

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record a position. Raises IntegrityError unless it is later than all before it."""
        self._insert((), tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        """The latest position recorded for an upstream application; None if there is none."""
        stream = self._follower(application_name)
        told, _ = self.place.run(functools.partial(self._tracked, stream))
        return told


class NativeProcessRecorder(NativeTrackingRecorder, NativeApplicationRecorder, ProcessRecorder):
    """Events together with the position of the notification that they follow from."""


class NativeFactory(InfrastructureFactory[NativeTrackingRecorder]):
    """Recorders over the log of an open record: see `record.application`.

    What the library's environment says of transcoders is for nothing: values are those of the
    record. A cipher or compressor is refused. Snapshots are kept in this process.
    """

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        place = _lent.get(self.env.get(TOKEN) or "")
        if place is None:
            message = (
                f"{TOKEN} names no open record of this process: make the application with "
                "record.application(cls), or with env=record.application_env()"
            )
            raise InfrastructureFactoryError(message)
        self._place = place
        told = self.env.get(AGGREGATES) or ""
        self._names = [each.strip() for each in told.split(",") if each.strip()]

    def mapper(self, transcoder: Transcoder | None = None, mapper_class: Any = None) -> Mapper[Any]:
        """Ours: events by tag, values as in the rest of the record."""
        if self.cipher() is not None or self.compressor() is not None:
            message = "the record's own streams take no cipher and no compressor: leave them out"
            raise InfrastructureFactoryError(message)
        if mapper_class not in (None, NativeMapper) and mapper_class is not Mapper[Any]:
            message = f"{mapper_class} cannot map what stands in the record: leave it out"
            raise InfrastructureFactoryError(message)
        return NativeMapper(transcoder or self.transcoder())

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """A recorder of `events`; or of `snapshots`, which are kept in this process."""
        return (
            POPOAggregateRecorder()
            if purpose == "snapshots"
            else self._made(NativeAggregateRecorder)
        )

    def application_recorder(self) -> ApplicationRecorder:
        """A recorder of an application's events."""
        return self._made(NativeApplicationRecorder)

    def tracking_recorder(
        self, tracking_recorder_class: type[NativeTrackingRecorder] | None = None
    ) -> NativeTrackingRecorder:
        """A recorder of positions alone."""
        wanted: Any = tracking_recorder_class
        if wanted is None:
            return self._made(NativeTrackingRecorder)
        if not issubclass(wanted, NativeTrackingRecorder):
            message = (
                f"{wanted.__qualname__} is a view of another persistence module: "
                "name that one for it, '<NAME OF THE PROJECTION>_PERSISTENCE_MODULE' in env"
            )
            raise InfrastructureFactoryError(message)
        made: NativeTrackingRecorder = self._made(wanted)
        return made

    def process_recorder(self) -> ProcessRecorder:
        """A recorder of events and positions together."""
        return self._made(NativeProcessRecorder)

    def _made(self, cls: type[R]) -> R:
        return cls(self._place, self.env.name, self._names)
