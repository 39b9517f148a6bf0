"""Several keys in one commit: optimistic, all or none, on record from its beginning to its end.

A transaction's writes wait until its end. Then every key it has read must still be at the version
it was read at, and every write is decided again; what stands in the way is a BoardConflict, and
nothing is written. Its begin, its reads, and its commit (with what was to be written) or rollback
are steps of the agent.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from hansard.agents.board.operations import BoardFlows
from hansard.agents.board.write import Ask, labels_given
from hansard.agents.flow import Flow, Io
from hansard.agents.steps.recorder import UNTOUCHED
from hansard.domain import values
from hansard.domain.board import (
    BoardEvent,
    BoardState,
    KeyChecked,
    KeyRemoved,
    ValuePut,
    decide,
    fold,
    initial,
    key_name,
    restored,
)
from hansard.domain.errors import BadValue, Refused
from hansard.domain.payload import references
from hansard.domain.redaction import check_names
from hansard.domain.values import recordable

KEYS_MAX = 500
"""Most keys that one transaction reads and writes: the log takes a thousand commits at once."""


class TransactionFlows:
    """The flows of one transaction."""

    def __init__(self, board: BoardFlows) -> None:
        self._board = board
        self._engine = board.engine
        self._reads: dict[str, int] = {}
        self._states: dict[str, BoardState] = {}
        self._asks: list[Ask] = []
        self._keys: set[str] = set()
        self._operations: list[dict[str, Any]] = []
        self._blobs: list[bytes] = []
        self.over = False

    def begin(self) -> Flow[None]:
        """Put on record that it was opened."""
        yield from self._noted("begin")

    def get(self, key: str, default: Any) -> Flow[Any]:
        """A key as this transaction sees it: as it was when first read, with its own writes."""
        self._open()
        if key_name(key) not in self._states:
            self._bound(key)
            entry = yield from self._board.entry(key)
            state = initial()
            if entry is not None:
                plain = values.plain(entry.value, f"key {key!r}")
                state = restored(entry.kind, plain, entry.version)
            self._reads[key] = state.changed
            for ask in self._asks:
                if ask.key == key:
                    state = fold(state, decide(key, state, _unbound(ask.wanted), 0))
            self._states[key] = state
        state = self._states[key]
        if state.kind is None:
            return default
        return values.revive((yield from self._whole(state.plain)))

    def _whole(self, plain: values.Plain) -> Flow[values.Plain]:
        """A value with its blobs; this transaction's own are stored at its end only."""
        own = {hashlib.sha256(blob).hexdigest(): blob for blob in self._blobs}
        fetch = references.resolve(plain)
        try:
            wanted = next(fetch)
            while True:
                data = own.get(wanted[0])
                if data is None:
                    data = yield Io(functools.partial(self._engine.outcomes.blobs.get, *wanted))
                wanted = fetch.send(data)
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
        """Put a value at the end. Raises BadValue, Refused."""
        told = labels_given(key, labels)
        given = {"value": value, "expected": expected, "labels": told, "ttl": ttl}
        plain = self._plain(key, given)
        blobs, wanted = self._board.put_event(plain, self._expected(key, expected))
        self._ask("put", key, given, wanted, blobs)

    def change(self, name: str, key: str, **given: Any) -> None:
        """Append, add, include, discard or merge at the end. Raises BadValue, Refused."""
        blobs, wanted = self._board.change_event(name, self._plain(key, given))
        self._ask(name, key, given, wanted, blobs)

    def remove(self, key: str, expected: int | str | None) -> None:
        """Remove a key at the end. Raises BadValue, Refused."""
        self._plain(key, {})
        wanted = KeyRemoved(role=self._engine.stream.role, expected=self._expected(key, expected))
        self._ask("remove", key, {"expected": expected}, wanted, [])

    def commit(self) -> Flow[None]:
        """Write it all, or raise BoardConflict."""
        self._open()
        self.over = True
        reads = [[key, version] for key, version in self._reads.items()]
        call = self._board.begin("commit", reads, self._operations)
        yield from self._board.write(call, self._checked(), self._blobs)

    def _checked(self) -> list[Ask]:
        """The writes, and that what was read still stands: a put that is the first write to its
        key says so itself, every other key gets an event that does.
        """
        unchecked = dict(self._reads)
        asks: list[Ask] = []
        for ask in self._asks:
            first = all(ask.key != other.key for other in asks)
            if first and ask.key in unchecked and isinstance(ask.wanted, ValuePut):
                version = unchecked.pop(ask.key)
                put = msgspec.structs.replace(ask.wanted, expected=version)
                asks.append(Ask(ask.key, put))
            else:
                asks.append(ask)
        role = self._engine.stream.role
        checks = [Ask(key, KeyChecked(role=role, expected=unchecked[key])) for key in unchecked]
        return [*checks, *asks]

    def roll_back(self, because: str = "") -> Flow[None]:
        """Write nothing, and put on record what was to be written and why it was not."""
        if not self.over:
            self.over = True
            because = recordable(because, self._engine.settings.scrub)
            yield from self._noted("roll_back", self._operations, because)

    def end(self, error: BaseException | None) -> Flow[None]:
        """The block is left. Whatever stops the run for somebody to act leaves it open: it will be
        gone through again.
        """
        if error is None:
            if not self.over:
                yield from self.commit()
        elif isinstance(error, Exception) and not isinstance(error, UNTOUCHED):
            yield from self.roll_back(f"{type(error).__name__}: {error}")

    def _noted(self, name: str, *given: Any) -> Flow[None]:
        call = self._board.begin(name, *given)
        answered, _ = self._engine.answer(call)
        if not answered:
            yield from self._engine.execute(call, self._board.plan, self._board.nothing)

    def _open(self) -> None:
        self._engine.ledger.demand_open()
        if self.over:
            message = "the transaction is over: begin another one"
            raise Refused(message)

    def _bound(self, key: str) -> None:
        """Take note of a key. Raises BadValue."""
        if key not in self._keys and len(self._keys) >= KEYS_MAX:
            fact = f"key {key!r} is one more than {KEYS_MAX} in one transaction"
            raise BadValue("transaction", fact, "use several transactions")
        self._keys.add(key)

    def _plain(self, key: str, given: Mapping[str, Any]) -> dict[str, Any]:
        self._open()
        scrub = self._engine.settings.scrub
        check_names("transaction", {"key": key}, scrub)
        where = f"key {key_name(key)!r}"
        self._bound(key)
        plain: dict[str, Any] = values.plain({"key": key, **given}, where, scrub)
        return plain

    def _expected(self, key: str, expected: int | str | None) -> int | None:
        """What was read here is checked at the end anyway, and an own write stands before it."""
        if expected is None and (key in self._reads or any(ask.key == key for ask in self._asks)):
            return None
        return self._board.expected(key, expected)

    def _ask(
        self, name: str, key: str, given: dict[str, Any], wanted: BoardEvent, blobs: list[bytes]
    ) -> None:
        state = self._states.get(key)
        if state is not None:
            self._states[key] = fold(state, decide(key, state, _unbound(wanted), 0))
        self._asks.append(Ask(key, wanted))
        self._operations.append({"operation": name, "key": key, **given})
        self._blobs += blobs


class TransactedFlows(BoardFlows):
    """A session's board, and the transactions of it."""

    def transaction(self) -> TransactionFlows:
        """A transaction that is to begin."""
        return TransactionFlows(self)


def _unbound(wanted: BoardEvent) -> BoardEvent:
    """A write for this transaction's own sight: versions are compared at its end."""
    match wanted:
        case ValuePut():
            return ValuePut(value=wanted.value, role=wanted.role, labels=wanted.labels)
        case KeyRemoved():
            return KeyRemoved(role=wanted.role)
        case _:
            return wanted
