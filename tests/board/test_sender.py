"""Batched writes of one process: each is its own, none depends on an unstored one."""

import asyncio
import random
from collections import Counter

import pytest

import hansard
from hansard.bus.errors import AppendUnknown
from hansard.domain.board import BoardConflict
from hansard.domain.ids import KeyStream

pytestmark = pytest.mark.slow

NAMES = [f"a{number}" for number in range(7)]
OTHERS = ["b0", "b1"]


class Meddled:
    """The real log; `meddle` runs before the first batch with several writes of a key."""

    def __init__(self, log, meddle, key):
        self._log = log
        self._meddle = meddle
        self._stream = KeyStream("r", key)
        self.batch = []

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def append_groups(self, groups):
        """Append several for real, after the injected fault."""
        of_key = any(each.stream == self._stream for group in groups for each in group)
        if not self.batch and len(groups) > 1 and of_key:
            self.batch = groups
            await self._meddle(self._log, groups)
        return await self._log.append_groups(groups)


@pytest.fixture
def connect(data_dir, workspace):
    """Return a function that opens a connection of its own to the workspace."""
    return lambda: hansard.connect_async(workspace, data_dir=data_dir)


async def adding(record, name, key, ready):
    """Join the run, wait for all, add one, and return the total."""
    async with record.run("team", run="r", agent=name, role="worker") as session:
        await ready.wait()
        return await session.board.add(key)


async def all_at_once(record):
    """Let seven agents add to `x` and two to `y`; return each one's total or error."""
    ready = asyncio.Barrier(len(NAMES) + len(OTHERS))
    return await asyncio.gather(
        *(adding(record, name, "x", ready) for name in NAMES),
        *(adding(record, name, "y", ready) for name in OTHERS),
        return_exceptions=True,
    )


async def written(record, key):
    """Return the agents that wrote to a key, in its order."""
    commits = await record.workspace.log.read(KeyStream("r", key))
    assert [each.commit.version for each in commits] == list(range(1, len(commits) + 1))
    return [each.commit.actor.agent for each in commits]


async def test_a_lost_race_in_a_batch_is_of_those_alone_that_rest_on_it(connect):
    """Only the writes of the key that lost decide again, with the value that holds."""
    async with (
        connect() as record,
        connect() as other,
        other.run("team", run="r", agent="z", role="worker") as foreign,
    ):

        async def overtake(_log, _groups):
            await foreign.board.add("x", 100)

        record.workspace.log = log = Meddled(record.workspace.log, overtake, "x")
        results = await all_at_once(record)
        assert log.batch
        order = await written(record, "x")
        assert sorted(order) == sorted([*NAMES, "z"])
        totals, total = {}, 0
        for name in order:
            total += 100 if name == "z" else 1
            totals[name] = total
        assert results[: len(NAMES)] == [totals[name] for name in NAMES]
        assert sorted(results[len(NAMES) :]) == [1, 2]
        assert await foreign.board.get("x") == 100 + len(NAMES)


@pytest.mark.parametrize("stored", [True, pytest.param(False, marks=pytest.mark.thorough)])
async def test_an_unknown_end_of_a_batch_is_everybodys(connect, stored):
    """Each agent of the batch gets an unknown outcome; resumed, nothing is doubled."""

    async def silence(log, groups):
        if stored:
            await log.append_groups(groups)
        [first, *_] = groups[0]
        raise AppendUnknown(first.stream, first.commit.version, first.commit.id, 0.1)

    async with connect() as record:
        record.workspace.log = log = Meddled(record.workspace.log, silence, "x")
        results = await all_at_once(record)
    errors = [each for each in results if isinstance(each, BaseException)]
    lost = {group[0].stream.agent for group in log.batch}
    assert len(errors) == len(lost) > 1
    assert all(isinstance(each, AppendUnknown) for each in errors)
    async with connect() as record:
        again = await all_at_once(record)
        assert sorted(again[: len(NAMES)]) == list(range(1, len(NAMES) + 1))
        assert sorted(again[len(NAMES) :]) == [1, 2]
        for before, now in zip(results, again, strict=True):
            assert isinstance(before, BaseException) or before == now
        assert sorted(await written(record, "x")) == NAMES
        assert sorted(await written(record, "y")) == OTHERS


async def test_crowds_of_two_connections(connect, rounds):
    """All kinds of writes by agents of two connections are stored once, and sums hold."""
    each, agents = rounds(2, 30), rounds(3, 6)

    async def work(record, name):
        chance = random.Random(name)
        async with record.run("team", run="r", agent=name, role="worker") as session:
            board = session.board
            for number in range(each):
                await board.add("hits")
                await board.append("log", [name, number])
                await board.include("who", name)
                await board.merge("most", "max", number)
                await board.put("last", 1, expected=0, resolve=lambda mine, theirs: theirs + mine)
                await board.put("lease", name, expected="any", ttl_s=chance.choice([0.05, 60]))
                await moved(board, chance.randint(1, 9))
                assert await board.get("hits") > number

    async def moved(board, amount):
        while True:
            try:
                async with board.transaction() as tx:
                    tx.put("from", await tx.get("from", 0) - amount)
                    tx.put("to", await tx.get("to", 0) + amount)
            except BoardConflict:
                continue
            return

    async with connect() as one, connect() as two:
        names = [f"{side}{number}" for side in "lr" for number in range(agents)]
        async with one.run("team", run="r", agent="starter", role="worker") as starter:
            await starter.board.put("last", 0)
            await asyncio.gather(*(work(one if name < "m" else two, name) for name in names))
        boards = (await one.state("r")).boards
        history = await one.workspace.states.history("r")
    count = len(names) * each
    assert boards["hits"].plain == count
    log = boards["log"].plain
    assert Counter(by for by, _ in log) == dict.fromkeys(names, each)
    assert all([n for by, n in log if by == name] == list(range(each)) for name in names)
    assert sorted(boards["who"].plain["$set"]) == sorted(names)
    assert (boards["most"].plain, boards["last"].plain) == (each - 1, count)
    assert boards["from"].plain + boards["to"].plain == 0
    assert boards["from"].plain < 0
    versions: dict[object, int] = {}
    for stored in history:
        assert stored.commit.version == versions.get(stored.stream, 0) + 1
        versions[stored.stream] = stored.commit.last_version
