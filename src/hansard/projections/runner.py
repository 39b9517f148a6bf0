"""The projector: follow the log, batch, write; forever, or up to a position.

Reading and DuckDB's work overlap: while a thread writes one batch, the next one is read. A batch is
what arrived meanwhile, so it is small under light load and large while catching up.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Protocol, TypeVar

import msgspec

from hansard.bus.jetstream.log import Chunk
from hansard.bus.log import RawMessage, Stored
from hansard.bus.loggers import logger
from hansard.bus.marks import Extent
from hansard.bus.reads import InFull
from hansard.domain.ids import StreamId
from hansard.domain.integrity import Fold
from hansard.projections.errors import Ahead, Behind, OtherLog, ProjectionError, Unusable, unwritten
from hansard.projections.rows import Batch, Rows, digest
from hansard.projections.snapshots import Publisher, restore
from hansard.projections.store import Digest, Store
from hansard.projections.table_files import ProjectorStatus, TableFiles, WriteLock

# The tables of a running projector: progress is recorded and generations are published.

T = TypeVar("T")

_log = logger(__name__)

LATE_S = 0.02
"""Pause between two checks whether a publication is due, in seconds."""


class LiveStore(Store):
    """A store that publishes its tables in the writing thread, and records its progress and that of
    the publication in the lock file, since both may lag.
    """

    def __init__(self, hold: WriteLock) -> None:
        """Open the tables, whose write lock is held. Raises Unusable, Newer.

        DuckDB overwrites some blocks of a file: if it is killed then, the file cannot be opened any
        more. Such tables continue from the last publication.
        """
        try:
            super().__init__(hold.place.path)
        except Unusable as torn:
            if not hold.interrupted or type(torn) is not Unusable:
                raise
            position = restore(hold.place)
            hold.record_status(ProjectorStatus(os.getpid(), position, position))
            _log.warning("tables_torn_by_a_kill", path=str(hold.place.path), begins_at=position)
            super().__init__(hold.place.path)
        self._hold = hold
        self._head = 0
        self._stamp = 0
        self._lock = threading.Lock()
        self.meanwhile = True
        """True to publish after batches, too, not only at the end of the work."""
        try:
            self._publisher = Publisher(hold.place, self)
        except BaseException as error:
            super().close()
            if isinstance(error, OSError):
                raise unwritten(self.path, error) from error
            raise
        position, published = self.progress.position, self._publisher.position
        self._status = ProjectorStatus(os.getpid(), position, position, published=max(0, published))

    @property
    def stale(self) -> bool:
        """True if more is written than published."""
        return self._publisher.stale

    def write(self, batch: Batch, head: int) -> None:
        """Write a batch as `Store.write` does, and publish if that is due."""
        with self._lock:
            super().write(batch, head)

    def _reached(self, last: RawMessage, head: int) -> None:
        self._head, self._stamp = max(head, last.position), last.stamp
        self._record_status(position=last.position, head=self._head, delay_ms=self._delay_ms())
        if self.meanwhile and not self._publisher.due_in_s():
            self._publish(now=False)

    def publish(self, *, now: bool) -> None:
        """Publish pending changes, `now` or if it is due. Raises ProjectionError."""
        with self._lock:
            if self._publisher.stale and (now or not self._publisher.due_in_s()):
                self._publish(now=now)

    def close(self) -> None:
        """Publish pending changes, checkpoint DuckDB's log and close the file."""
        try:
            with contextlib.suppress(ProjectionError):  # the previous publication is kept
                self.publish(now=True)
        finally:
            super().close()
            self._publisher.close()
        with contextlib.suppress(OSError):  # on a full disk: it then counts as interrupted
            self._hold.ended()

    def _publish(self, *, now: bool) -> None:
        try:
            snapshot = self._publisher.publish(self._head, now=now)
        except OSError as error:
            raise unwritten(self.path, error) from error
        if snapshot is None:
            return
        self._record_status(published=snapshot.position, published_delay_ms=self._delay_ms())

    def _delay_ms(self) -> float | None:
        """Return the time since the newest message was logged, if there is one."""
        return round(time.time() * 1e3 - self._stamp / 1e6, 3) if self._stamp else None

    def _record_status(self, **changed: object) -> None:
        self._status = msgspec.structs.replace(self._status, **changed)
        try:
            self._hold.record_status(self._status)
        except OSError as error:
            raise unwritten(self.path, error) from error


async def publish_late(store: LiveStore) -> None:
    """Publish deferred changes, forever."""
    while True:
        await asyncio.sleep(LATE_S)
        if store.stale:
            await to_its_end(lambda: store.publish(now=False))


async def to_its_end(work: Callable[[], T]) -> T:
    """Run a function in a thread, and return only when the thread has finished."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    finally:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})


BATCH_EVENTS_MAX = 65_536
"""Most events written at once: about 120 MB of memory and half a second of work. Twice as many cost
a tenth less work, but then reading waits for the first batch and writing for the last.
"""

BEHIND_MIN = 30_000
"""Number of pending commits from which a batch waits until it is full: a commit usually has two or
more events. Otherwise the first batches are small, and cost as much.
"""

BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of bodies written at once, however few events they are."""

PAUSE_S = 0.05
"""Least time between two batches, in seconds: a batch costs about 40 ms however small it is."""

POLL_S = 0.01
"""Pause between two checks of another process's projector, in seconds."""


class Source(Protocol):
    """A source for a projector."""

    async def extent(self) -> Extent:
        """Return the first and the newest position, and how many messages there are."""
        ...

    def chunks(self, after: int = 0, *, until: int | None = None) -> AsyncGenerator[Chunk, None]:
        """Follow every message after a position, undecoded, in order."""
        ...

    async def past(self, stream: StreamId) -> list[Stored]:
        """Return a stream's own commits, by version; unreadable ones are stand-ins."""
        ...


LAG_MAX = 10_000
"""Positions that the tables may lag behind the log before it is logged."""

Moved = Callable[[Batch, int], None]
"""Called after each batch with it and the newest known position of the log."""


def _silent(_batch: Batch, _head: int) -> None:
    return None


async def project(
    source: Source, store: Store, *, until: int | None = None, moved: Moved = _silent
) -> None:
    """Update a store to a position; without one, follow forever.

    If the log is beyond the position and has lost messages before it, it ends with those that
    exist. Cancel it to stop: a batch being written is completed. Held messages of an incomplete
    transaction are left out. Raises OtherLog, Ahead, ProjectionError, BusError.
    """
    await check_same_log(source, store)
    flow = _Flow(source, store, moved)
    reading = asyncio.ensure_future(flow.read(until))
    writing = asyncio.ensure_future(flow.write())
    try:
        await asyncio.wait({reading, writing}, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
            flow.end()
        await writing
    finally:
        for task in (reading, writing):
            task.cancel()
        await asyncio.gather(reading, writing, return_exceptions=True)


async def check_same_log(source: Source, store: Store) -> None:
    """Raise OtherLog unless the log holds the message that the store was last written from, and
    Ahead if it has fewer messages up to there than the store counted.
    """
    known = store.progress
    if not known.position:
        return
    extent = await source.extent()
    last = extent.last
    if last < known.position:
        raise Ahead(store.path, known.position, last, remedy=store.remedy)
    if (gone := extent.gone_since(known)) > 0:
        raise Ahead(store.path, known.position, last, gone, store.remedy)
    async with contextlib.aclosing(
        source.chunks(known.position - 1, until=known.position)
    ) as chunks:
        async for chunk in chunks:
            if [digest(message) for message in chunk.messages] == [known.digest]:
                return
            raise OtherLog(store.path, known.position, store.remedy)
    raise Ahead(store.path, known.position, last, remedy=store.remedy)


class _Flow:
    """One reader and one writer with a bounded queue between them."""

    def __init__(self, source: Source, store: Store, moved: Moved) -> None:
        self._source = source
        self._store = store
        self._moved = moved
        known = store.progress
        integrity = Fold(store.past)
        self._in_full = InFull(source)
        self._rows = Rows(
            known.position, integrity, known.messages, known.chain, in_full=self._in_full
        )
        self._bytes = 0
        self._head = 0
        self._until = 0
        self._ended = False
        self._some = asyncio.Event()
        self._room = asyncio.Event()

    def end(self) -> None:
        """Make the writer write the rest and return."""
        self._ended = True
        self._some.set()

    async def read(self, until: int | None) -> None:
        """Take messages from the log, while there is room."""
        after = self._store.progress.position
        self._until = until if until is not None else sys.maxsize
        async with contextlib.aclosing(self._source.chunks(after, until=until)) as chunks:
            async for chunk in chunks:
                for message in chunk.messages:
                    await self._in_full.ready(message)
                    self._rows.add(message)
                    self._bytes += len(message.body) + self._rows.grown()
                self._head = chunk.head
                self._some.set()
                while self._full():
                    self._room.clear()
                    await self._room.wait()

    def _fills(self) -> bool:
        """Return whether much more is about to arrive, and the next batch has room for it."""
        behind = min(self._head, self._until) - self._rows.position
        return not self._ended and behind > BEHIND_MIN and not self._full()

    def _full(self) -> bool:
        return len(self._rows) >= BATCH_EVENTS_MAX or self._bytes >= BATCH_BYTES_MAX

    async def write(self) -> None:
        """Write the messages taken, one batch after the other."""
        while True:
            await self._some.wait()
            self._some.clear()
            if self._fills():
                continue
            began_s = time.monotonic()
            ended = self._ended  # read before the last messages are taken
            batch, head = self._rows.take(), self._head
            self._bytes = 0
            self._room.set()
            if batch is not None:
                await to_its_end(functools.partial(self._store.write, batch, head))
                self._moved(batch, head)
            if ended:
                return
            if len(self._rows) < BATCH_EVENTS_MAX // 2:
                await asyncio.sleep(max(0.0, PAUSE_S - (time.monotonic() - began_s)))


class _Lag:
    """Logs when the tables fall behind the log by more than the limit, and when they have caught
    up.
    """

    def __init__(self, tables: str, moved: Moved) -> None:
        self._tables = tables
        self._moved = moved
        self._behind = False

    def __call__(self, batch: Batch, head: int) -> None:
        self._moved(batch, head)
        lag = head - batch.position
        if (lag > LAG_MAX) != self._behind:
            self._behind = not self._behind
            text = "projector behind" if self._behind else "projector caught up"
            where = {"tables": self._tables, "position": batch.position}
            _log.info(text, **where, head=head, lag=lag, bound=LAG_MAX)


class Projector:
    """The only projector of a workspace's tables. Created by `open`; close it with `close()`."""

    def __init__(self, source: Source, hold: WriteLock, store: LiveStore) -> None:
        self.store = store
        self._source = source
        self._hold = hold

    @classmethod
    async def open(cls, source: Source, place: TableFiles) -> Projector:
        """Open the tables for writing, as `Store` does. Raises Held, Newer, Unusable."""
        hold, stores = WriteLock(place), list[LiveStore]()
        try:
            await to_its_end(lambda: stores.append(LiveStore(hold)))
        except BaseException:
            try:
                for store in stores:  # the caller was cancelled meanwhile
                    await to_its_end(store.close)
            finally:
                hold.close()
            raise
        return cls(source, hold, stores[0])

    async def run(self, until: int | None = None, moved: Moved = _silent) -> None:
        """Run `project` and publish: after batches if it follows, else at the end."""
        self.store.meanwhile = until is None
        place = self._hold.place
        _log.info("projector began", tables=str(place.path), position=self.store.progress.position)
        moved = _Lag(str(place.path), moved)
        late = asyncio.ensure_future(publish_late(self.store)) if until is None else None
        working = asyncio.ensure_future(project(self._source, self.store, until=until, moved=moved))
        tasks = {working} | ({late} if late is not None else set())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await to_its_end(lambda: self.store.publish(now=True))

    async def close(self) -> None:
        """Publish pending changes, close the tables and release them."""
        try:
            await to_its_end(self.store.close)
        finally:
            self._hold.close()


async def wait_for(place: TableFiles, position: int, timeout_s: float) -> int:
    """Wait until a position is projected, by any process; return its status. Raises Behind."""
    until_s = time.monotonic() + timeout_s
    while True:
        projector = place.status()
        reached = projector.position if projector is not None else 0
        if reached >= position:
            return reached
        if time.monotonic() >= until_s:
            raise Behind(position, reached, timeout_s)
        await asyncio.sleep(POLL_S)


# Rebuilds the tables from the log beside the old ones, and then replaces them.

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
    with write_lock(place) as hold:
        last = (await source.extent()).last
        rebuilt = await _make(source, place, last, progress)
        place.replace()
        hold.interrupted = False
        hold.record_status(ProjectorStatus(os.getpid(), rebuilt.position, last))
        return rebuilt


async def verify(source: Source, place: TableFiles, progress: Progress) -> Rebuilt:
    """Rebuild the tables up to the old ones' position, compare both, and discard the new ones.
    Raises as `rebuild`, Unusable if there are none, Older if another schema made them, Ahead if the
    log does not reach that position.
    """
    if not place.path.exists():
        raise Unusable(place.path, "there is no such file")
    with write_lock(place) as hold:
        store = await asyncio.to_thread(Store, place.path, read_only=True)
        try:
            position = store.progress.position
            await check_same_log(source, store)
            before = await asyncio.to_thread(store.digests)
        finally:
            await asyncio.to_thread(store.close)
        hold.interrupted = False  # they were read completely, and closed
        rebuilt = await _make(source, place, position, progress)
        return msgspec.structs.replace(rebuilt, before=before)


@contextlib.contextmanager
def write_lock(place: TableFiles) -> Generator[WriteLock]:
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
