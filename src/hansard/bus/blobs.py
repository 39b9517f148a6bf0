"""The port: large payloads outside the log, addressed by the hash of their bytes.

A blob is stored before the event that names it and is readable only through an event one may see.
It may be erased, which an event may not: then `get` raises NotFound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from hansard.domain.errors import Corrupt

BLOB_BYTES_MIN = 64 * 1024
"""Payloads over this go to a blob; smaller ones stay in their event."""


class Blobs(Protocol):
    """The blobs of one workspace."""

    async def put(self, data: bytes) -> str:
        """Store bytes; returns their SHA-256 in hex when all of it is acknowledged.

        Storing the same bytes again changes nothing, and completes what a killed writer began.
        Cancelling it may leave a part, which is harmless. Raises BrokerError, Unreachable.
        """
        ...

    async def get(self, sha256: str, size: int) -> bytes:
        """The bytes behind a hash. Raises NotFound, Corrupt, Unreachable."""
        ...

    async def get_all(self, blobs: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """The bytes behind several hashes, by hash, in as few requests as there may be; all of them
        are in memory at once. Raises as `get`.
        """
        ...


def verified(sha256: str, size: int, data: bytes) -> bytes:
    """The data, if it is what its hash and size say. Raises Corrupt."""
    if len(data) != size:
        raise Corrupt(f"blob {sha256}", f"it has {len(data):,} bytes, not {size:,}")
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise Corrupt(f"blob {sha256}", f"its bytes hash to {actual}")
    return data
