"""An assistant killed during corrections loses none and makes none twice."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hansard.bus.portal import portal
from hansard.domain.ids import AgentStream
from hansard.domain.memory.files import KIND, MemoryChanged
from tests.faults.support import Stage

pytestmark = pytest.mark.slow

CORRECTED = Path(__file__).with_name("programs") / "corrected.py"
BEGUN_S_MAX = 60.0
CORRECTIONS = 2
WANTED = "- correction zero\n- correction 1\n"


def changes_of(stage: Stage) -> set[int]:
    """Return this run's steps that changed memory, by the space's events."""
    commits = portal().run(stage.record.workspace.log.read_kind(KIND))
    made = [
        msgspec.json.decode(recorded.data, type=MemoryChanged)
        for stored in commits
        for recorded in stored.commit.events
        if recorded.type == MemoryChanged.tag
    ]
    steps = [change.step for change in made if change.run == stage.run]
    assert len(steps) == len(set(steps))
    return set(steps)


def steps_of(stage: Stage) -> set[int]:
    """Return this run's steps that changed memory, by the recorded steps."""
    requests: set[int] = set()
    done: set[int] = set()
    for stored in stage.commits():
        if not isinstance(stored.stream, AgentStream):
            continue
        for recorded in stored.commit.events:
            data = msgspec.json.decode(recorded.data)
            if recorded.type == "step.requested.v1" and data["tool"] == "memory.change":
                requests.add(data["step"])
            elif recorded.type == "step.completed.v1" and data["step"] in requests:
                done.add(data["step"])
    return done


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.thorough)])
def test_killed_at_each_append_no_correction_is_lost_or_doubled(
    stage: Stage, rounds: Callable[[int, int], int], when: str
):
    """A kill at any append leaves a correction and its step, or neither; each is made once."""
    stride = 1 if rounds(1, 2) > 1 else 2  # `make check` kills at every other append
    number = 1
    while True:
        stage.begin(f"{when}-{number}")
        agent = f"ada-{when}-{number}"
        stage.record.memory(f"agent/{agent}").set_policy("off", by="eve")
        settings: dict[str, Any] = {"agent": agent, "corrections": CORRECTIONS}
        child = stage.start(CORRECTED, number=number, when=when, **settings)
        deadline = time.monotonic() + BEGUN_S_MAX
        while not Path(child.job.marker).exists() and child.process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if child.process.poll() is not None:  # it has fewer appends than that
            assert child.end().error == ""
            break
        child.kill()
        assert changes_of(stage) == steps_of(stage)
        report = stage.go_on(CORRECTED, **settings)
        assert report.error == "", report.message
        assert report.results == WANTED
        assert stage.record.memory(f"agent/{agent}").view("AGENTS.md") == WANTED
        assert changes_of(stage) == steps_of(stage)
        number += stride
    assert number > 4
