"""The tables of a projector that runs: what it writes is told and published."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from hansard.bus.loggers import logger
from hansard.bus.validation.check import RawMessage
from hansard.projections.errors import ProjectionError, Unusable, unwritten
from hansard.projections.publish.snapshots import Publisher, restore
from hansard.projections.rows import Batch
from hansard.projections.store import Store
from hansard.projections.table_files import ProjectorStatus, WriteLock

T = TypeVar("T")

_log = logger(__name__)

LATE_S = 0.02
"""Pause between two looks whether something waits to be published."""


class LiveStore(Store):
    """A store that publishes what is written into it, in the thread that writes, and says in the
    lock file how far it is: both, since both may be behind.
    """

    def __init__(self, hold: WriteLock) -> None:
        """Open the tables that are held. Raises Unusable, Newer.

        DuckDB writes some of a file's blocks over: killed just then, it leaves a file that it does
        not open any more. Such tables begin again at what was published last.
        """
        try:
            super().__init__(hold.place.path)
        except Unusable as torn:
            if not hold.interrupted or type(torn) is not Unusable:
                raise
            position = restore(hold.place)
            hold.tell(ProjectorStatus(os.getpid(), position, position))
            _log.warning("tables_torn_by_a_kill", path=str(hold.place.path), begins_at=position)
            super().__init__(hold.place.path)
        self._hold = hold
        self._head = 0
        self._stamp = 0
        self._lock = threading.Lock()
        self.meanwhile = True
        """Whether to publish after batches; at the end of the work it is done anyway."""
        try:
            self._publisher = Publisher(hold.place, self)
        except BaseException as error:
            super().close()
            if isinstance(error, OSError):
                raise unwritten(self.path, error) from error
            raise
        position, published = self.progress.position, self._publisher.position
        self._standing = ProjectorStatus(
            os.getpid(), position, position, published=max(0, published)
        )

    @property
    def stale(self) -> bool:
        """Whether more is written than published."""
        return self._publisher.stale

    def write(self, batch: Batch, head: int) -> None:
        """As Store.write, and publish it if that is due."""
        with self._lock:
            super().write(batch, head)

    def _reached(self, last: RawMessage, head: int) -> None:
        self._head, self._stamp = max(head, last.position), last.stamp
        self._tell(position=last.position, head=self._head, delay_ms=self._delay_ms())
        if self.meanwhile and not self._publisher.due_in_s():
            self._publish(now=False)

    def publish(self, *, now: bool) -> None:
        """Publish what is not, `now` or if it is due. Raises ProjectionError."""
        with self._lock:
            if self._publisher.stale and (now or not self._publisher.due_in_s()):
                self._publish(now=now)

    def close(self) -> None:
        """Publish what is not, work DuckDB's log into the file and close it."""
        try:
            with contextlib.suppress(ProjectionError):  # what was published before stands
                self.publish(now=True)
        finally:
            super().close()
            self._publisher.close()
        with contextlib.suppress(OSError):  # on a full disk: then it counts as not ended
            self._hold.ended()

    def _publish(self, *, now: bool) -> None:
        try:
            made = self._publisher.publish(self._head, now=now)
        except OSError as error:
            raise unwritten(self.path, error) from error
        if made is None:
            return
        self._tell(published=made.position, published_delay_ms=self._delay_ms())

    def _delay_ms(self) -> float | None:
        """Since the newest message was logged, if one was."""
        return round(time.time() * 1e3 - self._stamp / 1e6, 3) if self._stamp else None

    def _tell(self, **changed: object) -> None:
        self._standing = msgspec.structs.replace(self._standing, **changed)
        try:
            self._hold.tell(self._standing)
        except OSError as error:
            raise unwritten(self.path, error) from error


async def publish_late(store: LiveStore) -> None:
    """For ever: publish what was not due when it was written."""
    while True:
        await asyncio.sleep(LATE_S)
        if store.stale:
            await to_its_end(lambda: store.publish(now=False))


async def to_its_end(work: Callable[[], T]) -> T:
    """Do something in a thread, and do not leave before the thread does."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    finally:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})
