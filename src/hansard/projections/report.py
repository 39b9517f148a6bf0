"""The report of an experiment: every number is read from the tables, none is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from hansard.domain.errors import CallerError
from hansard.projections.snapshots import Reader
from hansard.projections.table_files import statements

GUARDRAILS = ("completion", "cost", "tokens", "latency_ms", "tool_error_rate")
"""Metrics of every experiment, shown beside its own."""

LATENCY = "latency_ms"
"""The metric that is not compared beside others if a run's times are not plausible."""

DERIVED = {*GUARDRAILS, "success", "input_tokens", "output_tokens"}
"""Metrics that need no score."""

UNMATCHED_MAX = 5
"""Most tasks shown of those that only one of two arms has."""

REGRESSIONS_MAX = 10
"""Most tasks shown of those that became worse, by metric and arm; the macro `regressions` returns
all.
"""

SEQUENCES_MAX = 3
"""Most tool sequences shown of each arm; the view `sequences` has all."""

KNOWN_MAX = 20
"""Most names that an error lists."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query for the report of an experiment; by default by its plan's metrics, against its first
    arm.

    Attributes:
        experiment: Its name.
        metric: The only metric to judge by.
        baseline: The arm that the others are compared with.
        by: A label of runs: also report each value of it.
        lower: Metrics of which less is better, if no plan defines it.
        higher: Metrics of which more is better, if no plan defines it.
        missing: How a trial without a value counts: `failure`, `excluded` (with those that did not
            end as completed) or `worst-case` (all of these as the worst under an arm and as the
            best under the baseline); None for the plan's rule.
        all_pairs: Compare each pair of arms, and rank them; all of these are one family.
    """

    experiment: str
    metric: str | None = None
    baseline: str | None = None
    by: str | None = None
    lower: tuple[str, ...] = ()
    higher: tuple[str, ...] = ()
    missing: Literal["failure", "excluded", "worst-case"] | None = None
    all_pairs: bool = False

    @property
    def directions(self) -> str | None:
        """The directions of metrics, as the macros take them."""
        parts = dict.fromkeys(self.higher, "higher") | dict.fromkeys(self.lower, "lower")
        return msgspec.json.encode(parts, order="sorted").decode() if parts else None


class Part(msgspec.Struct, frozen=True):
    """One metric of a comparison. Its lists contain dicts with the columns of a macro
    (docs/sql.md).

    Attributes:
        metric: Its name.
        better: `higher` or `lower`; None if undefined.
        stated_by: The source of that direction.
        named: True if it has a verdict, since a plan or the query names it, or nothing else was
            scored.
        arms: The result of each arm.
        comparisons: Each arm against the baseline, or each pair, by all rules for missing values.
        curves: pass@k and pass^k of each arm.
        pairs: Each task's score under the baseline and under an arm.
    """

    metric: str
    better: str | None
    stated_by: str | None
    named: bool
    arms: list[dict[str, Any]]
    comparisons: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    pairs: list[dict[str, Any]]

    def otherwise(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the comparison of the same two arms by the other rules for missing values."""
        return [
            each
            for each in self.comparisons
            if not each["default"] and all(each[name] == row[name] for name in _SIDES)
        ]


_SQL = statements(__file__)
"""The statements of `report.sql`, by name."""

_SIDES = ("slice", "arm", "baseline")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of an experiment. Its lists contain dicts, as a `Part`'s do.

    Attributes:
        position: The position of the log; for a restricted agent the number of the newest event
            that its role sees.
        digest: SHA-256 of the message there.
        question: The query.
        plan: The registered plan and its status.
        baseline: The arm that the others are compared with.
        judged: The metrics with a verdict.
        beside: The other metrics.
        ratio: The number of units of each arm against the expected one.
        accounts: The outcomes of each arm's runs.
        regressions: Tasks with a worse result than under the baseline, the worst of each metric and
            arm; `of` is the number of all.
        unmatched: Tasks that only one of two arms has: their number, and the first ones.
        tools: The tools called by each arm, with calls and failures.
        sequences: The most common tool sequences of each arm.
        ranking: The possible ranks of each arm by each metric with a verdict; only with
            `all_pairs`.
        times: Claimed times that are not plausible, if latency is not compared (view `odd_times`).
    """

    position: int
    digest: str
    question: Question
    plan: dict[str, Any]
    baseline: str
    judged: list[Part]
    beside: list[Part]
    ratio: list[dict[str, Any]]
    accounts: list[dict[str, Any]]
    regressions: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    sequences: list[dict[str, Any]]
    ranking: list[dict[str, Any]] = []
    times: list[dict[str, Any]] = []
    unmatched: list[dict[str, Any]] = []


def _unknown(kind: str, name: str, known: list[str]) -> CallerError:
    """Return the error for a name in a query that is not in the tables."""
    shown = ", ".join(known[:KNOWN_MAX]) + (", ..." if len(known) > KNOWN_MAX else "")
    those = f"known are {shown}" if known else "none is on record, see 'hansard runs'"
    return CallerError(f"there is no {kind} {name!r}: {those}")


def report(reader: Reader, question: Question) -> Report:
    """Compute the report. Equal tables and query give an equal one. Raises CallerError."""
    plan = _plan(reader, question)
    arms = _names(reader, "arms", question.experiment)
    if question.all_pairs and question.baseline is not None:
        raise CallerError(
            f"all pairs have no baseline, which {question.baseline!r} was to be: say one of both"
        )
    baseline = question.baseline if question.baseline is not None else arms[0]
    if baseline not in arms:
        raise _unknown("arm", baseline, arms)
    _check(reader, question)
    _check_directions(reader, question)
    judged, beside, regressions, unmatched, times = _compared(
        reader, question, baseline, question.missing or plan["missing"]
    )
    beside.sort(key=lambda part: GUARDRAILS.index(part.metric))
    order = _order(judged)
    scored = _names(reader, "metrics", question.experiment)
    decides = [part.metric for part in judged[:1] if part.named and part.metric in scored]
    accounts = reader.rows(
        "FROM accounting($1, only_metric := $2) ORDER BY arm",
        [question.experiment, decides[0] if decides else None],
    )
    return Report(
        position=reader.position,
        digest=reader.digest,
        question=question,
        plan=plan,
        baseline=baseline,
        judged=[_sorted(part, order) for part in judged],
        beside=[_sorted(part, order) for part in beside],
        ratio=reader.rows("FROM sample_ratio($1) ORDER BY number", [question.experiment]),
        accounts=_by_arm(accounts, order),
        regressions=regressions,
        unmatched=unmatched,
        tools=_query(reader, "tools", question.experiment),
        sequences=_query(reader, "sequences", question.experiment, SEQUENCES_MAX),
        times=times,
        ranking=_by_arm(_ranking(reader, question), order),
    )


def _order(judged: list[Part]) -> dict[str, int]:
    """Return the arms' ranks by the deciding metric, best first; empty if none decides."""
    if not judged or not judged[0].named or judged[0].better is None:
        return {}
    arms = [arm["arm"] for arm in judged[0].arms if not arm["slice"]]
    return {arm: place for place, arm in enumerate(arms)}


def _by_arm(rows: list[dict[str, Any]], order: dict[str, int]) -> list[dict[str, Any]]:
    """Return the rows of each slice in the order of their arms."""
    return sorted(rows, key=lambda row: (row.get("slice", ""), order.get(row["arm"], len(order))))


def _sorted(part: Part, order: dict[str, int]) -> Part:
    return msgspec.structs.replace(
        part,
        arms=_by_arm(part.arms, order),
        comparisons=_by_arm(part.comparisons, order),
        curves=_by_arm(part.curves, order),
    )


def _plan(reader: Reader, question: Question) -> dict[str, Any]:
    plans = reader.rows("FROM experiment_plans WHERE experiment = $1", [question.experiment])
    if not plans:
        known = reader.rows("SELECT experiment FROM experiment_plans ORDER BY 1")
        raise _unknown("experiment", question.experiment, [row["experiment"] for row in known])
    if not plans[0]["runs"]:
        raise CallerError(
            f"experiment {question.experiment!r} has no runs yet: give them with "
            f"record.run(..., experiment={question.experiment!r}), or 'hansard import'"
        )
    return plans[0]


def _check(reader: Reader, question: Question) -> None:
    named = [name for name in (question.metric, *question.lower, *question.higher) if name]
    scored = [] if DERIVED.issuperset(named) else _names(reader, "metrics", question.experiment)
    for metric in named:
        if metric not in DERIVED and metric not in scored:
            raise _unknown("metric", metric, sorted({*scored, *DERIVED}))
    if question.by is not None:
        known = _names(reader, "labels", question.experiment)
        if question.by not in known:
            raise _unknown("label of runs", question.by, known)


def _check_directions(reader: Reader, question: Question) -> None:
    """Raise CallerError for a direction that is given twice, or that contradicts the plan."""
    both = sorted({*question.lower} & {*question.higher})
    if both:
        raise CallerError(f"of {both[0]!r} lower and higher cannot both be better: say one of them")
    parts = dict.fromkeys(question.higher, "higher") | dict.fromkeys(question.lower, "lower")
    planned = {
        row["metric"]: row["better"] for row in _query(reader, "planned", question.experiment)
    }
    for metric, better in parts.items():
        if planned.get(metric, better) != better:
            raise CallerError(
                f"the plan of {question.experiment!r} says that {planned[metric]} {metric!r} is "
                f"better, which cannot be changed after it: leave {metric!r} out"
            )


def _query(reader: Reader, name: str, *arguments: object) -> list[dict[str, Any]]:
    """Return the rows of a statement of `report.sql`."""
    return reader.rows(_SQL[name], arguments)


def _names(reader: Reader, name: str, experiment: str) -> list[str]:
    return [next(iter(row.values())) for row in _query(reader, name, experiment)]


_Rows = list[dict[str, Any]]


def _scores(question: Question, each: list[str] | None) -> list[Any]:
    """Return the arguments of the macro for trial scores; `each` lists metrics to compare
    separately.
    """
    parts = [question.metric, question.by, question.directions, question.missing]
    return [question.experiment, *parts, each]


def _ranking(reader: Reader, question: Question) -> list[dict[str, Any]]:
    if not question.all_pairs:
        return []
    request = [question.experiment, question.metric, question.directions, question.missing]
    return reader.rows(_SQL["ranking"], request)


def _compared(
    reader: Reader, question: Question, baseline: str, missing: str
) -> tuple[list[Part], list[Part], _Rows, _Rows, _Rows]:
    """Return the judged metrics, the others, the regressions, the unmatched tasks, and the
    implausible times.

    `missing` is the rule that counts. Macro results are stored in temporary tables that shadow the
    macros: planning all of them again for each query takes several times as long as running it. A
    single judged metric is queried together with the others, each of which is a family of its own;
    several judged metrics are one family.
    """
    experiment = question.experiment
    with reader.scratch():
        stored = f"CREATE TEMP TABLE kept_trial_scores AS {_SQL['scores']}"
        reader.all(stored, _scores(question, None))
        named = reader.all("SELECT DISTINCT metric FROM kept_trial_scores ORDER BY 1")
        judged = [metric for (metric,) in named]
        others = [metric for metric in GUARDRAILS if metric not in judged]
        # The other metrics use only recorded values.
        recorded = "failure" if missing == "worst-case" else question.missing
        aside = msgspec.structs.replace(
            question, metric=None, by=None, missing=recorded, all_pairs=False
        )
        together = len(judged) == 1 and aside == msgspec.structs.replace(question, metric=None)
        if together:
            reader.all(f"INSERT INTO kept_trial_scores {_SQL['scores']}", _scores(aside, others))
        each = [*judged, *others] if together else None
        parts = _parts(reader, question, baseline, judged, each)
        regressions = _query(reader, "regressions", experiment, judged, REGRESSIONS_MAX)
        unmatched = _query(reader, "unmatched", experiment, UNMATCHED_MAX, judged[0])
    if not together:
        with reader.scratch():
            reader.all(stored, _scores(aside, others))
            parts += _parts(reader, aside, baseline, [], others)
    times = _query(reader, "times", experiment) if _is_impossible(parts, LATENCY) else []
    beside = [
        part
        for part in parts
        if part.metric not in {*judged, *([LATENCY] if times else [])}
        and any(arm["mean"] is not None for arm in part.arms)
    ]
    return [part for part in parts if part.metric in judged], beside, regressions, unmatched, times


def _is_impossible(parts: list[Part], metric: str) -> bool:
    return any(arm["impossible"] for part in parts if part.metric == metric for arm in part.arms)


def _keep(reader: Reader, name: str, sql: str, *parameters: object) -> None:
    """Store a macro's current result, and shadow the macro by it for those that call it."""
    reader.all(f"DROP MACRO TABLE IF EXISTS temp.{name}")
    reader.all(f"CREATE OR REPLACE TEMP TABLE kept_{name} AS {sql}", parameters)
    reader.all(_SQL["hiding"].format(name))


def _parts(
    reader: Reader, question: Question, baseline: str, judged: Sequence[str], each: list[str] | None
) -> list[Part]:
    """Return a part for each metric with stored scores, in the plan's order; with curves and pairs
    only for the judged ones. The pairs with the baseline remain in their temporary table.
    """
    experiment = question.experiment
    reader.all(_SQL["hiding"].format("trial_scores"))
    _keep(reader, "task_totals", _SQL["totals"], experiment)
    _keep(reader, "task_pairs", _SQL["task_pairs"], experiment, baseline, question.all_pairs)
    comparisons = _query(reader, "comparisons", experiment, each)
    alpha = comparisons[0]["alpha"] if comparisons else 0.05
    arms = _query(reader, "summary", experiment, alpha, baseline)
    curves: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    if judged:
        if question.all_pairs:
            _keep(reader, "task_pairs", _SQL["task_pairs"], experiment, baseline, False)  # noqa: FBT003 -- a parameter of SQL
        curves = _query(reader, "curves", experiment, alpha, baseline, judged)
        pairs = _query(reader, "pairs", experiment, judged)

    def mine(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
        return [row for row in rows if row["metric"] == name]

    first = {arm["metric"]: arm for arm in reversed(arms)}
    return [
        Part(
            name,
            first[name]["better"],
            first[name]["stated_by"],
            first[name]["named"],
            mine(arms, name),
            mine(comparisons, name),
            mine(curves, name),
            mine(pairs, name),
        )
        for name in dict.fromkeys(arm["metric"] for arm in arms)
    ]
