"""Classes of aggregates and of their events, declared by a program: each is identified by a stored
name or tag, never by a class.

The classes are those of the `eventsourcing` library, which this module does not import. It uses
`vars` and `mutate` of an event, and `id`, `version` and `pending_events` of an aggregate. An event
is rebuilt only where its tag is declared.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from hansard.domain import values
from hansard.domain.errors import (
    BadName,
    BadValue,
    Corrupt,
    HansardError,
    RecordError,
    WithFacts,
    fact_at,
)
from hansard.domain.events import Event, event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.ids import name as checked_name
from hansard.domain.value_types import TAG_LENGTH_MAX, TAG_PATTERN
from hansard.domain.values import Plain, Scrub

# Aggregates of a program's own: each change of one, as its program declares it. One stream each;
# it outlives runs.
#
# Names, events, errors. The event is the storage format: a tag never changes its meaning, a field
# is only added with a default. The program defines the meaning of its own events: stored are the
# name and the versioned tag that it declared for its classes, and plain values; never a class path.

KIND = "aggregate"
"""The kind of its stream; its id is the aggregate's, as a text."""

FOLLOWER = "follower"
"""The kind of the streams that record an application's position in the notifications of another."""

SHORT = 400
"""Most characters of each side's changes in the error of a lost race."""


@event("aggregate.changed.v1")
class AggregateChanged(Event, frozen=True, kw_only=True):
    """An aggregate changed. Its version is that of its stream.

    `aggregate` is the name of its class and `event` the versioned tag of the change, as the program
    declared them; `state` is the content of the program's event, as plain JSON in the form of
    `hansard.domain.values`, a large one a blob reference. `run` and `step` name the step of the
    commit's actor that saved it; both are left out where it was saved outside of a session.
    """

    aggregate: str
    event: str
    state: msgspec.Raw
    run: str = ""
    step: int = 0


@event("aggregate.followed.v1")
class AggregateFollowed(Event, frozen=True, kw_only=True):
    """An application of the program, which follows another one, has processed its notifications up
    to this one. One stream a pair of applications.
    """

    application: str
    upstream: str
    notification: int


def stream_of(aggregate_id: UUID | str) -> WorkspaceStream:
    """Return the stream of an aggregate. Raises BadName for an invalid id."""
    named = str(aggregate_id) if isinstance(aggregate_id, UUID) else aggregate_id
    return WorkspaceStream(KIND, checked_name("aggregate id", named))


class AggregateConflict(WithFacts, HansardError):
    """Another writer changed an aggregate since it was read.

    State: nothing was written, of no aggregate of the save; the step is on record as failed.
    Remedy: get the aggregate again, and decide again.

    `expected` is the version that the change started from, `found` the current one; `mine` and
    `theirs` summarise the changes of each side, `author` is the writer of the newest of theirs.
    """

    def __init__(
        self,
        aggregate: str,
        aggregate_id: str,
        expected: int,
        found: int,
        mine: str,
        theirs: str,
        author: str,
    ) -> None:
        text = (
            f"{aggregate} {aggregate_id} is at version {found}, not {expected}: {author!r} made "
            f"happen {theirs}, where this save would have had {mine}; nothing was written: "
            "get it again and decide again"
        )
        super().__init__(text, aggregate, aggregate_id, expected, found, mine, theirs, author)

    aggregate, aggregate_id, expected, found, mine, theirs, author = map(fact_at, range(1, 8))


class UndeclaredEvent(RecordError):
    """An aggregate has an event under a tag that this program has not declared.

    State: nothing was written; the aggregate was not read.
    Remedy: declare the tag with `hansard.aggregate_type` (`events=` or `older=`).

    Attributes:
        aggregate: The name of the aggregate's class, as the event has it.
        tag: The event's tag.
        position: Its position in the log.
    """

    def __init__(self, aggregate: str, aggregate_id: str, tag: str, position: int) -> None:
        super().__init__(
            f"{aggregate} {aggregate_id} has the event {tag!r} at position {position}, which this "
            "program has not declared: declare the class that reads it, "
            f"hansard.aggregate_type(..., name={aggregate!r}, events={{{tag!r}: ...}}), or where "
            f"a newer tag took its place, older={{{tag!r}: (newer tag, function of its state)}}"
        )
        self.aggregate = aggregate
        self.tag = tag
        self.position = position


def short(plain: Any) -> str:
    """Write a change as JSON that fits an error's text."""
    text = msgspec.json.encode(plain).decode()
    return text if len(text) <= SHORT else f"{text[:SHORT]}... ({len(text):,} characters)"


UPCASTS_MAX = 32
"""Longest chain of older tags; more is a circle."""

_ITS_OWN = ("originator_id", "originator_version", "originator_topic")
"""Fields of an event that are not part of its state: its address or the declaration implies
them."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")

Upcast = Callable[[dict[str, Any]], dict[str, Any]]


class AggregateType(msgspec.Struct, frozen=True, kw_only=True):
    """The recording of a class of aggregates: its name, its events by tag, and the upcasts from
    older tags to newer ones.

    `topic` is the library's name of the class in this process; it is never stored.
    """

    cls: type
    name: str
    topic: str
    events: Mapping[str, type]
    older: Mapping[str, tuple[str, Upcast]] = {}

    def id_of(self, value: object) -> UUID | str:
        """Return an id in the library's type for this class: a UUID, or a text. Raises BadName."""
        if any(getattr(cls, "originator_id_type", None) is UUID for cls in self.events.values()):
            try:
                return value if isinstance(value, UUID) else UUID(str(value))
            except ValueError:
                raise BadName("aggregate id", value, "give a UUID") from None
        return checked_name("aggregate id", str(value) if isinstance(value, UUID) else value)

    def class_of(self, tag: str) -> type:
        """Return the class that reads a tag, or reads its newer tag. Raises KeyError."""
        for _ in range(UPCASTS_MAX):
            if tag in self.events:
                break
            tag, _ = self.older[tag]
        return self.events[tag]

    def tag_of(self, event: object) -> str:
        """Return the tag of an event. Raises BadValue for an event that is not declared."""
        for tag, cls in self.events.items():
            if cls is type(event):
                return tag
        raise BadValue(
            f"aggregate {self.name!r}",
            f"{type(event).__qualname__} is an event of it that is not declared",
            f"declare its tag: events={{..., 'something-happened.v1': {type(event).__qualname__}}}",
        )


_BY_CLASS: dict[type, AggregateType] = {}
_BY_NAME: dict[str, AggregateType] = {}


def register(made: AggregateType) -> None:
    """Declare a class, or update its declaration. Raises BadValue for invalid or taken names, tags
    and classes.
    """
    where = f"aggregate_type {made.name!r:.80}"
    checked_name("aggregate", made.name)
    if not _NAME.fullmatch(made.name):
        raise BadValue(where, "it is no name of a class", "give letters, digits, '.', '_' and '-'")
    owner = _BY_NAME.get(made.name)
    if owner is not None and owner.cls is not made.cls:
        raise BadValue(where, f"it is the name of {_path(owner.cls)}", "give another one")
    before = _BY_CLASS.get(made.cls)
    if before is not None and before.name != made.name:
        raise BadValue(where, f"{_path(made.cls)} is {before.name!r} already", "declare it once")
    if not made.events:
        raise BadValue(where, "no events are given", "give events={'happened.v1': its class}")
    for tag in (*made.events, *made.older):
        if not TAG_PATTERN.fullmatch(tag) or len(tag) > TAG_LENGTH_MAX:
            remedy = "give words and a version, such as 'order-placed.v1'"
            raise BadValue(where, f"{tag!r:.80} is no tag", remedy)
    if len(set(made.events.values())) != len(made.events):
        raise BadValue(where, "one class has two tags", "move one into older=, with its upcast")
    for tag, (newer, _) in made.older.items():
        if tag in made.events or (newer not in made.events and newer not in made.older):
            fact = f"the older tag {tag!r:.80} leads to {newer!r:.80}"
            raise BadValue(where, fact, "lead it to a tag of events=, or to another older one")
    _BY_CLASS[made.cls] = _BY_NAME[made.name] = made


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def declared(cls: object) -> AggregateType:
    """Return the recording of a class of aggregates. Raises BadValue for one that is not
    declared.
    """
    recording = _BY_CLASS.get(cls) if isinstance(cls, type) else None
    if recording is None:
        value = cls.__qualname__ if isinstance(cls, type) else repr(cls)
        raise BadValue(
            "aggregate",
            f"{value:.80} is no class of aggregates that is declared",
            "declare it before: hansard.aggregate_type(cls, name=..., events={'tag.v1': ...})",
        )
    return recording


def is_declared(cls: type) -> bool:
    """Return whether a class of aggregates is declared."""
    return cls in _BY_CLASS


def of_name(name: str) -> AggregateType | None:
    """Return the class that is declared under a name."""
    return _BY_NAME.get(name)


def of_event(event: object) -> AggregateType | None:
    """Return the class of aggregates that an event's class is declared for."""
    return of_event_class(type(event))


def of_event_class(kind: object) -> AggregateType | None:
    """Return the class of aggregates that a class of events is declared for."""
    return next((each for each in _BY_NAME.values() if kind in each.events.values()), None)


# ---------------------------------------------------------------- recording and rebuilding


def checked_state(
    made: AggregateType, event: object, scrub: Scrub | None = None
) -> tuple[str, Plain]:
    """Return an event's tag and state, after checking that an equal event can be read back.

    Raises BadValue.
    """
    tag = made.tag_of(event)
    where = f"{tag} of aggregate {made.name!r}"
    held = dict(vars(event))
    aggregate_id, version = held["originator_id"], held["originator_version"]
    for name in _ITS_OWN:
        held.pop(name, None)
    class_version = getattr(type(event), "class_version", 1)
    if class_version > 1:
        held["class_version"] = class_version
    plain = values.plain(held, where, scrub)
    if type(plain) is not dict or "$map" in plain:
        raise BadValue(where, "a name of a field begins with '$'", "rename it")
    back = revived(made, aggregate_id, version, tag, plain)
    if not values.same(vars(back), vars(event)):
        fact = f"it would come back as {vars(back)!r:.300}, and is {vars(event)!r:.300}"
        remedy = "leave secrets out of it; register the class of a value: hansard.value_type(...)"
        raise BadValue(where, fact, remedy)
    return tag, plain


def revived(
    made: AggregateType, aggregate_id: UUID | str, version: int, tag: str, plain: Plain
) -> Any:
    """Rebuild the event of a tag and its state. Raises KeyError for a tag that is not declared."""
    state: dict[str, Any] = values.revive(plain)
    for _ in range(UPCASTS_MAX):
        if tag in made.events:
            break
        tag, upcast = made.older[tag]
        state = dict(upcast(dict(state)))
    cls = made.events[tag]
    from_version = state.pop("class_version", 1)
    while from_version < getattr(cls, "class_version", 1):
        getattr(cls, f"upcast_v{from_version}_v{from_version + 1}")(state)
        from_version += 1
    state |= {"originator_id": aggregate_id, "originator_version": version}
    if _makes(cls):
        state["originator_topic"] = made.topic
    event: Any = object.__new__(cls)
    object.__setattr__(event, "__dict__", state)
    return event


@functools.lru_cache(maxsize=4_096)
def _makes(cls: type) -> bool:
    """Return whether an event's class begins an aggregate, so that the event names the aggregate's
    class.
    """
    return any("originator_topic" in vars(each).get("__annotations__", ()) for each in cls.__mro__)


class Change(msgspec.Struct, frozen=True):
    """A change as stored in the log: its position, and the version of its stream; `state` with its
    large payloads fetched. `event` is None for a quarantined event.
    """

    position: int
    version: int
    event: AggregateChanged | None
    state: Plain = None


def rebuilt(made: AggregateType, aggregate_id: UUID | str, changes: Iterable[Change]) -> Any:
    """Rebuild an aggregate from its changes, from the first; None where there are none.

    Raises UndeclaredEvent, Corrupt where a change belongs to another class, and the errors of the
    program's own events.
    """
    aggregate: Any = None
    for change in changes:
        event = domain_event(made, aggregate_id, change)
        if event is not None:
            aggregate = event.mutate(aggregate)
        elif aggregate is not None:
            aggregate.version = change.version  # a quarantined event takes a version, too
    return aggregate


def domain_event(made: AggregateType, aggregate_id: UUID | str, change: Change) -> Any:
    """Return the program's event behind a change; None for a quarantined one. Raises as
    `rebuilt`.
    """
    stored = change.event
    if stored is None:
        return None
    if stored.aggregate != made.name:
        fact = f"version {change.version} is of a {stored.aggregate!r}, not of a {made.name!r}"
        raise Corrupt(f"aggregate {aggregate_id}", fact)
    if stored.event not in made.events and stored.event not in made.older:
        raise UndeclaredEvent(made.name, str(aggregate_id), stored.event, change.position)
    return revived(made, aggregate_id, change.version, stored.event, change.state)
