"""Agents' states at any version or position, by their nearest chunk and what came after it.

Keeps what was read last in bounded memory: a past that was read once costs no broker again, since
the past does not change.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
from cachetools import LRUCache

from hansard.bus import subjects
from hansard.bus.codec import revive
from hansard.bus.commits import whole_at
from hansard.bus.log import AtPosition, EventLog, Stored
from hansard.bus.states import _chunks
from hansard.bus.states._chunks import CHUNK_VERSIONS, Chunk
from hansard.bus.states.snapshots import Snapshots
from hansard.bus.validation import quarantine
from hansard.domain import agent as agents
from hansard.domain.agent import AgentState, SessionBegan
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream
from hansard.domain.label import Label, raised
from hansard.domain.payload.parts import in_full, said_in_parts
from hansard.domain.steps import StepEvent

SEGMENTS_MAX = 256
"""Most segments kept in memory, over all streams: some 16,000 events, and a state before each."""

STREAMS_MAX = 1_024
"""Most streams whose chunk positions are remembered."""


class Segment(msgspec.Struct):
    """A state at a chunk's end, and the commits after it up to the next chunk's.

    `ends` are (position, version, events, label) of each commit; the position of one that is part
    of a transaction is where that ends. `horizon` is the position up to which
    nothing of the segment is missing; a whole segment has none.
    """

    base: AgentState
    position: int
    ends: list[tuple[int, int, list[Event], Label | None]]
    horizon: int | None
    based: list[int] | None = None
    """Numbers of the base's steps that are said in parts, once somebody asked."""
    said: set[int] | None = None
    """What `parted` found: to one that is asked, nothing is added."""

    def parted(self) -> set[int]:
        """Numbers of all steps that may be said in parts: those of the base, all of the events."""
        if self.said is None:
            if self.based is None:
                self.based = [step.number for step in said_in_parts(self.base.steps.values())]
            events = itertools.chain.from_iterable(events for _, _, events, _ in self.ends)
            asked = (each.step for each in events if isinstance(each, StepEvent))
            self.said = {*self.based, *asked}
        return self.said

    @property
    def epoch(self) -> int:
        """The agent's epoch at its end."""
        for _, _, events, _ in reversed(self.ends):
            for event in reversed(events):
                if isinstance(event, SessionBegan):
                    return event.epoch
        return self.base.epoch


class _Index(msgspec.Struct):
    """Where a stream's chunks end: position by number, from 0 (the stream's begin)."""

    positions: list[int]


CHUNKS_GUESSED_MAX = 1_000
"""Up to this many chunks are asked for by their numbers, without asking how many there are."""

CHUNKS_FIRST = 64
"""So many are asked for where only a position is known; where there are half of them, it is asked
whether there are more. (All of a large commit is in one chunk: the next numbers have none.)"""

CHUNKS_SENT = 32
"""So many chunks that were made are sent at once: those of one read ahead, and fewer than may be
unacknowledged."""

AHEAD_VERSIONS_MAX = 2_000
"""So many versions are read at once where chunks are missing: some 1,000 commits of 1 KB."""


Begin = Callable[[AgentStream], Awaitable["tuple[AgentState, int]"]]
"""The state and position a stream goes on from: nothing, or a parent's where a fork cut it."""


class _Tail:
    """A stream's commits up to a position, `head`, as they are read for one state: those up to
    `wanted`, a version (None: the newest), are asked for together.
    """

    def __init__(self, log: EventLog, stream: AgentStream, head: int, wanted: int | None) -> None:
        self.head = head
        self._log = log
        self._stream = stream
        self._newest: int | None = None
        self._wanted = wanted
        self._held: list[Stored] = []
        self._read_to = 0

    async def newest(self) -> int:
        """The stream's newest version, no older than the position."""
        if self._newest is None:
            last = await self._log.last(self._stream)
            self._newest = last.commit.last_version if last is not None else 0
        return self._newest

    async def take(self, after: int, to: int, *, ahead: bool) -> list[Stored]:
        """The commits with first versions in (after, to]; `ahead`: what follows is wanted, too."""
        if self._read_to < to:
            if ahead and self._wanted is None:
                self._wanted = await self.newest()
            if self._newest is not None and after >= self._newest:
                return []
            self._read_to = to
            if ahead and self._wanted is not None:
                wanted = -(-self._wanted // CHUNK_VERSIONS) * CHUNK_VERSIONS
                self._read_to = max(to, min(wanted, after + AHEAD_VERSIONS_MAX))
            self._held = await self._log.read(
                self._stream, after=after, to=self._read_to, up_to=AtPosition(self.head)
            )
        first, end = (bisect.bisect_right(self._held, at, key=_version) for at in (after, to))
        return self._held[first:end]


class Histories:
    """States of one log's agents."""

    def __init__(self, log: EventLog, snapshots: Snapshots | None, begin: Begin) -> None:
        self._log = log
        self._snapshots = snapshots
        self._begin = begin
        self._segments: LRUCache[tuple[AgentStream, int], Segment] = LRUCache(SEGMENTS_MAX)
        self._indexes: LRUCache[AgentStream, _Index] = LRUCache(STREAMS_MAX)

    async def at_version(self, stream: AgentStream, version: int) -> AgentState:
        """An agent at a version, or its newest where it has fewer."""
        return folded(await self.segment_of(stream, version), version=version)

    async def segment_of(self, stream: AgentStream, version: int) -> Segment:
        """The segment that a version lies in, or the newest where there are fewer: not the
        caller's own.
        """
        segment = self._cached_version(stream, version)
        return segment if segment is not None else await self._load_version(stream, version)

    async def at_position(
        self, stream: AgentStream, position: int, head: int | None = None
    ) -> AgentState:
        """An agent at a position of the log; `head` is one that the log has had, if known."""
        return folded(await self._segment_at(stream, position, head), position=position)

    async def in_full_at_position(
        self, stream: AgentStream, position: int, head: int | None = None
    ) -> AgentState:
        """The same with its steps' values in full (`hansard.domain.payload.parts.in_full`)."""
        segment = await self._segment_at(stream, position, head)
        state = folded(segment, position=position)
        in_full(state.steps, segment.parted())
        return state

    async def _segment_at(self, stream: AgentStream, position: int, head: int | None) -> Segment:
        segment = self._cached_position(stream, position)
        if segment is None:
            segment = await self._grown(stream, position)
        return segment or await self._load_position(stream, position, head)

    async def _grown(self, stream: AgentStream, position: int) -> Segment | None:
        """The newest segment in memory, with what came since; None where it is not there or a
        whole chunk came.
        """
        index = self._indexes.get(stream)
        number = len(index.positions) - 1 if index is not None else -1
        segment = self._segments.get((stream, number))
        if segment is None or segment.horizon is None or segment.horizon >= position:
            return None
        head = await self._log.head()  # first: a point may be beyond it, and more may come
        last = await self._log.last(stream)
        known = segment.ends[-1][1] if segment.ends else segment.base.version
        newest = last.commit.last_version if last is not None else 0
        if newest >= (number + 1) * CHUNK_VERSIONS or newest < known:
            return None
        grown = segment
        if newest > known and last is not None:
            head = max(head, whole_at(last))
            tail = await self._log.read(stream, after=known, to=newest)
            tail = quarantine.under(self._log.workspace, stream, tail, segment.epoch)
            ends = [*segment.ends, *_ends(tail)]
            grown = Segment(segment.base, segment.position, ends, None, segment.based)
        grown.horizon = max(head, segment.horizon)
        self._segments[stream, number] = grown
        return grown

    async def version_at(self, stream: AgentStream, position: int, head: int | None = None) -> int:
        """An agent's version at a position: from memory, else one point read where nothing came
        after it. `head` as above.
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
        """The position of the commit that holds a version; None where there is none."""
        segment = await self.segment_of(stream, version)
        if version == segment.base.version:
            return segment.position
        found = (position for position, end, *_ in segment.ends if end >= version)
        return next(found, None)

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
        """Read the segment a version lies in: how the stream begins, its chunks, and what follows
        the chunk that the version's number lets one expect, all at once.

        Of a stream of which nothing was read yet, no more than up to the version.
        """
        if version > CHUNKS_GUESSED_MAX * CHUNK_VERSIONS:
            tail = _Tail(self._log, stream, await self._log.head(), version)
            begin, last = await asyncio.gather(self._begin(stream), tail.newest())
            chunks = await self._chunks(stream, min(last, version) // CHUNK_VERSIONS + 1)
            return await self._walk(stream, version, None, begin, chunks, tail)
        after = version - version % CHUNK_VERSIONS
        to = after + CHUNK_VERSIONS if stream in self._indexes else version
        begin, chunks, follow = await asyncio.gather(
            self._begin(stream),
            self._chunks(stream, version // CHUNK_VERSIONS + 1 if after else 0),
            self._follow(stream, after, to),
        )
        segment = self._expected(stream, version, begin, chunks, follow)
        if segment is not None:
            return segment
        tail = _Tail(self._log, stream, await self._log.head(), version)
        return await self._walk(stream, version, None, begin, chunks, tail)

    async def _follow(self, stream: AgentStream, after: int, to: int) -> list[Stored]:
        """What is expected to follow on a chunk; nothing where there can be no chunk."""
        if self._snapshots is None and after:
            return []
        return await self._log.read(stream, after=after, to=to, inside=True)

    async def _load_position(self, stream: AgentStream, position: int, head: int | None) -> Segment:
        """Read the segment a position lies in: its chunks, then its commits."""
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

    def _expected(
        self,
        stream: AgentStream,
        version: int,
        begin: tuple[AgentState, int],
        chunks: dict[int, bytes],
        follow: Sequence[Stored],
    ) -> Segment | None:
        """The segment of a version from what was asked for at once; None where a chunk is missing,
        or something follows on it that was not asked for.
        """
        state, start = begin[0].copy(), begin[1]
        index = [start]
        chunk: Chunk | None = None
        last: Chunk | None = None
        for number in itertools.count(1):
            if number * CHUNK_VERSIONS > state.version:
                chunk = _chunk(chunks, number, state)
                if chunk is None or version < chunk.version:
                    break
                _chunks.apply(state, chunk)
                last, start = chunk, chunk.position
            index.append(start)
        if not _chunks.finish(state, last):
            return None
        if chunk is not None:
            index.append(chunk.position)
        follow = [each for each in follow if each.commit.version > state.version]
        if follow and follow[0].commit.version != state.version + 1:
            return None
        ends = _ends(quarantine.under(self._log.workspace, stream, follow, state.epoch))
        if (ends[-1][1] if ends else state.version) < version:
            return None
        made = Segment(state, start, ends, ends[-1][0] if ends else start)
        if self._is_whole(made, number):
            made.horizon = None
        return self._keep(stream, number - 1, index, made)

    async def _walk(
        self,
        stream: AgentStream,
        version: int | None,
        position: int | None,
        begin: tuple[AgentState, int],
        chunks: dict[int, bytes],
        tail: _Tail,
    ) -> Segment:
        """The segment a point lies in, from its chunks and, after those that are there, from the
        commits: then the chunks that are missing are made. They are sent some at a time: whoever
        waits for a state does not wait for the server to store each.
        """
        made: list[tuple[int, bytes]] = []
        state, start = begin[0].copy(), begin[1]
        index = [start]
        last: tuple[int, Chunk | None] = (0, None)
        for number in itertools.count(1):
            if number * CHUNK_VERSIONS <= state.version:
                index.append(start)
                continue
            chunk = _chunk(chunks, number, state)
            is_last = chunk is None or _lies_in(version, position, chunk.version, chunk.position)
            if is_last and not _chunks.finish(state, last[1]):  # as if it were not there
                less = {each: data for each, data in chunks.items() if each != last[0]}
                return await self._walk(stream, version, position, begin, less, tail)
            if chunk is None:
                segment = await self._read(stream, state, start, number, tail, ahead=True)
                if not self._is_whole(segment, number):
                    await self.put(stream, made)
                    return self._keep(stream, number - 1, index, segment)
                ended = folded(segment)
                position_end, version_end = segment.ends[-1][:2]
                if _lies_in(version, position, version_end, position_end):
                    await self.put(stream, made)
                    return self._keep(stream, number - 1, [*index, position_end], segment)
                if self._snapshots is not None:
                    made.append((number, made_chunk(segment, ended)))
                if len(made) >= CHUNKS_SENT:
                    await self.put(stream, made)
                    made = []
                state, start, last = ended, position_end, (0, None)
            elif is_last:
                segment = await self._read(stream, state, start, number, tail)
                await self.put(stream, made)
                return self._keep(stream, number - 1, [*index, chunk.position], segment)
            else:
                _chunks.apply(state, chunk)
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
        """The commits after a state up to the end of its chunk; `ahead`: those after it will be
        asked for, too.
        """
        to = number * CHUNK_VERSIONS
        stored = await tail.take(state.version, to, ahead=ahead)
        stored = quarantine.under(self._log.workspace, stream, stored, state.epoch)
        ends = _ends(stored)
        whole = bool(ends) and ends[-1][1] >= to
        return Segment(state, start, ends, None if whole else tail.head)

    @staticmethod
    def _is_whole(segment: Segment, number: int) -> bool:
        return bool(segment.ends) and segment.ends[-1][1] >= number * CHUNK_VERSIONS

    async def _chunks(self, stream: AgentStream, to: int, first: int = 1) -> dict[int, bytes]:
        """Those of a stream's chunks that there are, by number, which ends at `to`."""
        if self._snapshots is None or to < first:
            return {}
        prefix = self._prefix(stream)
        keys = {f"{prefix}.{n}": n for n in range(first, to + 1)}
        found = await self._snapshots.get_many(list(keys))
        return {keys[key]: data for key, data in found.items()}

    async def put(self, stream: AgentStream, made: Sequence[tuple[int, bytes]]) -> None:
        """Send chunks of a stream, by their numbers; nobody waits for them to be stored."""
        if self._snapshots is not None:
            for number, data in made:
                await self._snapshots.put(f"{self._prefix(stream)}.{number}", data)

    def _prefix(self, stream: AgentStream) -> str:
        return subjects.snapshot_prefix(self._log.workspace, stream, _chunks.LAYOUT)

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
    """The chunk of a number, if it goes on from a state."""
    data = chunks.get(number)
    chunk = _chunks.read(data) if data is not None else None
    return chunk if chunk is not None and chunk.base == state.version else None


def made_chunk(segment: Segment, ended: AgentState) -> bytes:
    """The chunk of a whole segment, which leads to a state."""
    events = (event for end in segment.ends for event in end[2])
    return _chunks.make(segment.base, ended, segment.ends[-1][0], events)


def _version(stored: Stored) -> int:
    return stored.commit.version


def ended_by(stored: Stored) -> tuple[int, int, list[Event], Label | None]:
    """A commit as one of a segment's ends."""
    commit = stored.commit
    return whole_at(stored), commit.last_version, [*map(revive, commit.events)], commit.label


def _ends(stored: Iterable[Stored]) -> list[tuple[int, int, list[Event], Label | None]]:
    return [ended_by(item) for item in stored]


def _lies_in(
    version: int | None, position: int | None, version_end: int, position_end: int
) -> bool:
    """Whether a point comes before the end of a segment."""
    if version is not None:
        return version < version_end
    return position is not None and position < position_end


def folded(segment: Segment, version: int | None = None, position: int | None = None) -> AgentState:
    """The state at a segment's end, or at a point in it."""
    state = segment.base.copy()
    for end_position, _, events, label in segment.ends:
        if position is not None and end_position > position:
            break
        if version is not None and state.version >= version:
            return state
        state.label = raised(state.label, label)
        for event in events:
            if version is not None and state.version >= version:
                return state
            agents.evolve(state, event)
    return state
