"""A stream's writer: whoever waits for a commit hears of its end, whatever happens."""

import asyncio

import pytest
from eventsourcing.popo import POPOApplicationRecorder

from hansard.bus.clock import Clock
from hansard.bus.codec import revive_all
from hansard.bus.recorder._log import RecorderLog
from hansard.bus.writer import Identity, StreamWriter
from hansard.domain.errors import BadValue
from hansard.domain.events import Actor
from hansard.domain.ids import Life
from hansard.domain.run import RunCancelled

STREAM = Life("r")


class FullDisk(POPOApplicationRecorder):
    """A store of somebody else's that fails in its own way."""

    full = False

    def insert_events(self, *args, **kwargs):
        """Store events, or not."""
        if self.full:
            raise OSError(28, "No space left on device")
        return super().insert_events(*args, **kwargs)


def _writer(log):
    return StreamWriter(log, STREAM, 0, Identity(Actor("ada")), Clock())


async def _wait(future):
    return await asyncio.wait_for(future, 5)


async def test_what_waits_is_merged_in_order():
    """What is put while a commit is on its way becomes one commit after it, in order."""
    log = RecorderLog("lab")
    writer = _writer(log)
    futures = [asyncio.get_running_loop().create_future() for _ in range(5)]
    for i, future in enumerate(futures):
        writer.put([writer.recorded(RunCancelled(because=str(i)))], future)
    stored = [await _wait(future) for future in futures]
    commits = await log.read(STREAM)
    told = revive_all(s.commit for s in commits)
    assert [getattr(event, "because", "") for event in told] == list("01234")
    assert {s.position for s in stored} == {s.position for s in commits}
    assert writer.version == 5


async def test_an_error_that_nobody_foresaw_reaches_whoever_waits():
    """A failing store ends the writer: all that wait, and all that come later, get its error."""
    recorder = FullDisk()
    writer = _writer(RecorderLog("lab", recorder))
    recorder.full = True
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


async def test_an_event_that_cannot_be_encoded_is_refused_before_it_is_queued():
    """Nothing is stored of it, nobody waits for it, and the writer goes on."""
    log = RecorderLog("lab")
    writer = _writer(log)
    with pytest.raises(BadValue):
        writer.recorded(RunCancelled(because="\ud800"))
    future = asyncio.get_running_loop().create_future()
    writer.put([writer.recorded(RunCancelled(because="fine"))], future)
    assert (await _wait(future)).commit.version == 1
    assert writer.lost is None
