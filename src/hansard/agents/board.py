"""`session.board`: state shared by all agents of a run, by key, for both clients.

A key holds one kind of content until it is removed: a value (`put`), a list (`append`), a counter
(`add`), a set (`include`, `discard`), or a merged value (`merge`: max, min, union).

Each operation is a step of the agent, of kind `board`. The result of a read is recorded, so that a
resumed session gets the same; a write is made exactly once even if the process is killed. A read
costs a commit in the agent's stream. A write to one key costs three commits in sequence: the
intent, the key's commit, which is the outcome, and the outcome's event. A write to several keys, or
beside others of the same process, costs one commit over several streams (some 4 ms on a local
disk). The commit of the key names the intent as its cause, by which a resume finds it
(`find_write`).

Long because a transaction repeats the checks and decisions of the single operations.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import math
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from datetime import datetime
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from hansard.agents.access.carried import CarriedLog
from hansard.agents.errors import Blocked
from hansard.agents.flow import (
    AsyncDrive,
    Flow,
    Io,
    is_coroutine_function,
    name_of,
    sync,
    sync_block,
)
from hansard.agents.policy.permits import reads, writes
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import Draft, JointSteps, JointWrite, Outcome, SharedStream
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import cleared_of, demand_cleared
from hansard.agents.steps.recorder import UNTOUCHED, Call
from hansard.agents.steps.scope import enter
from hansard.agents.steps.tools import operation
from hansard.bus.commits import drive_fetch, record
from hansard.bus.writer import MERGE_BYTES_MAX, Ticket
from hansard.domain import board, payload, values
from hansard.domain.agent import Tell
from hansard.domain.board import (
    AmountAdded,
    BoardConflict,
    BoardEvent,
    BoardState,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyChecked,
    KeyKind,
    KeyRemoved,
    Merge,
    ValueMerged,
    ValuePut,
    decide,
    key_name,
    restored,
)
from hansard.domain.choices import Brief
from hansard.domain.decider import By, fold
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Recorded
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import AgentStream, KeyStream
from hansard.domain.label import Label, join
from hansard.domain.redaction import check_names
from hansard.domain.steps import Step, StepCompleted, StepStatus
from hansard.domain.values import Plain, recordable
from hansard.state.replay import States
from hansard.state.repository import follow

# ------------------------------ writes: the keys' commits, with the step's outcome

SEVERAL = "board.commit"
"""Operation that may write several keys; always one commit together with its step."""

WITHOUT_OUTCOME = (StepStatus.REQUESTED, StepStatus.IN_DOUBT, StepStatus.NOT_DONE)
"""States of a step without an outcome. A step may have been settled as not done just before it
wrote.
"""


class IntentWrite(msgspec.Struct, frozen=True):
    """A step's write to a key: number of events in its commit, and the key's state after it."""

    key: str
    changed: int
    state: BoardState


async def find_write(states: States, stream: AgentStream, step: Step) -> IntentWrite | None:
    """Return the write that an intent without an outcome made in a commit of its own, by the
    current log.

    None if it wrote nothing; that is final once the agent's stream has newer events, as it has for
    every session except the one that holds the intent. Costs a read of the key's history.
    """
    writes = step.kind == "board" and step.has_effect and step.tool != SEVERAL
    if not writes or step.status not in WITHOUT_OUTCOME:
        return None
    position = await states.position_of(stream, step.version)
    if position is None:
        return None
    intent = (await states.log.at(position)).commit
    cause = intent.events[step.version - intent.version].id
    key = msgspec.json.decode(step.arguments)["key"]
    state = BoardState()
    for stored in await states.commits(KeyStream(stream.run, key)):
        follow(state, stored)
        if stored.commit.causation == cause:
            return IntentWrite(key, len(stored.commit.events), state)
    return None


RESOLVES_MAX = 1_000
"""Most times one write is settled by its resolver, each after a lost race. With 50 processes at one
key, one write in five of a thousand loses 50 races: a limit of 20 would be too low.
"""

WRITE_BYTES_MAX = 6 * 1024 * 1024
"""Most event data of one write over all of its keys, in bytes: the log takes 8 MiB at once."""


class Resolution(StrEnum):
    """Ways to settle a lost put."""

    LAST_WRITER = "last writer"
    """The put replaces the current value."""

    MERGE = "merge"
    """Put the union of the two objects."""


Resolve = Resolution | str | Callable[[Any, Any], Any]
"""Way to settle a lost put: a `Resolution`, or a function of the value to put and the current value
that returns the value to put instead. The function runs in a thread of its own and must not call
the session.
"""


class KeyWrite(msgspec.Struct):
    """One requested write to one key."""

    key: str
    event: BoardEvent


class _Draft(msgspec.Struct):
    """Pending write of a key: its events with their ids, and the state after them."""

    state: BoardState
    events: list[tuple[BoardEvent, Recorded]] = []


class BoardWrite(JointWrite):
    """Writes to keys; a put that lost its race is settled by a resolver."""

    def __init__(
        self,
        engine: StepEngine,
        key_writes: Sequence[KeyWrite],
        call: Call,
        resolve: Resolve | None,
    ) -> None:
        super().__init__(engine, call)
        self._original = tuple(key_writes)
        self._writes = list(key_writes)
        self._resolve = resolve
        self._resolved = 0
        self._settled_by: list[Ticket] = []
        self._drafted: dict[str, _Draft] = {}
        self._after: list[Ticket] = []

    def _streams(self) -> list[KeyStream]:
        return [self._stream(write.key) for write in self._writes]

    def _stream(self, key: str) -> KeyStream:
        return KeyStream(self._agent.run, key)

    def _follows(self) -> list[Ticket]:
        return [*self._after, *self._settled_by]

    def _expect(self, ticket: Ticket) -> bool:
        """Let the next writer of each key continue from the pending state; not for a key that
        expires, since its expiry depends on the log time of the commit.
        """
        if any(draft.state.expires is not None for draft in self._drafted.values()):
            return False
        for key, draft in self._drafted.items():
            self._boards.expect(self._stream(key), draft.state, ticket)
        return True

    def _goes_alone(self, stream: SharedStream) -> bool:
        """Return whether one key can be written without sharing a batch of this process. Writes of
        a principal are conditional on its label, and a commit has one condition.
        """
        boards = self._boards
        if self._call.spec.name == SEVERAL or isinstance(boards.states.log, CarriedLog):
            return False
        return boards.is_alone(stream)

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        """Return the current outcome of the write, and its drafts. Cached state never suffices: a
        refusal, or that nothing is to be done, follows only from state just read. After a lost race
        the resolver runs again, as the value it used may never have been stored under that version.
        """
        self._writes, self._settled_by = list(self._original), []
        fresh = False
        while True:
            try:
                drafts = await self._drafts(fresh=fresh)
                if fresh or all(draft.events for draft in drafts.values()):
                    outcome = await self._completed_by(drafts)
                    self._drafted = drafts
                    return outcome, [self._draft(key, each) for key, each in drafts.items()]
            except Exception as error:  # noqa: BLE001 -- becomes the step's outcome, and is raised there
                if fresh or self._settles(error):
                    unsettled = await self._unsettled(error)
                    if unsettled is None:
                        fresh = False  # if the cached state is outdated, the log tells
                        continue
                    if fresh:
                        self._drafted = {}
                        if not isinstance(unsettled, Blocked):
                            self.shown = await self._labels()
                        return self._failed(unsettled), []
            fresh = True

    def _draft(self, key: str, draft: _Draft) -> Draft:
        recorded = [each for _, each in draft.events]
        return Draft(self._stream(key), draft.state.version - len(recorded), recorded)

    def _sent(self) -> None:
        for key, draft in self._drafted.items():
            if draft.state.expires is None:
                self._boards.keep(self._stream(key), draft.state)
            else:  # its expiry depends on the log time of the commit
                self._boards.outdate(self._stream(key))

    async def _drafts(self, *, fresh: bool) -> dict[str, _Draft]:
        drafts: dict[str, _Draft] = {}
        self._after = []
        for write in self._writes:
            draft = drafts.get(write.key)
            if draft is None:
                state, ticket = await self._boards.upcoming(self._stream(write.key), fresh=fresh)
                self._after += [ticket] if ticket is not None else []
                draft = drafts[write.key] = _Draft(state, [])
                what = f"key {write.key!r:.200}"
                await self._clearances.demand(state.label, what, self._call.spec.name)
                if (fresh or self._lost) and state.expires is not None:
                    self.now = max(self.now, await self._boards.log_time())
            for event in decide(write.key, draft.state, write.event, self.now):
                recorded = record(event, self._clock.new_id())
                draft.events.append((event, recorded))
                by = By(self._agent.agent, self.now, recorded.id, self.label)
                draft.state = fold(draft.state, [event], by)
        _check_sizes(drafts)
        return drafts

    async def _completed_by(self, drafts: dict[str, _Draft]) -> StepCompleted:
        items = [write_record(key, len(draft.events), draft.state) for key, draft in drafts.items()]
        self.shown = join(*(record_label(draft.state) for draft in drafts.values()))
        single = self._call.spec.name != SEVERAL
        result: dict[str, Plain] = items[0] if single else {"keys": items}
        if self._resolved:
            result["resolved"] = self._resolved
        return await self._completed(result)

    async def _labels(self) -> Label:
        """Return the label of the current values of all keys, which an error may reveal."""
        states = [await self._boards.state(each, fresh=False) for each in self._streams()]
        return join(*(state.label for state in states))

    # ------------------------------------------------------------ resolvers

    def _settles(self, failed: Exception) -> bool:
        """Return whether a resolver should run."""
        conflict = isinstance(failed, BoardConflict)
        return conflict and self._resolve is not None and self._resolved < RESOLVES_MAX

    async def _unsettled(self, failed: Exception) -> Exception | None:
        """Run the resolver; return None if it gave a value to put instead, else the error of the
        write, which may be the resolver's own.
        """
        put = self._original[0].event if self._original else None  # equal in each call
        if not self._settles(failed) or not isinstance(put, ValuePut):
            return failed
        self._resolved += 1
        try:
            await self._settle(put)
        except Exception as error:  # noqa: BLE001 -- any error of a resolver is the outcome
            return error
        return None

    async def _settle(self, put: ValuePut) -> None:
        key = self._writes[0].key
        state, ticket = await self._boards.upcoming(self._stream(key))
        self._settled_by = [ticket] if ticket is not None else []
        put = msgspec.structs.replace(put, expected=state.version_at(self.now))
        self.used = join(self.used, state.label)
        if self._resolve != Resolution.LAST_WRITER:
            value = await self._chosen(put, state)
            packed = payloads.pack(value, f"key {key!r}")
            for blob in packed.blobs:
                await self._blobs.put(blob)
            put = msgspec.structs.replace(put, value=packed.raw)
        self._writes = [KeyWrite(key, put)]

    async def _chosen(self, put: ValuePut, state: BoardState) -> Plain:
        mine = await self._fetched(msgspec.json.decode(put.value))
        current = None if state.absent(self.now) else state.plain
        theirs = await self._fetched(current)
        if self._resolve == Resolution.MERGE:
            if current is None:
                return mine
            board.check_merge("union", theirs)
            board.check_merge("union", mine)
            return board.joined("union", theirs, mine)
        return await asyncio.to_thread(
            self._resolve_conflict, values.revive(mine), values.revive(theirs)
        )

    def _resolve_conflict(self, mine: Any, theirs: Any) -> Plain:
        enter(self.scope)  # a scope that allows no call
        resolve: Any = self._resolve
        return values.plain(resolve(mine, theirs), "resolved value", self._scrub)

    async def _fetched(self, plain: Plain) -> Plain:
        whole: Plain = await drive_fetch(payload.resolve(plain), self._blobs.get)
        return whole


def _check_sizes(drafts: Mapping[str, _Draft]) -> None:
    """Raise BadValue if a commit, or all of them together, exceed what the log takes at once."""
    total = 0
    for key, draft in drafts.items():
        size = sum(len(bytes(recorded.data)) + 120 for _, recorded in draft.events)
        if size > MERGE_BYTES_MAX:
            fact = f"{size:,} bytes in one commit, the limit is {MERGE_BYTES_MAX:,}"
            raise BadValue(f"key {key!r}", fact, "write it in several")
        total += size
    if total > WRITE_BYTES_MAX:
        fact = f"{total:,} bytes in one transaction, the limit is {WRITE_BYTES_MAX:,}"
        raise BadValue("transaction", fact, "use several transactions")


def write_record(key: str, changed: int, state: BoardState) -> dict[str, Plain]:
    """Return a key's part of a write's outcome: the number of events and the new state."""
    return {"key": key, "changed": changed, **state_record(state)}


def state_record(state: BoardState) -> dict[str, Plain]:
    """Return a key's state for a write's outcome: the version, and its content if short."""
    fields: dict[str, Plain] = {"version": state.changed if state.kind is not None else 0}
    match state.kind:
        case KeyKind.COUNTER | KeyKind.MAX | KeyKind.MIN:
            fields["value"] = state.plain
        case KeyKind.LIST:
            fields["count"] = len(state.items)
        case KeyKind.SET:
            fields["count"] = len(state.members)
        case _:
            pass
    return fields


def record_label(state: BoardState) -> Label | None:
    """Return the label of a key's part of a write's outcome: none if that is its version alone."""
    return state.label if state.kind not in (None, KeyKind.VALUE, KeyKind.UNION) else None


def check_labels(key: object, labels: object) -> dict[str, Any]:
    """Return a put's labels as a dict; their texts are checked when recorded. Raises BadValue."""
    if isinstance(labels, Mapping):
        return dict(labels)
    raise BadValue(f"labels of key {key!r:.80}", f"{labels!r:.80}", "give texts by name, as a dict")


def check_resolve(resolve: object) -> str | None:
    """Return a resolver's name as it is recorded. Raises BadValue."""
    if resolve is None:
        return None
    if isinstance(resolve, str) and resolve in tuple(Resolution):
        return Resolution(resolve).value
    if callable(resolve) and not is_coroutine_function(resolve):
        return f"function {name_of(resolve)}"
    remedy = "give 'last writer', 'merge', or a plain function of (mine, theirs)"
    raise BadValue("resolve", f"{resolve!r:.80}", remedy)


class Expected(StrEnum):
    """Expectations of a key other than a version."""

    ANY = "any"
    """Any state of the key."""


class BoardEntry(Brief, msgspec.Struct, frozen=True):
    """A key as it was read.

    Attributes:
        key: The key.
        kind: Kind of content: value, list, counter, set or merged value.
        value: Content.
        version: Version that a put expects.
        author: Agent that changed it last.
        role: Role of that agent.
        labels: Texts by name.
        expires: Expiry by the log's time in UTC; None for never.
    """

    key: str
    kind: KeyKind
    value: Any
    version: int
    author: str
    role: str
    labels: dict[str, str] = {}
    expires: datetime | None = None


_board = functools.partial(operation, kind="board")
_writes = functools.partial(_board, writes=True)

# Recorded arguments of each operation.
SPECS = {
    "get": _board("board.get", "key"),
    "keys": _board("board.keys"),
    "put": _writes("board.put", "key", "value", "expected", "labels", "ttl", "resolve"),
    "append": _writes("board.append", "key", "item"),
    "add": _writes("board.add", "key", "amount"),
    "include": _writes("board.include", "key", "item"),
    "discard": _writes("board.discard", "key", "item"),
    "merge": _writes("board.merge", "key", "merge", "value"),
    "remove": _writes("board.remove", "key", "expected"),
    "begin": _board("board.begin"),
    "commit": _writes("board.commit", "reads", "operations"),
    "roll_back": _board("board.roll_back", "operations", "because"),
}

CONTENT = {
    "board.put": "value",
    "board.append": "item",
    "board.add": "amount",
    "board.include": "item",
    "board.discard": "item",
    "board.merge": "value",
}
"""The argument of each write that is its content, which an edit of a fork replaces."""


class BoardFlows(JointSteps):
    """A session's operations on its run's board."""

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self._seen: dict[str, int] = {}

    def begin(self, name: str, *arguments: Any) -> Call:
        """Build the call of an operation, with its place in the record. Raises BadValue, NoScope,
        ToolError.
        """
        call = self.engine.begin(SPECS[name], arguments, {})
        if call.plain.get("key") != call.arguments.get("key"):
            raise BadValue("key", "it holds a secret", "leave the secret out of it")
        call.needs = ()
        return call

    # ------------------------------------------------------------ reads

    def entry(self, key: str) -> Flow[BoardEntry | None]:
        """Return a key with its metadata; None if it is absent."""
        call = self.begin("get", key_name(key))
        call.needs = (reads(key),)
        recorded = yield from self.ask(call, self._read)
        self._seen[key] = recorded["version"] if recorded else 0
        if recorded is None:
            return None
        return BoardEntry(
            key=key,
            kind=KeyKind(recorded["kind"]),
            value=recorded["value"],
            version=recorded["version"],
            author=recorded["author"],
            role=recorded["role"],
            labels=recorded["labels"],
            expires=datetime.fromisoformat(recorded["expires"]) if recorded["expires"] else None,
        )

    def keys(self) -> Flow[list[str]]:
        """Return the present keys, sorted. Costs a read of all of the run's shared state."""
        call = self.begin("keys")
        recorded = yield from self.ask(call, self._list)
        present: list[str] = recorded
        return present

    def _read(self, call: Call) -> Flow[Any]:
        """Read a key and record the result."""
        stream = self._stream(call.arguments["key"])
        return (yield from self._recorded(call, functools.partial(self._entry, call, stream)))

    def _list(self, call: Call) -> Flow[Any]:
        run = self.engine.stream.run
        return (yield from self._recorded(call, functools.partial(self._names, run)))

    def _names(self, run: str) -> Flow[Any]:
        states_by_key: dict[str, BoardState] = yield Io(
            functools.partial(self.engine.boards.states.boards, run)
        )
        permit = self.engine.settings.permit
        labels = {
            key: states_by_key[key].label
            for key in sorted(states_by_key)
            if permit.ask(reads(key)).allowed
        }
        return (yield from cleared_of(self.engine, labels))

    def nothing(self, call: Call) -> Flow[Any]:
        """Record an operation that has no outcome of its own."""
        return (yield from self._recorded(call, _none))

    def _entry(self, call: Call, stream: KeyStream) -> Flow[Any]:
        state = yield Io(functools.partial(self.engine.boards.state, stream))
        now = 0
        if state.expires is not None:
            now = yield from self._log_time(call)
            state = yield Io(functools.partial(self.engine.boards.state, stream))
        yield from demand_cleared(self.engine, call, state.label, f"key {stream.key!r:.200}")
        return entry_record(state, now)

    # ------------------------------------------------------------ writes

    def put(
        self,
        key: str,
        value: Any,
        expected: int | str | None,
        labels: Mapping[str, str],
        ttl: float | None,
        resolve: Resolve | None,
    ) -> Flow[int]:
        """Put a value; return the key's new version."""
        settled = check_resolve(resolve)
        label_texts = check_labels(key, labels)
        call = self.begin("put", key_name(key), value, expected, label_texts, ttl, settled)
        plain = yield from self.content(call, CONTENT[call.spec.name])
        blobs, command = self.put_event(plain, self.expected(key, expected))
        recorded = yield from self.write(call, [KeyWrite(key, command)], blobs, resolve)
        version: int = recorded["version"]
        return version

    def put_event(
        self, plain: Mapping[str, Any], expected: int | None
    ) -> tuple[list[bytes], ValuePut]:
        """Return a put as an event, and its blobs. Raises BadValue."""
        blobs, raw = _packed(plain["value"], plain["key"])
        labels, ttl = plain["labels"], plain["ttl"]
        if any(type(text) is not str for text in labels.values()):
            raise BadValue(f"labels of key {plain['key']!r}", f"{labels!r:.80}", "give texts")
        if ttl is not None and (type(ttl) not in (int, float) or not math.isfinite(ttl)):
            raise BadValue(f"ttl_s of key {plain['key']!r}", f"{ttl!r:.80}", "give seconds")
        command = ValuePut(
            value=raw,
            role=self.engine.stream.role,
            expected=expected,
            labels=labels,
            ttl_ms=None if ttl is None else round(ttl * 1_000),
        )
        return blobs, command

    def change(self, name: str, key: str, *arguments: Any) -> Flow[Any]:
        """Append, add, include, discard or merge; return the key's new content if short: a
        counter's or merged value, a list's length, a set's size.
        """
        call = self.begin(name, key_name(key), *arguments)
        plain = yield from self.content(call, CONTENT[call.spec.name])
        blobs, command = self.change_event(name, plain)
        recorded = yield from self.write(call, [KeyWrite(key, command)], blobs)
        return recorded.get("value", recorded.get("count"))

    def change_event(self, name: str, plain: Mapping[str, Any]) -> tuple[list[bytes], BoardEvent]:
        """Return a write that expects no version as an event, and its blobs. Raises BadValue."""
        role, key = self.engine.stream.role, plain["key"]
        if name == "add":
            if type(plain["amount"]) is not int:
                fact = f"add({plain['amount']!r:.40})"
                raise BadValue(f"key {key!r}", fact, "add whole numbers below 2**53")
            return [], AmountAdded(amount=plain["amount"], role=role)
        if name == "merge":
            raw = values.dump(plain["value"])
            if len(bytes(raw)) > payloads.INLINE_BYTES_MAX:
                raise payloads.too_large(f"the value merged into key {key!r}", len(bytes(raw)))
            return [], ValueMerged(merge=plain["merge"], value=raw, role=role)
        blobs, item = _packed(plain["item"], key)
        match name:
            case "append":
                return blobs, ItemAppended(item=item, role=role)
            case "include":
                return blobs, ItemIncluded(item=_hashable(item, key), role=role)
            case _:
                return blobs, ItemDiscarded(item=item, role=role)

    def remove(self, key: str, expected: int | str | None) -> Flow[bool]:
        """Remove a key; return whether it was present."""
        call = self.begin("remove", key_name(key), expected)
        command = KeyRemoved(role=self.engine.stream.role, expected=self.expected(key, expected))
        recorded = yield from self.write(call, [KeyWrite(key, command)], [])
        return bool(recorded["changed"])

    def expected(self, key: str, expected: int | str | None) -> int | None:
        """Return the version that a write expects; None for any. Raises BadValue."""
        if expected is None:
            return self._seen.get(key, 0)
        if expected == Expected.ANY:
            return None
        if type(expected) is not int or expected < 0:
            remedy = f"give a version, 0 for absent, or {Expected.ANY.value!r} for any"
            fact = "a text" if isinstance(expected, str) else f"{expected!r:.80}"
            raise BadValue(f"expected of key {key!r}", fact, remedy)
        return expected

    def write(
        self,
        call: Call,
        key_writes: Sequence[KeyWrite],
        blobs: list[bytes],
        resolve: Resolve | None = None,
    ) -> Flow[dict[str, Any]]:
        """Make a write, or return its recorded result."""
        changes = dict.fromkeys(
            write.key for write in key_writes if not isinstance(write.event, KeyChecked)
        )
        call.needs = tuple(map(writes, changes))
        run = functools.partial(self._write, key_writes=key_writes, blobs=blobs, resolve=resolve)
        recorded = yield from self.ask(call, run)
        for of_key in recorded.get("keys", [recorded]):
            self._seen[of_key["key"]] = of_key["version"]
        result: dict[str, Any] = recorded
        return result

    def _write(
        self,
        call: Call,
        key_writes: Sequence[KeyWrite],
        blobs: list[bytes],
        resolve: Resolve | None,
    ) -> Flow[Any]:
        engine = self.engine
        streams = [self._stream(write.key) for write in key_writes]

        write = BoardWrite(engine, key_writes, call, resolve)
        expires = functools.partial(engine.boards.expires, streams)
        return (yield from self._jointly(call, blobs, write, timed=expires))

    def _ended(self, step: Step) -> Flow[Step]:
        """Return a step with the outcome given by its key's own commit, and record it unless the
        session only reads. No other writer is possible, since this session has the epoch.
        """
        engine = self.engine
        intent_write: IntentWrite | None = yield Io(
            functools.partial(find_write, engine.boards.states, engine.stream, step)
        )
        if intent_write is None:
            return step
        text: Plain = write_record(intent_write.key, intent_write.changed, intent_write.state)
        packed = payloads.pack(text, "result")
        event = StepCompleted(step=step.number, result=packed.raw, digest=digest(canonical(text)))
        engine.ledger.shown(record_label(intent_write.state))
        if engine.settings.mode.reads_only:
            return engine.ledger.derive(event)
        yield from engine.outcomes.put(packed.blobs)
        yield from engine.outcomes.record(Tell(event))
        return engine.ledger.state.steps[step.number]

    def _stream(self, key: str) -> KeyStream:
        return KeyStream(self.engine.stream.run, key)


def _none() -> Flow[None]:
    return None
    yield  # a flow that does nothing


def entry_record(state: BoardState, now: int) -> dict[str, Any] | None:
    """Return a key as in a read's outcome, its value as recorded; None if it is absent."""
    if state.absent(now) or state.kind is None:
        return None
    expires = state.expiry
    return {
        "kind": state.kind.value,
        "value": state.plain,
        "version": state.changed,
        "author": state.author,
        "role": state.role,
        "labels": state.labels,
        "expires": expires.isoformat() if expires is not None else None,
    }


def _packed(plain: Any, key: str) -> tuple[list[bytes], msgspec.Raw]:
    packed = payloads.pack(plain, f"key {key!r}")
    return packed.blobs, packed.raw


def _hashable(item: msgspec.Raw, key: str) -> msgspec.Raw:
    """Return an item as a member of a set."""
    plain = msgspec.json.decode(item)
    if type(plain) is dict and "$blob" in plain:
        raise BadValue(f"set {key!r}", "an item over 64 KiB", "include a reference to it instead")
    try:
        hash(values.revive(plain))
    except TypeError as error:
        raise BadValue(
            f"set {key!r}", f"{plain!r:.80} ({error})", "give a hashable value"
        ) from error
    return item


# ---------------------------------------------------------------- transactions
#
# The writes of a transaction wait until its end. Then every key that it read must still be at the
# version it was read at, and every write is decided again; otherwise it raises BoardConflict and
# writes nothing. Its begin, reads, and commit or rollback are steps of the agent.

KEYS_MAX = 500
"""Most keys that one transaction may use: the log takes a thousand commits at once."""


class TransactionFlows:
    """Flows of one transaction."""

    def __init__(self, board: BoardFlows) -> None:
        self._board = board
        self._engine = board.engine
        self._reads: dict[str, int] = {}
        self._states: dict[str, BoardState] = {}
        self._writes: list[KeyWrite] = []
        self._keys: set[str] = set()
        self._operations: list[dict[str, Any]] = []
        self._blobs: list[bytes] = []
        self.over = False

    def begin(self) -> Flow[None]:
        """Record that the transaction was opened."""
        yield from self._noted("begin")

    def get(self, key: str, default: Any) -> Flow[Any]:
        """Return a key as this transaction sees it: as first read, with its own writes."""
        self._open()
        if key_name(key) not in self._states:
            self._bound(key)
            entry = yield from self._board.entry(key)
            state = BoardState()
            if entry is not None:
                plain = values.plain(entry.value, f"key {key!r}")
                state = restored(entry.kind, plain, entry.version)
            self._reads[key] = state.changed
            for write in self._writes:
                if write.key == key:
                    state = fold(state, decide(key, state, _unbound(write.event), 0))
            self._states[key] = state
        state = self._states[key]
        if state.kind is None:
            return default
        return values.revive((yield from self._whole(state.plain)))

    def _whole(self, plain: values.Plain) -> Flow[values.Plain]:
        """Return a value with its blobs; this transaction's own blobs are stored only at its
        end.
        """
        own = {hashlib.sha256(blob).hexdigest(): blob for blob in self._blobs}
        fetch = payload.resolve(plain)
        try:
            reference = next(fetch)
            while True:
                data = own.get(reference[0])
                if data is None:
                    data = yield Io(functools.partial(self._engine.outcomes.blobs.get, *reference))
                reference = fetch.send(data)
        except StopIteration as stop:
            return stop.value

    def put(
        self,
        key: str,
        value: Any,
        expected: int | str | None,
        labels: Mapping[str, str],
        ttl: float | None,
    ) -> None:
        """Put a value at the end of the transaction. Raises BadValue, Refused."""
        own_labels = check_labels(key, labels)
        fields = {"value": value, "expected": expected, "labels": own_labels, "ttl": ttl}
        plain = self._plain(key, fields)
        blobs, command = self._board.put_event(plain, self._expected(key, expected))
        self._add_write("put", key, fields, command, blobs)

    def change(self, name: str, key: str, **fields: Any) -> None:
        """Append, add, include, discard or merge at the end of the transaction. Raises BadValue,
        Refused.
        """
        blobs, command = self._board.change_event(name, self._plain(key, fields))
        self._add_write(name, key, fields, command, blobs)

    def remove(self, key: str, expected: int | str | None) -> None:
        """Remove a key at the end of the transaction. Raises BadValue, Refused."""
        self._plain(key, {})
        command = KeyRemoved(role=self._engine.stream.role, expected=self._expected(key, expected))
        self._add_write("remove", key, {"expected": expected}, command, [])

    def commit(self) -> Flow[None]:
        """Write all keys, or raise BoardConflict."""
        self._open()
        self.over = True
        reads = [[key, version] for key, version in self._reads.items()]
        call = self._board.begin("commit", reads, self._operations)
        yield from self._board.write(call, self._checked(), self._blobs)

    def _checked(self) -> list[KeyWrite]:
        """Return the writes and the checks of all reads: the first write to a key checks its
        version if it is a put; every other key gets a separate check event.
        """
        unchecked = dict(self._reads)
        writes: list[KeyWrite] = []
        for write in self._writes:
            first = all(write.key != other.key for other in writes)
            if first and write.key in unchecked and isinstance(write.event, ValuePut):
                version = unchecked.pop(write.key)
                put = msgspec.structs.replace(write.event, expected=version)
                writes.append(KeyWrite(write.key, put))
            else:
                writes.append(write)
        role = self._engine.stream.role
        checks = [
            KeyWrite(key, KeyChecked(role=role, expected=unchecked[key])) for key in unchecked
        ]
        return [*checks, *writes]

    def roll_back(self, reason: str = "") -> Flow[None]:
        """Discard the writes, and record them with the reason."""
        if not self.over:
            self.over = True
            reason = recordable(reason, self._engine.settings.scrub)
            yield from self._noted("roll_back", self._operations, reason)

    def end(self, error: BaseException | None) -> Flow[None]:
        """End the block. An error that stops the run until a person acts leaves the transaction
        open: the resumed run repeats it.
        """
        if error is None:
            if not self.over:
                yield from self.commit()
        elif isinstance(error, Exception) and not isinstance(error, UNTOUCHED):
            yield from self.roll_back(f"{type(error).__name__}: {error}")

    def _noted(self, name: str, *arguments: Any) -> Flow[None]:
        call = self._board.begin(name, *arguments)
        answered, _ = self._engine.answer(call)
        if not answered:
            yield from self._engine.execute(call, self._board.plan, self._board.nothing)

    def _open(self) -> None:
        self._engine.ledger.demand_open()
        if self.over:
            message = "the transaction is over: begin another one"
            raise Refused(message)

    def _bound(self, key: str) -> None:
        """Count a key of the transaction. Raises BadValue."""
        if key not in self._keys and len(self._keys) >= KEYS_MAX:
            fact = f"key {key!r} is one more than {KEYS_MAX} in one transaction"
            raise BadValue("transaction", fact, "use several transactions")
        self._keys.add(key)

    def _plain(self, key: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        self._open()
        scrub = self._engine.settings.scrub
        check_names("transaction", {"key": key}, scrub)
        where = f"key {key_name(key)!r}"
        self._bound(key)
        plain: dict[str, Any] = values.plain({"key": key, **fields}, where, scrub)
        return plain

    def _expected(self, key: str, expected: int | str | None) -> int | None:
        """Return the version that a write expects; None for a key that was read or written here,
        which is checked at the end.
        """
        if expected is None and (
            key in self._reads or any(write.key == key for write in self._writes)
        ):
            return None
        return self._board.expected(key, expected)

    def _add_write(
        self, name: str, key: str, fields: dict[str, Any], command: BoardEvent, blobs: list[bytes]
    ) -> None:
        state = self._states.get(key)
        if state is not None:
            self._states[key] = fold(state, decide(key, state, _unbound(command), 0))
        self._writes.append(KeyWrite(key, command))
        self._operations.append({"operation": name, "key": key, **fields})
        self._blobs += blobs


class TransactedFlows(BoardFlows):
    """A session's board and its transactions."""

    def transaction(self) -> TransactionFlows:
        """Return a new transaction, not begun yet."""
        return TransactionFlows(self)


def _unbound(command: BoardEvent) -> BoardEvent:
    """Return a write without its expected version, which is checked only at the end."""
    match command:
        case ValuePut():
            return ValuePut(value=command.value, role=command.role, labels=command.labels)
        case KeyRemoved():
            return KeyRemoved(role=command.role)
        case _:
            return command


NO_LABELS: Mapping[str, str] = MappingProxyType({})

F = TypeVar("F")


def _word(choice: Any) -> Any:
    """Return a choice as it is recorded."""
    return choice.value if isinstance(choice, Enum) else choice


class OfAgent(Brief, Generic[F]):
    """Base of the objects on a session: their flows, and what runs these, which the sync client's
    drive does in place. Shows the session's agent.
    """

    def __init__(self, flows: F, drive: AsyncDrive) -> None:
        self._flows = flows
        self._drive = drive

    def _brief(self) -> dict[str, Any]:
        flows: Any = self._flows
        stream = flows.engine.stream
        return {"run": stream.run, "agent": stream.agent, "role": stream.role}


class _Writes:
    """Writes of a transaction: made at its end, so they are plain calls in both clients."""

    def __init__(self, flows: TransactionFlows, drive: AsyncDrive) -> None:
        self._flows = flows
        self._drive = drive

    def put(
        self,
        key: str,
        value: Any,
        *,
        expected: int | Expected | str | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        ttl_s: float | None = None,
    ) -> None:
        """Put a value. Expects the version that the transaction read, if it read the key."""
        self._flows.put(key, value, _word(expected), labels, ttl_s)

    def append(self, key: str, item: Any) -> None:
        """Append an item to a list."""
        self._flows.change("append", key, item=item)

    def add(self, key: str, amount: int = 1) -> None:
        """Add a whole number to a counter."""
        self._flows.change("add", key, amount=amount)

    def include(self, key: str, item: Any) -> None:
        """Add an item to a set."""
        self._flows.change("include", key, item=item)

    def discard(self, key: str, item: Any) -> None:
        """Remove an item from a set."""
        self._flows.change("discard", key, item=item)

    def merge(self, key: str, merge: Merge | str, value: Any) -> None:
        """Merge a value into the current one."""
        self._flows.change("merge", key, merge=_word(merge), value=value)

    def remove(self, key: str, *, expected: int | Expected | str | None = None) -> None:
        """Remove a key."""
        self._flows.remove(key, _word(expected))


class AsyncTransaction(_Writes):
    """A transaction of the async client."""

    async def get(self, key: str, default: Any = None) -> Any:
        """Return a key's content, including this transaction's own writes."""
        return await self._drive(self._flows.get(key, default))

    async def roll_back(self, reason: str = "") -> None:
        """End the transaction without writing."""
        await self._drive(self._flows.roll_back(reason))


class AsyncBoard(OfAgent[TransactedFlows]):
    """Shared state of the run, for the async client."""

    async def get(self, key: str, default: Any = None) -> Any:
        """Return a key's content; `default` if it is absent."""
        entry = await self._drive(self._flows.entry(key))
        return default if entry is None else entry.value

    async def entry(self, key: str) -> BoardEntry | None:
        """Return a key with its version, author, role, labels and expiry; None if it is absent."""
        return await self._drive(self._flows.entry(key))

    async def keys(self) -> list[str]:
        """Return the present keys, sorted. Reads all of the run's shared state."""
        return await self._drive(self._flows.keys())

    async def put(
        self,
        key: str,
        value: Any,
        *,
        expected: int | Expected | str | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        ttl_s: float | None = None,
        resolve: Resolve | None = None,
    ) -> int:
        """Put a value; return the key's new version.

        Args:
            key: The key.
            value: New content.
            expected: Version that the key must have. Default: the one that this session saw last, 0
                if it never saw the key; `Expected.ANY` skips the check.
            labels: Texts by name.
            ttl_s: Seconds of the log's time after which the key is absent; None for no limit. 0 is
                refused.
            resolve: How to settle a lost race: a `Resolution`, or a plain function of (mine,
                theirs).

        Raises:
            BoardConflict: The key is at another version, and nothing resolves it.
            Refused: The key holds another kind of content.
            BadName, BadValue: The key is no valid name, or the value cannot be recorded.
        """
        return await self._drive(
            self._flows.put(key, value, _word(expected), labels, ttl_s, _word(resolve))
        )

    async def append(self, key: str, item: Any) -> int:
        """Append an item to a list; return its new length."""
        length: int = await self._drive(self._flows.change("append", key, item))
        return length

    async def add(self, key: str, amount: int = 1) -> int:
        """Add a whole number to a counter; return the sum."""
        total: int = await self._drive(self._flows.change("add", key, amount))
        return total

    async def include(self, key: str, item: Any) -> int:
        """Add an item to a set; return its size."""
        size: int = await self._drive(self._flows.change("include", key, item))
        return size

    async def discard(self, key: str, item: Any) -> int:
        """Remove an item from a set; return its size, 0 if there is no set."""
        return await self._drive(self._flows.change("discard", key, item)) or 0

    async def merge(self, key: str, merge: Merge | str, value: Any) -> Any:
        """Merge a value into the current one: `MAX`, `MIN` (numbers or texts; returns the result),
        or `UNION` (of dicts; returns None: read it).
        """
        return await self._drive(self._flows.change("merge", key, _word(merge), value))

    async def remove(self, key: str, *, expected: int | Expected | str | None = None) -> bool:
        """Remove a key; return whether it was present. `expected` as for `put`."""
        return await self._drive(self._flows.remove(key, _word(expected)))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTransaction, None]:
        """Write several keys in one commit, made when the block ends; an error rolls it back.

        Raises BoardConflict at the end if a key that was read has changed.
        """
        flows = self._flows.transaction()
        await self._drive(flows.begin())
        try:
            yield AsyncTransaction(flows, self._drive)
        except BaseException as error:
            await self._drive(flows.end(error))
            raise
        else:
            await self._drive(flows.end(None))


class Transaction(_Writes):
    """A transaction of the sync client."""

    get = sync(AsyncTransaction.get)
    roll_back = sync(AsyncTransaction.roll_back)


class Board(OfAgent[TransactedFlows]):
    """Shared state of the run, for the sync client: the methods of `AsyncBoard`."""

    get = sync(AsyncBoard.get)
    entry = sync(AsyncBoard.entry)
    keys = sync(AsyncBoard.keys)
    put = sync(AsyncBoard.put)
    append = sync(AsyncBoard.append)
    add = sync(AsyncBoard.add)
    include = sync(AsyncBoard.include)
    discard = sync(AsyncBoard.discard)
    merge = sync(AsyncBoard.merge)
    remove = sync(AsyncBoard.remove)

    _transaction = sync_block(AsyncBoard.transaction)

    @contextlib.contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Write several keys in one commit, as `AsyncBoard.transaction`."""
        with self._transaction() as transaction:
            yield Transaction(transaction._flows, self._drive)  # noqa: SLF001 -- its own twin
