"""Bring recorded chats into a workspace: read, map and send overlap, in flat memory.

A record is mapped whole before any of it is sent, so a bad one is never half there. Commits go in
the order of the records; a killed import goes on where it stood when it is run again, since what
stands already is passed over.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

import msgspec
from cachetools import LRUCache

from hansard.agents.importers import sources
from hansard.agents.importers._files import NotADocument
from hansard.agents.importers.chat import ChatRun, Given
from hansard.agents.importers.mapping import Mapped, earlier_id, mapped, run_id
from hansard.agents.importers.report import Bad, BadRecord, Tally, Watcher
from hansard.agents.workspace import Workspace
from hansard.bus.errors import Conflict, NotFound
from hansard.bus.log import Append
from hansard.domain.errors import CallerError
from hansard.domain.ids import run_of
from hansard.domain.run import RunStatus

BATCH_COMMITS_MAX = 2_000
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Sent at once, whichever is reached first: two atomic batches, and what one may hold. As much
again is read meanwhile."""

KNOWN_RUNS_MAX = 100_000
"""Newest runs of an import among which a record is found to be a duplicate: some 15 MB. An older
one is sent again and passed over by the log, and counts as a run of its own."""

BLOBS_BYTES_AT_ONCE = 4 * 1024 * 1024
"""Blobs on their way at the same time: half of what the connection buffers."""

STDIN = "-"


class _Batch(msgspec.Struct):
    """Runs to send, and where each was read."""

    runs: dict[str, tuple[str, int]] = {}
    appends: list[Append] = []
    blobs: dict[bytes, None] = {}
    size: int = 0

    def add(self, run: Mapped, file: str, line: int) -> None:
        self.runs[run.run] = (file, line)
        self.appends += run.appends
        self.blobs.update(dict.fromkeys(run.blobs))
        self.size += run.size

    @property
    def is_full(self) -> bool:
        return len(self.appends) >= BATCH_COMMITS_MAX or self.size >= BATCH_BYTES_MAX


class Importer:
    """Imports files of one chat format; use it in an `async with`.

    Leaving it sends what was read, also where a bad record ended the import. `tally` is right
    after that. `again` reads also those anew that an earlier version read otherwise.
    """

    def __init__(
        self,
        workspace: Workspace,
        format_: str,
        given: Given,
        watcher: Watcher,
        *,
        again: bool = False,
    ) -> None:
        self.tally = Tally()
        self._again = again
        self._workspace = workspace
        self._format = format_
        self._given = given
        self._watcher = watcher
        self._known: LRUCache[str, bool] = LRUCache(KNOWN_RUNS_MAX)
        self._batch = _Batch()
        self._sending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if error is None or isinstance(error, BadRecord):
            await self._send()
            await self._sent()
        elif self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def take(self, path: Path | None) -> None:
        """Import a file, or standard input for None.

        Raises BadRecord where the watcher does, OSError, and what the log raises.
        """
        file = str(path) if path is not None else STDIN
        try:
            for line, found in sources.records(self._format, path, self._given, self._watcher):
                if isinstance(found, str):
                    self._bad(file, line, found)
                elif self._again or not await self._is_there(found, file, line):
                    self._run(found, file, line)
                if self._batch.is_full:
                    await self._send()
                else:
                    await asyncio.sleep(0)  # what is on its way goes on
        except NotADocument as error:
            self._bad(file, 1, str(error))

    def _bad(self, file: str, line: int, reason: str) -> None:
        self.tally.bad += 1
        self._watcher.bad(Bad(file, line, reason))

    async def _is_there(self, chat: ChatRun, file: str, line: int) -> bool:
        """Whether a run stands as an earlier version read it, which is left so."""
        earlier = earlier_id(chat)
        if earlier is None:
            return False
        try:
            life = await self._workspace.states.life(earlier)
        except NotFound:
            return False
        if chat.ending is not None and life.status is RunStatus.OPEN:
            reason = f"an earlier version's import of run {earlier} was cut: --again reads it anew"
            self._bad(file, line, reason)
        else:
            self.tally.earlier += 1
        return True

    def _run(self, chat: ChatRun, file: str, line: int) -> None:
        try:
            run = run_id(chat)
            if self._known.get(run):
                self.tally.duplicates += 1
                return
            made = mapped(chat, run, _name(file), self._workspace.clock.now())
        except CallerError as error:
            self._bad(file, line, str(error))
            return
        except RecursionError:
            self._bad(file, line, "it is nested too deep to be recorded: flatten it")
            return
        self._known[run] = True
        self._batch.add(made, file, line)
        self._count(made)

    def _count(self, made: Mapped) -> None:
        tally = self.tally
        tally.runs += 1
        tally.messages += made.messages
        tally.calls += made.calls
        tally.commits += len(made.appends)
        tally.events += made.events
        tally.blobs += len(made.blobs)
        tally.unasked += made.unasked
        tally.matched += made.matched
        tally.unanswered += [(made.run, call) for call in made.unanswered]

    # ------------------------------------------------------------ sending

    async def _send(self) -> None:
        """Send what was read, once what is on its way has arrived."""
        await self._sent()
        if self._batch.appends:
            self._sending = asyncio.create_task(self._store(self._batch))
            self._batch = _Batch()
            await asyncio.sleep(0)

    async def _sent(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            try:
                await sending
            except BadRecord:
                self._batch = _Batch()  # it was read after the one that ends the import
                raise

    async def _store(self, batch: _Batch) -> None:
        await self._put(list(batch.blobs))
        appends = batch.appends
        while appends:
            try:
                self.tally.new += await self._workspace.log.append_bulk(appends)
            except Conflict as lost:
                run = run_of(lost.stream) or ""
                appends = [append for append in appends if run_of(append.stream) != run]
                reason = f"run {run} was begun by an import and then written to by others: {lost}"
                self._bad(*batch.runs[run], reason)
            else:
                return

    async def _put(self, blobs: list[bytes]) -> None:
        """Store blobs, several at once as long as they are small."""
        while blobs:
            size = 0
            some: list[bytes] = []
            while blobs and (not some or size + len(blobs[-1]) <= BLOBS_BYTES_AT_ONCE):
                some.append(blobs.pop())
                size += len(some[-1])
            try:
                async with asyncio.TaskGroup() as tasks:
                    for blob in some:
                        tasks.create_task(self._workspace.blobs.put(blob))
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from failed


def _name(file: str) -> str:
    """A file's name without its folder, as a label."""
    return Path(file).name.encode(errors="backslashreplace").decode()
