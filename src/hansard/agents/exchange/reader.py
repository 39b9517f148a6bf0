"""Import of exported runs: everything is checked before anything is written.

The file is read twice: first to check it completely and to compare it with the workspace, then to
store it. Memory is constant except for the names of streams and blobs, and for the stored commits
of the same runs. A section is imported whole or not at all, unless the import is killed while it
stores; it continues when it is run again, since stored commits are skipped.

Long because the checks of a section and its storing share their state.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, assert_never, get_args

import msgspec

from hansard.agents.exchange.files import HEAD_BYTES, Bad, BadRecord, Tally, Watcher, seekable
from hansard.agents.exchange.writer import (
    FORMAT,
    HEADER_MARK,
    LASTING,
    LINE_BYTES_MAX,
    PART_BYTES,
    BlobLine,
    CommitLine,
    Damaged,
    End,
    Header,
    Line,
    blobs_of,
    unseal,
)
from hansard.agents.steps.payloads import VALUE_BYTES_MAX
from hansard.agents.workspace import Workspace
from hansard.bus import subjects
from hansard.bus.commits import TRANSACTION_BYTES_MAX, TRANSACTION_COMMITS_MAX, decode, revive, torn
from hansard.bus.errors import Conflict, NotFound
from hansard.bus.log import COMMIT_BYTES_MAX, Append, Copied, Origin, Stored
from hansard.domain import ids
from hansard.domain.access import is_views
from hansard.domain.agent import MessageAdded
from hansard.domain.choices import counted, listed
from hansard.domain.errors import BadName, Corrupt, RecordError, UnknownEvent
from hansard.domain.events import Commit, Event, Tx
from hansard.domain.ids import AgentStream, RunStream, StreamId, WorkspaceStream, in_run, run_of
from hansard.domain.integrity import Fold, foreign
from hansard.domain.run import RunForked, RunStarted
from hansard.domain.steps import StepEvent, StepRequested

# One section of an export, checked line by line for completeness and consistency.


class _StoredUnit(msgspec.Struct):
    """A run or conversation as stored in this workspace.

    `commits` has the position and the hash of the body, by stream and version; `vector` the version
    of each stream by name, including inherited ones. `met` counts the commits that the section also
    has; `new` is the first commit that only the section has.
    """

    commits: dict[tuple[StreamId, int], tuple[int, int]] = {}
    vector: dict[str, int] = {}
    met: int = 0
    new: tuple[StreamId, int] | None = None


class SectionComparison:
    """Compares a section's commits with those of a workspace. Memory: about 300 bytes for each
    stored commit of a run that the section also has.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._log = workspace.log
        self._here: dict[str | WorkspaceStream, _StoredUnit] = {}

    def has(self, stream: StreamId, version: int) -> bool:
        """Return whether a compared commit is stored in the workspace."""
        here = self._here.get(_unit_of(stream))
        return here is not None and (stream, version) in here.commits

    async def compare(self, stream: StreamId, commit: Commit, body: bytes) -> bool:
        """Return whether a commit is stored in the workspace. Raises Damaged if another one is."""
        here = await self._of(_unit_of(stream))
        stored = here.commits.get((stream, commit.version))
        if stored is None:
            here.new = here.new or (None if is_views(stream) else (stream, commit.version))
            return False
        position, hashed = stored
        if hashed != hash(body):
            raise Damaged(_difference(stream, commit, await self._log.at(position)))
        here.met += not is_views(stream)
        return True

    def end(self) -> None:
        """Raise Damaged if both sides have commits that the other lacks. Served views do not count:
        reading a run continues nothing.
        """
        for whole, here in self._here.items():
            more = sum(not is_views(stream) for stream, _ in here.commits) - here.met
            if more and here.new is not None:
                stream, version = here.new
                raise Damaged(
                    f"{_named(whole)} went on here by {counted(more, 'commit')} that the file does "
                    f"not have, and in the file by others, the first of them version {version} of "
                    f"stream {stream}: import it into another workspace"
                )

    async def vector(self, run: str) -> dict[str, int]:
        """Return the version of each stream of a run by name; empty if the workspace lacks the
        run.
        """
        return (await self._of(run)).vector

    async def _of(self, whole: str | WorkspaceStream) -> _StoredUnit:
        here = self._here.get(whole)
        if here is None:
            if isinstance(whole, WorkspaceStream):
                here = _stored_unit(await self._log.read(whole))
            else:
                here = _stored_unit(await self._log.read_run(whole))
            self._here[whole] = here
        return here


def _unit_of(stream: StreamId) -> str | WorkspaceStream:
    """Return the unit that a stream belongs to: a run with all its streams, or a workspace
    stream.
    """
    return stream if isinstance(stream, WorkspaceStream) else run_of(stream) or ""


def _named(whole: str | WorkspaceStream) -> str:
    return str(whole) if isinstance(whole, WorkspaceStream) else f"run {whole}"


def _stored_unit(commits: Iterable[Stored]) -> _StoredUnit:
    here = _StoredUnit()
    for stored in commits:
        stream, commit = stored.stream, stored.commit
        if isinstance(stream, RunStream) and not any(
            isinstance(s, RunStream) for s, _ in here.commits
        ):
            here.vector.update(_inherited(commit))
        here.commits[stream, commit.version] = stored.position, hash(stored.body)
        here.vector[str(stream)] = commit.last_version
    return here


def _inherited(first: Commit) -> dict[str, int]:
    """Return the versions at which a forked run's streams start."""
    try:
        event = revive(first.events[0])
    except RecordError:
        return {}
    return event.at if isinstance(event, RunForked) else {}


def _difference(stream: StreamId, commit: Commit, stored: Stored) -> str:
    mine = f"{stored.commit.id} by {stored.commit.actor.agent!r} of {stored.commit.at:%FT%TZ}"
    its = f"{commit.id} by {commit.actor.agent!r} of {commit.at:%FT%TZ}"
    return (
        f"{_named(_unit_of(stream))} differs here: version {commit.version} of stream "
        f"{stream} is commit {mine} here (position {stored.position}), and commit {its} in the "
        "file: import it into another workspace"
    )


_OF_STEPS = frozenset(get_args(StepEvent))


class _Numbers(msgspec.Struct):
    """Step numbers of one agent: all from 1 to `up_to`, and those beyond it."""

    up_to: int = 0
    beyond: set[int] = set()

    def add(self, number: int) -> None:
        self.beyond.add(number)
        while self.up_to + 1 in self.beyond:
            self.up_to += 1
            self.beyond.remove(self.up_to)

    def has(self, number: int) -> bool:
        return 0 < number <= self.up_to or number in self.beyond


class Sense:
    """Checks the events of a section in order. Memory: a few bytes a stream, whatever its
    length.
    """

    def __init__(self) -> None:
        self._steps: dict[StreamId, _Numbers] = {}
        self._parents: dict[str, str | None] = {}
        self._trusted: set[StreamId] = set()

    def take(self, stream: StreamId, event: Event | None) -> None:
        """Check an event; None is one of an unknown type, whose calls are not known either. Raises
        Damaged.
        """
        if event is None:
            self._trusted.add(stream)
        elif isinstance(stream, RunStream):
            if isinstance(event, RunStarted | RunForked):
                parent = event.parent if isinstance(event, RunForked) else None
                self._parents.setdefault(stream.run, parent)
        elif isinstance(stream, AgentStream) and type(event) in _OF_STEPS:
            self._step(stream, event)

    def _step(self, stream: AgentStream, event: Any) -> None:
        if isinstance(event, StepRequested):
            if not bytes(event.arguments).lstrip().startswith(b"{"):
                raise Damaged(f"the arguments of step {event.step} are not given by name")
            self._steps.setdefault(stream, _Numbers()).add(event.step)
        elif not self._is_known(stream, event.step):
            raise Damaged(
                f"a {event.tag} of step {event.step} of agent {stream.agent!r}, which was never "
                "requested"
            )

    def _is_known(self, stream: AgentStream, number: int) -> bool:
        """Return whether a step was requested, in this run or a parent; a parent outside the
        section is trusted.
        """
        mine: StreamId = stream
        run: str | None = stream.run
        while run is not None:
            if mine in self._steps and self._steps[mine].has(number):
                return True
            if run not in self._parents or mine in self._trusted:
                return True
            run = self._parents[run]
            mine = in_run(stream, run or "")
        return False


_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})\.[0-9]{9}Z")

_POSITION_MAX = 2**63 - 1
"""Largest value of a broker's sequence and of a table's integer."""


class _Blob(msgspec.Struct):
    """A blob whose parts are being read."""

    first: BlobLine
    next: int = 0
    size: int = 0


def _demand_lasting(line: Line) -> None:
    """Raise Damaged for a commit of a kind that no export has."""
    if isinstance(line, CommitLine) and isinstance(line.stream, WorkspaceStream):
        kind = line.stream.kind
        if kind not in LASTING:
            bad = BadName("kind", kind, f"only {listed(map(repr, LASTING))} go with runs")
            raise Damaged(f"it is not a commit: {bad}")


class Section:
    """Checks the lines of one section.

    `number` counts the lines, `is_complete` is true once the end was read, `tally` counts the
    contents. `needed_blobs` holds the blobs named by commits that the workspace lacks, `absent` the
    blobs that the export could not read, with their sizes. Memory: the names of streams and blobs.
    """

    def __init__(
        self, workspace: Workspace, demand: Callable[[Line], None] = _demand_lasting
    ) -> None:
        """`demand` raises Damaged for a line that the section must not have."""
        self._demand = demand
        self.number = 0
        self.is_complete = False
        self.tally = Tally()
        self.new = 0
        self.needed_blobs: set[str] = set()
        self.absent: dict[str, int] = {}
        self.comparison = SectionComparison(workspace)
        self._sense = Sense()
        self._workspace = workspace.log.workspace
        self._hash = hashlib.sha256()
        self._blob: _Blob | None = None
        self._blob_hash = hashlib.sha256()
        self._tx: Tx | None = None
        self._tx_streams: set[StreamId] = set()
        self._tx_size = 0
        self._carries: list[str] = []
        self._following: dict[StreamId, int] = {}
        self._vectors: dict[str, dict[str, int]] = {}
        self._cuts: dict[str, dict[str, int]] = {}
        self._integrity = Fold()
        self._roles: dict[tuple[str, str], str] = {}
        self._unnamed: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._lacking: dict[str, int] = {}

    async def take(self, data: bytes, line: Line) -> None:
        """Check a line. Raises Damaged."""
        if self.number == 0 and not isinstance(line, Header):
            raise Damaged("no header of an export precedes it: lines are missing or duplicated")
        if isinstance(line, Header) and self.number:
            raise Damaged("another export starts before the end of this one: it is incomplete")
        if line.n != self.number:
            raise Damaged(
                f"it is line {line.n} of its export where line {self.number} belongs: "
                "lines are missing, doubled or in another order; export it again"
            )
        if self._blob is not None and not isinstance(line, BlobLine):
            raise Damaged(f"blob {self._blob.first.sha256} is not whole: export it again")
        self._demand(line)
        match line:
            case Header():
                self._header(line)
            case BlobLine():
                self._take_blob(line)
            case CommitLine():
                await self._commit(line)
            case End():
                self._end(line)
            case _:
                assert_never(line)
        self._hash.update(data)
        self.number += 1

    def _header(self, line: Header) -> None:
        if line.format != FORMAT:
            raise Damaged(f"it has format {line.format}, this version reads {FORMAT}: upgrade")
        self._carries = line.carries

    # ------------------------------------------------------------ blobs

    def _take_blob(self, line: BlobLine) -> None:
        if self._blob is None:
            if line.size > VALUE_BYTES_MAX:
                raise Damaged(f"the blob has {line.size:,} bytes, the limit is {VALUE_BYTES_MAX:,}")
            self._blob = _Blob(line)
            self._blob_hash = hashlib.sha256()
        blob = self._blob
        first = blob.first
        same = (line.sha256, line.size, line.parts) == (first.sha256, first.size, first.parts)
        if not same or line.part != blob.next or len(line.data) > PART_BYTES:
            raise Damaged(f"part {blob.next} of {first.parts} of blob {first.sha256} is not here")
        self._blob_hash.update(line.data)
        blob.size += len(line.data)
        blob.next += 1
        if blob.next < line.parts:
            return
        if blob.size != line.size or self._blob_hash.hexdigest() != line.sha256:
            raise Damaged(f"blob {line.sha256} is damaged: its bytes have another hash")
        self._sizes[line.sha256] = line.size
        self._unnamed.add(line.sha256)
        self._blob = None
        self.tally.blobs += 1

    def _names(self, commit: Commit, *, new: bool) -> None:
        for sha256, size in blobs_of(commit).items():
            self._unnamed.discard(sha256)
            if sha256 not in self._sizes:
                self._lacking[sha256] = size
            elif self._sizes[sha256] != size:
                raise Damaged(f"it names blob {sha256} with {size:,} bytes, but its size differs")
            if new:
                self.needed_blobs.add(sha256)

    # ------------------------------------------------------------ commits

    async def _commit(self, line: CommitLine) -> None:
        append = appended(self._workspace, line)
        stream, commit, body = append.stream, append.commit, line.body.encode()
        events = list(_events(commit))
        self._transaction(stream, commit, len(body))
        await self._version(stream, commit)
        self._check_owner(stream, commit)
        current = await self.comparison.compare(stream, commit, body)
        for event in events:
            self._sense.take(stream, event)
            self.tally.messages += isinstance(event, MessageAdded)
            self.tally.calls += isinstance(event, StepRequested)
        self._names(commit, new=not current)
        self.new += not current
        self.tally.commits += 1
        self.tally.events += len(commit.events)

    def _transaction(self, stream: StreamId, commit: Commit, size: int) -> None:
        self._check_transaction(commit.tx)
        tx = self._tx = commit.tx
        if tx is None:
            return
        if tx.index == 0:
            self._tx_streams, self._tx_size = set(), 0
        self._tx_size += size
        if not tx.index < tx.count <= TRANSACTION_COMMITS_MAX:
            limit = f"{TRANSACTION_COMMITS_MAX:,}"
            raise Damaged(f"transaction {tx.id} has {tx.count} commits, the limit is {limit}")
        if stream in self._tx_streams or self._tx_size > TRANSACTION_BYTES_MAX:
            raise Damaged(f"transaction {tx.id} is invalid: it does not fit the commits before it")
        self._tx_streams.add(stream)

    def _check_transaction(self, tx: Tx | None) -> None:
        for fault in torn(self._tx, tx):
            if fault:
                raise Damaged(f"{fault}: export it again")

    async def _version(self, stream: StreamId, commit: Commit) -> None:
        due = self._following.get(stream)
        run = run_of(stream)
        if due is None:
            if run is not None and run not in self._cuts:
                await self._begin(run, stream, commit)
            due = self._cuts[run].get(str(stream), 0) + 1 if run is not None else 1
        if commit.version != due:
            raise Damaged(
                f"version {commit.version} of stream {stream} is where {due} belongs: "
                "commits are missing or doubled"
            )
        self._following[stream] = commit.last_version + 1
        if run is not None:
            self._vectors[run][str(stream)] = commit.last_version

    async def _begin(self, run: str, stream: StreamId, commit: Commit) -> None:
        """Record the versions at which a run's streams start. Raises Damaged for a run without a
        start.
        """
        if not isinstance(stream, RunStream):
            raise Damaged(f"stream {stream} of run {run} precedes the run's start")
        try:
            first = revive(commit.events[0])
        except UnknownEvent as error:
            if commit.version > 1:
                raise Damaged(f"the run's first event is of an unknown type: {error}") from error
            first = None
        if isinstance(first, RunForked):
            await self._parent(run, first)
            self._cuts[run] = first.at
            self._vectors[run] = dict(first.at)
            return
        if first is not None and not isinstance(first, RunStarted):
            raise Damaged(f"run {run} starts with {first.tag}: its first event is missing")
        self._cuts[run] = {}
        self._vectors[run] = {}

    async def _parent(self, run: str, forked: RunForked) -> None:
        """Check that a fork's parent is before it in the section, or in the workspace. Raises
        Damaged.
        """
        have = self._vectors.get(forked.parent) or await self.comparison.vector(forked.parent)
        if not have:
            raise Damaged(
                f"run {run} is a fork of run {forked.parent}, which is neither in the file nor in "
                "this workspace: import that run first"
            )
        for name, version in forked.at.items():
            if have.get(name, 0) < version:
                raise Damaged(
                    f"run {run} continues from version {version} of {name} of run {forked.parent}, "
                    f"which ends at {have.get(name, 0)}: import all of that run first"
                )

    def _check_owner(self, stream: StreamId, commit: Commit) -> None:
        """Raise Damaged if the commit does not belong to its stream, or if the stream's role is not
        the one its agent joined in. Authorship is checked when the record is read.
        """
        why = foreign(stream, commit)
        if why:
            raise Damaged(why)
        run = run_of(stream)
        if run is None:
            return
        self._integrity.learn(run, stream, commit)
        if isinstance(stream, AgentStream):
            first = self._roles.setdefault((run, stream.agent), stream.role)
            role = self._integrity.members(run).roles.get(stream.agent, first)
            if role != stream.role:
                raise Damaged(f"agent {stream.agent!r} has role {role!r} and {stream.role!r}")

    # ------------------------------------------------------------ the end

    def _end(self, line: End) -> None:
        self._check_transaction(None)
        if (line.commits, line.blobs) != (self.tally.commits, self.tally.blobs):
            raise Damaged(
                f"it counts {line.commits} commits and {line.blobs} blobs, but there are "
                f"{self.tally.commits} and {self.tally.blobs}: export it again"
            )
        if line.sha256 != self._hash.hexdigest():
            raise Damaged("the lines before it hash to something else: export it again")
        if set(self._cuts) != set(self._carries):
            raise Damaged("the runs before it are not those of the header: export it again")
        text = {missing.what.removeprefix("blob ") for missing in line.missing}
        for sha256 in self._unnamed:
            raise Damaged(f"blob {sha256} belongs to no commit: export it again")
        for sha256 in self._lacking.keys() - text:
            raise Damaged(f"blob {sha256} is named by a commit and is not in the file")
        self.absent = self._lacking
        self.comparison.end()
        self.tally.runs = len(self._cuts)
        self.is_complete = True


def appended(workspace: str, line: CommitLine) -> Append:
    """Convert a commit's line to an append. Raises Damaged."""
    body = line.body.encode()
    if len(body) > COMMIT_BYTES_MAX:
        raise Damaged(f"the commit has {len(body):,} bytes, the limit is {COMMIT_BYTES_MAX:,}")
    try:
        _check_names(line.stream)
        _check_origin(line.origin)
        subject = subjects.subject(workspace, line.stream, line.version)
        stream, commit = decode(subject, body)
    except Corrupt as error:
        raise Damaged(f"it is not a commit: {error.fact}") from error
    except BadName as error:
        raise Damaged(f"it is not a commit: {error}") from error
    if stream != line.stream:
        raise Damaged(f"it is a commit of stream {stream}, not of {line.stream}")
    return Append(stream, commit, copied=Copied(body, line.origin))


def _events(commit: Commit) -> Iterator[Event | None]:
    """Yield a commit's events; None for one of a newer version, whose bytes are kept. Raises
    Damaged.
    """
    for recorded in commit.events:
        try:
            yield revive(recorded)
        except UnknownEvent:
            yield None
        except Corrupt as error:
            raise Damaged(f"it cannot be read: {error.where}: {error.fact}") from error


def _check_names(stream: StreamId) -> None:
    """Raise BadName for a stream whose names are malformed."""
    named = msgspec.structs.asdict(stream)
    if isinstance(stream, WorkspaceStream):
        named = {stream.kind: stream.id}
    for kind, name in named.items():
        ids.name(kind, name)


def _check_origin(origin: Origin) -> None:
    """Raise BadName for an origin that no log can have."""
    ids.workspace_name(origin.log)
    time = _TIME.fullmatch(origin.at)
    try:
        is_time = time is not None and bool(datetime.fromisoformat(time[1]))
    except ValueError:
        is_time = False
    if not is_time or not 1 <= origin.position <= _POSITION_MAX:
        place = f"position {origin.position} at {origin.at}"
        raise BadName("origin", place, "a position counts from 1, a time has 9 digits")


PIECE_BYTES = 1024 * 1024
"""Bytes of one read of data that is discarded."""


LinePosition = tuple[int, int, bool]
"""Bytes and lines before the next line, and whether the newest line was terminated."""


class Lines:
    """Reads lines. `number` counts them from 1, `size` is that of the newest in bytes.

    A header that follows a truncated line starts its own line, with that line's number: it marks
    where an incomplete file was followed by another one.
    """

    def __init__(self, file: BinaryIO, hint: Callable[[bytes], str]) -> None:
        self.number = 0
        self.size = 0
        self._file = file
        self._hint = hint
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
        hint = self._hint(self._file.read(HEAD_BYTES))
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


async def import_events(
    workspace: Workspace,
    path: Path | None,
    watcher: Watcher,
    hint: Callable[[bytes], str] = lambda _: "",
) -> Tally:
    """Import a file of 'hansard export', or standard input for None.

    `hint` returns a hint at another format that the start of a file resembles.
    Each section is imported whole, or reported as one bad record with the faulty line. Raises
    BadRecord if the watcher does, OSError, and the log's errors.
    """
    with seekable(path) as file:
        importing = Import(workspace, str(path) if path else STDIN, watcher)
        return await importing.all_of(Lines(file, hint))


class Import:
    """Import of one file."""

    def __init__(self, workspace: Workspace, name: str, watcher: Watcher) -> None:
        self._workspace = workspace
        self._name = name
        self._watcher = watcher
        self.tally = Tally()
        self._read = 0

    async def all_of(self, lines: Lines) -> Tally:
        """Import all sections in order."""
        while True:
            place = lines.tell()
            section = Section(self._workspace)
            try:
                if not await self.check(section, lines):
                    break
            except Damaged as damaged:
                self._bad(lines.number, str(damaged) + lines.hint())
                if section.number and lines.is_at_header():
                    lines.back()
                else:
                    lines.to_header()
            else:
                await self.take(section, lines, place)
            self._progress(lines.offset)
        if not lines.number:
            self._bad(1, "the file is empty: give one that 'hansard export' wrote")
        return self.tally

    def _bad(self, line: int, reason: str) -> None:
        self.tally.bad += 1
        try:
            self._watcher.bad(Bad(self._name, line, reason))
        except BadRecord as stopped:
            stopped.tally = self.tally
            raise

    def _progress(self, offset: int) -> None:
        """Report the progress in the file."""
        if offset > self._read:
            self._watcher.read(offset - self._read)
            self._read = offset

    async def check(self, section: Section, lines: Lines) -> bool:
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

    async def take(self, section: Section, lines: Lines, place: LinePosition) -> None:
        """Store a checked section, unless the workspace already has all of it."""
        end = lines.tell()
        if section.new:
            lines.seek(place)
            try:
                async for batch in _batches(self._workspace, section, lines):
                    self.tally.new += await self._workspace.log.append_bulk(batch)
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
        self.tally.add(section.tally)


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
        item = lines.next()
        if item is None or item[1].n != number:
            raise Damaged(f"line {number} of its export is gone")
        line = item[1]
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
