"""How fast are two arms compared over a million events, in the engine?

A log of the real mix of `bench_project`, projected; all of its runs are trials of one experiment:
tasks tried five times under each of two arms. Each question is asked of the tables as `hansard
compare` asks it, and the paired difference with its clustered standard error in turn of one plain
table of the same events as JSON, as a ratio. Goal: under 100 ms.

`python -m benchmarks.bench_compare [--quick] [EVENTS]`
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks._report import QUICK_FLAG, Findings, Measured, say, sized, summary
from benchmarks._runs import appended, one_run
from benchmarks._world import WORKSPACE
from hansard.bus import subjects
from hansard.bus.commits import encode
from hansard.bus.log import Append, RawMessage
from hansard.domain import run
from hansard.domain.ids import RunStream
from hansard.projections.report import Question, report
from hansard.projections.rows import Rows
from hansard.projections.runner import BATCH_EVENTS_MAX
from hansard.projections.store import Store

TRIALS = 5
ROUNDS = 15
FILL_S_MAX = 400
"""Longest time of filling, in seconds; the benchmark continues with the rows so far."""

BEGAN_NS = 1_795_000_000_000_000_000

ASKED = {
    "comparisons": "FROM comparisons('e', only_metric := 'reward')",
    "comparisons of cost": "FROM comparisons('e', only_metric := 'cost')",
    "arm_summary": "FROM arm_summary('e', only_metric := 'reward')",
    "pass_curves": "FROM pass_curves('e', only_metric := 'reward')",
    "task_pairs": "FROM task_pairs('e', only_metric := 'reward')",
}

DIFFERENCE = "SELECT tasks, difference, se FROM comparisons('e', only_metric := 'reward')"

PLAIN = """
    WITH assigned AS (
        SELECT event->>'run' AS run, event->>'$.data.arm' AS arm, event->>'$.data.task' AS task
        FROM plain.log
        WHERE (event->>'type') = 'run.assigned.v1' AND (event->>'$.data.experiment') = 'e'
    ), scored AS (
        SELECT event->>'run' AS run, (event->>'$.data.metrics.reward')::DOUBLE AS reward
        FROM plain.log
        WHERE (event->>'type') = 'run.scored.v1'
    ), tasks AS (
        SELECT a.task, a.arm, avg(s.reward) AS score
        FROM assigned AS a JOIN scored AS s USING (run) GROUP BY a.task, a.arm
    ), pairs AS (
        SELECT y.score - x.score AS difference
        FROM tasks AS x JOIN tasks AS y USING (task) WHERE x.arm = 'a' AND y.arm = 'b'
    )
    SELECT count(*), avg(difference), stddev_samp(difference) / sqrt(count(*)) FROM pairs
"""
"""The same question, of events as one column of JSON: each task is its own cluster."""


def trials() -> Iterator[list[Append]]:
    """Yield runs of the mix, each a trial of its own of the experiment, without forks."""
    chance, number = random.Random(4), 0
    while True:
        trial, task = number % TRIALS, number // (2 * TRIALS)
        arm = "ab"[number // TRIALS % 2]
        first, *rest, last = one_run(number + 1, None)
        assert isinstance(first.stream, RunStream)
        began = appended(
            first.stream,
            1,
            run.RunStarted(workflow="papers", labels={"source": "bench"}),
            run.AgentJoined(agent="ada", role="researcher"),
            run.RunAssigned(experiment="e", arm=arm, task=f"task {task}", trial=trial),
        )
        reward = float(chance.random() < (0.55 if arm == "a" else 0.6))
        scored = run.RunScored(metrics={"reward": reward, "turns": 20.0}, by="judge")
        ended = appended(last.stream, last.commit.version, scored, run.RunCompleted())
        number += 1
        yield [began, *rest, ended]


def fill(store: Store, events: int) -> int:
    """Write whole pairs of arms until there are so many events; return their number."""
    rows, made, position = Rows(), 0, 0
    began_s = time.monotonic()
    for number, commits in enumerate(trials()):
        whole = number % (2 * TRIALS) == 0
        if whole and (made >= events or time.monotonic() - began_s > FILL_S_MAX):
            break
        for each in commits:
            position += 1
            made += len(each.commit.events)
            subject = subjects.subject(WORKSPACE, each.stream, each.commit.version)
            body = encode(each.stream, each.commit)
            stamp = BEGAN_NS + position * 1_000_000
            rows.add(RawMessage(position, stamp, subject, body))
        if len(rows) >= BATCH_EVENTS_MAX:
            write(store, rows, position)
    write(store, rows, position)
    return made


def write(store: Store, rows: Rows, head: int) -> None:
    """Write the rows taken in."""
    batch = rows.take()
    if batch is not None:
        store.write(batch, head)


def timed(
    store: Store, sql: str, rounds: int = ROUNDS, *, exact: bool = True
) -> tuple[Measured, list[tuple[Any, ...]]]:
    """Return the time of an answer, and the answer; repeated queries must give it exactly."""
    answer = sorted(store.all(sql), key=repr)  # the first one reads the file
    times_ms = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        again = store.all(sql)
        times_ms.append((time.perf_counter_ns() - began) / 1e6)
        assert not exact or repr(sorted(again, key=repr)) == repr(answer)
    return summary(times_ms), answer


def plain(store: Store, path: Path) -> None:
    """Write the same events as one table of one column."""
    store.all(f"ATTACH '{path}' AS plain")
    store.all(
        "CREATE TABLE plain.log AS SELECT to_json(e) AS event "
        "FROM (SELECT * EXCLUDE (known_as, lifted) FROM events ORDER BY position, event_index) AS e"
    )
    store.all("CHECKPOINT plain")


def measure(found: Findings, folder: Path, events: int) -> None:
    """Fill the tables, then ask."""
    store = Store(folder / "compare.duckdb")
    began_s = time.monotonic()
    made = fill(store, events)
    say(f"{made:,} events made and written in {time.monotonic() - began_s:.0f} s")
    store.close()
    store = Store(folder / "compare.duckdb")
    found.results["events"] = made
    [(runs,)] = store.all("SELECT count(*) FROM runs WHERE experiment = 'e'")
    found.results["runs compared"] = runs
    for name, sql in ASKED.items():
        found.results[f"{name}, ms"], _ = timed(store, sql)
    reader, whole_ms = store, list[float]()
    for _ in range(sized(ROUNDS, 2)):
        began_ns = time.perf_counter_ns()
        assert report(reader, Question(experiment="e")).beside
        whole_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
    found.results["the whole report of `hansard compare`, ms"] = summary(whole_ms)
    plain(store, folder / "plain.duckdb")
    projected, ours = timed(store, DIFFERENCE)
    beside, theirs = timed(store, PLAIN, rounds=sized(5, 2), exact=False)
    for ours_, theirs_ in zip(ours[0], theirs[0], strict=True):
        assert abs(ours_ - theirs_) < 1e-9, (ours, theirs)
    found.results["paired difference, ms"] = projected
    found.results["paired difference over a JSON column, ms"] = beside
    found.ratios["JSON column / tables, paired difference"] = beside.median_ms / projected.median_ms
    found.goals[f"paired comparison over {made:,} events < 100 ms"] = (
        found.results["comparisons, ms"].median_ms < 100
    )
    store.close()


def main() -> int:
    """Measure and report."""
    asked = [word for word in sys.argv[1:] if word != QUICK_FLAG]
    events = int(asked[0]) if asked else sized(1_000_000, 8_000)
    found = Findings()
    folder = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
    try:
        measure(found, folder, events)
    finally:
        shutil.rmtree(folder)
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
