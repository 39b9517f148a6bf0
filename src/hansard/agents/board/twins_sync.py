"""`session.board` of the sync client.

Made by `python -m tests.structure.twins`: do not edit it, but
`hansard.agents.board.twins`, from which it is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

from hansard.agents.board.operations import BoardEntry, Expected
from hansard.agents.board.transaction import TransactedFlows, TransactionFlows
from hansard.agents.board.twins import NO_LABELS, OfAgent, _word, _Writes
from hansard.agents.board.write import Resolve
from hansard.agents.flow import Drive
from hansard.domain.merges import Merge


class Transaction(_Writes):
    """A transaction of the sync client."""

    def __init__(self, flows: TransactionFlows, drive: Drive) -> None:
        super().__init__(flows)
        self._drive = drive

    def get(self, key: str, default: Any = None) -> Any:
        """What a key holds, this transaction's own writes included."""
        return self._drive(self._flows.get(key, default))

    def roll_back(self, because: str = "") -> None:
        """End it here and write nothing."""
        self._drive(self._flows.roll_back(because))


class Board(OfAgent):
    """The run's shared state, for the sync client."""

    def __init__(self, flows: TransactedFlows, drive: Drive) -> None:
        self._flows = flows
        self._drive = drive

    def get(self, key: str, default: Any = None) -> Any:
        """What a key holds; `default` where it is absent."""
        entry = self._drive(self._flows.entry(key))
        return default if entry is None else entry.value

    def entry(self, key: str) -> BoardEntry | None:
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
        return self._drive(
            self._flows.put(key, value, _word(expected), labels, ttl_s, _word(resolve))
        )

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

    def merge(self, key: str, merge: Merge | str, value: Any) -> Any:
        """Merge a value into what stands: `MAX`, `MIN` (numbers or texts; gives what then stands),
        or `UNION` (of dicts; gives None: read it).
        """
        return self._drive(self._flows.change("merge", key, _word(merge), value))

    def remove(self, key: str, *, expected: int | Expected | str | None = None) -> bool:
        """Remove a key; whether it was there. `expected` as for `put`."""
        return self._drive(self._flows.remove(key, _word(expected)))

    @contextlib.contextmanager
    def transaction(self) -> Generator[Transaction, None, None]:
        """Several keys in one commit, made when the block is left; an error rolls it back.

        Raises BoardConflict at the end where a key that was read has changed.
        """
        flows = self._flows.transaction()
        self._drive(flows.begin())
        try:
            yield Transaction(flows, self._drive)
        except BaseException as error:
            self._drive(flows.end(error))
            raise
        else:
            self._drive(flows.end(None))
