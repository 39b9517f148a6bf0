"""`hansard predict`: what a kill now would cost, and the interval that `run show` and SQL state."""

import math
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.cli.support import Call, environment
from tests.faults._warm import run

pytestmark = pytest.mark.later


def test_the_cost_of_a_kill(call: Call, record: hansard.Record):
    """Open calls, calls that are kept with what they used, and two bounds of the repeated work; an
    agent that left costs nothing.
    """
    with record.run("predicted", agent="ada", role="r") as session:

        @session.tool(effects="pure", kind="model")
        def think(n: int) -> int:
            session.usage(input_tokens=100, cost=0.25)
            return n

        @session.tool(effects="once")
        def send(n: int) -> int:
            if n == 3:
                shown = call("predict", session.run)
                assert shown.code == 0, shown.err
                assert "of loop 'items'" in shown.out
                assert "5 calls  input_tokens 300, cost $0.75" in shown.out
                assert "stops at it until it is settled" in shown.out
                answers.extend(call("predict", session.run, "--json").lines)
            return n

        answers: list[dict[str, Any]] = []
        loop = session.resumable(range(1, 6), every="auto")
        for n in loop:
            send(think(n))
        [cost] = answers
        assert (cost["agent"], cost["loop"]) == ("ada", "items")
        assert cost["done"] in (1, 2)  # the second item may take longer than the interval
        assert (cost["answered"], cost["usage"]) == (5, {"input_tokens": 300.0, "cost": 0.75})
        [opened] = cost["open_calls"]
        assert (opened["step"], opened["tool"], opened["status"]) == ("ada#6", "send", "requested")
        least, most = cost["repeated_s"]
        assert 0 <= least <= most < math.inf
        assert cost["open_s"]["ada#6"] >= 0
    assert call("predict", session.run).out == "no agent is at work: a kill costs nothing\n"


KILLED = """
import os, signal
import hansard

with hansard.Session("resumed", run="resumed", agent="ada", role="r") as session:

    @session.tool(effects="idempotent")
    def stop() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    think = session.tool(effects="pure", name="think")(lambda: session.usage(input_tokens=100))
    for n in session.resumable(range(4)):
        think()
        if n == 2:
            stop()
"""


def test_a_resumed_agent_goes_on_after_its_earlier_checkpoint(
    call: Call, record: hansard.Record, home: Path
):
    """The checkpoint and the calls of an earlier session count; a call that it left open, which may
    not run again yet, hides none of the time since in the upper bound.
    """
    killed = run(["-c", KILLED], cwd=home, env=environment(home), timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    first, second = (call("predict", "resumed", "--json").lines for _ in range(2))
    assert first == second  # nothing is at work: its cost does not grow
    assert first[0]["gone"]
    assert "none: as of the last event" in call("predict", "resumed").out
    with record.run("resumed", run="resumed", agent="ada", role="r"):
        time.sleep(0.2)
        [cost] = call("predict", "resumed", "--json").lines
        assert not cost["gone"]
    assert (cost["loop"], cost["done"]) == ("items", 2)
    assert (cost["answered"], cost["usage"]) == (3, {"input_tokens": 300.0})
    assert [each["tool"] for each in cost["open_calls"]] == ["stop"]
    least, most = cost["repeated_s"]
    assert least == 0
    assert most >= 0.2


def test_the_choice_of_an_interval_is_shown(call: Call, record: hansard.Record):
    """`run show` states it in words."""
    with record.run("shown", agent="ada", role="r") as session:
        assert len(list(session.resumable(range(5), every="auto"))) == 5
        session.checkpoint("mine", auto=True)
    out = call("run", "show", session.run).out
    assert "a checkpoint takes" in out
    assert "0 failures in 0 sessions: assumed" in out


@pytest.mark.thorough(quick="test_the_choice_of_an_interval_is_shown")
def test_the_choice_of_an_interval_in_sql(call: Call, record: hansard.Record):
    """SQL has it as JSON; a checkpoint of the program's own has none, whatever its data."""
    with record.run("queried", agent="ada", role="r") as session:
        assert len(list(session.resumable(range(5), every="auto"))) == 5
        session.checkpoint("mine", auto=True)
    query = (
        "SELECT name, choice->>'source' AS source, CAST(choice->>'mtbf_s' AS DOUBLE) >= 60 AS m "
        f"FROM checkpoints WHERE run = '{session.run}' ORDER BY position DESC LIMIT 2"
    )
    rows = call("sql", query, "--json").lines
    assert [row for row in rows if "name" in row] == [
        {"name": "mine", "source": None, "m": None},
        {"name": "progress:items", "source": "assumed", "m": True},
    ]
