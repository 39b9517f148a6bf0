"""An experiment's rules, and the arm that a unit has by its hash; a price's rules."""

import collections
import re
from datetime import UTC, datetime

import msgspec
import pytest
import scipy  # type: ignore[import-untyped]  # untyped; `stats` loads where first used
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain import experiment
from hansard.domain.decider import fold
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.experiment import (
    ExperimentRegistered,
    ExperimentStopped,
    Metric,
    PlannedArm,
    PriceState,
    PriceStated,
    arm_of,
    decide_price,
)
from hansard.testing import Decider, decider
from tests.domain import strategies

UNITS = 10_000
LEVEL = 1e-6
"""Probability below which a result is not due to chance."""


def plan(*weights: float, **fields) -> ExperimentRegistered:
    """Return a plan whose arms a, b ... have these weights."""
    arms = tuple(
        PlannedArm(name, weight) for name, weight in zip("abcdefgh", weights, strict=False)
    )
    return ExperimentRegistered(arms=arms, metrics=(Metric("reward"),), **fields)


registered, stopped = plan(1, 1), ExperimentStopped(because="enough")


def an_experiment() -> Decider:
    """Return the experiment's decider."""
    return decider(experiment.ExperimentState, fold, experiment.decide)


# ---------------------------------------------------------------- registering


def test_only_what_is_registered_is_stopped_and_once():
    """Stopping twice is no news; the first reason stays."""
    an_experiment().when(stopped).then_raises(Refused, saying="not registered")
    an_experiment().given(registered).when(stopped).then(stopped)
    later = ExperimentStopped(because="later")
    an_experiment().given(registered, stopped).when(later).then_state(stopped=stopped)


@given(strategies.experiment_histories, strategies.experiment_commands)
def test_an_experiment_s_command_yields_its_events_once(events, command):
    """Whatever went before, stating a thing twice states it once."""
    state = fold(experiment.ExperimentState(), events)
    try:
        first = experiment.decide(state, command)
    except Refused:
        return
    assert not experiment.decide(fold(state, first), command)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (plan(), "arms: 0; give 1 to 100"),
        (plan(1, 1, unit=""), "unit name ''"),
        (plan(0, 0), "weights: all 0"),
        (plan(1, -1), "weight of arm 'b': -1"),
        (plan(1, float("nan")), "weight of arm 'b': nan"),
        (plan(1e10), "give 0 to 1,000,000,000"),
        (plan(1, alpha=1.0), "alpha: 1.0"),
        (plan(1, planned=0), "planned: 0"),
        (plan(1, trials=-1), "trials: -1"),
        (plan(1, question="\ud800"), "question"),
        (plan(1, cluster="a\nb"), "cluster name"),
        (msgspec.structs.replace(registered, arms=(PlannedArm("a"), PlannedArm("a"))), "'a' twice"),
        (msgspec.structs.replace(registered, metrics=()), "metrics: 0"),
        (msgspec.structs.replace(registered, metrics=(Metric("m", smallest=0),)), "smallest"),
        (
            msgspec.structs.replace(
                registered, arms=(PlannedArm("a", parameters=msgspec.Raw(b"[1]")),)
            ),
            "parameters of arm 'a': [1]; give them by name",
        ),
    ],
)
def test_what_is_no_plan_is_refused_with_its_field(wrong, message):
    """Nothing that could not be assigned or judged by is registered."""
    with pytest.raises((BadValue, BadName)) as refusal:
        experiment.decide(experiment.ExperimentState(), wrong)
    assert message in str(refusal.value)


# ---------------------------------------------------------------- assigning


def shares(name: str, made: ExperimentRegistered, prefix: str = "task") -> dict[str, int]:
    """Return how many of 10,000 units each arm has."""
    return collections.Counter(arm_of(name, made, f"{prefix}-{n}").name for n in range(UNITS))


@pytest.mark.fast(cases=3, slow=0)
@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (1, 1, 1), (0.2, 0.3, 0.5), (1, 0, 99)])
@pytest.mark.parametrize("name", ["greeting", "naïve café", "e" * 1_000])
def test_each_arm_has_its_share_of_units(weights, name):
    """Over 10,000 units the count of each arm is within exact binomial bounds of its weight."""
    units_by_arm = shares(name, plan(*weights))
    for arm, weight in zip("abc", weights, strict=False):
        share = weight / sum(weights)
        low, high = scipy.stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], UNITS, share)
        assert low <= units_by_arm[arm] <= high, (arm, units_by_arm)


def test_an_arm_of_weight_nothing_has_no_unit():
    """This holds in the first, a middle and the last place."""
    for weights in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 1)):
        units_by_arm = shares("greeting", plan(*weights))
        assert {"abc"[n] for n, weight in enumerate(weights) if weight} == set(units_by_arm)


@pytest.mark.slow
def test_experiments_and_salts_are_independent():
    """Arms of two experiments, or salts, are independent: each pair has a quarter."""
    made = plan(1, 1)
    for other, name in ((made, "second"), (plan(1, 1, salt="2026"), "first")):
        pairs = collections.Counter(
            (arm_of("first", made, f"{n}").name, arm_of(name, other, f"{n}").name)
            for n in range(UNITS)
        )
        low, high = scipy.stats.binom.ppf([LEVEL / 2, 1 - LEVEL / 2], UNITS, 0.25)
        assert len(pairs) == 4
        assert all(low <= count <= high for count in pairs.values()), pairs


@given(st.text(), st.text(), st.text())
def test_what_is_hashed_cannot_be_moved_between_its_parts(salt, name, unit):
    """Two different splits of one name and unit are hashed differently."""
    made = plan(*[1] * 8, salt=salt)
    moved = plan(*[1] * 8, salt=salt + name)
    one = [arm_of(name, made, f"{unit}{n}").name for n in range(64)]
    other = [arm_of("", moved, f"{unit}{n}").name for n in range(64)]
    assert (one == other) == (name == "")


@given(st.permutations(range(40)))
def test_the_order_of_units_does_not_matter(order):
    """A unit has the same arm alone and after any others."""
    made = plan(1, 2, 3)
    arms = {n: arm_of("greeting", made, f"{n}").name for n in order}
    assert [arms[n] for n in range(40)] == [
        arm_of("greeting", made, f"{n}").name for n in range(40)
    ]


def test_an_assignment_is_for_ever():
    """These assignments were made by an earlier version and must not change."""
    made = plan(2, 1, 1, salt="2026")
    arms = "".join(arm_of("greeting", made, f"task-{n}").name for n in range(40))
    assert arms == "bacabaaaabbcacacbbbaaaabbaaaabbaaaaacaaa"


@pytest.mark.parametrize(
    ("unit", "has", "own_unit", "message"),
    [
        ("task", {"task": ""}, None, "give task="),
        ("task", {"task": "t"}, "u", "here 't'; leave out unit="),
        ("run", {}, "u", "leave out unit="),
        ("conversation", {"task": "t"}, None, "give conversation="),
        ("customer", {"task": "t"}, None, "give unit="),
    ],
)
def test_a_unit_that_is_missing_or_another_one_is_refused(unit, has, own_unit, message):
    """The error names the required argument."""
    with pytest.raises(BadValue) as refusal:
        experiment.unit_of(plan(1, unit=unit), "r-1", has, own_unit)
    assert message in str(refusal.value)


# ---------------------------------------------------------------- prices

DAY = datetime(2024, 10, 1, tzinfo=UTC)
stated = PriceStated(usage="input_tokens", amount=2.5, since=DAY)


def a_price() -> Decider:
    """Return the price's decider."""
    return decider(experiment.PriceState, fold, experiment.decide_price)


def test_a_price_is_stated_once_and_can_be_put_right():
    """The same again is no news; another amount for the day is, and the first one after it, too."""
    a_price().when(stated).then(stated)
    a_price().given(stated).when(stated).then()
    other = msgspec.structs.replace(stated, amount=3.0)
    a_price().given(stated).when(other).then(other)
    a_price().given(stated, other).when(stated).then(stated)
    later = msgspec.structs.replace(stated, since=datetime(2025, 1, 1, tzinfo=UTC))
    a_price().given(stated, later).when(stated).then()


SINCE = datetime.fromisoformat("2024-10-01T00:00:00+00:00")
STATED = PriceStated(usage="input_tokens", amount=2.5, since=SINCE)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"usage": ""}, "usage name '' is not valid: "),
        ({"amount": -0.01}, "price of input_tokens: -0.01; give the price of a million"),
        ({"amount": float("inf")}, "price of input_tokens: inf; give the price of a million"),
        ({"since": SINCE.replace(tzinfo=None)}, "since: 2024-10-01T00:00:00 has no zone; give one"),
        ({"currency": "usd"}, "currency: 'usd'; give its three capital letters: USD"),
        ({"currency": "US"}, "currency: 'US'; give its three capital letters: USD"),
        ({"currency": "ÄÖÜ"}, "currency: 'ÄÖÜ'; give its three capital letters: USD"),
        ({"source": "\ud800"}, "source"),
    ],
)
def test_a_price_that_is_none_is_refused(other, says):
    """With the value and the remedy."""
    with pytest.raises((BadName, BadValue), match=re.escape(says)):
        decide_price(PriceState(), msgspec.structs.replace(STATED, **other))


def test_a_use_may_be_free():
    """Nothing is a price."""
    free = msgspec.structs.replace(STATED, amount=0.0)
    assert list(decide_price(PriceState(), free)) == [free]
