"""How long does a client that has read nothing wait for a state?

A run of 1,000 steps, in a log of its own. Queried in turn: the agent at a random version and the
whole run at a random position, by clients that have nothing in memory, of a broker that has served
the run; and the agent at its newest version where nobody has made its snapshots, which makes them.
Each over the connections of one client. And the agent at its newest version as soon as its writer
has closed its client, on a strict server: the writer makes the snapshots. Goals: 3 ms, 10 ms, 10 ms
and 10 ms.
"""

from __future__ import annotations

from functools import partial
from statistics import median

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._states import Recorded, first_reader, fresh, record_run
from benchmarks.bench_state import Reads
from hansard.client.record import AsyncRecord

AGENT, RUN, FIRST = "agent at a version", "run at a position", "agent, nobody made its snapshots"
WRITTEN = "agent, just written"
GOALS_MS = {AGENT: 3.0, RUN: 10.0, FIRST: 10.0, WRITTEN: 10.0}

ROUNDS_EACH = 10
"""Number of other reads for one first read."""


async def measure(found: Findings) -> None:
    """Record the runs, ask."""
    steps = sized(1_000, 40)
    async with (
        _world.world("relaxed") as place,
        hansard.connect_async("bench", data_dir=place.folder) as record,
    ):
        recorded = await record_run(record, steps)
        found.results["versions of the run"] = recorded.versions[-1]
        await newest(record, recorded)  # the snapshots are made
        times = await asked(record, recorded)
    times[WRITTEN] = await just_written(steps, sized(10, 1))
    for name, took in times.items():
        found.results[name] = summary(took)
        found.goals[f"{name} <= {GOALS_MS[name]:.0f} ms"] = median(took) <= GOALS_MS[name]


async def asked(record: AsyncRecord, recorded: Recorded) -> dict[str, list[float]]:
    """Milliseconds of each kind of read."""
    reads = Reads(recorded)
    times: dict[str, list[float]] = {name: [] for name in (AGENT, RUN, FIRST)}
    for number in range(sized(200, 10)):
        for name, read in ((AGENT, reads.agent), (RUN, reads.view)):
            times[name].append((await _world.timed(partial(read, fresh(record))))[0])
        if number % ROUNDS_EACH == 0:
            read_first = partial(newest, first_reader(record), recorded)
            times[FIRST].append((await _world.timed(read_first))[0])
    return times


async def just_written(steps: int, rounds: int) -> list[float]:
    """Milliseconds of the first read of each of some runs, each written by a client that is closed
    just before.
    """
    times: list[float] = []
    async with (
        _world.world("strict") as place,
        hansard.connect_async("bench", data_dir=place.folder) as record,
    ):
        for _ in range(rounds):
            async with hansard.connect_async("bench", data_dir=place.folder) as writing:
                recorded = await record_run(writing, steps)
            times.append((await _world.timed(partial(newest, fresh(record), recorded)))[0])
    return times


async def newest(record: AsyncRecord, recorded: Recorded) -> None:
    """Read the agent at its newest version."""
    version = recorded.versions[-1]
    state = await record.workspace.states.agent(recorded.stream, to=version)
    assert state.version == version


if __name__ == "__main__":
    benchmark(measure, __doc__)
