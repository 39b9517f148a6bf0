"""Published generations: the tables as they were at a position, in immutable files.

DuckDB lets one process write and then no other read, so the projector publishes:

    <data dir>/projections/published/<workspace>/base-<n>.duckdb
                                                     the tables after a checkpoint
    .../gen-<position>-<n>/tables.duckdb             a link to the base
    .../gen-<position>-<n>/tables.duckdb.wal         DuckDB's log since, up to a commit
    .../gen-<position>-<n>/generation.json           its description: see _Generation

A read-only open replays the log in memory (25 ms a MiB), so a publication copies little and shares
the base. A new base is made once the log has grown: after a checkpoint, while batches continue to
be written, since they go into the log. If the tables' own file was changed meanwhile (by a
checkpoint of DuckDB's, or a large batch), which its modification time shows, another base is made
while nothing is written. A complete generation gets its name by one rename. Readers hold a shared
flock on the folder; old generations without readers are removed.

`generation.json` has the SHA-256 of both files, and of itself: `damage`, which `hansard check`
calls, finds any flipped bit. A reader relies on DuckDB's own checksums, one per block.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from hansard.bus.file_lock import PRIVATE_DIR, PRIVATE_FILE, take
from hansard.projections.errors import Behind, ProjectionError
from hansard.projections.table_files import (
    COPY_BYTES,
    TableFiles,
    away,
    copied,
    new_file,
    new_folder,
    schema_digest,
    wal,
)

if TYPE_CHECKING:
    from hansard.projections.store import Progress, Store

TABLES = "tables.duckdb"
"""The database in a generation's folder."""

GENERATION_FILE = "generation.json"

LOG_BYTES_MAX = 1_250_000
"""Size of DuckDB's log, in bytes, from which a new base is made: replaying it costs a reader 30 ms.
"""

LOG_BYTES_LIMIT = 24 * 1024 * 1024
"""Size of DuckDB's log, in bytes, at which a new base is made at once: a reader would wait for half
a second.
"""

BASE_REST = 20
"""A new base waits this many times the duration of the last one: a checkpoint and a copy of the
file, about 50 ms at 50 MiB, in which no batch is written.
"""

REST = 2
"""The same for a publication without a new base: some milliseconds."""

TICK_S = 0.01
"""Resolution of a file's modification time: a change shortly after another may not be visible in
it.
"""

TICK_LOOKS_MAX = 8

TRIES_MAX = 100

POLL_S = 0.005
"""Pause between two checks for a publication, in seconds."""


class PublishedSnapshot(msgspec.Struct, frozen=True):
    """The published tables at a position.

    `head` is the newest position of the log as then known; `schema` is the digest of their schema;
    `messages` and `chain` are as in Progress; `files` has the SHA-256 of each file, by its name.
    """

    folder: Path
    position: int
    head: int
    digest: str
    schema: str
    messages: int = 0
    chain: str | None = None
    files: dict[str, str] = {}

    @property
    def path(self) -> Path:
        """The database: open it read-only."""
        return self.folder / TABLES


class _Generation(msgspec.Struct, frozen=True, omit_defaults=True):
    position: int
    head: int
    digest: str
    schema: str
    messages: int
    chain: str | None
    files: dict[str, str]
    """SHA-256 of each file, by its name."""

    own: str = ""
    """SHA-256 of this object's JSON without this field."""

    @property
    def sealed(self) -> _Generation:
        """The same with its own digest."""
        bare = msgspec.structs.replace(self, own="")
        own = hashlib.sha256(msgspec.json.encode(bare)).hexdigest()
        return msgspec.structs.replace(bare, own=own)

    def generation(self, folder: Path) -> PublishedSnapshot:
        """Return the published tables in the folder where this was read."""
        *fields, _own = msgspec.structs.astuple(self)
        return PublishedSnapshot(folder, *fields)


def newest(place: TableFiles) -> PublishedSnapshot | None:
    """Return the newest complete generation that this version can read; None if there is none."""
    for _, folder in sorted(_folders(place), reverse=True):
        snapshot = _read(folder)
        if snapshot is not None and snapshot.schema == schema_digest():
            return snapshot
    return None


def damage(generation: PublishedSnapshot) -> str | None:
    """Read a whole generation, and describe its damage; None if there is none."""
    description = _read(generation.folder)
    if description is None:
        return f"'{generation.folder / GENERATION_FILE}' is not what was published"
    for name, digest in description.files.items():
        path = generation.folder / name
        try:
            with path.open("rb") as file:
                actual = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            return f"'{path}' cannot be read ({error.strerror})"
        if actual != digest:
            return f"'{path}' is not what was published: its bytes changed on the disk"
    return None


def described(content: bytes, folder: Path) -> PublishedSnapshot | None:
    """Return the publication that a `generation.json` describes; None if it is damaged."""
    with contextlib.suppress(msgspec.DecodeError):
        fields = msgspec.json.decode(content, type=_Generation)
        if msgspec.json.encode(fields.sealed) == content:
            return fields.generation(folder)
    return None


def adopt(place: TableFiles, content: bytes, part: Path) -> str | None:
    """Publish files that another machine published, from a hidden folder, and remove older ones;
    return their damage, if they are not what was published there. The caller holds the tables.
    """
    (part / GENERATION_FILE).write_bytes(content)
    snapshot = described(content, part)
    if snapshot is None or (fact := damage(snapshot)) is not None:
        return fact if snapshot is not None else "its description is damaged"
    folder = place.published / f"gen-{snapshot.position}-{time.time_ns()}"
    part.rename(folder)
    _sweep(place, folder)
    return None


def unreadable(place: TableFiles) -> list[Path]:
    """Return generations whose `generation.json` is damaged; they are never used."""
    damaged = [folder for _, folder in _folders(place) if _read(folder) is None]
    return [folder for folder in damaged if folder.exists()]  # others were removed meanwhile


@contextlib.contextmanager
def holding(place: TableFiles) -> Generator[PublishedSnapshot | None]:
    """Hold the newest generation, so that it is not removed meanwhile."""
    for _ in range(TRIES_MAX):
        snapshot = newest(place)
        if snapshot is None:
            yield None
            return
        fd = _held(snapshot.folder, shared=True)
        if fd is not None:
            try:
                yield snapshot
            finally:
                os.close(fd)
            return
    yield None  # each was removed while it was opened


def restore(place: TableFiles) -> int:
    """Replace tables that a kill has damaged by the last publication; return its position.

    Returns 0 if none is usable: then there are no tables, and they are rebuilt from the log's
    beginning. The caller holds the tables. If killed before the end, the damaged tables are kept.
    """
    position = 0
    with holding(place) as snapshot:
        place.remove(place.fresh)
        if snapshot is not None and damage(snapshot) is None:
            copied(snapshot.path, place.fresh)
            with contextlib.suppress(FileNotFoundError):
                copied(wal(snapshot.path), wal(place.fresh))
            try:
                from hansard.projections.store import Store  # noqa: PLC0415 -- DuckDB takes long

                store = Store(place.fresh)
                position = store.progress.position
                store.close()  # a checkpoint of DuckDB's log
            except ProjectionError:
                place.remove(place.fresh)
    wal(place.path).unlink(missing_ok=True)
    if place.fresh.exists():
        place.fresh.replace(place.path)
    else:
        place.remove(place.path)
    return position


async def wait_for(place: TableFiles, position: int, timeout_s: float) -> PublishedSnapshot:
    """Wait for a generation at or after a position, published by any process. Raises Behind."""
    until_s = time.monotonic() + timeout_s
    while True:
        snapshot = newest(place)
        if snapshot is not None and snapshot.position >= position:
            return snapshot
        if time.monotonic() >= until_s:
            raise Behind(position, snapshot.position if snapshot is not None else 0, timeout_s)
        await asyncio.sleep(POLL_S)


class Publisher:
    """Publishes the tables of one open store. The caller holds the tables (see Hold), and writes
    nothing meanwhile.
    """

    def __init__(self, place: TableFiles, store: Store) -> None:
        self._place = place
        self._store = store
        self._base: Path | None = None
        self._base_digest = ""
        self._base_state = (0, 0)
        self._copying: _Copy | None = None
        self._disturbed = False
        self._base_due_s = 0.0
        self._due_s = 0.0
        # Closing any descriptor of a file releases this process's POSIX locks on it, DuckDB's
        # included: so one is opened here, and closed after the store.
        self._tables = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
        self.position = -1
        new_folder(place.published)
        for left in (*place.published.glob(".*"), *place.published.glob("base-*")):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        current = newest(place)
        if current is not None and _same(current, store.progress):
            self.position = current.position
        self._serial = max((number for number, _ in _folders(place)), default=0)

    @property
    def stale(self) -> bool:
        """True if the tables are ahead of the publication."""
        return self.position != self._store.progress.position

    def due_in_s(self) -> float:
        """Return how long a publication should wait, in seconds, so that it takes a small share of
        the time.
        """
        until_s = self._base_due_s if self._needs_base(soon=False) else self._due_s
        return max(0.0, until_s - time.monotonic())

    def publish(self, head: int, *, now: bool = True) -> PublishedSnapshot | None:
        """Publish the current tables; return None if that needs a new base, which is then copied in
        the background, unless `now`. Raises OSError (disk is full), ProjectionError.
        """
        began_s = time.monotonic()
        if self._copying is not None:
            if not now and not self._copying.done():
                return None
            self._adopt(self._copying)
        with_base = self._needs_base(soon=began_s >= self._base_due_s)
        if with_base:
            self._begin_base()
            if not now and not self._disturbed and self._base is not None:
                return None
            self._adopt(self._copying)
        snapshot = self._make(head)
        self.position = snapshot.position
        _sweep(self._place, snapshot.folder)
        ended_s = time.monotonic()
        self._due_s = ended_s if with_base else ended_s + REST * (ended_s - began_s)
        return snapshot

    def close(self) -> None:
        """Close it, after the store is closed."""
        if self._copying is not None:
            with contextlib.suppress(OSError):
                self._adopt(self._copying)
        os.close(self._tables)
        if self._base is not None:
            self._base.unlink(missing_ok=True)

    # ------------------------------------------------------------ publication

    def _needs_base(self, *, soon: bool) -> bool:
        if self._base is None or self._state() != self._base_state:
            return True
        size = _size(wal(self._place.path))
        return size > LOG_BYTES_LIMIT or (soon and size > LOG_BYTES_MAX)

    def _state(self) -> tuple[int, int]:
        stat = os.fstat(self._tables)
        return stat.st_mtime_ns, stat.st_size

    def _begin_base(self) -> None:
        """Checkpoint, and begin to copy the file."""
        began_s = time.monotonic()
        self._store.checkpoint()
        base = self._place.published / f"base-{self._number()}.duckdb"
        self._copying = _Copy(self._tables, base, self._state(), began_s)

    def _adopt(self, copy: _Copy | None) -> None:
        """Use a finished copy, unless the file was written meanwhile: then another is made while
        nothing is written. Raises OSError.
        """
        assert copy is not None, "a copy was begun"  # noqa: S101 -- for the type checker
        self._copying = None
        try:
            copy.wait()
        except BaseException:
            copy.path.unlink(missing_ok=True)
            raise
        self._base_due_s = time.monotonic() + BASE_REST * copy.stall_s
        self._disturbed = self._state() != copy.state
        if self._disturbed:
            copy.path.unlink()
            return
        if self._base is not None:
            self._base.unlink(missing_ok=True)
        self._base, self._base_state = copy.path, copy.state
        self._base_digest = copy.digest

    def _make(self, head: int) -> PublishedSnapshot:
        """Create a folder with all files, and rename it into place."""
        progress = self._store.progress
        name = f"gen-{progress.position}-{self._number()}"
        part = self._place.published / f".{name}"
        part.mkdir(mode=PRIVATE_DIR)
        assert self._base is not None, "a base is made first"  # noqa: S101 -- for the type checker
        _link(self._base, part / TABLES)
        files = {TABLES: self._base_digest}
        log = wal(self._place.path)
        if _size(log):
            fd = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
            try:
                files[wal(part / TABLES).name] = _copy(fd, wal(part / TABLES))
            finally:
                os.close(fd)
        description = _Generation(
            progress.position,
            max(head, progress.position),
            progress.digest,
            schema_digest(),
            progress.messages,
            progress.chain,
            files,
        )
        with new_file(part / GENERATION_FILE) as file:
            file.write(msgspec.json.encode(description.sealed))
        folder = self._place.published / name
        part.rename(folder)
        return description.generation(folder)

    def _number(self) -> int:
        """Return a number larger than any before, so that no name is used twice."""
        self._serial = max(self._serial + 1, time.time_ns())
        return self._serial


class _Copy:
    """A copy of the tables' file, made by its own thread."""

    def __init__(self, source: int, path: Path, state: tuple[int, int], began_s: float) -> None:
        self.path = path
        self.state = state
        self.digest = ""
        """SHA-256 of the finished copy."""
        self.stall_s = time.monotonic() - began_s
        """Time that writes were paused for it, in seconds."""
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, args=(source,), daemon=True)
        self._thread.start()

    def done(self) -> bool:
        """Return whether it is finished, or failed."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait until it is finished. Raises OSError."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, source: int) -> None:
        try:
            for _ in range(TICK_LOOKS_MAX):  # bounded, in case the clock was set back
                if time.time_ns() - self.state[0] >= TICK_S * 1e9:
                    break
                time.sleep(TICK_S / 4)
            self.digest = _copy(source, self.path)
        except OSError as error:
            self._error = error


def _folders(place: TableFiles) -> Iterator[tuple[int, Path]]:
    """Yield each generation's number, which increases with time, and its folder."""
    with contextlib.suppress(FileNotFoundError):
        for folder in list(place.published.iterdir()):
            kind, _, rest = folder.name.partition("-")
            position, _, number = rest.partition("-")
            if kind == "gen" and position.isdigit() and number.isdigit():
                yield int(number), folder


def _read(folder: Path) -> PublishedSnapshot | None:
    """Read `generation.json`; None if it is missing or damaged."""
    with contextlib.suppress(OSError):
        return described((folder / GENERATION_FILE).read_bytes(), folder)
    return None


def _sweep(place: TableFiles, kept: Path) -> None:
    """Remove older generations without readers."""
    for _, folder in list(_folders(place)):
        fd = _held(folder) if folder != kept else None
        if fd is not None:
            away(folder)
            os.close(fd)


def _same(current: PublishedSnapshot, progress: Progress) -> bool:
    return (current.position, current.digest) == (progress.position, progress.digest)


def _held(folder: Path, *, shared: bool = False) -> int | None:
    """Lock a folder, and return the descriptor that holds the lock; None if the folder is gone or
    locked.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if take(fd, shared=shared) and os.path.samestat(os.fstat(fd), folder.stat()):
            return fd  # otherwise it was removed in between
    except FileNotFoundError:
        pass
    os.close(fd)
    return None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _copy(source: int, target: Path) -> str:
    """Copy a whole file by a descriptor whose offset is kept; return the SHA-256 of its bytes."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
    digest = hashlib.sha256()
    try:
        at = 0
        while part := os.pread(source, COPY_BYTES, at):
            digest.update(part)
            view = memoryview(part)
            while view:
                view = view[os.write(fd, view) :]
            at += len(part)
    finally:
        os.close(fd)
    return digest.hexdigest()


def _link(source: Path, target: Path) -> None:
    """Create a hard link to a file; a copy if the file system has none."""
    try:
        os.link(source, target)
    except OSError:
        copied(source, target)


class Reader(Protocol):
    """Tables that do not change while they are read, without importing the store, which takes a
    tenth of a second. For our own SQL: the cost of a query is not bounded.
    """

    @property
    def position(self) -> int:
        """The position of the tables."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the message there."""
        ...

    @property
    def path(self) -> Path:
        """The database file."""
        ...

    def scratch(self) -> AbstractContextManager[None]:
        """Run queries with temporary tables and macros, which are dropped at the end. A temporary
        macro shadows the stored one of the same name, also for stored macros that call it.
        """
        ...

    def interrupt(self) -> None:
        """Interrupt the current query, in whichever thread."""
        ...

    def all(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        ...

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Return all rows of a query as dicts by column name."""
        ...
