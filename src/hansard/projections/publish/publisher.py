"""The tables of a running projector: progress is recorded and generations are published."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from hansard.bus.log import RawMessage
from hansard.bus.loggers import logger
from hansard.projections.errors import ProjectionError, Unusable, unwritten
from hansard.projections.publish.snapshots import Publisher, restore
from hansard.projections.rows import Batch
from hansard.projections.store import Store
from hansard.projections.table_files import ProjectorStatus, WriteLock

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
            made = self._publisher.publish(self._head, now=now)
        except OSError as error:
            raise unwritten(self.path, error) from error
        if made is None:
            return
        self._record_status(published=made.position, published_delay_ms=self._delay_ms())

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
