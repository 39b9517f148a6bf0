"""Three servers are killed, stopped, parted and wiped while a log rolls under writers."""

import asyncio
import contextlib
import os
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.broker.lease import find_binary
from hansard.bus.archive import archive_at
from hansard.bus.errors import BusError
from hansard.bus.jetstream import JetStreamLog, roll
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import api, late_of, leader_of, silent_of
from hansard.bus.jetstream.wire import NoAnswer
from hansard.bus.log import Stored
from hansard.bus.subjects import log_stream
from hansard.domain.ids import StreamId
from tests.bus import cluster
from tests.bus.brokers import until
from tests.bus.cluster import SERVERS, Cluster, Member
from tests.evidence import Evidence
from tests.faults._disks import small_disk
from tests.faults.test_rolls import WRITERS, Ledger

pytestmark = [
    pytest.mark.thorough(
        quick="faults/test_partitions.py::test_nothing_acknowledged_is_lost_in_a_one_way_partition"
    ),
    pytest.mark.timeout(3_600),
]

GOES_ON_S = 120.0
"""Longest time until a writer has another acknowledgement after a fault, in seconds."""

EQUAL_S = 120.0
"""Longest time until all replicas are equal, in seconds."""


class Trial(Ledger):
    """A ledger whose writers outlast servers that do not answer; it counts what they meet."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    async def write(self, log: JetStreamLog, reader: JetStreamLog, name: str) -> None:
        """Append as a ledger does; after an error go on."""
        while not self.over.is_set():
            try:
                await super().write(log, reader, name)
            except (BusError, NoAnswer, TimeoutError) as error:
                self.counts[type(error).__name__] += 1
                await asyncio.sleep(0.1)

    async def _next(self, log: JetStreamLog, stream: StreamId) -> Stored | None:
        try:
            return await super()._next(log, stream)
        except AssertionError:
            self.counts["stale"] += 1
            raise


async def states(servers: Cluster, stream: str) -> dict[str, tuple[int, ...]]:
    """Return the state of each server's own replica of a stream."""
    broker = await Broker.open(servers.options("system"))
    found: dict[str, tuple[int, ...]] = {}

    class Servers:
        def receive(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
            answer: dict[str, Any] = msgspec.json.decode(data)
            for account in answer["data"].get("account_details") or []:
                for each in account.get("stream_detail") or []:
                    if each["name"] == stream:
                        state = each["state"]
                        keys = ("first_seq", "last_seq", "messages", "bytes", "num_subjects")
                        found[answer["server"]["name"]] = tuple(state.get(k, 0) for k in keys)

        def lost(self, error: BusError) -> None:
            pass

    inbox = broker.expect(Servers())
    try:
        body = b'{"accounts":true,"streams":true,"config":true}'
        await broker.send("$SYS.REQ.SERVER.PING.JSZ", body, inbox)
        async with asyncio.timeout(5.0):
            while len(found) < SERVERS:  # noqa: ASYNC110 -- answers arrive one by one
                await asyncio.sleep(0.02)
    except TimeoutError:
        pass
    finally:
        broker.forget(inbox)
        await broker.close()
    return found


async def equal(servers: Cluster, streams: list[str]) -> None:
    """Wait until all replicas of the streams are equal."""
    last: dict[str, Any] = {}

    async def are() -> bool:
        for stream in streams:
            last[stream] = await states(servers, stream)
            if len(last[stream]) < SERVERS or len({*last[stream].values()}) > 1:
                return False
        return True

    try:
        await until(are, EQUAL_S)
    except TimeoutError:
        pytest.fail(f"replicas differ: {last}")


async def leads(servers: Cluster, stream: str) -> Member:
    """Return the server that leads a stream, once one does."""
    while True:
        with contextlib.suppress(BusError, NoAnswer):
            name = leader_of(await servers.info(stream))
            if name:
                return servers.member(name)
        await asyncio.sleep(0.1)


Fault = Callable[[Cluster, Member, random.Random], Awaitable[None]]
"""Does something to a server, and repairs it."""


async def kill(servers: Cluster, leader: Member, chance: random.Random) -> None:
    """Kill the leader, a follower, or all three."""
    followers = [each for each in servers.members if each is not leader]
    which = chance.choice([[leader], [chance.choice(followers)], servers.members])
    for each in which:
        each.kill()
    await asyncio.sleep(chance.uniform(0.0, 6.0))
    for each in which:
        await asyncio.to_thread(each.start)


async def stop(servers: Cluster, leader: Member, chance: random.Random) -> None:
    """Stop the leader or a follower for 1 to 30 s, mostly less than an election takes."""
    followers = [each for each in servers.members if each is not leader]
    one = chance.choice([leader, *followers])
    one.freeze()
    await asyncio.sleep(chance.choice([1.0, 2.0, 5.0, 12.0, 30.0]))
    one.go_on()


async def part(servers: Cluster, leader: Member, chance: random.Random) -> None:
    """Part a server from the others, in one direction or in both."""
    one = chance.choice([leader.name, chance.choice([each.name for each in servers.members])])
    others = [each.name for each in servers.members if each.name != one]
    way = chance.choice(["mute", "deaf", "both"])
    if way != "deaf":
        servers.part(one)
    if way != "mute":
        for each in others:
            servers.part(each, deaf=[one])
    await asyncio.sleep(chance.choice([1.0, 3.0, 6.0, 12.0]))
    servers.join(broken=chance.random() < 0.5)


async def wipe(servers: Cluster, leader: Member, chance: random.Random) -> None:
    """Kill a server, remove its disk, and start it empty once the others agree; the next one only
    when that has all data again.
    """
    await current(servers)
    one = chance.choice([leader, *servers.members])
    one.kill()
    shutil.rmtree(one.folder / "store")
    await asyncio.sleep(chance.uniform(0.0, 3.0))
    await asyncio.to_thread(one.start)


async def fill(servers: Cluster, leader: Member, chance: random.Random) -> None:
    """Move a server to a small disk, fill that, and move the server back."""
    one = chance.choice([leader, *servers.members])
    store, aside = one.folder / "store", one.folder / "aside"
    one.kill()
    store.rename(aside)
    with small_disk(store, 64, files=10_000) as disk:
        shutil.copytree(aside, store, dirs_exist_ok=True)
        await asyncio.to_thread(one.start)
        await current(servers)
        disk.full()
        await asyncio.sleep(chance.uniform(1.0, 8.0))
        one.kill()
        disk.free()
        shutil.rmtree(aside)
        shutil.copytree(store, aside)
    store.rmdir()
    aside.rename(store)
    await asyncio.to_thread(one.start)


async def restart(servers: Cluster, leader: Member, chance: random.Random) -> None:
    """Restart the servers in order, one after the other; with another version if there is one."""
    del leader, chance
    for each in servers.members:
        await asyncio.to_thread(each.stop)
        if OTHER is not None:
            each.binary = Path(OTHER) if each.binary != Path(OTHER) else find_binary()
        await asyncio.to_thread(each.start)
        await current(servers)


async def current(servers: Cluster) -> None:
    """Wait until each replica of each stream follows its leader."""

    async def all_are() -> bool:
        with contextlib.suppress(BusError, NoAnswer):
            infos = [await servers.info(name) for name in await streams(servers)]
            return all(
                leader_of(info) and not late_of(info) and not silent_of(info, 2.0) for info in infos
            )
        return False

    await until(all_are, GOES_ON_S)


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "stop": stop,
    "part": part,
    "wipe": wipe,
    "fill": fill,
    "restart": restart,
}

OTHER = os.environ.get("HANSARD_OTHER_NATS_SERVER")
"""Path of a nats-server of another version, for pairs of versions."""


@contextlib.asynccontextmanager
async def rolling(servers: Cluster, trial: Trial, place: Path) -> AsyncIterator[None]:
    """Roll the log all the time, and archive and delete every second generation."""
    over = asyncio.Event()

    async def keep() -> None:
        number = 0
        while not over.is_set():
            number += 1
            try:
                admin = await Broker.open(servers.options("admin"))
            except BusError:
                await asyncio.sleep(0.5)
                continue
            try:
                if number % 2:
                    done = await roll.roll(admin, "lab")
                else:
                    archive = archive_at("lab", str(place))
                    done = (await roll.tend(admin, "lab", None, archive, keep_s=0)).roll
                trial.counts["rolls"] += done.sealed
            except (BusError, NoAnswer) as error:
                trial.counts[f"roll: {type(error).__name__}"] += 1
            finally:
                await admin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), 1.0)

    keeping = asyncio.create_task(keep())
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({keeping}, timeout=GOES_ON_S)
        keeping.cancel()
    keeping.result()


async def survive(
    servers: Cluster, fault: Fault, number: int, seed: int, place: Path
) -> Counter[str]:
    """Let 16 writers and a roller go on over a fault, a number of times; return the counts."""
    await servers.elected()
    chance, trial = random.Random(seed), Trial()
    logs = [await servers.log("lab")]
    logs += [await servers.log("lab", first=member) for member in servers.members]
    writers = [
        asyncio.create_task(trial.write(logs[n % 4], logs[-n % 4], f"w{n}")) for n in range(WRITERS)
    ]

    async def written() -> bool:
        return len(trial.acknowledged) >= enough or any(writer.done() for writer in writers)

    async with rolling(servers, trial, place):
        for _ in range(number):
            leader = await leads(servers, await newest(servers))
            await fault(servers, leader, chance)
            trial.counts["faults"] += 1
            enough = len(trial.acknowledged) + WRITERS
            await until(written, GOES_ON_S)
            await asyncio.sleep(chance.uniform(0.5, 2.0))
    trial.over.set()
    await asyncio.wait_for(asyncio.gather(*writers), GOES_ON_S)
    await servers.elected()
    fresh = await servers.log("lab")
    await trial.check(fresh)
    names = [each for each in await streams(servers) if each.startswith(log_stream("lab"))]
    await equal(servers, names)
    for each in (*logs, fresh):
        await each.close()
    trial.counts["acknowledged"] = len(trial.acknowledged)
    return trial.counts


async def streams(servers: Cluster) -> list[str]:
    """Return the names of all streams."""
    broker = await Broker.open(servers.options("admin"))
    try:
        return sorted((await api(broker, "STREAM.NAMES")).get("streams") or [])
    finally:
        await broker.close()


async def newest(servers: Cluster) -> str:
    """Return the stream of the newest generation."""
    while True:
        with contextlib.suppress(BusError, NoAnswer):
            names = [each for each in await streams(servers) if each.startswith(log_stream("lab"))]
            return max(names, key=lambda name: int(name.partition("_log-lab_")[2] or 0))
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("fault", sorted(FAULTS))
async def test_a_rolling_log_survives(tmp_path: Path, evidence: Evidence, rounds: Any, fault: str):
    """Nothing acknowledged is lost or doubled, no read is stale, and all replicas end equal."""
    seed = random.getrandbits(32)
    with cluster.running(tmp_path / "cluster", linked=True) as servers:
        counts = await survive(servers, FAULTS[fault], rounds(3, 50), seed, tmp_path / "archive")
    evidence.record(f"cluster.rolls.{fault}", **counts)
    assert not counts["stale"], (seed, counts)
