"""`session.board`: state that all agents of a run share, by key.

Each operation is a step of the agent, of kind `board`: what a read was told is on record, so that a
resumed session is told the same; a write is made once, whoever is killed. A read costs a commit in
the agent's stream. A write to one key costs three commits, one after the other: the intent, the
key's, which is the outcome, and the outcome's event; one of several keys, or beside others of the
same process, a commit over several streams (some 4 ms on a local disk).

Written once for both clients as flows (see `hansard.agents.flow`); `twins` drives them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.board.write import (
    Ask,
    BoardWrite,
    Resolve,
    Written,
    check_resolve,
    labels_given,
    told_label,
    told_write,
    written,
)
from hansard.agents.flow import Flow, Io
from hansard.agents.policy.permits import reads, writes
from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import JointSteps
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import cleared_of, demand_cleared
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import operation
from hansard.domain import values
from hansard.domain.agent import Tell
from hansard.domain.board import (
    AmountAdded,
    BoardEvent,
    BoardState,
    ItemAppended,
    ItemDiscarded,
    ItemIncluded,
    KeyChecked,
    KeyKind,
    KeyRemoved,
    ValueMerged,
    ValuePut,
    key_name,
)
from hansard.domain.choices import Brief
from hansard.domain.errors import BadValue
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import KeyStream
from hansard.domain.steps import Step, StepCompleted
from hansard.domain.values import Plain


class Expected(StrEnum):
    """What a write expects of a key, in place of a version."""

    ANY = "any"
    """Whatever stands."""


class BoardEntry(Brief, msgspec.Struct, frozen=True):
    """A key as it was read. `version` is what a put expects; `author` changed it last, `role` is
    its role. `expires` is a time of the log's, in UTC.

    Attributes:
        key: The key.
        kind: What it holds: a value, a list, a counter, a set or what is merged.
        value: What it holds.
        version: What a put expects.
        author: The agent that changed it last.
        role: That agent's role.
        labels: Texts by name.
        expires: When it will be absent, by the log's time in UTC; None for never.
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

# What an operation is given, as it is recorded.
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


class BoardFlows(JointSteps):
    """A session's operations on its run's board."""

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self._seen: dict[str, int] = {}

    def begin(self, name: str, *given: Any) -> Call:
        """An operation with its place in the record. Raises BadValue, NoScope, ToolError."""
        call = self.engine.begin(SPECS[name], given, {})
        if call.plain.get("key") != call.arguments.get("key"):
            raise BadValue("key", "it holds a secret", "leave the secret out of it")
        call.needs = ()
        return call

    # ------------------------------------------------------------ reads

    def entry(self, key: str) -> Flow[BoardEntry | None]:
        """A key with all that is known of it; None where it is absent."""
        call = self.begin("get", key_name(key))
        call.needs = (reads(key),)
        answered, told = self.engine.answer(call)
        if not answered:
            told = yield from self.engine.execute(call, self.plan, self._read)
        self._seen[key] = told["version"] if told else 0
        if told is None:
            return None
        return BoardEntry(
            key=key,
            kind=KeyKind(told["kind"]),
            value=told["value"],
            version=told["version"],
            author=told["author"],
            role=told["role"],
            labels=told["labels"],
            expires=datetime.fromisoformat(told["expires"]) if told["expires"] else None,
        )

    def keys(self) -> Flow[list[str]]:
        """The keys that are there, sorted. Costs a read of all of the run's shared state."""
        call = self.begin("keys")
        answered, told = self.engine.answer(call)
        if not answered:
            told = yield from self.engine.execute(call, self.plan, self._list)
        found: list[str] = told
        return found

    def _read(self, call: Call) -> Flow[Any]:
        """Read a key and put what it said on record."""
        stream = self._stream(call.arguments["key"])
        return (yield from self._recorded(call, functools.partial(self._entry, call, stream)))

    def _list(self, call: Call) -> Flow[Any]:
        run = self.engine.stream.run
        return (yield from self._recorded(call, functools.partial(self._names, run)))

    def _names(self, run: str) -> Flow[Any]:
        found: dict[str, BoardState] = yield Io(
            functools.partial(self.engine.boards.states.boards, run)
        )
        permit = self.engine.settings.permit
        labels = {key: found[key].label for key in sorted(found) if permit.ask(reads(key)).allowed}
        return (yield from cleared_of(self.engine, labels))

    def nothing(self, call: Call) -> Flow[Any]:
        """Put on record that something happened that has no outcome of its own."""
        return (yield from self._recorded(call, _none))

    def _entry(self, call: Call, stream: KeyStream) -> Flow[Any]:
        state = yield Io(functools.partial(self.engine.boards.state, stream))
        now = 0
        if state.expires is not None:
            now = yield from self._log_time(call)
            state = yield Io(functools.partial(self.engine.boards.state, stream))
        yield from demand_cleared(self.engine, call, state.label, f"key {stream.key!r:.200}")
        return told_entry(state, now)

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
        """Put a value; the key's new version."""
        settled = check_resolve(resolve)
        given = labels_given(key, labels)
        call = self.begin("put", key_name(key), value, expected, given, ttl, settled)
        blobs, wanted = self.put_event(call.plain, self.expected(key, expected))
        told = yield from self.write(call, [Ask(key, wanted)], blobs, resolve)
        version: int = told["version"]
        return version

    def put_event(
        self, plain: Mapping[str, Any], expected: int | None
    ) -> tuple[list[bytes], ValuePut]:
        """A put as an event, and the blobs it names. Raises BadValue."""
        blobs, raw = _packed(plain["value"], plain["key"])
        labels, ttl = plain["labels"], plain["ttl"]
        if any(type(text) is not str for text in labels.values()):
            raise BadValue(f"labels of key {plain['key']!r}", f"{labels!r:.80}", "give texts")
        if ttl is not None and (type(ttl) not in (int, float) or not math.isfinite(ttl)):
            raise BadValue(f"ttl_s of key {plain['key']!r}", f"{ttl!r:.80}", "give seconds")
        wanted = ValuePut(
            value=raw,
            role=self.engine.stream.role,
            expected=expected,
            labels=labels,
            ttl_ms=None if ttl is None else round(ttl * 1_000),
        )
        return blobs, wanted

    def change(self, name: str, key: str, *given: Any) -> Flow[Any]:
        """Append, add, include, discard or merge; what the key then holds, as far as it is short:
        a counter's or merge's value, a list's length, a set's size.
        """
        call = self.begin(name, key_name(key), *given)
        blobs, wanted = self.change_event(name, call.plain)
        told = yield from self.write(call, [Ask(key, wanted)], blobs)
        return told.get("value", told.get("count"))

    def change_event(self, name: str, plain: Mapping[str, Any]) -> tuple[list[bytes], BoardEvent]:
        """A write that goes by no version as an event, and the blobs it names. Raises BadValue."""
        role, key = self.engine.stream.role, plain["key"]
        if name == "add":
            if type(plain["amount"]) is not int:
                fact = f"add({plain['amount']!r:.40})"
                raise BadValue(f"key {key!r}", fact, "add whole numbers below 2**53")
            return [], AmountAdded(amount=plain["amount"], role=role)
        if name == "merge":
            raw = values.dump(plain["value"])
            if len(bytes(raw)) > payloads.INLINE_BYTES_MAX:
                raise payloads.too_large(f"what is merged into key {key!r}", len(bytes(raw)))
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
        """Remove a key; whether it was there."""
        call = self.begin("remove", key_name(key), expected)
        wanted = KeyRemoved(role=self.engine.stream.role, expected=self.expected(key, expected))
        told = yield from self.write(call, [Ask(key, wanted)], [])
        return bool(told["changed"])

    def expected(self, key: str, expected: int | str | None) -> int | None:
        """What a write goes by: a version, or None for whatever stands. Raises BadValue."""
        if expected is None:
            return self._seen.get(key, 0)
        if expected == Expected.ANY:
            return None
        if type(expected) is not int or expected < 0:
            remedy = f"give a version, 0 for absent, or {Expected.ANY.value!r} for whatever stands"
            fact = "a text" if isinstance(expected, str) else f"{expected!r:.80}"
            raise BadValue(f"expected of key {key!r}", fact, remedy)
        return expected

    def write(
        self, call: Call, asks: Sequence[Ask], blobs: list[bytes], resolve: Resolve | None = None
    ) -> Flow[dict[str, Any]]:
        """Make a write, or give what is on record of it."""
        changes = dict.fromkeys(ask.key for ask in asks if not isinstance(ask.wanted, KeyChecked))
        call.needs = tuple(map(writes, changes))
        answered, told = self.engine.answer(call)
        if not answered:
            run = functools.partial(self._write, asks=asks, blobs=blobs, resolve=resolve)
            told = yield from self.engine.execute(call, self.plan, run)
        for of_key in told.get("keys", [told]):
            self._seen[of_key["key"]] = of_key["version"]
        found: dict[str, Any] = told
        return found

    def _write(
        self, call: Call, asks: Sequence[Ask], blobs: list[bytes], resolve: Resolve | None
    ) -> Flow[Any]:
        engine = self.engine
        streams = [self._stream(ask.key) for ask in asks]

        def make(scope: Scope) -> BoardWrite:
            return BoardWrite(engine, asks, call, scope, resolve)

        expires = functools.partial(engine.boards.expires, streams)
        return (yield from self._jointly(call, blobs, make, timed=expires))

    def _ended(self, step: Step) -> Flow[Step]:
        """A step with the outcome that its key's own commit is: on record from here on, but for a
        session that only reads. Nobody else can write it any more, since this one has the epoch.
        """
        engine = self.engine
        found: Written | None = yield Io(
            functools.partial(written, engine.boards.states, engine.stream, step)
        )
        if found is None:
            return step
        told: Plain = told_write(found.key, found.changed, found.state)
        packed = payloads.pack(told, "result")
        event = StepCompleted(step=step.number, result=packed.raw, digest=digest(canonical(told)))
        engine.ledger.shown(told_label(found.state))
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


def told_entry(state: BoardState, now: int) -> dict[str, Any] | None:
    """A key as a read's outcome has it, its value as it is recorded; None where it is absent."""
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
    """An item that a reader's set can hold."""
    plain = msgspec.json.decode(item)
    if type(plain) is dict and "$blob" in plain:
        raise BadValue(f"set {key!r}", "an item over 64 KiB", "include a reference to it instead")
    try:
        hash(values.revive(plain))
    except TypeError as error:
        raise BadValue(
            f"set {key!r}", f"{plain!r:.80} ({error})", "give what is hashable"
        ) from error
    return item
