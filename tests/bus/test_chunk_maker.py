"""Chunks made by writers: the same bytes that a reader would make, or none."""

import asyncio
import contextlib
import functools
import itertools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus import subjects
from hansard.bus.clock import Clock
from hansard.bus.errors import Fenced
from hansard.bus.log import EventLog
from hansard.bus.portal import portal
from hansard.bus.writer import Identity, StreamWriter
from hansard.client.record import AsyncRecord
from hansard.domain.agent import CheckpointSaved
from hansard.domain.events import Actor, Event
from hansard.domain.ids import AgentStream
from hansard.domain.steps import NULL, Effects, StepCompleted, StepRequested, StepSettled, Verdict
from hansard.state import histories
from hansard.state.replay import States, fold_agent
from tests.agents.twins import Lab
from tests.faults._inside import Point
from tests.faults.programs.chunks import CALLS
from tests.faults.support import Stage

STREAM = AgentStream("r", "worker", "ada")


class Made:
    """An empty store of snapshots; keeps rebuilt chunks of a stream by number."""

    def __init__(self, log: EventLog, stream: AgentStream) -> None:
        self.chunks: dict[int, bytes] = {}
        self._prefix = subjects.snapshot_prefix(log.workspace, stream, histories.LAYOUT)

    async def put(self, subject: str, data: bytes) -> bool:
        """Keep one."""
        prefix, _, number = subject.rpartition(".")
        if prefix == self._prefix:
            self.chunks[int(number)] = data
        return True

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """None."""
        assert keys
        return {}


async def by_reader(record: AsyncRecord, stream: AgentStream) -> dict[int, bytes]:
    """Return the chunks that a reader makes without any, up to the newest version."""
    made = Made(record.workspace.log, stream)
    await States(record.workspace.log, made).agent(stream)
    return made.chunks


async def by_writer(states: States, stream: AgentStream, numbers: set[int]) -> dict[int, bytes]:
    """Return the stored chunks, as soon as those with these numbers exist."""
    async with asyncio.timeout(30):
        while True:
            chunks = await states._histories._chunks(stream, max(numbers, default=3))
            if numbers <= chunks.keys():
                return chunks
            await asyncio.sleep(0.01)


async def work(session: Any, count: int, offset: int) -> None:
    """Make calls of all kinds, single and parallel, failing and metered; facts; shared state."""

    # The version differs where a session continues with other calls: none repeats a recorded one.
    @session.tool(effects="idempotent", version=f"from {offset}")
    async def effect(number: int, text: str) -> dict[str, Any]:
        session.usage(input_tokens=number, cost=0.5)
        return {"number": number, "text": text}

    @session.tool(effects="pure")
    async def pure(number: int) -> int:
        if number % 500 == 0:
            raise ValueError(number)
        return number

    for number in range(offset, offset + count):
        await effect(number, "é" * 50)
        if number % 7 == 0:
            await session.gather(*(functools.partial(pure, number * 50 + i) for i in range(1, 7)))
            with contextlib.suppress(ValueError):
                await pure(number * 500)
            await session.message("user", f"message {number}", tokens=2)
            await session.checkpoint("stage", number=number)


@pytest.mark.fast(cases=99, slow=0)
async def test_who_writes_makes_the_chunks_that_a_reader_would(lab: Lab) -> None:
    """Byte for byte, in the agent's first session, in the next one, and in a fork's."""
    async with lab.connect() as record:
        async with record.run("w", run="r", agent="ada", role="worker") as session:
            await work(session, 60, 0)
        async with record.run(run="r", agent="ada", role="worker") as session:
            await work(session, 60, 100)
        fork = await record.fork("r", at="ada@100", effects="live")
        async with record.run("w", run=fork, agent="ada", role="worker") as session:
            await work(session, 60, 200)
        for stream in (STREAM, AgentStream(fork, "worker", "ada")):
            expected = await record.io(by_reader(record.raw, stream))
            assert len(expected) > 2
            made = await record.io(by_writer(record.raw.workspace.states, stream, set(expected)))
            assert made == expected


@pytest.fixture
async def opened(data_dir: Path, workspace: str) -> AsyncIterator[AsyncRecord]:
    """Yield a workspace with a run whose agent has begun."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("w", run="r", agent="ada", role="worker"):
            pass
        yield record


class Writing:
    def __init__(
        self, record: AsyncRecord, version: int, epoch: int = 1, *, notes: bool = True
    ) -> None:
        written = record.workspace.states.written(STREAM) if notes else None
        identity = Identity(Actor("ada"), epoch)
        self._writer = StreamWriter(
            record.workspace.log, STREAM, version, identity, Clock(), None, written
        )
        self._number = itertools.count(version)

    async def put(self, *events: Event) -> None:
        """Write a commit."""
        done = asyncio.get_running_loop().create_future()
        self._writer.put([self._writer.recorded(event) for event in events], done)
        await done

    async def facts(self, count: int) -> None:
        """Write so many commits, of a fact each."""
        for _ in range(count):
            mark = f"{next(self._number)}"
            await self.put(CheckpointSaved(name="at", data=NULL, fingerprint=mark))

    @property
    def version(self) -> int:
        """The newest version that it wrote."""
        return self._writer.version


async def idle(record: AsyncRecord) -> histories.ChunkMaker:
    """Return the maker of chunks, when it has nothing to make."""
    maker = record.workspace.states._maker
    assert maker is not None
    await asyncio.sleep(0)  # it hears of the newest commit
    while (making := maker._making) is not None:
        await making
    return maker


async def check(record: AsyncRecord, numbers: set[int]) -> None:
    """Check that the writer's chunks equal the reader's, and their states a plain fold."""
    made, expected = (
        await by_writer(record.workspace.states, STREAM, numbers),
        await by_reader(record, STREAM),
    )
    assert {number: expected[number] for number in made} == made
    commits = await record.workspace.log.read(STREAM)
    version = commits[-1].commit.last_version
    for each in (63, 64, 65, version):
        state = await States(record.workspace.log, record.workspace.snapshots).agent(STREAM, each)
        assert state == fold_agent(commits, each)


@pytest.mark.later
async def test_what_readers_do_not_get_is_in_no_chunk(opened):
    """A chunk has placeholders for commits under an epoch that the agent does not have."""
    writer = Writing(opened, 2)
    await writer.facts(20)
    wrong = Writing(opened, writer.version, epoch=9)
    await wrong.facts(70)
    await check(opened, {1})
    state = await opened.workspace.states.agent(STREAM)
    assert (state.version, len(state.facts)) == (92, 20)


@pytest.mark.later
async def test_one_large_commit_has_one_chunk_and_the_next_goes_on_from_there(opened):
    """As for a reader, only the first of the numbers that the commit passes counts."""
    writer = Writing(opened, 2)
    facts = [CheckpointSaved(name="at", data=NULL, fingerprint=f"{n}") for n in range(200)]
    await writer.put(*facts)
    await writer.facts(100)
    await check(opened, {1, 4})


@pytest.mark.later
async def test_who_goes_on_where_a_chunk_ends_begins_the_next_one(opened):
    """The next chunk begins there even if the known part ends inside the requested one."""
    before = Writing(opened, 2, notes=False)
    await before.facts(60)
    facts = [CheckpointSaved(name="at", data=NULL, fingerprint=f"f{n}") for n in range(2)]
    await before.put(*facts)
    assert (await opened.workspace.states.agent(STREAM, 63)).version == 63
    writer = Writing(opened, before.version)
    await writer.facts(70)
    await check(opened, {1, 2})


@pytest.mark.later
async def test_more_of_a_step_that_had_ended_is_met_by_reading_it(opened):
    """A maker keeps open steps; one settled long after is made from the log."""
    writer = Writing(opened, 2)
    await writer.put(
        StepRequested(
            step=1, tool="look", effects=Effects.PURE, arguments=NULL, call="c", fingerprint="f"
        ),
        StepCompleted(step=1, result=NULL, digest="d"),
    )
    await writer.facts(90)
    await idle(opened)
    await writer.put(StepSettled(step=1, verdict=Verdict.RUN_AGAIN, by="ada"))
    await writer.facts(40)
    await idle(opened)
    await writer.facts(130)
    await check(opened, {1, 2, 3, 4})


@pytest.mark.later
async def test_what_is_too_much_to_hold_is_read_from_the_log(opened, monkeypatch):
    """Chunks stay correct when commits arrive faster than chunks are made."""
    monkeypatch.setattr(histories, "HELD_MAX", 10)
    writer = Writing(opened, 2)
    await writer.facts(200)
    await check(opened, {1, 2, 3})


@pytest.mark.later
async def test_a_chunk_waits_until_a_power_cut_leaves_its_commits(opened, monkeypatch):
    """Under `relaxed` that is later than the acknowledgement, of an unknown server never known."""
    monkeypatch.setattr(opened.workspace.log, "durability", "relaxed")
    monkeypatch.setitem(histories.SYNCED_S, "relaxed", 3_600.0)
    writer = Writing(opened, 2)
    await writer.facts(100)
    assert (await idle(opened))._sending
    assert not await opened.workspace.states._histories._chunks(STREAM, 2)
    monkeypatch.setattr(opened.workspace.log, "durability", "unknown")
    assert opened.workspace.states.written(STREAM) is None


@pytest.mark.later
async def test_who_was_fenced_makes_no_chunk_of_what_it_could_not_write(opened):
    """The chunk has the valid commits, those of the session that took over."""
    late = Writing(opened, 2)
    await late.facts(60)
    async with opened.run(run="r", agent="ada", role="worker") as session:
        with pytest.raises(Fenced):
            await late.facts(1)
        for number in range(30):
            await session.checkpoint("mine", number=number)
    await check(opened, {1})


@pytest.mark.later
@pytest.mark.parametrize(
    "point", [Point.BEFORE_RECEIPT, pytest.param(Point.AFTER_RECEIPT, marks=pytest.mark.slow)]
)
def test_a_kill_while_a_chunk_is_sent_leaves_it_whole_or_none(stage: Stage, point: Point):
    """Killed before or after it is sent, each state is that of the log, with equal chunks."""
    child = stage.killed_at("chunks", point, "chunk")
    assert stage.lost() == []
    workspace = stage.record.workspace
    stream = AgentStream("r1", "worker", "worker")

    def held(*numbers: int) -> dict[int, bytes]:
        return portal().run(by_writer(workspace.states, stream, set(numbers)))

    def equal() -> dict[int, bytes]:
        made = Made(workspace.log, stream)
        commits = portal().run(workspace.log.read(stream))
        version = commits[-1].commit.last_version
        portal().run(States(workspace.log, made).agent(stream))
        for each in range(1, version + 1, 7):
            state = portal().run(States(workspace.log, workspace.snapshots).agent(stream, each))
            assert state == fold_agent(commits, each)
        return made.chunks

    assert child.process.returncode
    if point is Point.BEFORE_RECEIPT:
        assert held() == {}
    expected = equal()
    assert set(expected) == {1}
    assert held(1) == expected  # made by the reader if the kill was earlier
    report = stage.go_on("chunks")
    assert report.results == [2 * number for number in range(CALLS)]
    assert stage.lost() == []
    assert held(1)[1] == equal()[1]
