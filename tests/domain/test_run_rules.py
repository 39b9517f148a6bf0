"""A run's and a budget's rules, as examples."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.domain import approval, run
from hansard.domain.approval import Reserved, Spent
from hansard.domain.decider import evolve, fold
from hansard.domain.errors import Refused
from hansard.domain.run import (
    AgentJoined,
    RunAgentLeft,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunForked,
    RunResumed,
    RunStarted,
    RunStatus,
)
from hansard.domain.steps import Failure
from hansard.testing import Decider, decider

started = RunStarted(workflow="papers", labels={"a": "1"})
forked = RunForked(parent="p", at={"life": 2}, labels={"b": "2"})
joined = AgentJoined(agent="ada", role="writer")
resumed = RunResumed(agent="ada", epoch=2)
completed, cancelled = RunCompleted(), RunCancelled(because="late")
failed = RunFailed(error=Failure("ValueError", "no"))


def a_run() -> Decider:
    """Return the run's decider."""
    return decider(run.RunState, fold, run.decide)


def test_a_run_begins_once():
    """Started or forked, but not twice."""
    a_run().when(started).then(started)
    a_run().when(forked).then(forked)
    a_run().given(started).when(started).then_raises(Refused, saying="begun already")
    a_run().given(forked).when(forked).then_raises(Refused, saying="begun already")


def test_a_fork_goes_on_where_its_parent_stood():
    """A fork's life begins with its parent's: labels add up, and an end is undone."""
    a_run().given(started, joined, failed).when(forked).then_state(
        labels={"a": "1", "b": "2"},
        status=RunStatus.OPEN,
        error=None,
        roster={"ada": "writer"},
        forked=forked,
    )


def test_an_agent_joins_once_in_one_role():
    """Joining again is no news, in another role it is refused, before the beginning too."""
    a_run().when(joined).then_raises(Refused, saying="has not begun")
    a_run().given(started).when(joined).then(joined)
    a_run().given(started, joined).when(joined).then()
    a_run().given(started, joined).when(AgentJoined(agent="ada", role="reader")).then_raises(
        Refused, saying="has role 'writer'"
    )


def test_only_who_is_on_the_roster_resumes_and_only_onwards():
    """An epoch never goes back; resuming opens an ended run again."""
    a_run().given(started).when(resumed).then_raises(
        Refused, saying="not in this run's roster (no agent)"
    )
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
    """A run ends once; a failed one may still complete, an ended one stays so until resumed."""
    story = a_run().given(*before).when(end)
    if allowed:
        story.then(end)
        a_run().given(*before, end).when(end).then()
    else:
        story.then_raises(Refused, saying="resume it first")


bob = AgentJoined(agent="bob", role="reader")


def left(agent, outcome="completed"):
    """Return the end of an agent's session."""
    error = Failure("ValueError", agent) if outcome == "failed" else None
    return RunAgentLeft(agent=agent, outcome=outcome, error=error)


def failed_by(agent):
    """A run's end of which one reads that another agent failed."""
    words = f"agent '{agent}' failed: see how it left"
    return RunFailed(error=Failure("AgentFailed", words, module="hansard"), agent=agent)


def test_a_run_ends_when_the_last_of_its_agents_has_left():
    """This holds for any first agent and order of leaving; a resumed agent is at work."""
    a_run().when(left("ada")).then_raises(Refused, saying="not in this run's roster")
    both = a_run().given(started, joined, bob)
    both.when(left("ada")).then(left("ada"))
    both.when(left("ada")).then_state(status=RunStatus.OPEN, missing=["bob"])
    gone = a_run().given(started, joined, bob, left("ada"))
    gone.when(left("ada")).then()
    gone.when(left("bob")).then(left("bob"), RunCompleted())
    again = a_run().given(started, joined, bob, left("ada"), resumed)
    again.when(left("bob")).then(left("bob"))
    again.when(left("bob")).then_state(status=RunStatus.OPEN, missing=["ada"])


def test_a_run_ends_as_the_worst_of_its_agents_ends():
    """Failed precedes cancelled precedes completed; the first failed agent's last end is named."""
    story = a_run().given(started, joined, bob, left("ada", "failed"))
    story.when(left("bob")).then(left("bob"), failed_by("ada"))
    story.when(left("bob")).then_state(status=RunStatus.FAILED, error=Failure("ValueError", "ada"))
    story.when(left("bob", "failed")).then(left("bob", "failed"), failed_by("ada"))
    own = a_run().given(started, joined, bob, left("bob")).when(left("ada", "failed"))
    own.then(left("ada", "failed"), RunFailed(error=Failure("ValueError", "ada")))
    why = RunCancelled(because="agent 'ada' was cancelled")
    story = a_run().given(started, joined, bob, left("ada", "cancelled"))
    story.when(left("bob")).then(left("bob"), why)
    mended = a_run().given(started, joined, bob, left("ada", "failed"), resumed, left("ada"))
    mended.when(left("bob")).then(left("bob"), RunCompleted())


def test_a_run_ends_explicitly_and_continues_with_later_agents():
    """After an explicit end the run waits only for agents that resume or join later."""
    completed_run = RunCompleted(because="enough")
    a_run().given(started, joined, bob).when(completed_run).then_state(
        status=RunStatus.COMPLETED, missing=[], at_work=[]
    )
    late = a_run().given(started, joined, bob, completed_run).when(left("bob", "failed"))
    late.then(left("bob", "failed"))
    goes_on = (started, joined, bob, completed_run, RunResumed(agent="ada", epoch=2))
    a_run().given(*goes_on).when(left("ada")).then(left("ada"), RunCompleted())
    cyd = AgentJoined(agent="cyd", role="reader")
    joins = RunResumed(agent="cyd", epoch=1)
    a_run().given(started, joined, completed_run, cyd).when(joins).then(joins)
    a_run().given(started, joined, completed_run, cyd).when(joins).then_state(
        status=RunStatus.OPEN, missing=["cyd"]
    )
    a_run().given(started, joined, completed_run, cyd, joins).when(joins).then()


def test_a_record_of_before_shows_as_it_did():
    """In earlier records the first agent's end completes the run; a resume continues it."""
    old = (started, joined, bob, RunCompleted())
    a_run().given(*old).when(AgentJoined(agent="cyd", role="reader")).then_state(
        status=RunStatus.COMPLETED, missing=[]
    )
    a_run().given(*old, resumed).when(left("ada")).then(left("ada"), RunCompleted())


def test_a_budget_is_reserved_once_a_call_and_never_over_its_limit():
    """A call's share counts once, its actual usage replaces it, and the limit holds."""
    state = fold(approval.BudgetState(), [Reserved(call="a#1", amount=2.0)])
    assert approval.reserve(state, "a#1", 2.0, 3.0) == ()
    assert approval.reserve(state, "a#2", 2.0, 3.0) is None
    assert approval.reserve(state, "a#2", 1.0, 3.0) == (Reserved(call="a#2", amount=1.0),)
    assert approval.spend(state, "a#1", 2.0) == ()
    assert approval.spend(state, "a#1", 0.5) == (Spent(call="a#1", amount=0.5),)
    assert fold(state, [Spent(call="a#1", amount=0.5)]).total == 0.5


@given(
    st.floats(0, 20), st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 10)), max_size=12)
)
def test_reservations_alone_never_pass_the_limit(limit, calls):
    """In any order of calls the reserved total stays within the limit."""
    state = approval.BudgetState()
    for call, amount in calls:
        state = fold(state, approval.reserve(state, call, amount, limit) or ())
    assert state.total <= limit


class Walked(dict[str, float]):
    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()

    def keys(self) -> Any:
        """Count a walk, and return the calls."""
        self.walks += 1
        return super().keys()

    def values(self) -> Any:
        """Count a walk, and return the amounts."""
        self.walks += 1
        return super().values()


def test_counting_a_call_goes_through_no_other():
    """A call's reservation and correction look at that call alone, however many were counted."""
    counted = Walked()
    state = approval.BudgetState(calls=counted)
    for n in range(1_000):
        for events in (
            approval.reserve(state, f"a#{n}", 1.0, 2_000.0) or (),
            approval.spend(state, f"a#{n}", 0.5),
        ):
            for event in events:
                evolve(state, event)
    assert (state.total, state.version, counted.walks) == (500.0, 2_000, 0)
    assert sum(counted.values()) == 500.0
    assert counted.walks > 0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1e300)), max_size=12))
def test_what_is_gone_is_the_exact_sum(calls):
    """The usage is the sum of each call's last amount, despite earlier larger ones."""
    state = fold(approval.BudgetState(), [Spent(call=c, amount=a) for c, a in calls])
    assert state.total == math.fsum(dict(calls).values())
