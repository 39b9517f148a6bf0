"""Private copies of data directories that cannot be written, removed when no process reads them.

A server writes even if it only reads: its store recovers itself, and its mark advances. A read-only
data directory is therefore copied into a temporary folder (mode 0700, in TMPDIR), only to be read:

    copy.json         the data directory that it is a copy of
    copy.lock         flock, held by the process that made it until that ends

The last user removes it: the supervisor of its server, or the process that made it, whichever ends
later. If both were killed, the next process that makes a copy removes the remains. There are no
hard links, since a server that writes a file in place would change the original.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from hansard.broker.files import ServerFiles
from hansard.broker.lease import BadDataDir, ServerError
from hansard.bus.errors import ReadOnly
from hansard.bus.file_lock import PRIVATE_FILE, release, take

FOLDERS = ("marks", "projections", "nats")
"""Folders that are copied, in this order: the log last, so that nothing is ahead of it, even during
concurrent writes. The other files belong to the server and are created again.
"""

PREFIX = "hansard-read-only-"
LOCK = "copy.lock"

ROOM_BYTES_MIN = 64 * 1024 * 1024
"""Least free bytes beside a copy: its server and its tables grow a little."""

UNLOCKED_S = 60.0
"""Age in seconds from which a folder without a lock counts as abandoned."""

MIB = 1024 * 1024


class NotCopied(ServerError):
    """A data directory cannot be written, and no private copy can be made of it.

    State: nothing was read.
    Remedy: free space in TMPDIR, or copy the directory yourself.
    """

    def __init__(self, data_dir: Path, fact: str) -> None:
        super().__init__(
            f"the data directory {str(data_dir)!r} cannot be written, so reading it needs a "
            f"private copy, which cannot be made ({fact}): make room, name another folder for "
            "temporary files (TMPDIR), or restore the write permission"
        )
        self.data_dir = data_dir


class _Copy(msgspec.Struct, frozen=True):
    of: str


def origin(data_dir: Path) -> str | None:
    """Return the origin of a private copy; None if the data directory is none."""
    try:
        return msgspec.json.decode(ServerFiles(data_dir).copied.read_bytes(), type=_Copy).of
    except (OSError, msgspec.DecodeError):
        return None


def refuse(data_dir: Path) -> None:
    """Raise ReadOnly if a data directory is a private copy."""
    of = origin(data_dir)
    if of is not None:
        raise ReadOnly(of)


def readable(data_dir: Path, tell: Callable[[str], None]) -> Path:
    """Return the data directory itself if it can be written or holds no record; else a private
    copy, made once per process and reported to `tell`. Raises NotCopied, BadDataDir (it cannot be
    read).
    """
    folder = Path(os.path.realpath(data_dir))
    try:
        if not (folder / "nats").is_dir() or writable(folder):
            return data_dir
    except PermissionError as error:
        raise BadDataDir(folder, error) from error
    with _making:
        copy = _made.get((os.getpid(), folder))
        if copy is None:
            try:
                copy = _make(folder, tell)
            except PermissionError as error:
                raise BadDataDir(folder, error) from error
            except OSError as error:
                raise NotCopied(folder, str(error)) from error
            _made[os.getpid(), folder] = copy
    return copy


def writable(folder: Path) -> bool:
    """Return whether this process may write to a data directory, according to the system."""
    folders = [folder, *(path for name in FOLDERS if (path := folder / name).exists())]
    files = [path for name in ("join.lock", "store.lock") if (path := folder / name).exists()]
    effective = os.access in os.supports_effective_ids
    return all(
        os.access(path, mode, effective_ids=effective)
        for paths, mode in ((folders, os.R_OK | os.W_OK | os.X_OK), (files, os.R_OK | os.W_OK))
        for path in paths
    )


_made: dict[tuple[int, Path], Path] = {}
_making = threading.Lock()


def _make(folder: Path, tell: Callable[[str], None]) -> Path:
    """Copy the folders of a data directory. Raises OSError, NotCopied."""
    temporary = Path(tempfile.gettempdir())
    _sweep(temporary)
    files = list(_files(folder))
    size = sum(length for _, length in files)
    disk = os.statvfs(temporary)
    free = disk.f_bavail * disk.f_frsize
    if size + ROOM_BYTES_MIN > free:
        room = f"it needs {(size + ROOM_BYTES_MIN) // MIB:,} MiB"
        raise NotCopied(folder, f"{room}, {str(temporary)!r} has {free // MIB:,} MiB free")
    copy = Path(tempfile.mkdtemp(prefix=PREFIX, dir=temporary))
    lock = os.open(copy / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    take(lock)
    atexit.register(_leave, os.getpid(), copy, lock)
    tell(
        f"read-only: {str(folder)!r} cannot be written; working on a private copy of "
        f"{-(-size // MIB):,} MiB at {str(copy)!r}, which goes away by itself"
    )
    for path, _ in files:
        _copy(folder / path, copy / path)
    (copy / "nats").mkdir(exist_ok=True)
    ServerFiles(copy).copied.write_bytes(msgspec.json.encode(_Copy(str(folder))))
    return copy


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Yield the regular files to copy, with their sizes. Raises OSError if a folder cannot be
    read.
    """

    def unreadable(error: OSError) -> None:
        if error.errno != errno.ENOENT:  # removed meanwhile
            raise error

    for name in FOLDERS:
        for within, folders, names in os.walk(folder / name, onerror=unreadable):
            folders[:] = [each for each in folders if not each.startswith(".")]
            for each in names:
                path = Path(within, each)
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode):
                        yield path.relative_to(folder), status.st_size


def _copy(source: Path, target: Path) -> None:
    """Copy one file; skip it if it was removed meanwhile."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(source, target)
        target.chmod(PRIVATE_FILE)


# ---------------------------------------------------------------- its end


def remove_unused(copy: Path) -> None:
    """Remove an unused private copy; called by its supervisor, which ends too."""
    if origin(copy) is not None and _free(copy / LOCK) and _free(ServerFiles(copy).store_lock):
        shutil.rmtree(copy, ignore_errors=True)


def _leave(pid: int, copy: Path, lock: int) -> None:
    """Remove a copy at the end of the process that made it, unless the supervisor of its server
    still runs and does it later.
    """
    if os.getpid() != pid:  # a forked child: the parent owns the copy
        return
    os.close(lock)
    if _free(ServerFiles(copy).store_lock):
        shutil.rmtree(copy, ignore_errors=True)


def _sweep(temporary: Path) -> None:
    """Remove the remains of killed processes."""
    for copy in temporary.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            status = copy.lstat()
            if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
                continue
            begun = (copy / LOCK).exists() or time.time() - status.st_mtime > UNLOCKED_S
            if begun and _free(copy / LOCK) and _free(ServerFiles(copy).store_lock):
                shutil.rmtree(copy, ignore_errors=True)


def _free(lock: Path) -> bool:
    """Return whether a lock file is not held, or missing."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        return take(fd)
    finally:
        release(fd)
