"""Group commit: shared batches, and isolation of each commit's fault."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hansard.bus.errors import Conflict
from hansard.bus.jetstream import JetStreamLog, _append
from hansard.bus.jetstream.direct import publish, publish_all
from hansard.bus.log import NothingUnder, Stored
from hansard.domain.ids import AgentStream, KeyStream
from tests.bus.brokers import Nats, append, running, until


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nats]:
    """Yield one server for these tests, each of which has a workspace of its own."""
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


class Seen:
    """Record of the publishing: sizes of batches, number of single messages."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[str]] = []
        self.singles: list[str] = []
        self.at_once = 0
        self.most_at_once = 0

        async def single(broker: Any, subject: str, *rest: Any) -> Any:
            self.singles.append(subject)
            return await publish(broker, subject, *rest)

        async def group(broker: Any, messages: Any, known: Any) -> int:
            self.batches.append([subject for subject, _, _ in messages])
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                return await publish_all(broker, messages, known)
            finally:
                self.at_once -= 1

        monkeypatch.setattr(_append, "publish", single)
        monkeypatch.setattr(_append, "publish_all", group)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Record the publishing."""
    return Seen(monkeypatch)


async def write(log: JetStreamLog, name: str, number: int) -> list[Stored]:
    """Append to one stream, one commit after the other."""
    return [await log.append(append(KeyStream("r1", name), i)) for i in range(1, number + 1)]


async def test_a_lone_caller(nats: Nats, seen: Seen):
    """One caller never pays for a batch."""
    log = await nats.log("lone")
    await write(log, "k", 20)
    assert (len(seen.singles), seen.batches) == (20, [])
    await log.close()


async def test_many_callers(nats: Nats, seen: Seen):
    """64 callers mostly share batches, one batch at a time; positions are right."""
    log = await nats.log("many")
    stored = await asyncio.gather(*(write(log, f"k{i}", 5) for i in range(64)))
    assert len(seen.singles) + sum(map(len, seen.batches)) == 320
    assert len(seen.singles) < 100
    assert seen.most_at_once == 1
    assert all(len(batch) >= _append.GROUP_MIN for batch in seen.batches)
    for commits in stored:
        for each in commits:
            assert (await log.at(each.position)).commit == each.commit
    await log.close()


async def test_relaxed_is_not_grouped(nats: Nats, seen: Seen):
    """Without an fsync per message there is no cost to share."""
    log = await nats.log("relaxed", "relaxed")
    await asyncio.gather(*(write(log, f"k{i}", 2) for i in range(64)))
    assert (len(seen.singles), seen.batches) == (128, [])
    await log.close()


async def test_a_loser_in_a_batch(nats: Nats, seen: Seen):
    """A commit that lost its race makes the batch fail, but no other commit."""
    log, rival = await nats.log("loser"), await nats.log("loser", "relaxed")
    await asyncio.gather(*(rival.append(append(KeyStream("r1", f"k{i}"), 1)) for i in (30, 50)))
    results = await asyncio.gather(
        *(log.append(append(KeyStream("r1", f"k{i}"), 1)) for i in range(80)),
        return_exceptions=True,
    )
    assert [i for i, each in enumerate(results) if isinstance(each, Conflict)] == [30, 50]
    assert sum(isinstance(each, Stored) for each in results) == 78
    assert seen.batches
    assert await log.head() == 80
    await log.close()
    await rival.close()


async def test_conditional_commits_go_alone(nats: Nats, seen: Seen):
    """A commit with a condition is never in a batch with others."""
    log = await nats.log("conditional")
    conditional = [AgentStream("r1", "role", f"a{i}") for i in range(30)]
    await asyncio.gather(
        *(write(log, f"k{i}", 2) for i in range(64)),
        *(log.append(append(s, 1, 1, NothingUnder("r1", s.agent))) for s in conditional),
    )
    batched = {subject for batch in seen.batches for subject in batch}
    assert seen.batches
    assert not any(".agent." in subject for subject in batched)
    assert sum(".agent." in subject for subject in seen.singles) == 30
    await log.close()


async def test_one_stream_twice(nats: Nats, seen: Seen):
    """Two commits of one stream are never in one batch, where one would fail the other."""
    log = await nats.log("twice")
    await asyncio.gather(
        *(log.append(append(KeyStream("r1", f"k{i % 40}"), 1 + i // 40)) for i in range(120))
    )
    for batch in seen.batches:
        streams = [subject.rpartition(".")[0] for subject in batch]
        assert len(streams) == len(set(streams))
    for i in range(40):
        commits = await log.read(KeyStream("r1", f"k{i}"))
        assert [stored.commit.version for stored in commits] == [1, 2, 3]
    assert await log.head() == 120
    await log.close()


@pytest.mark.later
async def test_cancelled_callers(nats: Nats, seen: Seen):
    """Callers that are cancelled in any state leave no turn behind: the log stays as fast."""
    log = await nats.log("cancelled")
    for delay in (0.0, 0.0005, 0.001, 0.003, 0.005):
        tasks = [asyncio.ensure_future(write(log, f"{delay}-{i}", 3)) for i in range(100)]
        await asyncio.sleep(delay)
        for task in tasks[::3]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(each, list) for each in results) == 66
    committer = log._committer

    async def at_rest() -> bool:
        return (committer._singles, len(committer._waiting), committer._batch) == (0, 0, None)

    await until(at_rest)
    await log.close()


async def test_closing_while_many_wait(tmp_path: Path):
    """Closing under load ends every append, one way or the other."""
    with running(tmp_path) as own:
        log = await own.log(append_timeout_s=1.0)
        tasks = [asyncio.ensure_future(write(log, f"k{i}", 50)) for i in range(64)]
        await asyncio.sleep(0.05)
        await log.close()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert not any(isinstance(each, asyncio.CancelledError) for each in results)
