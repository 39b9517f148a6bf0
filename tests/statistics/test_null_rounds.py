"""False alarms of comparisons that lack something: tasks at random, trials, runs that are open.

Each simulation plants independent rounds of one experiment without an effect, side by side as the
values of a label, and counts the rounds with p <= .05. A sound test stays within binomial bounds
that a right method leaves once in a thousand simulations (`test_calibration.bounds`).
"""

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from tests.conftest import THOROUGH
from tests.statistics import support, worlds
from tests.statistics.worlds import Design

ROUNDS_QUICK, ROUNDS_LONG = 200, 1_000
SEED = 39


def lose_tasks(store):
    """Take 30 % of the tasks at random from one arm."""
    store.all("DELETE FROM runs WHERE arm = 'b' AND hash(labels, task) % 10 < 3")


def lose_tasks_of_both(store):
    """Take 30 % of the tasks at random from each arm."""
    store.all("DELETE FROM runs WHERE hash(labels, task, arm) % 10 < 3")


def lose_trials(store):
    """Leave one to five trials of each task and arm, drawn independently."""
    store.all("DELETE FROM runs WHERE trial > hash(labels, task, arm) % 5")


def lose_values(store):
    """Take a fifth of the values at random from each arm."""
    store.all("DELETE FROM outcomes WHERE hash(run) % 5 = 0")


def leave_open(store):
    """Leave three of ten runs of one arm open, without a value."""
    store.all("UPDATE runs SET status = 'open' WHERE arm = 'b' AND hash(run) % 10 < 3")
    store.all("DELETE FROM outcomes WHERE run IN (SELECT run FROM runs WHERE status = 'open')")


LOSSES = {
    "tasks of one arm": lose_tasks,
    "tasks of both arms": lose_tasks_of_both,
    "trials": lose_trials,
    "values": lose_values,
    "open runs": leave_open,
}


QUICK = ("trials", "open runs")

CASES = [
    pytest.param(
        name,
        rounds,
        clustered,
        id=f"{name}, {rounds} rounds{', clusters' if clustered else ''}",
        marks=pytest.mark.slow if quick else pytest.mark.thorough,
    )
    for name in LOSSES
    for rounds in (ROUNDS_QUICK, ROUNDS_LONG)
    for clustered in (False, True)
    if (quick := name in QUICK and rounds == ROUNDS_QUICK and not clustered)
    or rounds == ROUNDS_LONG
]


@pytest.mark.parametrize(("name", "rounds", "clustered"), CASES)
def test_what_is_lost_at_random_raises_no_false_alarms(store, name, rounds, clustered):
    """Random losses raise no false alarm, and open runs allow no verdict."""
    design = (
        Design(rounds=rounds, spread=0.6) if clustered else Design(rounds=rounds, clusters=None)
    )
    worlds.plant(store, design, np.random.default_rng(SEED), "null")
    support.register(store, "null", cluster="cluster" if clustered else None)
    LOSSES[name](store)
    rows = rounds_of(store, "null")
    assert len(rows) == rounds
    p = np.array([row["p"] for row in rows])
    low, high = bounds(0.05, rounds)
    assert low <= np.mean(p <= 0.05) <= high
    assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3
    assert {row["filled"] for row in rows} == {0}
    verdicts = {row["verdict"] for row in rows}
    if name == "open runs":
        assert verdicts == {"not finished"}
    elif name != "values":
        assert verdicts <= {"better", "worse", "cannot tell"}


# ------------------------------------------------------------ error rates


ROUNDS = 400 if THOROUGH else 150
"""Experiments without a difference: fewer in a quick run, and its bounds are as much wider."""
ROUNDS_DIFFERENT = 400
LOOKS = range(10, 401, 10)
SURE = 0.9995
"""Confidence of a one-sided bound: a right method misses one of a thousand."""

NULLS = {
    "ten clusters": (Design(rounds=ROUNDS, spread=0.6), {"cluster": "cluster"}),
    "no clusters": (Design(rounds=ROUNDS, clusters=None), {}),
    "two samples": (Design(rounds=ROUNDS, clusters=None, apart=True), {"unit": "task"}),
    "two samples, twenty clusters": (
        Design(rounds=ROUNDS, clusters=20, apart=True),
        {"unit": "task", "cluster": "cluster"},
    ),
}


def rounds_of(store, experiment):
    """Return the default row of each round, in order."""
    rows = support.compared(store, experiment, by_label="round")
    sliced = [row for row in rows if row["default"] and row["slice"]]
    return sorted(sliced, key=lambda row: int(row["slice"]))


def bounds(share, rounds):
    """Return the bounds of the share of events with this chance in so many rounds."""
    low, high = scipy.stats.binom.ppf([1 - SURE, SURE], rounds, share)
    return low / rounds, high / rounds


@pytest.mark.thorough(quick="statistics/test_paired.py::test_the_paired_difference_is_pythons")
@pytest.mark.parametrize("name", NULLS)
def test_absent_differences_are_reported_at_the_rate_of_alpha(store, name):
    """Without an effect, p <= .05 in one of twenty rounds, and p is uniform."""
    design, plan = NULLS[name]
    worlds.plant(store, design, np.random.default_rng(11), "null")
    support.register(store, "null", **plan)
    rows = rounds_of(store, "null")
    assert len(rows) == ROUNDS
    low, high = bounds(0.05, ROUNDS)
    p = np.array([row["p"] for row in rows])
    assert low <= np.mean(p <= 0.05) <= high
    covered = np.mean([row["low"] <= 0 <= row["high"] for row in rows])
    assert low <= 1 - covered <= high
    assert scipy.stats.kstest(p, "uniform").pvalue > 1e-3
    assert np.mean([row["always_p"] <= 0.05 for row in rows]) <= np.mean(p <= 0.05)


@pytest.mark.thorough(quick="statistics/test_paired.py::test_the_paired_difference_is_pythons")
def test_a_present_difference_is_detected(store):
    """The interval holds a real effect in 19 of 20 rounds, and pairs add power."""
    design = Design(rounds=ROUNDS_DIFFERENT, spread=0.3, effect=0.45, difficulty=2)
    values = worlds.plant(store, design, np.random.default_rng(13), "real")
    support.register(store, "real", cluster="cluster")
    rows = rounds_of(store, "real")
    true = design.true_difference()
    low, high = bounds(0.05, ROUNDS_DIFFERENT)
    missed = 1 - np.mean([row["low"] <= true <= row["high"] for row in rows])
    assert low <= missed <= high
    power = np.mean([row["p"] <= 0.05 for row in rows])
    tasks = values.mean(axis=3)
    unpaired = np.mean(scipy.stats.ttest_ind(tasks[:, 1], tasks[:, 0], axis=1).pvalue <= 0.05)
    assert power > 2 * unpaired
    assert power > 0.4
    # The detectable effect at power .8 is below the true one exactly when the power exceeds .8.
    detectable = np.median([row["detectable"] for row in rows])
    assert (true > detectable) == (power > 0.8)


PEEKED = {
    "every other look": (Design(rounds=40, tasks=400, trials=1, clusters=None), {}, LOOKS[1::2]),
    "every task for itself": (Design(rounds=80, tasks=400, trials=1, clusters=None), {}, LOOKS),
    "five clusters": (
        Design(rounds=40, tasks=400, trials=1, clusters=5, spread=0.5),
        {"cluster": "cluster"},
        LOOKS,
    ),
}


@pytest.mark.thorough(
    quick="statistics/test_paired.py::test_the_always_valid_p_is_the_mixtures_of_ts_normal_score"
)
@pytest.mark.parametrize("name", PEEKED)
def test_looking_after_every_ten_tasks_breaks_the_fixed_p_and_not_the_always_valid_one(store, name):
    """Repeated looks break the fixed p, and not the always-valid one."""
    design, plan, looks = PEEKED[name]
    worlds.plant(store, design, np.random.default_rng(14), "e")
    store.all("CREATE OR REPLACE TEMP TABLE later AS SELECT *, task[2:]::INT AS number FROM runs")
    store.all("DELETE FROM runs")
    support.register(store, stop="sequential", planned=400, **plan)
    fixed, always = (np.zeros(design.rounds, dtype=bool) for _ in range(2))
    for look in looks:
        store.all(
            "INSERT INTO runs SELECT * EXCLUDE (number) FROM later WHERE number BETWEEN $1 AND $2",
            [look - looks.step, look - 1],
        )
        rows = rounds_of(store, "e")
        assert {row["tasks"] for row in rows} == {look}
        fixed |= [row["p"] <= 0.05 for row in rows]
        always |= [row["always_p"] <= 0.05 for row in rows]
    assert fixed.mean() >= 0.2
    assert always.mean() <= bounds(0.05, design.rounds)[1]
