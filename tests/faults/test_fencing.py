"""A stopped process that continues after its run was resumed elsewhere."""

import signal

import pytest

from hansard.domain.ids import AgentStream
from tests.faults._inside import Point
from tests.faults.support import Child, Report, Stage, read_acks

pytestmark = pytest.mark.slow

DONE = ["LETTER", {"did": "LETTER"}, "LETTER"]
STREAM = AgentStream("r1", "worker", "worker")


def _wake(child: Child) -> Report:
    child.signal(signal.SIGCONT)
    return child.end()


def _check_fenced(stage: Stage, old: Child, woken: Report, before: int) -> None:
    """Check that the old process was fenced, wrote nothing more, and the run completed."""
    assert woken.error == "Fenced"
    assert "the run was resumed elsewhere" in woken.message
    assert stage.view().life.status == "completed"
    mine = [stored for stored in stage.commits() if stored.stream == STREAM]
    epochs = [stored.commit.epoch for stored in mine]
    assert epochs == sorted(epochs)
    assert epochs[-1] > 1
    acks = read_acks(old.job.acks)
    assert len(acks) == before
    begun = min(stored.position for stored in mine if stored.commit.epoch > 1)
    assert all(ack.position < begun for ack in acks)
    assert stage.lost() == []


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("policy", ["pure", "idempotent", "reconcile", "once"])
def test_one_stopped_before_its_intent_does_nothing_any_more(stage, evidence, policy):
    """A stopped process that was replaced has its intent refused, so no effect runs."""
    old = stage.frozen_at("matrix", Point.BEFORE_INTENT, policy=policy)
    before = len(read_acks(old.job.acks))
    report = stage.go_on("matrix", policy=policy)
    assert (report.error, report.results) == ("", DONE)
    done = len(stage.world.read())
    woken = _wake(old)
    _check_fenced(stage, old, woken, before)
    assert len(stage.world.read()) == done == (2 if policy == "pure" else 1)
    evidence.record(f"fenced.{policy}.before_intent", effects=done, commits_after=0)


def test_one_stopped_before_its_receipt_leaves_one_effect(stage):
    """A stopped process whose effect happened is fenced; the run continues once it is settled."""
    old = stage.frozen_at("matrix", Point.BEFORE_RECEIPT, policy="once")
    before = len(read_acks(old.job.acks))
    report = stage.go_on("matrix", policy="once")
    assert report.error == "InDoubt"
    stage.record.settle("r1", f"worker#{report.step}", "happened", result=DONE[1])
    assert stage.go_on("matrix", policy="once").results == DONE
    _check_fenced(stage, old, _wake(old), before)
    assert len(stage.world.read()) == 1


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("policy", "keys"),
    [pytest.param("once", 1, id="once"), pytest.param("idempotent", 1, id="key")],
)
def test_fencing_guards_the_record_and_not_the_world(stage, policy, keys):
    """A process stopped after its intent still does its effect; only its receipt is refused."""
    old = stage.frozen_at("matrix", Point.AFTER_INTENT, policy=policy)
    before = len(read_acks(old.job.acks))
    report = stage.go_on("matrix", policy=policy)
    if policy == "once":
        assert report.error == "InDoubt"
        stage.record.settle("r1", f"worker#{report.step}", "did_not_happen")
        report = stage.go_on("matrix", policy=policy)
    assert report.results == DONE
    assert len(stage.world.read()) == 1
    _check_fenced(stage, old, _wake(old), before)
    assert len(stage.world.read()) == 2
    assert len({line["key"] for line in stage.world.read()}) == keys


@pytest.mark.slow
def test_a_settlement_fences_the_session_that_is_still_at_work(stage):
    """Settling a step takes the next epoch, so a session still in that step cannot record it."""
    old = stage.frozen_at("matrix", Point.BEFORE_RECEIPT, policy="once")
    stage.record.settle("r1", "worker#2", "happened", result={"did": "by hand"})
    assert _wake(old).error == "Fenced"
    report = stage.go_on("matrix", policy="once")
    assert report.results == ["LETTER", {"did": "by hand"}, "BY HAND"]
    assert len(stage.world.read()) == 1
