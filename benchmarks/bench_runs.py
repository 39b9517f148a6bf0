"""What does it cost to read the state of all runs of a workspace, as there are more of them?

`record.runs()` of 300 and of 3,000 runs, a tenth of them forks, by a client that has not seen them;
beside it nats-py, which lists the subjects of all lives and reads the messages a thousand at a time
(undecoded). The figures are times and numbers of requests. Goals: ten times the runs take at
most 13 times as long, and at most a request for a hundred runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import msgspec

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._requests import counted
from benchmarks._runs import appended
from hansard.bus import subjects
from hansard.bus.log import Append
from hansard.domain import run
from hansard.domain.ids import RunStream

NAMES_MAX = 1_000
GROWTH_MAX = 1.3
RUNS_A_REQUEST_MIN = 100


def lives(first: int, count: int) -> Iterator[Append]:
    """Yield runs that began, were joined, scored, and ended; every tenth is a fork of the one
    before.
    """
    for number in range(first, first + count):
        name = f"run-{number}"
        began: run.RunEvent = run.RunStarted(workflow="papers", labels={"source": "bench"})
        at = 1
        if number % 10 == 9:
            at, began = 3, run.RunForked(parent=f"run-{number - 1}", at={"life": 2})
        yield appended(RunStream(name), at, began, run.AgentJoined(agent="ada", role="researcher"))
        yield appended(RunStream(name), at + 2, run.RunScored(metrics={"reward": 1.0}, by="judge"))
        yield appended(RunStream(name), at + 3, run.RunCompleted())


class Took(msgspec.Struct):
    """Cost of reading the runs, round by round: ms and requests, and ms of plain nats-py."""

    ours_ms: list[float]
    requests: int
    raw_ms: list[float]


async def all_runs(place: _world.World, size: int, rounds: int) -> Took:
    """Measure both sides reading so many runs."""
    nc = await place.raw()
    stream, took = subjects.log_stream("bench"), Took([], 0, [])

    async def ours() -> None:
        async with hansard.connect_async("bench", data_dir=place.folder) as fresh:
            with counted(fresh.workspace.log) as asked:
                took.ours_ms.append((await _world.timed(fresh.runs))[0])
            took.requests = asked.requests

    async def raw() -> None:
        filters = {"subjects_filter": subjects.all_lives("bench")}
        told = await _world.api(nc, f"STREAM.INFO.{stream}", filters)
        names, read = list(told["state"]["subjects"]), 0
        for start in range(0, len(names), NAMES_MAX):
            some = {"multi_last": names[start : start + NAMES_MAX]}
            read += len(await _world.direct(nc, stream, some))
        assert read == 3 * size

    _, took.raw_ms = await _world.turns(rounds, ours, raw)
    await nc.close()
    return took


async def measure(found: Findings) -> None:
    """Two sizes, one after the other in one workspace."""
    sizes, rounds = (sized(300, 20), sized(3_000, 200)), sized(7, 2)
    took: list[Took] = []
    async with _world.world("relaxed") as place:
        there = 0
        for size in sizes:
            async with hansard.connect_async("bench", data_dir=place.folder) as record:
                await record.workspace.log.append_bulk(lives(there, size - there))
            there = size
            each = await all_runs(place, size, rounds)
            found.results[f"{size} runs"] = summary(each.ours_ms)
            found.results[f"{size} runs, requests"] = each.requests
            found.results[f"{size} runs, nats-py, undecoded"] = summary(each.raw_ms)
            ratio = median(each.ours_ms) / median(each.raw_ms)
            found.ratios[f"{size} runs, against nats-py"] = ratio
            took.append(each)
    few, many = sizes
    growth = median(took[1].ours_ms) / many / (median(took[0].ours_ms) / few)
    requests = took[1].requests
    found.ratios[f"a run of {many} against a run of {few}"] = growth
    found.goals[f"a run of {many} <= {GROWTH_MAX} times a run of {few}"] = growth <= GROWTH_MAX
    goal = f"at most a request for {RUNS_A_REQUEST_MIN} runs, and 4, of {many}"
    found.goals[goal] = requests <= 4 + many / RUNS_A_REQUEST_MIN


if __name__ == "__main__":
    benchmark(measure, __doc__)
