"""Full-text search over what events say, in a file beside the tables.

<data dir>/projections/<workspace>.search.sqlite      the index (with SQLite's own -wal and -shm)
<data dir>/projections/<workspace>.search.sqlite.new  what a rebuild makes, then the index
<data dir>/projections/<workspace>.search.lock        flock, held by the one process that writes
<data dir>/projections/<workspace>.search.reading     flock, shared by those that search

The log alone is the truth: the file may be thrown away at any time. A reader holds the last lock,
because a file must not be replaced under SQLite: it finds what belongs to it by its name.
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
    BadQuery,
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

__all__ = [
    "ALL",
    "Answer",
    "BadQuery",
    "Hit",
    "IndexOfOtherLog",
    "IndexPlace",
    "IndexRead",
    "IndexUnusable",
    "Question",
    "ask",
    "bring_up",
    "rebuild",
]

READERS_WAIT_S = 30.0
"""How long a rebuild waits for those who search at the moment, and they for it."""

TRY_S = 0.01
"""Pause between two tries to replace the file."""

Moved = Callable[[int, int], None]
"""Called with the position that is reached and the one to reach."""


class Answer(msgspec.Struct, frozen=True):
    """What was found, as of a position of the log; `more` where a limit cut it off."""

    position: int
    hits: list[Hit]
    more: bool


class IndexPlace(TableFiles, frozen=True):
    """The files of one workspace's index."""

    @classmethod
    def of(cls, data_dir: Path, workspace: str) -> IndexPlace:
        """Those in a data directory. Raises BadName."""
        return cls(data_dir / "projections" / f"{workspace_name(workspace)}.search.sqlite")

    def remove(self, path: Path) -> None:
        """Remove a file with what SQLite keeps beside it."""
        for end in ("", "-wal", "-shm", "-journal"):
            path.with_name(path.name + end).unlink(missing_ok=True)

    def replace(self) -> None:
        """Put what a rebuild made in the place of the index, at once.

        Waits for readers. Killed in between, the old one stands. Raises IndexRead.
        """
        with self._alone():
            with contextlib.suppress(sqlite3.Error):  # what is damaged has nothing to keep
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
        """Keep the file from being replaced meanwhile. Raises IndexUnusable."""
        replaced = f"another process has been replacing it for {READERS_WAIT_S:g} s"
        with self._locked(IndexUnusable(self.path, replaced), shared=True):
            yield

    def _alone(self) -> AbstractContextManager[None]:
        """Wait until nobody reads, and let nobody begin."""
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
    """Index what the log has more, up to its newest position; returns what is reached.

    Killed at any point, the next one goes on. Raises Held, IndexOfOtherLog, IndexUnusable,
    BrokerError.
    """
    hold = _held(place)
    try:
        async with _opened(place.path) as index:
            last = (await source.extent()).last
            await _project(source, index, last, _telling(hold, moved))
            hold.tell(ProjectorStatus(os.getpid(), index.progress.position, last))
            return index.progress.position
    finally:
        hold.close()


async def rebuild(source: Source, place: IndexPlace, moved: Moved) -> int:
    """Make the index again up to the newest position, and put it in the old one's place; returns
    that position. Killed before that, the old one stands. Raises as `bring_up`, and IndexRead.
    """
    hold = _held(place)
    try:
        place.remove(place.fresh)  # what a killed one left
        last = (await source.extent()).last
        async with _opened(place.fresh) as index:
            await _project(source, index, last, lambda batch, _: moved(batch.position, last))
            reached = index.progress.position
        await to_its_end(lambda: settle(place.fresh))
        await to_its_end(place.replace)
        hold.tell(ProjectorStatus(os.getpid(), reached, last))
        return reached
    finally:
        place.remove(place.fresh)
        hold.close()


def ask(place: IndexPlace, question: Question) -> Answer | None:
    """Search the index as it stands; None where there is none yet.

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
            found = index.find(msgspec.structs.replace(question, limit=more))
            cut = question.limit if question.limit >= 0 else len(found)
            return Answer(index.progress.position, found[:cut], len(found) > cut)
        finally:
            index.close()


@contextlib.asynccontextmanager
async def _opened(path: Path) -> AsyncGenerator[Index]:
    """The index, opened and closed by threads that are waited for: whoever holds the right to write
    keeps it until they are through. Raises IndexUnusable.
    """
    made: list[Index] = []
    try:
        await to_its_end(lambda: made.append(Index(path)))
        yield made[0]
    finally:
        for index in made:
            await to_its_end(index.close)


def _held(place: IndexPlace) -> WriteLock:
    """The right to write. Raises Held, IndexUnusable."""
    try:
        return WriteLock(place)
    except Unusable as error:
        raise IndexUnusable(place.path, error.why) from error


def _telling(hold: WriteLock, moved: Moved) -> Callable[[Batch, int], None]:
    def tell(batch: Batch, head: int) -> None:
        known = max(head, batch.position)
        hold.tell(ProjectorStatus(os.getpid(), batch.position, known))
        moved(batch.position, known)

    return tell


async def _project(
    source: Source, index: Index, until: int, moved: Callable[[Batch, int], None]
) -> None:
    try:
        # project() asks of a store what an index has: path, progress and write.
        await project(source, cast("Store", index), until=until, moved=moved)
    except OtherLog as error:
        raise IndexOfOtherLog(index.path, error.position) from error
