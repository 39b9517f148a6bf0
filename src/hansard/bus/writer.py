"""One writer of one stream: at most one commit in flight, what waits is merged into the next.

This is also the speed of an agent with parallel tools: while one commit is on its way, whatever
else the agent has to say becomes one commit after it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from hansard.bus.clock import Clock
from hansard.bus.codec import record
from hansard.bus.errors import Conflict, Fenced
from hansard.bus.log import Append, EventLog, Stored
from hansard.domain.errors import HansardError
from hansard.domain.events import Actor, Commit, Event, Recorded
from hansard.domain.ids import StreamId

MERGE_BYTES_MAX = 192 * 1024
"""Most event data merged into one commit, in bytes: under the log's 256 KiB with its envelope."""

MERGE_EVENTS_MAX = 500
"""Most events merged into one commit: a reader folds a commit in one go."""


class Pending(Protocol):
    """A future of either kind: the loop resolves it, whoever asked waits for it."""

    def set_result(self, result: Any, /) -> None:
        """Give the answer."""

    def set_exception(self, exception: Any, /) -> None:
        """Give the error."""

    def cancelled(self) -> bool:
        """Whether nobody waits any more."""
        ...


class _Entry(msgspec.Struct):
    events: tuple[Recorded, ...]
    size: int
    done: Pending | None
    causation: str | None


class Identity(msgspec.Struct, frozen=True):
    """What a writer puts on each commit besides its events."""

    actor: Actor
    epoch: int = 0
    correlation: str | None = None
    traceparent: str | None = None


class StreamWriter:
    """Appends to one stream in the order of `put`. All methods run on the loop's thread.

    After an error (fenced, unknown, unreachable) the writer is over: `lost` says why, and every
    later `put` fails with it, because the versions it would claim are no longer its own.
    """

    def __init__(
        self, log: EventLog, stream: StreamId, version: int, identity: Identity, clock: Clock
    ) -> None:
        self.stream = stream
        self.version = version
        self.identity = identity
        self.lost: Exception | None = None
        self._log = log
        self._clock = clock
        self._queue: deque[_Entry] = deque()
        self._pump: asyncio.Task[None] | None = None

    def put(
        self, events: Sequence[Event], done: Pending | None, causation: str | None = None
    ) -> None:
        """Queue the events of one decision; `done` gets the Stored commit or the error."""
        if self.lost is not None:
            if done is not None and not done.cancelled():
                done.set_exception(self.lost)
            return
        recorded = tuple(record(event, self._clock.new_id()) for event in events)
        size = sum(len(bytes(item.data)) + len(item.type) + 80 for item in recorded)
        self._queue.append(_Entry(recorded, size, done, causation))
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        try:
            while self._queue and self.lost is None:
                batch = self._take()
                try:
                    stored = await self._append(batch)
                except HansardError as error:
                    self.lost = error
                    self._fail(batch)
                else:
                    for entry in batch:
                        if entry.done is not None and not entry.done.cancelled():
                            entry.done.set_result(stored)
        finally:
            self._pump = None
            if self.lost is not None:
                self._fail(list(self._queue))
                self._queue.clear()

    def _take(self) -> list[_Entry]:
        batch = [self._queue.popleft()]
        size, count = batch[0].size, len(batch[0].events)
        while self._queue:
            entry = self._queue[0]
            size += entry.size
            count += len(entry.events)
            if size > MERGE_BYTES_MAX or count > MERGE_EVENTS_MAX:
                break
            batch.append(self._queue.popleft())
        return batch

    async def _append(self, batch: list[_Entry]) -> Stored:
        events = tuple(recorded for entry in batch for recorded in entry.events)
        commit = Commit(
            id=self._clock.new_id(),
            version=self.version + 1,
            at=self._clock.now(),
            actor=self.identity.actor,
            epoch=self.identity.epoch,
            causation=batch[0].causation,
            correlation=self.identity.correlation,
            traceparent=self.identity.traceparent,
            events=events,
        )
        try:
            stored = await self._log.append(Append(self.stream, commit))
        except Conflict as conflict:
            winner = conflict.winner
            if winner is not None and winner.commit.epoch > self.identity.epoch:
                raise Fenced(self.stream, self.identity.epoch, winner.commit.epoch) from conflict
            raise
        self.version += len(events)
        return stored

    def _fail(self, entries: list[_Entry]) -> None:
        for entry in entries:
            if entry.done is not None and not entry.done.cancelled():
                entry.done.set_exception(self.lost)
