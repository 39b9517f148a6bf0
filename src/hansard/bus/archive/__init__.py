"""The archive of a log: sealed generations as segments in an object store (`docs/tiers.md`).

It reads messages from a source and stores them, and never changes the log or a stored segment.
It offers `archive_at`, the port `Archive` of `hansard.bus.sources` for one workspace.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from hansard.bus.archive.archived import WorkspaceArchive
    from hansard.bus.archive.tiers import Tiers

MIB = 1024 * 1024


class Caches(msgspec.Struct, frozen=True):
    """The caches of a process for all archives: where the disk's is (None: the user's folder for
    caches), and the most bytes of each.
    """

    folder: Path | None = None
    memory_bytes: int = 64 * MIB
    disk_bytes: int = 1024 * MIB


_configured: list[Caches] = [Caches()]


def configure(caches: Caches) -> None:
    """Set the caches for archives that are opened from now on; the composition root does."""
    _configured[0] = caches


def archive_at(workspace: str, place: str) -> WorkspaceArchive:
    """Open a workspace's archive at a URL, or in a folder. Nothing is requested yet, and what is
    already open in this process is returned. Raises BadArchive, ExtraMissing.
    """
    address = place if "://" in place else Path(place).absolute().as_uri()
    return _archive(os.getpid(), workspace, address, _configured[0])


def opened() -> dict[str, Tiers]:
    """Return the archives that this process has opened, by address."""
    return dict(_opened)


_opened: dict[str, Tiers] = {}


@lru_cache(maxsize=1_024)
def _archive(process: int, workspace: str, place: str, caches: Caches) -> WorkspaceArchive:
    from hansard.bus.archive.archived import WorkspaceArchive  # noqa: PLC0415 -- an optional package

    return WorkspaceArchive(_tiers(process, place, caches), workspace)


@lru_cache(maxsize=8)
def _tiers(_process: int, place: str, caches: Caches) -> Tiers:
    import platformdirs  # noqa: PLC0415 -- few processes open an archive

    from hansard.bus.archive.store import ObjectStore  # noqa: PLC0415 -- an optional package
    from hansard.bus.archive.tiers import Tiers  # noqa: PLC0415 -- needs cachetools, which only reads of an archive do

    folder = caches.folder or platformdirs.user_cache_path("hansard") / "archive"
    tiers = Tiers(ObjectStore(place), folder, caches.memory_bytes, caches.disk_bytes)
    _opened[tiers.store.url] = tiers
    return tiers
