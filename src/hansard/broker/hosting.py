"""The embedded server from a program's view: whether it runs, and any obstacle.

The supervisor keeps a server running and reports obstacles. The program does the rest: it starts
another supervisor if that was killed together with its server, and checks at each write that the
server's files are still in place.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path

from hansard.broker.files import Durability, ServerFiles
from hansard.broker.lease import Lease, hindrance, join
from hansard.bus import errors
from hansard.bus.errors import NotWritable, StoreGone
from hansard.bus.loggers import logger

ENDING_S = 5.0
ENDING_POLL_S = 0.1
"""Timeout and poll interval, in seconds, for the end of a server whose files were deleted: its
supervisor checks every second.
"""

_log = logger(__name__)


async def join_in_thread(data_dir: Path, durability: Durability | None = None) -> Lease:
    """Join as `hansard.broker.lease.join`, in a thread. Raises the same errors.

    On cancellation it returns at once. The thread continues for as long as a start may take, and
    closes the lease that it gets by itself, since the loop may be closed already.
    """
    answers: list[Lease] = []
    given_up = threading.Event()

    def joining() -> Lease:
        lease = join(data_dir, durability)
        answers.append(lease)
        if given_up.is_set():
            lease.close()
        return lease

    try:
        return await asyncio.to_thread(joining)
    except BaseException:
        given_up.set()  # first, so that at least one of the two sees the other's result
        for lease in answers:
            lease.close()
        raise


class Host:
    """One program's use of the embedded server. Created by `open`; ended by `close()`.

    Used on one event loop.
    """

    def __init__(self, place: ServerFiles, lease: Lease) -> None:
        self.info = lease.info
        self._place = place
        self._lease = lease
        self._anchors = errors.Anchors()
        self._folders: dict[str, str] = {}
        self._joining = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, data_dir: Path, durability: Durability | None) -> Host:
        """Start the server or join it. Raises as `hansard.broker.lease.join`."""
        place = ServerFiles(Path(os.path.realpath(data_dir)))  # noqa: ASYNC240 -- as `join` does, once
        until_s = time.monotonic() + ENDING_S
        lease = await join_in_thread(place.root, durability)
        while not place.store.is_dir() and time.monotonic() < until_s:
            lease.close()  # its files were deleted: its supervisor notices that too, and ends it
            await asyncio.sleep(ENDING_POLL_S)
            lease = await join_in_thread(place.root, durability)
        host = cls(place, lease)
        try:
            host._anchors.hold(place.root)
        except OSError as error:
            host.close()
            raise NotWritable(place.root, error) from error
        return host

    def hold(self, stream: str) -> None:
        """Sync a stream's metadata before its first write; from now on `check` compares the
        location of its files with the current one.

        Raises StoreGone if they are already missing, NotWritable if the disk fails.
        """
        folder = self._place.stream(stream)
        try:
            self._anchors.hold(folder)
            self._place.sync_metadata(stream)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreGone(self._place.root, f"{str(folder)!r} was deleted or moved") from error
        except OSError as error:
            raise NotWritable(self._place.root, error) from error

    def check(self, stream: str) -> None:
        """Raise StoreGone unless the server's files are in place. Called after each write, since a
        server still acknowledges after its files were deleted. Raises NotWritable if the disk
        fails.
        """
        try:
            folder = self._folders.get(stream)
            if folder is None:
                folder = self._folders[stream] = str(self._place.stream(stream))
            lost = self._anchors.lost(folder)
        except OSError as error:
            raise NotWritable(self._place.root, error) from error
        if lost is not None:
            raise StoreGone(self._place.root, lost)

    def obstacle(self) -> NotWritable | StoreGone | None:
        """Return the current obstacle of the server, if one is known."""
        try:
            lost = self._anchors.lost()
            if lost is not None:
                return StoreGone(self._place.root, lost)
        except OSError as error:
            return NotWritable(self._place.root, error)
        return hindrance(self._place.root)

    def look(self) -> NotWritable | None:
        """Check the disk itself. The server may be blocked by it without reporting it: it answers
        that a batch is incomplete if it could not create the files.
        """
        try:
            errors.look(self._place.root)
        except OSError as error:
            return NotWritable(self._place.root, error)
        return None

    async def heal(self) -> str:
        """Return the URL of the server; start another one if no supervisor keeps it running.

        Raises StoreGone, ServerError, NotWritable.
        """
        async with self._joining:
            obstacle = self.obstacle()
            if isinstance(obstacle, StoreGone):
                raise obstacle  # another record is there now
            if self._closed or self._lease.supervised:
                with contextlib.suppress(OSError):
                    self.info = self._place.read_state() or self.info
                return self.info.url
            _log.warning("the broker is started again", data_dir=str(self._place.root))
            lease = await join_in_thread(self._place.root, self.info.durability)
            self._take(lease)
            return lease.info.url

    def _take(self, lease: Lease) -> None:
        """Use that server from now on, unless this host was closed meanwhile."""
        if self._closed:
            lease.close()
        else:
            self._lease.close()
            self._lease, self.info = lease, lease.info

    def close(self) -> None:
        """Stop using the server. Idempotent."""
        self._closed = True
        self._lease.close()
        self._anchors.close()
