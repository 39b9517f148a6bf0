"""`session.save` and `session.get`: aggregates of the program's own, saved with the step that
changed them, and loaded now or at a point.

Both are steps of the agent, of kind `aggregate`. A save is one commit with the step's outcome, so
that it is made exactly once even if the process is killed. If a resumed program repeats the save,
its aggregates get the saved ids and times. The result of a `get` is recorded as the aggregate's
version, so that a resumed program gets the same. A fork that shadows effects shadows its saves.

Written once for both clients as flows (see `hansard.agents.flow`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from hansard.agents.flow import Flow, Io
from hansard.agents.policy.permits import rebuilds, saves
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import Draft, JointSteps, JointWrite, Outcome
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import demand_cleared
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.tools import operation
from hansard.bus.commits import record
from hansard.bus.errors import NotFound
from hansard.bus.writer import MERGE_BYTES_MAX, MERGE_EVENTS_MAX
from hansard.domain import aggregate_types, values
from hansard.domain.aggregate_types import (
    AggregateChanged,
    AggregateConflict,
    AggregateType,
    Upcast,
    short,
    stream_of,
)
from hansard.domain.errors import BadValue, Corrupt
from hansard.domain.events import Recorded
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import join
from hansard.domain.values import Plain, Scrub
from hansard.state.aggregates import History, changes_in_short, history, without_time


def aggregate_type(
    cls: Any,
    *,
    name: str,
    events: Mapping[str, Any],
    older: Mapping[str, tuple[str, Upcast]] | None = None,
) -> None:
    """Register the name and the versioned event tags under which aggregates of a class of the
    `eventsourcing` library are recorded. Only these and plain values are stored, never a class.

    name: such as `order`; roles and SQL know its events by it.
    events: the class of each event by its tag, `{"order-placed.v1": Order.Placed}`, or its name in
    the aggregate's class, `"Placed"`, since type checkers do not know an `Order.Placed` that
    `@event` made. Use a new tag when an event's fields change, and keep the old one in `older`.
    older: for each old tag, the tag that replaced it, and a function that converts the state:
    `{"order-placed.v1": ("order-placed.v2", lambda state: {**state, "side": "buy"})}`.

    Declare it before an aggregate is saved or loaded. Raises BadValue.
    """
    from hansard.state.native import check_events, topic_of  # noqa: PLC0415 -- readers need no library

    where = f"aggregate_type {name!r:.80}"
    if not isinstance(cls, type):
        raise BadValue(where, f"{cls!r:.80} is no class", "give the class of the aggregates")
    if getattr(cls, "INITIAL_VERSION", None) != 1:
        fact = f"{cls.__qualname__} has INITIAL_VERSION {getattr(cls, 'INITIAL_VERSION', None)!r}"
        raise BadValue(where, fact, "give an aggregate of the library, whose versions begin at 1")
    classes = {tag: _class_of(cls, each) for tag, each in events.items()}
    check_events(where, classes)
    aggregate_types.register(
        AggregateType(
            cls=cls, name=name, topic=topic_of(where, cls), events=classes, older=dict(older or {})
        )
    )


def _class_of(cls: type, event: Any) -> Any:
    """Return an event's class; a name is looked up in the aggregate's class."""
    return getattr(cls, event, event) if isinstance(event, str) else event


AGGREGATES_MAX = 500
"""Most aggregates of one save: the log takes 1,000 commits at once."""

SAVE_BYTES_MAX = 6 * 1024 * 1024
"""Most event data of one save over all of its aggregates, in bytes: the log takes 8 MiB at once."""


class PendingAggregate(msgspec.Struct):
    """An aggregate to be saved: the version it was changed from, and its new events in recorded
    form.
    """

    aggregate: Any
    made: AggregateType
    stream: WorkspaceStream
    after: int
    events: list[tuple[str, Plain]]
    packed: list[payloads.Packed] = []

    @property
    def version(self) -> int:
        """Version after the save."""
        return self.after + len(self.events)

    @property
    def what(self) -> str:
        """Description for errors."""
        return f"{self.made.name} {self.stream.id}"


def pending_events(aggregate: Any, scrub: Scrub | None) -> PendingAggregate:
    """Return the pending events of an aggregate. Raises BadValue, BadName."""
    made = aggregate_types.declared(type(aggregate))
    pending = list(aggregate.pending_events)
    changed = PendingAggregate(
        aggregate, made, stream_of(aggregate.id), aggregate.version - len(pending), []
    )
    if len(pending) > MERGE_EVENTS_MAX:
        fact = f"{len(pending):,} events in one save, the limit is {MERGE_EVENTS_MAX:,}"
        raise BadValue(changed.what, fact, "save it more often")
    for event in pending:
        tag, plain = aggregate_types.checked_state(made, event, scrub)
        changed.events.append((tag, plain))
        changed.packed.append(payloads.pack(plain, f"{tag} of {changed.what}"))
    return changed


def check_sizes(saves: Sequence[PendingAggregate]) -> None:
    """Raise BadValue if a save exceeds what the log takes at once, or has an aggregate twice."""
    if len(saves) > AGGREGATES_MAX:
        fact = f"{len(saves):,} aggregates in one save, the limit is {AGGREGATES_MAX:,}"
        raise BadValue("save", fact, "save them in several")
    seen: set[WorkspaceStream] = set()
    total = 0
    for each in saves:
        if each.stream in seen:
            raise BadValue("save", f"{each.what} is given twice", "give each aggregate once")
        seen.add(each.stream)
        size = sum(len(bytes(packed.raw)) + 300 for packed in each.packed)
        if size > MERGE_BYTES_MAX:
            fact = f"{size:,} bytes of events, the limit of one save is {MERGE_BYTES_MAX:,}"
            raise BadValue(each.what, fact, "save it more often")
        total += size
    if total > SAVE_BYTES_MAX:
        fact = f"{total:,} bytes of events, the limit of one save is {SAVE_BYTES_MAX:,}"
        raise BadValue("save", fact, "save the aggregates in several")


class AggregateWrite(JointWrite):
    """Saves aggregates, each at the version that it was changed from, or none of them.

    `known`: versions that this session knows to be current. Others are read from the log first,
    since a commit beyond the newest version would leave a gap.
    """

    is_caused = True

    def __init__(
        self,
        engine: StepEngine,
        call: Call,
        saves: Sequence[PendingAggregate],
        known: dict[Any, int],
    ) -> None:
        super().__init__(engine, call)
        self._saves = saves
        self._known = known

    def _streams(self) -> list[WorkspaceStream]:
        return [each.stream for each in self._saves]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        await self._demand_current()
        saved = [
            {"aggregate": each.made.name, "id": each.stream.id, "version": each.version}
            for each in self._saves
        ]
        outcome = await self._completed({"saved": saved})
        return outcome, [self._draft(each) for each in self._saves]

    async def _demand_current(self) -> None:
        """Raise AggregateConflict if an aggregate is at another version than it was changed from,
        and Blocked if the agent is not cleared for its events.
        """
        log = self._boards.states.log
        for each in self._saves:
            if not self._lost and each.after == self._known.get(each.stream, 0):
                continue
            last = await log.last(each.stream)
            current = last.commit.last_version if last is not None else 0
            if current != each.after:
                after = min(each.after, current)
                theirs = await history(log, self._blobs, each.stream.id, after=after)
                await self._clearances.demand(theirs.label, each.what, self._call.spec.name)
                self.shown = join(self.shown, theirs.label)
                raise _conflict(each, theirs)

    def _draft(self, each: PendingAggregate) -> Draft:
        recorded: list[Recorded] = []
        for (tag, _), packed in zip(each.events, each.packed, strict=True):
            event = AggregateChanged(
                aggregate=each.made.name,
                event=tag,
                state=packed.raw,
                run=self._agent.run,
                step=self._call.number,
            )
            recorded.append(record(event, self._clock.new_id()))
        return Draft(each.stream, each.after, recorded)

    def _sent(self) -> None:
        if self.error is None:
            self._known |= {each.stream: each.version for each in self._saves}


def _conflict(each: PendingAggregate, theirs: History) -> AggregateConflict:
    text = changes_in_short(theirs.changes)
    return AggregateConflict(
        each.made.name,
        each.stream.id,
        each.after,
        theirs.version,
        short([[tag, without_time(plain)] for tag, plain in each.events]),
        short(text) if text else "nothing",
        theirs.author,
    )


KIND = "aggregate"
"""Kind of these steps."""

SAVE = operation("aggregate.save", "aggregates", kind=KIND, writes=True)
GET = operation("aggregate.get", "aggregate", "id", "at", kind=KIND)

_MADE_UP = re.compile(
    r"(?<![0-9a-f])[0-9a-f]{8}-?[0-9a-f]{4}-?[1467][0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}"
)
"""UUIDs of random or time-based versions (1, 4, 6 and 7), which differ at each start."""


class AggregateFlows(JointSteps):
    """A session's operations on the program's own aggregates."""

    outlives_runs = True

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self._known: dict[WorkspaceStream, int] = {}

    # ------------------------------------------------------------ save

    def save(self, aggregates: Sequence[Any]) -> Flow[list[int]]:
        """Save the pending events of aggregates; return their new versions."""
        self.engine.ledger.demand_open()
        scrub = self.engine.settings.scrub
        pending = [pending_events(each, scrub) for each in aggregates]
        changed = [each for each in pending if each.events]
        check_sizes(changed)
        if changed:
            call = self.engine.begin(SAVE, (_save_record(changed),), {})
            call.needs = tuple(saves(name) for name in dict.fromkeys(e.made.name for e in changed))
            live: list[bool] = []
            run = functools.partial(self._save, saves=changed, live=live)
            recorded = yield from self.ask(call, run)
            if live:
                for each in changed:  # later events are still to be saved
                    del each.aggregate.pending_events[: len(each.events)]
            else:
                yield from self._take_over(changed, recorded["saved"])
        return [each.aggregate.version for each in pending]

    def _save(self, call: Call, saves: Sequence[PendingAggregate], live: list[bool]) -> Flow[Any]:
        write = AggregateWrite(self.engine, call, saves, self._known)
        blobs = [blob for each in saves for packed in each.packed for blob in packed.blobs]
        value = yield from self._jointly(call, blobs, write)
        live.append(True)
        return value

    def _take_over(
        self, pending: Sequence[PendingAggregate], items: Sequence[dict[str, Any]]
    ) -> Flow[None]:
        """Give aggregates the ids and times that were saved before."""
        for each, one in zip(pending, items, strict=True):
            kept = one["id"] if isinstance(each.aggregate.id, str) else UUID(one["id"])
            point = f"@{one['version']}"
            past = yield from self._history(kept, point)
            made = aggregate_types.rebuilt(each.made, kept, past.changes)
            if made is None or made.version != one["version"]:
                fact = f"version {one['version']}, which a step saved, is not in its stream"
                raise Corrupt(f"{each.made.name} {kept}", fact)
            vars(each.aggregate).clear()
            vars(each.aggregate).update(vars(made))
            self._known[stream_of(kept)] = one["version"]

    # ------------------------------------------------------------ get

    def get(self, cls: Any, aggregate_id: object, at: object, version: int | None) -> Flow[Any]:
        """Return an aggregate, now or at a point. Raises NotFound."""
        self.engine.ledger.demand_open()
        made = aggregate_types.declared(cls)
        named = made.id_of(aggregate_id)
        call = self.engine.begin(GET, (made.name, str(named), _at(at, version)), {})
        call.needs = (rebuilds(made.name),)
        read: list[History] = []
        run = functools.partial(self._get, made=made, named=named, read=read)
        recorded = yield from self.ask(call, run)
        if recorded is None:
            then = f" at {at if version is None else f'version {version}'}"
            where = then if (at, version) != (None, None) else ""
            raise NotFound(
                f"{made.name} {named}{where}", "see its id, or save a new one under it first"
            )
        past = read[0] if read else (yield from self._history(named, f"@{recorded['version']}"))
        if (at, version) == (None, None):
            self._known[stream_of(named)] = recorded["version"]
        return aggregate_types.rebuilt(made, named, past.changes)

    def _get(
        self, call: Call, made: AggregateType, named: UUID | str, read: list[History]
    ) -> Flow[Any]:
        return (yield from self._recorded(call, lambda: self._read(call, made, named, read)))

    def _read(
        self, call: Call, made: AggregateType, named: UUID | str, read: list[History]
    ) -> Flow[Any]:
        """Return the fields that a read records: the version of the aggregate."""
        past = yield from self._history(named, call.arguments["at"])
        if not past.changes:
            return None
        yield from demand_cleared(self.engine, call, past.label, f"{made.name} {named}")
        read.append(past)
        return {"aggregate": made.name, "id": str(named), "version": past.version}

    def _history(self, named: UUID | str, at: object) -> Flow[History]:
        engine = self.engine
        work = functools.partial(
            history, engine.boards.states.log, engine.outcomes.blobs, named, at=at
        )
        past: History = yield Io(work)
        return past


def _at(at: object, version: int | None) -> object:
    """Return a point as it is recorded. Raises BadValue."""
    if version is None:
        return at
    if at is not None:
        raise BadValue("get", "at= and version= are both given", "give one of them")
    if type(version) is not int or version < 1:
        raise BadValue("get", f"version={version!r:.40}", "give a version, from 1")
    return f"@{version}"


def _save_record(pending: Sequence[PendingAggregate]) -> list[Any]:
    """Return a save as its step records it: the events without their times, and a number in place
    of each random id of a new aggregate, so that the same program requests the same save again.
    """
    new: dict[str, str] = {}
    for each in pending:
        name = each.stream.id
        if not each.after and _MADE_UP.search(name):
            new[name] = f"(new {len(new) + 1})"
    return [
        {
            "aggregate": each.made.name,
            "id": new.get(each.stream.id, each.stream.id),
            "version": each.after,
            "events": [
                {"event": tag, "state": values.revive(_renamed(without_time(plain), new))}
                for tag, plain in each.events
            ],
        }
        for each in pending
    ]


def _renamed(plain: Plain, new: dict[str, str]) -> Plain:
    """Return a state with the replacements of random ids."""
    match plain:
        case str():
            return new.get(plain, plain)
        case list():
            return [_renamed(item, new) for item in plain]
        case {"$uuid": str(text)} if text in new:
            return new[text]
        case dict():
            return {name: _renamed(item, new) for name, item in plain.items()}
        case _:
            return plain
