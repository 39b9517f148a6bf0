"""An exception of a signal handler, as soft time limits raise it (Celery, pytest-timeout): it hits
the program anywhere, also while a commit is sent.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hansard.domain.run import RunStatus

TRIES = 40


class SoftTimeLimit(Exception):
    """What the handler raises."""


@pytest.fixture
def alarm() -> Iterator[Any]:
    """Have SoftTimeLimit raised after some seconds, or not at all (0)."""

    def raises(*_: object) -> None:
        raise SoftTimeLimit

    before = signal.signal(signal.SIGALRM, raises)
    try:
        yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("effects", ["pure", "once"])
def test_an_error_of_a_signal_handler_ends_no_session(record, alarm, effects):
    """An error raised by a signal handler in a step is not raised again; the session goes on."""
    hits = 0
    for number in range(TRIES):
        with record.run("limits", run=f"r{number}") as session:
            double = session.tool(effects=effects, name="double")(lambda value: 2 * value)
            try:
                alarm(random.uniform(0.0001, 0.002))
                for value in range(20):
                    double(value)
                alarm(0)
            except SoftTimeLimit:
                hits += 1
            alarm(0)
            assert double(100) == 200
            session.message("assistant", "I gave up")
            assert double(200) == 400
        assert record.state(f"r{number}").life.status is RunStatus.COMPLETED
    assert hits > TRIES / 2


@pytest.mark.slow
def test_a_call_that_was_cut_before_its_effect_is_not_in_doubt(record, alarm, monkeypatch):
    """A signal handler raises while the intent is on its way: the call never began, and says so."""
    done: list[int] = []
    log_type: Any = type(record.workspace.log)
    append = log_type.append_here

    def slowly(log: Any, commit: Any) -> Any:
        if any(event.type.startswith("step.requested") for event in commit.commit.events):
            alarm(0.05)
            signal.pause()
        return append(log, commit)

    monkeypatch.setattr(type(record.workspace.log), "append_here", slowly)
    with record.run("limits", run="r") as session:

        @session.tool
        def pay(amount: int) -> int:
            done.append(amount)
            return amount

        with pytest.raises(SoftTimeLimit):
            pay(1)
        monkeypatch.undo()
        assert pay(2) == 2
        steps = session.state.steps
        assert [(step.status.value, step.safe) for step in steps.values()] == [
            ("failed", True),
            ("completed", False),
        ]
    assert done == [2]
