"""`session.board` of both clients.

A key holds one kind of thing until it is removed: a value (`put`), a list (`append`), a counter
(`add`), a set (`include`, `discard`), or what is merged (`merge`: max, min, union).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any

from hansard.agents.board.operations import BoardEntry, Expected
from hansard.agents.board.transaction import TransactedFlows, TransactionFlows
from hansard.agents.board.write import Resolve
from hansard.agents.flow import AsyncDrive, Drive, done, in_place, sync
from hansard.domain.board import Merge
from hansard.domain.choices import Brief

NO_LABELS: Mapping[str, str] = MappingProxyType({})


def _word(given: Any) -> Any:
    """A choice as it is recorded."""
    return given.value if isinstance(given, Enum) else given


class OfAgent(Brief):
    """What hangs on a session, and shows whose it is."""

    def _brief(self) -> dict[str, Any]:
        flows: Any = vars(self)["_flows"]
        stream = flows.engine.stream
        return {"run": stream.run, "agent": stream.agent, "role": stream.role}


class _Writes:
    """The writes of a transaction: they wait for its end, so they are plain calls in both twins."""

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
        """Put a value. What the transaction has read of the key is what it expects."""
        self._flows.put(key, value, _word(expected), labels, ttl_s)

    def append(self, key: str, item: Any) -> None:
        """Append an item to a list."""
        self._flows.change("append", key, item=item)

    def add(self, key: str, amount: int = 1) -> None:
        """Add a whole number to a counter."""
        self._flows.change("add", key, amount=amount)

    def include(self, key: str, item: Any) -> None:
        """Have a set hold an item."""
        self._flows.change("include", key, item=item)

    def discard(self, key: str, item: Any) -> None:
        """Have a set no longer hold an item."""
        self._flows.change("discard", key, item=item)

    def merge(self, key: str, merge: Merge | str, value: Any) -> None:
        """Merge a value into what stands."""
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
        """What a key holds, this transaction's own writes included."""
        return await self._drive(self._flows.get(key, default))

    async def roll_back(self, because: str = "") -> None:
        """End it here and write nothing."""
        await self._drive(self._flows.roll_back(because))


class AsyncBoard(OfAgent):
    """The run's shared state, for the async client."""

    def __init__(self, flows: TransactedFlows, drive: AsyncDrive) -> None:
        self._flows = flows
        self._drive = drive

    async def get(self, key: str, default: Any = None) -> Any:
        """What a key holds; `default` where it is absent."""
        entry = await self._drive(self._flows.entry(key))
        return default if entry is None else entry.value

    async def entry(self, key: str) -> BoardEntry | None:
        """A key with its version, author, role, labels and expiry; None where it is absent."""
        return await self._drive(self._flows.entry(key))

    async def keys(self) -> list[str]:
        """The keys that are there, sorted. Reads all of the run's shared state."""
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
        """Put a value; the key's new version.

        Args:
            key: The key.
            value: What it holds from then on.
            expected: The version that it must be at. By default the one that this session saw
                last, 0 if it never saw the key; `Expected.ANY` for whatever stands.
            labels: Texts by name.
            ttl_s: Seconds of the log's time after which the key is absent; None for no bound. 0 is
                refused: nothing would be put.
            resolve: What to do where another was first: a `Resolution`, or a function of
                (mine, theirs), which is no coroutine function.

        Raises:
            BoardConflict: The key is at another version, and nothing resolves it.
            Refused: The key holds another kind of thing.
            BadName, BadValue: The key is no name, or the value cannot be recorded.
        """
        return await self._drive(
            self._flows.put(key, value, _word(expected), labels, ttl_s, _word(resolve))
        )

    async def append(self, key: str, item: Any) -> int:
        """Append an item to a list; its new length."""
        length: int = await self._drive(self._flows.change("append", key, item))
        return length

    async def add(self, key: str, amount: int = 1) -> int:
        """Add a whole number to a counter; what it then is."""
        total: int = await self._drive(self._flows.change("add", key, amount))
        return total

    async def include(self, key: str, item: Any) -> int:
        """Have a set hold an item; its size."""
        size: int = await self._drive(self._flows.change("include", key, item))
        return size

    async def discard(self, key: str, item: Any) -> int:
        """Have a set no longer hold an item; its size, 0 where there is no set."""
        return await self._drive(self._flows.change("discard", key, item)) or 0

    async def merge(self, key: str, merge: Merge | str, value: Any) -> Any:
        """Merge a value into what stands: `MAX`, `MIN` (numbers or texts; gives what then stands),
        or `UNION` (of dicts; gives None: read it).
        """
        return await self._drive(self._flows.change("merge", key, _word(merge), value))

    async def remove(self, key: str, *, expected: int | Expected | str | None = None) -> bool:
        """Remove a key; whether it was there. `expected` as for `put`."""
        return await self._drive(self._flows.remove(key, _word(expected)))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTransaction, None]:
        """Several keys in one commit, made when the block is left; an error rolls it back.

        Raises BoardConflict at the end where a key that was read has changed.
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
    """The run's shared state, for the sync client: the methods of `AsyncBoard`."""

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
        """Several keys in one commit, as `AsyncBoard.transaction`."""
        flows = self._flows.transaction()
        done(self._drive(flows.begin()))
        try:
            yield Transaction(flows, self._drive)
        except BaseException as error:
            done(self._drive(flows.end(error)))
            raise
        else:
            done(self._drive(flows.end(None)))
