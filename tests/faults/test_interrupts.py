"""Ctrl-C at each point of a step of the sync client, which is stopped (SIGSTOP) there."""

import signal
from typing import Any

import msgspec
import pytest

from hansard.domain.steps import StepStatus
from tests.faults._inside import Point
from tests.faults.support import Stage

pytestmark = pytest.mark.thorough

DONE = ["LETTER", {"did": "LETTER"}, "LETTER"]


class Left(msgspec.Struct, frozen=True):
    """Result of an interrupt: the step's status, safety and doubt on resume, number of effects."""

    status: StepStatus | None
    safe: bool = False
    doubt: bool = False
    done: int = 1


NEVER_BEGAN = Left(StepStatus.FAILED, safe=True)
CELLS = {
    ("once", Point.BEFORE_INTENT): NEVER_BEGAN,
    ("once", Point.AFTER_INTENT): NEVER_BEGAN,
    ("once", Point.AFTER_EFFECT): Left(StepStatus.IN_DOUBT, doubt=True),
    ("once", Point.BEFORE_RECEIPT): Left(StepStatus.COMPLETED),
    ("once", Point.AFTER_RECEIPT): Left(StepStatus.COMPLETED),
    ("reconcile", Point.AFTER_INTENT): NEVER_BEGAN,
    ("reconcile", Point.AFTER_EFFECT): Left(StepStatus.IN_DOUBT),
    ("idempotent", Point.AFTER_INTENT): NEVER_BEGAN,
    ("idempotent", Point.AFTER_EFFECT): Left(StepStatus.IN_DOUBT, done=2),
    ("pure", Point.AFTER_INTENT): Left(None),
    ("pure", Point.AFTER_EFFECT): Left(None, done=2),
    ("pure", Point.BEFORE_RECEIPT): Left(StepStatus.COMPLETED),
}


def _interrupted(stage: Stage, point: Point, **settings: Any) -> None:
    child = stage.frozen_at("matrix", point, **settings)
    child.signal(signal.SIGINT)
    child.signal(signal.SIGCONT)
    assert child.end().error == "KeyboardInterrupt"
    view = stage.view()
    assert view.life.status == "failed"
    assert view.life.error is not None
    assert view.life.error.type == "KeyboardInterrupt"
    assert view.agent("worker").left == "failed"
    assert stage.lost() == []


def _settled(stage: Stage) -> None:
    report = stage.go_on("matrix", policy="once")
    assert (report.error, report.step) == ("InDoubt", 2)
    assert len(stage.world.read()) == 1
    stage.record.settle("r1", "worker#2", "happened", result=DONE[1])


@pytest.mark.thorough(quick="faults/test_cancellation.py::test_while_the_outcome_is_recorded")
@pytest.mark.parametrize(("policy", "point"), CELLS, ids=str)
def test_what_an_interrupt_leaves(stage, policy, point):
    """Only an interrupt in the body of a tool that is not `pure` leaves a doubt."""
    left = CELLS[policy, point]
    _interrupted(stage, point, policy=policy)
    step = stage.view().agent("worker").steps.get(2)
    assert (step and step.status) == left.status
    assert bool(step and step.safe) == left.safe
    if left.doubt:
        _settled(stage)
    report = stage.go_on("matrix", policy=policy)
    assert (report.error, report.results) == ("", DONE)
    assert len(stage.world.read()) == left.done
    assert len({line["key"] for line in stage.world.read()}) == 1
