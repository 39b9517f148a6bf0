"""The output of a benchmark is machine-readable, and its figures are right."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import _report

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "benchmarks").glob("bench_*.py"))


def test_a_benchmark_reports_one_line(capsys):
    """Stdout is one JSON object with question, results, ratios, goals, machine and versions."""
    measured = _report.summary([1.0, 2.0, 10.0])
    _report.emit(
        question="How long?",
        results={"one": measured, "count": 3},
        ratios={"slower": 1.23456},
        goals={"under 20 ms": measured.max_ms < 20},
    )
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    report = json.loads(line)
    assert report["results"]["one"]["median_ms"] == 2.0
    assert report["results"]["count"] == 3
    assert report["ratios"] == {"slower": 1.235}
    assert report["goals"] == {"under 20 ms": True}
    assert report["machine"]["cpu"]
    assert set(report["versions"]) >= {"python", "nats-server", "nats-py", "duckdb", "msgspec"}
    assert "kept   under 20 ms" in printed.err


def test_the_spread_is_that_of_the_times():
    """Median, bounds and the 99th percentile of known times."""
    measured = _report.summary([float(n) for n in range(1, 102)])
    assert (measured.rounds, measured.median_ms) == (101, 51.0)
    assert (measured.min_ms, measured.max_ms, measured.p99_ms) == (1.0, 101.0, 100.0)


def test_warming_up_is_not_measured():
    """The function runs once more than it is timed."""
    calls: list[None] = []
    assert _report.measure(lambda: calls.append(None), 5).rounds == 5
    assert len(calls) == 6


def test_no_times_have_no_median():
    """Nothing measured is an error, not a zero."""
    with pytest.raises(ValueError, match="at least one round"):
        _report.summary([])


@pytest.mark.later
def test_an_unknown_benchmark_is_named():
    """An unknown benchmark is refused with the list of the known ones."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "no_such"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=170,
    )
    assert done.returncode == 2
    assert "bench_no_such" in done.stderr
    assert all(path.stem in done.stderr for path in MODULES)


def test_every_benchmark_opens_with_its_question():
    """The module docstring begins with the question, before the method."""
    unclear = [
        path.name
        for path in MODULES
        if "?" not in path.read_text(encoding="utf-8").split('"""')[1].split("\n\n")[0]
    ]
    assert not unclear


QUICK_S_MAX = 300
"""A quick benchmark that takes so many seconds hangs: one takes some 3 to 15 on an idle machine."""


OFTEN = {"bench_replay_log"}
"""The one that shows that they work; the others take their turn in `make test-full`."""

SELECTED = [
    pytest.param(path, id=path.stem, marks=() if path.stem in OFTEN else pytest.mark.thorough)
    for path in MODULES
]


@pytest.mark.slow
@pytest.mark.timeout(QUICK_S_MAX + 10)
@pytest.mark.parametrize("module", SELECTED)
def test_a_benchmark_runs(module, tmp_path):
    """Each benchmark prints its line at small sizes, and leaves nothing behind."""
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module.stem}", _report.QUICK_FLAG],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=QUICK_S_MAX,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    assert report["quick"] is True
    assert report["question"].endswith("?")
    assert report["results"]
    assert report["goals"]
    assert all(isinstance(kept, bool) for kept in report["goals"].values())
    assert all(ratio > 0 for ratio in report["ratios"].values())
    assert set(report["load_1min"]) == {"start", "end"}
    assert 0 <= report["stolen"] <= 1
    assert list(tmp_path.iterdir()) == []
    assert not [line for line in _command_lines() if str(tmp_path) in line]


@pytest.mark.thorough(quick="test_a_benchmark_runs")
def test_two_versions_take_turns():
    """Each figure is compared with the other version's, here with its own."""
    command = [sys.executable, "-m", "benchmarks.in_turns", str(ROOT), "load"]
    done = subprocess.run(
        [*command, _report.SIZE_FLAG, "0.001", "--turns", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=QUICK_S_MAX,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    [read] = [line for line in reports if line["figure"] == "read, 10 commits"]
    assert read["before"].keys() == read["now"].keys() == {"median", "min", "max"}
    assert read["ratio"] == read["now"]["median"] / read["before"]["median"]
    assert done.stderr.count("== load, ") == 4


def _command_lines() -> list[str]:
    """Return the command lines of running processes; a process may end meanwhile."""
    lines: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_bytes().decode(errors="replace"))
    return lines
