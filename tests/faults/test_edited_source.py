"""The agent's source file is edited between the kill and the resume."""

from pathlib import Path

import pytest

from tests.faults._inside import Point
from tests.faults.support import PROGRAMS, Stage

pytestmark = pytest.mark.slow

PAPERS = ["paper 0", "paper 1"]
CHANGED = [PAPERS, "paper 1", "letter to the board", "published Report"]

EARLIER = ("CHOICE = 0", "CHOICE = 1")


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
