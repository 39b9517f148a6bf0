"""The eventsourcing library's recorders over a workspace's own log.

An application created with the environment of an open record (`environment_of`) reads and writes
the same streams as `session.save` and `session.get`: the same commits, names, tags and values. The
library's topics exist only in this process.

Events of classes that are not declared (`hansard.aggregate_type`) are refused, unless the
environment has UNDECLARED=store: then they are stored as the library encodes them, with their
topic, under the aggregate name `(undeclared)`. Roles, labels and SQL cannot look inside them.

The id of a notification is its commit's position times 1,000, plus its index in the commit; ids
have gaps, and never become visible out of order. The notifications of an application are those of
all declared aggregates, or of the names in AGGREGATES ("account,order"), and of the undeclared
events that the application stored itself. The position of a follower is recorded in one transaction
with the events that follow from a notification.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import os
import uuid
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import aclosing, contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from eventsourcing.domain import CanMutateAggregate, CanSnapshotAggregate
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    DataError,
    InfrastructureFactory,
    InfrastructureFactoryError,
    IntegrityError,
    InterfaceError,
    InternalError,
    Mapper,
    Notification,
    OperationalError,
    ProcessRecorder,
    Recorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.popo import POPOAggregateRecorder
from eventsourcing.utils import Environment, EnvType, TopicError, get_topic, resolve_topic

from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit, revive
from hansard.bus.errors import AppendUnknown, BusError, Conflict, TooLarge
from hansard.bus.log import Append, Blobs, EventLog, Kind, Stored
from hansard.bus.portal import AfterFork, arriving, refuse_in_loop
from hansard.domain import aggregate_types, values
from hansard.domain.aggregate_types import (
    FOLLOWER,
    KIND,
    AggregateChanged,
    AggregateFollowed,
    AggregateType,
    UndeclaredEvent,
    stream_of,
)
from hansard.domain.errors import BadName, BadValue, Corrupt
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.payload import reference
from hansard.domain.values import Plain
from hansard.state.aggregates import in_full, since

# The library's names of classes in this process. Never stored.


def topic_of(where: str, cls: type) -> str:
    """Return the library's topic of a class in this process. Raises BadValue if another class has
    that name already, as the library keeps the first.
    """
    try:
        return get_topic(cls)
    except TopicError as error:
        fact = f"the library knows another class as {cls.__module__}:{cls.__qualname__}"
        raise BadValue(where, fact, "define the class once; in a notebook, restart") from error


def check_events(where: str, events: Mapping[str, Any]) -> None:
    """Raise BadValue for a class that is not of events that change an aggregate."""
    for tag, cls in events.items():
        if not (isinstance(cls, type) and issubclass(cls, CanMutateAggregate)):
            fact = f"the class of {tag!r} is {cls!r:.80}"
            raise BadValue(where, fact, "give the class of an event of the aggregate")


T = TypeVar("T")
R = TypeVar("R", bound="NativeRecorder")

STEP = 1_000
"""Distance between the notification ids of two commits, and the most events in one commit."""

INLINE_BYTES_MAX = 64 * 1024
"""Largest state kept inside an event; a larger one is a blob."""

AHEAD_MAX = 500
"""Most notifications read at once: a reader of sections requests ten at a time."""

TOKEN = "HANSARD_RECORD"  # noqa: S105 -- name of a variable in the library's environment
AGGREGATES = "AGGREGATES"
UNDECLARED = "UNDECLARED"

UNDECLARED_NAME = "(undeclared)"
"""Aggregate name of events whose class is not declared; reserved from declarations."""

STORED = "stored.v1"
"""Tag of these events. The state has the library's version, topic and bytes, and an id that is no
UUID.
"""

_DECLARED = b"hansard:"
"""Prefix of a declared event's state in this process, to tell it from the library's own."""

WAITING_MAX = 256
"""Most commits queued for the thread that iterates a subscription; then the broker waits."""


class OutcomeUnknown(OperationalError):
    """The broker did not answer in time: either all or none of the events are stored. Start no
    effect.

    Loading the aggregate again later shows which. Absence proves nothing while the connection that
    sent the events may still deliver them.
    """


@contextmanager
def translated() -> Generator[None]:
    """Translate errors to the library's, which its users catch."""
    try:
        yield
    except (TooLarge, BadName, BadValue) as error:
        raise DataError(str(error)) from error
    except Corrupt as error:
        raise InternalError(f"{error.where}: {error.fact}") from error
    except AppendUnknown as error:
        raise OutcomeUnknown(str(error)) from error
    except BusError as error:
        raise OperationalError(str(error)) from error


class Place(msgspec.Struct):
    """Log of an open record, and its event loop; `closed` once the record is."""

    log: EventLog
    blobs: Blobs
    clock: Clock
    loop: asyncio.AbstractEventLoop
    closed: bool = False
    pid: int = msgspec.field(default_factory=os.getpid)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run work on the loop and wait for it in another thread. Raises SyncInLoop if the thread
        runs an event loop, which this would block, and the library's errors.
        """
        refuse_in_loop()
        if os.getpid() != self.pid:
            raise InterfaceError(str(AfterFork(self.pid)))
        if self.closed:
            message = "the record that this application was made with is closed: make it again"
            raise InterfaceError(message)
        with translated():
            result: T = arriving(work(), self.loop).result()
            return result


_lent: dict[str, Place] = {}


def environment_of(place: Place) -> dict[str, str]:
    """Return the environment with which the library's applications use an open record."""
    token = next((each for each, known in _lent.items() if known is place), None)
    if token is None:
        token = uuid.uuid4().hex
        _lent[token] = place
    return {"PERSISTENCE_MODULE": f"{__name__}:{NativeFactory.__name__}", TOKEN: token}


def close_place(place: Place) -> None:
    """Mark the record as closed: recorders made with its environment raise InterfaceError."""
    place.closed = True
    for token in [each for each, known in _lent.items() if known is place]:
        del _lent[token]


class _State(msgspec.Struct):
    """An event as the library passes it around in this process: its tag, and its state as
    recorded.
    """

    tag: str
    state: msgspec.Raw


_state = msgspec.json.Decoder(_State)
_encoder = msgspec.json.Encoder()


class NativeMapper(Mapper[Any]):
    """Maps declared events to their tag and plain values; others by the library's own mapper if
    `is_open`. Snapshots, which are kept only in this process, hold the library's own state.
    """

    is_open = False

    def to_stored_event(self, domain_event: Any) -> StoredEvent:
        """Return an event with its tag and plain values. Raises BadValue."""
        if isinstance(domain_event, CanSnapshotAggregate):
            return _held(domain_event)
        kind = aggregate_types.of_event(domain_event)
        if kind is None:
            if self.is_open:
                return super().to_stored_event(domain_event)
            raise _undeclared(type(domain_event).__qualname__)
        tag, plain = aggregate_types.checked_state(kind, domain_event)
        return _stored(
            kind, tag, domain_event.originator_id, domain_event.originator_version, plain
        )

    def to_domain_event(self, stored_event: StoredEvent) -> Any:
        """Return the program's event for a stored one."""
        held: Any = stored_event.state
        if isinstance(held, _Held):
            snapshot: Any = object.__new__(held.cls)
            object.__setattr__(snapshot, "__dict__", copy.deepcopy(held.fields))
            return snapshot
        if not stored_event.state.startswith(_DECLARED):
            return super().to_domain_event(stored_event)
        kind, carried = _carried(stored_event)
        plain = msgspec.json.decode(carried.state)
        named = kind.id_of(stored_event.originator_id)
        version = stored_event.originator_version
        return aggregate_types.revived(kind, named, version, carried.tag, plain)


class _Held:
    """A stored snapshot, with the state at the time it was taken."""

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
    return StoredEvent(made.id_of(named), version, get_topic(made.class_of(tag)), _DECLARED + state)


def _carried(stored: StoredEvent) -> tuple[AggregateType, _State]:
    kind = aggregate_types.of_event_class(resolve_topic(stored.topic))
    if kind is None:
        raise _undeclared(stored.topic)
    return kind, _state.decode(stored.state[len(_DECLARED) :])


def _undeclared(where: str) -> BadValue:
    remedy = (
        "declare it: hansard.aggregate_type(cls, name=..., events={'tag.v1': ...}), or set "
        f"{UNDECLARED}=store in the application's environment"
    )
    return BadValue(where, "it is an event of no aggregate that is declared", remedy)


def _as_stored(named: UUID | str, plain: Plain) -> StoredEvent:
    """Return an undeclared event as passed by the library."""
    held = values.revive(plain)
    named = held["id"] if "id" in held else UUID(str(named))
    return StoredEvent(named, held["version"], held["topic"], held["state"])


class NativeRecorder(Recorder):
    """Common base of the recorders. Threads may share one."""

    def __init__(
        self, place: Place, name: str = "", names: Iterable[str] = (), *, is_open: bool = False
    ) -> None:
        self.place = place
        self._name = name or "application"
        self._names = frozenset(names)
        self._is_open = is_open
        self._newest: tuple[int, int | None] = (0, None)
        self._ahead: tuple[int, int, list[Notification]] = (0, -1, [])

    def _insert(self, events: Sequence[StoredEvent], tracking: Tracking | None) -> list[int]:
        if not events and tracking is None:
            return []
        return self.place.run(functools.partial(self._put, events, tracking))

    async def _put(self, events: Sequence[StoredEvent], tracking: Tracking | None) -> list[int]:
        by_stream: dict[WorkspaceStream, list[StoredEvent]] = {}
        for each in events:
            state: object = each.state
            if not isinstance(state, bytes):
                message = f"the state of {each.topic} is {each.state!r:.80}, it must be bytes"
                raise DataError(message)
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
        begins: dict[object, int] = {each.stream: each.position * STEP for each in stored}
        ids: list[int] = []
        for each in events:
            stream = stream_of(each.originator_id)
            ids.append(begins[stream])
            begins[stream] += 1
        return ids

    async def _append(self, stream: WorkspaceStream, group: list[StoredEvent]) -> Append:
        first = group[0].originator_version
        versions = [each.originator_version for each in group]
        if versions != list(range(first, first + len(group))):
            message = f"events {versions[:3]} ... of {stream} are not one after the other"
            raise IntegrityError(message)
        if len(group) > STEP:
            message = f"{len(group):,} events of {stream} at once, the limit is {STEP:,}"
            raise DataError(message)
        at = await self._next_version(stream, group[0])
        changes = [await self._change(each) for each in group]
        return Append(stream, new_commit(self.place.clock, at, Actor(self._name), changes))

    async def _next_version(self, stream: WorkspaceStream, event: StoredEvent) -> int:
        """Return the stream version of an event: the event's own, or one more if the library began
        at version 0. Raises IntegrityError.
        """
        first, is_declared = event.originator_version, event.state.startswith(_DECLARED)
        if is_declared and first == 1:
            return 1
        last = await self.place.log.last(stream)
        if last is None:
            at, after = 0, -1 if first == 0 and not is_declared else 0
        else:
            at = after = last.commit.last_version
            newest = revive(last.commit.events[-1])
            if isinstance(newest, AggregateChanged) and newest.aggregate == UNDECLARED_NAME:
                held = _as_stored(stream.id, await in_full(self.place.blobs, newest.state))
                after = held.originator_version
        if first != after + 1 or (is_declared and at != after):
            message = f"{stream} is at version {after}, and is to get version {first}"
            raise IntegrityError(message)
        return at + 1

    async def _change(self, each: StoredEvent) -> AggregateChanged:
        if each.state.startswith(_DECLARED):
            kind, carried = _carried(each)
            name, tag, raw = kind.name, carried.tag, bytes(carried.state)
        elif self._is_open:
            held = {"version": each.originator_version, "topic": each.topic, "state": each.state}
            if not isinstance(each.originator_id, UUID):
                held["id"] = each.originator_id
            name, tag = UNDECLARED_NAME, STORED
            raw = _encoder.encode(values.plain(held, each.topic))
        else:
            raise _undeclared(each.topic)
        if len(raw) > INLINE_BYTES_MAX:
            await self.place.blobs.put(raw)
            raw = _encoder.encode(reference(raw))
        return AggregateChanged(aggregate=name, event=tag, state=msgspec.Raw(raw))

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
        value = event.notification if isinstance(event, AggregateFollowed) else None
        return value, last.commit.last_version


class NativeAggregateRecorder(NativeRecorder, AggregateRecorder):
    """Events of aggregates in the workspace's log."""

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        """Store events, all or none: one commit per aggregate.

        Raises IntegrityError (lost a race; nothing was stored), DataError, OperationalError,
        OutcomeUnknown.
        """
        self._insert(stored_events, kwargs.get("tracking"))
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Return an aggregate's events with versions in (gt, lte]: one read. Raises
        UndeclaredEvent.
        """
        events = self.place.run(
            functools.partial(self._events, originator_id, -1 if gt is None else gt, lte)
        )
        chosen = events[::-1] if desc else events
        return chosen if limit is None else chosen[:limit]

    async def _events(
        self, originator_id: UUID | str, after: int, to: int | None
    ) -> list[StoredEvent]:
        # One version more: the library may have begun at version 0.
        high = None if to is None else to + 1
        low = max(0, after)
        changes = await since(self.place.log, self.place.blobs, originator_id, low, high)
        events = [
            _from_record(change.event, originator_id, change.version, change.position, change.state)
            for change in changes
            if change.event is not None
            and (to is None or change.version <= to or change.event.aggregate == UNDECLARED_NAME)
        ]
        return [
            each
            for each in events
            if each.originator_version > after and (to is None or each.originator_version <= to)
        ]


def _from_record(
    event: AggregateChanged, named: UUID | str, version: int, position: int, plain: Plain
) -> StoredEvent:
    """Return a recorded event in the library's form. Raises UndeclaredEvent."""
    if event.aggregate == UNDECLARED_NAME:
        return _as_stored(named, plain)
    kind = aggregate_types.of_name(event.aggregate)
    if kind is None or (event.event not in kind.events and event.event not in kind.older):
        raise UndeclaredEvent(event.aggregate, str(named), event.event, position)
    return _stored(kind, event.event, named, version, plain)


class NativeApplicationRecorder(NativeAggregateRecorder, ApplicationRecorder):
    """Events of aggregates in the order of the workspace's log."""

    def insert_events(
        self, stored_events: Sequence[StoredEvent], **kwargs: Any
    ) -> Sequence[int] | None:
        """Store events as an aggregate recorder does; return the ids of the notifications."""
        return self._insert(stored_events, kwargs.get("tracking"))

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Return the notifications from `start` to `stop`. Reads 500 at a time, and caches the rest
        for the next call.
        """
        first = 1 if start is None else start + (not inclusive_of_start)
        chosen = frozenset(topics)
        notifications: list[Notification] = []
        while len(notifications) < limit:
            page, more = self._page(first)
            for each in page:
                if stop is not None and each.id > stop:
                    return notifications
                if not chosen or each.topic in chosen:
                    notifications.append(each)
                if len(notifications) == limit:
                    return notifications
                first = each.id + 1
            if not more:
                break
        return notifications

    def _page(self, first: int) -> tuple[list[Notification], bool]:
        """Return notifications from an id on, and whether there may be more after them."""
        begin, end, held = self._ahead
        if begin <= first <= end:
            return [each for each in held if each.id >= first], True
        end, held = self.place.run(functools.partial(self._read, first))
        self._ahead = first, end, held
        return held, len(held) >= AHEAD_MAX

    async def _read(self, first: int) -> tuple[int, list[Notification]]:
        """Return some notifications from an id on, and the id up to which they are complete."""
        head = await self.place.log.head()
        after = max(0, first // STEP - 1)
        notifications: list[Notification] = []
        if after >= head:
            return first - 1, notifications
        async with aclosing(self.commits(after, head)) as commits:
            async for stored in commits:
                notifications += [each for each in await self.notified(stored) if each.id >= first]
                if len(notifications) >= AHEAD_MAX:
                    break
        return (notifications[-1].id if notifications else first - 1), notifications

    async def commits(self, after: int, until: int | None) -> AsyncGenerator[Stored]:
        """Yield the commits of aggregates after a position, up to another."""
        commits: Any = self.place.log.follow(after, until=until, of=Kind(KIND))
        async with aclosing(commits) as following:
            async for stored in following:
                if until is not None and stored.position > until:
                    return
                yield stored

    async def notified(self, stored: Stored) -> list[Notification]:
        """Return the notifications of a commit for the aggregates of this application."""
        notifications: list[Notification] = []
        for place, recorded in enumerate(stored.commit.events):
            event = revive(recorded)
            if not isinstance(event, AggregateChanged) or not self._is_about(event, stored):
                continue
            named = getattr(stored.stream, "id", "")
            plain = await in_full(self.place.blobs, event.state)
            version = stored.commit.version + place
            each = _from_record(event, named, version, stored.position, plain)
            notifications.append(
                Notification(
                    each.originator_id,
                    each.originator_version,
                    each.topic,
                    each.state,
                    id=stored.position * STEP + place,
                )
            )
        return notifications

    def _is_about(self, event: AggregateChanged, stored: Stored) -> bool:
        if event.aggregate == UNDECLARED_NAME:
            return self._is_open and stored.commit.actor.agent == self._name
        if self._names:
            return event.aggregate in self._names
        return aggregate_types.of_name(event.aggregate) is not None

    def max_notification_id(self) -> int | None:
        """Return the id of the newest notification; None if there is none. The first call reads
        everything, later ones only what is new.
        """
        return self.place.run(self._max)

    async def _max(self) -> int | None:
        position, newest = self._newest
        head = await self.place.log.head()
        if head > position:
            async with aclosing(self.commits(position, head)) as commits:
                async for stored in commits:
                    for each in await self.notified(stored):
                        newest = each.id
            self._newest = head, newest
        return newest

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """Return notifications after `gt`, waiting for new ones; the broker pushes them."""
        return NativeSubscription(self, gt, topics)


class NativeSubscription(Subscription["NativeApplicationRecorder"]):
    """Notifications after `gt`, without gap or repetition across reconnects.

    Iterate it in one thread; `stop()` may be called in any.
    """

    def __init__(
        self, recorder: NativeApplicationRecorder, gt: int | None, topics: Sequence[str]
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._chosen = frozenset(topics)
        self._arrived: SimpleQueue[list[Notification] | None] = SimpleQueue()
        self._chunk: Iterator[Notification] = iter(())
        self._room = asyncio.Semaphore(WAITING_MAX)
        self._loop = recorder.place.loop
        self._following: Future[None] = asyncio.run_coroutine_threadsafe(self._follow(), self._loop)
        self._following.add_done_callback(lambda _: self._arrived.put(None))

    async def _follow(self) -> None:
        recorder, after = self._recorder, self._last_notification_id or 0
        commits = recorder.commits(max(0, after // STEP - 1), None)
        async with aclosing(commits) as following:
            async for stored in following:
                notifications = [
                    each
                    for each in await recorder.notified(stored)
                    if each.id > after and (not self._chosen or each.topic in self._chosen)
                ]
                if notifications:
                    await self._room.acquire()
                    self._arrived.put(notifications)

    def stop(self) -> None:
        """End the iteration, including one that waits in another thread."""
        super().stop()
        self._following.cancel()
        self._arrived.put(None)

    def __next__(self) -> Notification:
        """Wait for the next notification. Raises OperationalError, InternalError."""
        while not self._has_been_stopped:
            notification = next(self._chunk, None)
            if notification is not None:
                self._last_notification_id = notification.id
                return notification
            chunk = self._arrived.get()
            if chunk is None:
                self._arrived.put(None)  # ends the next call too
                if not self._has_been_stopped:
                    with translated():
                        self._following.result()
                break
            self._loop.call_soon_threadsafe(self._room.release)
            self._chunk = iter(chunk)
        raise StopIteration


class NativeTrackingRecorder(NativeRecorder, TrackingRecorder):
    """Positions of an application in the notifications of others."""

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record a position. Raises IntegrityError unless it is later than all earlier ones."""
        self._insert((), tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        """Return the latest position recorded for an upstream application; None if there is
        none.
        """
        stream = self._follower(application_name)
        value, _ = self.place.run(functools.partial(self._tracked, stream))
        return value


class NativeProcessRecorder(NativeTrackingRecorder, NativeApplicationRecorder, ProcessRecorder):
    """Events together with the position of the notification that caused them."""


class NativeFactory(InfrastructureFactory[NativeTrackingRecorder]):
    """Creates recorders over the log of an open record: see `record.application`.

    Transcoder, cipher and compressor are used only for undeclared events; if those are refused, so
    is a cipher or compressor. Snapshots are kept in this process.
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
        setting = self.env.get(UNDECLARED) or "refuse"
        if setting not in ("refuse", "store"):
            message = f"{UNDECLARED} is {setting!r}: set it to 'refuse' or 'store'"
            raise InfrastructureFactoryError(message)
        self._is_open = setting == "store"
        self._place = place
        setting = self.env.get(AGGREGATES) or ""
        self._names = [each.strip() for each in setting.split(",") if each.strip()]

    def mapper(self, transcoder: Transcoder | None = None, mapper_class: Any = None) -> Mapper[Any]:
        """Return our mapper: events by tag, values as in the rest of the record."""
        cipher, compressor = self.cipher(), self.compressor()
        if not self._is_open and (cipher is not None or compressor is not None):
            message = (
                "declared events are stored as values of the record, without cipher or compressor: "
                f"leave them out, or set {UNDECLARED}=store"
            )
            raise InfrastructureFactoryError(message)
        if mapper_class not in (None, NativeMapper) and mapper_class is not Mapper[Any]:
            message = f"{mapper_class} cannot map recorded events: leave it out"
            raise InfrastructureFactoryError(message)
        mapper = NativeMapper(transcoder or self.transcoder(), compressor, cipher)
        mapper.is_open = self._is_open
        return mapper

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        """Return a recorder of `events`, or of `snapshots`, which are kept in this process."""
        return (
            POPOAggregateRecorder()
            if purpose == "snapshots"
            else self._made(NativeAggregateRecorder)
        )

    def application_recorder(self) -> ApplicationRecorder:
        """Return a recorder of an application's events."""
        return self._made(NativeApplicationRecorder)

    def tracking_recorder(
        self, tracking_recorder_class: type[NativeTrackingRecorder] | None = None
    ) -> NativeTrackingRecorder:
        """Return a recorder of positions only."""
        topic = self.env.get(self.TRACKING_RECORDER_TOPIC)
        target: Any = tracking_recorder_class or (resolve_topic(topic) if topic else None)
        if target is None:
            return self._made(NativeTrackingRecorder)
        if not issubclass(target, NativeTrackingRecorder):
            message = (
                f"{target.__qualname__} is a view of another persistence module: "
                "name that one for it, '<NAME OF THE PROJECTION>_PERSISTENCE_MODULE' in env"
            )
            raise InfrastructureFactoryError(message)
        recorder: NativeTrackingRecorder = self._made(target)
        return recorder

    def process_recorder(self) -> ProcessRecorder:
        """Return a recorder of events and positions together."""
        return self._made(NativeProcessRecorder)

    def _made(self, cls: type[R]) -> R:
        return cls(self._place, self.env.name, self._names, is_open=self._is_open)
