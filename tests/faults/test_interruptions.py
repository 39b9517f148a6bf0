"""An exception of a signal handler at any point leaves the session and its record equal."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest

import hansard
from hansard.domain.agent import AgentState
from hansard.domain.run import RunStatus
from tests.faults.interruptions import Interrupter, Interruption

NEVER = sys.maxsize
POINTS_MIN = 800
"""Fewer points in two calls would mean that the trace function misses some."""

NOT_AWAITED = "ignore:coroutine .* was never awaited"
"""Python warns of a coroutine that was interrupted before it began."""

IN_A_CALLBACK = (
    "ignore:Exception ignored in. <function Weak:pytest.PytestUnraisableExceptionWarning"
)
"""Python drops an error that a signal handler raises in the callback of a weak reference."""

Work = Callable[[hansard.Session], None]


def of_a_tool(effects: Any) -> Callable[[hansard.Session], Work]:
    """Return two calls of a tool, to be interrupted."""

    def prepared(session: hansard.Session) -> Work:
        @session.tool(effects=effects, name="double")
        def double(value: int) -> int:
            return 2 * value

        double(-1)

        def work(_: hansard.Session) -> None:
            double(0)
            double(1)

        return work

    return prepared


def of_the_board(session: hansard.Session) -> Work:
    """Return two writes of shared state, to be interrupted."""
    session.board.put("first", 0)

    def work(session: hansard.Session) -> None:
        session.board.put("second", 1)
        session.board.put("third", 2)

    return work


def of_messages(session: hansard.Session) -> Work:
    """Return two messages, to be interrupted."""
    session.message("user", "first")

    def work(session: hansard.Session) -> None:
        session.message("assistant", "second")
        session.message("user", "third")

    return work


WORK: dict[str, Callable[[hansard.Session], Work]] = {
    "pure": of_a_tool("pure"),
    "once": of_a_tool("once"),
    "board": of_the_board,
    "messages": of_messages,
}


def facts(state: AgentState) -> Any:
    """Return what a session and its record have to agree on."""
    steps = [
        (step.number, step.tool, step.status, step.version, step.outcome_version, step.safe)
        for step in state.steps.values()
    ]
    return steps, [(each.version, each.fact) for each in state.facts], state.total_tokens


def interrupted(record: hansard.Record, run: str, name: str, at: int) -> Interrupter:
    """Interrupt a session's work at a point, go on with it, and compare it with its record."""
    interrupter = Interrupter(at)
    with record.run("limits", run=run) as session:
        work = WORK[name](session)

        @session.tool
        def after(value: int) -> int:
            return value

        gc.disable()  # Python drops an exception that is raised in a finalizer of other garbage
        with contextlib.suppress(Interruption):
            sys.settrace(interrupter)
            try:
                work(session)
            finally:
                sys.settrace(None)
                gc.enable()
        try:
            assert after(1) == 1
            session.message("assistant", "I gave up")
            assert after(2) == 2
        except BaseException as error:
            error.add_note(f"interrupted at point {at}: {interrupter.where}")
            raise
        live = facts(session.state)
    [kept] = record.state(run).agents.values()
    assert facts(kept) == live, f"interrupted at point {at}: {interrupter.where}"
    assert record.state(run).life.status is RunStatus.COMPLETED
    return interrupter


def interrupt_all(record: hansard.Record, name: str, begin: int, stride: int) -> int:
    """Interrupt at every `stride`-th point from `begin` on; return the number of all points."""
    points = interrupted(record, "whole", name, NEVER).points
    for at in range(begin, points + 1, stride):
        interrupted(record, f"r{at}", name, at)
    return points


@pytest.mark.slow
@pytest.mark.filterwarnings(NOT_AWAITED, IN_A_CALLBACK)
@pytest.mark.parametrize("name", list(WORK))
def test_an_interruption_at_some_points(record: hansard.Record, name: str) -> None:
    """After an exception at one of some points the session goes on, equal to its record."""
    assert interrupt_all(record, name, 7, 61) > POINTS_MIN


@pytest.mark.thorough(quick="test_an_interruption_at_some_points")
@pytest.mark.filterwarnings(NOT_AWAITED, IN_A_CALLBACK)
@pytest.mark.parametrize("name", list(WORK))
def test_an_interruption_at_every_point(record: hansard.Record, name: str) -> None:
    """After an exception at any point the session goes on, equal to its record."""
    assert interrupt_all(record, name, 1, 1) > POINTS_MIN
