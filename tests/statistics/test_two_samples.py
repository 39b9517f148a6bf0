"""Arms that share no task, clusters that are few, and differences without any spread."""

import math
import random

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from tests.statistics import support
from tests.statistics.support import Trial

pytestmark = pytest.mark.later

FOUND = ("difference", "se", "df", "p", "low", "high", "always_p")


def without_tasks(base, arm, **more):
    """Return runs without a task, with the rewards of two arms."""
    return [
        Trial(arm=name, task=None, scores={"reward": value}, **more)
        for name, values in (("a", base), ("b", arm))
        for value in values
    ]


def alternating(runs):
    """Every second one is solved."""
    return [float(number % 2) for number in range(runs)]


def compared(store, trials, **plan):
    """Return the comparison of an experiment of its own."""
    store.all("DELETE FROM runs")
    store.all("DELETE FROM outcomes")
    for table in ("experiments", "arms", "metrics"):
        store.all(f"DELETE FROM {table}")
    support.plant(store, trials)
    if plan:
        support.register(store, **plan)
    return support.default(support.compared(store))


# ------------------------------------------------------------ arms that share no task


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("plan", [{}, {"unit": "run", "arms": ["a", ("b", 3.0)]}], ids=str)
@pytest.mark.parametrize("missing", ["failure", "worst-case"])
def test_more_runs_are_not_better(store, plan, missing):
    """Runs without tasks, 60 against 140, differ in nothing."""
    support.plant(store, without_tasks(alternating(60), alternating(140)))
    if plan:
        support.register(store, **plan)
    row = support.default(support.compared(store, counted_as=missing))
    assert (row["design"], row["unmatched"], row["mcnemar_p"]) == ("two samples", 0, None)
    assert (row["base_mean"], row["arm_mean"], row["difference"]) == (0.5, 0.5, 0)
    assert row["p"] == pytest.approx(1)
    assert row["verdict"] == "cannot tell"


def test_a_difference_of_runs_without_a_task_is_detected(store):
    """The difference of the means is reported and tested as scipy tests it."""
    base, arm = [float(n % 4 == 0) for n in range(60)], [float(n % 4 > 0) for n in range(40)]
    row = compared(store, without_tasks(base, arm))
    expected = scipy.stats.ttest_ind(arm, base, equal_var=False)
    assert (row["difference"], row["verdict"]) == (pytest.approx(0.5), "better")
    assert (row["p"], row["df"]) == pytest.approx((expected.pvalue, expected.df))


def test_one_common_task_keeps_the_pairs(store):
    """One common task keeps the pairing; a missing one follows the plan."""
    tasks = [("a", "t"), ("a", "u"), ("b", "t"), ("b", "v")]
    made = [Trial(arm=a, task=t, scores={"reward": 1.0}) for a, t in tasks]
    row = compared(store, made)
    assert (row["design"], row["tasks"], row["unmatched"]) == ("paired by task", 1, 2)
    row = compared(store, made, planned=3)
    assert (row["design"], row["tasks"], row["filled"]) == ("paired by task", 3, 2)
    assert (row["base_mean"], row["arm_mean"]) == pytest.approx((2 / 3, 2 / 3))


def test_each_slice_and_each_metric_is_looked_at_for_itself(store):
    """Each slice and metric chooses its own test."""
    made = [
        Trial(arm=arm, task=f"{label}{n}", labels={"l": label}, scores={"reward": n % 2, "cost": n})
        for arm in "ab"
        for label in ("common", f"of each {arm}", *(["of b alone"] if arm == "b" else []))
        for n in range(6)
    ]
    for trial in made:
        assert trial.labels is not None
        trial.labels["l"] = trial.labels["l"].removesuffix(" a").removesuffix(" b")
    support.plant(store, made)
    for options in ({"each": ["reward", "cost"]}, {"only_metric": "cost"}, {}):
        rows = [
            row
            for row in support.compared(store, by_label="l", **options)
            if row["counting"] == "failure"
        ]
        by = {row["slice"]: row for row in rows if row["metric"] == "cost"}
        assert {name: (row["design"], row["tasks"]) for name, row in by.items()} == {
            "": ("paired by task", 6),  # of a cost that lacks nothing is known
            "common": ("paired by task", 6),
            "of each": ("two samples", 12),
            "of b alone": ("paired by task", 0),
        }
        assert by["of each"]["difference"] == 0
        assert (by["of b alone"]["difference"], by["of b alone"]["p"]) == (None, None)


def test_what_the_hash_gave_to_one_arm_the_other_did_not_fail_in(store):
    """Tasks whose runs are all in one arm are unmatched, or failed where planned."""
    chance = random.Random(7)
    made = support.plant(
        store,
        [
            Trial(arm="ab"[chance.random() < 0.75], task=f"t{n}", trial=k, scores={"reward": 1.0})
            for n in range(40)
            for k in (0, 1)
        ],
    )
    support.register(store, unit="run", arms=["a", ("b", 3.0)], planned=40)
    both = {each.task for each in made if each.arm == "a"} & {
        each.task for each in made if each.arm == "b"
    }
    for how in ("hash", "caller"):
        store.all("DELETE FROM assignments")
        store.all(
            "INSERT INTO assignments BY NAME SELECT run, experiment, arm, task, $1 AS chosen, "
            "trial, 1 AS version, 1 AS position, started_at AS happened_at FROM runs",
            [how],
        )
        row = support.default(support.compared(store))
        assert row["unmatched"] == 40 - len(both)
        if how == "hash":
            assert (row["tasks"], row["difference"], row["p"]) == (len(both), 0, 1)
        else:
            assert (row["tasks"], row["counted_verdict"]) == (40, "better")
            assert row["verdict"] == "depends on missing tasks"


# ------------------------------------------------------------ few clusters of an arm


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(("base", "arm"), [(3, 27), (20, 20), (40, 5)])
def test_each_arm_has_a_variance_of_its_own(store, base, arm):
    """Each unit its own cluster: difference, interval and p of Welch's test, as scipy has them."""
    chance = random.Random(base)
    x = [chance.gauss(0, 3) for _ in range(base)]
    y = [chance.gauss(1, 1) for _ in range(arm)]
    row = compared(store, without_tasks(x, y))
    expected = scipy.stats.ttest_ind(y, x, equal_var=False)
    low, high = expected.confidence_interval()
    assert (row["df"], row["p"]) == pytest.approx((expected.df, expected.pvalue))
    assert (row["low"], row["high"]) == pytest.approx((low, high))
    assert (row["always_p"] is None, row["always_low"] is None) == (min(base, arm) < 5,) * 2


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("few", [1, 2])
@pytest.mark.parametrize("turned", [False, True])
def test_an_arm_of_one_unit_proves_nothing_and_one_of_two_little(store, few, turned):
    """One unit gives no error and no p; two give one degree of freedom."""
    sides = ([0.0, 0.5][:few], alternating(20))
    row = compared(store, without_tasks(*(sides[::-1] if turned else sides)))
    assert abs(row["difference"]) == pytest.approx(0.5 - few // 2 / 4)
    assert (row["verdict"], row["always_p"], row["df"]) == ("cannot tell", None, few - 1)
    if few == 1:
        assert [row[name] for name in (*FOUND[1:2], *FOUND[3:])] == [None] * 5
        return
    se = math.sqrt(np.var(sides[0], ddof=1) / 2 + np.var(sides[1], ddof=1) / 20)
    assert row["se"] == pytest.approx(se)
    assert row["p"] == pytest.approx(2 * scipy.stats.t.sf(0.25 / se, 1))


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("turned", [False, True])
def test_an_arm_without_spread_has_that_of_the_other(store, turned):
    """An arm without spread takes the other arm's variance: three zeros do not prove none."""
    sides = ([0.0] * 3, alternating(27))
    row = compared(store, without_tasks(*(sides[::-1] if turned else sides)))
    variance = np.var(sides[1], ddof=1)
    se = math.sqrt(variance / 3 + variance / 27)
    assert (row["se"], row["df"]) == (pytest.approx(se), 26)
    expected = 2 * scipy.stats.t.sf(np.mean(sides[1]) / se, 26)
    assert (row["p"], row["verdict"]) == (pytest.approx(expected), "cannot tell")


def test_clusters_of_both_arms_are_those_of_pairs(store):
    """Clusters in both arms give the numbers of pairs."""
    for cluster in ("pair", "g"):
        designs = []
        for names in ("t{n}", "{arm}{n}"):
            chance = random.Random(6)
            made = [
                Trial(
                    arm=arm,
                    task=names.format(arm=arm, n=n),
                    labels={"g": f"g{n % 8}", "pair": f"p{n}"},
                    scores={"reward": n + chance.random()},
                )
                for n in range(24)
                for arm in "ab"
            ]
            designs.append(compared(store, made, cluster=cluster))
        one, other = designs
        assert (one["design"], other["design"]) == ("paired by task", "two samples")
        assert [one[name] for name in FOUND] == pytest.approx([other[name] for name in FOUND])


def test_clusters_of_one_arm_and_of_both(store):
    """Mixed clusters have a corrected variance and bounded degrees of freedom."""
    chance = random.Random(5)
    values = {
        (arm, g): [chance.gauss(g / 4, 1) for _ in range(2)]
        for arm, groups in (("a", range(9)), ("b", range(4, 16)))
        for g in groups
    }
    made = [
        Trial(arm=arm, task=f"{arm}{g} {n}", labels={"g": f"g{g}"}, scores={"reward": value})
        for (arm, g), both in values.items()
        for n, value in enumerate(both)
    ]
    row = compared(store, made, unit="task", cluster="g", missing="excluded")
    parts = dict.fromkeys(range(16), 0.0)
    for arm, sign in (("a", -1), ("b", 1)):
        mine = {g: both for (name, g), both in values.items() if name == arm}
        mean = float(np.mean([*mine.values()]))
        for g, both in mine.items():
            part = sum(value - mean for value in both) / (2 * len(mine))
            parts[g] += sign * part * math.sqrt(len(mine) / (len(mine) - 1))
    assert row["se"] == pytest.approx(math.sqrt(sum(part**2 for part in parts.values())))
    assert row["clusters"] == 16
    assert 8 <= row["df"] <= 19


ROUNDS = 400


@pytest.mark.thorough(quick="test_an_arm_without_spread_has_that_of_the_other")
@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize(("base", "arm"), [(1, 20), (2, 38), (3, 27), (10, 60), (20, 20)])
def test_a_small_arm_gives_no_false_alarms(store, base, arm, share):
    """However small an arm, p <= .05 in at most one of twenty rounds."""
    rng = np.random.default_rng(base)
    support.plant(
        store,
        [
            Trial(
                arm=name,
                task=None,
                labels={"round": f"{each}"},
                scores={"reward": float(rng.random() < share)},
            )
            for each in range(ROUNDS)
            for name, units in (("a", base), ("b", arm))
            for _ in range(units)
        ],
    )
    rows = [
        row for row in support.compared(store, by_label="round") if row["default"] and row["slice"]
    ]
    assert len(rows) == ROUNDS
    alarms = sum(row["p"] is not None and row["p"] <= 0.05 for row in rows)
    assert alarms <= scipy.stats.binom.ppf(0.9995, ROUNDS, 0.05)


# ------------------------------------------------------------ no spread at all


@pytest.mark.parametrize(
    ("clusters", "verdict"), [(2, "cannot tell"), (5, "cannot tell"), (8, "better")]
)
def test_a_difference_without_spread_has_no_more_proofs_than_clusters(store, clusters, verdict):
    """A constant difference has no more evidence than clusters."""
    made = [
        Trial(arm=arm, task=f"t{n}", labels={"repo": f"r{n % clusters}"}, scores={"reward": value})
        for arm, value in (("a", 0.0), ("b", 1.0))
        for n in range(40)
    ]
    row = compared(store, made, cluster="repo")
    assert (row["p"], row["se"]) == (pytest.approx(2 / 2**clusters), 0)
    assert (row["verdict"], row["mcnemar_p"]) == (verdict, None)
    assert (row["wins"], row["tasks"], row["clusters"]) == (40, 40, clusters)
    alone = compared(store, made)
    assert alone["p"] == alone["mcnemar_p"] == pytest.approx(2 / 2**40)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(("base", "arm"), [(2, 2), (3, 3), (3, 9), (9, 3), (60, 60)])
def test_two_samples_without_spread_are_judged_by_all_ways_to_part_them(store, base, arm):
    """Total separation is judged by all ways to split the units."""
    row = compared(store, without_tasks([0.0] * base, [1.0] * arm))
    expected = min(1, 2 / math.comb(base + arm, arm))
    assert (row["p"], row["low"]) == (pytest.approx(expected), None)
    exact = scipy.stats.fisher_exact([[0, base], [arm, 0]]).pvalue
    assert exact <= row["p"] * (1 + 1e-9)
    assert row["verdict"] == ("better" if expected <= 0.05 else "cannot tell")
