"""Writer of a stream: each waiting caller learns the outcome of its commit, in any case."""

import asyncio
import itertools

import pytest

from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit, revive_all
from hansard.bus.errors import Conflict, Fenced
from hansard.bus.log import Append, Stored
from hansard.bus.writer import NOTIFIED_AT_ONCE, Identity, StreamWriter
from hansard.domain.board import KeyRemoved
from hansard.domain.errors import BadValue
from hansard.domain.events import Actor
from hansard.domain.ids import KeyStream, RunStream
from hansard.domain.run import RunCancelled
from hansard.state.memory_log import MemoryLog

STREAM = RunStream("r")


class FullDisk(MemoryLog):
    full = False

    async def append(self, append):
        """Store a commit, or not."""
        if self.full:
            raise OSError(28, "No space left on device")
        return await super().append(append)


def _writer(log):
    return StreamWriter(log, STREAM, 0, Identity(Actor("ada")), Clock())


async def _wait(future):
    return await asyncio.wait_for(future, 60)


async def test_what_waits_is_merged_in_order():
    """Events put while a commit is in flight become one commit after it, in order."""
    log = MemoryLog("lab")
    writer = _writer(log)
    futures = [asyncio.get_running_loop().create_future() for _ in range(5)]
    for i, future in enumerate(futures):
        writer.put([writer.recorded(RunCancelled(because=str(i)))], future)
    stored = [await _wait(future) for future in futures]
    commits = await log.read(STREAM)
    events = revive_all(s.commit for s in commits)
    assert [getattr(event, "because", "") for event in events] == list("01234")
    assert {s.position for s in stored} == {s.position for s in commits}
    assert writer.version == 5


async def test_an_unforeseen_error_reaches_all_who_wait():
    """A failing store ends the writer: all waiting and later callers get its error."""
    log = FullDisk("lab")
    writer = _writer(log)
    log.full = True
    loop = asyncio.get_running_loop()
    one, two, late = (loop.create_future() for _ in range(3))
    writer.put([writer.recorded(RunCancelled())], one)
    writer.put([writer.recorded(RunCancelled())], two)
    for future in (one, two):
        with pytest.raises(OSError, match="No space left"):
            await _wait(future)
    writer.put([writer.recorded(RunCancelled())], late)
    with pytest.raises(OSError, match="No space left"):
        await _wait(late)


async def test_each_commit_is_reported_once_it_is_stored_and_no_other():
    """Commits are reported in the order of their versions; one that was not written, never."""
    reported: list[Stored] = []
    log = FullDisk("lab")
    writer = StreamWriter(log, STREAM, 0, Identity(Actor("ada")), Clock(), None, reported.append)
    loop = asyncio.get_running_loop()
    for _ in range(3):
        future = loop.create_future()
        writer.put([writer.recorded(RunCancelled())], future)
        await _wait(future)
    log.full = True
    late = loop.create_future()
    writer.put([writer.recorded(RunCancelled())], late)
    with pytest.raises(OSError, match="No space left"):
        await _wait(late)
    assert [stored.commit for stored in reported] == [s.commit for s in await log.read(STREAM)]
    assert len(reported) == 3


async def test_an_event_that_cannot_be_encoded_is_refused_before_it_is_queued():
    """Nothing is stored or waited for, and the writer continues."""
    log = MemoryLog("lab")
    writer = _writer(log)
    with pytest.raises(BadValue):
        writer.recorded(RunCancelled(because="\ud800"))
    future = asyncio.get_running_loop().create_future()
    writer.put([writer.recorded(RunCancelled(because="fine"))], future)
    assert (await _wait(future)).commit.version == 1
    assert writer.lost is None


async def test_waiters_of_one_commit_are_notified_few_at_a_time():
    """Waiters of one commit are notified in groups, between which other tasks run."""
    writer = _writer(MemoryLog("lab"))
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(4 * NOTIFIED_AT_ONCE + 1)]
    for each in futures:
        writer.put([writer.recorded(RunCancelled(because="many"))], each)
    counts = [0]
    while counts[-1] < len(futures):
        await asyncio.sleep(0)
        counts.append(sum(each.done() for each in futures))
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert max(steps) == NOTIFIED_AT_ONCE
    assert writer.version == len(futures)


async def test_all_hear_of_a_commit_where_the_loop_ends():
    """The commit is on record: stopping the writer notifies the remaining callers."""
    writer = _writer(MemoryLog("lab"))
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in range(4 * NOTIFIED_AT_ONCE)]
    for each in futures:
        writer.put([writer.recorded(RunCancelled(because="many"))], each)
    while not futures[0].done():  # noqa: ASYNC110 -- it counts turns of the loop
        await asyncio.sleep(0)
    assert not futures[-1].done()
    pump = writer._pump
    assert pump is not None
    pump.cancel()
    await asyncio.wait({pump})
    assert [each.result().commit.version for each in futures] == [1] * len(futures)


async def test_what_goes_beside_is_stored_while_nobody_has_gone_on():
    """A side commit is stored under the writer's newest version, never after a later session."""
    log = MemoryLog("lab")
    writer, clock = _writer(log), Clock()
    key = KeyStream("r", "k")

    def beside(version: int) -> Append:
        return Append(key, new_commit(clock, version, Actor("ada"), [KeyRemoved(role="clerk")]))

    async def go_on(epoch: int) -> None:
        last = await log.last(STREAM)
        version = last.commit.last_version + 1 if last is not None else 1
        events = [RunCancelled(because="elsewhere")]
        commit = new_commit(clock, version, Actor("bob"), events, epoch=epoch)
        await log.append(Append(STREAM, commit))

    await writer.append_beside(beside(1))
    with pytest.raises(Conflict) as lost:
        await writer.append_beside(beside(1))
    assert lost.value.stream == key
    await writer.append_beside(beside(2))
    await go_on(epoch=0)
    with pytest.raises(Conflict) as lost:
        await writer.append_beside(beside(3))
    assert lost.value.stream == STREAM
    fenced = _writer(log)
    fenced.version = 1
    await go_on(epoch=1)
    with pytest.raises(Fenced):
        await fenced.append_beside(beside(3))
    assert [stored.commit.version for stored in await log.read(key)] == [1, 2]
