"""A file of credentials that is there whole or not at all, and is never made twice.

The secrets are written to a hidden file beside the place first, and only then put on record and
told to the broker; at the end the file is moved to its place. Whatever is killed in between, the
next attempt goes on with the same secrets, so that no token is left that nobody holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from pathlib import Path

from hansard.bus import access
from hansard.bus.access import BadCredentials, Credentials
from hansard.bus.file_lock import take
from hansard.bus.whole_file import Unwritable
from hansard.domain.errors import Refused

PRIVATE_FILE = 0o600


class Draft:
    """The hidden file, held: no other process makes the same credentials meanwhile."""

    def __init__(self, place: Path, hidden: Path, fd: int) -> None:
        self._place = place
        self._hidden = hidden
        self._fd = fd

    def found(self) -> Credentials | None:
        """What an attempt before this one began with; None where it had not got so far."""
        try:
            return access.load(self._hidden)
        except BadCredentials:
            return None

    def write(self, credentials: Credentials) -> None:
        """Put them on disk, before anybody else knows of them. Raises Unwritable."""
        try:
            os.ftruncate(self._fd, 0)
            left = access.encode(credentials)
            written = 0
            while written < len(left):
                written += os.pwrite(self._fd, left[written:], written)
            os.fsync(self._fd)
            _sync(self._place.parent)
        except OSError as error:
            raise Unwritable(self._place, error) from error

    def finish(self) -> None:
        """Move them to their place. Raises Unwritable."""
        try:
            self._hidden.replace(self._place)
            _sync(self._place.parent)
        except OSError as error:
            raise Unwritable(self._place, error) from error

    def drop(self) -> None:
        """Remove the hidden file: there is nothing to go on with."""
        self._hidden.unlink(missing_ok=True)


@contextlib.contextmanager
def drafting(place: Path) -> Generator[Draft]:
    """Hold the hidden file beside a place. Raises Unwritable, Refused where another holds it."""
    hidden = place.parent / f".{place.name}.part"
    if place.exists() and not place.is_file():
        raise Unwritable(place, OSError("it is no file"))
    try:
        fd = _held(hidden)
    except BlockingIOError:
        message = f"another process is making {str(place)!r} now: wait for it, then try again"
        raise Refused(message) from None
    except OSError as error:
        raise Unwritable(place, error) from error
    try:
        yield Draft(place, hidden, fd)
    finally:
        os.close(fd)


def _held(hidden: Path) -> int:
    """The hidden file, open and locked, and really the one that stands there now."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        fd = os.open(hidden, flags, PRIVATE_FILE)
        try:
            _take_own(fd, hidden)
            os.fchmod(fd, PRIVATE_FILE)
            if _is(fd, hidden):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # whoever held it moved it to its place meanwhile


def _take_own(fd: int, hidden: Path) -> None:
    """Lock it. Raises PermissionError for a file that somebody put there to have what is written to
    it, BlockingIOError where another process holds it.
    """
    found = os.fstat(fd)
    is_file = stat.S_ISREG(found.st_mode)
    if not is_file or found.st_uid != os.geteuid() or found.st_nlink > 1:
        raise PermissionError(errno.EPERM, f"{str(hidden)!r} was put there by another")
    if not take(fd):
        raise BlockingIOError


def _is(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def _sync(folder: Path) -> None:
    """Have a folder's entries on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
