"""The rules of approvals: one answer a question, in its time, and a grant for one call alone."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.bus.log import Append
from hansard.bus.recheck import Approvals
from hansard.domain import approval as approvals
from hansard.domain import decider, steps
from hansard.domain.approval import (
    ApprovalDenied,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
    ApprovalsState,
    ApprovalStatus,
)
from hansard.domain.decider import By
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream, KeyStream, StreamId
from hansard.domain.steps import Effects, Failure, StepAttempted, StepRequested, Verdict
from tests.domain import strategies

SECOND = 1_000_000_000


def asks(name: str = "a", timeout_ms: int = 1_000, **more: str) -> ApprovalRequested:
    """Return a question."""
    fields = {"agent": "ada", "call": "c", "fingerprint": "f", **more}
    return ApprovalRequested(
        approval=name,
        role="writer",
        step=1,
        tool="send",
        arguments=msgspec.Raw(b"{}"),
        rule="r",
        timeout_ms=timeout_ms,
        **fields,
    )


def state_after(*events: tuple[int, approvals.ApprovalEvent]) -> ApprovalsState:
    """Return the state after events at the given seconds."""
    state = approvals.initial()
    for at, event in events:
        state = decider.fold(state, [event], By("x", at * SECOND))
    return state


GRANT, DENY = ApprovalGranted(approval="a", by="eva"), ApprovalDenied(approval="a", by="max")


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([GRANT, DENY, ApprovalExpired(approval="a")]))
    )
)
def test_the_first_answer_in_time_counts(answers):
    """An answer after the first, or after the end of its time, changes nothing."""
    in_order = sorted(answers, key=lambda each: each[0])
    state = state_after((0, asks(timeout_ms=2_000)), *in_order)
    request = state.requests["a"]
    in_time = [event for at, event in in_order if at < 2 and event in (GRANT, DENY)]
    if in_time:
        expected = ApprovalStatus.GRANTED if in_time[0] == GRANT else ApprovalStatus.DENIED
        assert (request.given, request.by) == (expected, in_time[0].by)
    else:
        over = any(at >= 2 and isinstance(event, ApprovalExpired) for at, event in in_order)
        assert request.given is (ApprovalStatus.EXPIRED if over else ApprovalStatus.PENDING)
        assert request.standing(2 * SECOND - 1) is request.given
        assert request.standing(2 * SECOND) is ApprovalStatus.EXPIRED


@given(strategies.approval_histories, st.sampled_from([GRANT, DENY, asks()]), st.integers(0, 2))
def test_a_repeated_command_changes_nothing(events, command, at):
    """A command right after itself leads to nothing more."""
    state = decider.fold(approvals.initial(), events)
    now = at * SECOND
    try:
        first = approvals.decide(state, command, now)
    except Refused:
        return
    after = decider.fold(state, first, By("x", now))
    assert approvals.decide(after, command, now) == ()


def test_an_answer_is_given_once():
    """The first answer counts; a second one gets an error that names the first one's author."""
    state = state_after((0, asks()), (0, GRANT))
    assert approvals.decide(state, GRANT, 0) == ()
    with pytest.raises(Refused, match="a is granted by 'eva' already: it is answered once"):
        approvals.decide(state, DENY, 0)


def test_a_late_answer_and_one_by_the_asker_are_refused():
    """The log's time decides; an agent cannot grant its own question."""
    state = state_after((0, asks()))
    with pytest.raises(Refused, match="is expired already"):
        approvals.decide(state, GRANT, SECOND)
    with pytest.raises(Refused, match="requested by agent 'ada', who may not answer it"):
        approvals.decide(state, ApprovalGranted(approval="a", by="ada"), 0)
    with pytest.raises(Refused, match="there is no approval 'b'"):
        approvals.decide(state, ApprovalGranted(approval="b", by="eva"), 0)


@pytest.mark.parametrize(("by", "author"), [("ada", "x"), ("eva", "ada")])
def test_an_answer_by_the_asker_does_not_count(by, author):
    """It counts neither in the asker's name nor written by it in another's, by any way."""
    state = state_after((0, asks()))
    forged = ApprovalGranted(approval="a", by=by)
    after = decider.fold(state, [forged], By(author, 0))
    assert after.requests["a"].given is ApprovalStatus.PENDING
    honest = decider.fold(after, [GRANT], By("eva", 0))
    assert honest.requests["a"].given is ApprovalStatus.GRANTED


def test_an_open_question_is_not_repeated():
    """The same call of the same agent waits for the same answer; any other asks for itself."""
    state = state_after((0, asks()))
    assert approvals.decide(state, asks("b"), 0) == ()
    for other in (asks("b", agent="bob"), asks("b", call="d"), asks("b", fingerprint="g")):
        assert len(approvals.decide(state, other, 0)) == 1
    assert len(approvals.decide(state, asks("b"), SECOND)) == 1
    assert len(approvals.decide(state_after((0, asks()), (0, DENY)), asks("b"), 0)) == 1


@pytest.mark.parametrize("timeout_ms", [0, 99, 365 * 24 * 3_600_000 + 1])
def test_a_time_to_answer_has_bounds(timeout_ms):
    """A timeout too short for an answer, or unbounded, is refused."""
    with pytest.raises(BadValue, match="timeout of an approval"):
        approvals.decide(approvals.initial(), asks(timeout_ms=timeout_ms), 0)


FAILURE = Failure("E", "e")
ENDS: list[tuple[list[steps.StepEvent], bool]] = [
    ([], True),
    ([steps.StepCompleted(step=1, result=steps.NULL, digest="")], False),
    ([steps.StepFailed(step=1, error=FAILURE, digest="", safe=True)], True),
    ([steps.StepFailed(step=1, error=FAILURE, digest="")], False),
    ([steps.StepInDoubt(step=1, error=FAILURE)], False),
    (
        [
            steps.StepInDoubt(step=1, error=FAILURE),
            steps.StepSettled(step=1, verdict=Verdict.DID_NOT_HAPPEN, by="eva"),
        ],
        True,
    ),
    ([steps.StepSettled(step=1, verdict=Verdict.HAPPENED, by="eva")], False),
    ([steps.StepAttempted(step=1, attempt=1, error=FAILURE)], True),
    ([steps.StepAttempted(step=1, attempt=1, error=FAILURE, approval="b")], False),
]


@pytest.mark.parametrize(("events", "usable"), ENDS)
def test_a_grant_is_used_up_by_what_may_have_been_its_effect(events, usable):
    """Only a call that may have had its effect uses the grant up."""
    request = steps.StepRequested(
        step=1,
        tool="send",
        effects=Effects.IDEMPOTENT,
        arguments=msgspec.Raw(b"{}"),
        call="c",
        fingerprint="f",
        approval="a",
    )
    step = steps.requested(request, 1)
    for version, event in enumerate(events, 2):
        step = steps.evolve(step, event, version)
    assert approvals.usable(step, "a") is usable
    assert approvals.usable(step, "never named")
    assert approvals.usable(None, "a")


# ------------------------------------------------------------ `hansard check`


ADA, BOB = AgentStream("r", "writer", "ada"), AgentStream("r", "writer", "bob")
TEAM = KeyStream("r", "team approvals")


def intent(step: int = 1, approval: str | None = "a", **more: Any) -> StepRequested:
    """Return an intent that names an approval."""
    fields = {"call": "c", "fingerprint": "f", **more}
    return StepRequested(
        step=step,
        tool="send",
        effects=Effects.ONCE,
        arguments=msgspec.Raw(b"{}"),
        approval=approval,
        **fields,
    )


def facts(*events: tuple[StreamId, Event]) -> list[str]:
    """Return the faults of events in this order."""
    checked = Approvals()
    return [fact for stream, event in events for fact in checked.event(stream, event)]


REQUESTED: list[tuple[StreamId, ApprovalRequested | ApprovalGranted]] = [
    (TEAM, asks()),
    (TEAM, GRANT),
]
AGAIN = StepAttempted(step=1, attempt=1, error=Failure("E", "e"), approval="b")
WRONG = [
    ([(ADA, intent())], "which was never requested"),
    ([(TEAM, asks()), (ADA, intent())], "which was not granted before"),
    ([*REQUESTED, (BOB, intent())], "'ada' requested for another call"),
    ([*REQUESTED, (ADA, intent(fingerprint="g"))], "for another call"),
    ([*REQUESTED, (ADA, intent()), (ADA, intent(2))], "which step 1 of 'ada' went by already"),
    ([*REQUESTED, (ADA, intent()), (ADA, AGAIN)], "approval b, which was never requested"),
    ([*REQUESTED, (AgentStream("other", "writer", "ada"), intent())], "which was never requested"),
]


@pytest.mark.parametrize(("events", "fact"), WRONG)
def test_an_approval_that_was_not_granted_for_a_call_is_reported(events, fact):
    """The question or grant is missing, another call's, or already used."""
    [problem] = facts(*events)
    assert fact in problem


def test_a_requested_and_granted_approval_is_sound():
    """This includes an attempt under the next grant, and calls without a question."""
    second = [(TEAM, asks("b")), (TEAM, ApprovalGranted(approval="b", by="eva"))]
    assert facts(*REQUESTED, (ADA, intent()), *second, (ADA, AGAIN)) == []
    assert facts((ADA, intent(approval=None))) == []


def test_a_real_run_is_sound(record, call: Callable[..., Any]):
    """The check as people run it accepts a real run and finds one forged intent."""
    with record.run("w", run="r", agent="ada", role="writer") as session:
        session.message("user", "x")
    assert call("check", "--json").code == 0
    workspace = record.workspace
    stream = AgentStream("r", "writer", "ada")
    last = record._portal.run(workspace.log.last(stream)).commit.last_version
    commit = workspace.commit(last + 1, "ada", [intent()], 1)
    record._portal.run(workspace.log.append(Append(stream, commit)))
    output = call("check", "--json")
    assert output.code == 1
    assert "step 1 goes by approval a, which was never requested" in output.out
