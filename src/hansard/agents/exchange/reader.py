"""Reading exported runs in: everything is checked before anything is written.

The file is read twice: once to check it whole and to compare it with what the workspace has, once
to store it. Memory is flat but for the names of streams and blobs, and for what stands here of the
same runs. A section goes in whole or not at all, unless the import is killed while it stores; it
then goes on when it is run again, since what stands already is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from hansard.agents.exchange._lines import LinePosition, Lines
from hansard.agents.exchange._section import Section, appended
from hansard.agents.exchange.format import BlobLine, CommitLine, Damaged
from hansard.agents.importers.files import seekable
from hansard.agents.importers.report import Bad, BadRecord, Tally, Watcher
from hansard.agents.workspace import Workspace
from hansard.bus.errors import Conflict, NotFound
from hansard.bus.log import Append
from hansard.domain.counted import counted
from hansard.domain.errors import Corrupt

BATCH_COMMITS_MAX = 2_000
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Stored at once, whichever is reached first; a transaction is not split. To read the next one
meanwhile was measured: 3 % faster."""

YIELD_EVERY = 64
"""Lines between two looks at what else the loop has to do (the broker's pings)."""

STDIN = "-"


async def import_events(workspace: Workspace, path: Path | None, watcher: Watcher) -> Tally:
    """Import a file of 'hansard export', or standard input for None.

    Each section goes in whole, or is told as one bad record with the line where it is wrong.
    Raises BadRecord where the watcher does, OSError, and what the log raises.
    """
    with seekable(path) as file:
        return await _Import(workspace, str(path) if path else STDIN, watcher).all_of(Lines(file))


class _Import:
    """The import of one file."""

    def __init__(self, workspace: Workspace, name: str, watcher: Watcher) -> None:
        self._workspace = workspace
        self._name = name
        self._watcher = watcher
        self._tally = Tally()
        self._read = 0

    async def all_of(self, lines: Lines) -> Tally:
        """Import section after section."""
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
        """Tell how far in the file it is."""
        if offset > self._read:
            self._watcher.read(offset - self._read)
            self._read = offset

    async def _check(self, section: Section, lines: Lines) -> bool:
        """Check a whole section; False where there is none any more. Raises Damaged."""
        begin = lines.offset
        while not section.is_whole:
            found = lines.next()
            if found is None:
                if not section.number:
                    return False
                raise Damaged(
                    f"the file ends here, {counted(section.number, 'line')} into "
                    f"an export and before its "
                    "end: it is not whole; export it again"
                )
            await section.take(*found)
            if section.number % YIELD_EVERY == 0:
                self._progress((begin + lines.offset) // 2)  # all is read twice
                await asyncio.sleep(0)
        return True

    async def _take(self, section: Section, lines: Lines, place: LinePosition) -> None:
        """Store a section that was checked, unless all of it stands here."""
        end = lines.tell()
        if section.new:
            lines.seek(place)
            try:
                async for batch in _batches(self._workspace, section, lines):
                    self._tally.new += await self._workspace.log.append_bulk(batch)
            except Conflict as lost:
                reason = (
                    f"{lost}; somebody wrote here while it was being imported: what comes before "
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
    """The commits of a section that are not here yet; their blobs are stored before them.

    Raises Damaged.
    """
    batch: list[Append] = []
    size = 0
    blob = bytearray()
    for number in range(section.number):
        found = lines.next()
        if found is None or found[1].n != number:
            raise Damaged(f"line {number} of its export is not here any more")
        line = found[1]
        if isinstance(line, BlobLine) and line.sha256 in section.wanted:
            blob += line.data
            if line.part == line.parts - 1:
                await workspace.blobs.put(bytes(blob))
                blob.clear()
        elif isinstance(line, CommitLine):
            append = appended(workspace.log.workspace, line)
            if section.standing.has(append.stream, line.version):
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
