"""The boards of a workspace as this process knows them: what was read last, and whose turn it is.

Everything here runs on the bus's loop. A key that several sessions of one process write is written
by one after the other, so that they do not lose races against each other.
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

from hansard.bus.atomic_sender import JointSender, Ticket
from hansard.domain import board
from hansard.domain.board import BoardState
from hansard.domain.ids import KeyStream, RunStream, StreamId
from hansard.domain.run import RunState
from hansard.state.replay import States, evolve_board

KEYS_MAX = 1_024
"""Most keys of which the state is kept in memory; others are read from the log again."""

BACKOFF_S_MAX = 2.0
"""Longest wait after a lost race: a few hundred atomic batches of the others. With half a second 50
processes at one key keep each other from writing; 8 never wait that long."""

BACKOFF_DOUBLED_MAX = 4
"""How often the wait is doubled. It begins at what a batch takes, since one that loses costs the
broker as much as one that wins: contenders that wait too little keep each other from writing.
"""


class _Upcoming(msgspec.Struct):
    """A key as it will stand when what is on its way to it is acknowledged."""

    state: BoardState
    ticket: Ticket


class Boards:
    """Reads keys, and keeps what was read."""

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
        """The same, written through the log of other states of the same record; what was read and
        whose turn it is they share.
        """
        made = copy.copy(self)
        made.states = states
        return made

    async def state(self, stream: KeyStream, *, fresh: bool = True) -> BoardState:
        """A key as it stands; with `fresh=False` as it stood when it was read last, if ever.

        Raises Corrupt, UnknownEvent, Refused (events of something else), Unreachable.
        """
        known = self._known.get(stream)
        if known is None:
            commits = await self.states.commits(stream)
            known = board.initial()
        elif fresh or stream in self._outdated:
            commits = await self.states.log.read(stream, after=known.version)
        else:
            return known
        if commits:
            known = known.copy()
            for stored in commits:
                evolve_board(known, stored)
        self.keep(stream, known)
        return known

    def keep(self, stream: KeyStream, state: BoardState) -> None:
        """Take over a state that is known to stand in the log, unless a later one is known."""
        before = self._known.get(stream)
        if before is None or before.version <= state.version:
            self._known[stream] = state
            self._known.move_to_end(stream)
            self._outdated.discard(stream)
            while len(self._known) > KEYS_MAX:
                dropped, _ = self._known.popitem(last=False)
                self._outdated.discard(dropped)

    def outdate(self, stream: KeyStream) -> None:
        """Have what is new of a key read from the log next time, whoever asks."""
        if stream in self._known:
            self._outdated.add(stream)

    # ------------------------------------------------------------ what is on its way

    async def upcoming(
        self, stream: KeyStream, *, fresh: bool = False
    ) -> tuple[BoardState, Ticket | None]:
        """A key as whoever has its turn may go by: with what this process has sent and what is not
        acknowledged yet, whose ticket is given; `fresh`: when that is over, as the log has it.

        What is decided by it must be written after the ticket, or not at all.
        """
        found = self._upcoming.get(stream)
        while fresh and found is not None:
            await asyncio.wait({found.ticket.stored})
            if self._upcoming.get(stream) is found:
                self._arrived(stream, found)
            found = self._upcoming.get(stream)
        if found is not None and not found.ticket.failed:
            return found.state, found.ticket
        return await self.state(stream, fresh=fresh), None

    def expect(self, stream: KeyStream, state: BoardState, ticket: Ticket) -> None:
        """Say how a key will stand when a ticket is through."""
        found = self._upcoming[stream] = _Upcoming(state, ticket)
        ticket.stored.add_done_callback(lambda _: self._arrived(stream, found))

    def _arrived(self, stream: KeyStream, found: _Upcoming) -> None:
        if not found.ticket.failed:
            self.keep(stream, found.state)
        if self._upcoming.get(stream) is found:
            del self._upcoming[stream]

    def leaving(self, life: RunStream) -> tuple[RunState, Ticket] | None:
        """A run's life as it will stand when what agents of this process said on leaving is
        acknowledged, and the ticket of the last; None where nothing is on its way.
        """
        found = self._lives.get(life)
        return None if found is None or found[1].failed else found

    def leaves(self, life: RunStream, state: RunState, ticket: Ticket) -> None:
        """Say how a run's life will stand when a ticket is through."""
        self._lives[life] = (state, ticket)

        def arrived(_: object) -> None:
            found = self._lives.get(life)
            if found is not None and found[1] is ticket:
                del self._lives[life]

        ticket.stored.add_done_callback(arrived)

    def lost(self, stream: StreamId, took_s: float) -> None:
        """A race for a key was lost to another process, after so long: leave it alone a while."""
        losses = self._losses[stream] = self._losses.get(stream, 0) + 1
        wait_s = min(BACKOFF_S_MAX, took_s * 2 ** min(losses - 1, BACKOFF_DOUBLED_MAX))
        until_s = asyncio.get_running_loop().time() + random.uniform(0, wait_s)  # noqa: S311 -- not a secret
        self._calm[stream] = max(self._calm.get(stream, 0.0), until_s)

    def won(self, stream: StreamId) -> None:
        """A key was written."""
        self._losses.pop(stream, None)

    async def _calmed(self, streams: Sequence[StreamId]) -> None:
        until_s = max((self._calm.pop(stream, 0.0) for stream in streams), default=0.0)
        left_s = until_s - asyncio.get_running_loop().time()
        if left_s > 0:
            await asyncio.sleep(left_s)

    async def log_time(self) -> int:
        """The log's time now: that of its newest commit, in ns since 1970."""
        log = self.states.log
        return (await log.at(await log.head())).stamp

    async def expires(self, streams: Sequence[KeyStream]) -> bool:
        """Whether any of some keys, as last read, has a time to live."""
        states = [await self.state(stream, fresh=False) for stream in streams]
        return any(state.expires is not None for state in states)

    async def keys(self, run: str) -> list[str]:
        """The keys that are there, sorted. Reads all of a run's boards."""
        return sorted(await self.states.boards(run))

    @contextlib.asynccontextmanager
    async def turn(self, streams: Sequence[StreamId]) -> AsyncGenerator[Callable[[], None], None]:
        """Wait until no other session of this process decides on one of the keys (or a run's life).
        What it gives lets the next one go on before the block is left.
        """
        held: list[StreamId] = []

        def give_back() -> None:
            while held:
                self._give_back(held.pop())

        try:
            for stream in sorted(set(streams), key=str):  # one order: nobody waits in a circle
                await self._take(stream)
                held.append(stream)
            await self._calmed(held)
            yield give_back
        finally:
            give_back()

    def is_alone(self, stream: StreamId) -> bool:
        """Whether whoever has a key's turn is the only one of this process that writes: then there
        is nobody to share a batch with.
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
