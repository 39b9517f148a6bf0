"""`hansard check`: an intent needs an earlier grant of its own call."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hansard.bus.log import Append
from hansard.bus.recheck import Approvals
from hansard.domain.approval import ApprovalGranted, ApprovalRequested
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream, KeyStream, StreamId
from hansard.domain.steps import Effects, Failure, StepAttempted, StepRequested
from tests.approvals.test_rules import asks

ADA, BOB = AgentStream("r", "writer", "ada"), AgentStream("r", "writer", "bob")
TEAM = KeyStream("r", "team approvals")
GRANT = ApprovalGranted(approval="a", by="eva")


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
