"""A process killed at each point of a step, under each effects policy, and resumed elsewhere.

An effect is a line that another process appends to a file and syncs. SIGKILL finds the agent
standing still at the point, so each cell has one outcome, not a likely one.

The fast tier kills at each point under `once`, the policy that doubts; the slow tier under the
others where they differ from it; `make test-full` at every point under every policy.
"""

import msgspec
import pytest

from tests.faults._inside import Point

DONE = ["LETTER", {"did": "LETTER"}, "LETTER"]
PARTS = ["LETTER", {"did": "LETTER 1, LETTER 2"}, "LETTER 1, LETTER 2"]


class Cell(msgspec.Struct, frozen=True):
    """Expected effects when killed and when done, and the question on resume."""

    killed: int
    done: int
    doubt: bool = False
    reconciliations: int = 0


CELLS = {
    ("pure", Point.BEFORE_INTENT): Cell(1, 2),  # its intent and its receipt are one commit
    ("pure", Point.AFTER_INTENT): Cell(0, 1),  # it has begun, and nothing is on record
    ("pure", Point.AFTER_EFFECT): Cell(1, 2),
    ("pure", Point.BEFORE_RECEIPT): Cell(1, 2),
    ("pure", Point.AFTER_RECEIPT): Cell(1, 1),
    ("idempotent", Point.BEFORE_INTENT): Cell(0, 1),
    ("idempotent", Point.AFTER_INTENT): Cell(0, 1),
    ("idempotent", Point.AFTER_EFFECT): Cell(1, 2),
    ("idempotent", Point.BEFORE_RECEIPT): Cell(1, 2),
    ("idempotent", Point.AFTER_RECEIPT): Cell(1, 1),
    ("reconcile", Point.BEFORE_INTENT): Cell(0, 1),
    ("reconcile", Point.AFTER_INTENT): Cell(0, 1, reconciliations=1),
    ("reconcile", Point.AFTER_EFFECT): Cell(1, 1, reconciliations=1),
    ("reconcile", Point.BEFORE_RECEIPT): Cell(1, 1, reconciliations=1),
    ("reconcile", Point.AFTER_RECEIPT): Cell(1, 1),
    ("once", Point.BEFORE_INTENT): Cell(0, 1),
    ("once", Point.AFTER_INTENT): Cell(0, 1, doubt=True),
    ("once", Point.AFTER_EFFECT): Cell(1, 1, doubt=True),
    ("once", Point.BEFORE_RECEIPT): Cell(1, 1, doubt=True),
    ("once", Point.AFTER_RECEIPT): Cell(1, 1),
}
"""Policy and point. Under `once` the doubt is settled with what is true."""

TELLING = {
    ("pure", Point.BEFORE_INTENT),
    ("pure", Point.AFTER_EFFECT),
    ("idempotent", Point.AFTER_EFFECT),
    ("reconcile", Point.AFTER_INTENT),
    ("reconcile", Point.BEFORE_RECEIPT),
}
"""Cells in which a policy differs from `once`."""


def _tier(policy, point):
    if policy == "once":
        return ()
    return pytest.mark.slow if (policy, point) in TELLING else pytest.mark.thorough


@pytest.mark.parametrize(
    ("policy", "point"),
    [pytest.param(policy, point, marks=_tier(policy, point)) for policy, point in CELLS],
    ids=str,
)
def test_what_a_kill_leaves_and_what_resuming_does_about_it(stage, evidence, policy, point):
    """A kill leaves what the effects policy promises, and resuming acts by that policy."""
    cell = CELLS[policy, point]
    stage.killed_at("matrix", point, policy=policy)
    assert len(stage.world.read()) == cell.killed
    assert len(stage.world.read("bodies")) == 1  # nothing goes on before the receipt is there

    report = stage.go_on("matrix", policy=policy)
    if cell.doubt:
        assert (report.error, report.results) == ("InDoubt", None)
        assert " run settle r1 worker#2 --happened RESULT" in report.message
        assert len(stage.world.read()) == cell.killed  # asking did nothing
        if cell.killed:
            verdict = {"verdict": "happened", "result": DONE[1]}
        else:
            verdict = {"verdict": "did_not_happen"}
        stage.record.settle("r1", f"worker#{report.step}", **verdict, reason="looked")
        report = stage.go_on("matrix", policy=policy)
    effects = stage.world.read()

    assert (report.error, report.results) == ("", DONE)
    assert len(effects) == cell.done
    assert len({line["key"] for line in effects}) == 1
    assert all(line["key"] for line in effects) is (policy == "idempotent")
    assert len(stage.world.read("questions")) == cell.reconciliations
    assert len(stage.settlements()) == (1 if cell.doubt or cell.reconciliations else 0)
    assert len(stage.world.read("bodies")) == 2  # what was acknowledged before did not run again
    assert stage.acks()
    assert stage.lost() == []
    evidence.record(
        f"kill.{policy}.{point}", effects=len(effects), settlements=len(stage.settlements())
    )


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("point", [Point.BEFORE_INTENT, Point.AFTER_INTENT, Point.AFTER_RECEIPT])
def test_what_a_kill_leaves_where_the_loop_sends(stage, point):
    """A kill leaves the same if a commit is sent by the loop's connection."""
    cell = CELLS["once", point]
    stage.killed_at("matrix", point, policy="once", here=False)
    report = stage.go_on("matrix", policy="once")
    assert (report.error == "InDoubt") is cell.doubt
    assert len(stage.world.read()) == (cell.killed if cell.doubt else cell.done)
    assert stage.lost() == []


@pytest.mark.parametrize(
    ("point", "cell"),
    [
        pytest.param(Point.HALF_SENT_INTENT, Cell(0, 1), id="half_sent_intent"),
        pytest.param(Point.UNREAD_INTENT, Cell(0, 1, doubt=True), id="unread_intent"),
        pytest.param(Point.HALF_SENT_RECEIPT, Cell(1, 1, doubt=True), id="half_sent_receipt"),
        pytest.param(Point.UNREAD_RECEIPT, Cell(1, 1), id="unread_receipt"),
    ],
)
def test_what_a_kill_leaves_inside_of_a_thread_s_own_publish(stage, point, cell):
    """Half of a commit's bytes are nothing; a commit whose answer was not read is stored."""
    stage.killed_at("matrix", point, policy="once")
    assert len(stage.world.read()) == cell.killed
    report = stage.go_on("matrix", policy="once")
    assert (report.error == "InDoubt") is cell.doubt
    assert len(stage.world.read()) == (cell.killed if cell.doubt else cell.done)
    assert stage.lost() == []


@pytest.mark.parametrize(
    ("point", "effects"),
    [
        pytest.param(Point.BEFORE_INTENT, 0, id="before_intent", marks=pytest.mark.thorough),
        pytest.param(Point.AFTER_INTENT, 0, id="after_intent", marks=pytest.mark.slow),
        pytest.param(Point.AFTER_EFFECT, 2, id="after_effect"),
        pytest.param(Point.BEFORE_RECEIPT, 2, id="before_receipt", marks=pytest.mark.thorough),
        pytest.param(Point.AFTER_RECEIPT, 2, id="after_receipt", marks=pytest.mark.slow),
    ],
)
def test_a_composite_is_entered_again_and_its_parts_replay(stage, point, effects):
    """Wherever a composite is cut, its two parts have happened once each in the end."""
    stage.killed_at("matrix", point, policy="composite")
    assert len(stage.world.read()) == effects
    report = stage.go_on("matrix", policy="composite")
    assert (report.error, report.results) == ("", PARTS)
    assert [line["word"] for line in stage.world.read()] == ["LETTER 1", "LETTER 2"]
    assert stage.settlements() == []
    assert stage.lost() == []


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(Point.AFTER_INTENT, marks=pytest.mark.thorough),
        pytest.param(Point.BEFORE_RECEIPT, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_doubt_about_a_part_stops_the_composite(stage, point):
    """A `once` part in doubt stops the whole; the part is settled, the composite goes on."""
    stage.killed_at("matrix", point, tool="part", policy="composite")
    done = len(stage.world.read())
    assert done == (0 if point is Point.AFTER_INTENT else 1)
    report = stage.go_on("matrix", policy="composite")
    assert (report.error, report.step) == ("InDoubt", 3)
    verdict = (
        {"verdict": "happened", "result": "LETTER 1"} if done else {"verdict": "did_not_happen"}
    )
    stage.record.settle("r1", "worker#3", **verdict)
    report = stage.go_on("matrix", policy="composite")
    assert (report.error, report.results) == ("", PARTS)
    assert [line["word"] for line in stage.world.read()] == ["LETTER 1", "LETTER 2"]


LINES = [f"line {number}" for number in range(4)]


@pytest.mark.parametrize(
    ("policy", "effects"),
    [
        pytest.param("pure", 2, marks=pytest.mark.slow),
        pytest.param("idempotent", 2, marks=pytest.mark.thorough),
        ("once", 1),
    ],
)
def test_a_stream_cut_by_a_kill(stage, policy, effects):
    """A killed stream keeps its items; `once` is in doubt, the others begin again."""
    stage.killed_at("lines", Point.AFTER_EFFECT, "lines", policy=policy)
    step = stage.view().agent("worker").steps[1]
    assert [bytes(item).decode() for item in step.items] == ['"line 0"', '"line 1"']
    report = stage.go_on("lines", policy=policy)
    if policy == "once":
        assert report.error == "InDoubt"
        assert "after 2 items" in report.message
    else:
        assert (report.error, report.results) == ("", LINES)
        assert len(stage.view().agent("worker").steps[1].items) == len(LINES)
        assert stage.go_on("lines", policy=policy).results == LINES
    assert len(stage.world.read()) == effects
    assert stage.lost() == []
