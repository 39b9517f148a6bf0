"""The files of a workspace's tables, and their write lock.

<data dir>/projections/<workspace>.duckdb        the tables
<data dir>/projections/<workspace>.duckdb.wal    DuckDB's own
<data dir>/projections/<workspace>.duckdb.new    output of a rebuild, then the tables
<data dir>/projections/<workspace>.lock          flock, held by the one process that writes;
                                                 holds its status, for `hansard status`
<data dir>/projections/published/<workspace>/    generations for readers: see publish.snapshots
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import time
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec

from hansard.bus import slices
from hansard.bus.file_lock import PRIVATE_DIR, PRIVATE_FILE, take, take_by
from hansard.bus.subjects import token
from hansard.domain.ids import name as checked_name
from hansard.domain.ids import workspace_name
from hansard.domain.roles.view import KEY_BYTES_MIN
from hansard.projections.errors import REBUILD, Held, unusable

VERSION = 48
"""Raised by a release that changes the schema, so that earlier releases refuse the file. Between
releases only the digest distinguishes schemas.
"""

_HERE = Path(__file__).parent


def statements(module: str) -> dict[str, str]:
    """Return the statements of the SQL file beside a module, by their names: `-- name: runs`."""
    text = Path(module).with_suffix(".sql").read_text("utf-8")
    parts = (part.partition("\n") for part in text.split("-- name: ")[1:])
    return {name: statement.strip() for name, _, statement in parts}


def schema_files() -> list[Path]:
    """Return the files that create every table, view and macro, in order."""
    return _files("schema/*.sql")


@cache
def schema_sql() -> str:
    """Return the statements that create every table, view and macro, in order."""
    return "\n".join(path.read_text(encoding="utf-8") for path in schema_files())


@cache
def schema_digest() -> str:
    """Return the SHA-256 of everything that determines which tables, views and rows follow from a
    log: the schema, its column comments, and the statements that fill the tables.
    """
    digest = hashlib.sha256()
    for path in (*_files("schema/*"), *_files("tables/*.sql")):
        text = path.read_bytes()
        digest.update(f"{path.name} {len(text)}\n".encode() + text)
    for each in slices.installed():
        digest.update(f"{each.name} {len(each.schema)}\n{each.schema}".encode())
    return digest.hexdigest()


def _files(pattern: str) -> list[Path]:
    return sorted(_HERE.glob(pattern))


LINE_BYTES = 512
"""Size of the lock file's status line, in bytes: it is written at once, so that no reader sees half
of it.
"""

HELD_S_MAX = 0.1
TRY_S = 0.005
"""Longest wait for the lock, and pause between attempts, in seconds: a reader of the status holds
it for some microseconds.
"""


COPY_BYTES = 8 * 1024 * 1024
"""Bytes copied at once."""


class ProjectorStatus(msgspec.Struct, frozen=True):
    """The projector's status: its process, the position of the tables, the newest known position of
    the log, and the delay from the log to the tables; then position and delay of the publication,
    which SQL is answered from.
    """

    pid: int
    position: int = 0
    head: int = 0
    delay_ms: float | None = None
    running: bool = True
    published: int = 0
    published_delay_ms: float | None = None


class TableFiles(msgspec.Struct, frozen=True):
    """The files of one workspace's tables."""

    path: Path

    @classmethod
    def of(cls, data_dir: Path, workspace: str) -> TableFiles:
        """Return those in a data directory. Raises BadName."""
        return cls(data_dir / "projections" / f"{workspace_name(workspace)}.duckdb")

    @property
    def remedy(self) -> str:
        """Remedy for tables that cannot be used."""
        return REBUILD

    @property
    def fresh(self) -> Path:
        """The output of a rebuild."""
        return self.path.with_name(self.path.name + ".new")

    @property
    def lock(self) -> Path:
        """The lock file."""
        return self.path.with_suffix(".lock")

    @property
    def published(self) -> Path:
        """The folder of the published generations."""
        return self.path.parent / "published" / self.path.stem

    def hash_key(self) -> bytes:
        """Return the role's key of hashed values, created on first use. Raises Unusable."""
        path = self.path.with_suffix(".key")
        try:
            if not path.exists():
                new_folder(path.parent)
                draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
                with new_file(draft) as file:
                    file.write(secrets.token_bytes(KEY_BYTES_MIN))
                    file.flush()
                    os.fsync(file.fileno())
                with contextlib.suppress(FileExistsError):  # another process was first
                    path.hardlink_to(draft)
                draft.unlink()
                sync_folder(path.parent)
            return path.read_bytes()
        except OSError as error:
            raise unusable(path, error, "make its folder writable") from error

    def status(self) -> ProjectorStatus | None:
        """Return the status of the tables, written by any process; None if there are none."""
        if not self.path.exists():
            return None
        try:
            fd = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            status = _read_status(fd)
            free = take(fd, shared=True)
        finally:
            os.close(fd)
        if status is None or not free:
            return status
        return msgspec.structs.replace(status, running=False)

    def remove(self, path: Path) -> None:
        """Remove a database and DuckDB's files beside it."""
        for each in (path, wal(path)):
            each.unlink(missing_ok=True)
        shutil.rmtree(path.with_name(path.name + ".tmp"), ignore_errors=True)

    def withdraw(self) -> None:
        """Withdraw all publications; readers keep the files they have open."""
        for each in self.published.glob("gen-*"):
            away(each)

    def replace(self) -> None:
        """Replace the tables by rebuilt ones, atomically. If killed in between, the old tables
        remain as of DuckDB's last checkpoint, which is consistent, too. Publications of the old
        ones are withdrawn before.
        """
        self.withdraw()
        wal(self.path).unlink(missing_ok=True)
        self.fresh.replace(self.path)
        sync_folder(self.path.parent)


def role_place(data_dir: Path, workspace: str, role: str) -> TableFiles:
    """Return the files of a role's tables. Raises BadName."""
    folder = data_dir / "projections" / "roles" / workspace_name(workspace)
    return TableFiles(folder / f"{token(checked_name('role', role))}.duckdb")


def role_places(data_dir: Path, workspace: str) -> list[TableFiles]:
    """Return the files of all roles' existing tables. Raises BadName."""
    folder = data_dir / "projections" / "roles" / workspace_name(workspace)
    return [TableFiles(path) for path in sorted(folder.glob("*.duckdb"))]


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def away(path: Path) -> None:
    """Remove a folder: it is renamed first, so that no reader finds a part of it."""
    gone = path.with_name(f".{path.name}.gone")
    with contextlib.suppress(FileNotFoundError):
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def private(path: Path) -> None:
    """Make an existing file private to its owner: DuckDB creates its own by the umask."""
    with contextlib.suppress(FileNotFoundError):
        path.chmod(PRIVATE_FILE)


def new_folder(path: Path) -> None:
    """Create a missing folder, private to its owner, and its parents."""
    missing = [each for each in path.parents if not each.exists()]
    for each in (*reversed(missing), path):
        each.mkdir(exist_ok=True, mode=PRIVATE_DIR)


def new_file(path: Path) -> BinaryIO:
    """Create or truncate a file that is private to its owner, for writing."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    return os.fdopen(fd, "wb")


def copied(source: Path, target: Path) -> None:
    """Copy a file to one that is private to its owner. Raises FileNotFoundError."""
    with source.open("rb") as original, new_file(target) as copy:
        shutil.copyfileobj(original, copy, COPY_BYTES)


def wal(path: Path) -> Path:
    """Return the path of a database's DuckDB write-ahead log."""
    return path.with_name(path.name + ".wal")


class WriteLock:
    """The right to write a workspace's tables, until `close()` or the end of the process."""

    def __init__(self, place: TableFiles) -> None:
        """Acquire it. Raises Held, Unusable (the folder cannot be created or written)."""
        self.place = place
        try:
            new_folder(place.path.parent)
            self._fd = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        except OSError as error:
            raise unusable(place.path, error, place.remedy) from error
        held = take_by(time.monotonic() + HELD_S_MAX, self._fd, TRY_S)
        known = _read_status(self._fd)
        self.interrupted = known is not None and known.running and place.path.exists()
        """True if the previous holder did not end properly: it was killed, for example."""
        if not held:
            os.close(self._fd)
            raise Held(place.path, known.pid if known is not None else None)
        mine = known if known is not None and place.path.exists() else ProjectorStatus(0)
        try:
            self.record_status(msgspec.structs.replace(mine, pid=os.getpid(), running=True))
        except OSError as error:
            os.close(self._fd)
            raise unusable(place.path, error, place.remedy) from error

    def record_status(self, status: ProjectorStatus) -> None:
        """Record the status."""
        line = msgspec.json.encode(status)
        os.pwrite(self._fd, line.ljust(LINE_BYTES), 0)

    def ended(self) -> None:
        """Record that the tables were closed properly. Raises OSError."""
        known = _read_status(self._fd)
        if known is not None:
            self.record_status(msgspec.structs.replace(known, running=False))

    def close(self) -> None:
        """Release it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _read_status(fd: int) -> ProjectorStatus | None:
    """Read the status from the lock file; None if it is empty."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(os.pread(fd, LINE_BYTES, 0), type=ProjectorStatus)
    return None
