"""An agent killed at each point of a question: one question, and one effect for one grant."""

import time
from pathlib import Path

import pytest

from hansard.agents.policy.approvals import ListedApproval
from hansard.domain.approval import ApprovalStatus

pytestmark = pytest.mark.slow

SENDER = Path(__file__).with_name("programs") / "sender.py"

BEFORE = [("before", "approval.requested.v1"), ("after", "approval.requested.v1")]
AFTER = [
    ("before", "step.requested.v1"),
    ("after", "step.requested.v1"),
    ("before", "step.completed.v1"),
    ("after", "step.completed.v1"),
]
QUICK = ("before", "step.completed.v1", "once")
"""The effect happened, and nothing of it is on record."""

FULL = pytest.mark.thorough(quick="test_killed_after_the_grant_it_has_one_effect")
CASES = [
    pytest.param(*each, marks=() if each == QUICK else FULL)
    for each in [(*at, effects) for at in AFTER for effects in ("once", "idempotent")]
]


def requests_of(stage) -> list[ListedApproval]:
    """Return the questions of the stage's run."""
    return [each for each in stage.record.approvals.list(answered=True) if each.run == stage.run]


def asks(stage) -> str:
    """Return the id of the only open question, as soon as there is one."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        pending = [each for each in requests_of(stage) if each.standing is ApprovalStatus.PENDING]
        if pending:
            [each] = pending
            return each.approval.id
        time.sleep(0.01)
    pytest.fail("nobody asks")


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("effects", ["once", "idempotent"])
@pytest.mark.parametrize(("when", "tag"), BEFORE)
def test_killed_before_the_answer_it_waits_for_the_same_question(stage, effects, when, tag):
    """After a kill around its question a run has one question, and one answer resumes it."""
    child = stage.start(SENDER, when=when, tag=tag, effects=effects)
    child.reach()
    child.kill()
    assert len(requests_of(stage)) == (when == "after")
    waiting = stage.start(SENDER, effects=effects)
    first = asks(stage)
    waiting.kill()
    again = stage.start(SENDER, effects=effects)
    time.sleep(0.3)
    assert asks(stage) == first
    assert stage.world.read() == []
    stage.record.approvals.grant(first, by="eva")
    report = again.end()
    assert (report.error, report.results) == ("", ["sent to bob"])
    [question] = requests_of(stage)
    assert question.standing is ApprovalStatus.GRANTED
    assert len(stage.world.read()) == 1
    [step] = stage.view().agents["ada"].steps.values()
    assert step.approvals == (first,)


@pytest.mark.parametrize(("when", "tag", "effects"), CASES)
def test_killed_after_the_grant_it_has_one_effect(stage, effects, when, tag):
    """Killed around its effect, a granted call asks no more and has one effect."""
    child = stage.start(SENDER, when=when, tag=tag, effects=effects)
    approval = asks(stage)
    stage.record.approvals.grant(approval, by="eva", reason="read it")
    child.reach()
    child.kill()
    report = stage.start(SENDER, effects=effects).end()
    doubtful = (when, tag) in AFTER[1:3] and effects == "once"
    assert report.error == ("InDoubt" if doubtful else "")
    if doubtful:
        happened = bool(stage.world.read())
        verdict = {"verdict": "happened", "result": "sent to bob"}
        stage.record.settle(
            stage.run,
            f"ada#{report.step}",
            **(verdict if happened else {"verdict": "did_not_happen"}),
        )
        report = stage.start(SENDER, effects=effects).end()
    assert (report.error, report.results) == ("", ["sent to bob"])
    assert len(requests_of(stage)) == 1
    lines = stage.world.read()
    assert len({line["key"] for line in lines}) == 1
    assert len(lines) == 1 or effects == "idempotent"
    [step] = stage.view().agents["ada"].steps.values()
    assert step.approvals == (approval,)
