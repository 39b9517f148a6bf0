"""What does making chunks beside its writes cost the program that writes?

Blocks of 640 pure steps of the sync client, each a run of its own (20 chunks), with chunks made and
without, in turns, strict and relaxed. The making waits for a pause, so there is one after each
block. Reported: the processor time of the whole process a step, and the median step; and apart from
these, the processor time in the pause. Goal: a step at most 1.05 of what it is without.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from statistics import median

import hansard
from benchmarks import _world
from benchmarks._report import Findings, sized
from hansard.state.replay import States

STEPS = 640
FIRST = 40
"""Steps of each run that are not counted."""

PAUSE_MS = 1_600
"""Longer than chunks wait, also under `relaxed`."""

COST_MAX = 1.05

WHAT = ("processor time a step", "median step", "processor time at the run's end and in the pause")


def block(record: hansard.Record) -> tuple[float, float, float]:
    """Milliseconds of processor time a step, of the median step, and of processor time in the pause
    after them.
    """
    with record.run("bench", agent="stepper") as session:

        @session.tool(effects="pure")
        def look(query: str, number: int) -> str:
            return f"{number} {query[:200]}"

        for number in range(FIRST):
            look(_world.text(300), -number - 1)
        times: list[float] = []
        cpu = time.process_time()
        for number in range(sized(STEPS, 80)):
            start = time.perf_counter()
            look(_world.text(300), number)
            times.append(time.perf_counter() - start)
        ended = time.process_time()
    time.sleep(sized(PAUSE_MS, 100) / 1e3)
    pause_ms = (time.process_time() - ended) * 1e3
    return (ended - cpu) / len(times) * 1e3, median(times) * 1e3, pause_ms


def in_turns(folder: Path, blocks: int) -> dict[str, list[tuple[float, float, float]]]:
    """Blocks of both kinds, after one of each that is left out."""
    found: dict[str, list[tuple[float, float, float]]] = {"with": [], "without": []}
    with hansard.connect("bench", data_dir=folder) as record:
        making, reading = record.workspace.states, States(record.workspace.log)
        for number in range(blocks + 1):
            for kind, states in (("with", making), ("without", reading)):
                record.workspace.states = states
                taken = block(record)
                if number:
                    found[kind].append(taken)
        record.workspace.states = making
    return found


async def measure(durability: str, found: Findings) -> None:
    """Both on a server of one durability."""
    async with _world.world(durability) as place:
        taken = await asyncio.to_thread(in_turns, place.folder, sized(20, 1))
    for index, what in enumerate(WHAT):
        with_chunks, without = (
            sorted(each[index] for each in taken[kind]) for kind in ("with", "without")
        )
        for kind, each in (("with", with_chunks), ("without", without)):
            found.results[f"{what}, {kind} chunks, {durability}: ms"] = [
                round(median(each), 4),
                round(each[0], 4),
                round(each[-1], 4),
            ]
        if what == WHAT[-1]:
            continue
        ratio = median(with_chunks) / median(without)
        found.ratios[f"{what}, with / without chunks, {durability}"] = ratio
        found.goals[f"{what} <= {COST_MAX} of without, {durability}"] = ratio <= COST_MAX


def main() -> int:
    """Measure and report."""
    found = Findings()
    for durability in ("strict", "relaxed"):
        asyncio.run(measure(durability, found))
    found.results["each is"] = "median, smallest and largest of the blocks"
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
