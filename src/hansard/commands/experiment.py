"""`hansard experiment`: plans that are registered, and the runs that have an arm of one."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from hansard._connect import open_workspace
from hansard.agents import experiments
from hansard.bus.errors import NotFound
from hansard.commands import _show
from hansard.commands._answers import Answers, answering
from hansard.commands._open import Options, reading
from hansard.domain import experiment as rules
from hansard.domain.errors import BadValue
from hansard.domain.experiment import ExperimentRegistered

REMEDY = "see 'hansard experiment list'"

FILE_BYTES_MAX = 1024 * 1024
"""Of a plan's file: far more than the largest plan takes."""


def from_file(path: Path) -> tuple[str, ExperimentRegistered]:
    """An experiment's name and plan from a TOML file. Raises BadValue, BadName."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadValue("file", str(error), "give a TOML file") from error
    if len(raw) > FILE_BYTES_MAX:
        raise BadValue("file", f"{path} has more than {FILE_BYTES_MAX:,} bytes", "give a plan")
    try:
        fields = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue(f"{path}", f"it is no TOML: {error}", "see docs/experiments.md") from error
    if "name" not in fields:
        raise BadValue(f"{path}", "it has no name", 'begin it with name = "..."')
    name = fields.pop("name")
    return name, experiments.plan(**fields)


async def register(options: Options, path: Path, by: str, *, json: bool) -> int:
    """Register the plan of a file. Raises Refused, BadValue, BadName."""
    name, plan = from_file(path)
    workspace = await open_workspace(options.settings())
    try:
        is_new = await experiments.register(workspace, name, plan, by=by)
    finally:
        await workspace.close()
    if json:
        _show.emit({"experiment": name, "registered": is_new})
    else:
        said = "is registered" if is_new else "is registered already, with this plan"
        _show.write(f"experiment {name} {said}")
    return 0


async def stop(options: Options, name: str, because: str, by: str, *, json: bool) -> int:
    """Assign no run any more. Raises Refused, NotFound."""
    async with reading(options) as workspace:
        is_new = await experiments.stop(workspace, name, because=because, by=by)
    if json:
        _show.emit({"experiment": name, "stopped": is_new})
    else:
        said = "is stopped: no run is assigned any more" if is_new else "is stopped already"
        _show.write(f"experiment {name} {said}")
    return 0


async def assign(options: Options, name: str, unit: str, *, json: bool) -> int:
    """Print the arm of a unit; nothing is recorded. Raises NotFound, BadName."""
    async with reading(options) as workspace:
        found = await experiments.state(workspace, name)
    if found.plan is None:
        raise NotFound(f"a plan of experiment {name!r}", REMEDY)
    arm = rules.arm_of(name, found.plan, unit)
    if json:
        _show.emit({"experiment": name, "unit": unit, "unit_is": found.plan.unit, "arm": arm.name})
    else:
        _show.write(arm.name)
    if found.stopped is not None:
        _show.hint("the experiment is stopped: no run is assigned any more")
    return 0


# ---------------------------------------------------------------- reads


def in_utc(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the tables, whose times are in UTC without saying so."""
    return {
        name: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


_LIST = """
SELECT p.experiment, p.standing, p.registered, e.stopped_at IS NOT NULL AS stopped, p.runs,
    (SELECT list(a.arm ORDER BY a.number) FROM experiment_arms AS a
        WHERE a.experiment = p.experiment) AS arms,
    p.primary_metric AS metric, p.question, p.registered_at
FROM experiment_plans AS p
LEFT JOIN experiments AS e ON e.experiment = p.experiment
ORDER BY coalesce(p.registered_position, p.first_position), p.experiment
"""

_PLAN = """
SELECT p.experiment, p.question, p.standing, p.registered, p.unit, p.cluster, p.alpha, p.stop,
    p.planned, p.trials, p.missing, e.exploratory, e.salt, p.runs, e.registered_at,
    e.registered_by, e.registered_position, p.first_position, e.stopped_at, e.stopped_because
FROM experiment_plans AS p
LEFT JOIN experiments AS e ON e.experiment = p.experiment
WHERE p.experiment = $1
"""

_ARMS = """
WITH counted AS (
    SELECT t.arm, count(*) AS runs, count(DISTINCT t.task) AS tasks,
        count(*) FILTER (t.status = 'completed') AS completed,
        count(*) FILTER (t.status IN ('failed', 'cancelled')) AS failed,
        count(*) FILTER (t.status = 'open') AS open
    FROM trial_runs AS t
    WHERE t.experiment = $1
    GROUP BY t.arm
)
SELECT a.arm, a.number, a.weight / sum(a.weight) OVER () AS share, a.prompt, a.model, a.parameters,
    coalesce(c.runs, 0) AS runs, coalesce(c.tasks, 0) AS tasks,
    coalesce(c.completed, 0) AS completed, coalesce(c.failed, 0) AS failed,
    coalesce(c.open, 0) AS open
FROM experiment_arms AS a
LEFT JOIN counted AS c ON c.arm = a.arm
WHERE a.experiment = $1
ORDER BY a.number
"""

_METRICS = """
WITH judged AS (
    SELECT o.metric, count(DISTINCT o.run) AS runs
    FROM outcomes AS o
    JOIN trial_runs AS t ON t.run = o.run
    WHERE t.experiment = $1
    GROUP BY o.metric
), planned AS (SELECT * FROM metrics WHERE experiment = $1)
SELECT coalesce(m.metric, j.metric) AS metric, m.number, m.better, m.smallest,
    coalesce(j.runs, 0) AS judged_runs
FROM planned AS m
FULL JOIN judged AS j ON j.metric = m.metric
ORDER BY m.number NULLS LAST, metric
"""


async def list_(options: Options, *, json: bool) -> int:
    """Print every experiment, registered or met in runs."""
    async with answering(options) as answers:
        rows = answers.rows(_LIST)
        position = answers.position
    if json:
        for row in rows:
            _show.emit({"kind": "experiment", **in_utc(row), "position": position})
        return 0
    columns = [
        _show.Column("experiment", whole=True),
        _show.Column("arms"),
        _show.Column("metric"),
        _show.Column("runs", right=True),
        _show.Column("standing"),
        _show.Column("question"),
    ]
    cells = [
        [
            row["experiment"],
            ", ".join(row["arms"] or ()),
            row["metric"],
            f"{row['runs']:,}",
            row["standing"] + ("; stopped" if row["stopped"] else ""),
            row["question"] or "",
        ]
        for row in rows
    ]
    _show.write(_show.table(columns, cells) if rows else "no experiment yet")
    return 0


async def show(options: Options, name: str, *, json: bool) -> int:
    """Print an experiment: its plan, how it stands, its runs by arm. Raises NotFound."""
    async with answering(options) as answers:
        told = _told(answers, name)
        arms = answers.rows(_ARMS, [name])
        metrics = answers.rows(_METRICS, [name])
        position = answers.position
    for arm in arms:
        text = arm["parameters"]
        arm["parameters"] = msgspec.json.decode(text) if text is not None else None
    if json:
        _show.emit({"kind": "experiment", **told, "position": position})
        for kind, rows in (("arm", arms), ("metric", metrics)):
            for row in rows:
                _show.emit({"kind": kind, "experiment": name, **row})
        return 0
    _print(told, position)
    _show.write("", _arms(arms), "", _metrics(metrics))
    return 0


def _told(answers: Answers, name: str) -> dict[str, Any]:
    rows = answers.rows(_PLAN, [name])
    if not rows:
        raise NotFound(f"experiment {name!r}", REMEDY)
    return in_utc(rows[0])


def _print(told: dict[str, Any], position: int) -> None:
    plan: list[tuple[str, object]] = [
        ("experiment", told["experiment"]),
        ("question", told["question"]),
        ("standing", told["standing"]),
    ]
    if told["registered"]:
        plan += [
            ("registered", f"{_show.moment(told['registered_at'])} by {told['registered_by']}"),
            ("stopped", _stopped(told)),
            ("unit", told["unit"]),
            ("cluster", told["cluster"]),
            ("alpha", f"{told['alpha']:g}"),
            ("stop rule", told["stop"]),
            ("planned", _planned(told)),
            ("missing", f"counts as {told['missing']}"),
        ]
    _show.write(_show.pairs([*plan, ("runs", told["runs"]), ("as of", f"position {position}")]))


def _stopped(told: dict[str, Any]) -> str:
    if told["stopped_at"] is None:
        return ""
    why = f" ({told['stopped_because']})" if told["stopped_because"] else ""
    return _show.moment(told["stopped_at"]) + why


def _planned(told: dict[str, Any]) -> str:
    tasks = f"{told['planned']:,} tasks" if told["planned"] is not None else ""
    trials = f"{told['trials']:,} trials of each task and arm" if told["trials"] else ""
    return ", ".join(part for part in (tasks, trials) if part)


def _arms(arms: list[dict[str, Any]]) -> Any:
    columns = [_show.Column("arm", whole=True), _show.Column("share", right=True)]
    columns += [_show.Column(name) for name in ("prompt", "model", "parameters")]
    counted = ("runs", "tasks", "completed", "failed", "open")
    columns += [_show.Column(name, right=True) for name in counted]
    rows = [
        [
            arm["arm"],
            f"{arm['share']:.0%}" if arm["share"] is not None else "",
            arm["prompt"] or "",
            arm["model"] or "",
            _show.arguments_preview(arm["parameters"]) if arm["parameters"] else "",
            *(f"{arm[name]:,}" for name in counted),
        ]
        for arm in arms
    ]
    return _show.table(columns, rows)


def _metrics(metrics: list[dict[str, Any]]) -> Any:
    columns = [
        _show.Column("metric", whole=True),
        _show.Column("better"),
        _show.Column("smallest", right=True),
        _show.Column("runs judged", right=True),
    ]
    rows = [
        [
            metric["metric"],
            metric["better"] or "",
            f"{metric['smallest']:g}" if metric["smallest"] is not None else "",
            f"{metric['judged_runs']:,}",
        ]
        for metric in metrics
    ]
    return _show.table(columns, rows)
