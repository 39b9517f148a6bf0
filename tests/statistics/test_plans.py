"""Status of an experiment: plan before or after its data, and whether arms got their share of
units.
"""

from datetime import timedelta
from typing import Any

import duckdb
import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from tests.statistics import support
from tests.statistics.support import BEGAN, Trial

pytestmark = pytest.mark.later


def plan_status(store, experiment="e"):
    """Return the status of an experiment's plan."""
    [row] = store.all("SELECT standing FROM experiment_plans WHERE experiment = $1", [experiment])
    return row[0]


RUN: dict[str, Any] = {"arm": "a", "task": "t", "position": 100}
"""A run begins at its position in seconds after BEGAN: see support.plant."""


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize(
    ("plan", "status"),
    [
        ({"registered_position": 99}, "registered before the data"),
        ({"registered_position": 101}, "exploratory: its first run was recorded before its plan"),
        (
            {"registered_position": 99, "registered_at": BEGAN + timedelta(seconds=101)},
            "exploratory: its first run took place before its plan",
        ),
        (
            {"registered_position": 99, "registered_at": BEGAN + timedelta(seconds=99)},
            "registered before the data",
        ),
        ({"registered_position": 99, "exploratory": True}, "exploratory: as its plan says"),
    ],
)
def test_a_plan_is_before_the_data_by_position_and_by_time(store, plan, status):
    """Recorded after a run, or dated after it (imported data), a plan is no promise."""
    support.plant(store, [Trial(**RUN), Trial(arm="b", task="t", position=500)])
    support.register(store, **plan)
    assert plan_status(store) == status


def test_without_a_plan_all_is_exploratory(store):
    """Without a plan every arm is exploratory."""
    support.plant(store, [Trial(**RUN)])
    assert plan_status(store) == "exploratory: no plan is registered"


def shares(store, arms, units, **plan):
    """Return the result of sample_ratio for so many runs in each arm."""
    support.plant(
        store,
        [Trial(arm=arm, task=f"{arm}{n}") for arm, count in units.items() for n in range(count)],
    )
    store.all(
        "INSERT INTO assignments BY NAME SELECT run, experiment, arm, run AS unit, "
        "'hash' AS chosen, 1 AS version, 1 AS position, started_at AS happened_at FROM runs"
    )
    if arms:
        support.register(store, arms=arms, **plan)
    return {row["arm"]: row for row in support.rows_of(store, "sample_ratio")}


@pytest.mark.fast(cases=2, slow=0)
@pytest.mark.parametrize(
    ("arms", "units"),
    [
        (["a", "b"], {"a": 60, "b": 40}),
        ([("a", 3.0), ("b", 1.0)], {"a": 60, "b": 40}),
        ([("a", 0.2), ("b", 0.3), ("c", 0.5)], {"a": 20, "b": 20, "c": 20}),
        ([("a", 1.0), ("b", 1.0)], {"a": 7}),
    ],
)
def test_shares_are_held_against_the_plans_weights(store, arms, units):
    """Units by arm are tested against the weights by scipy's chi-square test."""
    by_arm = shares(store, arms, units)
    weights = dict((arm, 1.0) if isinstance(arm, str) else arm for arm in arms)
    total, whole = sum(units.values()), sum(weights.values())
    expected = {arm: total * weight / whole for arm, weight in weights.items()}
    assert {arm: row["expected"] for arm, row in by_arm.items()} == pytest.approx(expected)
    p = scipy.stats.chisquare(
        [units.get(arm, 0) for arm in weights], list(expected.values())
    ).pvalue
    assert [row["p"] for row in by_arm.values()] == [pytest.approx(p)] * len(arms)


def test_without_a_plan_shares_are_equal_and_have_no_test(store):
    """Weights that are not stated (NULL) are equal, and have no test."""
    by_arm = shares(store, None, {"a": 30, "b": 50})
    assert {row["expected"] for row in by_arm.values()} == {40.0}
    assert {row["p"] for row in by_arm.values()} == {None}


def test_an_arm_of_weight_nothing_gets_nothing(store):
    """An arm of weight zero is left out while it has no unit; with one, the shares contradict the
    plan.
    """
    by_arm = shares(store, [("a", 1.0), ("b", 1.0), ("c", 0.0)], {"a": 30, "b": 50})
    assert by_arm["c"]["expected"] == 0
    assert by_arm["a"]["p"] == pytest.approx(scipy.stats.chisquare([30, 50]).pvalue)
    support.plant(store, [Trial(arm="c", task="c")])
    store.all("UPDATE experiments SET planned = 80")
    assert support.rows_of(store, "sample_ratio")[0]["p"] == 0


def test_an_arm_that_the_plan_does_not_have_gets_nothing(store):
    """An arm outside of the plan has no assigned unit."""
    by_arm = shares(store, ["a", "b"], {"a": 30, "b": 30, "c": 2})
    assert by_arm["c"]["expected"] == 0
    assert {row["p"] for row in by_arm.values()} == {0.0}


def test_no_weight_and_one_arm_have_no_test(store):
    """All weights 0, or one arm alone: no p."""
    assert {row["p"] for row in shares(store, [("a", 0.0), ("b", 0.0)], {"a": 3}).values()} <= {
        None
    }
    support.plant(store, [Trial(experiment="f", arm="a", task="t")])
    assert [row["p"] for row in support.rows_of(store, "sample_ratio", "f")] == [None]


def test_units_are_what_the_arm_was_chosen_for(store):
    """Five runs of a conversation are one unit; units are randomised if a hash assigned all."""
    made = support.plant(store, [Trial(arm=arm, task=f"{n}") for arm in "ab" for n in range(10)])
    for trial in made:
        store.all(
            "INSERT INTO assignments BY NAME SELECT $1 AS run, 'e' AS experiment, $2 AS arm, "
            "$3 AS unit, $4 AS chosen, 1 AS version, 1 AS position, "
            "TIMESTAMP '2026-01-01' AS happened_at",
            [trial.run, trial.arm, f"{trial.arm}{int(trial.task or 0) // 5}", "hash"],
        )
    rows = support.rows_of(store, "sample_ratio")
    assert [(row["units"], row["randomised"]) for row in rows] == [(2, True), (2, True)]
    store.all("UPDATE assignments SET chosen = 'caller' WHERE run = $1", [made[0].run])
    assert {row["randomised"] for row in support.rows_of(store, "sample_ratio")} == {False}


def test_accounting_counts_what_became_of_runs(store):
    """Runs are counted by status, judgement, unmatched tasks and duplicate trials."""
    support.plant(
        store,
        [
            Trial(arm="a", task="t", trial=0, scores={"reward": 1.0}),
            Trial(arm="a", task="t", trial=0, status="failed"),
            Trial(arm="a", task="u", trial=1, status="open"),
            Trial(arm="b", task="v", trial=0, status="cancelled"),
        ],
    )
    a, b = support.rows_of(store, "accounting")
    names = ("runs", "tasks", "completed", "failed", "cancelled", "open", "unjudged")
    assert [a[name] for name in names] == [3, 2, 1, 1, 0, 1, 2]
    assert [b[name] for name in names] == [1, 1, 0, 0, 1, 0, 1]
    assert (a["tasks_lacking"], a["trials_twice"], b["tasks_lacking"]) == (1, 1, 2)


def test_an_unknown_experiment_or_metric_is_an_error_that_names_the_known(store):
    """A misspelt name is not answered with no rows, or with a verdict on nothing."""
    made = [Trial(arm=arm, task="t", trial=0, scores={"reward": 1.0}) for arm in "ab"]
    support.plant(store, made)
    for macro in ("comparisons", "arm_summary", "trial_scores"):
        with pytest.raises(duckdb.Error, match="no experiment 'nosuch': known are e"):
            store.all(f"FROM {macro}('nosuch')")
        with pytest.raises(duckdb.Error, match=r"no metric 'rewrd': known are .*reward"):
            store.all(f"FROM {macro}('e', only_metric := 'rewrd')")
        assert store.all(f"FROM {macro}('e', only_metric := 'reward')")
