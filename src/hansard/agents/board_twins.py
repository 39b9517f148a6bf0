"""`session.board` of the two clients: the same operations, called or awaited.

A key holds one kind of thing until it is removed: a value (`put`), a list (`append`), a counter
(`add`), a set (`include`, `discard`), or what is merged (`merge`: max, min, union).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from hansard.agents.board import BoardFlows, Entry
from hansard.agents.board_transaction import Transaction
from hansard.agents.board_write import Resolve
from hansard.agents.core import Core
from hansard.agents.flow import Flow, drive_async
from hansard.domain.brief import Brief

T = TypeVar("T")
NO_LABELS: Mapping[str, str] = MappingProxyType({})


class Drive(Protocol):
    """Runs a flow in the calling thread."""

    def __call__(self, flow: Flow[T], /) -> T:
        """The flow's value."""
        ...


class OfAgent(Brief):
    """What hangs on a session, and shows whose it is."""

    def _brief(self) -> dict[str, Any]:
        flows: Any = vars(self)["_flows"]
        stream = flows.core.stream
        return {"run": stream.run, "agent": stream.agent, "role": stream.role}


class SyncBoard(OfAgent):
    """The run's shared state, for the sync client."""

    def __init__(self, core: Core, drive: Drive) -> None:
        self._flows = BoardFlows(core)
        self._drive = drive

    def get(self, key: str, default: Any = None) -> Any:
        """What a key holds; `default` where it is absent."""
        entry = self._drive(self._flows.entry(key))
        return default if entry is None else entry.value

    def entry(self, key: str) -> Entry | None:
        """A key with its version, author, role, labels and expiry; None where it is absent."""
        return self._drive(self._flows.entry(key))

    def keys(self) -> list[str]:
        """The keys that are there, sorted. Reads all of the run's shared state."""
        return self._drive(self._flows.keys())

    def put(
        self,
        key: str,
        value: Any,
        *,
        expected: int | str | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        ttl: float | None = None,
        resolve: Resolve | None = None,
    ) -> int:
        """Put a value; the key's new version.

        Args:
            key: The key.
            value: What it holds from then on.
            expected: The version that it must be at. By default the one that this session saw
                last, 0 if it never saw the key; "any" for whatever stands.
            labels: Texts by name.
            ttl: Seconds of the log's time after which the key is absent.
            resolve: What to do where another was first: "last writer", "merge", or a function of
                (mine, theirs).

        Raises:
            BoardConflict: The key is at another version, and nothing resolves it.
            Refused: The key holds another kind of thing.
            BadName, BadValue: The key is no name, or the value cannot be recorded.
        """
        return self._drive(self._flows.put(key, value, expected, labels, ttl, resolve))

    def append(self, key: str, item: Any) -> int:
        """Append an item to a list; its new length."""
        length: int = self._drive(self._flows.change("append", key, item))
        return length

    def add(self, key: str, amount: int = 1) -> int:
        """Add a whole number to a counter; what it then is."""
        total: int = self._drive(self._flows.change("add", key, amount))
        return total

    def include(self, key: str, item: Any) -> int:
        """Have a set hold an item; its size."""
        size: int = self._drive(self._flows.change("include", key, item))
        return size

    def discard(self, key: str, item: Any) -> int:
        """Have a set no longer hold an item; its size, 0 where there is no set."""
        return self._drive(self._flows.change("discard", key, item)) or 0

    def merge(self, key: str, merge: str, value: Any) -> Any:
        """Merge a value into what stands: "max", "min" (numbers or texts; gives what then stands),
        or "union" (of dicts; gives None: read it).
        """
        return self._drive(self._flows.change("merge", key, merge, value))

    def remove(self, key: str, *, expected: int | str | None = None) -> bool:
        """Remove a key; whether it was there. `expected` as for `put`."""
        return self._drive(self._flows.remove(key, expected))

    @contextlib.contextmanager
    def transaction(self) -> Generator[SyncTransaction, None, None]:
        """Several keys in one commit, made when the block is left; an error rolls it back.

        Raises BoardConflict at the end where a key that was read has changed.
        """
        flows = Transaction(self._flows)
        self._drive(flows.begin())
        try:
            yield SyncTransaction(flows, self._drive)
        except BaseException as error:
            self._drive(flows.end(error))
            raise
        else:
            self._drive(flows.end(None))


class _Writes:
    """The writes of a transaction: they wait for its end, so they are plain calls in both twins."""

    def __init__(self, flows: Transaction) -> None:
        self._flows = flows

    def put(
        self,
        key: str,
        value: Any,
        *,
        expected: int | str | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        ttl: float | None = None,
    ) -> None:
        """Put a value. What the transaction has read of the key is what it expects."""
        self._flows.put(key, value, expected, labels, ttl)

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

    def merge(self, key: str, merge: str, value: Any) -> None:
        """Merge a value into what stands."""
        self._flows.change("merge", key, merge=merge, value=value)

    def remove(self, key: str, *, expected: int | str | None = None) -> None:
        """Remove a key."""
        self._flows.remove(key, expected)


class SyncTransaction(_Writes):
    """A transaction of the sync client."""

    def __init__(self, flows: Transaction, drive: Drive) -> None:
        super().__init__(flows)
        self._drive = drive

    def get(self, key: str, default: Any = None) -> Any:
        """What a key holds, this transaction's own writes included."""
        return self._drive(self._flows.get(key, default))

    def roll_back(self, because: str = "") -> None:
        """End it here and write nothing."""
        self._drive(self._flows.roll_back(because))


class AsyncTransaction(_Writes):
    """A transaction of the async client."""

    async def get(self, key: str, default: Any = None) -> Any:
        """What a key holds, this transaction's own writes included."""
        return await drive_async(self._flows.get(key, default))

    async def roll_back(self, because: str = "") -> None:
        """End it here and write nothing."""
        await drive_async(self._flows.roll_back(because))


class AsyncBoard(OfAgent):
    """The run's shared state, for the async client. See `SyncBoard` for each operation."""

    def __init__(self, core: Core) -> None:
        self._flows = BoardFlows(core)

    async def get(self, key: str, default: Any = None) -> Any:
        """What a key holds; `default` where it is absent."""
        entry = await drive_async(self._flows.entry(key))
        return default if entry is None else entry.value

    async def entry(self, key: str) -> Entry | None:
        """A key with all that is known of it; None where it is absent."""
        return await drive_async(self._flows.entry(key))

    async def keys(self) -> list[str]:
        """The keys that are there, sorted."""
        return await drive_async(self._flows.keys())

    async def put(
        self,
        key: str,
        value: Any,
        *,
        expected: int | str | None = None,
        labels: Mapping[str, str] = NO_LABELS,
        ttl: float | None = None,
        resolve: Resolve | None = None,
    ) -> int:
        """Put a value; the key's new version. `resolve` is no coroutine function here either."""
        return await drive_async(self._flows.put(key, value, expected, labels, ttl, resolve))

    async def append(self, key: str, item: Any) -> int:
        """Append an item to a list; its new length."""
        length: int = await drive_async(self._flows.change("append", key, item))
        return length

    async def add(self, key: str, amount: int = 1) -> int:
        """Add a whole number to a counter; what it then is."""
        total: int = await drive_async(self._flows.change("add", key, amount))
        return total

    async def include(self, key: str, item: Any) -> int:
        """Have a set hold an item; its size."""
        size: int = await drive_async(self._flows.change("include", key, item))
        return size

    async def discard(self, key: str, item: Any) -> int:
        """Have a set no longer hold an item; its size."""
        return await drive_async(self._flows.change("discard", key, item)) or 0

    async def merge(self, key: str, merge: str, value: Any) -> Any:
        """Merge a value into what stands."""
        return await drive_async(self._flows.change("merge", key, merge, value))

    async def remove(self, key: str, *, expected: int | str | None = None) -> bool:
        """Remove a key; whether it was there."""
        return await drive_async(self._flows.remove(key, expected))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncTransaction, None]:
        """Several keys in one commit, made when the block is left; an error rolls it back."""
        flows = Transaction(self._flows)
        await drive_async(flows.begin())
        try:
            yield AsyncTransaction(flows)
        except BaseException as error:
            await drive_async(flows.end(error))
            raise
        else:
            await drive_async(flows.end(None))
