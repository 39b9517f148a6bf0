"""The port: snapshots, derived and outside the log, kept and thrown away at will."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Snapshots(Protocol):
    """Where a workspace's snapshots are kept, by subject."""

    async def put(self, subject: str, data: bytes) -> bool:
        """Send a snapshot; False if it was not sent. Nobody waits for it to be stored."""
        ...

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Those of the snapshots that exist, by subject."""
        ...
