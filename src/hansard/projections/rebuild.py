"""The tables made again from the log, beside the old ones, and then in their place."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Generator

import msgspec

from hansard.projections.errors import Unusable
from hansard.projections.rows import Batch
from hansard.projections.runner import Source, check_same_log, project
from hansard.projections.store import Digest, Store
from hansard.projections.table_files import ProjectorStatus, TableFiles, WriteLock

Progress = Callable[[int, int], None]
"""Called with the position that is reached and the one to reach."""


class Rebuilt(msgspec.Struct, frozen=True):
    """What a rebuild made: up to which position, and each table in short. Of a comparison,
    `before` is what stood there (None otherwise).
    """

    position: int
    tables: dict[str, Digest]
    before: dict[str, Digest] | None = None

    @property
    def differing(self) -> list[str]:
        """The tables that a comparison found to differ."""
        before = self.before if self.before is not None else self.tables
        return sorted(
            name for name in {*before, *self.tables} if before.get(name) != self.tables.get(name)
        )


async def rebuild(source: Source, place: TableFiles, progress: Progress) -> Rebuilt:
    """Make the tables again up to the newest position, and put them in the old ones' place.

    Killed before that, the old ones stand as they were. Raises Held, ProjectionError, BrokerError.
    """
    with _taken(place) as hold:
        last = (await source.extent()).last
        made = await _make(source, place, last, progress)
        place.replace()
        hold.interrupted = False
        hold.tell(ProjectorStatus(os.getpid(), made.position, last))
        return made


async def verify(source: Source, place: TableFiles, progress: Progress) -> Rebuilt:
    """Make the tables again up to where the old ones are, compare, and throw them away.

    Raises as `rebuild`, Unusable where there are none, Older where another schema made them, Ahead
    where the log does not reach so far.
    """
    if not place.path.exists():
        raise Unusable(place.path, "there is no such file")
    with _taken(place) as hold:
        store = await asyncio.to_thread(Store, place.path, read_only=True)
        try:
            position = store.progress.position
            await check_same_log(source, store)
            before = await asyncio.to_thread(store.digests)
        finally:
            await asyncio.to_thread(store.close)
        hold.interrupted = False  # they were read whole, and closed
        made = await _make(source, place, position, progress)
        return msgspec.structs.replace(made, before=before)


@contextlib.contextmanager
def _taken(place: TableFiles) -> Generator[WriteLock]:
    """The right to write the tables. Where who had it before was killed, and the tables do not
    stand whole since, that is said on: the projector mends what a kill has torn.
    """
    hold = WriteLock(place)
    try:
        yield hold
    finally:
        try:
            place.remove(place.fresh)
            if not hold.interrupted:
                hold.ended()
        finally:
            hold.close()


async def _make(source: Source, place: TableFiles, until: int, progress: Progress) -> Rebuilt:
    place.remove(place.fresh)  # what a killed one left

    def moved(batch: Batch, _head: int) -> None:
        progress(batch.position, until)

    store = await asyncio.to_thread(Store, place.fresh)
    try:
        if until:
            await project(source, store, until=until, moved=moved)
        return Rebuilt(store.progress.position, await asyncio.to_thread(store.digests))
    finally:
        await asyncio.to_thread(store.close)
