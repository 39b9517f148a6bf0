"""A database file with empty tables, created once and kept in the user's cache folder.

The statements that create one take half a second, and each new workspace, role and copy starts with
one. The cache folder is `~/.cache/hansard`, or what the platform or XDG_CACHE_HOME says; the file's
name is made of all that it follows from, and its SHA-256 is at its end. Where it is missing or
damaged or cannot be kept there, it is created.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import platformdirs

from hansard.projections.table_files import PRIVATE_DIR, new_file

OLD_S = 30 * 24 * 3600.0
"""From this age on, in seconds, a file goes when one of another version is kept."""

_DIGEST_BYTES = hashlib.sha256().digest_size


def empty_file(make: Callable[[], bytes], *of: object) -> bytes:
    """Return the bytes of such a file, made by `make` of these values alone."""
    folder = platformdirs.user_cache_path("hansard")
    if not folder.is_absolute():  # a user without a home
        return make()
    path = folder / f"tables-{_name(of)}"
    kept = _read(path)
    if kept is None:
        kept = make()
        with contextlib.suppress(OSError):
            _keep(path, kept)
    return kept


def _name(of: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:32]


def _read(path: Path) -> bytes | None:
    try:
        found = path.read_bytes()
    except OSError:
        return None
    data, digest = found[:-_DIGEST_BYTES], found[-_DIGEST_BYTES:]
    return data if hashlib.sha256(data).digest() == digest else None


def _keep(path: Path, data: bytes) -> None:
    """Put it there, whole or not at all; old ones of other versions go. Raises OSError."""
    path.parent.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
    for other in path.parent.glob("tables-*"):
        if time.time() - other.stat().st_mtime > OLD_S:
            other.unlink(missing_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with new_file(part) as file:
            file.write(data + hashlib.sha256(data).digest())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
