"""Effects on a comparison: unmatched tasks, missing values, open runs, impossible values."""

import math
import random

import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from tests.statistics import support
from tests.statistics.support import Trial

pytestmark = pytest.mark.later


def trials(arm, values, *, metric="reward", first=0, **more):
    """One trial a task, from task `first` on; None is a trial without a value."""
    return [
        Trial(
            arm=arm,
            task=f"t{number:03}",
            scores={} if value is None else {metric: float(value)},
            **more,
        )
        for number, value in enumerate(values, first)
    ]


def compared(store, made, *, plan=None, **query):
    """Return the default row of the comparison of two arms."""
    support.plant(store, made)
    if plan is not None:
        support.register(store, **plan)
    return support.default(support.compared(store, **query))


# ------------------------------------------------------------ unmatched tasks


def test_three_of_three_are_not_better_than_66_of_100(store):
    """Without a plan, the 97 tasks that an arm never had are unmatched: three pairs decide."""
    made = trials("a", [n % 3 > 0 for n in range(100)]) + trials("b", [1, 1, 1])
    row = compared(store, made)
    assert (row["design"], row["tasks"], row["unmatched"]) == ("paired by task", 3, 97)
    assert (row["arm_mean"], row["verdict"]) == (1, "cannot tell")


@pytest.mark.parametrize(
    ("missing", "tasks", "difference"), [("failure", 40, -0.35), ("excluded", 12, 0)]
)
def test_a_planned_task_that_an_arm_lacks_counts_by_the_plan(store, missing, tasks, difference):
    """28 of 40 planned tasks missing in an arm count by its rule, and the verdict depends."""
    values = [n % 2 for n in range(40)]
    made = trials("a", values) + trials("b", values[:12])
    row = compared(store, made, plan={"planned": 40, "missing": missing})
    assert (row["tasks"], row["difference"]) == (tasks, pytest.approx(difference))
    assert (row["unmatched"], row["verdict"]) == (28, "depends on missing tasks")


def test_more_tasks_than_planned_are_not_filled_in(store):
    """A plan of 10 tasks does not determine which of 20 tasks it means."""
    made = trials("a", [1] * 20) + trials("b", [1] * 12)
    row = compared(store, made, plan={"planned": 10})
    assert (row["tasks"], row["difference"], row["filled"]) == (12, 0, 0)


def test_regressions_hold_no_task_that_an_arm_never_had(store):
    """A task without a run under an arm is no regression."""
    support.plant(store, trials("a", [1] * 9) + trials("b", [1, 1, 0]))
    assert [row["task"] for row in support.rows_of(store, "regressions")] == ["t002"]


# ------------------------------------------------------------ open runs


def test_open_runs_are_not_finished_and_no_failures(store):
    """Open runs are in no figure, and the comparison is unfinished."""
    made = trials("a", [n % 2 for n in range(12)]) + trials("b", [n % 2 for n in range(7)])
    made += trials("b", [None] * 5, first=7, status="open")
    row = compared(store, made)
    assert (row["verdict"], row["difference"], row["tasks"]) == ("not finished", 0, 7)
    assert (row["arm_open"], row["arm_missing"], row["base_open"]) == (5, 0, 0)
    [_, arm] = support.rows_of(store, "arm_summary")
    assert (arm["mean"], arm["trials"], arm["open"], arm["missing"]) == (3 / 7, 12, 5, 0)
    [_, curve] = support.rows_of(store, "pass_curves")
    assert curve["pass_at_k"] == pytest.approx(3 / 7)


def test_an_open_run_withholds_even_a_clear_verdict(store):
    """All of one arm solved, none of the other, one run open."""
    made = trials("a", [0] * 20) + trials("b", [1] * 19)
    made += trials("b", [None], first=19, status="open")
    row = compared(store, made)
    assert (row["verdict"], row["counted_verdict"]) == ("not finished", "better")


# ------------------------------------------------------------ completion


@pytest.mark.parametrize(
    "plan", [None, {"planned": 100, "metrics": [("completion", "higher", None)]}]
)
def test_completion_is_a_share_of_runs(store, plan):
    """Completion is a share of an arm's own runs."""
    made = trials("a", [1] * 100) + trials("b", [1, 1, 1])
    row = compared(store, made, plan=plan, only_metric="completion")
    assert (row["base_mean"], row["arm_mean"], row["design"]) == (1, 1, "shares of runs")
    assert row["filled"] == 0


def test_completion_weighs_runs_not_tasks(store):
    """One task tried nine times without a failure, one tried once that failed: 0.9, not 0.5."""
    made = [
        Trial(arm=arm, task=task, trial=trial, status="failed" if task == "u" else "completed")
        for arm in "ab"
        for task, tries in (("t", 9), ("u", 1))
        for trial in range(tries)
    ]
    row = compared(store, made, only_metric="completion")
    assert (row["base_mean"], row["arm_mean"]) == (0.9, 0.9)
    arms = support.rows_of(store, "arm_summary", only_metric="completion")
    assert [arm["mean"] for arm in arms] == [0.9, 0.9]


# ------------------------------------------------------------ one rule for missing values


METRICS = [("reward", None), ("made_up", None), ("made_up", "higher"), ("made_up", "lower")]


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(("metric", "direction"), METRICS)
@pytest.mark.parametrize("rule", ["failure", "excluded", "worst-case"])
def test_mean_and_pass_rate_count_a_missing_value_alike(store, metric, direction, rule):
    """Mean and pass@1 count missing values alike, by each rule."""
    made = trials("a", [1, 1, 0, None, None, 1, None, 0, None, 1], metric=metric)
    made += trials("b", [1, 0, 0, 1, 0, 1, 1, 0, 1, None], metric=metric)
    support.plant(store, made)
    query = {"only_metric": metric, "counted_as": rule}
    query |= {"directions": f'{{"{metric}": "{direction}"}}'} if direction else {}
    means = {row["arm"]: row["mean"] for row in support.rows_of(store, "arm_summary", **query)}
    curves = {
        row["arm"]: row["pass_at_k"]
        for row in support.rows_of(store, "pass_curves", **query)
        if row["k"] == 1
    }
    assert means == pytest.approx(curves)
    pairs = [
        row for row in support.rows_of(store, "task_pairs", **query) if row["counting"] == rule
    ]
    if rule == "failure" and (direction or metric == "reward") != "lower":
        known = metric == "reward" or direction == "higher"
        assert means["a"] == pytest.approx(0.4 if known else 4 / 6)
    assert len(pairs) == 10


# ------------------------------------------------------------ verdicts that depend


@pytest.mark.parametrize(
    ("values", "lost", "verdicts"),
    [
        ([n % 5 > 0 for n in range(60)], range(0, 60, 3), ("depends on missing values", "worse")),
        ([0] * 39 + [1], [39], ("better", "better")),
    ],
    ids=["a third of an arm", "one of forty"],
)
def test_a_verdict_that_turns_with_missing_values_depends_on_them(store, values, lost, verdicts):
    """Values of one arm are lost; a clear difference either way depends on none of them."""
    arm = values if verdicts[0] != "better" else [1] * 40
    made = trials("a", values) + trials("b", [None if n in lost else v for n, v in enumerate(arm)])
    row = compared(store, made)
    assert (row["verdict"], row["counted_verdict"]) == verdicts
    assert row["arm_missing"] == len(lost)


# ------------------------------------------------------------ the test that decides


def test_a_comparison_by_task_is_paired_though_the_unit_is_the_task(store):
    """Each task was tried under both arms, as the caller chose: pairs, whatever the plan's unit."""
    chance = random.Random(3)
    hard = [chance.gauss(0, 5) for _ in range(20)]
    made = trials("a", hard) + trials("b", [each + chance.random() for each in hard])
    row = compared(store, made, plan={"unit": "task"})
    assert (row["design"], row["test"]) == ("paired by task", "paired t test")
    expected = scipy.stats.ttest_rel(
        [t.scores["reward"] for t in made[20:]], [t.scores["reward"] for t in made[:20]]
    )
    assert (row["p"], row["verdict"]) == (pytest.approx(expected.pvalue), "better")


@pytest.mark.parametrize(
    ("made", "plan", "test"),
    [
        (lambda: trials("a", [0, 1, 0, 1]) + trials("b", [1, 1, 0, 0]), {}, "paired t test"),
        (lambda: trials("a", [0, 1, 0]) + trials("b", [1, 1, 0], first=10), {}, "Welch's t test"),
        (lambda: trials("a", [0] * 4) + trials("b", [1] * 4), {}, "exact sign test"),
        (
            lambda: trials("a", [0] * 4) + trials("b", [1] * 4, first=10),
            {},
            "exact permutation test",
        ),
        (lambda: trials("a", [1] * 4) + trials("b", [1] * 4), {}, "none: no task differs"),
        (
            lambda: trials("a", [n % 2 for n in range(9)]) + trials("b", [1, 1, 0] * 3),
            {"stop": "sequential"},
            "always-valid normal mixture",
        ),
        (lambda: trials("a", [1]) + trials("b", [0]), {}, None),
    ],
    ids=["paired", "welch", "signs", "permutation", "tied", "sequential", "one task"],
)
def test_the_test_that_decides_is_named(store, made, plan, test):
    """The test has its usual name in statistics; None where there is no p."""
    assert compared(store, made(), plan=plan)["test"] == test


# ------------------------------------------------------------ units that are lost


@pytest.mark.parametrize(
    ("plan", "stated"),
    [
        (None, False),
        ({}, False),
        ({"planned": 60}, True),
        ({"arms": [("a", 3.0), ("b", 1.0)]}, True),
    ],
)
def test_units_are_lost_only_if_the_plan_states_how_many(store, plan, stated):
    """66 units against 3 without a hash are tested only if the plan states a number or weights."""
    support.plant(store, trials("a", [1] * 66) + trials("b", [1] * 3))
    if plan is not None:
        support.register(store, **plan)
    rows = support.rows_of(store, "sample_ratio")
    assert {row["stated"] for row in rows} == {stated}
    assert {row["p"] is not None for row in rows} == {stated}


# ------------------------------------------------------------ values that cannot be


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("metric", ["latency_ms", "cost", "duration"])
def test_a_duration_or_cost_below_zero_has_no_verdict(store, metric):
    """One of forty values is negative: whatever it means, it is no basis for a verdict."""
    made = trials("a", [5.0 + n for n in range(20)], metric=metric)
    made += trials("b", [1.0 + n for n in range(19)] + [-3.0], metric=metric)
    row = compared(store, made, only_metric=metric)
    assert row["verdict"] == "impossible values"
    assert row["problem"] == "1 of 40 values are below 0"


def test_a_run_that_ends_before_it_starts_has_no_latency_verdict(store):
    """Times of our own that go backwards give a negative latency."""
    support.plant(store, trials("a", [1] * 12) + trials("b", [1] * 12))
    store.all("UPDATE runs SET ended_at = started_at + to_seconds(if(arm = 'b', -1, 5))")
    row = support.default(support.compared(store, only_metric="latency_ms"))
    assert (row["verdict"], row["problem"]) == ("impossible values", "12 of 24 values are below 0")


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("turned", [False, True])
def test_a_percentage_against_a_share_has_no_verdict(store, turned):
    """0 to 100 in one arm, 0 to 1 in the other."""
    shares, percents = [0.1 * (n % 11) for n in range(30)], [10.0 * (n % 11) for n in range(30)]
    made = trials("a", percents if turned else shares, metric="score")
    made += trials("b", shares if turned else percents, metric="score")
    row = compared(store, made, directions='{"score": "higher"}')
    assert row["verdict"] == "different scales"
    assert row["problem"] == (
        f"{'b' if turned else 'a'} is a share, from 0 to 1, "
        f"{'a' if turned else 'b'} a percentage, from 0 to 100"
    )


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("base", "arm"),
    [
        ([0, 1, 1, 0], [0, 1, 2, 3]),  # counts
        ([0.5, 0.9, 0.1, 0.3], [0.5, 1.5, 0.1, 0.3]),
        ([20, 90, 50, 5], [10, 100, 0, 30]),  # both percentages
        ([0.2, 0.5, 0.3, 0.9], [300.0, 20.0, 50.0, 70.0]),
    ],
)
def test_values_of_one_scale_are_compared(store, base, arm):
    """Counts, shares beside larger numbers, and percentages are one scale each."""
    made = trials("a", base, metric="score") + trials("b", arm, metric="score")
    row = compared(store, made, directions='{"score": "higher"}')
    assert (row["verdict"], row["problem"]) == ("cannot tell", None)


# ------------------------------------------------------------ limits of double precision


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("level", [0.0, 1e6, 1e12, 1e13])
@pytest.mark.parametrize("design", ["paired", "two samples"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_level_far_above_the_spread_hides_no_spread(store, level, design, whole):
    """A level of 1e12 does not hide a spread of 1."""
    chance = random.Random(5)

    def values(by):
        drawn = [level + chance.gauss(by, 3 if whole else 1) for _ in range(20)]
        return [float(round(value)) for value in drawn] if whole else drawn

    x, y = values(0), values(1)
    made = trials("a", x, metric="score")
    made += trials("b", y, metric="score", first=0 if design == "paired" else 50)
    row = compared(store, made)
    x, y = [value - level for value in x], [value - level for value in y]
    if design == "paired":
        expected = scipy.stats.ttest_rel(y, x)
    else:
        expected = scipy.stats.ttest_ind(y, x, equal_var=False)
    assert row["p"] == pytest.approx(expected.pvalue, rel=1e-9 if whole else 1e-2)
    assert row["difference"] == pytest.approx(
        sum(y) / 20 - sum(x) / 20, rel=1e-9 if whole else 1e-2
    )


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("size", [1e308, 1.7e308, 1e200, 1e-200, 1e-300])
@pytest.mark.parametrize("design", ["paired", "two samples"])
def test_the_largest_and_smallest_doubles_are_compared_as_others(store, size, design):
    """Values at the limits of doubles are compared as others."""
    x, y = [0.1, 0.4, 0.3, 0.5, 0.2, 0.6], [0.3, 0.5, 0.7, 0.6, 0.4, 1.0]
    made = trials("a", [value * size for value in x], metric="score")
    made += trials(
        "b", [value * size for value in y], metric="score", first=0 if design == "paired" else 50
    )
    row = compared(store, made, directions='{"score": "higher"}')
    test = scipy.stats.ttest_rel if design == "paired" else scipy.stats.ttest_ind
    expected = test(y, x) if design == "paired" else test(y, x, equal_var=False)
    assert row["p"] == pytest.approx(expected.pvalue, rel=1e-6)
    assert row["difference"] / size == pytest.approx(1.4 / 6)
    low, _ = expected.confidence_interval()
    assert row["low"] / size == pytest.approx(low)
    assert [arm["mean"] / size for arm in support.rows_of(store, "arm_summary")] == (
        pytest.approx([2.1 / 6, 3.5 / 6])
    )


def test_trials_of_the_largest_double_have_a_mean(store):
    """Their sum is beyond doubles, their mean is not."""
    made = [
        Trial(arm=arm, task=f"t{n}", trial=k, scores={"score": 1.7e308 * by})
        for arm, by in (("a", 0.5), ("b", 1.0))
        for n in range(6)
        for k in range(3)
    ]
    row = compared(store, made, directions='{"score": "higher"}')
    assert (row["arm_mean"], row["difference"]) == (pytest.approx(1.7e308), pytest.approx(0.85e308))
    assert (row["p"], row["verdict"]) == (pytest.approx(2 / 2**6), "better")


@pytest.mark.parametrize(
    ("base", "arm"),
    [
        ([-1.7e308] * 5, [1.7e308] * 5),  # the difference exceeds doubles
        ([1e15 + n % 3 + 0.5 for n in range(12)], [1e15 + n % 5 for n in range(12)]),
    ],
    ids=["overflow", "last digits"],
)
def test_what_doubles_cannot_hold_is_reported_as_beyond_computing(store, base, arm):
    """No nan, no p and no verdict, but the reason."""
    made = trials("a", base, metric="score") + trials("b", arm, metric="score")
    row = compared(store, made, directions='{"score": "higher"}')
    assert (row["verdict"], row["p"]) == ("cannot be computed", None)
    assert "double precision" in row["problem"]
    assert not [name for name, value in row.items() if value in (math.inf, -math.inf)]
    assert not [n for n, v in row.items() if isinstance(v, float) and math.isnan(v)]


# ------------------------------------------------------------ claimed means


def claimed(store, runs, solved, claim, *, metric="reward", plan=None):
    """Return the audit's finding for a claimed mean with half of the rest missing."""
    made = [
        Trial(
            arm="a",
            task=f"t{n}",
            scores={metric: 1.0} if n < solved else {} if n % 2 else {metric: 0.0},
            labels={f"claim of the mean: {metric}": f"{claim}"},
        )
        for n in range(runs)
    ]
    support.plant(store, made)
    if plan is not None:
        support.register(store, **plan)
    [row] = store.rows("FROM claimed_scores WHERE run IS NULL")
    findings = store.rows("SELECT kind, fact FROM odd_scores")
    means = support.rows_of(store, "arm_summary", only_metric=metric)
    return row, findings, means[0]["mean"]


def test_a_claim_that_counts_missing_runs_as_failures_holds(store):
    """20 of 50 solved, 15 without a value: the comparison gives the claim's 0.40, too."""
    row, findings, mean = claimed(store, 50, 20, 0.4)
    assert (row["holds"], row["runs"], row["missing"]) == (True, 50, 15)
    assert row["value"] == pytest.approx(mean) == pytest.approx(0.4)
    assert findings == []


def test_a_claim_that_leaves_missing_runs_out_is_no_false_claim(store):
    """0.571 of the 35 runs with a value: right, but by another rule than that of the comparison."""
    row, [finding], mean = claimed(store, 50, 20, 0.571)
    assert (row["holds"], row["value"]) == (False, pytest.approx(mean))
    assert row["otherwise"] == pytest.approx(20 / 35)
    assert finding["kind"] == "claimed mean counts otherwise"
    assert finding["fact"] == (
        "claimed is a mean reward of 0.571 under arm a, and that of its 50 runs is 0.4 "
        "(15 without a value); it is 0.571429 with missing values or crashes counted otherwise"
    )


def test_a_plan_that_leaves_missing_runs_out_says_so_of_claims(store):
    """The plan's rule is that of the claim, too."""
    row, findings, mean = claimed(store, 50, 20, 0.571, plan={"missing": "excluded"})
    assert (row["holds"], findings) == (True, [])
    assert row["value"] == pytest.approx(mean) == pytest.approx(20 / 35)


def test_a_claim_that_no_rule_gives_is_detected(store):
    """0.60 is neither 20 of 50 nor 20 of 35."""
    row, [finding], _ = claimed(store, 50, 20, 0.6)
    assert (row["holds"], row["otherwise"], finding["kind"]) == (False, None, "claimed mean")


def test_the_claimed_mean_of_a_metric_of_no_direction_is_that_of_the_comparison(store):
    """A missing value of such a metric is left out on both sides."""
    row, findings, mean = claimed(store, 50, 20, 0.571, metric="made_up")
    assert (row["holds"], findings) == (True, [])
    assert row["value"] == pytest.approx(mean) == pytest.approx(20 / 35)


def test_unmatched_tasks_leave_the_exact_test_mcnemars(store):
    """Each pair was tried once under each arm, whatever else one of them has."""
    made = trials("a", [0] * 20) + trials("b", [1] * 9 + [0] * 5)
    row = compared(store, made)
    assert (row["single"], row["tasks"], row["unmatched"]) == (True, 14, 6)
    expected = scipy.stats.binomtest(9, 9).pvalue
    assert row["mcnemar_p"] == pytest.approx(expected)
