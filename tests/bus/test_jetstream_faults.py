"""The log while its broker dies, stops or returns."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hansard.bus.errors import AppendUnknown, BrokerError, BusError, Conflict, Unreachable
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream import push as pushing
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.push import Push
from hansard.bus.log import Append, Stored
from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream, KeyStream, StreamId
from tests.bus.brokers import Nats, append, running

ALICE = AgentStream("r1", "researcher", "alice")
WAIT_S = 60.0
"""Longest wait for an event, in seconds."""


async def check(log: JetStreamLog, acked: dict[str, list[Stored]]) -> None:
    """Check that each acknowledged commit is stored once, at its position, without gaps."""
    everything = {stored.commit.id: stored async for stored in log.follow(until=await log.head())}
    assert len(everything) == await log.head()
    for name, commits in acked.items():
        for stored in commits:
            assert everything[stored.commit.id].position == stored.position
        on_broker = await log.read(KeyStream("r1", name))
        assert {s.commit.id for s in commits} <= {s.commit.id for s in on_broker}


async def test_append_while_the_broker_is_down(tmp_path: Path):
    """An append made while the broker is away is stored once when it is back."""
    with running(tmp_path) as nats:
        log = await nats.log()
        await log.append(append(ALICE, 1))
        nats.kill()
        waiting = asyncio.ensure_future(log.append(append(ALICE, 2)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        nats.start()
        assert (await asyncio.wait_for(waiting, WAIT_S)).position == 2
        assert [s.commit.version for s in await log.read(ALICE)] == [1, 2]
        await log.close()


async def test_nothing_was_sent(tmp_path: Path):
    """If the broker stays away, the error says that nothing was sent."""
    with running(tmp_path) as nats:
        log = await nats.log(append_timeout_s=0.5)
        nats.kill()
        await asyncio.sleep(0.1)
        with pytest.raises(Unreachable):
            await log.append(append(ALICE, 1))
        with pytest.raises(Unreachable):
            await log.append_all([append(ALICE, 1), append(KeyStream("r1", "k"), 1)])
        await log.close()


@pytest.mark.slow
async def test_unknown(tmp_path: Path):
    """The outcome of a commit that is never answered is reported as unknown."""
    with running(tmp_path) as nats:
        patient = await nats.log()
        log = await nats.log(append_timeout_s=0.6, request_timeout_s=0.25)
        await patient.append(append(ALICE, 1))
        assert nats.process is not None
        nats.freeze()
        second = append(ALICE, 2)
        try:
            with pytest.raises(AppendUnknown) as unknown:
                await log.append(second)
            with pytest.raises(AppendUnknown):
                await log.append_all(
                    [append(KeyStream("r1", "j"), 1), append(KeyStream("r1", "k"), 1)]
                )
        finally:
            nats.process.send_signal(signal.SIGCONT)
        assert unknown.value.commit_id == second.commit.id
        # It was in flight all the time: here it was stored, and the same commit is success.
        again = await patient.append(second)
        assert again.commit.id == second.commit.id
        assert [s.commit.version for s in await patient.read(ALICE)] == [1, 2]
        await log.close()
        await patient.close()


async def test_the_answer_was_lost(tmp_path: Path):
    """If a stopped broker continues in time, the commit is stored once, though sent twice."""
    with running(tmp_path) as nats:
        log = await nats.log(request_timeout_s=0.2)
        assert nats.process is not None
        nats.freeze()
        bulk = [append(KeyStream("bulk", str(i)), 1) for i in range(40)]
        waiting = asyncio.gather(
            log.append(append(ALICE, 1)),
            log.append_all([append(KeyStream("r1", "j"), 1), append(KeyStream("r1", "k"), 1)]),
            log.append_bulk(bulk),
        )
        await asyncio.sleep(0.7)
        nats.process.send_signal(signal.SIGCONT)
        one, two, new = await asyncio.wait_for(waiting, WAIT_S)
        assert (one.commit.version, len(two), new) == (1, 2, 40)
        assert await log.head() == 43
        assert len(await log.read_run("r1")) == 3
        await log.close()


@pytest.mark.slow
@pytest.mark.long
async def test_kill_under_writers(tmp_path: Path, rounds: Callable[[int, int], int]):
    """64 writers lose, double and skip nothing while the broker is killed again and again."""
    writers, kills = 64, rounds(3, 40)
    with running(tmp_path) as nats:
        log, follower = await nats.log(), await nats.log()
        acked: dict[str, list[Stored]] = {f"k{i}": [] for i in range(writers)}
        stop = asyncio.Event()
        followed: list[int] = []

        async def write(name: str) -> None:
            version = 1
            while not stop.is_set():
                acked[name].append(await log.append(append(KeyStream("r1", name), version)))
                version += 1

        async def transact() -> None:
            version = 1
            while not stop.is_set():
                streams: list[StreamId] = [KeyStream("tx", "a"), KeyStream("tx", "b")]
                stored = await log.append_all([append(stream, version) for stream in streams])
                assert stored[1].position == stored[0].position + 1
                version += 1
                await asyncio.sleep(0.01)

        async def follow() -> None:
            async for stored in follower.follow():
                followed.append(stored.position)  # noqa: PERF401 -- it is cancelled midway

        following = asyncio.ensure_future(follow())
        writing = asyncio.gather(*(write(name) for name in acked), transact())
        for _ in range(kills):
            await asyncio.sleep(0.25)
            nats.kill()
            await asyncio.sleep(0.05)
            nats.start()
        await asyncio.sleep(0.25)
        stop.set()
        await asyncio.wait_for(writing, WAIT_S)
        head = await log.head()
        while len(followed) < head:
            await asyncio.sleep(0.05)
            assert not following.done()
        following.cancel()
        assert followed == list(range(1, head + 1))
        await check(log, acked)
        transactions = await log.read_run("tx")
        assert len(transactions) % 2 == 0
        for name, commits in acked.items():
            versions = [stored.commit.version for stored in await log.read(KeyStream("r1", name))]
            assert versions == list(range(1, len(commits) + 1))
        await log.close()
        await follower.close()


async def test_follow_across_a_restart(tmp_path: Path):
    """A follower continues after a kill of the broker: no gap, no repeat."""
    with running(tmp_path) as nats:
        log = await nats.log()
        followed: list[Stored] = []

        async def follow() -> None:
            followed.extend([stored async for stored in log.follow(until=30)])

        following = asyncio.ensure_future(follow())
        for i in range(1, 31):
            await log.append(append(ALICE, i))
            if i in (10, 20):
                nats.kill()
                nats.start()
        await asyncio.wait_for(following, WAIT_S)
        assert [stored.position for stored in followed] == list(range(1, 31))
        await log.close()


async def test_a_reading_with_an_end_does_not_wait_for_what_is_gone(tmp_path: Path):
    """A bounded read past a damaged last message ends and names the lost position."""
    with running(tmp_path) as nats:
        log = await nats.log()
        for version in range(1, 4):
            await log.append(append(ALICE, version))
        nats.stop()  # it writes down where the log ends
        nats.spoil("lab")
        nats.start()
        following = log.follow(until=3)
        assert [(await anext(following)).position for _ in range(2)] == [1, 2]
        with pytest.raises(Corrupt, match="positions 3 to 3 are gone"):
            await asyncio.wait_for(anext(following), WAIT_S)
        with pytest.raises(Corrupt, match="1 acknowledged commit is gone"):
            await log.read(ALICE)
        await log.close()
        with pytest.raises(Corrupt, match="1 acknowledged commit is gone"):
            await nats.log()


@pytest.mark.later
async def test_a_reading_with_an_end_waits_for_what_is_not_written_yet(tmp_path: Path):
    """An end beyond the head is waited for, and met."""
    with running(tmp_path) as nats:
        log = await nats.log()
        await log.append(append(ALICE, 1))
        following = log.follow(until=2)
        assert (await anext(following)).position == 1
        waiting = asyncio.ensure_future(anext(following))
        done, _ = await asyncio.wait({waiting}, timeout=3 * pushing.IDLE_S)
        assert not done
        await log.append(append(ALICE, 2))
        assert (await asyncio.wait_for(waiting, WAIT_S)).position == 2
        await log.close()


@pytest.mark.later
async def test_a_reading_with_an_end_does_not_wait_for_ever_for_a_broker(tmp_path, monkeypatch):
    """If the broker does not return, the error says so and how long the read waited."""
    monkeypatch.setattr(pushing, "NO_ANSWER_S_MAX", 1.0)
    with running(tmp_path) as nats:
        log = await nats.log(request_timeout_s=0.5)
        await log.append(append(ALICE, 1))
        following = log.follow(until=2)
        await anext(following)
        nats.kill()
        with pytest.raises(Unreachable, match=r"no message for \d+ s, after position 1"):
            await asyncio.wait_for(anext(following), WAIT_S)
        await log.close()


@pytest.mark.later
async def test_an_undelivered_message_is_reported(tmp_path, monkeypatch):
    """The server has a message and does not deliver it: here, where it may not."""
    monkeypatch.setattr(pushing, "DELIVERY_S_MAX", 1.0)
    nats = Nats(tmp_path)
    nats.forbid("quiet.>")
    nats.start()
    try:
        log = await nats.log()
        await log.append(append(ALICE, 1))
        broker = await Broker.open(nats.options())
        push = Push(broker, "hansard_log-lab", "hansard.lab.>", 0, until=1, inbox_prefix="quiet")
        with pytest.raises(Corrupt, match="position 1 is there, but the server has not delivered"):
            async with asyncio.timeout(30):
                _ = [chunk async for chunk in push.chunks()]
        await broker.close()
        await log.close()
    finally:
        nats.kill()


async def test_a_log_that_went_back(tmp_path: Path):
    """A follower does not silently skip commits that replace lost ones."""
    with running(tmp_path / "a") as nats, running(tmp_path / "b") as other:
        log, shorter = await nats.log(), await other.log()
        for i in range(1, 6):
            await log.append(append(ALICE, i))
        await shorter.append(append(ALICE, 1))
        position = (await log.read(ALICE))[-1].position
        with pytest.raises(Exception, match="ends at 1, but 5 was read before"):
            await anext(shorter.follow(position))
        await log.close()
        await shorter.close()


async def test_reads_wait_for_the_broker(tmp_path: Path):
    """Reads made while the broker is away are answered when it is back."""
    with running(tmp_path) as nats:
        log = await nats.log()
        await log.append(append(ALICE, 1))
        nats.kill()
        reading = asyncio.gather(
            log.read(ALICE), log.read_run("r1"), log.last(ALICE), log.head(), log.at(1), log.runs()
        )
        await asyncio.sleep(0.2)
        assert not reading.done()
        nats.start()
        one, run, last, head, at, runs = await asyncio.wait_for(reading, WAIT_S)
        assert one == run == [last] == [at]
        assert (head, runs) == (1, [])
        await log.close()


async def test_closing_ends_pending_calls_with_an_error(tmp_path: Path):
    """Closing a log ends pending calls with an error, never with silence."""
    with running(tmp_path) as nats:
        log = await nats.log(append_timeout_s=0.5)
        assert nats.process is not None
        nats.freeze()
        keys = [KeyStream("r1", f"k{i}") for i in range(4)]
        waiting = [asyncio.ensure_future(log.append(append(key, 1))) for key in keys]
        await asyncio.sleep(0.05)
        nats.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0)
        await log.close()
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), WAIT_S)
        assert all(isinstance(each, (Stored, BusError)) for each in results)


async def test_conflict_is_final(tmp_path: Path):
    """Across a restart a conflict stays a conflict, and stored commits stay stored."""
    with running(tmp_path) as nats:
        log = await nats.log()
        mine = append(ALICE, 1)
        stored = await log.append(mine)
        nats.kill()
        nats.start()
        with pytest.raises(Conflict):
            await log.append(append(ALICE, 1))
        again = await log.append(Append(ALICE, mine.commit))
        assert again.position == stored.position
        await log.close()


@pytest.mark.slow
async def test_a_full_store(tmp_path: Path):
    """A full store is a broker error at once; stored commits can be read."""
    text = "x" * 200_000
    with running(tmp_path) as nats:
        nats.kill()
        config = tmp_path / "nats.conf"
        config.write_text(
            config.read_text().replace("sync_interval", "max_file: 1MB, sync_interval")
        )
        nats.start()
        log = await nats.log()

        async def fill() -> None:
            for version in range(1, 10):
                await log.append(append(ALICE, version, text=text))

        with pytest.raises(BrokerError, match="insufficient resources"):
            await fill()
        stored = await log.read(ALICE)
        assert len(stored) > 2
        keys: list[StreamId] = [KeyStream("r1", f"k{i}") for i in range(40)]
        for writing in (
            log.append_all([append(key, text=text) for key in keys[:3]]),
            log.append_bulk([append(key, text=text) for key in keys]),
            asyncio.gather(*(log.append(append(key, text=text)) for key in keys)),
            log.blobs.put(b"x" * 1_200_000),
        ):
            async with asyncio.timeout(5):
                with pytest.raises(BrokerError, match="insufficient resources"):
                    await writing
        assert await log.read(ALICE) == stored
        await log.close()
