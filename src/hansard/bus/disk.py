"""What to say of a disk that takes nothing, and how to see whether it does again.

The words hold for whatever is written: the broker's store, tables, exports, credentials.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

ROOM_BYTES_MIN = 8 * 1024 * 1024
"""Less than this is no room: the largest transaction would fill it again at once."""

_REFUSALS = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
)
_TEXTS = (
    *((code, os.strerror(code).lower()) for code in _REFUSALS),
    (errno.ENOSPC, "database or disk is full"),  # these two are SQLite's
    (errno.EIO, "disk i/o error"),
)


def code_of(said: OSError | str) -> int:
    """Which refusal of the disk an error is, or a sentence of another program is about; 0: none.

    Go and DuckDB quote the operating system's words, in upper or lower case.
    """
    if isinstance(said, OSError):
        return said.errno if said.errno in _REFUSALS else 0
    text = said.lower()
    return next((code for code, words in _TEXTS if words in text), 0)


def explained(path: Path | str, said: OSError | str) -> str:
    """The fact and the remedy, for a path that could not be written."""
    where = repr(os.fspath(path))
    match code_of(said):
        case errno.ENOSPC:
            return f"the disk of {where} is full{_free(path)}: make room there"
        case errno.EDQUOT:
            return (
                f"the quota on the disk of {where} is used up: make room there, or have it raised"
            )
        case errno.EROFS:
            return f"the disk of {where} is mounted read-only: mount it for writing again"
        case errno.EACCES | errno.EPERM:
            return f"{where} may not be written to by user {os.getuid()}: give back the rights"
        case errno.EIO:
            return (
                f"the disk of {where} fails: see the system's log, move the files to a sound disk"
            )
        case _:
            return f"{where} cannot be written ({said}): remove the cause"


def _free(path: Path | str) -> str:
    """How much is free there, as far as the system tells: of the nearest folder that is there."""
    place = Path(path)
    for folder in (place, *place.parents):
        with contextlib.suppress(OSError):
            found = os.statvfs(folder)
            files = f" and {found.f_favail:,} files" if found.f_files else ""
            return f" ({found.f_bavail * found.f_frsize:,} bytes{files} free)"
    return ""


def look(folder: Path) -> None:
    """Raise OSError where a disk tells that it is full (less than ROOM_BYTES_MIN, or no file more)
    or read-only. Costs a microsecond; a quota, say, is not seen.
    """
    found = os.statvfs(folder)
    code = errno.EROFS if found.f_flag & os.ST_RDONLY else 0
    if found.f_bavail * found.f_frsize < ROOM_BYTES_MIN or (found.f_files and not found.f_favail):
        code = errno.ENOSPC
    if code:
        raise OSError(code, os.strerror(code), str(folder))


def try_room(folder: Path) -> None:
    """Raise OSError unless a file of ROOM_BYTES_MIN can be written in a folder now."""
    import tempfile  # noqa: PLC0415 -- half of what a supervisor would load, for a disk that was full

    look(folder)
    with tempfile.TemporaryFile(dir=folder) as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES_MIN)
        else:
            file.write(bytes(ROOM_BYTES_MIN))
        file.flush()
        os.fsync(file.fileno())


class Anchors:
    """Folders held open, so that one can see whether their paths still lead to them.

    While a folder is held, its inode is not given to another: one that was deleted and made again
    is told from it.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[int, tuple[int, int]]] = {}

    def hold(self, folder: Path) -> None:
        """Hold a folder. Raises OSError."""
        path = os.fspath(folder)
        if path not in self._held:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            found = os.fstat(fd)
            self._held[path] = fd, (found.st_dev, found.st_ino)

    def lost(self, folder: Path | str | None = None) -> str | None:
        """What became of the folder, or of any that is held; None: it is where it was.

        Costs some 2 us a folder. Raises OSError where the disk does not tell.
        """
        for path in (os.fspath(folder),) if folder is not None else tuple(self._held):
            held = self._held.get(path)
            if held is None:
                continue
            try:
                found = os.stat(path)  # noqa: PTH116 -- after each write: half as dear as a Path's
            except (FileNotFoundError, NotADirectoryError):
                return f"{path!r} was deleted or moved"
            if (found.st_dev, found.st_ino) != held[1]:
                return f"another folder stands at {path!r}"
        return None

    def close(self) -> None:
        """Let go of all."""
        held, self._held = self._held, {}
        for fd, _ in held.values():
            os.close(fd)
