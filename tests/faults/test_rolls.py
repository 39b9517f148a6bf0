"""A log is rolled under writers, and roller and broker are killed at every step."""

import asyncio
import contextlib
import itertools
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Self

import pytest

from hansard.bus.errors import AppendUnknown, ArchiveUnavailable, BusError, Conflict
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.wire import NoAnswer
from hansard.bus.log import Stored, StreamAt
from hansard.domain.ids import KeyStream, StreamId
from tests.archive.stores import S3, s3_server
from tests.bus.brokers import Nats, append, running, until
from tests.bus.test_generations import rolled as roll_once
from tests.conftest import THOROUGH
from tests.evidence import Evidence
from tests.faults._warm import python

PROGRAM = Path(__file__).parent / "programs/roller.py"
WRITER = Path(__file__).parent / "programs/roll_writer.py"
WRITERS = 16 if THOROUGH else 6
SHARED = [KeyStream("shared", f"k{number}") for number in range(3)]
STEPS = {
    "list the first": "-1",
    "open the second": "STREAM.UPDATE.hansard_log-lab_2",
    "create": "STREAM.CREATE.hansard_log-lab_",
    "store": "lab/segments/",
    "list as archived": "hansard_tiers.lab.0",
    "guard": "STREAM.CREATE.hansard_guard-lab",
    "delete": "STREAM.DELETE.hansard_log-lab",
}
"""The request of each step of a roll after the seal."""
REQUESTS, S3_REQUESTS = 56, 12
"""Requests of a roll, about as many at most; and of those to the store."""

Server = Nats | S3 | None
"""What is killed: the broker, the server of the store, or the roller."""


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    """Yield a server of its own, which may be killed."""
    with running(tmp_path / "nats") as server:
        yield server


class Ledger:
    """The commits that were acknowledged, by writers that go on until they are stopped."""

    def __init__(self) -> None:
        self.acknowledged: list[Stored] = []
        self.over = asyncio.Event()
        self.refused = 0

    async def write(self, log: JetStreamLog, reader: JetStreamLog, name: str) -> None:
        """Append to a stream of its own and to shared ones, also two at once; `reader` is another
        client, which must see each commit that was acknowledged.

        After a roll, the first append to a stream reads where that ends in the archive: it is
        refused, and repeated, while the store is away; or its outcome is unknown, if the broker was
        killed before.
        """
        chance = random.Random(name)
        while not self.over.is_set():
            try:
                await self._round(log, reader, KeyStream("own", name), chance)
            except (ArchiveUnavailable, AppendUnknown):
                self.refused += 1
                await asyncio.sleep(0.1)

    async def _round(
        self, log: JetStreamLog, reader: JetStreamLog, own: KeyStream, chance: random.Random
    ) -> None:
        contended = chance.choice(SHARED)
        for stream in (own, contended):
            stored = await self._next(log, stream)
            newest = await reader.last(stream)
            if stored is not None:
                assert newest is not None
                assert newest.position >= stored.position
        if chance.random() < 0.2:
            await self._both(log, own, contended)

    async def _next(self, log: JetStreamLog, stream: StreamId) -> Stored | None:
        newest = await log.last(stream)
        version = newest.commit.version + 1 if newest is not None else 1
        try:
            stored = await log.append(append(stream, version))
        except Conflict:
            assert (await log.last(stream)).commit.version >= version  # type: ignore[union-attr]  # it has one
            return None
        self.acknowledged.append(stored)
        return stored

    async def _both(self, log: JetStreamLog, own: StreamId, contended: StreamId) -> None:
        """Append to both, if nobody else appended to the contended one since it was read."""
        first, second = await log.last(own), await log.last(contended)
        if first is None or second is None:
            return
        one = append(own, first.commit.version + 1, expected=StreamAt(contended, second.position))
        two = append(contended, second.commit.version + 1)
        with contextlib.suppress(Conflict):
            self.acknowledged += await log.append_all([one, two])

    async def check(self, log: JetStreamLog) -> None:
        """Compare the whole log with what was acknowledged: nothing lost, nothing doubled."""
        whole = [stored async for stored in log.follow(0, until=await log.head())]
        assert [each.position for each in whole] == list(range(1, len(whole) + 1))
        by_id = {each.commit.id: each for each in whole}
        assert len(by_id) == len(whole)
        for each in self.acknowledged:
            assert by_id[each.commit.id].position == each.position
        versions = Counter((each.stream, each.commit.version) for each in whole)
        assert set(versions.values()) == {1}
        for stream in {each.stream for each in whole}:
            read = await log.read(stream)
            assert [each.commit.version for each in read] == list(range(1, len(read) + 1))
            assert [each.body for each in read] == [
                each.body for each in whole if each.stream == stream
            ]


class Suspended:
    """A writer in a process of its own, no fork, suspended again and again, over two rolls each."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []
        """The id and the position of each commit that was acknowledged."""
        self._until: int | None = None
        self._reading = asyncio.create_task(self._read())
        self.times = 0

    @classmethod
    async def start(cls, nats: Nats) -> Self:
        """Start it."""
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, WRITER, str(nats.port), "lab", SHARED[0].key),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def turn(self, generation: int) -> None:
        """Suspend it once it has written more, or let it continue two generations later."""
        if self._until is None:
            count = len(self.lines)

            async def has_written() -> bool:
                return len(self.lines) > count

            await until(has_written, 120)
            self._process.send_signal(signal.SIGSTOP)
            self._until = generation + 2
        elif generation >= self._until:
            self._process.send_signal(signal.SIGCONT)
            self._until = None
            self.times += 1

    async def end(self) -> None:
        """Let it continue, and end."""
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        self._process.stdin.close()
        await asyncio.wait_for(self._reading, 60)
        assert await asyncio.wait_for(self._process.wait(), 60) == 0

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode())


async def rolled(nats: Nats, place: Path | str, at: int | str = 0, server: Server = None) -> bool:
    """Run the roller, which is killed at a step by its name or after a number of requests, which
    may be more than it sends (0: not killed); or a server is killed there, and started again.
    Return whether the kill took place.
    """
    arguments = [str(nats.port), "lab", str(place), STEPS[at] if isinstance(at, str) else str(at)]
    if server is not None and server.process is not None:
        arguments += [str(server.process.pid), "broker" if server is nats else "store"]
    process = await asyncio.create_subprocess_exec(
        *(python(), str(PROGRAM), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    ending = asyncio.create_task(process.communicate())
    if isinstance(server, Nats):

        async def is_over() -> bool:
            return ending.done() or server.has_ended

        await until(is_over, 120)
        killed = server.has_ended
        server.kill()
        await asyncio.to_thread(server.start)
        _, err = await asyncio.wait_for(ending, 120)
        assert not process.returncode or b"Unreachable" in err or b"NoAnswer" in err, err.decode()
        return killed
    _, err = await asyncio.wait_for(ending, 120)
    if server is not None:
        killed = server.has_ended
        await asyncio.to_thread(server.restart)
        assert process.returncode == killed, err.decode()
        assert not killed or b"ArchiveUnavailable" in err, err.decode()
        return killed
    if not at and b"ArchiveUnavailable" in err:
        await asyncio.sleep(0.5)  # a store that answers again may not offer all its objects yet
        return await rolled(nats, place)
    assert process.returncode in (0, -signal.SIGKILL), err.decode()
    return process.returncode != 0


async def survive(
    nats: Nats,
    place: Path | str,
    kills: Iterable[tuple[int | str, Server]],
    rolls: int | None = None,
) -> Counter[str]:
    """Write while rollers or servers are killed at these steps, to the end or until
    the log has been rolled so often; roll once more, and return what was counted.

    After each kill the next roller waits until the open generation has commits, so that it rolls.
    """
    log = await nats.log()
    others = [await nats.log() for _ in range(3)]
    ledger, seen, counts = Ledger(), list[int](), Counter[str]()

    async def follow() -> None:
        while True:
            with contextlib.suppress(ArchiveUnavailable):
                async for stored in others[0].follow(len(seen)):
                    seen.append(stored.position)
            await asyncio.sleep(0.1)

    def generation() -> int:
        newest = log._generations.view.open
        return newest.number if newest is not None else 0

    following = asyncio.create_task(follow())
    writers = [
        asyncio.create_task(
            ledger.write([log, *others][number % 4], [log, *others][-number % 4], f"w{number}")
        )
        for number in range(WRITERS)
    ]
    suspended = await Suspended.start(nats)
    for at, server in kills:
        if rolls is not None and generation() >= rolls:
            break
        await suspended.turn(generation())
        victim = "broker" if server is nats else "store" if server is not None else "roller"
        counts[f"kills_{victim}"] += await rolled(nats, place, at, server)
        # More than the commits that may have been acknowledged, and not yet counted, at the kill.
        enough = len(ledger.acknowledged) + 3 * WRITERS

        async def written(enough: int = enough) -> bool:
            return len(ledger.acknowledged) > enough or any(w.done() for w in writers)

        await until(written, 120)
        for writer in writers:
            if writer.done():
                writer.result()
    ledger.over.set()
    await suspended.end()
    await asyncio.wait_for(asyncio.gather(*writers), 60)
    await rolled(nats, place)
    head = await log.head()
    await until(lambda: _is(seen, head))
    following.cancel()
    assert seen == list(range(1, head + 1))
    fresh = await nats.log()
    for reader in (fresh, others[1]):
        await ledger.check(reader)
    for line in suspended.lines:
        id_, position = line.split()
        assert (await fresh.at(int(position))).commit.id == id_
    counts.update(rolls=generation(), commits=head, suspensions=suspended.times)
    counts["refused"] = ledger.refused
    counts["acknowledged"] = len(ledger.acknowledged) + len(suspended.lines)
    for each in (log, *others, fresh):
        await each.close()
    return counts


async def _is(seen: list[int], head: int) -> bool:
    return len(seen) >= head


@pytest.mark.later
async def test_a_killed_roller_loses_nothing(nats: Nats, tmp_path: Path):
    """Whichever step it is killed at, the next one or a writer finishes it.

    Each roller that is killed after the seal has begun one generation, and so does the last one.
    """
    counts = await survive(nats, tmp_path / "archive", [(step, None) for step in STEPS])
    assert counts["rolls"] == len(STEPS) + 1
    assert not counts["refused"]


@pytest.mark.thorough(quick="test_a_killed_roller_loses_nothing")
@pytest.mark.timeout(3 * 3_600)
async def test_roller_broker_and_s3_are_killed_at_every_step(
    nats: Nats,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    evidence: Evidence,
    rounds: Callable[[int, int], int],
):
    """At each request of a roll, until the log has been rolled 20 times, or as often as ROUNDS says
    up to 200.
    """
    number = rounds(20, 200)
    with s3_server(tmp_path) as server:
        server.lead(monkeypatch)
        kills: Iterator[tuple[int, Server]] = itertools.chain.from_iterable(
            (
                (1 + turn % REQUESTS, None),
                (1 + turn % REQUESTS, nats),
                (1 + turn % S3_REQUESTS, server),
                (0, None),  # else sealed streams pile up, and each request is one to list them
            )
            for turn in itertools.count()
        )
        counts = await survive(nats, server.url, kills, number)
    evidence.record("rolls.killed", **counts)
    assert counts["rolls"] >= number
    assert min(counts[f"kills_{each}"] for each in ("roller", "broker", "store")) > 0


@pytest.mark.thorough(quick="test_a_killed_roller_loses_nothing")
async def test_a_broker_killed_in_batches_stores_each_commit_once(nats: Nats, tmp_path: Path):
    """Two clients load the same commits in batches, while the log rolls and the broker is killed.

    A server completes a batch at its start that it had half written, but not in a sealed stream.
    """
    loaded = asyncio.Event()
    items = [append(SHARED[i % len(SHARED)], i // len(SHARED) + 1) for i in range(18_000)]

    async def load(log: JetStreamLog) -> None:
        for start in range(0, len(items), 300):
            for _ in range(50):
                with contextlib.suppress(BusError, NoAnswer):
                    await log.append_bulk(items[start : start + 300])
                    break
            else:
                pytest.fail(f"the batch at {start} was refused 50 times")

    async def roll() -> None:
        while not loaded.is_set():
            await asyncio.sleep(0.05)
            with contextlib.suppress(BusError, NoAnswer):
                await roll_once(nats, "bulk", tmp_path / "archive")

    async def kill() -> None:
        chance = random.Random(1)
        while not loaded.is_set():
            await asyncio.sleep(0.1 + chance.random() * 0.4)
            nats.kill()
            await asyncio.sleep(0.1)
            await asyncio.to_thread(nats.start)

    logs = [await nats.log("bulk") for _ in range(2)]
    beside = [asyncio.create_task(each) for each in (roll(), kill())]
    await asyncio.gather(*map(load, logs))
    loaded.set()
    await asyncio.gather(*beside)
    log = await nats.log("bulk")
    ids = [stored.commit.id async for stored in log.follow(0, until=await log.head())]
    assert Counter(ids) == Counter(item.commit.id for item in items)
    for each in (*logs, log):
        await each.close()
