"""Dependent writes, interleaved: stored after the write that they rely on, or not at all."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.bus.clock import Clock
from hansard.bus.commits import record, revive
from hansard.bus.errors import AppendUnknown, Conflict
from hansard.bus.log import Append
from hansard.domain.board import AmountAdded
from hansard.domain.decider import By, fold
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import AgentStream, KeyStream
from hansard.state.boards import Boards
from hansard.state.memory_log import MemoryLog
from hansard.state.replay import States

pytestmark = pytest.mark.slow

KEYS = ("x", "y", "z")
CLOCK = Clock()
PAUSES = st.integers(0, 4)
WRITES = st.lists(
    st.tuples(st.sampled_from(KEYS), st.booleans(), PAUSES, PAUSES), min_size=1, max_size=12
)
"""Key, whether another process writes it, its delay, and its time to decide."""


def amount(agent: str) -> int:
    """Return the amount that an agent adds; all differ, so that a total reveals its agents."""
    return 2 ** int(agent[1:])


def commit(agent: str, version: int) -> Commit:
    """Return a commit of one addition."""
    event = record(AmountAdded(amount=amount(agent), role="r"), CLOCK.new_id())
    actor = Actor(agent)
    return Commit(id=CLOCK.new_id(), version=version, at=CLOCK.now(), actor=actor, events=(event,))


async def pause(turns: int) -> None:
    """Yield to other tasks, this many times."""
    for _ in range(turns):
        await asyncio.sleep(0)


class Slow:
    """A log with slow answers, some of which are lost for batches."""

    def __init__(self, log: MemoryLog, takes: int, silent: set[int]) -> None:
        self._log = log
        self._takes = takes
        self._silent = silent
        self.batches = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append_all(self, appends: Any) -> Any:
        """Append one transaction."""
        await pause(self._takes)
        return await self._log.append_all(appends)

    async def append_groups(self, groups: Any) -> Any:
        """Several of them."""
        self.batches += 1
        await pause(self._takes)
        stored = await self._log.append_groups(groups)
        if self.batches in self._silent:
            raise AppendUnknown(groups[0][0].stream, 1, "", 0.0)
        return stored


async def own(boards: Boards, log: Any, name: str, key: str, thinks: int) -> tuple[str, int] | None:
    """Add one as a session does; return the total, or None without an answer."""
    stream, mine = KeyStream("r", key), AgentStream("r", "r", name)
    while True:
        async with boards.turn([stream]) as give_back:
            state, before = await boards.upcoming(stream)
            await pause(thinks)
            made = commit(name, state.version + 1)
            after = fold(state, map(revive, made.events), By(name, 0, made.events[0].id))
            appends = [Append(mine, commit(name, 1)), Append(stream, made)]
            ticket = boards.sender.put(log, appends, [before] if before is not None else [])
            boards.expect(stream, after, ticket)
            give_back()
        try:
            await ticket.stored
        except Conflict:
            boards.outdate(stream)
        except AppendUnknown:
            boards.outdate(stream)
            return None
        else:
            return key, after.total


async def foreign(log: MemoryLog, name: str, key: str) -> None:
    """Add one as another process."""
    stream = KeyStream("r", key)
    while True:
        last = await log.last(stream)
        try:
            await log.append(Append(stream, commit(name, last.commit.version + 1 if last else 1)))
        except Conflict:
            continue
        return


@given(WRITES, st.integers(0, 4), st.sets(st.integers(1, 3)))
def test_reported_totals_are_those_of_the_log(writes, takes, silent):
    """With lost answers every reported total is that of the writes before it, once each."""

    async def main() -> None:
        plain = MemoryLog("w")
        log: Any = Slow(plain, takes, silent)
        boards = Boards(States(log))

        async def one(number: int) -> tuple[str, int] | None:
            key, is_foreign, begins, thinks = writes[number]
            await pause(begins)
            if is_foreign:
                await foreign(plain, f"f{number}", key)
                return None
            return await own(boards, log, f"a{number}", key, thinks)

        answers = await asyncio.wait_for(asyncio.gather(*map(one, range(len(writes)))), 30)
        authors: dict[str, list[str]] = {}
        for key in KEYS:
            commits = await plain.read(KeyStream("r", key))
            assert [each.commit.version for each in commits] == list(range(1, len(commits) + 1))
            authors[key] = [each.commit.actor.agent for each in commits]
        every = sorted(name for names in authors.values() for name in names)
        assert len(every) == len(set(every))
        for number, (key, is_foreign, *_) in enumerate(writes):
            name = f"{'f' if is_foreign else 'a'}{number}"
            answer = answers[number]
            if is_foreign:
                assert name in authors[key]
            elif answer is not None:
                before = authors[key][: authors[key].index(name) + 1]
                assert answer == (key, sum(map(amount, before)))
            else:  # no answer: it is stored together with its agent's own commit, or neither is
                mine = await plain.read(AgentStream("r", "r", name))
                assert bool(mine) == (name in authors[key])
        for key in KEYS:
            state, ticket = await boards.upcoming(KeyStream("r", key), fresh=True)
            assert (state.total, ticket) == (sum(map(amount, authors[key])), None)

    asyncio.run(main())
