"""Tools that runs chose and their order, in SQL, against counts made without it."""

import asyncio
import random
import subprocess
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.bus.jetstream.log import RawWorkspace
from hansard.projections.runner import rebuild, verify
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles
from tests.cli.planting import options
from tests.cli.support import environment
from tests.projections.support import check_agent, check_facts, check_life, check_steps
from tests.real import parsers, support

pytestmark = pytest.mark.slow


class Trail(msgspec.Struct, frozen=True):
    """An agent's calls in a run, and the outcome of the run; None if unknown."""

    arm: str
    tools: tuple[str, ...]
    success: bool | None
    errors: tuple[str, ...] = ()
    role: str = "assistant"
    end: str = "(end)"


def projected(home: Path, workspace: str, folder: Path) -> Store:
    """Return a workspace's tables, made in a folder."""

    async def make() -> None:
        raw = await RawWorkspace.open(options(home), workspace)
        try:
            await rebuild(raw, TableFiles(folder / "t.duckdb"), lambda _done, _total: None)
        finally:
            await raw.close()

    asyncio.run(make())
    return Store(folder / "t.duckdb", read_only=True)


# ---------------------------------------------------------------- counted without SQL


def rate(some: list[Trail]) -> float | None:
    """Share of successes in paths whose success is known."""
    known = [path.success for path in some if path.success is not None]
    return float(Fraction(sum(known), len(known))) if known else None


def by_arm(paths: list[Trail]) -> dict[str, list[Trail]]:
    """Paths by their arm."""
    trails: dict[str, list[Trail]] = defaultdict(list)
    for path in paths:
        trails[path.arm].append(path)
    return trails


def choices(paths: list[Trail]) -> set[tuple[Any, ...]]:
    """Return the expected rows of `tool_choices` for paths of one agent each."""
    tools = {tool for path in paths for tool in path.tools}
    return {
        (
            arm,
            tool,
            sum(path.tools.count(tool) for path in mine),
            len(mine),
            sum(tool in path.tools for path in mine),
            sum(path.errors.count(tool) for path in mine),
            rate([path for path in mine if tool in path.tools]),
            rate([path for path in mine if tool not in path.tools]),
        )
        for arm, mine in by_arm(paths).items()
        for tool in tools
    }


def transitions(paths: list[Trail]) -> set[tuple[Any, ...]]:
    """Return the expected rows of `transitions`."""
    moves: set[tuple[Any, ...]] = set()
    for arm, mine in by_arm(paths).items():
        pairs = Counter(p for path in mine for p in pairwise(("(start)", *path.tools, path.end)))
        begun = Counter[str]()
        for (before, _), count in pairs.items():
            begun[before] += count
        moves |= {(arm, a, b, n, float(Fraction(n, begun[a]))) for (a, b), n in pairs.items()}
    return moves


def sequences(paths: list[Trail]) -> set[tuple[Any, ...]]:
    """Return the expected rows of `sequences`."""
    same: dict[tuple[str, str, tuple[str, ...]], list[Trail]] = defaultdict(list)
    for path in paths:
        same[path.arm, path.role, path.tools].append(path)
    return {
        (*key, len(key[2]), len(mine), sum(path.success is True for path in mine), rate(mine))
        for key, mine in same.items()
    }


def check(store: Store, experiment: str, paths: list[Trail]) -> None:
    """Check that the views of an experiment match the counts."""
    rows = store.all(
        "SELECT arm, tool, calls, runs, runs_with_it, errors, success_with, success_without "
        "FROM tool_choices WHERE experiment = $1",
        [experiment],
    )
    assert len(rows) == len(set(rows))
    assert set(rows) == choices(paths)
    rows = store.all(
        "SELECT arm, from_tool, to_tool, count, share FROM transitions WHERE experiment = $1",
        [experiment],
    )
    assert set(rows) == transitions(paths)
    assert len(rows) == len(set(rows))
    rows = store.all(
        "SELECT arm, role, sequence, calls, runs, successes, success_rate FROM sequences "
        "WHERE experiment = $1",
        [experiment],
    )
    assert {(row[0], row[1], tuple(row[2]), *row[3:]) for row in rows} == sequences(paths)


# ---------------------------------------------------------------- imported runs

FILES = [
    ("gpt-4o-airline.json", "tau-airline", "airline"),
    ("agentverify_tool-calling_retail0-99.json", "tau-retail", "tool-calling"),
    ("agentverify_tool-calling-with-preconditions_retail0-99.json", "tau-retail", "preconditions"),
]


@pytest.mark.thorough
@pytest.mark.real
def test_tau_bench_paths_are_what_the_files_say(real_data: Path, tmp_path: Path):
    """Choices, transitions and sequences of 400 runs equal the counts in Python."""
    paths: dict[str, list[Trail]] = defaultdict(list)
    with support.opened(tmp_path / "data") as place:
        for file, experiment, arm in FILES:
            path = real_data / "tau-bench" / "dev" / file
            place.imported("tau-bench", path, experiment, arm)
            for chat in parsers.tau(path):
                tools = tuple(tool for _, tool, _ in chat.called())
                outcomes = zip(tools, chat.answers(), strict=True)
                errors = tuple(tool for tool, answer in outcomes if answer == "failed")
                paths[experiment].append(Trail(arm, tools, chat.reward >= 1, errors=errors))
        store = projected(place.home, support.WORKSPACE, tmp_path)
    try:
        assert {name: len(trails) for name, trails in paths.items()} == {
            "tau-airline": 200,
            "tau-retail": 200,
        }
        for experiment, trails in paths.items():
            check(store, experiment, trails)
        [[calls]] = store.all("SELECT sum(calls)::BIGINT FROM tool_choices")
        assert calls == 1_164 + 793 + 876
        shares = store.all(
            "SELECT fsum(share) FROM transitions GROUP BY experiment, arm, from_tool"
        )
        assert all(abs(share - 1) < 1e-9 for (share,) in shares)
    finally:
        store.close()


# ---------------------------------------------------------------- live runs


def work(record: hansard.Record, arm: str, calls: str, reward: float | None, **how: Any) -> str:
    """Record a run of an experiment; `a` and `b` are tools, `x` one that fails, `c` one that calls
    a.
    """
    with record.run(
        "w", agent="ada", role="r", experiment="live", arm=arm, task=how.get("task", "t")
    ) as session:
        a = session.tool(effects="pure", name="a")(lambda n: n)
        b = session.tool(effects="pure", name="b")(lambda n: n)
        x = session.tool(effects="pure", name="x")(lambda n: n / 0)
        c = session.tool(effects="composite", name="c")(lambda n: int(a(-n - 1)))
        think = session.tool(effects="pure", kind="model", name="think")(lambda n: n)
        tools: dict[str, Any] = {"a": a, "b": b, "x": x, "c": c}
        for n, call in enumerate(calls):
            think(n)
            try:
                tools[call](n)
            except ZeroDivisionError:
                assert call == "x"
        if how.get("second"):
            with record.run(run=session.run, agent="bob", role="s"):
                pass
    if reward is not None:
        record.experiments.score(session.run, {"reward": reward}, by="test")
    return session.run


def test_live_runs_errors_and_runs_without_calls(home, record, tmp_path):
    """Paths count failures, nesting, empty runs and the newest reward, and skip others' runs."""
    name = "paths"
    with hansard.connect(name, data_dir=home) as lab:
        work(lab, "one", "ab", 1.0)
        run = work(lab, "one", "ab", 1.0)
        lab.experiments.score(run, {"reward": 0.0}, by="again")
        work(lab, "one", "axb", None)
        work(lab, "two", "c", 0.5)
        work(lab, "two", "", 0.0)
        lab.fork(run)
        with lab.run("w", agent="ada", role="r") as session:
            session.message("user", "no experiment")
        store = projected(home, name, tmp_path)
    try:
        paths = [
            Trail("one", ("a", "b"), success=True, role="r"),
            Trail("one", ("a", "b"), success=False, role="r"),
            Trail("one", ("a", "x", "b"), success=None, errors=("x",), role="r"),
            Trail("two", ("c", "a"), success=False, role="r"),
            Trail("two", (), success=False, role="r"),
        ]
        check(store, "live", paths)
        assert store.all("SELECT DISTINCT experiment FROM trial_paths") == [("live",)]
    finally:
        store.close()


@pytest.mark.thorough(quick="test_live_runs_errors_and_runs_without_calls")
def test_a_run_that_is_open_has_no_end_and_agents_have_paths_each(home, record, tmp_path):
    """An open run ends in (open) and is no success; each agent has its own sequence."""
    name = "paths-open"
    with hansard.connect(name, data_dir=home) as lab:
        work(lab, "one", "ab", 1.0, second=True)
        manager = lab.run("w", agent="ada", role="r", experiment="live", arm="one", task="u")
        with manager as session:
            a = session.tool(effects="pure", name="a")(lambda n: n)
            a(1)
            store = projected(home, name, tmp_path)
    try:
        rows = store.all(
            "SELECT role, sequence, runs, successes, success_rate FROM sequences "
            "ORDER BY role, calls DESC"
        )
        assert rows == [
            ("r", ["a", "b"], 1, 1, 1.0),
            ("r", ["a"], 1, 0, None),
            ("s", [], 1, 1, 1.0),
        ]
        edges = store.all("SELECT from_tool, to_tool, count FROM transitions ORDER BY ALL")
        assert edges == [
            ("(start)", "(end)", 1),
            ("(start)", "a", 2),
            ("a", "(open)", 1),
            ("a", "b", 1),
            ("b", "(end)", 1),
        ]
        assert store.all(
            "SELECT tool, runs, runs_with_it, success_with, success_without FROM tool_choices "
            "ORDER BY tool"
        ) == [("a", 2, 2, 1.0, None), ("b", 2, 1, 1.0, None)]
    finally:
        store.close()


# ------------------------------------------------------------ runs of others


RUNS_CHECKED = 25


def _shell(home: Path, workspace: str, *arguments: str) -> None:

    done = subprocess.run(
        [sys.executable, "-m", "hansard", "-w", workspace, *arguments],
        env=environment(home),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr[-2_000:]


@pytest.mark.thorough
@pytest.mark.real
def test_tau_bench_is_projected(home: Path, record: hansard.Record, real_data: Path):
    """200 published airline runs project as they fold, with a success of 0.42."""
    workspace = "tau"
    [file] = sorted((real_data / "tau-bench").rglob("gpt-4o-airline.json"))
    with hansard.connect(workspace, data_dir=home) as opened:
        _shell(home, workspace, "import", "tau-bench", str(file))
        place = TableFiles.of(home, workspace)

        async def project() -> list[str]:
            raw = await RawWorkspace.open(options(home), workspace)
            try:
                await rebuild(raw, place, lambda _done, _total: None)
                return (await verify(raw, place, lambda _done, _total: None)).differing
            finally:
                await raw.close()

        assert asyncio.run(project()) == []
        store = Store(place.path, read_only=True)
        count = lambda sql: store.all(sql)[0][0]  # noqa: E731 -- a word for what follows
        assert count("SELECT count(*) FROM problems") == 0
        assert count("SELECT count(*) FROM events WHERE known_as IS NULL") == 0
        assert count("SELECT count(*) FROM runs") == 200
        assert count("SELECT count(DISTINCT task) FROM runs") == 50
        assert count("SELECT count(*) FROM messages") == 5_308
        by_role = dict(store.all("SELECT message_role, count(*) FROM messages GROUP BY ALL"))
        assert by_role == {"assistant": 2_454, "user": 1_490, "tool": 1_164, "system": 200}
        assert count("SELECT fsum(value) FROM outcomes WHERE metric = 'reward'") / 200 == 0.42
        runs = [run for (run,) in store.all("SELECT run FROM runs ORDER BY run")]
        for run in random.Random(7).sample(runs, RUNS_CHECKED):
            view = opened.state(run)
            check_life(store, run, view.life)
            for state in view.agents.values():
                check_agent(store, run, state)
                check_steps(store, run, state)
                check_facts(store, run, state)
        store.close()
