"""A log is rolled under writers, and roller and broker are killed at every step."""

import asyncio
import contextlib
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from hansard.bus.errors import BusError, Conflict
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.wire import NoAnswer
from hansard.bus.log import Stored, StreamAt
from hansard.domain.ids import KeyStream, StreamId
from tests.archive.stores import S3, s3_server
from tests.bus.brokers import Nats, append, running, until
from tests.bus.test_generations import rolled as roll_once

PROGRAM = Path(__file__).parent / "programs/roller.py"
WRITER = Path(__file__).parent / "programs/roll_writer.py"
WRITERS = 16
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
S3_REQUESTS = 12
"""Requests of a roll to the store, at least."""


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

    async def write(self, log: JetStreamLog, reader: JetStreamLog, name: str) -> None:
        """Append to a stream of its own and to shared ones, also two at once; `reader` is another
        client, which must see each commit that was acknowledged.
        """
        chance = random.Random(name)
        own = KeyStream("own", name)
        while not self.over.is_set():
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


async def writing(nats: Nats) -> asyncio.subprocess.Process:
    """Start a writer in a process of its own."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, WRITER, str(nats.port), "lab", SHARED[0].key),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def rolled(nats: Nats, place: Path | str, at: int | str, killed: S3 | None = None) -> None:
    """Run the roller, killed at a step by its name or after a number of requests, which may be more
    than it sends; or with the S3 server killed there, and started again once the roller ended.
    """
    request = STEPS[at] if isinstance(at, str) else str(at)
    server = [str(killed.process.pid)] if killed is not None and killed.process else []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(PROGRAM), str(nats.port), "lab", str(place), request, "1", *server),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await asyncio.wait_for(process.communicate(), 120)
    if killed is not None:
        await asyncio.to_thread(killed.restart)
        assert b"ArchiveUnavailable" in err, err.decode()
        return
    ends = (-signal.SIGKILL,) if isinstance(at, str) else (0, -signal.SIGKILL) if at else (0,)
    assert process.returncode in ends, err.decode()


async def killed_at(
    nats: Nats,
    place: Path | str,
    steps: Sequence[int | str],
    *,
    broker: bool = False,
    s3: S3 | None = None,
) -> int:
    """Write with 16 writers while rollers are killed at these steps, and the broker at some, or the
    S3 server instead of the rollers; roll once more, and return the number of the open generation.

    After each kill the next roller waits until the open generation has commits, so that it rolls.
    """
    log = await nats.log()
    others = [await nats.log() for _ in range(3)]
    ledger, seen = Ledger(), list[int]()

    async def follow() -> None:
        async for stored in others[0].follow(0):
            seen.append(stored.position)

    following = asyncio.create_task(follow())
    writers = [
        asyncio.create_task(
            ledger.write([log, *others][number % 4], [log, *others][-number % 4], f"w{number}")
        )
        for number in range(WRITERS)
    ]
    paused, lines = await writing(nats), list[str]()
    for number, step in enumerate(steps):
        if number % 4 == 0:
            assert paused.stdout is not None
            lines.append((await asyncio.wait_for(paused.stdout.readline(), 120)).decode())
            assert lines[-1]
            paused.send_signal(signal.SIGSTOP)
        elif number % 4 == 3:  # two rolls or more later
            paused.send_signal(signal.SIGCONT)
        rolling = asyncio.create_task(rolled(nats, place, step, s3))
        if broker and number % 2:
            await asyncio.sleep(random.Random(step).random())
            nats.kill()
            nats.start()
        await rolling
        # More than the commits that may have been acknowledged, and not yet counted, at the kill.
        enough = len(ledger.acknowledged) + 3 * WRITERS

        async def written(enough: int = enough) -> bool:
            return len(ledger.acknowledged) > enough or any(w.done() for w in writers)

        await until(written)
    ledger.over.set()
    paused.send_signal(signal.SIGCONT)
    out, err = await asyncio.wait_for(paused.communicate(b""), 60)
    assert paused.returncode == 0, err.decode()
    lines += out.decode().splitlines()
    await asyncio.wait_for(asyncio.gather(*writers), 60)
    await rolled(nats, place, 0)
    head = await log.head()
    await until(lambda: _is(seen, head))
    following.cancel()
    assert seen == list(range(1, head + 1))
    fresh = await nats.log()
    for reader in (fresh, others[1]):
        await ledger.check(reader)
    for line in lines:
        id_, position = line.split()
        assert (await fresh.at(int(position))).commit.id == id_
    opened = fresh._generations.view.open
    for each in (log, *others, fresh):
        await each.close()
    assert opened is not None
    return opened.number


async def _is(seen: list[int], head: int) -> bool:
    return len(seen) >= head


async def test_a_killed_roller_loses_nothing(nats: Nats, tmp_path: Path):
    """Whichever step it is killed at, the next one or a writer finishes it.

    Each roller that is killed after the seal has begun one generation, and so does the last one.
    """
    number = await killed_at(nats, tmp_path / "archive", [*STEPS])
    assert number == len(STEPS) + 1


@pytest.mark.thorough(quick="test_a_killed_roller_loses_nothing")
@pytest.mark.timeout(3_600)
async def test_roller_and_broker_are_killed_at_every_step(nats: Nats, tmp_path: Path):
    """The same at each request of a roll, with the broker killed at every second."""
    assert await killed_at(nats, tmp_path / "archive", [*range(1, 57)], broker=True) >= 30


@pytest.mark.thorough(quick="test_a_killed_roller_loses_nothing")
async def test_a_roller_is_killed_at_each_request_to_s3(
    nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The same with a real S3 server as the archive."""
    with s3_server(tmp_path) as server:
        server.lead(monkeypatch)
        assert await killed_at(nats, server.url, [*range(8, 32, 2)]) >= 8


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param(["store"], id="quick", marks=pytest.mark.slow),
        pytest.param(
            range(1, S3_REQUESTS + 1),
            id="all",
            marks=pytest.mark.thorough(
                quick="faults/test_rolls.py::test_an_s3_server_killed_in_a_roll_loses_nothing[quick]"
            ),
        ),
    ],
)
async def test_an_s3_server_killed_in_a_roll_loses_nothing(
    nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requests: Sequence[int | str]
):
    """Whichever request of a roll it is killed at, writers go on, and the next roll finishes it."""
    with s3_server(tmp_path) as server:
        server.lead(monkeypatch)
        assert await killed_at(nats, server.url, requests, s3=server) >= len(requests)


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
