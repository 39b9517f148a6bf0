"""Reads that do not fit into one answer of the server."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream import push as pushing
from hansard.bus.jetstream.push import Push
from hansard.bus.log import COMMIT_BYTES_MAX, AtPosition, Stored
from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from tests.bus.brokers import Nats, append, running, until

LONG = AgentStream("r1", "researcher", "alice")
LENGTH = 5_500
"""More commits than one answer (1,024), and than one request by guessed names, reads."""

WIDE = 300
"""More streams than one request names."""


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    """Yield a server with a long stream and a wide run."""

    async def fill(nats: Nats) -> None:
        log = await nats.log("lab", "relaxed")
        await log.append_bulk(append(LONG, i) for i in range(1, LENGTH + 1))
        await log.append_bulk(
            append(KeyStream("wide", f"k{i}"), version)
            for version in (1, 2, 3, 4)
            for i in range(WIDE)
        )
        await log.close()

    with running(tmp_path_factory.mktemp("nats"), sync='"10ms"') as nats:
        asyncio.run(fill(nats))
        yield nats


@pytest.fixture
async def log(nats: Nats) -> AsyncIterator[JetStreamLog]:
    """Open a log."""
    log = await nats.log("lab", "relaxed")
    yield log
    await log.close()


def versions(commits: list[Stored]) -> list[int]:
    """Return the first versions of commits."""
    return [stored.commit.version for stored in commits]


class TestReads:
    @pytest.mark.fast(cases=2)
    @pytest.mark.slow(cases=3)
    @pytest.mark.parametrize(
        ("after", "to"),
        [
            (0, None),
            (1, None),
            (1_000, None),
            (5_000, None),
            (LENGTH, None),
            (0, 10),
            (0, 1_024),
            (0, 4_100),
            (100, 4_200),
            (5_400, 9_999),
        ],
    )
    async def test_a_long_stream(self, log: JetStreamLog, after: int, to: int | None):
        """Each way reads any part of a long stream in order."""
        expected = list(range(after + 1, min(to or LENGTH, LENGTH) + 1))
        assert versions(await log.read(LONG, after=after, to=to)) == expected

    async def test_a_long_stream_to_a_position(self, log: JetStreamLog):
        """Up to a point in it."""
        assert versions(await log.read(LONG, up_to=AtPosition(1_500))) == list(range(1, 1_501))
        assert versions(await log.read(LONG, after=1_400, up_to=AtPosition(1_500)))[-1] == 1_500

    async def test_streams_over_the_limit(self, log: JetStreamLog):
        """Several streams of more than 1,024 commits together are one consistent read."""
        streams: list[StreamId] = [LONG, KeyStream("wide", "k0")]
        commits = await log.read_streams(streams)
        assert len(commits) == LENGTH + 4
        assert [s.position for s in commits] == sorted(s.position for s in commits)
        assert len(await log.read_streams(streams, AtPosition(2_000))) == 2_000

    async def test_many_streams(self, log: JetStreamLog):
        """More streams than one request names."""
        streams: list[StreamId] = [KeyStream("wide", f"k{i}") for i in range(WIDE)]
        commits = await log.read_streams(streams)
        assert versions(commits) == [1] * WIDE + [2] * WIDE + [3] * WIDE + [4] * WIDE
        half = AtPosition(LENGTH + 2 * WIDE)
        assert versions(await log.read_streams(streams, half)) == [1] * WIDE + [2] * WIDE

    async def test_a_wide_run(self, log: JetStreamLog):
        """A run of more than a thousand commits."""
        commits = await log.read_run("wide")
        assert [s.position for s in commits] == list(range(LENGTH + 1, LENGTH + 4 * WIDE + 1))
        assert len(await log.read_run("wide", AtPosition(LENGTH + 7))) == 7

    @pytest.mark.slow
    async def test_large_commits(self, log: JetStreamLog):
        """Commits too large for one answer are read in several."""
        stream = WorkspaceStream("large", "one")
        text = "x" * (COMMIT_BYTES_MAX - 1_000)
        await log.append_bulk(append(stream, i, text=text) for i in range(1, 81))  # 20 MB
        assert versions(await log.read(stream)) == list(range(1, 81))
        assert versions(await log.read(stream, after=20)) == list(range(21, 81))
        reads = await asyncio.gather(*(log.read(stream) for _ in range(8)))
        assert all(len(commits) == 80 for commits in reads)

    @pytest.mark.slow
    async def test_a_reader_that_does_not_read(self, log: JetStreamLog):
        """The queue of a slow follower is bounded, however long the log is."""
        stream = WorkspaceStream("large", "slow")
        text = "x" * (COMMIT_BYTES_MAX - 1_000)
        before = await log.head()
        await log.append_bulk(append(stream, i, text=text) for i in range(1, 401))  # 100 MB
        push = Push(log._reads, "hansard_log-lab", "hansard.lab.large.slow.*", before)
        chunks = push.chunks()
        taken = len(await anext(chunks))
        await asyncio.sleep(0.5)
        waiting = sum(len(message.body) for message in push._buffer)
        assert waiting < 40 * 1024 * 1024
        async for chunk in chunks:
            taken += len(chunk)
            if taken == 400:
                break
        await chunks.aclose()

    async def test_missing_messages(self, log: JetStreamLog, monkeypatch: pytest.MonkeyPatch):
        """A follower that did not get a message asks again from there."""
        monkeypatch.setattr(pushing, "HEARTBEAT_S", 0.2)
        original = Push._take
        dropped: list[str] = []

        def lossy(self: Push, reply: str, headers: bytes, subject: str, data: bytes) -> None:
            if data and subject.endswith((".77", ".78", f".{LENGTH}")) and subject not in dropped:
                dropped.append(subject)
                return
            original(self, reply, headers, subject, data)

        monkeypatch.setattr(Push, "_take", lossy)
        async with asyncio.timeout(60):
            positions = [stored.position async for stored in log.follow(until=LENGTH)]
        assert positions == list(range(1, LENGTH + 1))
        assert len(dropped) == 3

    async def test_a_reader_that_is_cancelled_while_it_begins(self, nats: Nats, log: JetStreamLog):
        """Its subscription ends with it, not with the connection."""
        subscriptions = log._reads._nc._subs
        before = set(subscriptions)
        reading = Push(log._reads, "hansard_log-lab", "hansard.lab.large.>", 0)
        chunks = reading.chunks()
        first = asyncio.ensure_future(anext(chunks))
        nats.freeze()  # the consumer is asked for, and there is no answer
        try:
            await until(lambda: asyncio.sleep(0, len(subscriptions) > len(before)))
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        finally:
            nats.go_on()
        assert set(subscriptions) == before

    async def test_a_reader_that_begins_beyond_the_end(self, log: JetStreamLog):
        """The reader gets an error, and leaves no subscription."""
        subscriptions = log._reads._nc._subs
        before = set(subscriptions)
        reading = Push(log._reads, "hansard_log-lab", "hansard.lab.large.>", 10**9)
        with pytest.raises(Corrupt, match="stream 'hansard_log-lab'"):
            await anext(reading.chunks())
        assert set(subscriptions) == before

    async def test_runs(self, log: JetStreamLog):
        """Many runs are listed, long names among them."""
        runs = [f"run {i} " + "x" * (200 if i % 5 == 0 else 0) for i in range(1_500)]
        await log.append_bulk(append(RunStream(run)) for run in runs)
        assert sorted(await log.runs()) == sorted(runs)
