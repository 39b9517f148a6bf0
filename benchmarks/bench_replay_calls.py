"""What does it cost to replay a recorded call, and does a long run cost more per call?

Runs of 100, 1,000 and 10,000 recorded steps (arguments up to 1 KB) are resumed and called through
again: every call is answered from the record, no body runs. The async client, the sync twin beside
it on the same runs. Opening (reading and folding the run) is reported separately, per recorded
call. Goals: at most 0.1 ms a call; at 10,000 at most 1.5 times the cost at 100 (linear in N).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import msgspec

import hansard
from benchmarks import _world
from benchmarks._report import Findings, Measured, benchmark, sized, summary
from benchmarks._world import World

SIZES = (100, 1_000, 10_000)
AGENT = "caller"
WORKFLOW = "bench"
bodies_run = 0


def look_up(query: str, number: int) -> dict[str, object]:
    """Return the tool's small result, the same for both clients."""
    global bodies_run  # noqa: PLW0603 -- counts that replay runs no body
    bodies_run += 1
    return {"number": number, "found": query[:200]}


def query(number: int) -> str:
    """Arguments of 200 to 1,000 bytes."""
    return _world.text(200 + number % 9 * 100)


class Replayed(msgspec.Struct):
    """Milliseconds of one replay: to open the run, and for all its calls."""

    opened_ms: float
    calls_ms: float


async def record_runs(place: World, sizes: list[int]) -> dict[int, str]:
    """Record a run of each size; ids by size."""
    runs: dict[int, str] = {}
    async with hansard.connect_async("bench", data_dir=place.folder) as record:
        for size in sizes:
            async with record.run(WORKFLOW, agent=AGENT) as session:
                runs[size] = session.run
                tool = session.tool(effects="pure")(look_up)
                for number in range(size):
                    await tool(query(number), number)  # type: ignore[misc] # async by its session
    return runs


async def replay_async(folder: Path, run: str, size: int) -> Replayed:
    """Resume a run and call all its calls again, with a client that has read nothing before."""
    async with hansard.connect_async("bench", data_dir=folder) as record:
        start = time.perf_counter()
        async with record.run(WORKFLOW, agent=AGENT, run=run) as session:
            opened = time.perf_counter()
            tool = session.tool(effects="pure")(look_up)
            for number in range(size):
                found = await tool(query(number), number)  # type: ignore[misc] # async by its session
                assert found["number"] == number
            ended = time.perf_counter()
    return Replayed((opened - start) * 1e3, (ended - opened) * 1e3)


def replay_sync(folder: Path, run: str, size: int) -> Replayed:
    """Measure replays of the sync twin."""
    with hansard.connect("bench", data_dir=folder) as record:
        start = time.perf_counter()
        with record.run(WORKFLOW, agent=AGENT, run=run) as session:
            opened = time.perf_counter()
            tool = session.tool(effects="pure")(look_up)
            for number in range(size):
                found = tool(query(number), number)
                assert found["number"] == number
            ended = time.perf_counter()
    return Replayed((opened - start) * 1e3, (ended - opened) * 1e3)


async def measure(found: Findings) -> None:
    """Record, then replay by both clients in turns."""
    sizes = [sized(size, max(10, size // 50)) for size in SIZES]
    per_call: dict[tuple[str, int], Measured] = {}
    async with _world.world("relaxed") as place:
        runs = await record_runs(place, sizes)
        recorded = bodies_run
        for size in sizes:
            rounds = sized(9, 2)
            replays: dict[str, list[Replayed]] = {"async": [], "sync": []}
            for number in range(rounds + 1):
                both = (
                    await replay_async(place.folder, runs[size], size),
                    await asyncio.to_thread(replay_sync, place.folder, runs[size], size),
                )
                for taken, each in zip(replays.values(), both, strict=True):
                    if number:
                        taken.append(each)
            for client, taken in replays.items():
                calls = per_call[client, size] = summary([each.calls_ms / size for each in taken])
                found.results[f"a replayed call, {size:,} calls, {client}"] = calls
                opened = median(each.opened_ms for each in taken)
                found.results[f"opening, {size:,} calls, {client}: ms"] = round(opened, 2)
                found.results[f"opening, per recorded call of {size:,}, {client}: ms"] = round(
                    opened / size, 4
                )
        assert bodies_run == recorded, "a replayed call ran its body"
    for client in ("async", "sync"):
        worst = max(per_call[client, size].median_ms for size in sizes)
        found.goals[f"replay of a call <= 0.1 ms, {client}"] = worst <= 0.1
        first, last = per_call[client, sizes[0]], per_call[client, sizes[-1]]
        grown = last.median_ms / first.median_ms
        found.ratios[f"a call of {sizes[-1]:,} / a call of {sizes[0]:,}, {client}"] = grown
        found.goals[f"replay linear (<= 1.5 of that per call), {client}"] = grown <= 1.5


if __name__ == "__main__":
    benchmark(measure, __doc__)
