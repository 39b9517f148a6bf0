"""An agent's rules, as examples."""

import msgspec
import pytest

from hansard.domain import agent
from hansard.domain.agent import Alternative, Begin, Declare, Leave, Note, Tell
from hansard.domain.decider import fold
from hansard.domain.errors import BadValue, Refused
from hansard.domain.steps import (
    NULL,
    Effects,
    Failure,
    StepAttempted,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepInDoubt,
    StepRequested,
    StepSettled,
    StepStatus,
    StepYielded,
    ToolDeclared,
    Verdict,
)
from hansard.testing import Decider, decider

ONE, TWO = msgspec.Raw(b"1"), msgspec.Raw(b"2")
LOST = Failure("TimeoutError", "no answer")

began = agent.SessionBegan(
    epoch=1, agent="ada", role="writer", server_version="1", protocol_version="1"
)
requested = StepRequested(
    step=1, tool="send", effects=Effects.ONCE, arguments=NULL, call="c", fingerprint="f"
)
completed = StepCompleted(step=1, result=ONE, digest="one")
failed = StepFailed(step=1, error=LOST, digest="lost")
not_done = StepFailed(step=1, error=LOST, digest="lost", safe=True)
in_doubt = StepInDoubt(step=1, error=LOST)
blocked = StepBlocked(step=1, rule="no mail", reason="no mail")
attempted = StepAttempted(step=1, attempt=1, error=LOST)
message = agent.MessageAdded(role="user", content=ONE, fingerprint="m", tokens=3)


def _settled(verdict: Verdict, digest: str = "") -> StepSettled:
    return StepSettled(step=1, verdict=verdict, by="a person", result=ONE, digest=digest)


def an_agent() -> Decider:
    """Return the agent's decider."""
    return decider(agent.AgentState, fold, agent.decide)


def a_call() -> Decider:
    """Return an agent that has begun and requested step 1."""
    return an_agent().given(began, requested)


@pytest.mark.parametrize(
    "command",
    [
        Tell(requested),
        Declare(ToolDeclared(tool="t", effects=Effects.PURE)),
        Note(message),
        Leave("completed"),
    ],
)
def test_nothing_comes_before_the_beginning(command):
    """An agent that has not begun can do nothing else."""
    an_agent().when(command).then_raises(Refused, saying="has not begun")


def test_the_first_begin_starts_and_each_later_one_takes_the_next_epoch():
    """Resuming is beginning again under the next epoch."""
    an_agent().when(Begin("ada", "writer", "1", "1")).then(began)
    an_agent().given(began).when(Begin("ada", "writer", "1", "1")).then_state(epoch=2)


def test_a_role_is_fixed_for_the_run():
    """Another role is another agent."""
    an_agent().given(began).when(Begin("ada", "reader", "1", "1")).then_raises(
        Refused, saying="has role 'writer' in this run, not 'reader'"
    )


def test_settling_keeps_what_the_run_s_own_session_recorded():
    """A session that only settles neither reopens an agent that left nor moves its turns."""
    left = agent.AgentLeft(outcome="completed")
    an_agent().given(began, left).when(
        Begin("ada", "writer", "2", "1", purpose="settle")
    ).then_state(epoch=2, left="completed", server_version="2")
    an_agent().given(began, left).when(Begin("ada", "writer", "2", "1")).then_state(left=None)


@pytest.mark.parametrize("outcome", [completed, failed, not_done, blocked, in_doubt])
def test_an_outcome_follows_an_intent(outcome):
    """Each outcome is accepted for a requested step, and adds an event once."""
    a_call().when(Tell(outcome)).then(outcome)
    a_call().given(outcome).when(Tell(outcome)).then()


@pytest.mark.parametrize(
    "event",
    [
        completed,
        failed,
        blocked,
        in_doubt,
        attempted,
        _settled(Verdict.HAPPENED),
        StepYielded(step=1, index=0, items=(ONE,)),
    ],
)
def test_no_event_is_accepted_of_a_step_that_was_never_requested(event):
    """The intent must come first."""
    an_agent().given(began).when(Tell(event)).then_raises(Refused, saying="never requested")


@pytest.mark.parametrize("first", [completed, failed, blocked])
@pytest.mark.parametrize("second", [completed, failed, blocked, in_doubt])
def test_an_outcome_is_recorded_once(first, second):
    """A final outcome is never replaced by another one."""
    story = a_call().given(first).when(Tell(second))
    if type(first) is type(second):
        story.then()
    else:
        story.then_raises(Refused, saying="recorded once")


def test_another_result_is_another_outcome():
    """A second result for a completed step is refused, not treated as the first."""
    other = StepCompleted(step=1, result=TWO, digest="two")
    a_call().given(completed).when(Tell(other)).then_raises(Refused, saying="already completed")


def test_a_doubt_can_still_end_in_an_outcome():
    """A step in doubt may still get an outcome."""
    a_call().given(in_doubt).when(Tell(completed)).then_state(open_steps=[])


def test_a_step_number_is_one_call_for_ever():
    """The same intent is no news, another call under its number is refused."""
    a_call().when(Tell(requested)).then()
    other = msgspec.structs.replace(requested, fingerprint="g")
    a_call().when(Tell(other)).then_raises(Refused, saying="already another call")


def test_attempts_and_items_come_without_a_hole():
    """Attempt n follows attempt n - 1, item n follows item n - 1; a repetition adds nothing."""
    a_call().when(Tell(attempted)).then(attempted)
    a_call().given(attempted).when(Tell(attempted)).then()
    a_call().when(Tell(StepAttempted(step=1, attempt=2, error=LOST))).then_raises(
        Refused, saying="attempt 2"
    )
    item = StepYielded(step=1, index=0, items=(ONE,))
    a_call().when(Tell(item)).then(item)
    a_call().given(item).when(Tell(item)).then()
    a_call().when(Tell(StepYielded(step=1, index=1, items=(ONE,)))).then_raises(
        Refused, saying="item 1"
    )


def test_a_completed_step_is_not_tried_again():
    """An attempt or an item after the outcome would take it back: refused."""
    a_call().given(completed).when(Tell(attempted)).then_raises(Refused, saying="completed")
    late = StepYielded(step=1, index=0, items=(ONE,))
    a_call().given(completed).when(Tell(late)).then_raises(Refused, saying="completed")


@pytest.mark.parametrize("before", [failed, not_done, blocked, in_doubt])
def test_an_attempt_opens_a_step_that_did_not_complete(before):
    """Trying again makes the step an open intent, its items gone."""
    state = fold(
        agent.AgentState(),
        [began, requested, StepYielded(step=1, index=0, items=(ONE,)), before, attempted],
    )
    assert state.steps[1].status is StepStatus.REQUESTED
    assert (state.steps[1].items, state.steps[1].attempt) == ((), 2)


@pytest.mark.parametrize(
    ("before", "verdict", "status"),
    [
        ([], Verdict.HAPPENED, StepStatus.COMPLETED),
        ([in_doubt], Verdict.HAPPENED, StepStatus.COMPLETED),
        ([failed], Verdict.HAPPENED, StepStatus.COMPLETED),
        ([], Verdict.DID_NOT_HAPPEN, StepStatus.NOT_DONE),
        ([in_doubt], Verdict.DID_NOT_HAPPEN, StepStatus.NOT_DONE),
        ([completed], Verdict.REUSE, StepStatus.COMPLETED),
        ([completed], Verdict.RUN_AGAIN, StepStatus.COMPLETED),
        ([failed], Verdict.RUN_AGAIN, StepStatus.FAILED),
    ],
)
def test_a_settlement_says_what_is_true(before, verdict, status):
    """Doubt is settled by the outcome, divergence by the next action; repeating adds nothing."""
    digest = "one" if verdict is Verdict.HAPPENED else ""
    story = a_call().given(*before)
    story.when(Tell(_settled(verdict, digest))).then(_settled(verdict, digest))
    story.given(_settled(verdict, digest)).when(Tell(_settled(verdict, digest))).then()
    state = fold(agent.AgentState(), [began, requested, *before, _settled(verdict, digest)])
    assert state.steps[1].status is status
    assert state.steps[1].settled_by == "a person"


@pytest.mark.parametrize(
    ("before", "verdict", "why"),
    [
        ([completed], Verdict.HAPPENED, "not in doubt"),
        ([completed], Verdict.DID_NOT_HAPPEN, "not in doubt"),
        ([not_done], Verdict.HAPPENED, "not in doubt"),
        ([blocked], Verdict.HAPPENED, "not in doubt"),
        ([], Verdict.REUSE, "no outcome to reuse"),
        ([in_doubt], Verdict.RUN_AGAIN, "no outcome to reuse"),
        ([blocked], Verdict.REUSE, "no outcome to reuse"),
    ],
)
def test_a_settlement_that_makes_no_sense_is_refused(before, verdict, why):
    """A known outcome is not in doubt, and a step in doubt cannot be reused."""
    a_call().given(*before).when(Tell(_settled(verdict))).then_raises(Refused, saying=why)


def test_a_tool_is_declared_again_only_when_it_changed():
    """The declaration is valid until one that differs."""
    tool = ToolDeclared(tool="send", effects=Effects.ONCE, source="a")
    an_agent().given(began).when(Declare(tool)).then(tool)
    same = msgspec.structs.replace(tool)
    an_agent().given(began, tool).when(Declare(same)).then()
    changed = msgspec.structs.replace(tool, source="b")
    an_agent().given(began, tool).when(Declare(changed)).then(changed)


def test_a_fact_is_stated_once():
    """A fact with a fingerprint that is known is no news; its tokens count once."""
    an_agent().given(began).when(Note(message)).then_state(total_tokens=3)
    an_agent().given(began, message).when(Note(message)).then()


def test_leaving_twice_is_leaving_once():
    """An end is stated once; another end is news."""
    left = agent.AgentLeft(outcome="completed")
    an_agent().given(began).when(Leave("completed")).then(left)
    an_agent().given(began, left).when(Leave("completed")).then()
    an_agent().given(began, left).when(Leave("failed")).then(agent.AgentLeft(outcome="failed"))


def test_what_the_state_says_of_its_facts():
    """Messages, decisions and resources in order; of each checkpoint name the newest."""
    early = agent.CheckpointSaved(name="plan", data=ONE, fingerprint="c1")
    late = agent.CheckpointSaved(name="plan", data=TWO, fingerprint="c2")
    chosen = agent.DecisionMade(question="?", selected="a", fingerprint="d")
    used = agent.ResourceAccessed(uri="file:x", operation="read", fingerprint="r")
    state = fold(agent.AgentState(), [began, early, message, chosen, used, late])
    assert state.checkpoints == {"plan": late}
    assert (state.messages, state.decisions) == ([message], [chosen])
    assert [(noted.version, noted.fact) for noted in state.resources] == [(5, used)]


def test_alternatives_have_three_forms():
    """A text is an id; a dict and an Alternative are used unchanged; nothing else is accepted."""
    forms = ["a", {"id": "b", "score": 1, "rejected_because": "late"}, Alternative("c")]
    assert agent.alternatives(forms) == (
        Alternative("a"),
        Alternative("b", 1.0, rejected_because="late"),
        Alternative("c"),
    )
    with pytest.raises(BadValue, match="give id, score, reason"):
        agent.alternatives([{"score": 1}])
    with pytest.raises(BadValue, match=r"has 'because'.*rejected_because"):
        agent.alternatives([{"id": "b", "because": "late"}])


def test_a_refusal_is_the_caller_s_error():
    """Refused names the command, so that the caller can act."""
    with pytest.raises(Refused, match="start or resume the run first"):
        agent.decide(agent.AgentState(), Leave("completed"))
