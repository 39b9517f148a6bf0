"""Reading the archive: parts of segments through two caches, memory (L1) and disk (L2).

L1 has decoded parts, bounded in bytes, for an hour each; L2 has the bytes of parts, in one sparse
file for each segment, bounded and for a day. Both drop what was used least recently. Every part is
compared with its digest whenever it is read: a damaged file of L2 is read again from the store.

Beside L2 the disk keeps what a writer needs while the store is away: manifests and footers, about
0.3 % of the segments' bytes, without a bound, and pages of the index in a quarter of L2's bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from cachetools import TTLCache

from hansard.bus.archive.segment import (
    MESSAGE_BYTES,
    Footer,
    Frame,
    Manifest,
    Part,
    Places,
    StreamIndex,
    decode_footer,
    digest,
    frame_of,
    manifest_of,
    unpack,
)
from hansard.bus.archive.store import REQUEST_S, ObjectStore
from hansard.bus.errors import ArchiveUnavailable
from hansard.bus.file_lock import replace_private
from hansard.bus.loggers import logger
from hansard.domain.errors import Corrupt

MEMORY_S = 3_600.0
"""Lifetime of decoded parts in L1, in seconds."""

DISK_S = 86_400.0
"""Time after which a segment that was not used leaves L2, in seconds."""

SWEEP_S = 60.0
"""Time between two checks of the bounds of L2, in seconds; also after each 32 MB written."""

SWEEP_BYTES = 32 * 1024 * 1024

GAP_BYTES_MAX = 64 * 1024
"""Parts with so many bytes between them are requested as one."""

RANGE_BYTES_MAX = 8 * 1024 * 1024
"""Most bytes of one range."""

NOTHING = "it has no object of this workspace"
MOUNT = "mount or restore it there, or correct HANSARD_ARCHIVE, then try again"

_places = msgspec.msgpack.Decoder(Places)
_page = msgspec.msgpack.Decoder(list[StreamIndex])
_log = logger(__name__)

T = TypeVar("T")


class TierFigures(msgspec.Struct):
    """The use of one tier since the process began; `oldest_s` is the age of its oldest content."""

    bytes: int = 0
    bytes_max: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    oldest_s: float = 0.0


class Tiers:
    """The store of an archive and its two caches, for all logs of a process; from any thread."""

    def __init__(self, store: ObjectStore, cache: Path, memory_bytes: int, disk_bytes: int) -> None:
        """`cache` is the folder of L2, which other processes may share."""
        self.store = store
        self.memory = _Memory(memory_bytes)
        self.known_at = cache / "index" / digest(store.url.encode()).hex()
        """The folder of manifests, by workspace."""
        self.disk = _Disk(cache, disk_bytes - disk_bytes // 4, DISK_S)
        self._pages = _Disk(cache / "index" / "pages", disk_bytes // 4)
        self._footers = _Disk(cache / "index" / "footers")
        self.fetched = TierFigures()
        self._fetches: dict[Hashable, asyncio.Task[dict[int, bytes]]] = {}

    def known(self, workspace: str) -> list[Manifest]:
        """Return the manifests that this machine has read before: they never change."""
        manifests: list[Manifest] = []
        for path in (self.known_at / workspace).glob("*.json"):
            with contextlib.suppress(OSError, Corrupt):
                manifests.append(manifest_of(path.read_bytes(), path.name))
        return manifests

    async def demand_any(self, workspace: str) -> None:
        """Raise ArchiveUnavailable if the store has no object of a workspace: a disk that is not
        mounted, or an emptied bucket, is no damage. Nothing of it is remembered.
        """
        if not await self.store.names(workspace):
            raise ArchiveUnavailable(self.store.url, "read", workspace, NOTHING, MOUNT)

    async def manifest(self, name: str, *, index: bool = False) -> Manifest:
        """Read a manifest from the store, and keep it on the disk with the footer of its segment: a
        new stream can then be begun while the store is away, since they show that the segment does
        not have it. With the `index`, streams in the segment can be continued. Raises
        ArchiveUnavailable, Corrupt.
        """
        body = await self.store.get(name)
        manifest = manifest_of(body, name)
        path = self.known_at / manifest.workspace / f"{manifest.first:020d}.json"
        with self._footers.warning():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_private(path, body or b"")
        footer = await self.footer(manifest)
        if index and footer.pages:
            await self._bytes(manifest, [each.part for each in footer.pages], self._pages)
        return manifest

    async def footer(self, segment: Manifest) -> Footer:
        """Return the footer of a segment."""
        decode = partial(decode_footer, where=f"archive object {segment.object!r}")
        return (await self._decoded(segment, [segment.footer_part], decode, self._footers))[0]

    async def frames(
        self, segment: Manifest, frames: Sequence[Part], *, keep: bool = True
    ) -> list[Frame]:
        """Return some frames; they enter the caches unless a whole segment is read (`keep`)."""
        return await self._decoded(segment, frames, frame_of, self.disk if keep else None)

    async def places(self, segment: Manifest, part: Part) -> Places:
        """Return the places of a block."""
        return (await self._decoded(segment, [part], _places.decode, self.disk))[0]

    async def pages(self, segment: Manifest, pages: Sequence[Part]) -> list[list[StreamIndex]]:
        """Return some pages of the index."""
        return await self._decoded(segment, pages, _page.decode, self._pages)

    async def _decoded(
        self,
        segment: Manifest,
        parts: Sequence[Part],
        decode: Callable[[bytes], T],
        disk: _Disk | None,
    ) -> list[T]:
        """Return decoded parts of a segment, from the nearest tier that has each; they are kept
        there, unless `disk` is None.
        """
        contents: dict[int, T] = {}
        missing: list[Part] = []
        for part in parts:
            content = self.memory.get((segment.object, part.offset))
            if content is None:
                missing.append(part)
            else:
                contents[part.offset] = cast("T", content)
        if missing:
            sound = await self._bytes(segment, missing, disk)
            for part in missing:
                content = contents[part.offset] = decode(unpack(sound[part.offset]))
                if disk is not None:
                    self.memory.put((segment.object, part.offset), content, _size(content, part))
        return [contents[part.offset] for part in parts]

    async def _bytes(
        self, segment: Manifest, parts: Sequence[Part], disk: _Disk | None
    ) -> dict[int, bytes]:
        """Return the bytes of parts, from the disk or the store; an equal request of another reader
        is shared.
        """
        sound = (disk or self.disk).read(segment, parts)
        missing = [part for part in parts if part.offset not in sound]
        if not missing:
            return sound
        loop = id(asyncio.get_running_loop())
        key = (loop, segment.object, disk is None, *(part.offset for part in missing))
        task = self._fetches.get(key)
        if task is None:
            task = asyncio.create_task(self._fetch(segment, missing, disk))
            self._fetches[key] = task
            task.add_done_callback(lambda _: self._fetches.pop(key))
        return sound | await asyncio.shield(task)

    async def _fetch(
        self, segment: Manifest, parts: Sequence[Part], disk: _Disk | None
    ) -> dict[int, bytes]:
        """Fetch parts from the store, and keep them on the disk. Raises ArchiveUnavailable,
        Corrupt.
        """
        where = f"archive object {segment.object!r}"
        ranges, began_s = _joined(parts), time.monotonic()
        try:
            bodies = await self.store.ranges(segment.object, ranges)
        except ArchiveUnavailable:
            if time.monotonic() - began_s >= REQUEST_S:
                raise  # another wait would be as long; that an object is short is answered at once
            size = await self.store.size(segment.object)
            if size is None or size >= segment.size:
                raise
            fact = f"it has {size:,} bytes, not {segment.size:,}: restore it from a copy"
            raise Corrupt(where, fact) from None
        if bodies is None:
            await self.demand_any(segment.workspace)
            remedy = "it was deleted from the store: restore it there"
            raise Corrupt(where, f"it does not exist; {remedy}")
        self.fetched.hits += len(ranges)
        self.fetched.bytes += sum(map(len, bodies))
        sound: dict[int, bytes] = {}
        for part in parts:
            (start, _), body = next(
                (each, body)
                for each, body in zip(ranges, bodies, strict=True)
                if each[0] <= part.offset < each[0] + each[1]
            )
            data = body[part.offset - start : part.offset - start + part.size]
            if not part.check(data):
                short = f", and only {len(data):,} are there" if len(data) < part.size else ""
                fact = (
                    f"{part.size:,} bytes from {part.offset:,} on are not those written{short}: "
                    "restore the object from a copy of the store"
                )
                raise Corrupt(where, fact)
            sound[part.offset] = data
        if disk is not None:
            disk.write(segment, sound)
        return sound

    def figures(self) -> dict[str, TierFigures]:
        """Return the use of the tiers: `L1`, `L2`, and `L3` (bytes and requests from the store)."""
        return {"L1": self.memory.figures(), "L2": self.disk.figures(), "L3": self.fetched}


def _joined(parts: Sequence[Part]) -> list[tuple[int, int]]:
    """Return the ranges to request for parts: those near to each other as one."""
    ranges: list[tuple[int, int]] = []
    for part in sorted(parts, key=lambda each: each.offset):
        if ranges:
            start, size = ranges[-1]
            whole = part.offset + part.size - start
            if part.offset - (start + size) <= GAP_BYTES_MAX and whole <= RANGE_BYTES_MAX:
                ranges[-1] = (start, max(size, whole))
                continue
        ranges.append((part.offset, part.size))
    return ranges


def _size(content: object, part: Part) -> int:
    """Return about how many bytes decoded content takes in memory."""
    match content:
        case dict():
            frame = cast("Frame", content)
            messages = itertools.chain.from_iterable(frame.values())
            return sum(len(message.body) + MESSAGE_BYTES for message in messages)
        case [StreamIndex(), *_]:
            streams = cast("list[StreamIndex]", content)
            return sum(400 + 40 * len(stream.versions) for stream in streams)
        case Places(stamps=stamps):
            return 44 * len(stamps)
        case Footer() as footer:
            return 250 * (len(footer.frames) + len(footer.blocks) + len(footer.pages)) + len(
                footer.runs
            )
        case _:
            return 4 * part.size


class _Memory:
    """L1."""

    def __init__(self, bytes_max: int) -> None:
        self._lock = threading.Lock()
        self._figures = TierFigures(bytes_max=bytes_max)
        self._cache = _Counting(bytes_max, self._figures)

    def get(self, key: Hashable) -> object | None:
        with self._lock:
            entry = self._cache.get(key)
            if entry is None:
                self._figures.misses += 1
                return None
            self._figures.hits += 1
            return cast("object", entry[0])

    def put(self, key: Hashable, content: object, size: int) -> None:
        """Keep content; not if it is larger than the whole tier."""
        with self._lock, contextlib.suppress(ValueError):
            self._cache[key] = (content, size, time.monotonic())

    def figures(self) -> TierFigures:
        with self._lock:
            self._cache.expire()
            oldest = min((entry[2] for entry in self._cache.values()), default=time.monotonic())
            return msgspec.structs.replace(
                self._figures, bytes=int(self._cache.currsize), oldest_s=time.monotonic() - oldest
            )


class _Counting(TTLCache[Any, Any]):
    """An LRU cache with a lifetime that counts evictions."""

    def __init__(self, bytes_max: int, figures: TierFigures) -> None:
        super().__init__(bytes_max, MEMORY_S, getsizeof=lambda entry: entry[1])
        self._of = figures

    def popitem(self) -> tuple[Any, Any]:
        self._of.evictions += 1
        return super().popitem()


class _Disk:
    """Parts of segments, each at its own offset in a sparse file, within a bound of bytes and of
    time without a use.
    """

    def __init__(
        self, folder: Path, bytes_max: int = sys.maxsize, unused_s: float = math.inf
    ) -> None:
        self._folder = folder
        self._max = bytes_max
        self._unused_s = unused_s
        self._figures = TierFigures(bytes_max=bytes_max)
        self._lock = threading.Lock()
        self._swept_s = 0.0
        self._written = 0
        self._warned = False

    def read(self, segment: Manifest, parts: Sequence[Part]) -> dict[int, bytes]:
        """Return the parts that the file has, by offset."""
        sound: dict[int, bytes] = {}
        with self.warning(), contextlib.suppress(FileNotFoundError):
            fd = os.open(self._path(segment), os.O_RDONLY | os.O_CLOEXEC)
            try:
                for part in parts:
                    data = os.pread(fd, part.size, part.offset)
                    if part.check(data):
                        sound[part.offset] = data
                if sound:
                    os.utime(fd)
            finally:
                os.close(fd)
        missing = sum(part.offset not in sound for part in parts)
        self._figures.hits += len(parts) - missing
        self._figures.misses += missing
        return sound

    def write(self, segment: Manifest, parts: Mapping[int, bytes]) -> None:
        """Keep parts; a disk that refuses them is logged, and costs time only."""
        if not self._max:
            return
        with self.warning():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(self._path(segment), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                for offset, data in parts.items():
                    os.pwrite(fd, data, offset)
            finally:
                os.close(fd)
            self._written += sum(map(len, parts.values()))
            self._sweep()

    def figures(self) -> TierFigures:
        files = self._files()
        oldest = min((used for used, _, _ in files), default=time.time())
        return msgspec.structs.replace(
            self._figures,
            bytes=sum(size for _, size, _ in files),
            oldest_s=max(0.0, time.time() - oldest),
        )

    def _sweep(self) -> None:
        """Delete the files used least recently beyond the bounds."""
        now = time.monotonic()
        with self._lock:
            if now - self._swept_s < SWEEP_S and self._written < min(SWEEP_BYTES, self._max // 8):
                return
            self._swept_s, self._written = now, 0
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        for used, size, path in files:
            if held <= self._max and time.time() - used < self._unused_s:
                break
            path.unlink(missing_ok=True)
            self._figures.evictions += 1
            held -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """Return the files with the time of their last use and the bytes that they take."""
        files: list[tuple[float, int, Path]] = []
        with contextlib.suppress(FileNotFoundError):
            for path in self._folder.glob("*.segment"):
                with contextlib.suppress(FileNotFoundError):
                    stat = path.stat()
                    files.append((stat.st_mtime, stat.st_blocks * 512, path))
        return files

    def _path(self, segment: Manifest) -> Path:
        return self._folder / f"{segment.sha256}.segment"

    @contextlib.contextmanager
    def warning(self) -> Iterator[None]:
        """Log a disk that refuses a file once: it costs time only."""
        try:
            yield
        except OSError as error:
            if not self._warned:
                self._warned = True
                _log.warning("the cache of the archive is not used", why=str(error))
