"""Full-text search over events, in a file beside the tables.

    <data dir>/projections/<workspace>.search.sqlite      the index (with SQLite's own -wal and
    -shm) <data dir>/projections/<workspace>.search.sqlite.new  output of a rebuild, then the index
    <data dir>/projections/<workspace>.search.lock        flock, held by the one process that writes
    <data dir>/projections/<workspace>.search.reading     flock, shared by the readers

The file is derived from the log and may be deleted at any time. A reader holds the last lock,
because a file must not be replaced under SQLite, which finds the files beside it by name.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import msgspec

from hansard.bus.file_lock import take_by
from hansard.domain.ids import workspace_name
from hansard.projections.errors import (
    IndexOfOtherLog,
    IndexRead,
    IndexUnusable,
    OtherLog,
    ProjectionError,
    Unusable,
    unusable_index,
)
from hansard.projections.publish.publisher import to_its_end
from hansard.projections.rows import Batch
from hansard.projections.runner import Source, project
from hansard.projections.search._index import ALL, Hit, Index, Question, settle
from hansard.projections.store import Store
from hansard.projections.table_files import (
    PRIVATE_FILE,
    ProjectorStatus,
    TableFiles,
    WriteLock,
    new_folder,
)

READERS_WAIT_S = 30.0
"""Longest time that a rebuild waits for readers, and they for it, in seconds."""

TRY_S = 0.01
"""Pause between two attempts to replace the file, in seconds."""

Moved = Callable[[int, int], None]
"""Called with the current and the target position."""


class Answer(msgspec.Struct, frozen=True):
    """The hits, as of a position of the log; `more` if a limit cut them off."""

    position: int
    hits: list[Hit]
    more: bool


class IndexPlace(TableFiles, frozen=True):
    """The files of one workspace's index."""

    @classmethod
    def of(cls, data_dir: Path, workspace: str) -> IndexPlace:
        """Return those in a data directory. Raises BadName."""
        return cls(data_dir / "projections" / f"{workspace_name(workspace)}.search.sqlite")

    def remove(self, path: Path) -> None:
        """Remove a file and SQLite's files beside it."""
        for end in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + end).unlink(missing_ok=True)

    def replace(self) -> None:
        """Replace the index by a rebuilt one, atomically.

        Waits for readers. If killed in between, the old one is kept. Raises IndexRead.
        """
        with self._alone():
            with contextlib.suppress(sqlite3.Error):  # a damaged file has nothing to keep
                if self.path.exists():
                    settle(self.path)
            for end in ("-wal", "-shm"):
                self.path.with_name(self.path.name + end).unlink(missing_ok=True)
            self.fresh.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Prevent the file from being replaced meanwhile. Raises IndexUnusable."""
        replaced = f"another process has been replacing it for {READERS_WAIT_S:g} s"
        with self._locked(IndexUnusable(self.path, replaced), shared=True):
            yield

    def _alone(self) -> AbstractContextManager[None]:
        """Wait until there is no reader, and let none begin."""
        return self._locked(IndexRead(self.path, READERS_WAIT_S))

    @contextlib.contextmanager
    def _locked(self, late: ProjectionError, *, shared: bool = False) -> Generator[None]:
        fd = self._reading_lock()
        try:
            if not take_by(time.monotonic() + READERS_WAIT_S, fd, TRY_S, shared=shared):
                raise late
            yield
        finally:
            os.close(fd)

    def _reading_lock(self) -> int:
        try:
            new_folder(self.path.parent)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            return os.open(self.path.with_suffix(".reading"), flags, PRIVATE_FILE)
        except OSError as error:
            raise unusable_index(self.path, error) from error


async def bring_up(source: Source, place: IndexPlace, moved: Moved) -> int:
    """Index new messages up to the log's newest position; return the position. If killed at any
    point, the next call continues. Raises Held, IndexOfOtherLog, IndexUnusable, BrokerError.
    """
    hold = _held(place)
    try:
        async with _opened(place.path) as index:
            last = (await source.extent()).last
            await _project(source, index, last, _telling(hold, moved))
            hold.record_status(ProjectorStatus(os.getpid(), index.progress.position, last))
            return index.progress.position
    finally:
        hold.close()


async def rebuild(source: Source, place: IndexPlace, moved: Moved) -> int:
    """Rebuild the index up to the newest position, and replace the old one; return the position. If
    killed before that, the old one is kept. Raises as `bring_up`, and IndexRead.
    """
    hold = _held(place)
    try:
        place.remove(place.fresh)  # left by a killed rebuild
        last = (await source.extent()).last
        async with _opened(place.fresh) as index:
            await _project(source, index, last, lambda batch, _: moved(batch.position, last))
            reached = index.progress.position
        await to_its_end(lambda: settle(place.fresh))
        await to_its_end(place.replace)
        hold.record_status(ProjectorStatus(os.getpid(), reached, last))
        return reached
    finally:
        place.remove(place.fresh)
        hold.close()


def ask(place: IndexPlace, question: Question) -> Answer | None:
    """Search the current index; return None if there is none yet.

    Raises BadQuery, IndexUnusable.
    """
    more = question.limit + 1 if question.limit >= 0 else ALL
    with place.reading():
        if not place.path.exists():
            return None
        index = Index(place.path, read_only=True)
        try:
            if not index.made:
                return None
            hits = index.find(msgspec.structs.replace(question, limit=more))
            cut = question.limit if question.limit >= 0 else len(hits)
            return Answer(index.progress.position, hits[:cut], len(hits) > cut)
        finally:
            index.close()


@contextlib.asynccontextmanager
async def _opened(path: Path) -> AsyncGenerator[Index]:
    """Open an index, and close it, in threads that are waited for: the caller holds the write lock
    until they have finished. Raises IndexUnusable.
    """
    made: list[Index] = []
    try:
        await to_its_end(lambda: made.append(Index(path)))
        yield made[0]
    finally:
        for index in made:
            await to_its_end(index.close)


def _held(place: IndexPlace) -> WriteLock:
    """Take the write lock. Raises Held, IndexUnusable."""
    try:
        return WriteLock(place)
    except Unusable as error:
        raise IndexUnusable(place.path, error.why) from error


def _telling(hold: WriteLock, moved: Moved) -> Callable[[Batch, int], None]:
    def record_status(batch: Batch, head: int) -> None:
        known = max(head, batch.position)
        hold.record_status(ProjectorStatus(os.getpid(), batch.position, known))
        moved(batch.position, known)

    return record_status


async def _project(
    source: Source, index: Index, until: int, moved: Callable[[Batch, int], None]
) -> None:
    try:
        # project() needs only path, progress and write of a store.
        await project(source, cast("Store", index), until=until, moved=moved)
    except OtherLog as error:
        raise IndexOfOtherLog(index.path, error.position) from error
