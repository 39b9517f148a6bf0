"""The boards of a workspace as this process knows them: what was read last, and whose turn it is.

Everything here runs on the bus's loop. A key that several sessions of one process write is written
by one after the other, so that they do not lose races against each other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence

from hansard.bus.states import States, evolve_board
from hansard.domain import board
from hansard.domain.board import BoardState
from hansard.domain.ids import Board

KEYS_MAX = 1_024
"""Most keys of which the state is kept in memory; others are read from the log again."""


class Boards:
    """Reads keys, and keeps what was read."""

    def __init__(self, states: States) -> None:
        self.states = states
        self._known: OrderedDict[Board, BoardState] = OrderedDict()
        self._outdated: set[Board] = set()
        self._turns: dict[Board, asyncio.Lock] = {}
        self._waiting: dict[Board, int] = {}

    async def state(self, stream: Board, *, fresh: bool = True) -> BoardState:
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

    def keep(self, stream: Board, state: BoardState) -> None:
        """Take over a state that is known to stand in the log, unless a later one is known."""
        before = self._known.get(stream)
        if before is None or before.version <= state.version:
            self._known[stream] = state
            self._known.move_to_end(stream)
            self._outdated.discard(stream)
            while len(self._known) > KEYS_MAX:
                dropped, _ = self._known.popitem(last=False)
                self._outdated.discard(dropped)

    def outdate(self, stream: Board) -> None:
        """Have what is new of a key read from the log next time, whoever asks."""
        if stream in self._known:
            self._outdated.add(stream)

    async def log_time(self) -> int:
        """The log's time now: that of its newest commit, in ns since 1970."""
        log = self.states.log
        return (await log.at(await log.head())).stamp

    async def expires(self, streams: Sequence[Board]) -> bool:
        """Whether any of some keys, as last read, has a time to live."""
        states = [await self.state(stream, fresh=False) for stream in streams]
        return any(state.expires is not None for state in states)

    async def keys(self, run: str) -> list[str]:
        """The keys that are there, sorted. Reads all of a run's boards."""
        return sorted(await self.states.boards(run))

    @contextlib.asynccontextmanager
    async def turn(self, streams: Sequence[Board]) -> AsyncGenerator[None, None]:
        """Wait until no other session of this process writes one of the keys."""
        async with contextlib.AsyncExitStack() as stack:
            for stream in sorted(set(streams), key=str):  # one order: nobody waits in a circle
                await stack.enter_async_context(self._one(stream))
            yield

    @contextlib.asynccontextmanager
    async def _one(self, stream: Board) -> AsyncGenerator[None, None]:
        turn = self._turns.setdefault(stream, asyncio.Lock())
        self._waiting[stream] = self._waiting.get(stream, 0) + 1
        try:
            async with turn:
                yield
        finally:
            self._waiting[stream] -= 1
            if not self._waiting[stream]:
                del self._waiting[stream], self._turns[stream]
