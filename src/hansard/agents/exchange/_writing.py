"""Writing the lines of one section: numbered, hashed, each blob once and before it is named."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from hansard.agents.exchange.format import (
    LINE_BYTES_MAX,
    PART_BYTES,
    BlobLine,
    End,
    Line,
    Missing,
    seal,
)
from hansard.bus.blobs import Blobs
from hansard.bus.errors import NotFound
from hansard.domain.errors import BadValue, Corrupt


class Section:
    """Writes one section. `number` is that of the next line; `blobs` and `missing` count as it
    goes.
    """

    def __init__(self, blobs: Blobs, write: Callable[[bytes], object]) -> None:
        self.number = 0
        self.blobs = 0
        self.missing: list[Missing] = []
        self._store = blobs
        self._write = write
        self._hash = hashlib.sha256()
        self._seen: set[str] = set()

    def line(self, line: Line) -> None:
        """Write a line. Raises BadValue for one that no reader would take."""
        data = seal(line)
        if len(data) > LINE_BYTES_MAX:
            fact = f"line {self.number} would have {len(data):,} bytes"
            raise BadValue("export", fact, "export fewer runs at once")
        self._hash.update(data)
        self.number += 1
        self._write(data)

    async def named(self, blobs: Iterator[tuple[str, int]]) -> None:
        """Write the blobs that the next line names and none before it did.

        One that cannot be read is missing: an erased blob is no reason to keep the rest.
        """
        for sha256, size in blobs:
            if sha256 in self._seen:
                continue
            self._seen.add(sha256)
            try:
                data = await self._store.get(sha256, size)
            except NotFound:
                self._missing(sha256, "it was erased, or never stored whole")
            except Corrupt:
                self._missing(sha256, "its bytes are damaged")
            else:
                self.blobs += 1
                for line in self._parts(sha256, data):
                    self.line(line)

    def _missing(self, sha256: str, why: str) -> None:
        self.missing.append(Missing(f"blob {sha256}", why))

    def _parts(self, sha256: str, data: bytes) -> Iterator[BlobLine]:
        parts = max(1, -(-len(data) // PART_BYTES))
        for part in range(parts):
            piece = data[part * PART_BYTES : (part + 1) * PART_BYTES]
            yield BlobLine(self.number, sha256, len(data), part, parts, piece)

    def end(self, commits: int) -> None:
        """Write the end."""
        self.line(End(self.number, commits, self.blobs, self.missing, self._hash.hexdigest()))
