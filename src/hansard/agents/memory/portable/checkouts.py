"""A space as a real folder, for harnesses that need one, and commits of its changes.

The folder's mark names the version that it was made of. A commit is based on the digests of that
version, then updates the folder with the changes of others, each file whole, and the mark last. If
it is killed at any point, the same command can be run again.

Files that a folder does not show (`folders.is_left_out`) are written by a checkout, except at the
mark's path, but neither committed nor updated: they stay unchanged in the space.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Generator
from pathlib import Path

import msgspec

from hansard.agents.memory.portable import folders, harnesses
from hansard.agents.memory.portable.folders import BadFolder
from hansard.agents.memory.portable.harnesses import Harness
from hansard.agents.memory.portable.imports import change, difference
from hansard.agents.memory.validation.texts import Link, Tree, of_space
from hansard.agents.workspace import Workspace
from hansard.bus import file_lock
from hansard.bus.clock import OS_USER
from hansard.domain.memory.paths import configures_harness
from hansard.domain.memory.space import MemoryState

MARK = folders.MARK
MARK_BYTES_MAX = 64 * 1024

_PART_BYTES = 8
_PART = re.compile(rf"\.[0-9a-f]{{{2 * _PART_BYTES}}}{re.escape(folders.PARTIAL)}")
"""Name of a file that is not complete yet."""


class Mark(msgspec.Struct, frozen=True):
    """Source of a checked-out folder.

    Attributes:
        space: Name of the space.
        version: Version of the space's stream.
        harness: Harness whose format the folder has.
    """

    space: str
    version: int
    harness: Harness = Harness.AGENTS_MD


class CommitResult(msgspec.Struct, frozen=True):
    """Result of a commit.

    Attributes:
        space: Name of the space.
        version: New version of the space and of the folder.
        changed: Paths in the space's tree that the folder changed.
        brought: Paths of the folder that were updated with changes of others.
        left: Those of `brought` that changed in the folder during the commit: commit again.
    """

    space: str
    version: int
    changed: list[str]
    brought: list[str]
    left: list[str]


async def checkout(
    workspace: Workspace, space: str, folder: Path, harness: Harness = Harness.AGENTS_MD
) -> tuple[Mark, list[str]]:
    """Check out a space into a folder, completely or not at all; return notes on settings that the
    harness cannot express. Raises BadFolder, BadName, ExtraMissing.
    """
    state = await workspace.memories.whole(space)
    made = harnesses.export(of_space(state.files), harness)
    mark = Mark(space, state.version, harness)
    folders.write(folder, {**made.tree, MARK: _encoded(mark)})
    return mark, made.notes


async def commit(
    workspace: Workspace, folder: Path, *, reason: str = "", by: str = OS_USER
) -> CommitResult:
    """Commit a folder's changes to its space, then update the folder to the space's new version.

    Raises MemoryConflict (with both texts), MemoryInvalid, BadFolder, BadValue, ExtraMissing; the
    space and the folder are then unchanged.
    """
    with _locked(folder):
        mark = read_mark(folder)
        _sweep(folder)
        before = await workspace.memories.whole(mark.space, f"@{mark.version}")
        base = of_space(before.files)
        current = folders.read(folder)
        targets = difference(base, harnesses.import_tree(current, mark.harness, base))
        seen = {path: file.digest for path, file in before.files.items()}
        if targets:
            await change(workspace, mark.space, targets, seen=seen, reason=reason, by=by)
        now = await workspace.memories.whole(mark.space)
        brought, left = _bring(folder, current, now, mark.harness)
        if not left:
            _replace(folder / MARK, _encoded(Mark(mark.space, now.version, mark.harness)))
        version = mark.version if left else now.version
        return CommitResult(mark.space, version, sorted(targets), brought, left)


def _sweep(folder: Path) -> None:
    """Remove the remains of a killed commit."""
    for left in folder.rglob(f".*{folders.PARTIAL}"):
        if _PART.fullmatch(left.name) and (left.is_symlink() or not left.is_dir()):
            left.unlink(missing_ok=True)


def read_mark(folder: Path) -> Mark:
    """Return the source of a checked-out folder. Raises BadFolder."""
    try:
        with (folder / MARK).open("rb") as file:
            return msgspec.json.decode(file.read(MARK_BYTES_MAX), type=Mark)
    except OSError as error:
        raise BadFolder(
            folder, "is no checkout of a space", "make one with 'hansard memory checkout'"
        ) from error
    except msgspec.DecodeError as error:
        raise BadFolder(folder / MARK, f"is damaged ({error})", "check out again") from error


def _encoded(mark: Mark) -> bytes:
    return msgspec.json.encode(mark) + b"\n"


@contextlib.contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Hold the folder's lock: one commit at a time."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise BadFolder(folder, f"cannot be read ({error.strerror})", "name a folder") from error
    try:
        if not file_lock.take(descriptor):
            raise BadFolder(folder, "is being committed by another process", "wait for it")
        yield
    finally:
        file_lock.release(descriptor)


def _bring(
    folder: Path, current: Tree, now: MemoryState, harness: Harness
) -> tuple[list[str], list[str]]:
    """Update a folder to the space; return the updated paths, and those that changed in the folder
    since it was read.
    """
    brought: list[str] = []
    left: list[str] = []
    tree = harnesses.export(of_space(now.files), harness).tree
    targets = {path: content for path, content in tree.items() if not folders.is_left_out(path)}
    # Settings are not updated, so a person's own are not deleted either.
    own = {path: content for path, content in current.items() if configures_harness(path)}
    changes = difference(current, own | targets)
    for path in sorted(changes, key=lambda path: (changes[path] is not None, path)):
        content = changes[path]
        place = folder / path
        if _content(place) != current.get(path):
            left.append(path)
            continue
        brought.append(path)
        if content is None:
            place.unlink()
            _prune(folder, place.parent)
        else:
            _replace(place, content)
    return brought, left


def _content(place: Path) -> bytes | Link | None:
    if place.is_symlink():
        return Link(str(place.readlink()))
    try:
        return folders.content_of(place)
    except BadFolder:
        return None


def _replace(place: Path, content: bytes | Link) -> None:
    """Replace a file atomically."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{secrets.token_hex(_PART_BYTES)}{folders.PARTIAL}")
        try:
            if isinstance(content, Link):
                part.symlink_to(content.target)
            else:
                folders.put(part, content)
            part.replace(place)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        folders.sync(place.parent)
    except OSError as error:
        raise BadFolder(
            place, f"cannot be written ({error.strerror})", "make room, then commit again"
        ) from error


def _prune(folder: Path, parent: Path) -> None:
    """Remove empty folders."""
    with contextlib.suppress(OSError):
        while parent != folder:
            parent.rmdir()
            parent = parent.parent
