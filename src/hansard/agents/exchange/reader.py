"""Import of exported runs: everything is checked before anything is written.

The file is read twice: first to check it completely and to compare it with the workspace, then to
store it. Memory is constant except for the names of streams and blobs, and for the stored commits
of the same runs. A section is imported whole or not at all, unless the import is killed while it
stores; it continues when it is run again, since stored commits are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from hansard.agents.exchange._section import Section, appended
from hansard.agents.exchange.format import (
    HEADER_MARK,
    LINE_BYTES_MAX,
    BlobLine,
    CommitLine,
    Damaged,
    Line,
    unseal,
)
from hansard.agents.importers.files import seekable
from hansard.agents.importers.sources import (
    EVENTS,
    HEAD_BYTES,
    Bad,
    BadRecord,
    Tally,
    Watcher,
    hint_of,
)
from hansard.agents.workspace import Workspace
from hansard.bus.errors import Conflict, NotFound
from hansard.bus.log import Append
from hansard.domain.choices import counted
from hansard.domain.errors import Corrupt

PIECE_BYTES = 1024 * 1024
"""Bytes of one read of data that is discarded."""


LinePosition = tuple[int, int, bool]
"""Bytes and lines before the next line, and whether the newest line was terminated."""


class Lines:
    """Reads lines. `number` counts them from 1, `size` is that of the newest in bytes.

    A header that follows a truncated line starts its own line, with that line's number: it marks
    where an incomplete file was followed by another one.
    """

    def __init__(self, file: BinaryIO) -> None:
        self.number = 0
        self.size = 0
        self._file = file
        self._ended = True
        self._glued = False
        self._newest: LinePosition = (0, 0, True)

    @property
    def offset(self) -> int:
        """Offset of the next line in the file, in bytes."""
        return self._file.tell()

    def next(self) -> tuple[bytes, Line] | None:
        """Return the next line with its bytes, or None at the end of the file. Raises Damaged."""
        data = self._read()
        if not data:
            return None
        if self._glued:
            raise Damaged(
                "it is cut off, or not a line of an export: the header of an export follows in the "
                "same line"
            )
        if self.size > LINE_BYTES_MAX:
            limit = f"{LINE_BYTES_MAX:,}"
            raise Damaged(
                f"the line has {self.size:,} bytes, and a line of an export has at most {limit}"
            )
        return data, unseal(data)

    def back(self) -> None:
        """Return to the start of the newest line, so that it is read again."""
        if self.size:
            self.seek(self._newest)

    def is_at_header(self) -> bool:
        """Return whether the newest line starts a section."""
        here = self._file.tell()
        self._file.seek(self._newest[0])
        is_header = self._file.read(len(HEADER_MARK)) == HEADER_MARK
        self._file.seek(here)
        return is_header

    def to_header(self) -> None:
        """Skip to the start of the next section, or to the end."""
        while self._read():
            if self.is_at_header():
                self.back()
                return

    def hint(self) -> str:
        """Return a hint at the file's format if its first line is not a line of an export."""
        if self.number != 1:
            return ""
        self._file.seek(0)
        hint = hint_of(self._file.read(HEAD_BYTES), EVENTS)
        self._file.seek(self._newest[0] + self.size)
        return hint

    def tell(self) -> LinePosition:
        """Return the current position, for `seek`."""
        return self.offset, self.number, self._ended

    def seek(self, place: LinePosition) -> None:
        """Return to a position."""
        offset, self.number, self._ended = place
        self._file.seek(offset)

    def _read(self) -> bytes:
        """Read the next line, keeping little more than the largest allowed line."""
        self._newest = self.tell()
        data = self._file.readline(LINE_BYTES_MAX + len(HEADER_MARK) + 1)
        glued = data.find(HEADER_MARK, 1)
        self._glued = glued > 0
        if self._glued:
            data = data[:glued]
            self._file.seek(self._newest[0] + glued)
        self.size = len(data)
        self.number += bool(data) and self._ended
        more = data
        while len(data) > LINE_BYTES_MAX and more and not more.endswith(b"\n"):
            more = self._file.readline(PIECE_BYTES)
            self.size += len(more)
        self._ended = more.endswith(b"\n") or not data
        return data


BATCH_COMMITS_MAX = 2_000
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Limits of one append, whichever is reached first; a transaction is not split. Reading the next
batch meanwhile gained only 3 %."""

YIELD_EVERY = 64
"""Lines between two yields to the event loop (for the broker's pings)."""

STDIN = "-"


async def import_events(workspace: Workspace, path: Path | None, watcher: Watcher) -> Tally:
    """Import a file of 'hansard export', or standard input for None.

    Each section is imported whole, or reported as one bad record with the faulty line. Raises
    BadRecord if the watcher does, OSError, and the log's errors.
    """
    with seekable(path) as file:
        return await _Import(workspace, str(path) if path else STDIN, watcher).all_of(Lines(file))


class _Import:
    """Import of one file."""

    def __init__(self, workspace: Workspace, name: str, watcher: Watcher) -> None:
        self._workspace = workspace
        self._name = name
        self._watcher = watcher
        self._tally = Tally()
        self._read = 0

    async def all_of(self, lines: Lines) -> Tally:
        """Import all sections in order."""
        while True:
            place = lines.tell()
            section = Section(self._workspace)
            try:
                if not await self._check(section, lines):
                    break
            except Damaged as damaged:
                self._bad(lines.number, str(damaged) + lines.hint())
                if section.number and lines.is_at_header():
                    lines.back()
                else:
                    lines.to_header()
            else:
                await self._take(section, lines, place)
            self._progress(lines.offset)
        if not lines.number:
            self._bad(1, "the file is empty: give one that 'hansard export' wrote")
        return self._tally

    def _bad(self, line: int, reason: str) -> None:
        self._tally.bad += 1
        try:
            self._watcher.bad(Bad(self._name, line, reason))
        except BadRecord as stopped:
            stopped.tally = self._tally
            raise

    def _progress(self, offset: int) -> None:
        """Report the progress in the file."""
        if offset > self._read:
            self._watcher.read(offset - self._read)
            self._read = offset

    async def _check(self, section: Section, lines: Lines) -> bool:
        """Check a whole section; return False if there is none left. Raises Damaged."""
        begin = lines.offset
        while not section.is_complete:
            line = lines.next()
            if line is None:
                if not section.number:
                    return False
                raise Damaged(
                    f"the file ends here, {counted(section.number, 'line')} into "
                    f"an export and before its "
                    "end: it is incomplete; export it again"
                )
            await section.take(*line)
            if section.number % YIELD_EVERY == 0:
                self._progress((begin + lines.offset) // 2)  # every line is read twice
                await asyncio.sleep(0)
        return True

    async def _take(self, section: Section, lines: Lines, place: LinePosition) -> None:
        """Store a checked section, unless the workspace already has all of it."""
        end = lines.tell()
        if section.new:
            lines.seek(place)
            try:
                async for batch in _batches(self._workspace, section, lines):
                    self._tally.new += await self._workspace.log.append_bulk(batch)
            except Conflict as lost:
                reason = (
                    f"{lost}; another writer appended during the import: what comes before "
                    "that commit in the file is stored, the rest is not"
                )
                self._bad(place[1] + 1, reason)
                return
            except Damaged as damaged:
                reason = (
                    f"the file was changed while it was read ({damaged}): what comes before is "
                    "stored, the rest is not; import it again"
                )
                self._bad(lines.number, reason)
                return
            finally:
                lines.seek(end)
        section.tally.absent = [
            sha256
            for sha256, size in section.absent.items()
            if not await _is_here(self._workspace, sha256, size)
        ]
        self._tally.add(section.tally)


async def _is_here(workspace: Workspace, sha256: str, size: int) -> bool:
    try:
        await workspace.blobs.get(sha256, size)
    except (NotFound, Corrupt):
        return False
    return True


async def _batches(
    workspace: Workspace, section: Section, lines: Lines
) -> AsyncIterator[list[Append]]:
    """Yield the section's new commits in batches, after storing their blobs.

    Raises Damaged.
    """
    batch: list[Append] = []
    size = 0
    blob = bytearray()
    for number in range(section.number):
        found = lines.next()
        if found is None or found[1].n != number:
            raise Damaged(f"line {number} of its export is gone")
        line = found[1]
        if isinstance(line, BlobLine) and line.sha256 in section.needed_blobs:
            blob += line.data
            if line.part == line.parts - 1:
                await workspace.blobs.put(bytes(blob))
                blob.clear()
        elif isinstance(line, CommitLine):
            append = appended(workspace.log.workspace, line)
            if section.comparison.has(append.stream, line.version):
                continue
            batch.append(append)
            size += len(line.body)
            tx = append.commit.tx
            whole = tx is None or tx.index == tx.count - 1
            if whole and (len(batch) >= BATCH_COMMITS_MAX or size >= BATCH_BYTES_MAX):
                yield batch
                batch, size = [], 0
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    if batch:
        yield batch
