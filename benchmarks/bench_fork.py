"""What does it cost to fork a run of 1,000 steps?

A fork is one commit that holds its parent's version vector. Measured on a strict server, at the
head and at a position in the middle, with the client that has just worked with the run (warm) and
with one that has read nothing yet (fresh); async, and the sync twin warm. Beside it one awaited
append, which a fork contains. Goal: under 5 ms.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from statistics import median

import hansard
from benchmarks import _report, _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._states import fresh, record_run

BOUND_MS = 5.0


async def measure(found: Findings) -> None:
    """Record a run, fork it."""
    steps, rounds = sized(1_000, 40), sized(60, 3)
    async with _world.world("strict") as place:
        async with hansard.connect_async("bench", data_dir=place.folder) as record:
            recorded = await record_run(record, steps)
            points = {"head": None, "middle": recorded.positions[len(recorded.positions) // 2]}
            for name, point in points.items():

                async def warm(point: int | None = point) -> None:
                    await record.fork(recorded.run, at=point)

                async def cold(point: int | None = point) -> None:
                    await fresh(record).fork(recorded.run, at=point)

                warm_ms, fresh_ms = await _world.turns(rounds, warm, cold, warm_up=2)
                found.results[f"fork at the {name}, warm, async"] = summary(warm_ms)
                found.results[f"fork at the {name}, fresh client, async"] = summary(fresh_ms)
                found.goals[f"fork at the {name} < 5 ms, warm"] = median(warm_ms) < BOUND_MS
                found.goals[f"fork at the {name} < 5 ms, fresh"] = median(fresh_ms) < BOUND_MS
            stream = _world.agent_stream("appender")
            appends = _world.appends(stream, 1, rounds + 1)
            log = record.workspace.log
            (alone,) = await _world.turns(rounds, lambda: log.append(next(appends)))
            found.results["one awaited append"] = summary(alone)
        await asyncio.to_thread(forks_sync, place.folder, recorded.run, points, rounds, found)
    found.results["steps of the run"] = steps
    for name in points:
        forked = found.results[f"fork at the {name}, warm, async"]
        found.ratios[f"fork at the {name} / append"] = forked.median_ms / median(alone)


def forks_sync(
    folder: Path, run: str, points: dict[str, int | None], rounds: int, found: Findings
) -> None:
    """Measure the sync twin, warm."""
    with hansard.connect("bench", data_dir=folder) as record:
        for name, point in points.items():
            found.results[f"fork at the {name}, warm, sync"] = _report.measure(
                partial(record.fork, run, at=point), rounds, warm_up=2
            )


if __name__ == "__main__":
    benchmark(measure, __doc__)
