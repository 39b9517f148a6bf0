"""A run's board and tasks in its page: what each event changed of them, by the domain's own fold.

A change says what became of one key or one task: the fields that are otherwise now. Values are not
said again: a change refers to the event's own field, and what grows (a list, a set, a union) is
told as what was added. So all changes together are no larger than the events that made them.

What follows from the log's time (a key that expired, a lease that ran out) is a change at the first
event of the commit that has that time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any

import msgspec

from hansard.agents.team.tasks import told_task
from hansard.bus.log import Stored
from hansard.domain import board
from hansard.domain.board import (
    RESERVED,
    BoardState,
    By,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyKind,
    ValueMerged,
    ValuePut,
    form,
)
from hansard.domain.events import Event, Recorded
from hansard.domain.ids import KeyStream
from hansard.domain.quarantined import Quarantined
from hansard.domain.team import task
from hansard.domain.team.task import TaskState, TaskStatus
from hansard.domain.team.task_rules import Unmet
from hansard.inspect.state import key_head

WAITS_SHOWN = 20
"""Of what a task waits for, so many names; the rest are counted."""

PAYLOADS = ("what", "given", "result")
"""A task's values. In a change: that the event's own field of that name is the value now."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])

Change = tuple[int, int, dict[str, Any]]
"""At which event; of which key or task, by number; the fields that are otherwise now (of a new one
those that are not empty), or `gone`: why it is there no longer.
"""


class Shared(msgspec.Struct):
    """The names of keys, sorted, and of tasks, in the order they were added; and their changes.

    `value` in a key's change says what became of it: `["of"]` the event's own value (`["of", N]`
    that of event N), `["is", VALUE]`, `["push"]` the event's item at the end, `["in", I]` the
    event's item at I, `["out", I]` without the one at I, `["set", OBJECT]` these keys besides.
    """

    keys: list[str] = []
    board: list[Change] = []
    names: list[str] = []
    tasks: list[Change] = []


class Lapses:
    """What is over at which time, in ns; which of it turns where the time moves, also back."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []
        self._now = 0

    def set(self, name: str, end: int | None) -> None:
        """When something is over; None: never."""
        stood = self._ends.pop(name, None)
        if stood is not None:
            del self._order[bisect_left(self._order, (stood, name))]
        if end is not None:
            self._ends[name] = end
            insort(self._order, (end, name))

    def move(self, now: int) -> list[str]:
        """The time is another; what is over now and was not, or the other way about."""
        first, last = sorted((self._now, now))
        self._now = now
        if not self._order:
            return []
        span = slice(bisect_left(self._order, (first + 1,)), bisect_left(self._order, (last + 1,)))
        return [name for _, name in self._order[span]]


class SharedBuilder:
    """Folds the commits of boards one after the other, and writes down what changed."""

    def __init__(self) -> None:
        self._boards = _Boards()
        self._team = _Team()

    def now(self, stamp: int, number: int) -> None:
        """The log's time is that of a commit that begins with this event."""
        self._boards.now(stamp, number)
        self._team.now(stamp, number)

    def take(self, stored: Stored, recorded: Recorded, event: Event, number: int) -> None:
        """Fold an event; those of other streams than a board's are passed over."""
        if not isinstance(stored.stream, KeyStream):
            return
        by = By(stored.commit.actor.agent, stored.stamp, recorded.id, stored.commit.label)
        key = stored.stream.key
        if key == task.KEY:
            self._team.take(event, by, number)
        elif not key.startswith(RESERVED):
            self._boards.take(key, event, by, number)

    def shared(self) -> Shared:
        """What was taken."""
        keys, team = self._boards, self._team
        names = sorted(keys.names)
        places = {keys.names[name]: place for place, name in enumerate(names)}
        told = [(number, places[key], change) for number, key, change in keys.changes]
        return Shared(names, told, list(team.names), team.changes)


class _Boards:
    """The keys of a run's shared state."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.changes: list[Change] = []
        self._states: dict[str, BoardState] = {}
        self._told: dict[str, dict[str, Any]] = {}
        """What was said last of the keys that are there."""
        self._members: dict[str, list[str]] = {}
        """Of keys that hold a set: its items in order."""
        self._puts: dict[str, int] = {}
        """At which event a key was put last."""
        self._lapses = Lapses()
        self._now = 0

    def now(self, stamp: int, number: int) -> None:
        """Tell what expired (and, where the time moved back, what is there again)."""
        self._now = stamp
        for key in self._lapses.move(stamp):
            self._tell(key, number, ["of", self._puts[key]], "expired")

    def take(self, key: str, event: Event, by: By, number: int) -> None:
        """Fold an event and tell what it changed."""
        state = self._states.setdefault(key, BoardState())
        version, kind, value = state.changed, state.kind, state.value
        board.evolve(state, event, by)
        self._lapses.set(key, state.expires)
        if state.changed == version:  # it says nothing of what stands there
            return
        if state.kind is KeyKind.VALUE:
            self._puts[key] = number
        self._tell(key, number, self._value(key, kind, value, event), "removed")

    def _tell(self, key: str, number: int, value: list[Any], gone: str) -> None:
        """Write down how a key stands now. `value` is what became of its value, `gone` why it is
        not there where it was.
        """
        state, told = self._states[key], self._told.pop(key, None)
        if state.absent(self._now):
            change: dict[str, Any] = {"gone": gone}
            if told is None:
                return
        else:
            self._told[key] = head = key_head(state)
            change = {
                name: each
                for name, each in head.items()
                if name != "event" and (each if told is None else told[name] != each)
            }
            change["value"] = value
        self.changes.append((number, self.names.setdefault(key, len(self.names)), change))

    def _value(self, key: str, kind: KeyKind | None, value: msgspec.Raw, event: Event) -> list[Any]:
        """What an event made of a key's value; kind and value are those before."""
        state = self._states[key]
        goes_on = kind is state.kind and not getattr(event, "anew", False)
        match event:
            case ValuePut():
                return ["of"]
            case ItemAppended() if len(state.items) > 1 or kind is not KeyKind.LIST:
                return ["push"]
            case ItemIncluded() | ItemDiscarded():
                stood = self._members.get(key, []) if goes_on else []
                return self._moved(key, stood, form(event.item))
            case ValueMerged() if goes_on and kind is KeyKind.UNION:
                old, new = _fields.decode(value), _fields.decode(state.value)
                names = [name for name in new if old.get(name) != new[name]]
                return ["set", {name: msgspec.json.decode(new[name]) for name in names}]
            case _:
                return ["is", state.plain]

    def _moved(self, key: str, members: list[str], item: str) -> list[Any]:
        """What an item did to a set, whose items before are given in order."""
        state, at = self._states[key], bisect_left(members, item)
        self._members[key] = members
        if len(state.members) == len(members) + 1:
            members.insert(at, item)
            return ["in", at]
        if len(state.members) == len(members) - 1:
            del members[at]
            return ["out", at]
        self._members[key] = sorted(state.members)
        return ["is", state.plain["$set"]]


class _Team:
    """The tasks."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.changes: list[Change] = []
        self._state = task.initial()
        self._unmet = Unmet(self._state)
        self._told: dict[str, dict[str, Any]] = {}
        self._lapses = Lapses()
        self._now = 0

    def now(self, stamp: int, number: int) -> None:
        """Tell which leases ran out."""
        self._now = stamp
        for name in self._lapses.move(stamp):
            self._tell(self._state.tasks[name], number, {})

    def take(self, event: Event, by: By, number: int) -> None:
        """Fold an event and tell which tasks it changed."""
        name = getattr(event, "task", "")
        stood = self._state.tasks.get(name)
        task.evolve(self._state, event, by)
        if isinstance(event, Quarantined):
            return
        now = self._state.tasks[name]
        self._lapses.set(name, now.expires if now.status is TaskStatus.CLAIMED else None)
        for moved in sorted(self._unmet.moved(stood, now), key=self._place):
            each = self._state.tasks[moved]
            self._tell(each, number, _payloads(stood, now) if moved == name else {})

    def _place(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))

    def _tell(self, each: TaskState, number: int, payloads: dict[str, Any]) -> None:
        unmet = None if each.is_over else self._unmet.of(each)
        row = told_task(each, unmet, self._now)
        row["expires"] = _us(each.expires) if each.status is TaskStatus.CLAIMED else None
        for name in ("id", "lease_left_s", *PAYLOADS):
            del row[name]
        for name in ("waits_for", "blocked_by"):
            row[name] = _short(row[name])
        told = self._told.get(each.id)
        change = {
            name: value
            for name, value in row.items()
            if (value if told is None else told[name] != value)
        }
        if change or payloads:
            self._told[each.id] = row
            self.changes.append((number, self._place(each.id), {**change, **payloads}))


def _payloads(stood: TaskState | None, now: TaskState) -> dict[str, Any]:
    """Which of a task's values are those of the event."""
    found: dict[str, Any] = {}
    if stood is None:
        return {"what": True} if bytes(now.added.what) != b"null" else {}
    for name in ("given", "result"):
        if getattr(stood, name) is not getattr(now, name):
            found[name] = True
    return found


def _short(names: list[str]) -> list[Any]:
    """A list's first names, and how many more there are."""
    more = len(names) - WAITS_SHOWN
    return [*names[:WAITS_SHOWN], more] if more > 0 else names


def _us(stamp: int) -> int:
    """A log time in whole microseconds."""
    return stamp // 1_000
