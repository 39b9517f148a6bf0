"""Agents' states at any version or position, from the nearest chunk and the commits after it.

Long because a chunk is one concept: its format, its reader, and the writer that makes it ahead of
any reader.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
from cachetools import LRUCache

from hansard._version import SERVER_VERSION
from hansard.bus import reads, subjects
from hansard.bus.clock import Slices
from hansard.bus.commits import record, revive, whole_at
from hansard.bus.errors import BusError
from hansard.bus.log import AtPosition, EventLog, Snapshots, Stored, as_read
from hansard.bus.loggers import logger
from hansard.domain.agent import AgentState, Refusal, SessionBegan, StatedFact
from hansard.domain.decider import evolve
from hansard.domain.errors import HansardError
from hansard.domain.events import Event, Recorded
from hansard.domain.fingerprint import digest
from hansard.domain.ids import AgentStream
from hansard.domain.label import Label, raised
from hansard.domain.payload import in_full, values_by_parts
from hansard.domain.steps import Failure, Step, StepEvent, ToolDeclared

# An agent's state in chunks of 64 versions: the changes since the previous chunk.
#
# A chunk holds changes, never the whole state, so N versions cost O(N) bytes regardless of the
# number of chunks. Chunks are derived and outside the log: the first reader that misses one makes
# it, and they may be deleted at any time. Their layout is named by a digest of this version and the
# state's fields, so that those of another version are ignored and made again.

CHUNK_VERSIONS = 64
"""Versions per chunk: a reader fetches at most as many commits after one, and each of them costs as
much as a chunk.
"""

_PARTS = {"tools", "edited", "steps", "facts", "known", "refused"}


def _layout() -> str:
    kinds = (AgentState, Step, Failure, ToolDeclared)
    names = [f"{kind.__name__}.{name}" for kind in kinds for name in kind.__struct_fields__]
    made_by = f"{SERVER_VERSION} {CHUNK_VERSIONS}"
    return "agent-" + digest(made_by.encode(), *(name.encode() for name in names))[:12]


LAYOUT = _layout()


class _Fact(msgspec.Struct, array_like=True):
    version: int
    tag: str
    data: msgspec.Raw


class Chunk(msgspec.Struct):
    """Changes since the previous chunk. Ends with a whole commit.

    `version` and `position`: those of that commit's end; `base`: the version it follows. Fields
        held
    whole rather than as changes are decoded only from the last chunk: see `finish`.
    """

    base: int
    version: int
    position: int
    plain: msgspec.Raw
    tools: msgspec.Raw
    steps: list[Step]
    facts: list[_Fact]
    refused: msgspec.Raw = msgspec.Raw(b"{}")
    edited: msgspec.Raw = msgspec.Raw(b"{}")


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Chunk)
_plain = msgspec.json.Decoder(dict[str, int | str | None])
_tools = msgspec.json.Decoder(list[ToolDeclared])
_refused = msgspec.json.Decoder(dict[str, Refusal])
_edited = msgspec.json.Decoder(dict[str, tuple[tuple[int, ToolDeclared], ...]])


def make(segment: Segment, state: AgentState) -> bytes:
    """Fold a whole segment into a state, which is that of its base and which the caller owns, and
    encode the chunk of these changes.
    """
    events = [event for end in segment.ends for event in end[2]]
    named = dict.fromkeys(getattr(event, "step", None) for event in events)
    old = {number: state.steps.get(number) for number in named if number is not None}
    version, facts = state.version, len(state.facts)
    fold_into(state, segment)
    position = segment.ends[-1][0]
    return _encoder.encode(
        Chunk(
            version,
            state.version,
            position,
            _raw(
                {
                    name: getattr(state, name)
                    for name in state.__struct_fields__
                    if name not in _PARTS
                }
            ),
            _raw(list(state.tools.values())),
            [
                state.steps[number]
                for number, step in old.items()
                if state.steps.get(number) is not step
            ],
            [
                _Fact(noted.version, noted.fact.tag, record(noted.fact, "").data)
                for noted in state.facts[facts:]
            ],
            _raw(state.refused),
            _raw(state.edited),
        )
    )


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encoder.encode(value))


def read(data: bytes) -> Chunk | None:
    """Decode a stored chunk; None if it is invalid (it is then made again)."""
    try:
        return _decoder.decode(data)
    except msgspec.DecodeError:
        return None


def apply(state: AgentState, chunk: Chunk) -> None:
    """Apply a chunk to a state, which the caller owns; after the last one, call `finish`."""
    state.version = chunk.version
    for step in chunk.steps:
        state.steps[step.number] = step
    for fact in chunk.facts:
        event = revive(Recorded(fact.tag, f"in a snapshot of {state.agent}", fact.data))
        state.facts.append(StatedFact(fact.version, event))  # type: ignore[arg-type] # `make` put a Fact there
        state.known.add(event.fingerprint)  # type: ignore[attr-defined] # as every Fact


def finish(state: AgentState, chunk: Chunk | None) -> bool:
    """Complete a state after the last of its chunks (None: there was none); return False if that
    chunk is invalid.
    """
    if chunk is None:
        return True
    try:
        plain, tools = _plain.decode(chunk.plain), _tools.decode(chunk.tools)
        state.refused = _refused.decode(chunk.refused)
        state.edited = _edited.decode(chunk.edited)
    except msgspec.DecodeError:
        return False
    for name, value in plain.items():
        setattr(state, name, value)
    state.tools = {tool.tool: tool for tool in tools}
    return True


# Agents' states at any version or position, from the nearest chunk and the commits after it.
#
# Caches what was read last in bounded memory, since the past does not change: reading it again
# needs no broker.

SEGMENTS_MAX = 256
"""Most segments kept in memory, over all streams: some 16,000 events, and a state before each."""

STREAMS_MAX = 1_024
"""Most streams whose chunk positions are cached."""


class Segment(msgspec.Struct):
    """A state at a chunk's end, and the commits after it up to the next chunk's end.

    `ends`: (position, version, events, label) of each commit; the position of one in a transaction
    is that of the transaction's end. `horizon`: position up to which the segment is complete; None
    for a whole segment.
    """

    base: AgentState
    position: int
    ends: list[tuple[int, int, list[Event], Label | None]]
    horizon: int | None
    based: list[int] | None = None
    """Numbers of the base's steps with values in parts; None until first needed."""
    parted_steps: set[int] | None = None
    """Cached result of `parted`; once it is set, nothing is added to the segment."""

    def parted(self) -> set[int]:
        """Return the numbers of all steps that may have values in parts: those of the base, and all
        of the events.
        """
        if self.parted_steps is None:
            if self.based is None:
                self.based = [step.number for step in values_by_parts(self.base.steps.values())]
            events = itertools.chain.from_iterable(events for _, _, events, _ in self.ends)
            request = (each.step for each in events if isinstance(each, StepEvent))
            self.parted_steps = {*self.based, *request}
        return self.parted_steps

    @property
    def epoch(self) -> int:
        """Epoch of the agent at its end."""
        for _, _, events, _ in reversed(self.ends):
            for event in reversed(events):
                if isinstance(event, SessionBegan):
                    return event.epoch
        return self.base.epoch


class _Index(msgspec.Struct):
    """Ends of a stream's chunks: position by number, from 0 (the stream's begin)."""

    positions: list[int]


CHUNKS_GUESSED_MAX = 1_000
"""Number of chunks up to which they are requested by number, without a request for their count."""

CHUNKS_FIRST = 64
"""Number of chunks requested first if only a position is known; if half of them exist, the list of
further ones is requested. (All of a large commit is in one chunk: the next numbers have none.)
"""

CHUNKS_SENT = 32
"""Chunks sent at once: those of one read ahead, and fewer than may be unacknowledged."""

AHEAD_VERSIONS_MAX = 2_000
"""Versions read at once if chunks are missing: some 1,000 commits of 1 KB."""


Begin = Callable[[AgentStream], Awaitable["tuple[AgentState, int]"]]
"""Return the initial state and position of a stream: empty, or the parent's at a fork's cut."""


class _Tail:
    """A stream's commits as read for one state: those up to `target`, a version (None: the newest),
    are requested together.

    `head` is the position where it ends; None while nothing was needed besides `held`, which was
    requested with the chunks.
    """

    def __init__(
        self,
        log: EventLog,
        stream: AgentStream,
        head: int | None,
        target: int | None,
        held: Sequence[Stored] = (),
    ) -> None:
        self.head = head
        self._log = log
        self._stream = stream
        self._newest: int | None = None
        self._target = target
        self._held = [*held]
        self._read_to = 0

    async def newest(self) -> int:
        """Return the stream's newest version, no older than the position."""
        if self._newest is None:
            last = await self._log.last(self._stream)
            self._newest = last.commit.last_version if last is not None else 0
        return self._newest

    async def take(self, after: int, to: int, *, ahead: bool) -> list[Stored]:
        """Return the commits with first versions in (after, to]; `ahead`: prefetch the following
        ones.
        """
        if self.head is None:
            held = [each for each in self._held if each.commit.version > after]
            follows = not held or held[0].commit.version == after + 1
            end = held[-1].commit.last_version if held else after
            if follows and self._target is not None and end >= self._target:
                return [each for each in held if each.commit.version <= to]
            self.head = await self._log.head()
        if self._read_to < to:
            if ahead and self._target is None:
                self._target = await self.newest()
            if self._newest is not None and after >= self._newest:
                return []
            self._read_to = to
            if ahead and self._target is not None:
                plan = -(-self._target // CHUNK_VERSIONS) * CHUNK_VERSIONS
                self._read_to = max(to, min(plan, after + AHEAD_VERSIONS_MAX))
            self._held = await self._log.read(
                self._stream, after=after, to=self._read_to, up_to=AtPosition(self.head)
            )
        first, end = (bisect.bisect_right(self._held, at, key=_version) for at in (after, to))
        return self._held[first:end]


class Histories:
    """States of a log's agents."""

    def __init__(self, log: EventLog, snapshots: Snapshots | None, begin: Begin) -> None:
        self._log = log
        self._snapshots = snapshots
        self._begin = begin
        self._segments: LRUCache[tuple[AgentStream, int], Segment] = LRUCache(SEGMENTS_MAX)
        self._indexes: LRUCache[AgentStream, _Index] = LRUCache(STREAMS_MAX)

    async def at_version(self, stream: AgentStream, version: int) -> AgentState:
        """Return an agent at a version, or its newest if it has fewer."""
        return fold_segment(await self.segment_of(stream, version), version=version)

    async def segment_of(self, stream: AgentStream, version: int) -> Segment:
        """Return the segment of a version, or the newest if there are fewer. It is shared: do not
        modify it.
        """
        segment = self._cached_version(stream, version)
        return segment if segment is not None else await self._load_version(stream, version)

    async def at_position(
        self, stream: AgentStream, position: int, head: int | None = None
    ) -> AgentState:
        """Return an agent at a position of the log; `head`: a known past head of the log."""
        return fold_segment(await self._segment_at(stream, position, head), position=position)

    async def in_full_at_position(
        self, stream: AgentStream, position: int, head: int | None = None
    ) -> AgentState:
        """Return the same with its steps' values in full
        (`hansard.domain.payload.in_full`).
        """
        segment = await self._segment_at(stream, position, head)
        state = fold_segment(segment, position=position)
        in_full(state.steps, segment.parted())
        return state

    async def _segment_at(self, stream: AgentStream, position: int, head: int | None) -> Segment:
        segment = self._cached_position(stream, position)
        if segment is None:
            segment = await self._grown(stream, position)
        return segment or await self._load_position(stream, position, head)

    async def _grown(self, stream: AgentStream, position: int) -> Segment | None:
        """Return the newest segment in memory, extended by new commits; None if it is not cached or
        a whole chunk has been added.
        """
        index = self._indexes.get(stream)
        number = len(index.positions) - 1 if index is not None else -1
        segment = self._segments.get((stream, number))
        if segment is None or segment.horizon is None or segment.horizon >= position:
            return None
        head = await self._log.head()  # first: a point may be beyond it, and commits may be added
        last = await self._log.last(stream)
        known = segment.ends[-1][1] if segment.ends else segment.base.version
        newest = last.commit.last_version if last is not None else 0
        if newest >= (number + 1) * CHUNK_VERSIONS or newest < known:
            return None
        grown = segment
        if newest > known and last is not None:
            head = max(head, whole_at(last))
            tail = await self._log.read(stream, after=known, to=newest)
            tail = reads.under(self._log.workspace, stream, tail, segment.epoch)
            ends = [*segment.ends, *_ends(tail)]
            grown = Segment(segment.base, segment.position, ends, None, segment.based)
        grown.horizon = max(head, segment.horizon)
        self._segments[stream, number] = grown
        return grown

    async def version_at(self, stream: AgentStream, position: int, head: int | None = None) -> int:
        """Return an agent's version at a position: from memory, or by one point read if nothing was
        appended after it. `head` as above.
        """
        segment = self._cached_position(stream, position)
        if segment is not None:
            ends = (end for at, end, *_ in segment.ends if at <= position)
            return max(ends, default=segment.base.version)
        last = await self._log.last(stream)
        if last is not None and whole_at(last) <= position:
            return last.commit.last_version
        return (await self.at_position(stream, position, head)).version

    async def position_of(self, stream: AgentStream, version: int) -> int | None:
        """Return the position of the commit that holds a version; None if there is none."""
        segment = await self.segment_of(stream, version)
        if version == segment.base.version:
            return segment.position
        positions = (position for position, end, *_ in segment.ends if end >= version)
        return next(positions, None)

    def _cached_version(self, stream: AgentStream, version: int) -> Segment | None:
        index = self._indexes.get(stream)
        if index is None:
            return None
        for number in range(min(version // CHUNK_VERSIONS, len(index.positions) - 1), -1, -1):
            segment = self._segments.get((stream, number))
            if segment is None:
                return None
            if segment.base.version <= version:
                last = segment.ends[-1][1] if segment.ends else segment.base.version
                return segment if version <= last else None
        return None

    def _cached_position(self, stream: AgentStream, position: int) -> Segment | None:
        index = self._indexes.get(stream)
        if index is None:
            return None
        number = sum(end <= position for end in index.positions) - 1
        segment = self._segments.get((stream, number)) if number >= 0 else None
        if segment is None or (segment.horizon is not None and segment.horizon < position):
            return None
        whole = number + 1 < len(index.positions)
        return segment if whole or segment.horizon is not None else None

    async def _load_version(self, stream: AgentStream, version: int) -> Segment:
        """Read the segment of a version: the stream's begin, its chunks, and the commits expected
        after the chunk before the version, all at once.

        For a stream of which nothing was read yet, reads only up to the version.
        """
        if version > CHUNKS_GUESSED_MAX * CHUNK_VERSIONS:
            tail = _Tail(self._log, stream, await self._log.head(), version)
            begin, last = await asyncio.gather(self._begin(stream), tail.newest())
            chunks = await self._chunks(stream, min(last, version) // CHUNK_VERSIONS + 1)
            return await self._walk(stream, version, None, begin, chunks, tail)
        after = version - version % CHUNK_VERSIONS
        to = after + CHUNK_VERSIONS if stream in self._indexes else version
        begin, chunks, held = await asyncio.gather(
            self._begin(stream),
            self._chunks(stream, version // CHUNK_VERSIONS + 1 if after else 0),
            self._follow(stream, after, to),
        )
        tail = _Tail(self._log, stream, None, version, held)
        return await self._walk(stream, version, None, begin, chunks, tail)

    async def _follow(self, stream: AgentStream, after: int, to: int) -> list[Stored]:
        """Return the commits expected after a chunk; none if there can be no chunk."""
        if self._snapshots is None and after:
            return []
        return await self._log.read(stream, after=after, to=to, inside=True)

    async def _load_position(self, stream: AgentStream, position: int, head: int | None) -> Segment:
        """Read the segment of a position: its chunks, then its commits."""
        begin, chunks, newest = await asyncio.gather(
            self._begin(stream),
            self._chunks(stream, CHUNKS_FIRST),
            self._log.head() if head is None else _now(head),
        )
        tail = _Tail(self._log, stream, newest, None)
        if max(chunks, default=0) >= CHUNKS_FIRST // 2:
            last = await tail.newest() // CHUNK_VERSIONS + 1
            chunks |= await self._chunks(stream, last, CHUNKS_FIRST + 1)
        return await self._walk(stream, None, position, begin, chunks, tail)

    async def _walk(
        self,
        stream: AgentStream,
        version: int | None,
        position: int | None,
        begin: tuple[AgentState, int],
        chunks: dict[int, bytes],
        tail: _Tail,
    ) -> Segment:
        """Return the segment of a point, from its chunks and the commits after the last existing
        one; make the missing chunks. Those are sent a few at a time, so that the caller does not
        wait for the server to store each.
        """
        new_chunks: list[tuple[int, bytes]] = []
        state, start = begin[0].copy(), begin[1]
        index = [start]
        last: tuple[int, Chunk | None] = (0, None)
        for number in itertools.count(1):
            if number * CHUNK_VERSIONS <= state.version:
                index.append(start)
                continue
            chunk = _chunk(chunks, number, state)
            is_last = chunk is None or _lies_in(version, position, chunk.version, chunk.position)
            if is_last and not finish(state, last[1]):  # treated as missing
                less = {each: data for each, data in chunks.items() if each != last[0]}
                return await self._walk(stream, version, position, begin, less, tail)
            if chunk is None:
                segment = await self._read(stream, state, start, number, tail, ahead=True)
                if segment.horizon is not None:
                    await self.put(stream, new_chunks)
                    return self._keep(stream, number - 1, index, segment)
                position_end, version_end = segment.ends[-1][:2]
                if _lies_in(version, position, version_end, position_end):
                    await self.put(stream, new_chunks)
                    return self._keep(stream, number - 1, [*index, position_end], segment)
                if self._snapshots is None:
                    fold_into(state, segment)
                else:
                    new_chunks.append((number, make(segment, state)))
                if len(new_chunks) >= CHUNKS_SENT:
                    await self.put(stream, new_chunks)
                    new_chunks = []
                start, last = position_end, (0, None)
            elif is_last:
                segment = await self._read(stream, state, start, number, tail)
                await self.put(stream, new_chunks)
                return self._keep(stream, number - 1, [*index, chunk.position], segment)
            else:
                apply(state, chunk)
                start, last = chunk.position, (number, chunk)
            index.append(start)
        raise AssertionError(index)  # the last segment is not whole

    async def _read(
        self,
        stream: AgentStream,
        state: AgentState,
        start: int,
        number: int,
        tail: _Tail,
        *,
        ahead: bool = False,
    ) -> Segment:
        """Return the commits after a state up to the end of its chunk; `ahead`: prefetch those
        after it.
        """
        to = number * CHUNK_VERSIONS
        stored = await tail.take(state.version, to, ahead=ahead)
        stored = reads.under(self._log.workspace, stream, stored, state.epoch)
        ends = _ends(stored)
        if ends and ends[-1][1] >= to:
            return Segment(state, start, ends, None)
        known = ends[-1][0] if ends else start
        return Segment(state, start, ends, known if tail.head is None else tail.head)

    async def _chunks(self, stream: AgentStream, to: int, first: int = 1) -> dict[int, bytes]:
        """Return the existing chunks of a stream that end at or before `to`, by number."""
        if self._snapshots is None or to < first:
            return {}
        prefix = self._prefix(stream)
        keys = {f"{prefix}.{n}": n for n in range(first, to + 1)}
        chunks = await self._snapshots.get_many(list(keys))
        return {keys[key]: data for key, data in chunks.items()}

    async def put(self, stream: AgentStream, made: Sequence[tuple[int, bytes]]) -> None:
        """Send chunks of a stream, by number; does not wait until they are stored."""
        if self._snapshots is not None:
            for number, data in made:
                await self._snapshots.put(f"{self._prefix(stream)}.{number}", data)

    def _prefix(self, stream: AgentStream) -> str:
        return subjects.snapshot_prefix(self._log.workspace, stream, LAYOUT)

    def _keep(
        self, stream: AgentStream, number: int, index: list[int], segment: Segment
    ) -> Segment:
        known = self._indexes.get(stream)
        if known is None or len(known.positions) < len(index):
            self._indexes[stream] = _Index(index)
        self._segments[stream, number] = segment
        return segment


async def _now(head: int) -> int:
    return head


def _chunk(chunks: dict[int, bytes], number: int, state: AgentState) -> Chunk | None:
    """Return the chunk of a number, if it continues from a state."""
    data = chunks.get(number)
    chunk = read(data) if data is not None else None
    return chunk if chunk is not None and chunk.base == state.version else None


def _version(stored: Stored) -> int:
    return stored.commit.version


def end_of(stored: Stored) -> tuple[int, int, list[Event], Label | None]:
    """Return a commit as an entry of a segment's `ends`."""
    commit = stored.commit
    return whole_at(stored), commit.last_version, [*map(revive, commit.events)], commit.label


def _ends(stored: Iterable[Stored]) -> list[tuple[int, int, list[Event], Label | None]]:
    return [end_of(item) for item in stored]


def _lies_in(
    version: int | None, position: int | None, version_end: int, position_end: int
) -> bool:
    """Return whether a point lies before the end of a segment."""
    if version is not None:
        return version < version_end
    return position is not None and position < position_end


def fold_segment(
    segment: Segment, version: int | None = None, position: int | None = None
) -> AgentState:
    """Return the state at a segment's end, or at a point in it."""
    state = segment.base.copy()
    fold_into(state, segment, version, position)
    return state


def fold_into(
    state: AgentState, segment: Segment, version: int | None = None, position: int | None = None
) -> None:
    """Fold a segment, up to its end or up to a point in it, into a state that the caller owns."""
    for end_position, _, events, label in segment.ends:
        if position is not None and end_position > position:
            break
        if version is not None and state.version >= version:
            return
        state.label = raised(state.label, label)
        for event in events:
            if version is not None and state.version >= version:
                return
            evolve(state, event)


# Chunks made by the writer beside its writes, so that no reader has to make them.
#
# A writer's commits are in memory when they are acknowledged. Once they pass a multiple of 64
# versions, they become the chunk that a reader would make of them, by the same functions: on the
# loop, in slices, and when the agent pauses, so that an agent writing without a pause is not
# delayed. It is a cache: a chunk that is not made here, because too much is pending, the program is
# killed, or a commit does not follow the known state, is made by any reader.
#
# A chunk never holds more than the log. It is made of acknowledged commits only, in the form that
# readers get: a fenced writer makes none of commits that were refused. It is sent only once a power
# cut would not lose its commits: at once under `strict`, a second later under `relaxed`, and never
# if the server's sync behavior is unknown.

SYNCED_S = {"strict": 0.0, "memory": 0.0, "relaxed": 1.0}
"""Delay, in seconds, after the ack of its newest commit before a chunk is sent, by the log's
durability: no `relaxed` server leaves anything unsynced for longer.
"""

PAUSE_S = 0.25
"""Time without writes after which an agent counts as pausing, in seconds."""

HELD_BYTES_MAX = 1024 * 1024
"""Bytes of pending commits from which chunks are made without waiting for a pause."""

HELD_MAX = 2_048
"""Most pending commits of a stream: further ones are read from the log. From half as many on,
chunks are made without waiting for a pause.
"""

CLOSE_S = 0.5
"""Timeout of a closing client for the chunks that are due, in seconds."""

DUE_MAX = 64
"""Most streams with a pending chunk; those of others are left to readers."""

SENDING_MAX = 64
"""Most chunks being sent, some 25 KB each; others are left to readers."""

_log = logger(__name__)


class _PendingCommits(msgspec.Struct, eq=False):
    """Commits that a writer has stored in its stream since its newest chunk: `held`, and earlier
    ones folded into a segment; None if that is unknown.
    """

    stream: AgentStream
    held: deque[Stored]
    segment: Segment | None = None
    due: bool = False
    last_s: float = 0.0
    """Time of the last write, by the monotonic clock, in seconds."""
    bytes_added: int = 0
    bytes_removed: int = 0
    """Bytes of all commits so far, and of those removed from `held`."""

    @property
    def pauses(self) -> bool:
        """True if the agent pauses, or has written too much without a pause."""
        return (
            time.monotonic() - self.last_s >= PAUSE_S
            or 2 * len(self.held) >= HELD_MAX
            or self.bytes_added - self.bytes_removed >= HELD_BYTES_MAX
        )


class ChunkMaker:
    """Makes the chunks of the streams that this process writes. The functions returned by `written`
    may be called in any thread, everything else on the loop.
    """

    def __init__(self, log: EventLog, histories: Histories) -> None:
        self._log = log
        self._histories = histories
        self._due: deque[_PendingCommits] = deque()
        self._making: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    def written(self, stream: AgentStream) -> Callable[[Stored], None] | None:
        """Return the function to call with each commit of a stream's writer, in order, once it is
        acknowledged; None if no chunks are made.
        """
        if as_read(self._log) is None or self._log.durability not in SYNCED_S:
            return None
        kept = _PendingCommits(stream, deque(maxlen=HELD_MAX))
        loop = asyncio.get_running_loop()

        def hold(stored: Stored) -> None:
            kept.held.append(stored)
            kept.last_s = time.monotonic()
            kept.bytes_added += len(stored.body)
            commit = stored.commit
            whole = (commit.version - 1) // CHUNK_VERSIONS < commit.last_version // CHUNK_VERSIONS
            if whole and not kept.due:
                kept.due = True
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._put, kept)

        return hold

    def _put(self, kept: _PendingCommits) -> None:
        if self._closed.is_set() or len(self._due) >= DUE_MAX:
            kept.due = False
            kept.held.clear()
            return
        self._due.append(kept)
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._due:
                closed = self._closed.is_set()
                kept = next((each for each in self._due if closed or each.pauses), None)
                if kept is None:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._closed.wait(), PAUSE_S)
                    continue
                self._due.remove(kept)
                kept.due = False
                try:
                    await self._make(kept)
                except HansardError as error:  # any reader meets the same error and raises it
                    kept.segment = None
                    _log.debug("a chunk was not made", stream=str(kept.stream), why=str(error))
        finally:
            self._making = None

    async def _make(self, kept: _PendingCommits) -> None:
        """Fold the pending commits, and send each chunk completed by them."""
        sift = as_read(self._log)
        kept.bytes_removed = kept.bytes_added
        commits = [kept.held.popleft() for _ in range(len(kept.held))]
        if sift is None or not commits:
            return
        first = commits[0].commit.version
        segment, kept.segment = kept.segment, None
        if segment is None or _ends_at(segment) != first - 1:
            segment = await self._histories.segment_of(kept.stream, first - 1)
            ends = [end for end in segment.ends if end[1] < first]
            segment = Segment(segment.base, segment.position, ends, None)
            segment = self._cut(kept.stream, segment)
        commits = await sift.as_read(commits)
        commits = reads.under(self._log.workspace, kept.stream, commits, segment.epoch)
        async with Slices() as slices:
            for stored in commits:
                if _ends_at(segment) != stored.commit.version - 1:
                    return
                segment.ends.append(end_of(stored))
                segment = self._cut(kept.stream, segment)
                if slices.over:
                    await slices.pause()
        kept.segment = segment

    def _cut(self, stream: AgentStream, segment: Segment) -> Segment:
        """Return the segment to continue with; if this one is whole, send its chunk."""
        number = segment.base.version // CHUNK_VERSIONS + 1
        if _ends_at(segment) < number * CHUNK_VERSIONS:
            return segment
        ended = segment.base.copy()
        if len(self._sending) >= SENDING_MAX:
            fold_into(ended, segment)
        else:
            data = make(segment, ended)
            sending = asyncio.get_running_loop().create_task(self._send(stream, number, data))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        return Segment(_open_only(ended), segment.ends[-1][0], [], None)

    async def _send(self, stream: AgentStream, number: int, data: bytes) -> None:
        await asyncio.sleep(SYNCED_S[self._log.durability])
        try:
            await self._histories.put(stream, [(number, data)])
        except BusError as error:
            _log.debug("a chunk was not sent", stream=str(stream), why=str(error))

    async def close(self) -> None:
        """Make the chunks that are due, and stop; those not sent in time are left to readers."""
        self._closed.set()
        if self._making is not None:
            await asyncio.wait({self._making}, timeout=CLOSE_S)
        await asyncio.sleep(0)  # starts the sends that need no delay
        working = [each for each in (self._making, *self._sending) if each is not None]
        for each in working:
            each.cancel()
        if working:
            await asyncio.wait(working)


def _ends_at(segment: Segment) -> int:
    return segment.ends[-1][1] if segment.ends else segment.base.version


def _open_only(state: AgentState) -> AgentState:
    """Return a state for making the next chunk: without ended steps, which later chunks do not
    mention. A later event of an ended step raises an error, and the state is then read again.
    """
    left = {number: step for number, step in state.steps.items() if step.is_open}
    return msgspec.structs.replace(state, steps=left, facts=[], known=set())
