"""The agent's source file is edited between the kill and the resume."""

from pathlib import Path

import pytest

from tests.faults._inside import Point
from tests.faults.support import PROGRAMS, Stage

pytestmark = pytest.mark.slow

PAPERS = ["paper 0", "paper 1"]
DONE = [PAPERS, "paper 0", "letter to the board", "published Report"]
CHANGED = [PAPERS, "paper 1", "letter to the board", "published Report"]

LATER = ('TITLE = "Report"', 'TITLE = "Summary"')
EARLIER = ("CHOICE = 0", "CHOICE = 1")
WITHOUT_CONSEQUENCE = ("LIMIT = 2", "LIMIT = 3")


def _source(stage: Stage) -> Path:
    path = stage.folder / "agent.py"
    path.write_text((PROGRAMS / "letters.py").read_text())
    return path


def _edit(path: Path, change: tuple[str, str]) -> None:
    text = path.read_text()
    assert text.count(change[0]) == 1
    path.write_text(text.replace(*change))


def _effects(stage: Stage, tool: str) -> list[str]:
    return [line["word"] for line in stage.world.read(tool=tool)]


def _bodies(stage: Stage) -> list[str]:
    return [line["tool"] for line in stage.world.read("bodies")]


def test_a_later_step_changed(stage):
    """Steps recorded before the edit are replayed; no body or effect is repeated."""
    path = _source(stage)
    stage.killed_at(path, Point.AFTER_RECEIPT, "send", policy="once")
    _edit(path, LATER)
    report = stage.go_on(path, policy="once")
    assert (report.error, report.results) == ("", [*DONE[:3], "published Summary"])
    assert _bodies(stage) == ["search", "choose"]
    assert _effects(stage, "send") == ["the board"]
    assert _effects(stage, "publish") == ["Summary"]
    assert stage.lost() == []


@pytest.mark.parametrize(
    ("verdict", "effects"), [("reuse", ["Report"]), ("run_again", ["Report", "Summary"])]
)
def test_an_effect_with_other_arguments_stops(stage, verdict, effects):
    """An effect whose arguments were edited stops until somebody chooses, for good."""
    path = _source(stage)
    stage.killed_at(path, Point.AFTER_RECEIPT, "publish", policy="once")
    _edit(path, LATER)
    report = stage.go_on(path, policy="once")
    assert (report.error, report.step) == ("Diverged", 4)
    assert _effects(stage, "publish") == ["Report"]
    stage.record.settle("r1", "writer#4", verdict)
    for _ in range(2):
        report = stage.go_on(path, policy="once")
        assert report.results == [*DONE[:3], f"published {effects[-1]}"]
    assert _effects(stage, "publish") == effects
    assert _effects(stage, "send") == ["the board"]


def test_an_earlier_change_without_consequence_goes_unnoticed(stage):
    """An equal result cuts a change off: the edited steps run, the effect after them replays."""
    path = _source(stage)
    stage.killed_at(path, Point.AFTER_RECEIPT, "send", policy="once")
    _edit(path, WITHOUT_CONSEQUENCE)
    report = stage.go_on(path, policy="once")
    assert (report.error, report.results) == ("", [[*PAPERS, "paper 2"], *DONE[1:]])
    assert _bodies(stage) == ["search", "choose"] * 2
    assert _effects(stage, "send") == ["the board"]
    assert stage.settlements() == []


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("policy", ["once", "reconcile"])
@pytest.mark.parametrize(
    ("verdict", "letters"), [("reuse", 1), ("run_again", 2)], ids=["reuse", "run_again"]
)
def test_an_earlier_step_changed_before_an_effect(stage, evidence, policy, verdict, letters):
    """An edit before an effect raises Diverged until `reuse` or `run_again` is chosen."""
    path = _source(stage)
    stage.killed_at(path, Point.AFTER_RECEIPT, "send", policy=policy)
    _edit(path, EARLIER)
    reports = [stage.go_on(path, policy=policy) for _ in range(2)]
    assert [(report.error, report.step) for report in reports] == [("Diverged", 3)] * 2
    assert _effects(stage, "send") == ["the board"]
    assert 'on record: send {"to":"the board"} after [2] -> completed' in reports[1].message
    assert 'now:       send {"to":"the board"} after [4]' in reports[1].message
    assert " run settle r1 writer#3 --reuse or --run-again" in reports[1].message

    stage.record.settle("r1", "writer#3", verdict, by="someone", reason="looked")
    report = stage.go_on(path, policy=policy)
    assert (report.error, report.results) == ("", CHANGED)
    assert _effects(stage, "send") == ["the board"] * letters
    assert _effects(stage, "publish") == ["Report"]
    assert [(settlement.verdict, settlement.by) for settlement in stage.settlements()] == [
        (verdict, "someone")
    ]
    again = stage.go_on(path, policy=policy)
    assert again.results == CHANGED
    assert _effects(stage, "send") == ["the board"] * letters  # settled once and for all
    assert stage.lost() == []
    evidence.record(f"edited.{policy}.{verdict}", effects=letters, settlements=1)


def test_an_earlier_step_changed_before_an_idempotent_one(stage):
    """An idempotent step runs again with its former key."""
    path = _source(stage)
    stage.killed_at(path, Point.AFTER_RECEIPT, "send", policy="idempotent")
    _edit(path, EARLIER)
    report = stage.go_on(path, policy="idempotent")
    assert (report.error, report.results) == ("", CHANGED)
    letters = stage.world.read(tool="send")
    assert len(letters) == 2
    assert len({letter["key"] for letter in letters}) == 1
    assert stage.settlements() == []


def test_an_earlier_step_changed_before_one_in_doubt(stage):
    """An open intent is the doubt that it was, whatever was edited before it."""
    path = _source(stage)
    child = stage.start(path, Point.BEFORE_RECEIPT, "send", policy="once")
    child.reach()
    child.kill()
    _edit(path, EARLIER)
    report = stage.go_on(path, policy="once")
    assert (report.error, report.step) == ("InDoubt", 3)
    assert _effects(stage, "send") == ["the board"]
    stage.record.settle("r1", "writer#3", "happened", result="letter to the board")
    report = stage.go_on(path, policy="once")
    assert report.error == "Diverged"  # it happened, after another choice
    stage.record.settle("r1", "writer#3", "reuse")
    report = stage.go_on(path, policy="once")
    assert (report.error, report.results) == ("", CHANGED)
    assert _effects(stage, "send") == ["the board"]
