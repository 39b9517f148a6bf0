"""A real Store with trials inserted as rows, and queries of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from hansard.projections.store import Store
from tests.conftest import THOROUGH
from tests.projections.support import new_store

BEGAN = datetime(2026, 1, 1)  # noqa: DTZ001 -- TIMESTAMP columns hold UTC without a zone

TRIAL_COLUMNS = {
    "run": pa.string(),
    "experiment": pa.string(),
    "arm": pa.string(),
    "task": pa.string(),
    "trial": pa.int64(),
    "status": pa.string(),
    "labels": pa.string(),
    "parent": pa.string(),
    "first_position": pa.int64(),
    "started_at": pa.timestamp("us"),
}


class Trial(msgspec.Struct, kw_only=True):
    """A run and its scores by metric."""

    arm: str | None
    task: str | None
    trial: int | None = None
    scores: dict[str, float | None] = {}
    labels: dict[str, str] | None = None
    status: str = "completed"
    parent: str | None = None
    experiment: str = "e"
    run: str = ""
    position: int = 0


def opened(path: Path, *, optimized: bool = THOROUGH) -> Store:
    """Open a new store with one thread; a second one would only wait with so few rows.

    Planning takes most of the time of a query of so few rows, and half of it is the optimizer's.
    Users always query with it: so do the tests of the macros, and all tests in thorough rounds.
    """
    made = new_store(path / "t.duckdb")
    made.all("SET threads = 1")
    if not optimized:
        made.all("PRAGMA disable_optimizer")
    return made


def filled(store: Store) -> frozenset[str]:
    """Return the tables with rows now or since the last checkpoint."""
    sql = "SELECT table_name FROM duckdb_tables() WHERE NOT internal AND estimated_size > 0"
    return frozenset(name for (name,) in store.all(sql))


def plant(store: Store, trials: Iterable[Trial]) -> list[Trial]:
    """Write trials as rows in order; fill in missing runs and positions."""
    made = list(trials)
    [(count,)] = store.all("SELECT count(*) FROM runs")
    for number, trial in enumerate(made, count + 1):
        trial.run = trial.run or f"run-{number:06d}"
        trial.position = trial.position or number * 10
    put(
        store,
        "runs",
        {
            "run": [each.run for each in made],
            "experiment": [each.experiment for each in made],
            "arm": [each.arm for each in made],
            "task": [each.task for each in made],
            "trial": [each.trial for each in made],
            "status": [each.status for each in made],
            "labels": [
                None if each.labels is None else msgspec.json.encode(each.labels).decode()
                for each in made
            ],
            "parent": [each.parent for each in made],
            "first_position": [each.position for each in made],
            "started_at": [BEGAN + timedelta(seconds=each.position) for each in made],
        },
    )
    judged = [
        (each.run, metric, value, each.position + 1)
        for each in made
        for metric, value in each.scores.items()
        if value is not None
    ]
    outcomes(store, judged)
    return made


def put(store: Store, table: str, columns: dict[str, Any]) -> None:
    """Write columns of runs."""
    schema = pa.schema([(name, TRIAL_COLUMNS[name]) for name in columns])
    store._con.register("new_rows", pa.table(columns, schema=schema))
    store.all(
        f"INSERT INTO {table} BY NAME SELECT *, 0 AS resumed, first_position AS last_position "
        "FROM new_rows"
    )
    store._con.unregister("new_rows")


def outcomes(store: Store, judged: Sequence[tuple[str, str, float, int]]) -> None:
    """Write scores: run, metric, value, version (which is its position, too)."""
    names = ("run", "metric", "value", "version")
    columns = [[each[place] for each in judged] for place in range(len(names))]
    types = (pa.string(), pa.string(), pa.float64(), pa.int64())
    schema = pa.schema(list(zip(names, types, strict=True)))
    store._con.register("new_rows", pa.table(dict(zip(names, columns, strict=True)), schema=schema))
    store.all(
        "INSERT INTO outcomes BY NAME SELECT *, 'judge' AS judged_by, version AS position, "
        "TIMESTAMP '2026-01-01' AS happened_at FROM new_rows"
    )
    store._con.unregister("new_rows")


def judge(store: Store, runs: Any, values: Any) -> None:
    """Write the reward of many runs, as arrays."""
    store._con.register("new_rows", pa.table({"run": pa.array(runs), "value": pa.array(values)}))
    store.all(
        "INSERT INTO outcomes BY NAME SELECT *, 'reward' AS metric, 1 AS version, 1 AS position, "
        "'judge' AS judged_by, TIMESTAMP '2026-01-01' AS happened_at FROM new_rows"
    )
    store._con.unregister("new_rows")


def register(store: Store, experiment: str = "e", **plan: Any) -> None:
    """Write a plan: `arms` as names or (name, weight), `metrics` as (name, better, smallest)."""
    arms = plan.pop("arms", ["a", "b"])
    metrics = plan.pop("metrics", [("reward", "higher", None)])
    columns = {
        "experiment": experiment,
        "unit": "run",
        "cluster": None,
        "alpha": 0.05,
        "stop": "fixed",
        "planned": None,
        "trials": None,
        "missing": "failure",
        "exploratory": False,
        "salt": "s",
        "registered_at": BEGAN,
        "registered_by": "ann",
        "registered_position": 1,
        "event": "event 1",
        **plan,
    }
    names = ", ".join(columns)
    places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    store.all(f"INSERT INTO experiments ({names}) VALUES ({places})", list(columns.values()))
    for number, arm in enumerate(arms, 1):
        name, weight = (arm, 1.0) if isinstance(arm, str) else arm
        store.all(
            "INSERT INTO arms (experiment, arm, number, weight) VALUES ($1, $2, $3, $4)",
            [experiment, name, number, weight],
        )
    for number, (metric, better, smallest) in enumerate(metrics, 1):
        store.all(
            "INSERT INTO metrics VALUES ($1, $2, $3, $4, $5)",
            [experiment, metric, number, better, smallest],
        )


def compared(store: Store, experiment: str = "e", **options: Any) -> list[dict[str, Any]]:
    """Rows of `comparisons`, in an order of their own; arguments by name."""
    return rows_of(store, "comparisons", experiment, **options)


ORDERS = {
    "comparisons": "slice, number, metric, arm, counting",
    "arm_summary": "slice, number, metric, arm",
    "pass_curves": "slice, metric, arm, k",
    "task_pairs": "slice, metric, arm, counting, task",
    "task_scores": "slice, metric, arm, counting, task",
    "trial_scores": "slice, metric, arm, task, run",
    "regressions": "slice, metric, arm, task",
    "sample_ratio": "number",
    "accounting": "arm",
}
"""Table macros, each with the order of its rows."""


def rows_of(
    store: Store, macro: str, experiment: str = "e", **options: Any
) -> list[dict[str, Any]]:
    """Every row of a table macro, ordered."""
    arguments = "".join(f", {name} := ${number}" for number, name in enumerate(options, 2))
    sql = f"FROM {macro}($1{arguments}) ORDER BY {ORDERS[macro]}"
    return store.rows(sql, [experiment, *options.values()])


def default(rows: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the one row that is counted by the plan."""
    [row] = [row for row in rows if row["default"]]
    return row
