"""`session.board` of both clients.

A key holds one kind of content until it is removed: a value (`put`), a list (`append`), a counter
(`add`), a set (`include`, `discard`), or a merged value (`merge`: max, min, union).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import AsyncGenerator, Generator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

import msgspec

from hansard.agents.board.operations import (
    BoardEntry,
    BoardFlows,
    Expected,
    KeyWrite,
    Resolve,
    check_labels,
)
from hansard.agents.flow import AsyncDrive, Drive, Flow, Io, done, in_place, sync
from hansard.agents.steps.recorder import UNTOUCHED
from hansard.domain import payload, values
from hansard.domain.board import (
    BoardEvent,
    BoardState,
    KeyChecked,
    KeyRemoved,
    Merge,
    ValuePut,
    decide,
    fold,
    initial,
    key_name,
    restored,
)
from hansard.domain.choices import Brief
from hansard.domain.errors import BadValue, Refused
from hansard.domain.redaction import check_names
from hansard.domain.values import recordable

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
            state = initial()
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


def _word(choice: Any) -> Any:
    """Return a choice as it is recorded."""
    return choice.value if isinstance(choice, Enum) else choice


class OfAgent(Brief):
    """Base of the objects on a session; shows the session's agent."""

    def _brief(self) -> dict[str, Any]:
        flows: Any = vars(self)["_flows"]
        stream = flows.engine.stream
        return {"run": stream.run, "agent": stream.agent, "role": stream.role}


class _Writes:
    """Writes of a transaction: made at its end, so they are plain calls in both clients."""

    def __init__(self, flows: TransactionFlows) -> None:
        self._flows = flows

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

    def __init__(self, flows: TransactionFlows, drive: AsyncDrive) -> None:
        super().__init__(flows)
        self._drive = drive

    async def get(self, key: str, default: Any = None) -> Any:
        """Return a key's content, including this transaction's own writes."""
        return await self._drive(self._flows.get(key, default))

    async def roll_back(self, reason: str = "") -> None:
        """End the transaction without writing."""
        await self._drive(self._flows.roll_back(reason))


class AsyncBoard(OfAgent):
    """Shared state of the run, for the async client."""

    def __init__(self, flows: TransactedFlows, drive: AsyncDrive) -> None:
        self._flows = flows
        self._drive = drive

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

    def __init__(self, flows: TransactionFlows, drive: AsyncDrive) -> None:
        super().__init__(flows)
        self._drive = drive

    get = sync(AsyncTransaction.get)
    roll_back = sync(AsyncTransaction.roll_back)


class Board(OfAgent):
    """Shared state of the run, for the sync client: the methods of `AsyncBoard`."""

    def __init__(self, flows: TransactedFlows, drive: Drive) -> None:
        self._flows = flows
        self._drive = in_place(drive)

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

    @contextlib.contextmanager
    def transaction(self) -> Generator[Transaction]:
        """Write several keys in one commit, as `AsyncBoard.transaction`."""
        flows = self._flows.transaction()
        done(self._drive(flows.begin()))
        try:
            yield Transaction(flows, self._drive)
        except BaseException as error:
            done(self._drive(flows.end(error)))
            raise
        else:
            done(self._drive(flows.end(None)))
