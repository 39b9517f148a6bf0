"""What does a command of the command line cost, as a process?

`hansard --version`, `runs`, `runs --json`, `sql` and `compare`, of 2 arms and of 29, on a workspace
of some 130 runs, whose broker is up and whose tables are published, in turns with each other and
with a Python that does nothing: the processor's seconds (those of processes that they start
included) and the time that passed. All is byte-compiled before, as an installation is.
`--against FOLDER` has the `hansard` of another folder's `src` beside it, of an older version for
one, pair by pair. Goals: `runs` within 0.4 s, `sql` within 0.6 s, `compare` within 1 s, of 29 arms
within 3 s.
"""

from __future__ import annotations

import asyncio
import compileall
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median

import hansard
from benchmarks import _world
from benchmarks._report import Findings, sized, summary

WORKSPACE = "commands"
EXPERIMENT = "prompts"
MANY = "models"
ARMS = 29
"""Number of arms of the larger experiment."""

AGAINST = "--against"

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "--version": ("--version",),
    "runs": ("runs",),
    "runs --json": ("runs", "--json"),
    "sql": ("sql", "SELECT count(*) FROM steps"),
    "compare": ("compare", EXPERIMENT),
    f"compare {ARMS}": ("compare", MANY),
}
GOALS_S = {"runs": 0.4, "sql": 0.6, "compare": 1.0, f"compare {ARMS}": 3.0}


def fill(folder: Path) -> hansard.Record:
    """Record trials of an experiment of two arms and of one of many, with their tables; return the
    open record.
    """
    record = hansard.connect(WORKSPACE, data_dir=folder)
    for number in range(sized(4, 1) * ARMS):
        task, arm = divmod(number, ARMS)
        trial(record, MANY, f"t{task}", f"arm-{arm:02}", float((number * 5 + arm) % 3 == 0))
    for number in range(sized(12, 4)):
        trial(record, EXPERIMENT, f"t{number // 2}", "ab"[number % 2], float(number % 3))
    record.sql("SELECT 1")
    return record


def trial(record: hansard.Record, experiment: str, task: str, arm: str, reward: float) -> None:
    """Record a run of five calls, and its score."""
    with record.run("papers", agent="worker", experiment=experiment, task=task, arm=arm) as session:

        @session.tool(effects="pure")
        def look(page: int) -> int:
            return page

        for page in range(5):
            look(page)
    record.experiments.score(session.run, {"reward": reward}, by="judge")


def busy_s() -> float:
    """Seconds of the processor that processes took which we started and which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def took(command: list[str], source: Path | None) -> tuple[float, float]:
    """Milliseconds of the processor, and of the clock, of a process that has to succeed; with the
    modules of another folder, if one is given.
    """
    environment = {**os.environ, "PYTHONPATH": str(source)} if source is not None else None
    before, start = busy_s(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    passed = time.perf_counter() - start
    return 1e3 * (busy_s() - before), 1e3 * passed


def measure(folder: Path, found: Findings) -> None:
    """Each command, in turns."""
    where = ["--data-dir", str(folder), "--workspace", WORKSPACE]
    ours = [str(Path(sys.executable).with_name("hansard"))]
    sources = {"": Path(hansard.__file__).parents[1]}
    if AGAINST in sys.argv:
        other = sys.argv[sys.argv.index(AGAINST) + 1]
        sources[f", {other}"] = Path(other).resolve() / "src"
    programs: dict[str, tuple[list[str], Path | None]] = {
        f"{name}{which}": ([*ours, *where, *words], source)
        for which, source in sources.items()
        for name, words in COMMANDS.items()
    }
    for modules in sources.values():
        compileall.compile_dir(modules, quiet=2)
    programs["python -c pass"] = ([sys.executable, "-c", "pass"], None)
    busy: dict[str, list[float]] = {name: [] for name in programs}
    passed: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(-1, sized(11, 1)):
        for name, (command, source) in programs.items():
            processor_ms, clock_ms = took(command, source)
            if turn >= 0:
                busy[name].append(processor_ms)
                passed[name].append(clock_ms)
    for name in programs:
        found.results[f"{name}: of the processor"] = summary(busy[name])
        found.results[name] = summary(passed[name])
        name_of_ours = name.partition(", ")[0]
        if name != name_of_ours:
            pairs = zip(busy[name_of_ours], busy[name], strict=True)
            found.ratios[f"{name_of_ours}, against the other"] = median(a / b for a, b in pairs)
    for name, goal_s in GOALS_S.items():
        found.goals[f"{name} within {goal_s} s"] = median(passed[name]) <= goal_s * 1e3


def main() -> int:
    """Measure and report."""
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="hansard-bench-") as name:
        folder = Path(name)
        with fill(folder):
            measure(folder, found)
        asyncio.run(_world.gone(folder))
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
