"""Probes in a real Store, inserted as rows: the decisions of each fork."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pyarrow as pa

from hansard.projections.store import Store

QUESTION = "Grant?"


class Decided(msgspec.Struct, frozen=True):
    """Decision of one fork, or of its run: an option, with the options' scores."""

    selected: str
    scores: Mapping[str, float | None] = {}
    question: str = QUESTION


class Pair(msgspec.Struct, frozen=True):
    """A run: the recorded value and decision, and the decision of each fork, by value."""

    recorded: str
    before: Sequence[Decided]
    forks: Mapping[str, Sequence[Decided]]


def same(recorded: str, forks: Mapping[str, str]) -> Pair:
    """Return a run of one decision, which the fork with the recorded value repeats."""
    return Pair(
        recorded,
        [Decided(forks[recorded])],
        {value: [Decided(each)] for value, each in forks.items()},
    )


def plant(store: Store, pairs: Iterable[Pair], probe: str = "p") -> None:
    """Write a probe as rows."""
    runs: list[tuple[str, str | None, str]] = []
    forks: list[tuple[str, str, str, int]] = []
    decisions: list[tuple[str, str, str, str, int]] = []
    scored: list[tuple[str, str, int, str, float | None, bool]] = []
    [(position,)] = store.all("SELECT coalesce(max(position), 0) FROM lineage")

    def decide(run: str, made: Sequence[Decided]) -> None:
        for number, each in enumerate(made):
            name = f"{run} {number}"
            decisions.append((name, run, each.question, each.selected, 5 + number))
            for place, (option, score) in enumerate(each.scores.items(), 1):
                scored.append((name, run, place, option, score, option == each.selected))

    for number, pair in enumerate(pairs):
        parent = f"{probe} run {number:04d}"
        runs.append((parent, None, ""))
        decide(parent, pair.before)
        for value, made in pair.forks.items():
            position += 1
            swap = {"probe": probe, "path": "c.g", "before": pair.recorded, "after": value}
            fork = f"{probe} fork {number:04d} {value}"
            runs.append((fork, parent, probe))
            forks.append((fork, parent, json.dumps(swap), position))
            decide(fork, made)
    _put(store, "runs", runs, "run, parent, probe", _RUNS)
    _put(store, "lineage", forks, "run, parent, swap, position", _LINEAGE)
    _put(store, "decisions", decisions, "decision, run, question, selected, version", _DECISIONS)
    _put(store, "alternatives", scored, "decision, run, number, id, score, selected", "SELECT *")


_WHEN = "TIMESTAMP '2026-01-01' AS happened_at"
_RUNS = (
    "SELECT run, parent, nullif(probe, '') AS probe, 'completed' AS status, 0 AS resumed, "
    "1 AS first_position, 2 AS last_position"
)
_LINEAGE = (
    "SELECT *, 'shadow' AS effects, '{\"life\": 1, \"agent/a/a\": 1}'::JSON AS vector, "
    f"2 AS version, {_WHEN}"
)
_DECISIONS = "SELECT *, 'a' AS agent, 'a' AS role, 2 AS alternatives, version AS position, " + _WHEN


def _put(
    store: Store, table: str, rows: Sequence[tuple[object, ...]], names: str, select: str
) -> None:
    if not rows:
        return
    columns = {name: [row[place] for row in rows] for place, name in enumerate(names.split(", "))}
    store._con.register("new_rows", pa.table(columns))
    store.all(f"INSERT INTO {table} BY NAME {select} FROM new_rows")
    store._con.unregister("new_rows")
