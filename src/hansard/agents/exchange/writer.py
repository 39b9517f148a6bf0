"""Export of runs: their commits and all that they depend on, in the order of the log, with blobs.

Reads up to one position, which is taken first, so that the file is one moment of the log however
long the export takes. Memory: the runs that overlap in the log, one blob, and the entries of each
run's first commit.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from hansard.agents import aggregates
from hansard.agents.memory import operations as memories
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive, torn, whole_at
from hansard.bus.errors import NotFound
from hansard.bus.log import COMMIT_BYTES_MAX, AtPosition, Blobs, Origin, Stored, rfc3339
from hansard.bus.reads import unchecked
from hansard.domain import aggregate_types, conversation, experiment, prompt
from hansard.domain.aggregate_types import AggregateChanged, stream_of
from hansard.domain.conversation import RunJoined
from hansard.domain.errors import BadValue, CallerError, Corrupt, RecordError
from hansard.domain.events import UPCASTERS, Commit, Event, Tx
from hansard.domain.ids import AgentStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.memory import files as memory_events
from hansard.domain.memory.files import MemoryChanged, MemoryRejected
from hansard.domain.payload import blobs_named
from hansard.domain.prompt import KIND
from hansard.domain.run import RunAssigned, RunForked, RunStarted
from hansard.domain.steps import StepCompleted, StepRequested
from hansard.domain.values import Plain
from hansard.state.aggregates import in_full

# File format of exported runs: JSON lines, in sections that can be concatenated.
#
# A section is a header, the commits in the order of the log, each after the blobs it names, and an
# end. Lines are numbered from 0; each carries a digest of itself, and the end the hash of all lines
# before it, so any damage is detected and located by line. `docs/events-jsonl.md` documents the
# format.

FORMAT = 1
"""Format version; raised when an older reader could not read the output."""

PART_BYTES = 384 * 1024
"""Bytes of a blob in one line, before base64, which adds a third."""

LINE_BYTES_MAX = 4 * COMMIT_BYTES_MAX
"""Longest line, in bytes: a body at most doubles in size as a JSON text."""

DIGEST_CHARACTERS = 32
"""Hex digits of the SHA-256 at the end of a line: 128 bits against damage, not against forgery."""

HEADER_MARK = b'{"kind":"hansard-events",'
"""Prefix of a section's first line."""

_TAIL = b',"digest":"%b"}\n'
_TAIL_BYTES = len(_TAIL % (b"0" * DIGEST_CHARACTERS))
_TAIL_FORM = re.compile(rb',"digest":"[0-9a-f]{32}"}\n')


class Damaged(CallerError):
    """Raised for data that differs from what was exported, or does not fit the workspace; nothing
    of its section was written.
    """


class Missing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run or blob that belongs to the section but is not in it, and the reason."""

    what: str
    why: str


class Header(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="hansard-events",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """First line of a section. `runs` are the requested runs, `carries` all runs in the section.

    `missing` lists runs that others build on.
    """

    n: int
    format: int
    runs: list[str]
    carries: list[str]
    missing: list[Missing]


class BlobLine(
    msgspec.Struct, frozen=True, tag_field="kind", tag="blob", forbid_unknown_fields=True
):
    """A part of a blob: `part` of `parts`, from 0; `size` is the whole blob's, in bytes."""

    n: int
    sha256: str
    size: int
    part: int
    parts: int
    data: bytes


class CommitLine(
    msgspec.Struct, frozen=True, tag_field="kind", tag="commit", forbid_unknown_fields=True
):
    """A commit: its stream, the exact stored text, and its original position."""

    n: int
    stream: StreamId
    version: int
    body: str
    origin: Origin


class End(msgspec.Struct, frozen=True, tag_field="kind", tag="end", forbid_unknown_fields=True):
    """Last line: the counts of commits and blobs, and the blobs that could not be read.

    `sha256` covers all bytes of the section before this line.
    """

    n: int
    commits: int
    blobs: int
    missing: list[Missing]
    sha256: str


Line = Header | BlobLine | CommitLine | End

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def seal(line: Line) -> bytes:
    """Encode a line for the file: its JSON, with a digest of all that precedes the digest."""
    head = _encode(line)[:-1]
    return head + _TAIL % _digest(head)


def unseal(data: bytes) -> Line:
    """Decode a line of the file. Raises Damaged."""
    head, tail = data[:-_TAIL_BYTES], data[-_TAIL_BYTES:]
    if not data.endswith(b"\n"):
        raise Damaged("the line is cut off: the file is not whole; export it again")
    if data.endswith(b"\r\n"):
        raise Damaged("the line ends as on Windows: the file was changed; copy it as it is")
    if not _TAIL_FORM.fullmatch(tail):
        raise Damaged("it is not a line of 'hansard export', or its end is damaged")
    if tail != _TAIL % _digest(head):
        raise Damaged("the line is damaged: its digest is another; export it again")
    try:
        return _decoder.decode(head + b"}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(
            f"it is not a line that this version can read ({error}): upgrade hansard"
        ) from error
    except RecursionError as error:
        raise Damaged("it is nested too deep to be a line of 'hansard export'") from error


def _digest(head: bytes) -> bytes:
    return hashlib.sha256(head).hexdigest()[:DIGEST_CHARACTERS].encode()


def blobs_of(commit: Commit) -> dict[str, int]:
    """Return the blobs that a commit's events name: size by hash."""
    return dict(blob for recorded in commit.events for blob in blobs_named(bytes(recorded.data)))


# Workspace data that a run's commits refer to: memory spaces and aggregates that its steps read,
# saved or changed. Events of unknown types are exported as bytes only.

_E = TypeVar("_E", bound=Event)
_S = TypeVar("_S", bound=msgspec.Struct)


def events(commits: Iterable[Stored], *kinds: type[_E]) -> Iterator[tuple[Stored, _E]]:
    """Yield the events of some types, each with its commit, in order."""
    tags = {*UPCASTERS, *(kind.tag for kind in kinds)}
    for stored in commits:
        for recorded in stored.commit.events:
            if recorded.type not in tags:
                continue
            try:
                event = revive(recorded)
            except RecordError:
                continue
            if isinstance(event, kinds):
                yield stored, event


async def results(blobs: Blobs, commits: Iterable[Stored], kind: str) -> AsyncIterator[Plain]:
    """Yield the full results of completed steps of a kind, if the commits also hold their
    requests.
    """
    names: set[tuple[AgentStream, int]] = set()
    of_steps: Iterator[tuple[Stored, StepRequested | StepCompleted]]
    of_steps = events(commits, StepRequested, StepCompleted)
    for stored, event in of_steps:
        if not isinstance(stored.stream, AgentStream):
            continue
        step = (stored.stream, event.step)
        match event:
            case StepRequested(kind=of) if of == kind:
                names.add(step)
            case StepCompleted() if step in names:
                yield await in_full(blobs, event.result)
            case _:
                pass


def runs(
    commits: Iterable[Stored], *kinds: type[AggregateChanged | MemoryChanged | MemoryRejected]
) -> list[str]:
    """Return the runs whose steps recorded these events, each once, in order."""
    return list(dict.fromkeys(event.run for _, event in events(commits, *kinds) if event.run))


class _Space(msgspec.Struct):
    """Result of a memory step, reduced to its space."""

    space: str = ""


class _Saved(msgspec.Struct):
    """An aggregate as named in a step's outcome."""

    id: str
    version: int


class _SavedOrGot(msgspec.Struct):
    """Result of a save (several aggregates) or a get (one)."""

    saved: list[_Saved] = []
    id: str = ""
    version: int = 0


def _converted(plain: Plain, kind: type[_S]) -> _S | None:
    try:
        return None if plain is None else msgspec.convert(plain, kind)
    except msgspec.ValidationError:
        return None


# Lines of one section: numbered, hashed, each blob once and before the first commit naming it.


class Section:
    """Writes one section. `number` is that of the next line; `blobs` and `missing` count along."""

    def __init__(self, blobs: Blobs, write: Callable[[bytes], object]) -> None:
        self.number = 0
        self.blobs = 0
        self.missing: list[Missing] = []
        self._store = blobs
        self._write = write
        self._hash = hashlib.sha256()
        self._seen: set[str] = set()

    def line(self, line: Line) -> None:
        """Write a line. Raises BadValue for one that readers would reject."""
        data = seal(line)
        if len(data) > LINE_BYTES_MAX:
            fact = f"line {self.number} would have {len(data):,} bytes"
            raise BadValue("export", fact, "export fewer runs at once")
        self._hash.update(data)
        self.number += 1
        self._write(data)

    async def named(self, blobs: Iterator[tuple[str, int]]) -> None:
        """Write the blobs that the next line names, unless they were written before.

        A blob that cannot be read is listed as missing: an erased blob does not prevent the export.
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
        """Write the end of the section."""
        self.line(End(self.number, commits, self.blobs, self.missing, self._hash.hexdigest()))


CONVERSATION, EXPERIMENT, AGGREGATE = conversation.KIND, experiment.KIND, aggregate_types.KIND
MEMORY = memory_events.KIND
LASTING = (CONVERSATION, EXPERIMENT, AGGREGATE, MEMORY, prompt.KIND)
"""Kinds of workspace streams that are exported with runs."""

YIELD_EVERY = 64
"""Commits between two yields to the event loop (for the broker's pings)."""


class Exported(msgspec.Struct):
    """Contents of a section, and what is missing from it."""

    carries: list[str]
    commits: int
    blobs: int
    missing: list[Missing]


async def export(
    workspace: Workspace, runs: list[str], write: Callable[[bytes], object]
) -> Exported:
    """Write a section.

    Each run is exported with what it depends on, up to where it used it: a fork with its parents; a
    run of a conversation with the conversation and its earlier runs; a run of an experiment with
    the plan; a run that saved or got an aggregate, or read or changed a memory space, with those
    and with the runs that wrote them before; a run whose calls used a prompt with that prompt.
    Dependencies that the workspace lacks are listed as missing.

    Raises NotFound for an unknown run, BadValue for too many at once, Corrupt, and the errors of
    `write`.
    """
    names = list(dict.fromkeys(runs))
    up_to = AtPosition(await workspace.log.end(None))
    needed = _Dependencies(workspace, up_to)
    await needed.add(names)
    section = Section(workspace.blobs, write)
    absent = [Missing(f"run {run}", why) for run, why in sorted(needed.missing.items())]
    section.line(Header(0, FORMAT, names, needed.carries, absent))
    commits = 0
    tx: Tx | None = None
    async for commit in _in_order(workspace, needed, up_to):
        stored = unchecked(workspace.log.workspace, commit)
        _check_tx(tx, stored.commit.tx)
        tx = stored.commit.tx
        await section.named(iter(blobs_of(stored.commit).items()))
        section.line(_line(workspace, section.number, stored))
        commits += 1
        if commits % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    _check_tx(tx, None)
    section.end(commits)
    return Exported(needed.carries, commits, section.blobs, absent + section.missing)


def _line(workspace: Workspace, number: int, stored: Stored) -> CommitLine:
    try:
        body = stored.body.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"position {stored.position}", "its body is not UTF-8") from error
    origin = stored.origin
    if origin is None:
        origin = Origin(workspace.log.workspace, stored.position, rfc3339(stored.stamp))
    return CommitLine(number, stored.stream, stored.commit.version, body, origin)


def _check_tx(before: Tx | None, now: Tx | None) -> None:
    """Reject half of a transaction, which no reader would accept. Raises Corrupt."""
    cut, headless = torn(before, now)
    if cut or headless:
        raise Corrupt(cut or headless, "not all of its commits belong to these runs")


# ---------------------------------------------------------------- dependencies

_NAMED = b'"prompts":'


class _Dependencies:
    """Collects the runs to export, and the commits of lasting streams that they depend on.

    Attributes:
        firsts: Each run with the position of its start.
        lasting: Conversations up to the last needed run, experiments, aggregates that the runs
            saved or got, memory spaces that they read or changed, and prompts of their calls.
        missing: Runs that the workspace lacks, each with the reason for which it is needed.
    """

    def __init__(self, workspace: Workspace, up_to: AtPosition) -> None:
        self.firsts: dict[str, int] = {}
        self.lasting: dict[StreamId, list[Stored]] = {}
        self.missing: dict[str, str] = {}
        self._blobs, self._log = workspace.blobs, workspace.log
        self._up_to = up_to

    @property
    def carries(self) -> list[str]:
        """The runs in the order of their starts."""
        return sorted(self.firsts, key=self.firsts.__getitem__)

    async def add(self, names: list[str]) -> None:
        """Add runs, and all that they depend on. Raises NotFound."""
        waiting = [(run, "") for run in names]
        while waiting:
            run, reason = waiting.pop()
            if run in self.firsts or run in self.missing:
                continue
            life = await self._log.read_streams([RunStream(run)], self._up_to)
            if not life and not reason:
                raise NotFound(f"run {run}", "see 'hansard runs'")
            if not life:
                self.missing[run] = f"{reason}; it is not in this workspace"
                continue
            tx = life[0].commit.tx
            self.firsts[run] = life[0].position - (tx.index if tx is not None else 0)
            commits = await self._log.read_run(run, self._up_to)
            await self._experiments(life)
            await self._prompts(commits)
            others = [
                (f"it saved an aggregate before run {run} did", await self._aggregates(commits)),
                (f"it changed memory that run {run} used", await self._memory(commits)),
            ]
            match next((event for _, event in events(life[:1], RunForked, RunStarted)), None):
                case RunForked(parent=parent):
                    others.append((f"run {run} is a fork of it", [parent]))
                case RunStarted(conversation_id=str(name)):
                    earlier = await self._conversation(name, run)
                    reason = f"it is earlier in conversation {name!r} than run {run}"
                    others.append((reason, earlier))
                case _:
                    pass
            waiting += [(each, reason) for reason, named in others for each in named]

    def _keep(self, stream: StreamId, commits: list[Stored]) -> list[Stored]:
        """Keep a lasting stream's commits; return those that were not kept before."""
        known = len(self.lasting.get(stream, ()))
        if len(commits) > known:
            self.lasting[stream] = commits
        return commits[known:]

    async def _experiments(self, life: list[Stored]) -> None:
        """Keep the registered experiments that a run is a trial of."""
        for _, event in events(life, RunAssigned):
            stream = WorkspaceStream(EXPERIMENT, event.experiment)
            if event.experiment and stream not in self.lasting:
                self._keep(stream, await self._log.read(stream, up_to=self._up_to))

    async def _prompts(self, commits: Sequence[Stored]) -> None:
        """Keep the prompts that a run's steps name, up to the run's last commit."""
        named = (
            each for each in commits if isinstance(each.stream, AgentStream) and _NAMED in each.body
        )
        names = {use.prompt for _, event in events(named, StepRequested) for use in event.prompts}
        end = AtPosition(max((stored.position for stored in commits), default=0))
        for name in names:
            stream = WorkspaceStream(KIND, name)
            self._keep(stream, await self._log.read(stream, up_to=end))

    async def _conversation(self, name: str, run: str) -> list[str]:
        """Keep a conversation's commits up to a run; return its earlier runs."""
        stream = WorkspaceStream(CONVERSATION, name)
        commits = await self._log.read(stream, up_to=self._up_to)
        earlier: list[str] = []
        for number, stored in enumerate(commits, 1):
            joined = [event.run for _, event in events([stored], RunJoined)]
            if run in joined:
                self._keep(stream, commits[:number])
                return earlier
            earlier += joined
        return []

    async def _aggregates(self, commits: Sequence[Stored]) -> list[str]:
        """Keep the aggregates that a run saved or got, and those saved together with them.

        Returns the runs that saved them before.
        """
        waiting: list[tuple[str, int]] = []
        async for plain in results(self._blobs, commits, aggregates.KIND):
            result = _converted(plain, _SavedOrGot)
            if result is not None:
                named = result.saved or [_Saved(result.id, result.version)]
                waiting += [(each.id, each.version) for each in named]
        writers: list[str] = []
        while waiting:
            name, version = waiting.pop()
            stream = stream_of(name)
            known = self.lasting.get(stream)
            if known and known[-1].commit.last_version >= version:
                continue
            new = self._keep(stream, await self._log.read(stream, to=version, up_to=self._up_to))
            writers += runs(new, AggregateChanged)
            for stored in new:
                saved = await self._transaction(stored, AGGREGATE)
                waiting += [(stream.id, each.commit.last_version) for stream, each in saved]
        return writers

    async def _memory(self, commits: Sequence[Stored]) -> list[str]:
        """Keep the memory spaces that a run read or changed, up to its end.

        Returns the runs that changed them.
        """
        spaces: set[str] = set()
        for stored in commits:
            if isinstance(stored.stream, AgentStream):
                spaces.update(stream.id for stream, _ in await self._transaction(stored, MEMORY))
        async for plain in results(self._blobs, commits, memories.KIND):
            result = _converted(plain, _Space)
            if result is not None and result.space:
                spaces.add(result.space)
        end = AtPosition(max(map(whole_at, commits), default=0))
        writers: list[str] = []
        for space in sorted(spaces):
            stream = memory_events.stream_of(space)
            new = self._keep(stream, await self._log.read(stream, up_to=end))
            writers += runs(new, MemoryChanged, MemoryRejected)
        return writers

    async def _transaction(self, stored: Stored, kind: str) -> list[tuple[WorkspaceStream, Stored]]:
        """Return a transaction's commits to streams of a kind, by one of its commits."""
        tx = stored.commit.tx
        if tx is None:
            return []
        first = stored.position - tx.index
        whole = [await self._log.at(position) for position in range(first, first + tx.count)]
        return [
            (each.stream, each)
            for each in whole
            if isinstance(each.stream, WorkspaceStream) and each.stream.kind == kind
        ]


async def _in_order(
    workspace: Workspace, needed: _Dependencies, up_to: AtPosition
) -> AsyncIterator[Stored]:
    """Yield every needed commit by position; a run is read only when its start is reached."""
    heap = [(each.position, each) for stream in needed.lasting.values() for each in stream]
    heapq.heapify(heap)
    waiting = needed.carries[::-1]
    while heap or waiting:
        while waiting and (not heap or needed.firsts[waiting[-1]] <= heap[0][0]):
            for stored in await workspace.log.read_run(waiting.pop(), up_to):
                heapq.heappush(heap, (stored.position, stored))
        yield heapq.heappop(heap)[1]
