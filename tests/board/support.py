"""What the tests of the board share."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from tests.agents.twins import TwinRecord, TwinSession

WAITING = ("get", "roll_back")


class TwinBoard:
    """A board of either client, awaited."""

    def __init__(self, board: Any, *, is_async: bool) -> None:
        self.raw = board
        self.is_async = is_async

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.raw, name)
        if self.is_async:
            return found

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return awaited

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction whose reads are awaited and whose writes are called."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        if self.is_async:
            async with self.raw.transaction() as tx:
                yield tx
        else:
            with self.raw.transaction() as tx:
                yield TwinTransaction(tx)


class TwinTransaction:
    """A sync transaction whose reads are awaited."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.raw, name)
        if name not in WAITING:
            return found

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return found(*args, **kwargs)

        return awaited


def board_of(session: TwinSession) -> TwinBoard:
    """A session's board, awaited."""
    return TwinBoard(session.raw.board, is_async=session.is_async)


async def tags_of(record: TwinRecord, run: str, kind: type) -> list[str]:
    """The tags of a run's events in streams of one kind, by position."""
    return [
        recorded.type
        for stored in await record.commits(run)
        if isinstance(stored.stream, kind)
        for recorded in stored.commit.events
    ]
