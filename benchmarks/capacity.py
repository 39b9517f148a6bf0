"""Compute what a number of commits a day takes, from measured constants; measure them with --run.

    python -m benchmarks.capacity                 the table of docs/scale.md
    python -m benchmarks.capacity --run 1000000   so many commits in 10 generations, and the error

`--run` writes commits of 1 KB to one workspace of a strict broker, rolls it ten times into a
folder, and compares the broker's memory and the sizes with what the table computes.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks import _world
from benchmarks._report import say
from benchmarks.bench_tiers import VERSIONS, commits_of, memory_mb
from hansard.bus.archive import archive_at
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.generations import survey
from hansard.bus.jetstream.roll import KEEP_S, tend

DAY_S = 86_400
RATES = (10**5, 10**6, 10**7, 10**8, 10**9)
"""Commits a day."""

RUN_MAX = 10**5
"""Commits of a generation in the `--run` of 1,000,000 that gave the constants: a larger one is on
paper.
"""

GENERATIONS = 10
SEGMENT_BYTES = 64 * 2**20
TABLES = 25


class Constants(msgspec.Struct, frozen=True):
    """Measured on 2 cores beside other work: docs/performance.md and `--run`."""

    base_mb: float = 60.0
    """Memory of a broker at work, without its commits."""
    commit_b: float = 220.0
    """Memory of the broker a commit of a stream, in bytes."""
    disk_b: float = 1_124.0
    """Bytes on the broker's disk a commit of 887 bytes, the mean of `_runs.log_of`."""
    archived_b: float = 107.0
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


async def run(commits: int) -> None:
    """Write so many commits in ten generations, and compare with the table."""
    constants = Constants()
    with tempfile.TemporaryDirectory(prefix="hansard-bench-") as folder:
        async with _world.world("strict") as place:
            log = await place.log("capacity")
            admin = await Broker.open(place.broker.admin or place.broker.runtime)
            archive = archive_at("capacity", str(Path(folder) / "archive"))
            live, stored_s, peaks = 0, 0.0, list[float]()
            count, state = 0, {"bytes": 0, "messages": 1}
            began = time.perf_counter()
            for number in range(GENERATIONS):
                streams = [
                    _world.agent_stream("a", f"run-{number}-{each}")
                    for each in range(commits // GENERATIONS // VERSIONS)
                ]
                for start in range(0, len(streams), 250):
                    count += await log.append_bulk(commits_of(streams[start : start + 250]))
                state = (await survey(Direct(admin), "capacity")).streams[-1].info["state"]
                peaks.append(memory_mb(place))
                storing = time.perf_counter()
                await tend(admin, "capacity", None, archive, keep_s=0)
                stored_s += time.perf_counter() - storing
                live = len(streams) * VERSIONS
                say(
                    f"{count:,} commits, {peaks[-1]:.0f} MB before the roll, "
                    f"{memory_mb(place):.0f} MB after, {time.perf_counter() - began:.0f} s"
                )
            segments = await archive.segments(1, count)
            await log.close()
            await admin.close()
    archived_b = sum(each.size for each in segments) / count
    expected = constants.base_mb + live * constants.commit_b / 1e6
    print(f"commits: {count:,}, in generations of {live:,}")
    print(f"memory before the last roll: {peaks[-1]:.0f} MB; computed: {expected:.0f} MB")
    print(f"disk: {state['bytes'] / state['messages']:.0f} B a commit")
    print(f"archive: {archived_b:.0f} B a commit")
    print(f"stored and verified: {count / stored_s:,.0f} commits/s")
    print(f"memory before the first and the last roll: {peaks[0]:.0f} and {peaks[-1]:.0f} MB")


def main() -> int:
    """Print the table, or measure."""
    if "--run" in sys.argv:
        asyncio.run(run(int(sys.argv[sys.argv.index("--run") + 1])))
    else:
        print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
