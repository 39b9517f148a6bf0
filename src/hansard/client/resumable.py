"""A loop that goes on where it stood: `session.resumable`, of both clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class Reached(Generic[T]):
    """How far a loop over items has come, and what came of them."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.last_item: T | None = None


class _Loop(Generic[T]):
    """What both kinds of loop show of how far they have come."""

    def __init__(self) -> None:
        self._reached: Reached[T] = Reached()

    @property
    def results(self) -> list[Any]:
        """What the loop's body appended, in order: with what it appended before the run was
        resumed, as far as that was recorded, so that it is whole at the end. It is recorded with
        the loop's progress, every so many items.
        """
        return self._reached.results

    @property
    def last_item(self) -> T | None:
        """The last item that is done, in this process or before it; None before the first."""
        return self._reached.last_item


async def remaining_async(
    items: Iterable[T], every: int, progress: Any, drive: Any, reached: Reached[T]
) -> AsyncGenerator[T, None]:
    """The items not yet done. It does not know the loop that it is of: who drops that one has left
    it.
    """
    going = progress()
    reached.results += await drive(going.begin())
    kept = len(reached.results)
    try:
        for number, item in enumerate(items, 1):
            if not await drive(going.skips(item)):
                yield item
                saves = number % every == 0
                await drive(going.done(reached.results[kept:] if saves else ()))
                kept = len(reached.results) if saves else kept
            reached.last_item = item
        await drive(going.end(reached.results[kept:]))
    finally:
        await drive(going.leave())


class AsyncResumable(_Loop[T]):
    """A loop over what is not yet done (`session.resumable`), and what came of what is."""

    def __init__(self, items: Iterable[T], every: int, progress: Any, drive: Any) -> None:
        super().__init__()
        self._left = remaining_async(items, every, progress, drive, self._reached)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        return await self._left.__anext__()

    async def aclose(self) -> None:
        """Leave the loop: what follows stands outside of it."""
        await self._left.aclose()


def remaining(
    items: Iterable[T], every: int, progress: Any, drive: Any, reached: Reached[T]
) -> Generator[T, None, None]:
    """The items not yet done. It does not know the loop that it is of: who drops that one has left
    it.
    """
    going = progress()
    reached.results += drive(going.begin())
    kept = len(reached.results)
    try:
        for number, item in enumerate(items, 1):
            if not drive(going.skips(item)):
                yield item
                saves = number % every == 0
                drive(going.done(reached.results[kept:] if saves else ()))
                kept = len(reached.results) if saves else kept
            reached.last_item = item
        drive(going.end(reached.results[kept:]))
    finally:
        drive(going.leave())


class Resumable(_Loop[T]):
    """A loop over what is not yet done (`session.resumable`), and what came of what is."""

    def __init__(self, items: Iterable[T], every: int, progress: Any, drive: Any) -> None:
        super().__init__()
        self._left = remaining(items, every, progress, drive, self._reached)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        return self._left.__next__()

    def close(self) -> None:
        """Leave the loop: what follows stands outside of it."""
        self._left.close()
