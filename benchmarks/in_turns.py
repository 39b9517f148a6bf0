"""`python -m benchmarks.in_turns FOLDER [--size S] [--turns N] name ...`: this version and another.

Each benchmark runs as a process of its own over the checkout in FOLDER and over this one, in turns:
that one, this one, this one, that one, and so on, so that what else the machine does meets both
alike. The code of the benchmark is this version's, the package that it measures is the checkout's,
by PYTHONPATH; both in this environment. Sizes and rounds are S times the full ones. A JSON line for
each figure: its median over the turns, the smallest and the largest, of both, and now / before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._report import SIZE_FLAG, say

HERE = Path(__file__).parents[1]
BOUND_S = 900
"""Longest time for one run of one benchmark, in seconds."""

MEDIANS = ("median_ms", "median")

Taken = dict[str, list[float]]


def figures(found: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a benchmark's results and ratios; of one with a spread the median."""
    for name, value in found.items():
        match value:
            case dict():
                middle = next((value[each] for each in MEDIANS if each in value), None)
                if middle is not None:
                    yield f"{before}{name}", float(middle)
                else:
                    yield from figures(value, f"{before}{name}: ")
            case bool() | str() | list() | None:
                continue
            case _:
                yield f"{before}{name}", float(value)


def run(name: str, folder: Path, size: str) -> dict[str, Any]:
    """One run over one checkout. Raises CalledProcessError, TimeoutExpired."""
    paths = f"{HERE}{os.pathsep}{folder / 'src'}"
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.bench_{name}", SIZE_FLAG, size],
        cwd=HERE,
        env=os.environ | {"PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        timeout=BOUND_S,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"results": found["results"], "ratios": found["ratios"]}


def told(taken: Taken, name: str) -> dict[str, float] | None:
    """Return a figure's median and spread; None where that version has none."""
    if not (found := taken.get(name)):
        return None
    return {"median": median(found), "min": min(found), "max": max(found)}


def compare(name: str, folder: Path, size: str, turns: int) -> None:
    """Run one benchmark in turns, and print the result."""
    before, now = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    both = ((folder, before), (HERE, now))
    for turn in range(turns):
        for place, taken in both if turn % 2 == 0 else both[::-1]:
            at = f"turn {turn + 1} of {turns}, load {os.getloadavg()[0]:.1f}"
            say(f"== {name}, {place.name}, {at}")
            for part in run(name, place, size).values():
                for figure, value in figures(part):
                    taken[figure].append(value)
    for figure in now:
        was, is_now = told(before, figure), told(now, figure)
        ratio = is_now["median"] / was["median"] if was and is_now and was["median"] else None
        line = {"benchmark": name, "figure": figure, "before": was, "now": is_now, "ratio": ratio}
        print(json.dumps(line), flush=True)


def main() -> int:
    """Compare each benchmark that is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_turns", description=__doc__)
    parser.add_argument("folder", type=Path, help="a checkout of the other version")
    parser.add_argument("names", nargs="+", help="benchmarks, without bench_")
    parser.add_argument(SIZE_FLAG, default="1", help="of the full sizes and rounds")
    parser.add_argument("--turns", type=int, default=4, help="of each version")
    given = parser.parse_args()
    for name in given.names:
        compare(name, given.folder.resolve(), given.size, given.turns)
    return 0


if __name__ == "__main__":
    sys.exit(main())
