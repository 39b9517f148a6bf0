"""Import recorded chats into a workspace: reading, mapping and sending overlap in bounded memory.

A record is mapped completely before any of it is sent, so a bad record is never stored in part.
Commits are appended in the order of the records. An import that was killed continues when it is run
again, since commits that are already stored are skipped.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Self

import msgspec
from cachetools import LRUCache

from hansard.agents.exchange.files import Bad, BadRecord, Tally, Watcher
from hansard.agents.workspace import Workspace, read_lives
from hansard.bus.errors import Conflict
from hansard.bus.log import Append
from hansard.domain.errors import CallerError
from hansard.domain.ids import WorkspaceStream, run_of, uuid8
from hansard.domain.run import (
    FILES_MAX,
    IMPORT_KIND,
    IMPORTS,
    REASON_LENGTH_MAX,
    REASONS_MAX,
    ImportEnded,
    RunAssigned,
    decide_import,
)
from hansard.domain.steps import IMPORTER
from hansard.ext.importers import sources
from hansard.ext.importers.chat import (
    SOURCE,
    SOURCE_RUN,
    WORDS,
    ChatRun,
    ImportDefaults,
    Mapped,
    mapped,
    run_id,
)
from hansard.ext.importers.formats import CLAUDE_CODE, Claims
from hansard.state.repository import folded

BATCH_COMMITS_MAX = 2_000
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Limits of one send, whichever is reached first: two atomic batches, and the bytes that one may
hold. As much again is read during the send."""

KNOWN_RUNS_MAX = 100_000
"""Largest number of this import's newest runs that are checked for duplicates: about 15 MB. A
duplicate of an older run is sent again, skipped by the log, and counted as a run."""

BLOBS_BYTES_AT_ONCE = 4 * 1024 * 1024
"""Blob bytes in flight at the same time: half of the connection's buffer."""

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

    Leaving the block sends what was read, even if a bad record ended the import, and records the
    counts (`import.ended.v1`). `tally` is final only after that. With `no_guesses`, the import
    stops at the first assumption about what a source does not state.
    """

    def __init__(
        self,
        workspace: Workspace,
        format_: str,
        defaults: ImportDefaults,
        watcher: Watcher,
        *,
        no_guesses: bool = False,
    ) -> None:
        self.tally = Tally()
        self._no_guesses = no_guesses
        self._files: list[str] = []
        self._reasons: list[str] = []
        self._claims: dict[str, dict[str, float]] = {}
        self._named: dict[_Name, set[str]] | None = None
        self._workspace = workspace
        self._format = format_
        self._given = defaults
        self._watcher = watcher
        self._known: LRUCache[str, bool] = LRUCache(KNOWN_RUNS_MAX)
        self._batch = _Batch()
        self._sending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, *__: object) -> None:
        if error is None or isinstance(error, BadRecord):
            try:
                await self._send()
                await self._sent()
            except BadRecord:
                await self._ended(stopped=True)
                raise
            await self._ended(stopped=error is not None)
        elif self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])

    async def take(self, path: Path | None) -> None:
        """Import a file, or standard input for None.

        Raises BadRecord if the watcher does, OSError, and the log's errors.
        """
        file = str(path) if path is not None else STDIN
        self._files.append(_name(file))
        for line, record in sources.records(self._format, path, self._given, self._watcher):
            if isinstance(record, str):
                self._bad(file, line, record)
            elif isinstance(record, Claims):
                self._claims |= record.figures
                self.tally.claims += sum(map(len, record.figures.values()))
            else:
                await self._run(record, file, line)
            if self._batch.is_full:
                await self._send()
            else:
                await asyncio.sleep(0)  # lets the send in flight proceed

    def _bad(self, file: str, line: int, reason: str) -> None:
        self.tally.bad += 1
        bad = Bad(file, line, reason)
        if len(self._reasons) < REASONS_MAX:
            self._reasons.append(f"{_name(file)}:{line}: {reason}"[:REASON_LENGTH_MAX])
        self._watcher.bad(bad)

    async def _run(self, chat: ChatRun, file: str, line: int) -> None:
        try:
            run = run_id(chat)
            if self._known.get(run):
                self.tally.duplicates += 1
                return
            mapped_run = mapped(chat, run, _name(file), self._workspace.clock.now())
        except CallerError as error:
            self._bad(file, line, str(error))
            return
        except RecursionError:
            self._bad(file, line, "it is nested too deep to be recorded: flatten it")
            return
        redaction = self._workspace.redaction
        if redaction is not None and any(map(redaction.holds, mapped_run.blobs)):
            fact = "a text stored as a blob holds a secret, which cannot be replaced"
            self._bad(file, line, f"{fact} there: take the secret out of the file")
            return
        conflict = await self._conflict(chat, run)  # last: only an imported run reserves its name
        if conflict is not None:
            self._bad(file, line, conflict)
            return
        if self._no_guesses and mapped_run.assumed:
            self._guessed(mapped_run, file, line)
        self._known[run] = True
        self._batch.add(mapped_run, file, line)
        self.tally.add(mapped_run.tally)

    def _guessed(self, run: Mapped, file: str, line: int) -> None:
        """Stop at the first assumption. Raises BadRecord."""
        kind, value = next(iter(run.assumed.items()))
        what, remedy = WORDS[kind]
        where = f"messages[{value.first}]: " if value.first is not None else ""
        more = f" ({value.count:,} in this run)" if value.count > 1 else ""
        reason = f"{where}a {what}{more}: {remedy}, or leave out --no-guesses"
        self._bad(file, line, reason)
        raise BadRecord(Bad(file, line, reason))

    async def _conflict(self, chat: ChatRun, run: str) -> str | None:
        """Return the reason if the run's name in the source is already used for other content."""
        name = chat.labels.get(SOURCE_RUN)
        if name is None:
            return None
        if self._named is None:
            self._named = await _names(self._workspace)
        key = (chat.format, chat.experiment, chat.arm, name)
        there = self._named.setdefault(key, {run})
        if run in there:
            return None
        of = f" of arm {chat.arm!r}" if chat.arm else ""
        if chat.format == CLAUDE_CODE:  # its name is the session's id, which cannot be changed
            return (
                f"session {name!r:.80}{of} continued or changed since it was imported as "
                f"{min(there)}, and a run is imported once: to have the longer one too, import it "
                "into another workspace (hansard --workspace NAME import FILE), or as a trial "
                "(--experiment NAME --arm NAME)"
            )
        return (
            f"run {name!r:.80}{of} is imported with other content, as {min(there)}: give it "
            "another name, or leave its name out to import it as well"
        )

    async def _ended(self, *, stopped: bool) -> None:
        """Record what was read, skipped and assumed."""
        tally = self.tally
        if not tally.runs and not self._claims:
            return
        ended = ImportEnded(
            format=self._format,
            files=tuple(self._files[:FILES_MAX]),
            more_files=max(0, len(self._files) - FILES_MAX),
            runs=tally.runs,
            experiment=self._given.experiment or "",
            arm=self._given.arm or "",
            duplicates=tally.duplicates,
            skipped=tally.bad,
            reasons=tuple(self._reasons),
            assumed=dict(sorted(tally.assumed.items())),
            left_out=dict(sorted(tally.left_out.items())),
            stopped=stopped,
            claims=dict(sorted(self._claims.items())),
        )
        stream = WorkspaceStream(IMPORT_KIND, uuid8(self._format, *self._files))
        await self._workspace.repository.record(
            stream, IMPORTER, lambda stored: decide_import(folded(IMPORTS, stored), ended)
        )

    # ------------------------------------------------------------ sending

    async def _send(self) -> None:
        """Send what was read, after the previous batch has arrived."""
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
                self._batch = _Batch()  # read after the record that ends the import
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
                reason = f"run {run} was imported before and has been written to since: {lost}"
                self._bad(*batch.runs[run], reason)
            else:
                return

    async def _put(self, blobs: list[bytes]) -> None:
        """Store blobs, several at a time while they are small."""
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


_Name = tuple[str, str, str, str]
"""Format, experiment, arm, and the run's name in the source."""


async def _names(workspace: Workspace) -> dict[_Name, set[str]]:
    """Return the runs of earlier imports, by their names in the source."""
    runs: dict[_Name, set[str]] = {}
    for life in await read_lives(workspace.log):
        labels, placed = life.state.labels, life.state.assigned or RunAssigned()
        if SOURCE_RUN in labels and life.state.forked is None:
            key = (labels.get(SOURCE, ""), placed.experiment, placed.arm, labels[SOURCE_RUN])
            runs.setdefault(key, set()).add(life.run)
    return runs


def _name(file: str) -> str:
    """Return a file's name without its folder, as a label."""
    return Path(file).name.encode(errors="backslashreplace").decode()
