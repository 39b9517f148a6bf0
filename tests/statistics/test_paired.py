"""Comparisons, arms and pass curves against the same formulas written down in Python and numpy."""

import itertools
import math
import random
from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from tests.statistics import support
from tests.statistics.support import Trial

pytestmark = pytest.mark.later

CLOSE: dict[str, Any] = {"rel": 1e-9, "abs": 1e-12}


def stderr(values, clusters=None):
    """Return Inspect AI's `stderr`, with or without clusters."""
    values = np.asarray(values, dtype=float)
    n = len(values)
    if clusters is None:
        return math.sqrt(values.var(ddof=1) / n)
    away = values - values.mean()
    groups = [away[[c == each for c in clusters]] for each in set(clusters)]
    squares = sum(float(np.outer(group, group).sum()) for group in groups)
    return math.sqrt(squares * len(groups) / (len(groups) - 1)) / n


def trials_of(seed, clusters, arms="abc"):
    """Unequal trials, missing values, tasks that some arms lack; three metrics."""
    chance = random.Random(seed)
    made = []
    for task in range(30):
        hard = chance.gauss(0, 1)
        for number, arm in enumerate(arms):
            if chance.random() < 0.1:
                continue
            for trial in range(chance.randint(1, 4)):
                p = 1 / (1 + math.exp(-hard - 0.3 * number))
                scores = {
                    "reward": None if chance.random() < 0.1 else float(chance.random() < p),
                    "score": None if chance.random() < 0.1 else chance.gauss(hard, 1),
                    "cost": None if chance.random() < 0.1 else chance.random() + number / 10,
                }
                labels = {"group": f"group {task % clusters}", "level": "hl"[task % 2]}
                made.append(
                    Trial(arm=arm, task=f"t{task}", trial=trial, scores=scores, labels=labels)
                )
    chance.shuffle(made)
    return made


def by_task(trials, arm, metric, counting, better):
    """Return the mean over trials, by task; a missing value is the worst value, or left out."""
    known = [each.scores[metric] for each in trials if each.scores.get(metric) is not None]
    worst = min(0.0, *known) if better == "higher" and counting == "failure" else None
    values_by_task = defaultdict(list)
    for each in trials:
        value = each.scores.get(metric)
        value = worst if value is None else value
        if each.arm == arm and value is not None:
            values_by_task[each.task].append(value)
    return {task: float(np.mean(values)) for task, values in values_by_task.items()}, worst


def paired(trials, arm, metric, counting, better, clustered):
    """Mean difference by task, its clustered error and degrees of freedom, and the signs."""
    base, _ = by_task(trials, "a", metric, counting, better)
    mine, _ = by_task(trials, arm, metric, counting, better)
    differ = {task: mine[task] - base[task] for task in sorted({*base} & {*mine})}
    group = {each.task: each.labels["group"] for each in trials}
    clusters = [group[task] if clustered else task for task in differ]
    values = list(differ.values())
    return {
        "tasks": len(values),
        "difference": float(np.mean(values)),
        "se": stderr(values, clusters),
        "df": len(set(clusters)) - 1,
        "wins": sum((value > 0) == (better == "higher") for value in values if value),
        "losses": sum((value < 0) == (better == "higher") for value in values if value),
        "ties": values.count(0.0),
    }


@pytest.fixture(params=[(1, 4), (2, 7), (3, 10), (4, 30)], ids=str)
def world(request, store):
    """Trials and the store that holds them; the clusters are few or as many as tasks."""
    seed, clusters = request.param
    made = trials_of(seed, clusters)
    support.plant(store, made)
    return store, made


METRICS = [("reward", "higher", None), ("score", "higher", 0.1), ("cost", "lower", 0.05)]


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("clustered", [False, True])
def test_the_paired_difference_is_pythons(world, clustered):
    """Paired results equal an independent implementation, for every metric and counting."""
    store, made = world
    support.register(
        store, arms=["a", "b", "c"], metrics=METRICS, cluster="group" if clustered else None
    )
    rows = support.compared(store)
    assert len(rows) == 3 * 2 * 2
    for row in rows:
        want = paired(made, row["arm"], row["metric"], row["counting"], row["better"], clustered)
        t = want["difference"] / want["se"]
        half = scipy.stats.t.ppf(0.975, want["df"]) * want["se"]
        want |= {
            "p": 2 * scipy.stats.t.sf(abs(t), want["df"]),
            "low": want["difference"] - half,
            "high": want["difference"] + half,
            "mcnemar_p": scipy.stats.binomtest(want["wins"], want["wins"] + want["losses"]).pvalue,
            "detectable": half + scipy.stats.t.ppf(0.8, want["df"]) * want["se"],
        }
        if row["clusters"] < row["tasks"]:  # a test of tasks does not know that they hang together
            assert row["mcnemar_p"] is None
            del want["mcnemar_p"]
        assert {name: row[name] for name in want} == pytest.approx(want, **CLOSE)
        assert row["clusters"] == row["df"] + 1


@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("clustered", [False, True])
def test_the_error_of_an_arm_is_inspects(world, clustered):
    """`stderr(cluster=...)`, and t with clusters - 1 degrees of freedom; with each task its own
    cluster it is the ordinary one, ddof = 1.
    """
    store, made = world
    cluster = "group" if clustered else None
    support.register(store, arms=["a", "b", "c"], metrics=METRICS, cluster=cluster)
    group = {each.task: each.labels["group"] for each in made}
    for row in support.rows_of(store, "arm_summary"):
        scores, _ = by_task(made, row["arm"], row["metric"], "failure", row["better"])
        values = list(scores.values())
        se = stderr(values, [group[task] for task in scores] if clustered else None)
        assert row["mean"] == pytest.approx(np.mean(values), **CLOSE)
        assert row["se"] == pytest.approx(se, **CLOSE)
        ends = scipy.stats.t.interval(0.95, row["clusters"] - 1, np.mean(values), se)
        assert (row["low"], row["high"]) == pytest.approx(ends, **CLOSE)


def holm(ps):
    """Holm (1979): step down, never less than the one before."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, so_far = [0.0] * len(ps), 0.0
    for rank, i in enumerate(order):
        so_far = max(so_far, min(1.0, ps[i] * (len(ps) - rank)))
        adjusted[i] = so_far
    return adjusted


@pytest.mark.slow(cases=1)
def test_holm_and_benjamini_hochberg(world):
    """Holm and Benjamini-Hochberg run over arms and metrics, and apart over slices."""
    store, _ = world
    support.register(store, arms=["a", "b", "c"], metrics=METRICS, alpha=0.2)
    rows = [row for row in support.compared(store, by_label="level") if row["default"]]
    alone = [row for row in support.compared(store) if row["default"]]
    whole = [row for row in rows if not row["slice"]]
    assert [row["holm_p"] for row in whole] == [row["holm_p"] for row in alone]
    for family, size in ((whole, 3 * 2), ([row for row in rows if row["slice"]], 3 * 2 * 2)):
        ps = [row["p"] for row in family]
        assert [row["family"] for row in family] == [size] * size
        assert [row["holm_p"] for row in family] == pytest.approx(holm(ps), **CLOSE)
        expected = scipy.stats.false_discovery_control(ps)
        assert [row["bh_p"] for row in family] == pytest.approx(list(expected), **CLOSE)
    for row in rows:
        if row["holm_p"] > 0.2:
            assert row["counted_verdict"] == "cannot tell"
        else:
            good = (row["difference"] > 0) == (row["better"] == "higher")
            assert row["counted_verdict"] == ("better" if good else "worse")


@pytest.mark.fast(cases=1, slow=0)
def test_the_always_valid_p_is_the_mixtures_of_ts_normal_score(world):
    """The always-valid p is the normal mixture's at t's normal score, from five clusters on."""
    store, _ = world
    support.register(
        store, arms=["a", "b", "c"], metrics=METRICS, cluster="group", stop="sequential", planned=50
    )
    for row in support.compared(store):
        if row["clusters"] < 5:
            assert (row["always_p"], row["always_low"], row["always_high"]) == (None,) * 3
            assert (row["holm_p"], row["verdict"]) == (None, "cannot tell")
            continue
        nr = row["tasks"] * (2 * math.log(20) + math.log(1 + 2 * math.log(20))) / 50
        z = scipy.stats.norm.isf(row["p"] / 2)
        expected = min(1.0, math.sqrt(nr + 1) * math.exp(-(z**2) * nr / (2 * (nr + 1))))
        assert row["always_p"] == pytest.approx(expected, rel=1e-8)
        beyond = math.sqrt((nr + 1) / nr * (math.log(nr + 1) - 2 * math.log(0.05)))
        half = scipy.stats.t.isf(scipy.stats.norm.sf(beyond), row["df"]) * row["se"]
        assert row["always_high"] - row["difference"] == pytest.approx(half, rel=1e-8)
        assert (row["always_p"] <= 0.05) == (abs(row["difference"]) >= half)


@pytest.mark.fast(cases=1, slow=0)
def test_pass_curves_are_means_of_exact_shares(world):
    """pass@k and pass^k by task as fractions, their mean, and Inspect's error of that mean."""
    store, made = world
    support.register(store, arms=["a", "b", "c"], cluster="group")
    group = {each.task: each.labels["group"] for each in made}
    rows = support.rows_of(store, "pass_curves")
    assert {row["k"] for row in rows} == {1}  # some task has only one trial
    some = [each for each in made if each.trial < 1]
    assert {row["arm"] for row in rows} == {each.arm for each in some}
    for row in rows:
        tries = defaultdict(list)
        for each in made:
            if each.arm == row["arm"]:
                tries[each.task].append(each.scores["reward"] == 1)
        shares = {task: float(Fraction(sum(won), len(won))) for task, won in tries.items()}
        se = stderr(list(shares.values()), [group[task] for task in shares])
        for name in ("pass_at_k", "pass_hat_k"):
            assert row[name] == pytest.approx(np.mean(list(shares.values())), **CLOSE)
            assert row[f"{name}_se"] == pytest.approx(se, **CLOSE)


def test_pass_curves_of_four_trials(store):
    """With four trials of every task: k up to 4, by combinations, intervals cut at 0 and 1."""
    chance = random.Random(6)
    won = {
        (arm, task): [chance.random() < 0.6 for _ in range(4)] for arm in "ab" for task in "uvwxyz"
    }
    support.plant(
        store,
        [
            Trial(arm=arm, task=task, trial=number, scores={"reward": float(value)})
            for (arm, task), values in won.items()
            for number, value in enumerate(values)
        ],
    )
    rows = support.rows_of(store, "pass_curves")
    assert [(row["arm"], row["k"]) for row in rows] == [
        (arm, k) for arm in "ab" for k in (1, 2, 3, 4)
    ]
    for row in rows:
        k = row["k"]
        counts = [sum(won[row["arm"], task]) for task in "uvwxyz"]
        hat = [math.comb(c, k) / math.comb(4, k) for c in counts]
        at = [1 - math.comb(4 - c, k) / math.comb(4, k) for c in counts]
        for name, values in (("pass_hat_k", hat), ("pass_at_k", at)):
            assert row[name] == pytest.approx(np.mean(values), **CLOSE)
            half = scipy.stats.t.ppf(0.975, 5) * stderr(values)
            low, high = max(0, np.mean(values) - half), min(1, np.mean(values) + half)
            assert (row[f"{name}_low"], row[f"{name}_high"]) == (
                pytest.approx(low, **CLOSE),
                pytest.approx(high, **CLOSE),
            )


def test_wilson_is_stated_where_trials_are_independent(store):
    """One trial a task and no clusters: Wilson's interval of successes among all trials."""
    made = [
        Trial(arm=arm, task=f"t{task}", scores={"reward": float(task % 3 == 0)} if task else {})
        for arm in "ab"
        for task in range(25)
    ]
    support.plant(store, made)
    [row, _] = support.rows_of(store, "arm_summary")
    expected = scipy.stats.binomtest(8, 25).proportion_ci(method="wilson")
    assert (row["wilson_low"], row["wilson_high"]) == (
        pytest.approx(expected.low),
        pytest.approx(expected.high),
    )


@pytest.mark.slow
def test_ranks_are_what_scipy_and_holm_leave_open(store):
    """Ranks equal those left open by scipy's paired t under one Holm family."""
    chance, tasks = random.Random(3), 25
    shifts = {"a": 0.0, "b": 0.1, "c": 0.9, "d": 1.0, "e": 2.5}
    scores = {
        arm: [chance.gauss(shift, 0.6) for _ in range(tasks)] for arm, shift in shifts.items()
    }
    support.plant(
        store,
        [
            Trial(arm=arm, task=f"t{n}", scores={"depth": value})
            for arm, values in scores.items()
            for n, value in enumerate(values)
        ],
    )
    tested = {
        (x, y): scipy.stats.ttest_rel(scores[x], scores[y]).pvalue
        for x, y in itertools.combinations(shifts, 2)
    }
    holm, most = {}, 0.0
    for place, pair in enumerate(sorted(tested, key=tested.__getitem__)):
        most = max(most, min(1.0, tested[pair] * (len(tested) - place)))
        holm[pair] = most
    pairs = support.compared(store, all_pairs=True, directions='{"depth": "higher"}')
    shown = [row for row in pairs if row["default"]]
    adjusted = {tuple(sorted((row["arm"], row["baseline"]))): row["holm_p"] for row in shown}
    assert adjusted == {pair: pytest.approx(p, rel=1e-6) for pair, p in holm.items()}
    assert {row["family"] for row in shown} == {10}
    for row in support.rows_of(store, "arm_summary"):
        values = scores[row["arm"]]
        ends = scipy.stats.t.interval(0.95, tasks - 1, np.mean(values), scipy.stats.sem(values))
        assert (row["low"], row["high"]) == pytest.approx(ends, rel=1e-9)

    def differ(x, y):
        return holm[min(x, y), max(x, y)] <= 0.05

    ranked = store.rows("FROM ranking('e', directions := '{\"depth\": \"higher\"}') ORDER BY arm")
    mean = {arm: np.mean(values) for arm, values in scores.items()}
    for row in ranked:
        others = [arm for arm in shifts if arm != row["arm"]]
        apart = [arm for arm in others if differ(arm, row["arm"])]
        above = sum(mean[arm] > mean[row["arm"]] for arm in apart)
        assert row["alike"] == [arm for arm in others if arm not in apart]
        assert (row["rank_low"], row["rank_high"]) == (1 + above, 5 - (len(apart) - above))
    assert [row["alike"] for row in ranked] == [["b"], ["a"], ["d"], ["c"], []]
