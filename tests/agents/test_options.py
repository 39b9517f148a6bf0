"""Unknown options and values are refused with those that exist, a doubt with its command."""

import os
import shlex
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.agents.twins import TwinRecord
from tests.faults._warm import run

pytestmark = pytest.mark.later

tool: Any = hansard.tool
"""Untyped: a type checker refuses the misspelt options at once."""

OPTIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "a tool": (lambda: tool(timeout=3)(len), "timeout_s"),
    "allow": (lambda: hansard.allow("x", wher={}), "where"),  # type: ignore[call-arg] # misspelt, as all of these are
    "deny": (lambda: hansard.deny("x", reasons=""), "reason"),  # type: ignore[call-arg] # see above
    "ask_first": (lambda: hansard.ask_first("x", timeout=3), "timeout_s"),  # type: ignore[call-arg] # see above
    "budget": (lambda: hansard.budget("x", 2, units="calls"), "unit"),  # type: ignore[call-arg] # see above
}


@pytest.mark.parametrize(("where", "call"), [(name, *case[:1]) for name, case in OPTIONS.items()])
def test_an_option_that_there_is_not_names_the_right_one(where: str, call: Callable[[], Any]):
    """An unknown option is a TypeError, as Python's own, and a Hansard error."""
    with pytest.raises(
        hansard.errors.BadOption, match=f"did you mean '{OPTIONS[where][1]}'"
    ) as refused:
        call()
    assert where in str(refused.value)
    assert isinstance(refused.value, TypeError)


def test_an_option_that_is_like_none_lists_all():
    """Nothing is guessed."""
    with pytest.raises(
        hansard.errors.BadOption, match="has no option 'qqq': It has: role, where, unless"
    ):
        hansard.allow("x", qqq=1)  # type: ignore[call-arg] # see above


async def test_a_run_is_opened_with_options_that_there_are(record: TwinRecord):
    """A misspelt option or an unknown mode opens nothing."""
    with pytest.raises(hansard.errors.BadOption, match="did you mean 'conversation'"):
        async with record.run("w", conversatoin="c"):
            pass
    with pytest.raises(hansard.BadValue, match=r"did you mean 'strict'.*live, resume"):
        async with record.run("w", mode="strcit"):
            pass
    assert await record.runs() == []


async def test_a_verdict_that_is_none_names_those_there_are(record: TwinRecord):
    """Nothing is settled."""
    async with record.run("w", run="r"):
        pass
    with pytest.raises(hansard.BadValue, match="did you mean 'did_not_happen'"):
        await record.settle("r", "ada#1", "did_not_hapen")
    with pytest.raises(hansard.BadValue, match="did you mean 'shadow'"):
        await record.fork("r", effects="shadows")


@pytest.mark.parametrize(
    ("options", "meant"),
    [
        ({"workspce": "lab"}, "workspace"),
        ({"durability": "stict"}, "strict"),
        ({"mode": "ofline"}, "offline"),
    ],
)
def test_a_setting_that_is_none_names_the_right_one(tmp_path, options, meant):
    """Before anything is started."""
    with pytest.raises(hansard.HansardError, match=f"did you mean '{meant}'"):
        hansard.connect(data_dir=tmp_path / "d", **options)


def test_a_policy_that_is_none_names_the_right_one():
    """The word that makes a story run through is easily misspelt."""
    with pytest.raises(hansard.HansardError, match="did you mean 'idempotent'"):
        tool(effects="idempotant")(len)


@pytest.mark.slow
def test_an_absent_server_is_reported_within_three_seconds():
    """A refused connection and a missing answer are reported alike, with the address."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)

        def connect(address: str) -> float:
            began = time.monotonic()
            with pytest.raises(hansard.Unreachable, match=address):
                hansard.connect("lab", nats=f"nats://{address}")
            return time.monotonic() - began

        with ThreadPoolExecutor() as threads:
            addresses = (f"127.0.0.1:{silent.getsockname()[1]}", "127.0.0.1:1")
            assert max(threads.map(connect, addresses)) < 6  # three, and a busy machine


PROGRAM = """
import sys
import hansard

with hansard.connect("my lab", data_dir=sys.argv[1]) as record:
    with record.run("mail", agent="sender", role="sender") as session:

        @session.tool
        def send_mail(to: str) -> str:
            raise TimeoutError("no answer from the mail server")

        send_mail("ada@example.org")
"""


@pytest.mark.slow
def test_a_doubt_says_what_to_type(tmp_path: Path):
    """The traceback's last lines name the doubt and contain commands that work unchanged."""
    program = ["-c", PROGRAM.replace("my lab", "my-lab"), str(tmp_path / "my data")]
    ran = run(program, cwd=tmp_path, env=os.environ, timeout=170)
    *_, error, doubt, happened, did_not = ran.stderr.strip().splitlines()
    assert error == "TimeoutError: no answer from the mail server"
    assert "sender#1 (send_mail) is now in doubt" in doubt
    assert happened.endswith("--happened RESULT")
    output = run(["-m", *shlex.split(did_not)], cwd=tmp_path, env=os.environ, timeout=170)
    assert output.returncode == 0, output.stderr
