"""The boards of a workspace as known to this process: last-read states, and turns to write.

Everything here runs on the bus's loop. Sessions of one process write a key one after the other, so
that they do not lose races against each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Self

import msgspec

from hansard.bus.writer import JointSender, Ticket
from hansard.domain.board import BoardState
from hansard.domain.ids import KeyStream, RunStream, StreamId
from hansard.domain.run import RunState
from hansard.state.replay import States
from hansard.state.repository import followed

KEYS_MAX = 1_024
"""Most keys whose state is kept in memory; others are read from the log again."""

BACKOFF_S_MAX = 2.0
"""Longest wait after a lost race in seconds: a few hundred atomic batches of the others. With half
a second, 50 processes at one key block each other from writing; 8 never wait that long.
"""

BACKOFF_DOUBLED_MAX = 4
"""Most doublings of the wait. It begins at the duration of a batch, since a lost one costs the
broker as much as a stored one: contenders that wait too little block each other from writing.
"""


class _Upcoming(msgspec.Struct):
    """State of a key after its pending write is acknowledged."""

    state: BoardState
    ticket: Ticket


class Boards:
    """Reads keys and caches their states."""

    def __init__(self, states: States) -> None:
        self.states = states
        self.sender = JointSender()
        self._known: OrderedDict[KeyStream, BoardState] = OrderedDict()
        self._upcoming: dict[KeyStream, _Upcoming] = {}
        self._lives: dict[RunStream, tuple[RunState, Ticket]] = {}
        self._losses: dict[StreamId, int] = {}
        self._calm: dict[StreamId, float] = {}
        self._outdated: set[KeyStream] = set()
        self._turns: dict[StreamId, asyncio.Lock] = {}
        self._waiting: dict[StreamId, int] = {}

    def through(self, states: States) -> Self:
        """Return the same boards, written through the log of other states of the same record;
        cached states and turns are shared.
        """
        boards = copy.copy(self)
        boards.states = states
        return boards

    async def state(self, stream: KeyStream, *, fresh: bool = True) -> BoardState:
        """Return the current state of a key; with `fresh=False` the last-read state, if any.

        Raises Corrupt, UnknownEvent, Refused (events of another kind), Unreachable.
        """
        known = self._known.get(stream)
        if known is None:
            commits = await self.states.commits(stream)
        elif fresh or stream in self._outdated:
            commits = await self.states.log.read(stream, after=known.version)
        else:
            return known
        known = followed(known or BoardState(), commits)
        self.keep(stream, known)
        return known

    def keep(self, stream: KeyStream, state: BoardState) -> None:
        """Cache a state known to be in the log, unless a later one is cached."""
        before = self._known.get(stream)
        if before is None or before.version <= state.version:
            self._known[stream] = state
            self._known.move_to_end(stream)
            self._outdated.discard(stream)
            while len(self._known) > KEYS_MAX:
                dropped, _ = self._known.popitem(last=False)
                self._outdated.discard(dropped)

    def outdate(self, stream: KeyStream) -> None:
        """Make the next read of a key fetch its new commits from the log."""
        if stream in self._known:
            self._outdated.add(stream)

    # ------------------------------------------------------------ pending writes

    async def upcoming(
        self, stream: KeyStream, *, fresh: bool = False
    ) -> tuple[BoardState, Ticket | None]:
        """Return the state of a key for the holder of its turn, including this process's
        unacknowledged write with its ticket. `fresh`: wait for that write, and read the log.

        A write decided on this state must be sent after the ticket, or not at all.
        """
        pending = self._upcoming.get(stream)
        while fresh and pending is not None:
            await asyncio.wait({pending.ticket.stored})
            if self._upcoming.get(stream) is pending:
                self._arrived(stream, pending)
            pending = self._upcoming.get(stream)
        if pending is not None and not pending.ticket.failed:
            return pending.state, pending.ticket
        return await self.state(stream, fresh=fresh), None

    def expect(self, stream: KeyStream, state: BoardState, ticket: Ticket) -> None:
        """Set the state of a key after a ticket is acknowledged."""
        pending = self._upcoming[stream] = _Upcoming(state, ticket)
        ticket.stored.add_done_callback(lambda _: self._arrived(stream, pending))

    def _arrived(self, stream: KeyStream, pending: _Upcoming) -> None:
        if not pending.ticket.failed:
            self.keep(stream, pending.state)
        if self._upcoming.get(stream) is pending:
            del self._upcoming[stream]

    def leaving(self, life: RunStream) -> tuple[RunState, Ticket] | None:
        """Return the state of a run's life after pending leaves of this process's agents are
        acknowledged, with the ticket of the last; None if none is pending.
        """
        pending = self._lives.get(life)
        return None if pending is None or pending[1].failed else pending

    def leaves(self, life: RunStream, state: RunState, ticket: Ticket) -> None:
        """Set the state of a run's life after a ticket is acknowledged."""
        self._lives[life] = (state, ticket)

        def arrived(_: object) -> None:
            pending = self._lives.get(life)
            if pending is not None and pending[1] is ticket:
                del self._lives[life]

        ticket.stored.add_done_callback(arrived)

    def lost(self, stream: StreamId, took_s: float) -> None:
        """Note a race for a key lost to another process after `took_s` seconds: back off from the
        key.
        """
        losses = self._losses[stream] = self._losses.get(stream, 0) + 1
        wait_s = min(BACKOFF_S_MAX, took_s * 2 ** min(losses - 1, BACKOFF_DOUBLED_MAX))
        until_s = asyncio.get_running_loop().time() + random.uniform(0, wait_s)  # noqa: S311 -- not a secret
        self._calm[stream] = max(self._calm.get(stream, 0.0), until_s)

    def won(self, stream: StreamId) -> None:
        """Note that a key was written."""
        self._losses.pop(stream, None)

    async def _back_off(self, streams: Sequence[StreamId]) -> None:
        until_s = max((self._calm.pop(stream, 0.0) for stream in streams), default=0.0)
        left_s = until_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def log_time(self) -> int:
        """Return the log's current time: that of its newest commit, in ns since 1970."""
        log = self.states.log
        return (await log.at(await log.head())).stamp

    async def expires(self, streams: Sequence[KeyStream]) -> bool:
        """Return whether any of some keys, as last read, has a time to live."""
        states = [await self.state(stream, fresh=False) for stream in streams]
        return any(state.expires is not None for state in states)

    async def keys(self, run: str) -> list[str]:
        """Return the present keys, sorted. Reads all of a run's boards."""
        return sorted(await self.states.boards(run))

    @contextlib.asynccontextmanager
    async def turn(self, streams: Sequence[StreamId]) -> AsyncGenerator[Callable[[], None], None]:
        """Wait until no other session of this process decides on one of the keys (or a run's life).
        Yields a function that lets the next one continue before the block ends.
        """
        held: list[StreamId] = []

        def give_back() -> None:
            while held:
                self._give_back(held.pop())

        try:
            for stream in sorted(set(streams), key=str):  # fixed order, which prevents a deadlock
                await self._take(stream)
                held.append(stream)
            await self._back_off(held)
            yield give_back
        finally:
            give_back()

    def is_alone(self, stream: StreamId) -> bool:
        """Return whether the holder of a key's turn is the only writer of this process, so that no
        batch can be shared.
        """
        return len(self._turns) == self._waiting.get(stream) == 1 and self.sender.is_idle

    async def _take(self, stream: StreamId) -> None:
        turn = self._turns.setdefault(stream, asyncio.Lock())
        self._waiting[stream] = self._waiting.get(stream, 0) + 1
        try:
            await turn.acquire()
        except asyncio.CancelledError:
            self._one_less(stream)
            raise

    def _give_back(self, stream: StreamId) -> None:
        self._turns[stream].release()
        self._one_less(stream)

    def _one_less(self, stream: StreamId) -> None:
        self._waiting[stream] -= 1
        if not self._waiting[stream]:
            del self._waiting[stream], self._turns[stream]
