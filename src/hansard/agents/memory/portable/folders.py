"""Folders on disk as trees, and trees as folders: read without following links, written atomically.

A folder is written beside its path and renamed to it: killed at any point, it exists whole or not
at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Collection, Generator
from pathlib import Path

from hansard.agents.memory.validation.texts import Executable, Link, Tree
from hansard.bus import file_lock
from hansard.domain.errors import CallerError
from hansard.domain.memory.space import BINARY_BYTES_MAX, FILES_MAX

TREE_BYTES_MAX = 1 << 28
"""Most bytes of a folder: a quarter of a gigabyte, since all of it is held in memory."""

DEPTH_MAX = 64
NAMES_LEFT_OUT = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
"""Names that no harness treats as memory."""

MARK = ".hansard-checkout.json"
"""File of a checkout that names its source; no file of a space is written at its path."""

PARTIAL = ".hansard-partial"
"""Suffix of a file or folder that is not complete yet."""


class BadFolder(CallerError):
    """A folder that cannot be read as memory, or cannot be written; nothing was changed.

    Attributes:
        path: Path of the folder.
        remedy: Action for the caller.
    """

    def __init__(self, path: Path | str, fact: str, remedy: str) -> None:
        super().__init__(f"{path} {fact}: {remedy}")
        self.path = path
        self.remedy = remedy


def is_mark(path: str) -> bool:
    """Return whether a path is that of a checkout's mark, or below it."""
    return path.partition("/")[0].casefold() == MARK


def is_left_out(path: str) -> bool:
    """Return whether `read` skips a path: its absence from a folder means nothing."""
    names = path.split("/")
    return is_mark(path) or any(n in NAMES_LEFT_OUT or n.endswith(PARTIAL) for n in names)


def read(
    folder: Path, *, leave_out: Collection[str] = (), unread: list[str] | None = None
) -> dict[str, bytes | Link]:
    """Read a folder, links as links, except for paths in `leave_out` and those that `is_left_out`
    names. Raises BadFolder. With `unread`, a file that cannot be read adds a sentence to it instead
    of raising.
    """
    if not folder.is_dir():
        raise BadFolder(folder, "is no folder", "name one that is there")
    tree: dict[str, bytes | Link] = {}
    size = 0
    waiting: list[tuple[Path, str]] = [(folder, "")]
    while waiting:
        at, above = waiting.pop()
        if above.count("/") > DEPTH_MAX:
            raise BadFolder(at, f"is deeper than {DEPTH_MAX} folders", "name one inside it")
        try:
            entries = sorted(os.scandir(at), key=lambda entry: entry.name)
        except OSError as error:
            raise BadFolder(
                at, f"cannot be read ({error.strerror})", "give it to yourself"
            ) from error
        for entry in entries:
            path = above + entry.name
            if path in leave_out or is_left_out(path):
                continue
            if entry.is_symlink():
                tree[path] = Link(str(Path(entry.path).readlink()))
            elif entry.is_dir(follow_symlinks=False):
                waiting.append((Path(entry.path), f"{path}/"))
            else:
                try:
                    content = tree[path] = content_of(Path(entry.path))
                except BadFolder as error:
                    if unread is None:
                        raise
                    unread.append(str(error))
                else:
                    size += len(content)
            if len(tree) > FILES_MAX or size > TREE_BYTES_MAX:
                raise BadFolder(
                    folder,
                    f"holds more than {FILES_MAX:,} files or {TREE_BYTES_MAX:,} bytes",
                    "name the folder of memory alone",
                )
    return tree


def content_of(path: Path) -> bytes:
    """Return the content of a regular file. Raises BadFolder for a device, which may never end, and
    for a file that is too large.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadFolder(path, f"cannot be read ({error.strerror})", "leave it out") from error
    with os.fdopen(descriptor, "rb") as file:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise BadFolder(path, "is no regular file", "leave it out")
        content = file.read(BINARY_BYTES_MAX + 1)
    if len(content) > BINARY_BYTES_MAX:
        raise BadFolder(
            path, f"has more than {BINARY_BYTES_MAX:,} bytes", "split it, or leave it out"
        )
    return Executable(content) if info.st_mode & stat.S_IXUSR else content


def put(place: Path, content: bytes) -> None:
    """Write a new file to disk, with its executable bit. Raises OSError."""
    mode = 0o777 if isinstance(content, Executable) else 0o666
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def write(folder: Path, tree: Tree) -> None:
    """Write a tree to a folder that is missing or empty. Blocks.

    Removes what a killed writer left beside it. Raises BadFolder.
    """
    folder = folder.absolute()
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise BadFolder(folder, "is there and not empty", "name a folder that is not there")
    partial = folder.with_name(f".{folder.name}{PARTIAL}")
    try:
        with _claimed(partial):
            _fill(partial, tree)
            partial.rename(folder)
            sync(folder.parent)
    except OSError as error:
        raise BadFolder(
            folder, f"cannot be written ({error.strerror})", "name another place, or make room"
        ) from error


@contextlib.contextmanager
def _claimed(partial: Path) -> Generator[None]:
    """Create a folder that no other process writes; delete it on an error."""
    partial.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not file_lock.take(descriptor):
            raise BadFolder(partial, "is being written by another process", "wait for it")
        for left in partial.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        try:
            yield
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    finally:
        file_lock.release(descriptor)


def sync(folder: Path) -> None:
    """Sync a folder's renamed entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _fill(folder: Path, tree: Tree) -> None:
    for path, content in tree.items():
        if isinstance(content, Link):
            continue
        place = folder / path
        if ".." in place.parts or not place.is_relative_to(folder):
            raise OSError(errno.EPERM, f"{path} leads out of the folder")
        place.parent.mkdir(parents=True, exist_ok=True)
        put(place, content)
    for path, content in tree.items():  # after the files: nothing is written through a link
        if isinstance(content, Link):
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(content.target)
