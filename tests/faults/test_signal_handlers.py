"""An error of a signal handler, such as a soft time limit, hits the program anywhere."""

from __future__ import annotations

import contextlib
import random
import signal
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import hansard
from hansard.bus import writer
from hansard.domain.run import RunStatus

TRIES = 40

IN_A_CALLBACK = (
    "ignore:Exception ignored in. <function Weak:pytest.PytestUnraisableExceptionWarning"
)
"""Python drops an error that a signal handler raises in the callback of a weak reference."""


class SoftTimeLimit(Exception):
    """The error that the handler raises."""


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
@pytest.mark.filterwarnings(IN_A_CALLBACK)
@pytest.mark.parametrize("effects", ["pure", "once"])
def test_an_error_of_a_signal_handler_ends_no_session(
    record: hansard.Record, alarm: Any, effects: str
) -> None:
    """An error raised by a signal handler in a step is not raised again; the session goes on."""
    hits = 0
    for number in range(TRIES):
        with record.run("limits", run=f"r{number}") as session:

            @session.tool(effects=effects, name="double")
            def double(value: int) -> int:
                return 2 * value

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
def test_a_call_that_was_cut_before_its_effect_is_not_in_doubt(
    record: hansard.Record, alarm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["hold", "take"])
def test_a_handler_that_records_amid_a_commit_is_refused(
    record: hansard.Record, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A handler that uses the session amid a commit gets an error; the commit is stored."""
    with record.run("limits", run="r") as session:

        def records(*_: object) -> None:
            session.message("assistant", "in the handler")

        before = signal.signal(signal.SIGUSR1, records)
        hits: list[str] = []

        class Interrupted(writer.Held):
            """Raises the signal at one of the lines that hold the lock."""

            def __init__(self, *arguments: Any) -> None:
                super().__init__(*arguments)
                self.hit("hold")

            def __setattr__(self, name: str, value: Any) -> None:
                if name == "thread" and value:
                    self.hit("take")
                super().__setattr__(name, value)

            def hit(self, where: str) -> None:
                """Raise it, once."""
                if where == place and not hits:
                    hits.append(where)
                    signal.raise_signal(signal.SIGUSR1)

        try:
            session.message("user", "before")
            monkeypatch.setattr(writer, "Held", Interrupted)
            number = -1
            while not hits:
                number += 1
                with contextlib.suppress(RuntimeError):
                    session.message("user", f"number {number}")
            assert hits == [place]
        finally:
            signal.signal(signal.SIGUSR1, before)
        session.message("user", "after")
        texts = [msgspec.json.decode(each.content) for each in session.state.messages]
    assert "in the handler" not in texts
    [kept] = record.state("r").agents.values()
    stored = [msgspec.json.decode(each.content) for each in kept.messages]
    assert stored == texts
    assert texts[-2:] == [f"number {number}", "after"]
