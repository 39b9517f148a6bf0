"""Compute what a number of commits a day takes, from measured constants; measure them with --run.

    python -m benchmarks.capacity                 the table of docs/scale.md
    python -m benchmarks.capacity --run 5000000   so many commits, and what the table computes

`--run` writes sample runs to one workspace of a strict broker. A process of its own rolls the log
every 150,000 commits, at least ten times, stores it on a real S3 server and deletes it from the
broker. It reads at random after 1, 2 and 5 million commits and at the end, and compares what it
reads with what was written. `--minutes` ends the writing after so many; `--whole` also reads the
whole log at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest

from benchmarks import _runs, _world
from benchmarks._report import Findings, say, summary
from benchmarks._world import World
from benchmarks.bench_tiers import memory_mb, tiers
from hansard import settings
from hansard.bus.archive import archive_at
from hansard.bus.clock import Clock
from hansard.bus.commits import encode
from hansard.bus.errors import BusError
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.jetstream.roll import KEEP_S, Policy
from hansard.bus.log import Append, AtPosition, Stored
from hansard.client.opening import find_broker
from hansard.domain.ids import AgentStream, StreamId, WorkspaceStream
from hansard.service.rolling import tend
from tests.archive.stores import s3_server

DAY_S = 86_400
RATES = (10**5, 10**6, 10**7, 10**8, 10**9)
"""Commits a day."""

RUN_MAX = 10**5
"""Commits of a generation that `--run` has written: a larger one is on paper."""

SEGMENT_BYTES = 64 * 2**20
TABLES = 25

WORKSPACE = "capacity"
GENERATION, GENERATIONS = 150_000, 10
"""Most commits of a generation of `--run`, and the least number of generations."""

MARKS = (10**6, 2 * 10**6, 5 * 10**6)
"""Numbers of commits after which `--run` reads at random, as at its end."""

READS = 1_000
SAMPLES = 20_000
"""Commits that are kept, in whole runs, to compare with what is read."""

TOGETHER = 50
"""Runs written at the same time."""

WHOLE = "--whole"

LIVE_MAX = 3
"""Generations on the broker, the open one included, at which the writer waits for the archive."""

TEND_S = 2.0
"""Pause between two checks of the log, in seconds."""

CLOCK = Clock()


class Constants(msgspec.Struct, frozen=True):
    """Measured on 2 cores beside other work: docs/performance.md and `--run`."""

    base_mb: float = 80.0
    """Memory of a broker at work, without its commits."""
    commit_b: float = 600.0
    """Most memory of the broker a commit of a stream, in bytes, under load: Go's collector lets it
    double. Less is resident at rest: 220.
    """
    disk_b: float = 1_124.0
    """Bytes on the broker's disk a commit of 887 bytes, the mean of `_runs.log_of`."""
    archived_b: float = 114.0
    """Bytes of a segment a commit; text that repeats less takes more."""
    parquet_b: float = 41.0
    """Bytes of Parquet an event."""
    events: float = 1.86
    """Events a commit."""
    append_s: float = 8_770.0
    """Commits a second of one strict server, 64 writers."""
    project_s: float = 17_600.0
    """Events a second that one core projects."""
    store_s: float = 11_331.0
    """Commits a second that one core stores and verifies."""
    roll_ms: float = 20.0
    """Time without an accepted commit at a roll: 13 to 20 ms in twelve, at a load of 5."""
    generation: int = 1_000_000
    """Commits of a generation (HANSARD_ROLL_COMMITS)."""


class Row(msgspec.Struct, frozen=True):
    """What a number of commits a day takes."""

    commits_a_day: int
    servers: float
    generations: float
    memory_mb: float
    disk_gb: float
    archive_gb_a_year: float
    puts_a_day: float
    project_cores: float
    store_cores: float
    paused_s_a_day: float

    @property
    def was_run(self) -> bool:
        """True if a run of this size was made."""
        return self.commits_a_day <= RUN_MAX


def row(rate: int, c: Constants) -> Row:
    """Compute a row: the open generation, and the sealed one that is stored and kept meanwhile."""
    a_second = rate / DAY_S
    servers = max(1.0, a_second / c.append_s)
    generations = max(1.0, rate / c.generation)  # at least one a day: HANSARD_ROLL_HOURS
    size = min(rate, c.generation)
    kept = size + a_second * (KEEP_S + size / c.store_s)
    archived = rate * (c.archived_b + c.events * c.parquet_b)
    segments = max(generations, rate * c.archived_b / SEGMENT_BYTES)
    return Row(
        rate,
        servers,
        generations,
        servers * c.base_mb + kept * c.commit_b / 1e6,
        kept * c.disk_b / 1e9,
        archived * 365 / 1e9,
        2 * segments + generations * (TABLES + 1),
        a_second * c.events / c.project_s,
        a_second / c.store_s,
        generations * c.roll_ms / 1_000,
    )


def table(c: Constants | None = None) -> str:
    """Return the rows as Markdown."""
    heads = (
        "commits a day",
        "servers",
        "generations a day",
        "broker's memory",
        "broker's disk",
        "archive a year",
        "puts a day",
        "cores: tables; archive",
        "paused a day",
        "",
    )
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for rate in RATES:
        each = row(rate, c or Constants())
        cells = (
            f"10^{len(str(rate)) - 1}",
            f"{each.servers:,.1f}",
            f"{each.generations:,.0f}",
            f"{each.memory_mb:,.0f} MB",
            f"{each.disk_gb:,.1f} GB",
            f"{each.archive_gb_a_year:,.0f} GB",
            f"{each.puts_a_day:,.0f}",
            f"{each.project_cores:,.2f}; {each.store_cores:,.2f}",
            f"{each.paused_s_a_day:,.2f} s",
            "run" if each.was_run else "*on paper*",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


class Sample(msgspec.Struct, frozen=True):
    """A written commit and its position."""

    position: int
    append: Append


def runs_of(commits: int) -> Iterator[list[list[Append]]]:
    """Yield groups of runs, with so many commits in all. Later ones have the events of the first
    ones, in runs of other names: a segment compresses each run by itself.
    """
    runs = [list(_runs.one_run(number, None)) for number in range(TOGETHER)]
    size = sum(map(len, runs))
    for _ in range(-(-commits // size)):
        yield runs
        runs = [renamed(each) for each in runs]


def renamed(run: list[Append]) -> list[Append]:
    """Return the commits of another run with the same events."""
    name, commits = CLOCK.new_id(), list[Append]()
    for each in run:
        stream = each.stream
        if isinstance(stream, WorkspaceStream):
            stream = WorkspaceStream(stream.kind, name)
        else:
            stream = msgspec.structs.replace(stream, run=name)
        commits.append(Append(stream, msgspec.structs.replace(each.commit, id=CLOCK.new_id())))
    return commits


def together(runs: list[list[Append]]) -> list[Append]:
    """Return the commits of runs that are written at the same time."""
    return [each for turn in itertools.zip_longest(*runs) for each in turn if each is not None]


class Tended(msgspec.Struct):
    """What one process of `tend_once` did: commits stored in how many seconds, generations, the
    last position deleted from the broker, and the ms in which no commit was accepted.
    """

    commits: int = 0
    took_s: float = 0.0
    generations: int = 0
    deleted: int = 0
    waited_ms: float | None = None


def tend_once(folder: str, place: str, commits: int, ends: dict[int, int]) -> Tended:
    """Roll the log if it is due, archive and delete, as `hansard up` does, in a process of its own.
    `ends` has the last positions of earlier generations.
    """

    async def work() -> Tended:
        config = settings.load(
            {}, data_dir=folder, durability="strict", workspace=WORKSPACE, archive=place
        )
        broker = await find_broker(config)
        began = time.perf_counter()
        try:
            done = await tend(config, broker, Policy(commits), keep_s=0)
        finally:
            await broker.release()
        ends.update({each.generation: each.last for each in done.archived})
        return Tended(
            sum(each.messages for each in done.archived),
            time.perf_counter() - began,
            len(done.archived),
            max((ends[each] for each in done.deleted), default=0),
            done.roll.waited_s * 1_000 if done.roll.sealed else None,
        )

    return asyncio.run(work())


class Memory:
    """The broker's resident memory, measured each half second."""

    def __init__(self, place: World) -> None:
        self._place = place
        self.peak_mb = 0.0
        self.peaks = list[float]()

    async def watch(self) -> None:
        """Measure until it is cancelled."""
        while True:
            self.peak_mb = max(self.peak_mb, memory_mb(self._place))
            await asyncio.sleep(0.5)

    def next(self) -> float:
        """Return the peak since the last call."""
        self.peaks.append(self.peak_mb)
        self.peak_mb = 0.0
        return self.peaks[-1]


class Run:
    """Commits written while the log is rolled, archived on an S3 server, and deleted."""

    def __init__(self, place: World, url: str, commits: int) -> None:
        self._place, self._url, self._commits = place, url, commits
        self._generation = min(GENERATION, commits // GENERATIONS)
        self._memory = Memory(place)
        self.samples: list[Sample] = []
        self._digest = hashlib.sha256()
        self._count = self._stored = self._deleted = self._live = 0
        self._waits = list[float]()
        self._store_s = self._idle_s = 0.0
        self._minutes = argument("--minutes", math.inf)
        self._began = time.perf_counter()

    async def write(self) -> None:
        """Write all of it, and compare at each mark."""
        watching = asyncio.create_task(self._memory.watch())
        rolling = asyncio.create_task(self._roll())
        log = await self._place.log(WORKSPACE)
        chance, share = random.Random(1), SAMPLES / self._commits
        marks = [each for each in MARKS if each < self._commits]
        for runs in runs_of(self._commits):
            appends = together(runs)
            self._keep([each for each in runs if chance.random() < share], appends)
            if WHOLE in sys.argv:
                for each in appends:
                    self._digest.update(encode(each.stream, each.commit))
            assert await log.append_bulk(appends) == len(appends)
            self._count += len(appends)
            self._live = max(self._live, self._count - self._deleted)
            began = time.perf_counter()
            while self._count - self._deleted > LIVE_MAX * self._generation:
                await asyncio.sleep(0.2)  # for the archive
                if rolling.done():
                    await rolling
            self._idle_s += time.perf_counter() - began
            if time.perf_counter() - self._began > self._minutes * 60:
                break
            if marks and self._count >= marks[0]:
                marks.pop(0)
                await self.compare()
        await self.compare()
        await log.close()
        watching.cancel()
        rolling.cancel()

    def _keep(self, runs: list[list[Append]], appends: list[Append]) -> None:
        chosen = {each.commit.id for run in runs for each in run}
        for position, each in enumerate(appends, self._count + 1):
            if each.commit.id in chosen:
                self.samples.append(Sample(position, each))

    async def _roll(self) -> None:
        loop, ends = asyncio.get_running_loop(), dict[int, int]()
        arguments = str(self._place.folder), self._url, self._generation
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            while True:
                try:
                    done = await loop.run_in_executor(pool, tend_once, *arguments, ends)
                except BusError as error:  # tried again, as `hansard up` does
                    say(f"  the log could not be tended: {error}")
                    await asyncio.sleep(TEND_S)
                    continue
                if done.waited_ms is not None:
                    self._waits.append(done.waited_ms)
                self._deleted = max(self._deleted, done.deleted)
                if done.generations:
                    self._stored += done.commits
                    ends[len(ends)] = self._stored
                    self._store_s += done.took_s
                    say(
                        f"{self._count:,} commits, {len(ends)} generations archived, "
                        f"{self._deleted:,} commits deleted from the broker, "
                        f"{self._memory.next():.0f} MB, load {os.getloadavg()[0]:.1f}, "
                        f"{time.perf_counter() - self._began:.0f} s"
                    )
                await asyncio.sleep(TEND_S)

    async def compare(self) -> None:
        """Read at random what was written, and compare: events, states at a position, runs."""
        log = await self._place.log(WORKSPACE)
        rng, bad = random.Random(47), 0
        times: dict[str, list[float]] = {"event": [], "state at": [], "run": []}
        by_run: dict[str, list[Sample]] = {}
        by_stream: dict[StreamId, list[Sample]] = {}
        for each in self.samples:
            stream = each.append.stream
            by_stream.setdefault(stream, []).append(each)
            if not isinstance(stream, WorkspaceStream):
                by_run.setdefault(stream.run, []).append(each)
        for _ in range(READS):
            kind, sample = rng.choice(list(times)), rng.choice(self.samples)
            stream, expected = sample.append.stream, [sample]
            read: Callable[[], Awaitable[Stored | list[Stored]]] = partial(log.at, sample.position)
            if kind == "state at":
                point = AtPosition(sample.position)
                read = partial(log.read, stream, up_to=point)
                expected = [x for x in by_stream[stream] if x.position <= sample.position]
            elif kind == "run" and not isinstance(stream, WorkspaceStream):
                read = partial(log.read_run, stream.run)
                expected = by_run[stream.run]
            took, answer = await _world.timed(read)
            times[kind].append(took)
            found = answer if isinstance(answer, list) else [answer]
            same = [(x.position, x.body) for x in found] == [
                (x.position, encode(x.append.stream, x.append.commit)) for x in expected
            ]
            bad += not same
        head = await log.head()
        await log.close()
        say(f"  {READS:,} reads at {self._count:,} commits: {bad} differ; head {head:,}")
        for kind, taken in times.items():
            say(f"  {kind}: {summary(taken)}")
        assert head == self._count
        assert not bad
        findings = Findings()
        streams = dict.fromkeys(
            each.append.stream for each in self.samples if each.position <= self._deleted
        )
        agents = [each for each in streams if isinstance(each, AgentStream)]
        if agents:
            await tiers(self._place, self._url, WORKSPACE, agents, findings)
        for name, result in findings.results.items():
            say(f"  {name}: {result}")
        await self._report()
        if WHOLE in sys.argv and self._count >= self._commits:
            await self._whole()

    async def _whole(self) -> None:
        """Read the whole log in order, and compare it with what was written."""
        raw = await RawWorkspace.open(self._place.broker.runtime, WORKSPACE)
        digest, count = hashlib.sha256(), 0
        async for message in raw.follow(until=self._count):
            digest.update(message.body)
            count += 1
        await raw.close()
        say(f"  the whole log, {count:,} commits, is the one written")
        assert (count, digest.digest()) == (self._count, self._digest.digest())

    async def _report(self) -> None:
        """Print the figures, and what the table computes."""
        c = Constants()
        archive = archive_at(WORKSPACE, self._url)
        segments = await archive.segments(1, self._count)
        stored = sum(each.count for each in segments)
        peaks = [*self._memory.peaks, self._memory.peak_mb]
        raw = await RawWorkspace.open(self._place.broker.runtime, WORKSPACE)
        figures = (await raw.figures())[0]
        await raw.close()
        half = len(peaks) // 2
        memory = c.base_mb + self._live * c.commit_b / 1e6
        disk_b = figures.bytes / max(1, self._count - self._deleted)
        archived_b = sum(each.size for each in segments) / max(1, stored)
        for line in (
            f"commits: {self._count:,}; archived: {stored:,} in {len(segments)} segments",
            f"memory, at most: {max(peaks):.0f} MB; computed: {memory:.0f} MB",
            f"with at most {self._live:,} commits on the broker",
            f"memory, at most: {max(peaks[:half]):.0f} MB in the first half of the generations",
            f"memory, at most: {max(peaks[half:]):.0f} MB in the second half",
            f"disk: {disk_b:.0f} B a commit; computed: {c.disk_b:.0f}",
            f"archive: {archived_b:.0f} B a commit; computed: {c.archived_b:.0f}",
            f"stored and verified: {self._stored / max(self._store_s, 1):,.0f} commits/s",
            f"no commit accepted during a roll: {summary(self._waits)}",
            f"time: {time.perf_counter() - self._began:.0f} s, reads included",
            f"the writer waited for the archive: {self._idle_s:.0f} s",
        ):
            say(f"  {line}")


async def run(commits: int) -> None:
    """Write so many commits, read them, and compare with the table."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hansard-bench-")))
        server = stack.enter_context(s3_server(folder))
        server.lead(stack.enter_context(pytest.MonkeyPatch.context()))
        async with _world.world("strict") as place:
            await Run(place, server.url, commits).write()


def argument(name: str, default: float) -> float:
    """Return the number after an argument of this name."""
    return float(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def main() -> int:
    """Print the table, or measure."""
    if "--run" in sys.argv:
        asyncio.run(run(int(argument("--run", 0))))
    else:
        print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
