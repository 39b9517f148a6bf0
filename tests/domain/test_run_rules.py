"""A run's and a budget's rules, as examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain import budget, run
from hansard.domain.budget import Reserved, Spent
from hansard.domain.run import (
    AgentJoined,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunForked,
    RunResumed,
    RunStarted,
    RunStatus,
)
from hansard.domain.steps import Failure
from tests.domain.specification import Specification

started = RunStarted(workflow="papers", labels={"a": "1"})
forked = RunForked(parent="p", at={"life": 2}, labels={"b": "2"})
joined = AgentJoined(agent="ada", role="writer")
resumed = RunResumed(agent="ada", epoch=2)
completed, cancelled = RunCompleted(), RunCancelled(because="late")
failed = RunFailed(error=Failure("ValueError", "no"))


def a_run() -> Specification:
    """The run's decider."""
    return Specification(run.initial, run.fold, run.decide)


def test_a_run_begins_once():
    """Started or forked, but not twice."""
    a_run().when(started).then(started)
    a_run().when(forked).then(forked)
    a_run().given(started).when(started).then_refused("begun already")
    a_run().given(forked).when(forked).then_refused("begun already")


def test_a_fork_goes_on_where_its_parent_stood():
    """A fork's life begins with its parent's: labels add up, and an end is taken back."""
    a_run().given(started, joined, failed).when(forked).then_state(
        labels={"a": "1", "b": "2"},
        status=RunStatus.OPEN,
        error=None,
        roster={"ada": "writer"},
        forked=forked,
    )


def test_an_agent_joins_once_in_one_role():
    """Joining again is no news, in another role it is refused, before the beginning too."""
    a_run().when(joined).then_refused("has not begun")
    a_run().given(started).when(joined).then(joined)
    a_run().given(started, joined).when(joined).then()
    a_run().given(started, joined).when(AgentJoined(agent="ada", role="reader")).then_refused(
        "has role 'writer'"
    )


def test_only_who_is_on_the_roster_resumes_and_only_onwards():
    """An epoch never goes back; resuming opens an ended run again."""
    a_run().given(started).when(resumed).then_refused("not in this run's roster (nobody)")
    a_run().given(started, joined, completed).when(resumed).then_state(
        status=RunStatus.OPEN, epochs={"ada": 2}
    )
    a_run().given(started, joined, resumed).when(resumed).then()


@pytest.mark.parametrize(
    ("before", "end", "allowed"),
    [
        ([], completed, False),
        ([started], completed, True),
        ([started], failed, True),
        ([started], cancelled, True),
        ([started, failed], completed, True),
        ([started, failed], cancelled, True),
        ([started, completed], failed, False),
        ([started, completed], cancelled, False),
        ([started, cancelled], completed, False),
        ([started, cancelled, joined, resumed], completed, True),
    ],
)
def test_how_a_run_may_end(before, end, allowed):
    """A run ends once; what failed may still complete, what is over stays over until resumed."""
    story = a_run().given(*before).when(end)
    if allowed:
        story.then(end)
        a_run().given(*before, end).when(end).then()
    else:
        story.then_refused("resume it first")


def test_a_budget_is_reserved_once_a_call_and_never_over_its_limit():
    """A call's share counts once, what it really took replaces it, and the limit holds."""
    state = budget.fold(budget.BudgetState(), [Reserved(call="a#1", amount=2.0)])
    assert budget.reserve(state, "a#1", 2.0, 3.0) == ()
    assert budget.reserve(state, "a#2", 2.0, 3.0) is None
    assert budget.reserve(state, "a#2", 1.0, 3.0) == (Reserved(call="a#2", amount=1.0),)
    assert budget.spend(state, "a#1", 2.0) == ()
    assert budget.spend(state, "a#1", 0.5) == (Spent(call="a#1", amount=0.5),)
    assert budget.fold(state, [Spent(call="a#1", amount=0.5)]).total == 0.5


@given(
    st.floats(0, 20),
    st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 10)), max_size=12),
)
def test_reservations_alone_never_pass_the_limit(limit, calls):
    """However calls are reserved, what is set aside stays within the limit."""
    state = budget.BudgetState()
    for call, amount in calls:
        state = budget.fold(state, budget.reserve(state, call, amount, limit) or ())
    assert state.total <= limit
