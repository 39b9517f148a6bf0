"""An acknowledgement counts for the publish that it answers, and for no other."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from hansard.bus.errors import AppendUnknown
from hansard.bus.jetstream import JetStreamLog, open_log
from hansard.bus.jetstream.wire import NoAnswer, acknowledged
from hansard.bus.log import Stored
from hansard.domain.ids import AgentStream, KeyStream
from tests.bus.ack_relay import AckRelay, Repeat
from tests.bus.brokers import Nats, append, running, until

pytestmark = pytest.mark.slow

LOG, BLOBS, SNAPSHOTS = "hansard.lab.", "hansard_blob.lab.", "hansard_snap.lab."
ALICE = AgentStream("r1", "researcher", "alice")
ANSWER_S = 0.4
"""Seconds that a publish waits for its answer: one answer is lost in each test."""

GROUP = 24
"""Callers at once, enough to share a batch."""

each_repeat = pytest.mark.parametrize("repeat", [*Repeat])


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    """Yield a server of the test's own."""
    with running(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def relay(nats: Nats) -> Iterator[AckRelay]:
    """Yield a relay before that server."""
    relay = AckRelay(nats.port)
    yield relay
    relay.close()


async def relayed(nats: Nats, relay: AckRelay) -> JetStreamLog:
    """Return a log over the relay."""
    urls = (f"nats://127.0.0.1:{relay.port}",)
    runtime = msgspec.structs.replace(nats.options(request_timeout_s=ANSWER_S), urls=urls)
    return await open_log(runtime, "lab", "strict", admin=nats.options("admin"))


def test_an_acknowledgement_is_of_one_region():
    """Two regions that are both a home for a while listen to the same subjects."""
    answer = b'{"stream": "hansard_log-lab_1", "domain": "A", "seq": 7}'
    assert acknowledged(answer, 6, "A").seq == acknowledged(answer, 6).seq == 7
    for domain in ("B", ""):
        with pytest.raises(NoAnswer, match="region 'A' acknowledged it"):
            acknowledged(answer, 6, domain)


async def in_thread(log: JetStreamLog, version: int) -> list[Stored]:
    """Append as a writer does: the loop resolves appends that the thread could not."""
    request = append(ALICE, version)
    loop = asyncio.get_running_loop()
    while True:
        tried_s = loop.time()
        try:
            stored = await asyncio.to_thread(log.append_here, request)
        except AppendUnknown:
            return [await log.append_again(request, tried_s)]
        if stored is not None or version > 1:
            return [stored or await log.append(request)]
        await asyncio.sleep(0.01)


async def alone(log: JetStreamLog, version: int) -> list[Stored]:
    """Append over the loop."""
    return [await log.append(append(ALICE, version))]


async def together(log: JetStreamLog, version: int) -> list[Stored]:
    """Append to two streams in one atomic batch."""
    return await log.append_all([append(KeyStream("r1", key), version) for key in ("j", "k")])


async def grouped(log: JetStreamLog, version: int) -> list[Stored]:
    """Append for many concurrent callers, who share batches."""
    keys = [KeyStream("r1", f"k{number}") for number in range(GROUP)]
    return await asyncio.gather(*(log.append(append(key, version)) for key in keys))


@each_repeat
@pytest.mark.parametrize("path", [in_thread, alone, together, grouped])
async def test_every_acknowledged_commit_is_in_the_log(nats, relay, path, repeat):
    """Every commit reported as stored is read back at its position, once, after repeated acks."""
    log = await relayed(nats, relay)
    acknowledged = await path(log, 1)
    relay.arm(LOG, repeat)
    for version in range(2, 6):
        acknowledged += await path(log, version)
    stored = {each.position: each.commit.id async for each in log.follow(until=await log.head())}
    assert relay.dropped == 1
    assert stored == {each.position: each.commit.id for each in acknowledged}
    assert len(acknowledged) == len({each.commit.id for each in acknowledged})
    await log.close()


@each_repeat
async def test_a_bulk_load_is_in_the_log(nats: Nats, relay: AckRelay, repeat: Repeat):
    """The same for batches of an import."""
    log = await relayed(nats, relay)
    appends = [append(ALICE, version, text="x" * 100_000) for version in range(1, 130)]
    relay.arm(LOG, repeat)
    await log.append_bulk(appends)
    commits = await log.read(ALICE)
    assert relay.dropped == 1
    assert [each.commit.id for each in commits] == [each.commit.id for each in appends]
    await log.close()


@each_repeat
async def test_every_stored_blob_is_whole(nats: Nats, relay: AckRelay, repeat: Repeat):
    """Large payloads, too: a blob that `put` reported as stored is read back."""
    log = await relayed(nats, relay)
    bodies = [bytes([number]) * 600_000 for number in range(4)]
    digests = [await log.blobs.put(bodies[0])]
    relay.arm(BLOBS, repeat)
    digests += [await log.blobs.put(body) for body in bodies[1:]]
    assert relay.dropped == 1
    for digest, body in zip(digests, bodies, strict=True):
        assert await log.blobs.get(digest, len(body)) == body
    await log.close()


@each_repeat
async def test_a_snapshot_that_was_lost_is_missing_and_no_more(nats, relay, repeat):
    """A snapshot that never arrived is missing; the others and the commits are stored."""
    log = await relayed(nats, relay)
    names = [f"{SNAPSHOTS}test.{number}" for number in range(4)]
    relay.arm(SNAPSHOTS, repeat)
    for name in names:
        assert await log.snapshots.put(name, name.encode())
        acknowledged = await log.append(append(KeyStream("r1", name[-1]), 1))
        await until(lambda: _is_settled(log, names[0]))
        assert (await log.at(acknowledged.position)).commit == acknowledged.commit
    snapshots = await log.snapshots.get_many(names)
    assert relay.dropped == 1
    assert snapshots == {name: name.encode() for name in names if name != names[1]}
    await log.close()


async def _is_settled(log: JetStreamLog, name: str) -> bool:
    return name in await log.snapshots.get_many([name])
