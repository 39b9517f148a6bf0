"""States at a point: with chunks or without, cached or not, they equal a fold from the start."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

import hansard
from hansard.bus import subjects
from hansard.bus.commits import revive
from hansard.bus.log import Append, AtPosition, Stored
from hansard.client.record import AsyncRecord
from hansard.client.session import AsyncSession
from hansard.domain import agent as agents
from hansard.domain.agent import AgentState
from hansard.domain.decider import fold
from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream, KeyStream
from hansard.state import histories
from hansard.state.memory_log import MemoryLog
from hansard.state.replay import States, fold_agent

pytestmark = pytest.mark.slow

STEPS = 130


async def work(session: AsyncSession, count: int, offset: int = 0) -> None:
    """Make calls with and without intents, several in one commit, messages and checkpoints."""

    # The version differs where a session continues with other calls: none repeats a recorded one.
    @session.tool(effects="idempotent", version=f"from {offset}")
    async def effect(x: int, text: str) -> dict[str, int]:
        return {"x": x}

    @session.tool(effects="pure")
    async def pure(x: int) -> int:
        if x % 50 == 49:
            raise ValueError(x)
        return x

    for number in range(offset, offset + count):
        await effect(number, "y" * 100)
        if number % 7 == 0:
            await session.gather(*(pure(number * 50 + i) for i in range(5)))
            await session.message("user", f"m{number}", tokens=2)
            await session.checkpoint("stage", number=number)


class World:
    """A run of some 450 versions, and a fork that continues for as many."""

    def __init__(self, record: AsyncRecord, run: str, fork: str) -> None:
        self.record = record
        self.log = record.workspace.log
        self.snapshots = record.workspace.snapshots
        self.runs = (run, fork)

    def states(self, *, chunks: bool = True) -> States:
        """States that have read nothing yet."""
        return States(self.log, self.snapshots if chunks else None)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the folder of the module's broker."""
    return str(tmp_path_factory.mktemp("states"))


async def written(workspace: str, data_dir: str) -> tuple[str, str]:
    """Write the two runs. Their writers have left, and make no more chunks of them."""
    where: dict[str, Any] = {"workspace": workspace, "data_dir": data_dir}
    async with hansard.connect_async(durability="relaxed", **where) as record:
        async with record.run("w", agent="a", role="r") as session:
            await work(session, STEPS)
        fork = await record.fork(session.run, at="a@213", effects="live")
        async with record.run("w", agent="a", role="r", run=fork) as again:
            await work(again, 90, offset=1_000)
        async with record.run("w", agent="b", role="r", run=fork) as other:
            await work(other, 3)
    return session.run, fork


@pytest.fixture
async def world(data_dir: str, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """Yield the two runs in the test's own workspace, without chunks of them yet."""
    workspace = request.node.name.split("[")[0].replace("_", "-")[-40:].strip("-").lower()
    run, fork = await written(workspace, data_dir)
    async with hansard.connect_async(workspace, data_dir=data_dir, durability="relaxed") as record:
        yield World(record, run, fork)


@pytest.fixture(scope="module")
def read_by_all(data_dir: str) -> tuple[str, str]:
    """Return the two runs, in the workspace of tests that ignore chunks."""
    return asyncio.run(written("read-by-all", data_dir))


@pytest.fixture
async def shared_world(data_dir: str, read_by_all: tuple[str, str]) -> AsyncIterator[World]:
    """Yield the runs with a connection of the test's own."""
    async with hansard.connect_async(
        "read-by-all", data_dir=data_dir, durability="relaxed"
    ) as record:
        yield World(record, *read_by_all)


def folds(commits: Iterable[Stored]) -> list[AgentState]:
    """Return the state at every version, each folded on from a copy of the one before."""
    states = [agents.AgentState()]
    for stored in commits:
        for recorded in stored.commit.events:
            states.append(fold(states[-1], [revive(recorded)]))
    return states


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("chunks", [False, True], ids=["no-chunks", "chunks"])
async def test_an_agent_at_every_version_is_a_fold_of_its_first_events(world, chunks):
    """In any order of asking, before and after chunks were made, across a fork's cut."""
    for run in world.runs:
        stream = AgentStream(run, "r", "a")
        expected = folds(await world.states(chunks=False).commits(stream))
        assert len(expected) > 2 * histories.CHUNK_VERSIONS
        for _ in range(2):
            states = world.states(chunks=chunks)
            versions = list(range(len(expected)))
            random.shuffle(versions)
            for version in versions:
                assert await states.agent(stream, version) == expected[version], version


@pytest.mark.thorough
async def test_a_run_at_any_position_holds_whole_commits_up_to_it(world):
    """A point inside a commit over several streams includes all or nothing of it."""
    for run in world.runs:
        stream = AgentStream(run, "r", "a")
        own = await world.log.read_run(run)
        history = await world.states().history(run)
        states = world.states()
        for position in range(own[0].position - 1, own[-1].position + 2):
            kept = [stored for stored in own if _whole_at(stored) <= position]
            if not kept:
                with pytest.raises(hansard.NotFound):
                    await states.run(run, AtPosition(position))
                continue
            inherited = [stored for stored in history if stored not in own]
            mine = [s for s in (*inherited, *kept) if str(s.stream) == str(stream)]
            view = await states.run(run, AtPosition(position))
            assert view.agents.get("a", agents.AgentState()) == fold_agent(mine), position
            assert view.vector.get(str(stream), 0) == view.agents["a"].version


async def test_a_run_that_is_read_on_is_what_a_first_read_returns(shared_world):
    """After more commits only these are read: life, keys and agents, of a fork, too."""
    record, states = shared_world.record, shared_world.states()
    async with record.run("w", agent="a", role="r") as session:
        await session.board.put("k", 0)
        fork = await record.fork(session.run, effects="live")
        for run in (session.run, fork):
            await states.run(run)
        async with record.run("w", agent="b", role="r", run=fork) as other:
            for number in range(3):
                await session.board.put(f"k{number}", number)
                await session.board.append("list", number)
                await session.message("user", f"m{number}")
                await other.board.append("list", -number)
                for run in (session.run, fork):
                    fresh = await shared_world.states().run(run)
                    assert await states.run(run) == fresh
                    alone = await states.run(run, only=("a",))
                    assert (alone.agents, alone.boards) == ({"a": fresh.agent("a")}, fresh.boards)
                    assert (await states.outline(alone))[-1] == (await states.outline(fresh))[-1]
                    early = await states.run(run, AtPosition(fresh.position - 2))
                    at = AtPosition(early.position)
                    assert early == await shared_world.states().run(run, at)
    with pytest.raises(hansard.NotFound, match="agent 'nobody'"):
        await states.run(fork, only=("nobody",))


async def test_a_missing_commit_is_named_again(shared_world):
    """A read that failed in the middle of new commits leaves nothing to the next one."""
    record, log = shared_world.record, MemoryLog("lab")
    async with record.run("w", agent="a", role="r") as session:
        for number in range(4):
            await session.board.put("k", number)
    commits = await shared_world.log.read_run(session.run)
    keys = [each for each in commits if isinstance(each.stream, KeyStream)]
    begun = [each for each in commits if each not in keys] + keys[:1]
    for each in begun:
        await log.append(Append(each.stream, each.commit))
    states = States(log)
    await states.run(session.run)
    for each in (keys[1], keys[3]):
        await log.append(Append(each.stream, each.commit))
    for _ in range(2):
        with pytest.raises(Corrupt, match=f"3 is missing: position {len(begun) + 2} has version 4"):
            await states.run(session.run)


def _whole_at(stored: Stored) -> int:
    tx = stored.commit.tx
    return stored.position if tx is None else stored.position - tx.index + tx.count - 1


@pytest.mark.thorough
async def test_a_vector_is_what_the_states_of_that_point_say(shared_world):
    """A fork's content is read without the states, and is the same."""
    for run in shared_world.runs:
        own = await shared_world.log.read_run(run)
        for stored in own[::9]:
            states = shared_world.states()
            up_to = AtPosition(_whole_at(stored))
            view = await states.run(run, up_to)
            assert await shared_world.states().vector(run, up_to) == (view.life, view.vector)


async def test_chunks_thrown_away_cost_nothing_but_time(world):
    """Another layout, damaged bytes or no chunk at all: the state is read from the log."""
    stream = AgentStream(world.runs[0], "r", "a")
    expected = await world.states(chunks=False).agent(stream)
    await world.states().agent(stream)
    prefix = f"{stream_prefix(world, stream)}.1"
    whole = (await world.snapshots.get_many([prefix]))[prefix]
    for damaged in (b"{not a chunk", whole.replace(b'"tools":[', b'"tools":[7,')):
        assert damaged != whole
        assert await world.snapshots.put(prefix, damaged)
        assert await world.states().agent(stream, 100) == folds(await world.log.read(stream))[100]
        assert await world.snapshots.put(prefix, damaged)
        assert await world.states().agent(stream) == expected
    assert await world.states().agent(stream, 205) == folds(await world.log.read(stream))[205]


def stream_prefix(world: World, stream: AgentStream) -> str:
    """Return the prefix of a stream's stored chunks."""
    return subjects.snapshot_prefix(world.log.workspace, stream, histories.LAYOUT)


@pytest.mark.thorough(quick="test_an_agent_at_every_version_is_a_fold_of_its_first_events")
async def test_a_returned_state_is_the_callers_own(shared_world):
    """Changing it changes nothing that is read later."""
    stream = AgentStream(shared_world.runs[0], "r", "a")
    states = shared_world.states()
    first = await states.agent(stream, 210)
    first.steps.clear()
    first.facts.clear()
    assert (await states.agent(stream, 210)).steps


async def test_an_unknown_run_or_point_is_named(shared_world):
    """The error names the requested point and the available ones."""
    with pytest.raises(hansard.NotFound, match="hansard runs"):
        await shared_world.record.state("no-such-run")
    with pytest.raises(hansard.NotFound, match="99999"):
        await shared_world.record.state(shared_world.runs[0], "a@99999")
    for nonsense in ("a@", "yesterday", "", True, 1.5):
        with pytest.raises(hansard.errors.BadName, match="agent@version"):
            await shared_world.record.state(shared_world.runs[0], nonsense)
