"""How do MLflow and Phoenix take in, keep and answer for the same traces, on this machine?

The same generated runs, each side through its own documented client into its default local store,
in processes of their own on loopback, one side after the other:

 1. ingest: spans a second until the calls had returned, until the client's flush had, and until all
    could be read; spans that never could;
 2. acknowledged loss: writers note each acknowledgement in a file; server and writers get SIGKILL
    at a random time under a small load; after the restart, acknowledged runs that cannot be read
    whole. Power loss is not simulated;
 3. one run's trail by its id, and the mean score of two prompt versions.

`python -m benchmarks peers [--quick]`, or with other sizes `python -m benchmarks.peers [--runs N]
[--steps M] [--rounds R] [--seed S] [--pause S] [--only SIDE]`.

`make bench-peers` makes the environment of the peers, .venv-peers. A peer that is missing or does
not start is named, with the reason, and left out. MLflow and Phoenix are made to trace, look at and
evaluate; neither promises that nothing is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks._report import QUICK_FLAG, Findings, say, sized, summary
from benchmarks.peers._measure import Asked

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
PYTHON = {"hansard": Path(sys.executable), "mlflow": PEERS, "phoenix": PEERS}
NAMED = {"hansard": "Hansard", "mlflow": "MLflow", "phoenix": "Phoenix"}

SIDE_S_MAX = 280.0
"""Longest time of one side; a kill of it and of all it started is the end."""

ROUNDS_S_MAX = 150.0
"""No new round of kills is begun on a side after this time."""


def arguments() -> argparse.Namespace:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(QUICK_FLAG, action="store_true", help="small sizes: to see that it works")
    parser.add_argument("--runs", type=int, default=sized(40, 6), help="runs of each ingest")
    parser.add_argument("--steps", type=int, default=10, help="steps a run")
    parser.add_argument("--rounds", type=int, default=sized(3, 1), help="kills of each side")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--pause", type=float, default=0.0, help="s between two runs of a writer that is killed"
    )
    parser.add_argument("--only", choices=sorted(PYTHON), action="append", help="sides to measure")
    return parser.parse_args()


def measured(name: str, given: argparse.Namespace) -> dict[str, Any] | str:
    """Return a side's figures, or the reason why it could not be measured."""
    python = PYTHON[name]
    if not python.exists():
        return f"{python.relative_to(ROOT)} is not there: `make bench-peers` makes it"
    scratch = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
    asked = Asked(
        side=name,
        scratch=str(scratch),
        runs=given.runs,
        steps=given.steps,
        rounds=given.rounds,
        seed=given.seed,
        until=time.time() + ROUNDS_S_MAX,
        pause_s=given.pause,
    )
    command = [str(python), "-m", "benchmarks.peers._measure", msgspec.json.encode(asked).decode()]
    log = scratch / "told.log"
    try:
        with log.open("wb") as words:
            child = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=words, start_new_session=True
            )
        try:
            told, _ = child.communicate(timeout=SIDE_S_MAX)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGTERM)  # it stops its server on the way out
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=30)
            child.kill()
            return f"not done within {SIDE_S_MAX:g} s; it said: {last(log)}"
        if child.returncode != 0:
            return f"it ended with exit code {child.returncode}; it said: {last(log)}"
        found: dict[str, Any] = msgspec.json.decode(told)
        return found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def last(log: Path) -> str:
    """Return the end of a log."""
    return log.read_text(encoding="utf-8", errors="replace")[-600:].replace("\n", " | ")


def note(found: Findings, told: dict[str, dict[str, Any]]) -> None:
    """Figures by name, and their ratios to Hansard's."""
    for name, figures in told.items():
        named = NAMED[name]
        found.results[f"{named}: versions"] = figures["versions"]
        found.results[f"{named}: starts of the server, s"] = figures["start_s"]
        for mode, rates in figures["ingest"].items():
            found.results[f"{named}: ingest, {mode}"] = rates
        for mode, lost in figures["loss"].items():
            found.results[f"{named}: acknowledged loss, {mode}"] = lost
        for question, times in figures["questions_ms"].items():
            found.results[f"{named}: {question}"] = summary(times)
    ours = told.get("hansard")
    if ours is None:
        return
    for name, figures in told.items():
        if name != "hansard":
            compare(found, ours, figures, NAMED[name])
    found.goals["Hansard: no acknowledged run lost"] = not any(
        lost["runs_lost"] for lost in ours["loss"].values()
    )


def compare(found: Findings, ours: dict[str, Any], theirs: dict[str, Any], named: str) -> None:
    """Ratios above 1 are in Hansard's favour, below 1 in the peer's."""
    pairs = {"awaited": "session", "background": "import"}
    for mode, mine in pairs.items():
        rate = theirs["ingest"][mode]["spans_s_readable"]
        found.ratios[f"ingest until readable: Hansard's {mine} / {named}'s {mode}"] = (
            ours["ingest"][mine]["spans_s_readable"] / rate
        )
    asked = theirs["questions_ms"]
    found.ratios[f"trail, time: {named} / Hansard"] = median(asked["trail"]) / median(
        ours["questions_ms"]["trail"]
    )
    best = min(median(times) for way, times in asked.items() if way.startswith("mean"))
    found.ratios[f"mean score by arm, time: {named}'s fastest way / Hansard"] = best / median(
        ours["questions_ms"]["mean score by arm, SQL"]
    )


def table(told: dict[str, dict[str, Any]]) -> Iterator[str]:
    """For people: a line a side and mode."""
    yield f"  {'ingest':34} {'returned':>10} {'flushed':>10} {'readable':>10}  spans/s, missing"
    for name, figures in told.items():
        for mode, each in figures["ingest"].items():
            rates = [each[f"spans_s_{when}"] for when in ("returned", "flushed", "readable")]
            shown = " ".join(f"{rate:10,.0f}" for rate in rates)
            yield f"  {NAMED[name] + ', ' + mode:34} {shown}  {each['spans_missing']} missing"
    yield f"  {'acknowledged, then killed':34} {'runs':>10} {'lost':>10} {'in part':>10}  rounds"
    for name, figures in told.items():
        for mode, each in figures["loss"].items():
            counts = (each["runs_acknowledged"], each["runs_lost"], each["of_them_in_part"])
            shown = " ".join(f"{count:10,}" for count in counts)
            yield f"  {NAMED[name] + ', ' + mode:34} {shown}  {each['rounds']}"
    yield f"  {'question':60} {'p50':>8} ms"
    for name, figures in told.items():
        for question, times in figures["questions_ms"].items():
            yield f"  {NAMED[name] + ', ' + question:60} {median(times):8.1f}"


def main() -> int:
    """Measure each side and report."""
    given = arguments()
    found, told = Findings(), {}
    for name in given.only or PYTHON:
        say(f"-- {NAMED[name]}")
        figures = measured(name, given)
        if isinstance(figures, str):
            say(f"   left out: {figures}")
            found.results[f"{NAMED[name]}: left out"] = figures
        else:
            told[name] = figures
    found.results["runs, steps, seed, pause"] = [given.runs, given.steps, given.seed, given.pause]
    note(found, told)
    for line in table(told):
        say(line)
    found.emit(__doc__)
    return 0 if "hansard" in told or given.only else 1


if __name__ == "__main__":
    sys.exit(main())
