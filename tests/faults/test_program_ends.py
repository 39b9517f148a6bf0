"""Programs that end in the middle of work: each ends by itself and reports what it leaves."""

from __future__ import annotations

import signal
import time
from typing import Any

import msgspec
import pytest

from hansard.domain.steps import StepStatus
from tests.faults.support import Stage

WITHIN_S = 2.0
"""Longest time, in seconds, from a program's last statement or its signal to its end, which is what
orchestrators and people wait for. On a busy machine it applies to the 200 rounds, and `PATIENT_S`
to a single case.
"""

PATIENT_S = 8.0

WARNING = "a session was never closed"
RECORD_WARNING = "a record was never closed"


class End(msgspec.Struct, frozen=True):
    """A program's exit code, its run's status, and the status of its last step."""

    code: int
    run: str
    step: StepStatus
    closed: bool = False
    signal: signal.Signals | None = None


HALF = End(0, "completed", StepStatus.COMPLETED, closed=True)
UNCLOSED = End(0, "open", StepStatus.REQUESTED)
TERMINATED = End(4, "failed", StepStatus.COMPLETED, signal=signal.SIGTERM)
DONE = End(0, "completed", StepStatus.COMPLETED)
SHAPES = {
    "forked": DONE,
    "forked_async": DONE,
    "half_read": HALF,
    "zip": HALF,
    "half_read_async": HALF,
    "error": msgspec.structs.replace(HALF, code=1, run="failed"),
    "exit": msgspec.structs.replace(HALF, code=3, run="failed"),
    "interrupt": msgspec.structs.replace(HALF, code=-signal.SIGINT, run="failed"),
    "unclosed_session": UNCLOSED,
    "unclosed_record": UNCLOSED,
    "entered_record": DONE,
    "generator": UNCLOSED,
    "unclosed_async": msgspec.structs.replace(UNCLOSED, step=StepStatus.COMPLETED),
    "terminated_idle": TERMINATED,
    "terminated_in_call": msgspec.structs.replace(TERMINATED, step=StepStatus.IN_DOUBT),
    "terminated_all_tasks": msgspec.structs.replace(TERMINATED, code=1),
    "exit_in_gather": End(4, "failed", StepStatus.COMPLETED),
}


def _ended(stage: Stage, shape: str, effects: str = "once") -> tuple[int, str, float]:
    """Run a program to its end: its exit code, what it wrote, and the seconds that its end took."""
    child = stage.start("ends", shape=shape, effects=effects)
    child.reach()
    if shape.startswith("terminated"):
        child.signal(signal.SIGTERM)
    began_s = time.monotonic()
    _, err = child._communicate()
    return child.process.returncode, err.decode(), time.monotonic() - began_s


def _check(stage: Stage, shape: str) -> float:
    end = SHAPES[shape]
    code, err, took_s = _ended(stage, shape)
    assert code == end.code, err
    view = stage.view()
    assert view.life.status == end.run, err
    agent = view.agent("agent")
    last = agent.steps[max(agent.steps)]
    if shape == "exit_in_gather":
        assert {step.tool: step.status for step in agent.steps.values()}["parse"] == "in_doubt"
    else:
        assert (last.status, last.closed) == (end.step, end.closed), err
    assert (WARNING in err) is (end.run == "open"), err
    assert ("(run=" in err) is (end.run == "open"), err
    assert (RECORD_WARNING in err) is (shape == "entered_record"), err
    for noise in ("was destroyed", "never awaited", "Exception ignored", "broker did not confirm"):
        assert noise not in err
    return took_s


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_program_ends_by_itself(stage: Stage, shape: str) -> None:
    """No program waits for ever; the run's end is on record, or a warning names it."""
    assert _check(stage, shape) < PATIENT_S


@pytest.mark.long
@pytest.mark.thorough(quick="test_a_program_ends_by_itself")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_program_ends_within_two_seconds(stage, shape, rounds, evidence):
    """No shape of a program's end takes longer than two seconds."""
    tries = rounds(quick=1, full=200)
    slowest = 0.0
    for number in range(tries):
        stage.begin(f"r1-{number}")
        slowest = max(slowest, _check(stage, shape))
    evidence.record(f"ends.{shape}", rounds=tries, slowest_s=round(slowest, 2))
    assert slowest < WITHIN_S


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["error", "half_read_async"])
def test_a_half_read_stream_of_a_pure_tool_is_never_in_doubt(stage: Stage, shape: str) -> None:
    """A half-read stream of a `pure` tool leaves no open step."""
    _ended(stage, shape, effects="pure")
    steps = stage.view().agent("agent").steps.values()
    assert [step.status for step in steps if step.streamed] == [StepStatus.COMPLETED]


@pytest.mark.slow
def test_sigterm_in_the_middle_of_writes_ends_the_program(stage: Stage) -> None:
    """SIGTERM at any point of the loop's writes ends the program."""
    _check_terminated_writers(stage, 10)


@pytest.mark.long
@pytest.mark.thorough(quick="test_sigterm_in_the_middle_of_writes_ends_the_program")
def test_sigterm_again_and_again_in_the_middle_of_writes(stage: Stage, rounds: Any) -> None:
    """Repeated SIGTERM during writes ends the program; one in 1,500 hits asyncio's own wakeup."""
    _check_terminated_writers(stage, 10 * rounds(quick=1, full=200))


def _check_terminated_writers(stage: Stage, programs: int) -> None:
    for number in range(programs):
        stage.begin(f"r1-{number}")
        code, err, took_s = _ended(stage, "terminated_busy")
        assert code == 4, err
        assert took_s < PATIENT_S
