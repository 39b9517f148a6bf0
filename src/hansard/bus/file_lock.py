"""Locks on files and folders (flock), by open descriptors.

A lock is held until the last descriptor that shares it is closed, including one inherited by a
child; a killed process releases it. docs/decisions/0007 explains why no library is used.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hansard.bus import errors
from hansard.domain.errors import BadValue, CallerError

# Files that are written atomically, and that only their owner may read.

PRIVATE_FILE = 0o600
"""Mode of files written from a record, which are as private as the record."""

PRIVATE_DIR = 0o700
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Unwritable(CallerError):
    """A file cannot be written at the requested path; nothing was changed there."""

    def __init__(self, path: Path, error: OSError) -> None:
        why = error.strerror or str(error)
        fact = f"{str(path)!r} cannot be written: {why};"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            fact = f"{errors.explained(path, error)}, or"
        super().__init__(f"{fact} give another place with -o")
        self.path = path


@contextmanager
def _direct(path: Path) -> Generator[BinaryIO]:
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise Unwritable(path, error) from error


@contextmanager
def whole(path: Path) -> Generator[BinaryIO]:
    """Write a file under a temporary name, and move it into place at the end.

    After an error or a kill the previous file is intact; a kill may leave a hidden temporary file
    beside it. The mode is 0600, whatever it was before. The target of a symbolic link is replaced,
    not the link; a path that is no regular file (a device, a pipe) is written directly. Raises
    Unwritable.
    """
    path = path.resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        with _direct(path) as file:
            yield file
        return
    part = path.parent / f".hansard-{secrets.token_hex(8)}.part"
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        file = os.fdopen(os.open(part, NEW_FILE, PRIVATE_FILE), "wb")
    except OSError as error:
        raise Unwritable(path, error) from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise Unwritable(path, error) from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def replace_private(path: Path, content: bytes) -> None:
    """Replace a private file of our own atomically, synced to disk: a reader sees the old or the
    new one. Raises OSError.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, PRIVATE_FILE), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file atomically, as `whole` does. Raises Unwritable."""
    with whole(path) as file:
        file.write(data)


def read_bounded(path: Path, bytes_max: int, remedy: str) -> bytes:
    """Read an external file of at most so many bytes. Raises BadValue."""
    try:
        with path.open("rb") as file:
            raw = file.read(bytes_max + 1)
    except OSError as error:
        fact = f"it cannot be read: {error.strerror or error}"
        raise BadValue(str(path), fact, "name a file that can be read") from error
    if len(raw) > bytes_max:
        raise BadValue(str(path), f"it has more than {bytes_max:,} bytes", remedy)
    return raw


def read_text(path: Path, bytes_max: int, remedy: str) -> str:
    """Read an external UTF-8 file of at most so many bytes. Raises BadValue."""
    try:
        return read_bounded(path, bytes_max, remedy).decode()
    except UnicodeDecodeError as error:
        raise BadValue(str(path), f"it is no UTF-8: {error}", remedy) from error


def take(fd: int, *, shared: bool = False) -> bool:
    """Try to lock an open file, and return whether it is held. Raises OSError if the file system
    has no locks.
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def take_by(deadline: float, fd: int, pause_s: float, *, shared: bool = False) -> bool:
    """Retry `take` until the lock is held or the deadline (time.monotonic) has passed, at least
    once; flock has no timeout of its own. Blocks.
    """
    while not take(fd, shared=shared):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
    return True


def release(fd: int) -> None:
    """Unlock and close. Closing alone would leave the lock with a child forked in between."""
    with contextlib.suppress(OSError):  # its file system has no locks
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)
