"""How far is `resumable(every="auto")` from the best fixed interval, known in hindsight?

On traces of failures, through the pure policy (`hansard.domain.checkpoints`), with the cost of a
checkpoint as measured in a real loop: at random (exponential), in bursts, and with a mean that
falls or rises thirtyfold. For items from 2 ms to 30 s: the whole time of auto, 1, 5 and 200 items,
as a ratio to the best of 18 fixed intervals for the same failures. Then a real loop whose process
is killed at the times of such a trace, for each interval. Goal: auto within 1.10 of the best, on
each trace and in the real runs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

import hansard
from benchmarks import _world
from benchmarks._report import Findings, sized
from hansard.domain.checkpoints import Pace, Session

RATIO_MAX = 1.10
FIXED = (1, 2, 3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1_200, 2_000, 5_000)
SHOWN = (1, 5, 200)
LOADS = ((0.002, 10.0), (0.02, 60.0), (0.3, 120.0), (3.0, 300.0), (30.0, 900.0))
"""Seconds an item, and mean seconds between failures."""

FAILURES = 20
"""Work of a trace, in mean times between failures."""

RESTART_S = 2.0
FAILURES_MAX = 5_000
"""Length of a trace: one that is too short for a loop counts as if it never ended."""

LOOP_ITEMS, LOOP_ITEM_S, LOOP_MTBF_S = 400, 0.005, 1.0
"""The real runs."""

Trace = Iterator[float]


def exponential(rng: random.Random, mean_s: float) -> Trace:
    """Yield at random."""
    while True:
        yield rng.expovariate(1 / mean_s)


def bursts(rng: random.Random, mean_s: float) -> Trace:
    """Yield long calm times, each followed by two to eight failures that are close together."""
    while True:
        yield rng.expovariate(1 / (4 * mean_s))
        for _ in range(rng.randint(2, 8)):
            yield rng.expovariate(1 / (0.1 * mean_s))


def worsening(rng: random.Random, mean_s: float) -> Trace:
    """Yield with a mean that falls from four times to an eighth."""
    for number in itertools.count():
        yield rng.expovariate(1 / (mean_s * max(0.125, 4 * 0.9**number)))


def improving(rng: random.Random, mean_s: float) -> Trace:
    """Yield with a mean that rises from an eighth to four times."""
    for number in itertools.count():
        yield rng.expovariate(1 / (mean_s * 0.125 * 1.15 ** min(number, 25)))


TRACES: tuple[Callable[[random.Random, float], Trace], ...] = (
    exponential,
    bursts,
    worsening,
    improving,
)


def fixed_s(every: int, item_s: float, cost_s: float, work: int, ups: Sequence[float]) -> float:
    """Return the whole time of a loop with equal intervals; infinite if it never ends."""
    total_s, done = 0.0, 0
    for up_s in ups:
        left = work - done
        blocks, rest = divmod(left, every)
        last_s = left * item_s + (blocks + bool(rest)) * cost_s
        if last_s <= up_s:
            return total_s + last_s
        done += every * min(blocks, int(up_s / (every * item_s + cost_s)))
        total_s += up_s + RESTART_S
    return float("inf")


def auto_s(item_s: float, cost_s: float, work: int, ups: Sequence[float]) -> float:
    """Return the whole time of a loop that chooses its checkpoints."""
    total_s, done = 0.0, 0
    sessions: list[Session] = []
    for up_s in ups:
        pace, at_s, item = Pace(sessions, "workflow"), 0.0, done
        while at_s <= up_s:
            if item == work:
                return total_s + at_s
            item += 1
            at_s += item_s
            if pace.worked(item_s) or item == work:
                at_s += cost_s
                pace.saved(cost_s)
                done = item if at_s <= up_s else done
        total_s += up_s + RESTART_S
        sessions.insert(0, (up_s, True))
    return float("inf")


def simulate(cost_s: float, found: Findings) -> None:
    """Compare on all traces and loads, with this cost of a checkpoint."""
    for trace in TRACES:
        ratios: list[float] = []
        for item_s, mtbf_s in LOADS:
            work = round(sized(FAILURES, 3) * mtbf_s / item_s)
            for seed in range(sized(5, 1)):
                ups = [*itertools.islice(trace(random.Random(seed), mtbf_s), FAILURES_MAX)]
                times = {each: fixed_s(each, item_s, cost_s, work, ups) for each in FIXED}
                ratios.append(auto_s(item_s, cost_s, work, ups) / min(times.values()))
                for each in SHOWN:
                    worst = f"worst of every={each} / best in hindsight, {trace.__name__}"
                    ratio = min(1e6, times[each] / min(times.values()))
                    found.ratios[worst] = max(found.ratios.get(worst, 0.0), ratio)
        found.results[f"auto / best in hindsight, {trace.__name__}: median"] = median(ratios)
        found.ratios[f"worst of auto / best in hindsight, {trace.__name__}"] = max(ratios)
        found.goals[f"auto <= {RATIO_MAX} of the best, {trace.__name__}"] = max(ratios) <= RATIO_MAX


# ---------------------------------------------------------------- real runs


def loop(folder: str, run: str, every: str, up_s: float) -> None:
    """Work on the run's items; die after `up_s`, counted from the loop's begin. Print its time."""
    interval: Any = "auto" if every == "auto" else int(every)
    with (
        hansard.connect("bench", data_dir=Path(folder)) as record,
        record.run(f"every-{every}", run=run) as session,
    ):
        killer = threading.Timer(up_s, os.kill, (os.getpid(), signal.SIGKILL))
        killer.daemon = True
        killer.start()
        began_s = time.perf_counter()
        for _ in session.resumable(range(sized(LOOP_ITEMS, 60)), every=interval):
            time.sleep(LOOP_ITEM_S)
        killer.cancel()
        sys.stdout.write(f"{time.perf_counter() - began_s}\n")


def killed_s(folder: Path, run: str, every: object, ups: Sequence[float]) -> float:
    """Start the loop again after each kill, and return the whole time in it."""
    total_s = 0.0
    flags = sys.argv[1:]
    for up_s in ups:
        command = [sys.executable, "-m", "benchmarks.bench_intervals", "--loop"]
        arguments = [*map(str, (folder, run, every, up_s)), *flags]
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode == 0:
            return total_s + float(done.stdout)
        assert done.returncode == -signal.SIGKILL, done.stderr
        total_s += up_s
    return float("inf")


def cost_of(folder: Path, run: str) -> float:
    """Return the cost of a checkpoint that the loop recorded last, in seconds."""
    with hansard.connect("bench", data_dir=folder) as record:
        state = record.state(run).agents["agent"]
        data = msgspec.json.decode(bytes(state.checkpoints["progress:items"].data))
    return float(data["auto"]["cost_s"])


async def real(found: Findings) -> float:
    """Run each interval under equal kills; return the cost of a checkpoint."""
    times: dict[object, float] = {}
    async with _world.world("strict") as place:
        for every in (*SHOWN, "auto"):
            totals = []
            for seed in range(sized(2, 1)):
                ups = [*itertools.islice(exponential(random.Random(seed), LOOP_MTBF_S), 60)]
                run = f"{every}-{seed}"
                totals.append(await asyncio.to_thread(killed_s, place.folder, run, every, ups))
            times[every] = sum(totals)
        cost_s = await asyncio.to_thread(cost_of, place.folder, "auto-0")
    for name, total_s in times.items():
        found.results[f"real loops killed at random, every={name}: s"] = round(total_s, 3)
    ratio = times["auto"] / min(times[each] for each in SHOWN)
    found.ratios["real loops killed at random: auto / best of 1, 5 and 200"] = ratio
    found.goals[f"real loops: auto <= {RATIO_MAX} of the best"] = ratio <= RATIO_MAX
    return cost_s


def main() -> int:
    """Measure and report."""
    if sys.argv[1:2] == ["--loop"]:
        folder, run, name, up_s = sys.argv[2:6]
        loop(folder, run, name, float(up_s))
        return 0
    found = Findings()
    cost_s = asyncio.run(real(found))
    found.results["a checkpoint of a real loop: ms"] = round(1e3 * cost_s, 3)
    simulate(cost_s, found)
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
