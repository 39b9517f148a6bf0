"""Evidence about a workspace's log outside of it: the broker's mark, tables, generations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from hansard.broker.lease import peek
from hansard.bus import marks, subjects
from hansard.bus.commits import decode
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.bus.marks import Damaged, Known, Mark
from hansard.bus.validation.check import Finding, Kind, RawMessage
from hansard.domain.errors import Corrupt
from hansard.domain.ids import run_of
from hansard.inspect.answer import Answer
from hansard.projections.errors import Held, Newer, Older, ProjectionError, Unusable
from hansard.projections.publish import snapshots as published
from hansard.projections.roles.table_files import role_places
from hansard.projections.store import Progress, Store
from hansard.projections.table_files import TableFiles, WriteLock

# Messages of the log decoded as commits.


class LoggedCommit(msgspec.Struct, tag_field="kind", tag="commit", kw_only=True):
    """Commit in short; `time` is the log's."""

    workspace: str
    position: int
    time: str
    run: str | None
    stream: str
    version: int
    commit: str
    actor: str
    epoch: int
    events: list[str]


class CorruptLine(msgspec.Struct, tag_field="kind", tag="corrupt", kw_only=True):
    """Message that is not a commit, and why."""

    workspace: str
    position: int
    subject: str
    fact: str


class LogEntry(Answer):
    """Message of the log: its commit, or the error that prevents decoding."""

    position: int
    time: datetime
    line: LoggedCommit | CorruptLine
    error: Corrupt | None = None

    def lines(self) -> Iterable[LoggedCommit | CorruptLine]:
        """Yield the commit, or why it could not be decoded."""
        return (self.line,)


def logged(workspace: str, message: RawMessage) -> LogEntry:
    """Return a message in short."""
    seconds, ns = divmod(message.stamp, 1_000_000_000)
    time = datetime.fromtimestamp(seconds, UTC).replace(microsecond=ns // 1_000)
    position = message.position
    try:
        stream, commit = decode(message.subject, message.body)
    except Corrupt as error:
        corrupt = CorruptLine(
            workspace=workspace, position=position, subject=message.subject, fact=error.fact
        )
        return LogEntry(position, time, corrupt, error)
    line = LoggedCommit(
        workspace=workspace,
        position=position,
        time=time.isoformat(),
        run=run_of(stream),
        stream=str(stream),
        version=commit.version,
        commit=commit.id,
        actor=commit.actor.agent,
        epoch=commit.epoch,
        events=[event.type for event in commit.events],
    )
    return LogEntry(position, time, line)


KEEP = (
    "Put back a copy of the broker's files that has them; do not rebuild the tables before that, "
    "they may be all that is left of them"
)
"""Remedy if the tables know more than the log."""

RELAXED = (
    "Durability is 'relaxed': a power cut may take what was acknowledged within the last 14 ms "
    "before it"
)


class Evidence(msgspec.Struct):
    """Marks of the log, and problems of the files that hold them."""

    known: list[Known] = []
    found: list[Finding] = []


async def collect(raw: RawWorkspace, data_dir: Path, *, embedded: bool) -> Evidence:
    """Collect the evidence about the log of an embedded or an external broker.

    Call it before reading the end of the log.
    """
    evidence, workspace = Evidence(), raw.workspace
    aside = KEEP
    if embedded:
        _broker(evidence, data_dir, workspace)
        try:
            await raw.refuse_loss()
        except Corrupt as error:
            evidence.found.append(Finding(Kind.LOSS, error.fact))
        running = await asyncio.to_thread(peek, data_dir)
        relaxed = running is not None and running.durability.value == "relaxed"
        aside = f"{RELAXED}. {KEEP}" if relaxed else KEEP
    place = TableFiles.of(data_dir, workspace)
    await asyncio.to_thread(_tables, evidence, place, workspace, aside)
    await asyncio.to_thread(_published, evidence, place, "run 'hansard rebuild'")
    for each in role_places(data_dir, workspace):
        await asyncio.to_thread(
            _published, evidence, each, "remove its folder: the next query rebuilds it"
        )
    if not embedded and not evidence.known and not evidence.found:
        fact = (
            f"nothing in {str(data_dir)!r} records the length of the log, so a lost end cannot be "
            "detected: run 'hansard up' or 'hansard sql', whose tables record it"
        )
        evidence.found.append(Finding(Kind.MARK, fact, wrong=False))
    return evidence


def _broker(evidence: Evidence, data_dir: Path, workspace: str) -> None:
    """Collect the mark that the supervisor keeps."""
    path = marks.path_of(data_dir, workspace)
    try:
        kept = marks.read(data_dir, workspace)
    except (Damaged, OSError) as error:
        fact = f"the broker's mark: {error}; remove it; a new one is then created"
        evidence.found.append(Finding(Kind.MARK, fact, wrong=False))
        return
    if kept is None:
        return  # too new to have been compared yet
    evidence.known.append(Known("the broker's mark", kept.mark, marks.remedy(path)))
    if kept.late is not None:
        fact = (
            f"the broker's mark was begun on {marks.when(kept.began)}, when the log was there "
            f"already ({kept.late}): it knows nothing of what was lost at the end before that"
        )
        evidence.found.append(Finding(Kind.MARK, fact, wrong=False))


def _tables(evidence: Evidence, place: TableFiles, workspace: str, aside: str) -> None:
    """Collect the tables, or what is published if another process writes them."""
    hold: WriteLock | None = None
    try:
        if place.path.exists():
            hold = WriteLock(place)
    except Held:
        pass
    except Unusable as error:
        evidence.found.append(Finding(Kind.TABLES, str(error)))
        return
    try:
        reached = _read_whole(evidence, "the tables", place.path) if hold is not None else None
    finally:
        if hold is not None:
            hold.close()
    if reached is not None:
        _add(evidence, "the tables", workspace, reached, aside)
    with published.holding(place) as current:
        if current is None:
            return
        progress = Progress(current.position, current.digest, current.messages, current.chain)
        _add(evidence, "what is published", workspace, progress, aside)


def _published(evidence: Evidence, place: TableFiles, remedy: str) -> None:
    """Compare the published bytes with the digests made when they were published."""
    damages = [
        f"'{folder / published.GENERATION_FILE}' is damaged"
        for folder in published.unreadable(place)
    ]
    with published.holding(place) as current:
        damage = published.damage(current) if current is not None else None
        damages += [damage] if damage is not None else []
    for fact in damages:
        text = f"the published tables: {fact}; the log loses nothing by it: {remedy}"
        evidence.found.append(Finding(Kind.TABLES, text))


def _add(evidence: Evidence, who: str, workspace: str, progress: Progress, aside: str) -> None:
    if progress.position:
        stream, position = subjects.log_stream(workspace), progress.position
        mark = Mark(stream, position, progress.messages, position, progress.chain or "")
        evidence.known.append(Known(who, mark, aside))


def _read_whole(evidence: Evidence, who: str, path: Path) -> Progress | None:
    """Read a file completely; return its position, None if it cannot be read."""
    try:
        store = Store(path, read_only=True)
        try:
            store.read_all()
            return store.progress
        finally:
            store.close()
    except (Older, Newer) as error:
        fact = f"{who} cannot be compared with the log: {error}"
        evidence.found.append(Finding(Kind.TABLES, fact, wrong=False))
    except ProjectionError as error:
        fact = f"{who} cannot be read, of which the log loses nothing: {error}"
        evidence.found.append(Finding(Kind.TABLES, fact))
    return None
