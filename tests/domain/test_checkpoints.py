"""The interval of a loop's checkpoints: optimal for a rate of failures, and estimated from few."""

import itertools
import math
import random

import pytest

from benchmarks import bench_intervals
from hansard.domain import checkpoints
from hansard.domain.checkpoints import Pace, interval, mtbf


def expected(work_s: float, cost_s: float, mtbf_s: float) -> float:
    """Return the expected time of a second of work with failures at random (Daly 2006, eq. 20)."""
    return mtbf_s / work_s * (math.exp((work_s + cost_s) / mtbf_s) - 1)


@pytest.mark.parametrize("mtbf_s", [1.0, 60.0, 3_600.0])
@pytest.mark.parametrize("cost_s", [0.001, 0.05, 0.5])
def test_the_interval_is_the_best_one(cost_s, mtbf_s):
    """No interval has an expected time that is lower by more than one part in a thousand."""
    chosen = expected(interval(cost_s, mtbf_s), cost_s, mtbf_s)
    others = (cost_s * 1.05**power for power in range(-100, 300))
    best = min(expected(each, cost_s, mtbf_s) for each in others if each < 100 * mtbf_s)
    assert chosen <= 1.001 * best


def test_a_checkpoint_that_takes_as_long_as_work_between_failures():
    """Beyond twice the mean time between failures the interval is that time."""
    assert interval(3.0, 1.0) == 1.0


def test_the_estimate_follows_recorded_failures():
    """Without any it is assumed; ten alike outweigh the assumption; a drift is followed."""
    assert mtbf([]) == pytest.approx(checkpoints.MTBF_S)
    alike = mtbf([(100.0, True)] * 20)
    assert alike == pytest.approx(100, rel=0.1)
    assert mtbf([(10.0, True)] * 10 + [(1_000.0, True)] * 10) < 150
    assert mtbf([(1_000.0, True)] * 10 + [(10.0, True)] * 10) > 800
    assert mtbf([(500.0, False), *[(100.0, True)] * 20]) > alike


def test_a_loop_saves_each_item_until_the_cost_is_known():
    """Then as many items as the interval has; with failures on record, fewer."""
    counts = []
    pace = Pace()
    for sessions in ((), [(0.5, True)] * 20):
        pace = Pace(sessions, "workflow")
        assert pace.choice == {"interval_s": 0.0, "source": "unmeasured"}
        assert pace.worked(0.01)
        pace.saved(0.002)
        items = next(n for n in range(1, 10_000) if pace.worked(0.01))
        assert items == pytest.approx(pace.choice["interval_s"] / 0.01, abs=1)
        counts.append(items)
    assert counts[0] > 10 * counts[1] >= 10
    assert pace.choice["failures"] == pace.choice["sessions"] == 20
    assert pace.choice["source"] == "workflow"


def test_an_item_longer_than_the_interval_is_saved():
    """Each item is a checkpoint if it takes longer than the interval."""
    pace = Pace()
    assert pace.worked(100.0)
    pace.saved(0.002)
    assert pace.worked(100.0)


@pytest.mark.parametrize("load", [(0.02, 60.0), (3.0, 300.0)])
@pytest.mark.parametrize("trace", bench_intervals.TRACES)
def test_the_choice_is_near_the_best_in_hindsight(trace, load):
    """Under failures at random, in bursts and drifting, a loop takes at most a tenth longer than
    with the best fixed interval for the same failures.
    """
    item_s, mtbf_s = load
    work = round(5 * mtbf_s / item_s)
    ups = [*itertools.islice(trace(random.Random(1), mtbf_s), 1_000)]
    best = min(
        bench_intervals.fixed_s(every, item_s, 0.002, work, ups) for every in bench_intervals.FIXED
    )
    assert bench_intervals.auto_s(item_s, 0.002, work, ups) <= 1.10 * best
