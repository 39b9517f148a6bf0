"""Blobs and snapshots: data stored outside the log."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard.bus import subjects
from hansard.bus.errors import NotFound
from hansard.bus.jetstream.blobs import CHUNK_BYTES
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import api
from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream
from tests.bus.brokers import Nats, running, until

SIZES = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 20 * CHUNK_BYTES + 7]


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    """Yield one server for these tests, each of which has a workspace of its own."""
    with running(tmp_path_factory.mktemp("nats"), sync='"10ms"') as server:
        yield server


def data(size: int) -> bytes:
    """Bytes that differ from chunk to chunk."""
    return bytes(i * 7 % 251 for i in range(min(size, 10_007))) * (size // 10_007 + 1)


@pytest.mark.parametrize("size", SIZES)
async def test_round_trip(nats: Nats, size: int):
    """A blob of any size is read back; putting it again gives the same hash."""
    log = await nats.log(f"size-{size}")
    blob = data(size)[:size]
    sha256 = await log.blobs.put(blob)
    assert sha256 == hashlib.sha256(blob).hexdigest() == await log.blobs.put(blob)
    assert await log.blobs.get(sha256, size) == blob
    await log.close()


async def test_several_at_once(nats: Nats):
    """One request reads all blobs unchanged; a missing one is NotFound."""
    log = await nats.log("several")
    blobs = {}
    for size in SIZES:
        blob = data(size)[:size]
        blobs[await log.blobs.put(blob), size] = blob
    stored = await log.blobs.get_all(list(blobs))
    assert stored == {sha256: blob for (sha256, _), blob in blobs.items()}
    with pytest.raises(NotFound):
        await log.blobs.get_all([*blobs, ("0" * 64, 10)])
    await log.close()


async def test_wrong_size(nats: Nats):
    """A size that is not the blob's is noticed, both ways."""
    log = await nats.log("wrong-size")
    blob = data(2 * CHUNK_BYTES)[: 2 * CHUNK_BYTES]
    sha256 = await log.blobs.put(blob)
    for size in (len(blob) - 1, CHUNK_BYTES):
        with pytest.raises(Corrupt):
            await log.blobs.get(sha256, size)
    with pytest.raises(NotFound):
        await log.blobs.get(sha256, len(blob) + 1)
    await log.close()


async def test_damaged(nats: Nats):
    """Bytes that do not hash to their address are Corrupt."""
    log = await nats.log("damaged")
    sha256 = hashlib.sha256(b"right").hexdigest()
    await log._writes.request(subjects.blob_subject("damaged", sha256, 0), b"wrong")
    with pytest.raises(Corrupt):
        await log.blobs.get(sha256, 5)
    await log.close()


async def test_killed_midway(nats: Nats):
    """A second put completes a killed writer's blob."""
    log = await nats.log("midway")
    blob = data(4 * CHUNK_BYTES)[: 4 * CHUNK_BYTES]
    sha256 = hashlib.sha256(blob).hexdigest()
    for chunk in (0, 2):
        part = blob[chunk * CHUNK_BYTES : (chunk + 1) * CHUNK_BYTES]
        await log._writes.request(subjects.blob_subject("midway", sha256, chunk), part)
    with pytest.raises(NotFound, match="2 of 4 chunks"):
        await log.blobs.get(sha256, len(blob))
    assert await log.blobs.put(blob) == sha256
    assert await log.blobs.get(sha256, len(blob)) == blob
    await log.close()


async def test_erased(nats: Nats):
    """An administrator can erase a blob, chunk by chunk; then it is NotFound."""
    log = await nats.log("erased")
    sha256 = await log.blobs.put(data(CHUNK_BYTES + 5)[: CHUNK_BYTES + 5])
    other = await log.blobs.put(b"other")
    admin = await Broker.open(nats.options("admin"))
    purge = {"filter": f"hansard_blob.erased.{sha256}.*"}
    await api(admin, f"STREAM.PURGE.{subjects.blob_stream('erased')}", purge)
    with pytest.raises(NotFound):
        await log.blobs.get(sha256, CHUNK_BYTES + 5)
    assert await log.blobs.get(other, 5) == b"other"
    await admin.close()
    await log.close()


@pytest.mark.later
async def test_put_across_a_kill(tmp_path: Path):
    """A put during which the broker dies is complete when it returns."""
    with running(tmp_path) as own:
        log = await own.log(request_timeout_s=1.0)
        blob = data(12 * CHUNK_BYTES)[: 12 * CHUNK_BYTES]
        assert own.process is not None
        own.freeze()
        putting = asyncio.ensure_future(log.blobs.put(blob))
        await asyncio.sleep(0.1)
        own.kill()
        own.start()
        sha256 = await asyncio.wait_for(putting, 60)
        assert await log.blobs.get(sha256, len(blob)) == blob
        await log.close()


async def test_snapshots(nats: Nats):
    """Snapshots are found by their keys; those that were never made are left out."""
    log = await nats.log("snaps")
    prefix = subjects.snapshot_prefix("snaps", AgentStream("r1", "role", "a b"), "v1")
    keys = [f"{prefix}.{version}" for version in range(200, 2_000, 200)]
    for key in keys[:3]:
        assert await log.snapshots.put(key, key.encode())

    async def three() -> bool:
        return len(await log.snapshots.get_many(keys)) == 3

    await until(three)
    assert await log.snapshots.get_many(keys) == {key: key.encode() for key in keys[:3]}
    assert await log.snapshots.put(keys[0], b"newer")

    async def newer() -> bool:
        return (await log.snapshots.get_many(keys[:1]))[keys[0]] == b"newer"

    await until(newer)
    await log.close()


async def test_snapshots_are_never_in_the_way(nats: Nats):
    """Too large, too many or no broker: the snapshot is not sent, and that is all."""
    log = await nats.log("no-snaps")
    key = subjects.snapshot_prefix("no-snaps", AgentStream("r1", "role", "a"), "v1") + ".200"
    assert not await log.snapshots.put(key, b"x" * 1_048_576)
    sent = [await log.snapshots.put(key, b"x") for _ in range(100)]
    assert True in sent
    assert False in sent
    await log._writes.close()
    assert not await log.snapshots.put(key, b"x")
    assert not log.snapshots._in_flight
    await log.close()
