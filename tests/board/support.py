"""Shared helpers of the board's tests."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from tests.agents.twins import Twin, TwinRecord, TwinSession

WAITING = ("get", "roll_back")


class TwinBoard(Twin):
    """A board of either client, awaited."""

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Yield a transaction whose reads are awaited and whose writes are called."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        if self.is_async:
            async with self.raw.transaction() as tx:
                yield tx
        else:
            with self.raw.transaction() as tx:
                yield TwinTransaction(tx, is_async=False)


class TwinTransaction(Twin):
    """A sync transaction whose reads are awaited."""

    def _waits(self, name: str) -> bool:
        return name in WAITING


def board_of(session: TwinSession) -> TwinBoard:
    """Return a session's board, awaited."""
    return TwinBoard(session.raw.board, is_async=session.is_async)


async def tags_of(record: TwinRecord, run: str, kind: type) -> list[str]:
    """Return the tags of a run's events in streams of one kind, by position."""
    return [
        recorded.type
        for stored in await record.commits(run)
        if isinstance(stored.stream, kind)
        for recorded in stored.commit.events
    ]
