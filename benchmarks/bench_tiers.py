"""How fast is a log that was rolled and archived, against the same log that never was?

Two workspaces get the same commits; one is rolled ten times, its generations are stored on a real
S3 server (SeaweedFS on loopback) and deleted from the broker. Random reads of both must be equal:
whole streams, ends of streams, single positions, whole runs. Then a stream of 40 commits is read
from memory (L1), from the disk of this machine (L2) and from the store (L3). Goals: all reads
equal; L1 under 0.1 ms, L2 under 1 ms, L3 under 50 ms (medians).
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from benchmarks import _world
from benchmarks._report import Findings, benchmark, say, sized, summary
from benchmarks._world import World
from hansard.broker.lease import peek
from hansard.bus import archive, subjects
from hansard.bus.archive.archived import WorkspaceArchive
from hansard.bus.archive.store import ObjectStore
from hansard.bus.archive.tiers import Tiers
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.generations import listed
from hansard.bus.jetstream.roll import tend
from hansard.bus.log import Append, RunStreams, Stored
from hansard.bus.sources import Archived, Source
from hansard.domain.ids import AgentStream
from tests.archive.stores import s3_server

GENERATIONS = 10
VERSIONS = 40
STREAMS_A_RUN = 2
WHOLE, ROLLED = "whole", "rolled"
L1_MS, L2_MS, L3_MS = 0.1, 1.0, 50.0


def streams_of(generation: int, commits: int) -> list[AgentStream]:
    """Return the streams that a generation begins."""
    count = max(2, commits // GENERATIONS // VERSIONS)
    return [
        _world.agent_stream(
            f"a{number % STREAMS_A_RUN}", f"run-{generation}-{number // STREAMS_A_RUN}"
        )
        for number in range(count)
    ]


def commits_of(streams: list[AgentStream]) -> list[Append]:
    """Return their commits, the streams in turns."""
    made = [list(_world.appends(stream, 1, VERSIONS)) for stream in streams]
    return [commits[version] for version in range(VERSIONS) for commits in made]


def memory_mb(place: World) -> float:
    """Return the resident memory of the broker, in MB."""
    info = peek(place.folder)
    assert info is not None
    text = Path(f"/proc/{info.server_pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1_000


async def filled(place: World, url: str, commits: int, found: Findings) -> list[AgentStream]:
    """Write both workspaces, and roll one of them after each part; return the streams."""
    whole, rolled = await place.log(WHOLE), await place.log(ROLLED)
    admin = await Broker.open(place.broker.admin or place.broker.runtime)
    streams: list[AgentStream] = []
    memory: list[float] = []
    waits: list[float] = []
    store_s = 0.0
    for number in range(GENERATIONS):
        new = streams_of(number, commits)
        appends = commits_of(new)
        for log in (whole, rolled):
            assert await log.append_bulk(appends) == len(appends)
        began = time.perf_counter()
        done = await tend(admin, ROLLED, None, archive.archive_at(ROLLED, url), keep_s=0)
        store_s += time.perf_counter() - began
        waits.append(done.roll.waited_s * 1_000)
        streams += new
        memory.append(memory_mb(place))
        say(f"{len(streams) * VERSIONS:,} commits, {memory[-1]:.0f} MB, waited {waits[-1]:.0f} ms")
    count = len(streams) * VERSIONS
    found.results["commits in each log"] = count
    found.results["no commit accepted during a roll"] = summary(waits)
    found.results["commits/s stored and verified"] = round(count / store_s)
    segments = await archive.archive_at(ROLLED, url).segments(1, count)
    size = sum(each.size for each in segments) / sum(each.message_bytes for each in segments)
    found.ratios["bytes in the archive / bytes of the bodies"] = size
    found.results["broker's memory, both logs, after each roll (MB)"] = [round(m) for m in memory]
    for each in (whole, rolled):
        await each.close()
    await admin.close()
    return streams


async def equal(place: World, streams: list[AgentStream], reads: int) -> bool:
    """Return whether random reads of both logs are equal."""
    whole, rolled = await place.log(WHOLE), await place.log(ROLLED)
    rng = random.Random(47)
    end = await whole.head()
    kinds: list[Callable[[JetStreamLog, AgentStream, int], Awaitable[object]]] = [
        lambda log, stream, _: log.read(stream),
        lambda log, stream, number: log.read(stream, after=number % VERSIONS),
        lambda log, stream, _: log.last(stream),
        lambda log, _, number: log.at(number),
        lambda log, stream, _: log.read_run(stream.run),
        lambda log, stream, _: log.last(RunStreams(stream.run)),
    ]
    same = await whole.head() == await rolled.head()
    for _ in range(reads):
        read, stream = rng.choice(kinds), rng.choice(streams)
        number = rng.randrange(1, end + 1)
        one, two = await read(whole, stream, number), await read(rolled, stream, number)
        same = same and plain(one) == plain(two)
    same = same and sorted(await whole.runs()) == sorted(await rolled.runs())
    for log in (whole, rolled):
        await log.close()
    return same


def plain(answer: object) -> list[tuple[object, ...]]:
    """Return what must be equal of commits: all but the time of the broker."""
    commits = answer if isinstance(answer, list) else [answer]
    return [(each.position, each.stream, each.body) for each in commits if isinstance(each, Stored)]


async def entries_of(place: World, workspace: str) -> list[Archived]:
    """Return the list of archived generations."""
    admin = await Broker.open(place.broker.admin or place.broker.runtime)
    try:
        return (await listed(Direct(admin), workspace))[0]
    finally:
        await admin.close()


async def read_stream(pattern: str, source: Source) -> None:
    """Read a stream."""
    assert await source.many([pattern])


async def tiers(
    place: World, url: str, workspace: str, streams: list[AgentStream], found: Findings
) -> None:
    """Time reads of one stream from each tier, through the source of the archive."""
    entries = await entries_of(place, workspace)
    rng = random.Random(48)
    times: dict[str, list[float]] = {"L1": [], "L2": [], "L3": []}
    with tempfile.TemporaryDirectory(prefix="hansard-bench-") as folder:
        for number in range(sized(100, 5)):
            read = partial(read_stream, f"{subjects.prefix(workspace, rng.choice(streams))}.*")
            cache = Path(folder) / str(number)
            for tier in ("L3", "L2"):
                opened = Tiers(ObjectStore(url), cache, 1 << 26, 1 << 30)
                source = WorkspaceArchive(opened, workspace).source(entries)
                await source.many([f"hansard.{workspace}.run.none.life.*"])  # manifests and footers
                times[tier].append((await _world.timed(partial(read, source)))[0])
                if tier == "L2":
                    times["L1"].append((await _world.timed(partial(read, source)))[0])
    for tier, bound in (("L1", L1_MS), ("L2", L2_MS), ("L3", L3_MS)):
        measured = summary(times[tier])
        found.results[f"{tier}: a stream of some {VERSIONS} commits"] = measured
        found.goals[f"{tier} < {bound:g} ms"] = measured.median_ms < bound


async def measure(found: Findings) -> None:
    """Fill, compare, and time."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hansard-bench-")))
        server = stack.enter_context(s3_server(folder))
        server.lead(stack.enter_context(pytest.MonkeyPatch.context()))
        async with _world.world("relaxed") as place:
            streams = await filled(place, server.url, sized(200_000, 4_000), found)
            reads = sized(1_000, 30)
            found.goals[f"{reads:,} random reads are equal"] = await equal(place, streams, reads)
            await tiers(place, server.url, ROLLED, streams, found)


if __name__ == "__main__":
    benchmark(measure, __doc__)
