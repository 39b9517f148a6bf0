"""Shared state: one key of a run's board, written by all of its agents. One aggregate a key.

Names, events, state, evolve, decide. The events are the storage format: a tag never changes its
meaning, a field is only added with a default. The writer of an event is its commit's actor; `role`
is that agent's role. Values are plain JSON in the form of `hansard.domain.values`, large ones a
blob reference. `anew` is true if the earlier value had expired when the event was decided: it is
then treated as removed.

The version of a key is that of the event of its stream that changed it last; 0 where it is absent.
The kind of a key is fixed by its first write, until it is removed.

Expiry: a value put at log time T with a time to live of L exists at every point whose log time is
before T + L, and is absent from then on. The log's time of a point is that of the newest commit up
to it (a point that is a time is that time); the log's time of a write is that of the newest commit
that its writer had seen when it decided. No process's own clock is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, assert_never

import msgspec

from hansard.domain.choices import Brief
from hansard.domain.decider import By, LabelDeclassified, State, label_after
from hansard.domain.errors import BadName, BadValue, HansardError, Refused, WithFacts, fact_at
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import canonical
from hansard.domain.ids import name as checked_name
from hansard.domain.label import Label, join
from hansard.domain.steps import NULL
from hansard.domain.values import SAFE_INT, dump

# Merges that commute: the result does not depend on the order of the values.
#
# Each is the join of a semilattice (commutative, associative, and a value joined twice counts
# once), over plain JSON values:
#
# max, min    of two numbers, or of two texts by code points
# union       of two objects: every key of both; two objects under one key are joined in turn; an
#             object wins over a value of another type; of two others the later in RFC 8785 form
#             wins


class Merge(StrEnum):
    """The ways to merge a value into the current one."""

    MAX = "max"
    MIN = "min"
    UNION = "union"


NAMES = tuple(each.value for each in Merge)


def check_merge(name: str, value: Any) -> None:
    """Check that a merge of this name accepts the value. Raises BadValue."""
    if name not in NAMES:
        raise BadValue("merge", f"{name!r:.80} is no merge", f"use {', '.join(NAMES)}")
    if name == "union":
        if not _is_object(value):
            raise BadValue("merge 'union'", f"{value!r:.80}", "give a dict with texts as keys")
    elif type(value) not in (int, float, str):
        raise BadValue(f"merge {name!r}", f"{value!r:.80}", "give a number up to 2**53, or a text")


def check_pair(name: str, current: Any, value: Any) -> None:
    """Check that two values that `check_merge` accepted can be merged: numbers and texts cannot be
    compared. Raises BadValue.
    """
    if name != "union" and (type(current) is str) != (type(value) is str):
        fact = f"{value!r:.80} cannot be compared with {current!r:.80}"
        raise BadValue(f"merge {name!r}", fact, "merge numbers with numbers, texts with texts")


def joined(name: str, one: Any, other: Any) -> Any:
    """Return the two values merged."""
    if name == "union":
        return _union(one, other)
    return max(one, other) if name == "max" else min(one, other)


def _is_object(value: Any) -> bool:
    """Return whether a plain value is an object of the caller, not the tagged form of another
    value.
    """
    return type(value) is dict and not any(key[:1] == "$" for key in value)


def _union(one: Any, other: Any) -> Any:
    match _is_object(one), _is_object(other):
        case True, True:
            both = dict(one)
            for key, item in other.items():
                both[key] = _union(both[key], item) if key in both else item
            return both
        case True, False:
            return one
        case False, True:
            return other
        case _:
            return max(one, other, key=canonical)


VIEWS = "view "
"""Prefix of the keys under which the views served to a role are kept."""

RESERVED = ("budget ", "team ", VIEWS)
"""Prefixes that no agent's key may have: budgets (`hansard.domain.approval`), the team's tasks and
messages (`hansard.domain.team`) and views (`hansard.domain.access`) are kept under such keys."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SHORT = 120
"""Most characters of a value in an error's text."""

ITEMS_MAX = 10_000
"""Most items of a list, a set or an object: every reader reads all of them."""

INLINE_BYTES_MAX = 4 * 1024 * 1024
"""Largest state of a key, in bytes of JSON; a blob counts as its reference."""

LABELS_MAX = 32
LABEL_LENGTH_MAX = 200

TTL_MS_MAX = 10 * 366 * 24 * 3_600_000
"""Longest time to live: ten years."""


def key_name(key: object) -> str:
    """Return a key that agents may write, checked. Raises BadName."""
    name = checked_name("key", key)
    if name.startswith(RESERVED):
        text = " or ".join(map(repr, RESERVED))
        remedy = f"keys that begin with {text} hold the run's budgets, tasks, messages and views"
        raise BadName("key", name, remedy)
    return name


class KeyKind(StrEnum):
    """The kind of a key's content."""

    VALUE = "value"
    LIST = "list"
    COUNTER = "counter"
    SET = "set"
    MAX = "max"
    MIN = "min"
    UNION = "union"


@event("board.put.v1")
class ValuePut(Event, frozen=True, kw_only=True):
    """A value replaced the current one. `expected` is the version that its writer had read (0:
    absent); None: the write was unconditional.
    """

    value: msgspec.Raw
    role: str
    expected: int | None = None
    labels: dict[str, str] = {}
    ttl_ms: int | None = None


@event("board.appended.v1")
class ItemAppended(Event, frozen=True, kw_only=True):
    """A list has one more item at its end."""

    item: msgspec.Raw
    role: str
    anew: bool = False


@event("board.added.v1")
class AmountAdded(Event, frozen=True, kw_only=True):
    """A whole number was added to a counter."""

    amount: int
    role: str
    anew: bool = False


@event("board.included.v1")
class ItemIncluded(Event, frozen=True, kw_only=True):
    """An item was added to a set. Items are equal where their RFC 8785 forms are."""

    item: msgspec.Raw
    role: str
    anew: bool = False


@event("board.discarded.v1")
class ItemDiscarded(Event, frozen=True, kw_only=True):
    """An item was removed from a set."""

    item: msgspec.Raw
    role: str
    anew: bool = False


@event("board.merged.v1")
class ValueMerged(Event, frozen=True, kw_only=True):
    """A value was merged into the current one; `merge` as in `hansard.domain.board`."""

    merge: str
    value: msgspec.Raw
    role: str
    anew: bool = False


@event("board.removed.v1")
class KeyRemoved(Event, frozen=True, kw_only=True):
    """The key is absent. `expected` as for a put."""

    role: str
    expected: int | None = None


@event("board.checked.v1")
class KeyChecked(Event, frozen=True, kw_only=True):
    """A transaction that had read this key at a version was committed while it was unchanged. No
    change.
    """

    role: str
    expected: int


Write = (
    ValuePut | ItemAppended | AmountAdded | ItemIncluded | ItemDiscarded | ValueMerged | KeyRemoved
)
BoardEvent = Write | KeyChecked


class BoardState(Brief, State, kw_only=True):
    """A key at a version of its stream. The fold owns its state: `copy()` before changing it.

    `kind` is None where the key is absent; `changed` is its version. Only the field of the kind is
    used: `value` (value, max, min, union), `items` (list), `members` (set, in RFC 8785 form) or
    `total`. `size` is the size of the fields in bytes. `expires` is a log time in ns. `label` is
    the join of the labels of all commits that the content follows from; None is public and trusted.

    Attributes:
        version: The version of the key's stream.
        author: The agent that changed it last.
        role: That agent's role.
        event: The id of the event that changed it last.
        labels: Texts by name, as passed to `put`.
    """

    noun: ClassVar[str] = "a board"

    kind: KeyKind | None = None
    value: msgspec.Raw = NULL
    items: list[msgspec.Raw] = msgspec.field(default_factory=list)
    members: set[str] = msgspec.field(default_factory=set)
    total: int = 0
    size: int = 0
    changed: int = 0
    author: str = ""
    role: str = ""
    event: str = ""
    labels: dict[str, str] = {}
    expires: int | None = None
    label: Label | None = None

    def absent(self, now: int) -> bool:
        """Return whether the key is absent at a log time in ns: never put, removed or expired."""
        return self.kind is None or (self.expires is not None and now >= self.expires)

    def version_at(self, now: int) -> int:
        """Return the version of the content at a log time; 0 if the key is absent."""
        return 0 if self.absent(now) else self.changed

    def _evolve(self, event: Any, by: By) -> None:
        """Apply one event in place. Raises BadValue for a merge of values that cannot be merged."""
        match event:
            case ValuePut():
                _clear(self)
                self.kind, self.value, self.labels = KeyKind.VALUE, event.value, event.labels
                self.size = len(bytes(event.value))
                if event.ttl_ms is not None:
                    self.expires = by.stamp + event.ttl_ms * 1_000_000
            case ItemAppended():
                _begin(self, KeyKind.LIST, reset=event.anew)
                self.items.append(event.item)
                self.size += len(bytes(event.item))
            case AmountAdded():
                _begin(self, KeyKind.COUNTER, reset=event.anew)
                self.total += event.amount
            case ItemIncluded() | ItemDiscarded():
                _begin(self, KeyKind.SET, reset=event.anew)
                _member(self, form(event.item), inside=isinstance(event, ItemIncluded))
            case ValueMerged():
                value = merged(self, event, first=event.anew or self.kind != event.merge)
                _begin(self, KeyKind(event.merge), reset=event.anew)
                self.value, self.size = value, len(bytes(value))
            case KeyRemoved():
                _clear(self)
            case KeyChecked():
                return
            case LabelDeclassified():
                self.label = label_after(event).stored
                return
            case _:
                super()._evolve(event, by)
                return
        self.label = join(self.label, by.label).stored
        self.changed, self.author, self.event = self.version, by.author, by.event
        self.role = event.role

    @property
    def expiry(self) -> datetime | None:
        """The time of expiry, in UTC, to a microsecond; at most the latest time of a datetime."""
        if self.expires is None:
            return None
        try:
            return _EPOCH + timedelta(microseconds=self.expires // 1_000)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    @property
    def plain(self) -> Any:
        """The key's content, as plain JSON values; None where it is absent."""
        match self.kind:
            case None:
                return None
            case KeyKind.LIST:
                return [msgspec.json.decode(item) for item in self.items]
            case KeyKind.SET:
                return {"$set": [msgspec.json.decode(item) for item in sorted(self.members)]}
            case KeyKind.COUNTER:
                return self.total if abs(self.total) <= SAFE_INT else {"$int": str(self.total)}
            case KeyKind.VALUE | KeyKind.MAX | KeyKind.MIN | KeyKind.UNION:
                return msgspec.json.decode(self.value)
            case _:
                assert_never(self.kind)


class BoardConflict(WithFacts, HansardError):
    """A write expected a version of a key that is not the current one.

    State: nothing was written.
    Remedy: read the key and decide again, or give `put` a `resolve=`.

    `expected` and `found` are versions (0: absent), `mine` and `theirs` short texts of the values,
    `author` and `event` the writer and the event of the current value.
    """

    def __init__(self, key: str, expected: int, found: int, mine: str, theirs: BoardState) -> None:
        current = short(theirs.plain) if found else "nothing"
        text = (
            f"key {key!r} is at version {found}, not {expected}: it holds {current}, written by "
            f"{theirs.author!r} (event {theirs.event}), where this write would have had {mine}; "
            "read it and decide again, or give resolve="
        )
        super().__init__(text, key, expected, found, mine, current, theirs.author, theirs.event)

    key, expected, found, mine, theirs, author, event = map(fact_at, range(1, 8))


def short(plain: Any) -> str:
    """Write a value as JSON that fits an error's text."""
    text = msgspec.json.encode(plain).decode()
    return text if len(text) <= SHORT else f"{text[:SHORT]}... ({len(text):,} characters)"


def _clear(state: BoardState) -> None:
    state.kind, state.value, state.total, state.size = None, NULL, 0, 0
    state.items, state.members, state.labels, state.expires = [], set(), {}, None
    state.label = None


def _begin(state: BoardState, kind: KeyKind, *, reset: bool) -> None:
    if reset or state.kind is not kind:
        _clear(state)
    state.kind = kind


def form(item: msgspec.Raw) -> str:
    """Return a set's item in RFC 8785 form."""
    return canonical(msgspec.json.decode(item)).decode()


def _member(state: BoardState, item: str, *, inside: bool) -> None:
    if inside and item not in state.members:
        state.members.add(item)
        state.size += len(item.encode())
    elif not inside and item in state.members:
        state.members.remove(item)
        state.size -= len(item.encode())


def merged(state: BoardState, event: ValueMerged, *, first: bool) -> msgspec.Raw:
    """Return the result of a merge, in RFC 8785 form: 1 and 1.0 are one number, in any order.

    Raises BadValue.
    """
    value = msgspec.json.decode(event.value)
    check_merge(event.merge, value)
    if not first:
        current = msgspec.json.decode(state.value)
        check_pair(event.merge, current, value)
        value = joined(event.merge, current, value)
    return msgspec.Raw(canonical(value))


def restored(kind: KeyKind, plain: Any, version: int) -> BoardState:
    """Build the state of a key from its content: `plain` of the result is `plain`.

    For values of the log that are written further (a transaction's own reads).
    """
    state = BoardState(version=version, kind=kind, changed=version)
    match kind:
        case KeyKind.LIST:
            state.items = [dump(item) for item in plain]
            state.size = sum(len(bytes(item)) for item in state.items)
        case KeyKind.SET:
            state.members = {canonical(item).decode() for item in plain["$set"]}
            state.size = sum(len(item.encode()) for item in state.members)
        case KeyKind.COUNTER:
            state.total = int(plain["$int"]) if isinstance(plain, dict) else plain
        case KeyKind.VALUE | KeyKind.MAX | KeyKind.MIN | KeyKind.UNION:
            joined = kind is not KeyKind.VALUE
            state.value = msgspec.Raw(canonical(plain)) if joined else dump(plain)
            state.size = len(bytes(state.value))
        case _:
            assert_never(kind)
    return state


# The writes that a key accepts after earlier ones, and their limits


def decide(key: str, state: BoardState, command: BoardEvent, now: int) -> Sequence[BoardEvent]:
    """Return the events of a write at a log time in ns; none where it changes nothing.

    Raises BoardConflict, Refused (the key is of another kind), BadValue (a limit is exceeded).
    """
    absent = state.absent(now)
    expired = absent and state.kind is not None
    current = None if absent else state.kind
    match command:
        case ValuePut():
            _expect(key, state, command.expected, now, short(msgspec.json.decode(command.value)))
            _fits(key, current, KeyKind.VALUE)
            check_terms(key, command)
            _bound(key, 0, len(bytes(command.value)), 0)
            return (command,)
        case KeyRemoved():
            _expect(key, state, command.expected, now, "nothing")
            return () if absent else (command,)
        case KeyChecked():
            _expect(key, state, command.expected, now, "what was read")
            return (command,)
        case ItemAppended() | AmountAdded() | ItemIncluded() | ItemDiscarded() | ValueMerged():
            value = _formed(msgspec.structs.replace(command, anew=expired))
            now_stands = BoardState() if absent else state
            return (value,) if _commuting(key, current, now_stands, value) else ()
        case _:
            assert_never(command)


def _formed(command: Write) -> Write:
    """Return the command with its value in RFC 8785 form where values are compared in it, so that
    equal values are equal texts in the record.
    """
    match command:
        case ItemIncluded() | ItemDiscarded():
            return msgspec.structs.replace(command, item=msgspec.Raw(form(command.item).encode()))
        case ValueMerged():
            return msgspec.structs.replace(command, value=msgspec.Raw(form(command.value).encode()))
        case _:
            return command


def _commuting(key: str, kind: KeyKind | None, state: BoardState, command: Write) -> bool:
    """Return whether an unconditional write changes anything."""
    match command:
        case AmountAdded():
            _fits(key, kind, KeyKind.COUNTER)
            if abs(command.amount) > SAFE_INT:
                raise BadValue(f"key {key!r}", f"{command.amount}", "add less than 2**53 at a time")
            return True
        case ItemAppended():
            _fits(key, kind, KeyKind.LIST)
            _bound(key, state.size, len(bytes(command.item)), len(state.items) + 1)
            return True
        case ItemIncluded():
            _fits(key, kind, KeyKind.SET)
            item = form(command.item)
            _bound(key, state.size, len(item.encode()), len(state.members) + 1)
            return item not in state.members
        case ItemDiscarded():
            _fits(key, kind, KeyKind.SET)
            return form(command.item) in state.members
        case ValueMerged():
            return _merges(key, kind, state, command)
        case _:
            return False


def _merges(key: str, kind: KeyKind | None, state: BoardState, command: ValueMerged) -> bool:
    check_merge(command.merge, msgspec.json.decode(command.value))
    _fits(key, kind, KeyKind(command.merge))
    after = merged(state, command, first=kind is None)
    count = len(msgspec.json.decode(after)) if command.merge == "union" else 0
    _bound(key, 0, len(bytes(after)), count)
    return kind is None or bytes(after) != bytes(state.value)


def _expect(key: str, state: BoardState, expected: int | None, now: int, mine: str) -> None:
    version = state.version_at(now)
    if expected is not None and expected != version:
        raise BoardConflict(key, expected, version, mine, state)


def _fits(key: str, kind: KeyKind | None, expected: KeyKind) -> None:
    if kind is not None and kind is not expected:
        message = (
            f"key {key!r} holds a {kind}, not a {expected}: remove it first, or use another key"
        )
        raise Refused(message)


def _bound(key: str, before: int, more: int, items: int) -> None:
    if before + more > INLINE_BYTES_MAX:
        fact = f"{before + more:,} bytes, the limit is {INLINE_BYTES_MAX:,}"
        raise BadValue(f"key {key!r}", fact, "use several keys, or hand values over by reference")
    if items > ITEMS_MAX:
        fact = f"{items:,} items, the limit is {ITEMS_MAX:,}"
        raise BadValue(f"key {key!r}", fact, "use several keys")


def check_terms(key: str, command: ValuePut) -> None:
    """Check a put's labels and time to live. Raises BadValue."""
    if len(command.labels) > LABELS_MAX or any(
        len(text) > LABEL_LENGTH_MAX for pair in command.labels.items() for text in pair
    ):
        fact = f"{len(command.labels)} labels: {command.labels!r:.80}"
        limit = f"give at most {LABELS_MAX}, of at most {LABEL_LENGTH_MAX} characters each"
        raise BadValue(f"labels of key {key!r}", fact, limit)
    if command.ttl_ms is not None and not 1 <= command.ttl_ms <= TTL_MS_MAX:
        fact = f"a time to live of {command.ttl_ms} ms"
        raise BadValue(f"ttl of key {key!r}", fact, "give 0.001 s to ten years")
