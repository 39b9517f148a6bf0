"""Chunks made by who writes: beside its writes, so that no reader has to make them first.

A writer's commits are in memory when they are acknowledged. When they have passed a multiple of 64
versions, they become the chunk that a reader would make of them, by the same functions: on the
loop, in slices, and as soon as the agent pauses, so that an agent that writes without a pause is
not held up by it. It is a cache: what is not made here, because too much is waiting, the program is
killed, or a commit does not follow on what is known, any reader makes again.

A chunk never holds what the log does not. It is made of acknowledged commits alone, as a reader is
given them: one that was fenced made none of what it could not write. And it is sent only when a
power cut would leave the log its commits: at once under `strict`, a second later under `relaxed`,
and not at all where nobody knows how the server syncs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

import msgspec

from hansard.bus.errors import BusError
from hansard.bus.log import EventLog, Stored, as_read
from hansard.bus.loggers import logger
from hansard.bus.slices import Slices
from hansard.bus.states._chunks import CHUNK_VERSIONS
from hansard.bus.states.histories import (
    Histories,
    Segment,
    ended_by,
    folded,
    made_chunk,
)
from hansard.bus.validation import quarantine
from hansard.domain.agent import AgentState
from hansard.domain.errors import HansardError
from hansard.domain.ids import AgentStream

SYNCED_S = {"strict": 0.0, "memory": 0.0, "relaxed": 1.0}
"""So long after its newest commit was acknowledged a chunk is sent, in seconds, by the log's
durability: no server called `relaxed` leaves anything unsynced for longer."""

PAUSE_S = 0.25
"""So long a stream was not written when its agent counts as pausing, in seconds."""

HELD_BYTES_MAX = 1024 * 1024
"""With so many bytes of commits waiting, chunks are made without a pause."""

HELD_MAX = 2_048
"""Most commits of a stream that wait to become chunks: what comes then is read from the log. With
half as many waiting, chunks are made without a pause."""

CLOSE_S = 0.5
"""So long the end of a client waits for the chunks that are due."""

DUE_MAX = 64
"""Most streams that wait for their chunk; those of others are left to readers."""

SENDING_MAX = 64
"""Most chunks that wait to be sent, some 25 KB each; others are left to readers."""

_log = logger(__name__)


class _Written(msgspec.Struct, eq=False):
    """What a writer has stored of its stream since its newest chunk: `held`, and before that what
    is folded into a segment; None where that is not known.
    """

    stream: AgentStream
    held: deque[Stored]
    segment: Segment | None = None
    due: bool = False
    last_s: float = 0.0
    """When it was written last, by the monotonic clock."""
    bytes_told: int = 0
    bytes_taken: int = 0
    """Of all commits ever, and of those that were taken out of `held`."""

    @property
    def pauses(self) -> bool:
        """Whether its agent does, or wrote too much without a pause."""
        return (
            time.monotonic() - self.last_s >= PAUSE_S
            or 2 * len(self.held) >= HELD_MAX
            or self.bytes_told - self.bytes_taken >= HELD_BYTES_MAX
        )


class ChunkMaker:
    """Makes the chunks of the streams that this process writes. `written` gives a function for any
    thread, the rest is for the loop's.
    """

    def __init__(self, log: EventLog, histories: Histories) -> None:
        self._log = log
        self._histories = histories
        self._due: deque[_Written] = deque()
        self._making: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    def written(self, stream: AgentStream) -> Callable[[Stored], None] | None:
        """What a stream's writer is to tell each commit to, once it is acknowledged, in order; None
        where no chunks are made.
        """
        if as_read(self._log) is None or self._log.durability not in SYNCED_S:
            return None
        kept = _Written(stream, deque(maxlen=HELD_MAX))
        loop = asyncio.get_running_loop()

        def told(stored: Stored) -> None:
            kept.held.append(stored)
            kept.last_s = time.monotonic()
            kept.bytes_told += len(stored.body)
            commit = stored.commit
            whole = (commit.version - 1) // CHUNK_VERSIONS < commit.last_version // CHUNK_VERSIONS
            if whole and not kept.due:
                kept.due = True
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._put, kept)

        return told

    def _put(self, kept: _Written) -> None:
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
                except HansardError as error:  # any reader meets it, too, and says so
                    kept.segment = None
                    _log.debug("a chunk was not made", stream=str(kept.stream), why=str(error))
        finally:
            self._making = None

    async def _make(self, kept: _Written) -> None:
        """Fold what was written on to what is known, and send each chunk that is whole by that."""
        sift = as_read(self._log)
        kept.bytes_taken = kept.bytes_told
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
        commits = quarantine.under(self._log.workspace, kept.stream, commits, segment.epoch)
        async with Slices() as slices:
            for stored in commits:
                if _ends_at(segment) != stored.commit.version - 1:
                    return
                segment.ends.append(ended_by(stored))
                segment = self._cut(kept.stream, segment)
                if slices.over:
                    await slices.pause()
        kept.segment = segment

    def _cut(self, stream: AgentStream, segment: Segment) -> Segment:
        """What goes on after a segment if it is whole: then its chunk is sent."""
        number = segment.base.version // CHUNK_VERSIONS + 1
        if _ends_at(segment) < number * CHUNK_VERSIONS:
            return segment
        ended = folded(segment)
        if len(self._sending) < SENDING_MAX:
            data = made_chunk(segment, ended)
            sending = asyncio.get_running_loop().create_task(self._send(stream, number, data))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)
        return Segment(_less(ended), segment.ends[-1][0], [], None)

    async def _send(self, stream: AgentStream, number: int, data: bytes) -> None:
        await asyncio.sleep(SYNCED_S[self._log.durability])
        try:
            await self._histories.put(stream, [(number, data)])
        except BusError as error:
            _log.debug("a chunk was not sent", stream=str(stream), why=str(error))

    async def close(self) -> None:
        """Make what is due, and then no more; what is not sent in time is left to readers."""
        self._closed.set()
        if self._making is not None:
            await asyncio.wait({self._making}, timeout=CLOSE_S)
        await asyncio.sleep(0)  # what may be sent at once begins
        working = [each for each in (self._making, *self._sending) if each is not None]
        for each in working:
            each.cancel()
        if working:
            await asyncio.wait(working)


def _ends_at(segment: Segment) -> int:
    return segment.ends[-1][1] if segment.ends else segment.base.version


def _less(state: AgentState) -> AgentState:
    """A state to make the next chunk from: less what ended, of which a chunk says nothing more. An
    event that says more of it is met with an error, and the state is then read again.
    """
    left = {number: step for number, step in state.steps.items() if step.is_open}
    return msgspec.structs.replace(state, steps=left, facts=[], known=set())
