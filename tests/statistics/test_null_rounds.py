"""False alarms of comparisons that lack something: tasks at random, trials, runs that are open.

Each simulation plants independent rounds of one experiment without an effect, side by side as the
values of a label, and counts the rounds with p <= .05. A sound test stays within binomial bounds
that a right method leaves once in a thousand simulations (`test_calibration.bounds`).
"""

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used

from tests.statistics import support, worlds
from tests.statistics.test_calibration import bounds, rounds_of
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
