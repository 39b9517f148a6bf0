"""Sharing the projecting of a workspace among the `hansard up` of several machines.

One of them holds the workspace's lease, projects into its own data directory, and copies each
publication to the object store. The others fetch the newest one, so that their readers find it as
if it was made there. Each writes only its own DuckDB file: the lease saves work, and correctness
does not depend on it. Tables at a position follow from the log alone, so a holder that was stopped
and continues can only offer a position that readers have passed.

    <archive>/<workspace>/published/<position>-<number>.json   the description of a publication
    <archive>/<workspace>/published/<sha256>/<part>            its files, in parts of 64 MiB
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import time
from collections.abc import Coroutine
from typing import Any

from hansard.bus import subjects
from hansard.bus.archive import archive_at
from hansard.bus.archive.store import ObjectStore
from hansard.bus.errors import BusError
from hansard.bus.jetstream.client import Broker, BrokerOptions
from hansard.bus.jetstream.direct import Direct, publish
from hansard.bus.jetstream.log import named
from hansard.bus.jetstream.wire import EXPECTED_SEQUENCE, Rejected, block
from hansard.bus.loggers import logger
from hansard.domain.errors import HansardError
from hansard.projections import snapshots
from hansard.projections.errors import Held
from hansard.projections.runner import write_lock
from hansard.projections.table_files import TableFiles, new_file, new_folder, schema_digest

LEASE_S = 30.0
"""Time without a renewal after which another process takes the lease, in seconds: more than a
request to the store may take. Each measures it by its own clock, from the last renewal it saw.
"""

RENEW_S = 3.0
"""Seconds between two renewals, and between two copies or fetches of a publication."""

REST = 5
"""A copy waits this many times the duration of the last one: a large file is copied whole."""

KEPT = 3
"""Publications that are kept in the object store: one may be in the middle of being fetched."""

PART_BYTES = 64 * 1024 * 1024

_log = logger(__name__)


class Lease:
    """The right to project a workspace: the newest message on one subject of its snapshots' stream,
    written with the position of the one before as a condition. Each region has one: the stream of a
    copy listens on one subject of its region alone, until a promotion.
    """

    def __init__(self, broker: Broker, workspace: str) -> None:
        self.is_mine = False
        self._direct = Direct(broker)
        self._stream, self._subject = subjects.snapshot_stream(workspace), ""
        self._workspace = workspace
        self._owner = f"{socket.gethostname()}:{os.getpid()}".encode()
        self._seen, self._seen_s = -1, 0.0

    async def renew(self) -> bool:
        """Renew the lease, or take it if nobody renews it; return whether this process has it.

        Raises BusError: then nothing is known, and a holder stays one.
        """
        now_s = time.monotonic()
        self._direct = Direct(self._direct.broker)  # a promotion empties the stream
        (has,) = (await self._direct.info(self._stream))["config"]["subjects"]
        is_copy = subjects.is_name(has)
        self._subject = has if is_copy else subjects.lease_subject(self._workspace)
        message = await self._direct.last(self._stream, self._subject)
        position = message.position if message is not None else 0
        if position != self._seen:
            self._seen, self._seen_s, self.is_mine = position, now_s, False
        is_free = message is None or not message.body or now_s - self._seen_s >= LEASE_S
        if self.is_mine or is_free:
            self.is_mine = await self._write(self._owner)
        return self.is_mine

    async def release(self) -> None:
        """Leave the lease to another process, if this one has it."""
        with contextlib.suppress(BusError):
            if self.is_mine:
                await self._write(b"")

    async def _write(self, owner: bytes) -> bool:
        condition = block({EXPECTED_SEQUENCE: str(self._seen)})
        known = self._direct.known.of(self._stream)
        try:
            ack = await publish(self._direct.broker, self._subject, owner, condition, known)
        except Rejected:
            return False
        self._seen, self._seen_s = ack.seq, time.monotonic()
        return True


class Sharing:
    """One process's part in the projecting of a workspace."""

    def __init__(
        self, broker: Broker, lease: Lease, workspace: str, store: ObjectStore, place: TableFiles
    ) -> None:
        self._broker = broker
        self._lease = lease
        self._store = store
        self._folder = f"{workspace}/published"
        self._place = place
        self._copied = ""
        """Name of the newest description, once it is known to be of this version."""

    @classmethod
    async def open(
        cls, options: BrokerOptions, workspace: str, archive: str, place: TableFiles
    ) -> Sharing:
        """Connect to the broker. Raises BusError, BadArchive, ExtraMissing."""
        store = archive_at(workspace, archive).tiers.store  # first: a bad address leaves nothing
        broker = await Broker.open(named(options, "lease"))
        return cls(broker, Lease(broker, workspace), workspace, store, place)

    async def wait(self) -> None:
        """Hold the tables of this machine, and fetch publications, until this process has the
        lease; then continue from the newest. Raises BusError.
        """
        while True:
            try:
                with write_lock(self._place):
                    while not await self._renewed():
                        await self._tolerate(self._fetch())
                        await asyncio.sleep(RENEW_S)
                    await self._tolerate(self._fetch())
                    current, tables = snapshots.newest(self._place), self._place.status()
                    if current and (tables is None or tables.position < current.position):
                        await asyncio.to_thread(snapshots.restore, self._place)
                    return
            except Held:  # another process of this machine does it
                await asyncio.sleep(RENEW_S)

    async def run(self, projecting: Coroutine[Any, Any, None]) -> None:
        """Project, and copy each publication, until another process has the lease."""
        working, due_s = asyncio.ensure_future(projecting), 0.0
        try:
            while not working.done() and await self._renewed():
                began_s = time.monotonic()
                if began_s >= due_s:
                    await self._tolerate(self._copy())
                    due_s = time.monotonic() + REST * (time.monotonic() - began_s)
                await asyncio.wait({working}, timeout=RENEW_S)
        finally:
            working.cancel()
            [result] = await asyncio.gather(working, return_exceptions=True)
        if isinstance(result, Exception):
            raise result

    async def close(self) -> None:
        """Leave the lease, and disconnect."""
        await self._lease.release()
        await self._broker.close()

    async def _renewed(self) -> bool:
        with contextlib.suppress(BusError):
            return await self._lease.renew()
        return self._lease.is_mine

    async def _tolerate(self, work: Coroutine[Any, Any, str | None]) -> None:
        """Log an obstacle: readers keep the publication that they have."""
        try:
            obstacle = await work
        except (HansardError, OSError) as error:
            obstacle = str(error)
        if obstacle is not None:
            _log.warning("publication not shared", tables=str(self._place.path), why=obstacle)

    async def _copy(self) -> None:
        """Copy the newest publication to the store, unless it is there; remove older ones."""
        there = await self._descriptions()
        with snapshots.holding(self._place) as current:
            if current is None or (there and await self._is_copied(current, there[-1])):
                return
            for name, digest in current.files.items():
                with (current.folder / name).open("rb") as file:
                    number = 0
                    while part := await asyncio.to_thread(file.read, PART_BYTES):
                        object_name = f"{self._folder}/{digest}/{number}"
                        if await self._store.size(object_name) is None:
                            await self._store.create(object_name, part)
                        await self._renewed()
                        number += 1
            content = (current.folder / snapshots.GENERATION_FILE).read_bytes()
            # After the newest one, also if that has this position, by the clock of another machine.
            stamp = max(time.time_ns(), _stamp(there[-1]) + 1 if there else 0)
            name = f"{self._folder}/{current.position:020}-{stamp}.json"
            await self._store.create(name, content)
        there.append(name)
        if not await self._renewed():
            return  # the next holder may be copying now
        kept = {digest for each in there[-KEPT:] for digest in await self._digests(each)}
        for object_name in await self._store.names(self._folder):
            # Parts that no description names are of a copy that was killed.
            is_part = not object_name.endswith(".json")
            if object_name in there[:-KEPT] or (is_part and object_name.split("/")[-2] not in kept):
                await self._store.delete(object_name)

    async def _is_copied(self, current: snapshots.PublishedSnapshot, newest: str) -> bool:
        """Return whether the newest publication in the store makes a copy useless: it has a later
        position, or the same one and the tables of this version.
        """
        if _position(newest) != current.position:
            return _position(newest) > current.position
        if newest != self._copied:
            content = await self._store.get(newest) or b""
            snapshot = snapshots.described(content, self._place.published)
            if snapshot is None or snapshot.schema != current.schema:
                return False
            self._copied = newest
        return True

    async def _fetch(self) -> str | None:
        """Fetch the newest publication, if it is newer than the one that is here; return its
        damage. The caller holds the tables.
        """
        there = await self._descriptions()
        current = snapshots.newest(self._place)
        if not there or (current is not None and current.position >= _position(there[-1])):
            return None
        content = await self._store.get(there[-1]) or b""
        part = self._place.published / ".fetched"
        snapshot = snapshots.described(content, part)
        if snapshot is None or snapshot.schema != schema_digest():
            return None  # of another version: that one, or this one, is upgraded next
        shutil.rmtree(part, ignore_errors=True)
        new_folder(part)
        for name, digest in snapshot.files.items():
            with new_file(part / name) as file:
                number = 0
                while data := await self._store.get(f"{self._folder}/{digest}/{number}"):
                    file.write(data)
                    number += 1
        return await asyncio.to_thread(snapshots.adopt, self._place, content, part)

    async def _descriptions(self) -> list[str]:
        """Return the names of all descriptions, by position."""
        names = await self._store.names(self._folder)
        return sorted(name for name in names if name.endswith(".json"))

    async def _digests(self, name: str) -> set[str]:
        """Return the digests of the files of a publication."""
        snapshot = snapshots.described(await self._store.get(name) or b"", self._place.published)
        return {*snapshot.files.values()} if snapshot is not None else set()


def _position(name: str) -> int:
    return int(name.rpartition("/")[2].partition("-")[0])


def _stamp(name: str) -> int:
    return int(name.rpartition("-")[2].removesuffix(".json"))
