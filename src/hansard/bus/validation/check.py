"""Recheck a whole workspace: whether the record is valid, consistent and complete.

Every message of the log is read once, in order, undecoded: a message that cannot be decoded is a
finding and does not stop the check. It checks gaps in positions and versions, bodies against their
subjects, transactions, epochs, references between events, whether each change of memory follows the
previous state, every blob that an event names, and the marks kept outside of the log: only those
reveal a log that lost its end. Costs one full replay, one fetch of each blob, and memory for the
steps' numbers.
"""

from __future__ import annotations

import bisect
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec
from msgspec.structs import replace

from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import RawMessage, in_parts
from hansard.bus.marks import Extent, Known, Mark, link
from hansard.bus.validation._recheck import Count, Recheck
from hansard.domain.board import By
from hansard.domain.choices import counted
from hansard.domain.errors import Corrupt, Refused, UnknownEvent
from hansard.domain.events import Commit, Event
from hansard.domain.ids import StreamId, WorkspaceStream
from hansard.domain.memory import space
from hansard.domain.memory.events import KIND, MemoryChanged
from hansard.domain.memory.lines import in_full
from hansard.domain.payload import references

# Comparison of a log with its marks (`hansard.bus.marks`) while it is read in order.


class Compared:
    """Reads the messages of a log in order and counts differences to the marks."""

    def __init__(self, known: Iterable[Known], count: Count) -> None:
        self._known = _together(known)
        self._count = count
        self._chain = ""
        self._messages = 0
        self._marks = sorted({each.mark.chained for each in self._known if each.mark.chain})
        self._counted = sorted({each.mark.position for each in self._known})
        self._chains: dict[int, str] = {}
        self._counts: dict[int, int] = {}

    def message(self, position: int, subject: str, body: bytes) -> None:
        """Take the next message."""
        self._before(position)
        if not self._marks:
            return
        self._chain = link(self._chain, position, subject, body)

    def _before(self, position: int) -> None:
        """Note the extent of the log at each mark passed now, and one message further."""
        while self._marks and self._marks[0] < position:
            self._chains[self._marks.pop(0)] = self._chain
        while self._counted and self._counted[0] < position:
            self._counts[self._counted.pop(0)] = self._messages
        self._messages += 1

    def end(self, last: int) -> None:
        """Count the differences of a log that ends there."""
        self._before(last + 1)
        agreed = [
            each.mark.chained
            for each in self._known
            if self._chains.get(each.mark.chained) == each.mark.chain
        ]
        for each in self._known:
            if not self._shorter(each, last) and not self._fewer(each):
                self._other(each, sorted(agreed))

    def _shorter(self, known: Known, last: int) -> bool:
        mark = known.mark
        if mark.position <= last:
            return False
        many = mark.position - last
        fact = (
            f"the log ends at position {last}, and {known.who} knew it up to {mark.position}: "
            f"{many} acknowledged commit{'s are' if many > 1 else ' is'} gone. {known.aside}"
        )
        self._count("loss", fact.strip(), {"position": last})
        return True

    def _fewer(self, known: Known) -> bool:
        mark = known.mark
        has = self._counts.get(mark.position)
        if has is None or has >= mark.count:
            return False
        fact = (
            f"up to position {mark.position} the log holds "
            f"{counted(has, 'commit')}, and {known.who} counted "
            f"{mark.count}: {mark.count - has} are gone. {known.aside}"
        )
        self._count("loss", fact.strip(), {"position": mark.position})
        return True

    def _other(self, known: Known, agreed: list[int]) -> None:
        mark = known.mark
        has = self._chains.get(mark.chained)
        if not mark.chain or has is None or has == mark.chain:
            return
        before = bisect.bisect_left(agreed, mark.chained)
        since = agreed[before - 1] if before else 0
        fact = (
            f"positions {since + 1} to {mark.chained} do not hold what {known.who} read "
            "there: commits are gone or changed, or an older copy of the broker's files or another "
            f"log was put in their place. {known.aside}"
        )
        self._count("history", fact.strip(), {"position": mark.chained})


def _together(known: Iterable[Known]) -> list[Known]:
    """Group marks with equal contents, so that a difference is reported once."""
    groups: dict[Mark, list[Known]] = {}
    for each in known:
        groups.setdefault(replace(each.mark, before=""), []).append(each)
    return [
        Known(" and ".join(each.who for each in same), mark, same[-1].aside)
        for mark, same in groups.items()
    ]


class BlobSource(Protocol):
    """A source of blobs."""

    async def blobs(self, named: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Return some blobs by hash, each verified. Raises NotFound, Corrupt."""
        ...


class Memory:
    """Folds each memory space as its readers do, and derives the text of every change."""

    def __init__(self, source: BlobSource) -> None:
        self._source = source
        self._states: dict[str, space.MemoryState | None] = {}
        """None for a space with an unreadable event, which is another finding."""

    async def unfit(self, stream: StreamId, commit: Commit) -> list[tuple[int, str]]:
        """Return the versions of a commit whose change does not follow the previous state, or does
        not result in the recorded texts, with the reason.
        """
        if not isinstance(stream, WorkspaceStream) or stream.kind != KIND:
            return []
        state = self._states.setdefault(stream.id, space.initial())
        if state is None:
            return []
        state.version, known = commit.version - 1, len(state.unfit)
        faults: list[tuple[int, str]] = []
        try:
            for recorded in commit.events:
                by = By(commit.actor.agent, 0, recorded.id, commit.label)
                faults += await self._folded(state, revive(recorded), by)
        except (NotFound, Corrupt, UnknownEvent, Refused, msgspec.DecodeError):
            self._states[stream.id] = None
            return []
        return [*state.unfit[known:], *faults]

    async def _folded(
        self, state: space.MemoryState, event: Event, by: By
    ) -> list[tuple[int, str]]:
        """Fold an event into a state; return the versions whose texts differ from the recorded
        ones, with the reason.
        """
        unfit = len(state.unfit)
        space.evolve(state, await self._with_links(event), by)
        if not isinstance(event, MemoryChanged) or len(state.unfit) > unfit:
            return []
        texts = [state.files[each.path].body for each in event.files if each.after]
        faults: list[tuple[int, str]] = []
        for part, named in in_parts((text, list(text.blobs())) for text in texts):
            held = await self._source.blobs(named) if named else {}
            for text in part:
                try:
                    text.text(held)
                except Corrupt as error:
                    faults.append((state.version, str(error)))
        return faults

    async def _with_links(self, event: Event) -> Event:
        if not isinstance(event, MemoryChanged):
            return event
        links = [each for each in event.files if each.link]
        named = {blob for each in links for blob in references.blobs_named(bytes(each.edit))}
        if not named:
            return event
        held = await self._source.blobs(sorted(named))
        files = tuple(in_full(each, held) if each.link else each for each in event.files)
        return msgspec.structs.replace(event, files=files)


LOST = (
    "acknowledged commits are gone, or cannot be read any more; stop what writes, and put back a "
    "copy of the broker's files that has them"
)
"""Consequence of a gap in the positions, and its remedy."""

ERASED = "it was erased, or the blobs' files were lost or damaged: put back a copy that has it"


class Kind(StrEnum):
    """The subject of a finding."""

    SETTINGS = "settings"
    POSITION = "position"
    BODY = "body"
    QUARANTINE = "quarantine"
    VERSION = "version"
    TRANSACTION = "transaction"
    EPOCH = "epoch"
    DUPLICATE = "duplicate"
    EVENT = "event"
    UNKNOWN_EVENT = "unknown_event"
    REFERENCE = "reference"
    LABEL = "label"
    BLOB = "blob"
    LOSS = "loss"
    HISTORY = "history"
    MARK = "mark"
    TABLES = "tables"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One finding; `wrong` is False for a mere remark."""

    kind: Kind
    fact: str
    wrong: bool = True
    position: int | None = None
    run: str | None = None
    stream: str | None = None


class Summary(msgspec.Struct):
    """The number of things read, and the findings."""

    workspace: str
    position: int = 0
    commits: int = 0
    events: int = 0
    streams: int = 0
    runs: int = 0
    blobs: int = 0
    blob_bytes: int = 0
    blobs_unreferenced: int = 0
    wrong: int = 0
    notes: int = 0
    marks: dict[str, int] = {}
    """The marks that the log was compared with, and their positions."""


class Source(Protocol):
    """A source for a recheck."""

    @property
    def workspace(self) -> str:
        """The workspace's name."""
        ...

    async def extent(self) -> Extent:
        """Return the first and the newest position, and the number of messages."""
        ...

    def follow(
        self, after: int = 0, *, until: int | None = None
    ) -> AsyncGenerator[RawMessage, None]:
        """Follow every message after a position up to another, undecoded."""
        ...

    async def blob_chunks(self) -> dict[str, set[int]]:
        """Return the existing chunks of each blob."""
        ...

    async def blobs(self, named: Sequence[tuple[str, int]]) -> dict[str, bytes]:
        """Return some blobs by hash, each verified. Raises NotFound, Corrupt."""
        ...

    async def contradictions(self) -> list[str]:
        """List differences between the streams' settings and ours."""
        ...


OnFinding = Callable[[Finding], None]
Progress = Callable[[str, int, int], None]
"""Called with what is read, how much of it is done, and the total."""


def _silent(_what: str, _done: int, _total: int) -> None:
    return None


async def check(
    source: Source,
    on_finding: OnFinding,
    progress: Progress = _silent,
    *,
    known: Sequence[Known] = (),
    found: Sequence[Finding] = (),
) -> Summary:
    """Recheck a workspace up to its current position. Raises Unreachable, BrokerError.

    `known` are marks of its log from before this call, `found` are faults known from elsewhere.
    """
    summary = Summary(source.workspace)
    summary.marks = {each.who: each.mark.position for each in known}

    def take(finding: Finding) -> None:
        summary.wrong += finding.wrong
        summary.notes += not finding.wrong
        on_finding(finding)

    def count(kind: str, fact: str, where: Mapping[str, object], *, wrong: bool = True) -> None:
        take(msgspec.convert({"kind": kind, "fact": fact, "wrong": wrong, **where}, Finding))

    for finding in found:
        take(finding)
    for fact in await source.contradictions():
        count(Kind.SETTINGS, fact, {})
    recheck = await _log(source, summary, known, count, progress)
    summary.commits, summary.events = recheck.commits, recheck.events
    summary.streams, summary.runs = len(recheck.streams), len(recheck.runs)
    await _blobs(source, recheck.blobs, summary, count, progress)
    return summary


async def _log(
    source: Source, summary: Summary, known: Sequence[Known], count: Count, progress: Progress
) -> Recheck:
    """Read the whole log, and compare it with the marks."""
    extent = await source.extent()
    summary.position = extent.last
    is_loss = extent.missing > _accepted(extent, known)
    recheck, memory, compared = Recheck(count), Memory(source), Compared(known, count)
    at = 0
    async for message in source.follow(0, until=summary.position):
        if message.position != at + 1:
            remedy = LOST if is_loss else "this loss was accepted"
            fact = f"positions {at + 1} to {message.position - 1} are missing: {remedy}"
            count(Kind.POSITION, fact, {"position": message.position}, wrong=is_loss)
        at = message.position
        if message.fault is not None:
            count(Kind.BODY, str(message.fault), {"position": at})
        copied = message.origin is not None
        read = recheck.message(message.position, message.subject, message.body, copied=copied)
        if read is not None:
            for version, why in await memory.unfit(*read):
                where = {"position": at, "stream": str(read[0])}
                count(Kind.EVENT, f"version {version} of this memory does not fit: {why}", where)
        compared.message(message.position, message.subject, message.body)
        progress("commits", at, summary.position)
    if at < summary.position:
        fact = f"positions {at + 1} to {summary.position} are missing at the end: {LOST}"
        count(Kind.POSITION, fact, {"position": summary.position})
    recheck.end()
    compared.end(summary.position)
    target = recheck.causations
    if target:
        await _causations(source, summary.position, target, count)
    return recheck


def _accepted(extent: Extent, known: Sequence[Known]) -> int:
    """Return the number of missing positions that are accepted: they were missing when the marks
    were begun, since the operator removed older ones, or are accepted in the stream's metadata.
    """
    counted = [each.mark.missing for each in known if each.mark.position]
    return max(extent.accepted, min(counted, default=0))


async def _causations(
    source: Source, last: int, config: dict[str, tuple[int, bool]], count: Count
) -> None:
    """Check that events named as causes exist, in a second read that is made only if commits name
    any. A copied commit's cause may be in a run that was not copied.
    """
    missing = dict(config)
    async for message in source.follow(0, until=last):
        for event in _event_ids(message.body):
            missing.pop(event, None)
        if not missing:
            return
    for event, (position, copied) in missing.items():
        fact = f"its causation {event} is no event of this log"
        count(Kind.REFERENCE, fact, {"position": position}, wrong=not copied)


class _Id(msgspec.Struct):
    id: str


class _Ids(msgspec.Struct):
    """The part of a commit that holds its events' ids."""

    events: list[_Id] = []


_ids = msgspec.json.Decoder(_Ids)


def _event_ids(body: bytes) -> Iterator[str]:
    """Yield the ids of a body's events; none if it is not a commit."""
    try:
        yield from (event.id for event in _ids.decode(body).events)
    except msgspec.DecodeError:
        return


async def _blobs(
    source: Source,
    named: dict[str, tuple[int, int]],
    summary: Summary,
    count: Count,
    progress: Progress,
) -> None:
    stored = await source.blob_chunks()
    summary.blobs_unreferenced = len(stored.keys() - named.keys())
    for sha256, (_, position) in named.items():
        if sha256 not in stored:  # without a blob stream, no server would answer
            fact = str(NotFound(f"blob {sha256} (all its chunks)", ERASED))
            count(Kind.BLOB, fact, {"position": position})
    there = ((sha256, [(sha256, size)]) for sha256, (size, _) in named.items() if sha256 in stored)
    done = len(named.keys() - stored.keys())
    for part, names in in_parts(there):
        for sha256, why in await _unread(source, names):
            count(Kind.BLOB, why, {"position": named[sha256][1]})
        done += len(part)
        progress("blobs", done, len(named))
    summary.blobs = len(named)
    summary.blob_bytes = sum(size for size, _ in named.values())


async def _unread(source: Source, named: Sequence[tuple[str, int]]) -> list[tuple[str, str]]:
    """Return the blobs that cannot be read, and why; one by one if a request for all fails."""
    try:
        await source.blobs(named)
    except (NotFound, Corrupt) as error:
        if len(named) == 1:
            return [(named[0][0], str(error))]
        return [found for each in named for found in await _unread(source, [each])]
    return []
