"""Experiments with their state, and stated prices of models, from the tables."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from hansard.agents.experiments import plans
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain import experiment as rules
from hansard.inspect.answer import Answer
from hansard.projections.reader import Reader

REMEDY = "see 'hansard experiment list'"

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
    e.registered_by, e.registered_position, p.first_position, e.stopped_at, e.stopped_because,
    e.replaced, e.because
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

_PRICES = """
SELECT model, usage, amount, currency, since, source, stated_by
FROM prices
WHERE $1 IS NULL OR model = $1
QUALIFY row_number() OVER (PARTITION BY model, usage, since ORDER BY version DESC) = 1
ORDER BY model, usage, since
"""


class Listed(msgspec.Struct, tag_field="kind", tag="experiment", kw_only=True):
    """Experiment in short, registered or named by runs; as of a position."""

    experiment: str
    standing: str
    registered: bool
    stopped: bool
    runs: int
    arms: list[str] | None
    metric: str
    question: str | None
    registered_at: datetime | None
    position: int


class Plan(msgspec.Struct, tag_field="kind", tag="experiment", kw_only=True):
    """Plan of an experiment, and its state at a position."""

    experiment: str
    question: str | None
    standing: str
    registered: bool
    unit: str
    cluster: str
    alpha: float
    stop: str
    planned: int | None
    trials: int | None
    missing: str
    exploratory: bool | None
    salt: str | None
    runs: int
    registered_at: datetime | None
    registered_by: str | None
    registered_position: int | None
    first_position: int | None
    stopped_at: datetime | None
    stopped_because: str | None
    replaced: int | None
    because: str | None
    position: int


class Arm(msgspec.Struct, tag_field="kind", tag="arm", kw_only=True):
    """Arm, and its runs so far."""

    experiment: str
    arm: str
    number: int
    share: float | None
    prompt: str | None
    model: str | None
    parameters: Any
    runs: int
    tasks: int
    completed: int
    failed: int
    open: int


class Metric(msgspec.Struct, tag_field="kind", tag="metric", kw_only=True):
    """Metric of an experiment; `number` is None if only its runs name it."""

    experiment: str
    metric: str
    number: int | None
    better: str | None
    smallest: float | None
    judged_runs: int


class Experiment(Answer):
    """Experiment, its arms and its metrics."""

    plan: Plan
    arms: list[Arm]
    metrics: list[Metric]

    def lines(self) -> Iterable[Plan | Arm | Metric]:
        """Yield the experiment, its arms and its metrics."""
        return (self.plan, *self.arms, *self.metrics)


class Assignment(msgspec.Struct, kw_only=True):
    """Arm of a unit, which is a task or another unit of the plan."""

    experiment: str
    unit: str
    unit_is: str
    arm: str


class Price(msgspec.Struct, tag_field="kind", tag="price", kw_only=True):
    """Price of one million of a usage of a model, from `since` on."""

    model: str
    usage: str
    amount: float
    currency: str
    since: datetime
    source: str | None
    stated_by: str
    position: int


def list_experiments(reader: Reader) -> list[Listed]:
    """List every experiment, registered or named by runs."""
    return [Listed(**_with_zone(row), position=reader.position) for row in reader.rows(_LIST)]


def experiment(reader: Reader, name: str) -> Experiment:
    """Return an experiment: plan, state, runs by arm. Raises NotFound."""
    plans = reader.rows(_PLAN, [name])
    if not plans:
        raise NotFound(f"experiment {name!r}", REMEDY)
    arms = reader.rows(_ARMS, [name])
    for arm in arms:
        text = arm["parameters"]
        arm["parameters"] = msgspec.json.decode(text) if text is not None else None
    return Experiment(
        plan=Plan(**_with_zone(plans[0]), position=reader.position),
        arms=[Arm(experiment=name, **arm) for arm in arms],
        metrics=[Metric(experiment=name, **row) for row in reader.rows(_METRICS, [name])],
    )


async def assigned(workspace: Workspace, name: str, unit: str) -> tuple[Assignment, bool]:
    """Return a unit's arm, and whether the experiment is stopped and assigns no more.

    Nothing is recorded. Raises NotFound, BadName.
    """
    found = await plans.state(workspace, name)
    if found.plan is None:
        raise NotFound(f"a plan of experiment {name!r}", REMEDY)
    arm = rules.arm_of(name, found.plan, unit)
    report = Assignment(experiment=name, unit=unit, unit_is=found.plan.unit, arm=arm.name)
    return report, found.stopped is not None


def list_prices(reader: Reader, model: str | None) -> list[Price]:
    """List current prices by model, usage and day."""
    return [
        Price(**_with_zone(row), position=reader.position) for row in reader.rows(_PRICES, [model])
    ]


def _with_zone(row: dict[str, Any]) -> dict[str, Any]:
    """Add the zone UTC to the times of a row of the tables."""
    return {
        name: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value
        for name, value in row.items()
    }
