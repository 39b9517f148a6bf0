"""Rebuilds the tables from the log beside the old ones, and then replaces them."""

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
"""Called with the current and the target position."""


class Rebuilt(msgspec.Struct, frozen=True):
    """The result of a rebuild: its position, and a digest of each table. After a comparison,
    `before` has the old tables' digests (None otherwise).
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
    """Rebuild the tables up to the newest position, and replace the old ones. If killed before
    that, the old ones are unchanged. Raises Held, ProjectionError, BrokerError.
    """
    with _write_lock(place) as hold:
        last = (await source.extent()).last
        made = await _make(source, place, last, progress)
        place.replace()
        hold.interrupted = False
        hold.record_status(ProjectorStatus(os.getpid(), made.position, last))
        return made


async def verify(source: Source, place: TableFiles, progress: Progress) -> Rebuilt:
    """Rebuild the tables up to the old ones' position, compare both, and discard the new ones.
    Raises as `rebuild`, Unusable if there are none, Older if another schema made them, Ahead if the
    log does not reach that position.
    """
    if not place.path.exists():
        raise Unusable(place.path, "there is no such file")
    with _write_lock(place) as hold:
        store = await asyncio.to_thread(Store, place.path, read_only=True)
        try:
            position = store.progress.position
            await check_same_log(source, store)
            before = await asyncio.to_thread(store.digests)
        finally:
            await asyncio.to_thread(store.close)
        hold.interrupted = False  # they were read completely, and closed
        made = await _make(source, place, position, progress)
        return msgspec.structs.replace(made, before=before)


@contextlib.contextmanager
def _write_lock(place: TableFiles) -> Generator[WriteLock]:
    """Hold the write lock of the tables. If the previous writer was killed and the tables may be
    damaged, keep that state on record, since it is the projector that repairs them.
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
    place.remove(place.fresh)  # left by a killed rebuild

    def moved(batch: Batch, _head: int) -> None:
        progress(batch.position, until)

    store = await asyncio.to_thread(Store, place.fresh)
    try:
        if until:
            await project(source, store, until=until, moved=moved)
        return Rebuilt(store.progress.position, await asyncio.to_thread(store.digests))
    finally:
        await asyncio.to_thread(store.close)
