"""A run that is killed while it is given answers, and offers its own."""

import time
from pathlib import Path
from typing import Any

import pytest

from hansard.bus.codec import revive
from hansard.bus.portal import portal
from hansard.domain.reuse import KIND, AnswerOffered
from hansard.domain.steps import StepStatus
from tests.faults.support import Child, Stage

pytestmark = pytest.mark.slow

REUSING = Path(__file__).with_name("programs") / "reusing.py"
BEGUN_S_MAX = 60.0


def offers(stage: Stage, workflow: str) -> list[AnswerOffered]:
    """What the runs of a workflow offered."""
    commits = portal().run(stage.record.workspace.log.read_kind(KIND))
    found = [revive(recorded) for stored in commits for recorded in stored.commit.events]
    return [each for each in found if isinstance(each, AnswerOffered) and each.workflow == workflow]


def stopped(child: Child) -> bool:
    """Whether a program stopped at its append, or has fewer and came to its end."""
    deadline = time.monotonic() + BEGUN_S_MAX
    while not Path(child.job.marker).exists() and child.process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return child.process.poll() is None


@pytest.mark.parametrize("when", ["after", pytest.param("before", marks=pytest.mark.thorough)])
def test_killed_at_each_append_an_answer_is_given_whole_and_offered_once(stage: Stage, when: str):
    """Killed around each append, an answered call never runs and an offer is made once or never."""
    number = 1
    while True:
        flow = f"{when}-{number}"
        stage.begin(f"seed-{flow}")
        assert stage.go_on(REUSING, workflow=flow, texts=["one"]).results == ["ONE"]
        stage.begin(f"run-{flow}")
        wanted: dict[str, Any] = {"workflow": flow, "texts": ["one", "two"]}
        child = stage.start(REUSING, number=number, when=when, **wanted)
        if not stopped(child):
            assert child.end().error == ""
            break
        child.kill()
        told = offers(stage, flow)
        state = stage.record.state(f"run-{flow}") if stage.commits() else None
        for each in told:
            if each.run == f"run-{flow}":
                assert state is not None
                step = state.agent("agent").steps[each.step]
                assert (step.status, step.digest) == (StepStatus.COMPLETED, each.digest)
        assert stage.go_on(REUSING, **wanted).results == ["ONE", "TWO"]
        given = stage.view().agent("agent").steps
        assert [step.reused_from is not None for step in given.values()] == [True, False]
        assert not stage.world.read("ran", text="one")
        assert 1 <= len(stage.world.read("ran", text="two")) <= 2
        mine = [each.run for each in offers(stage, flow)]
        assert mine.count(f"run-{flow}") <= 1
        stage.begin(f"later-{flow}")
        assert stage.go_on(REUSING, **wanted).results == ["ONE", "TWO"]
        ran = len(stage.world.read("ran", text="two"))
        assert ran == (0 if f"run-{flow}" in mine else 1)
        number += 1
    assert number > 5
