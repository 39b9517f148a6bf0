"""Recorded text is shown, never obeyed: every look at a run of hostile values."""

import json
import time
import unicodedata
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

import hansard
from hansard.domain.events import Recorded
from hansard.domain.ids import AgentStream
from tests.cli.planting import commit, plant
from tests.cli.support import WORKSPACE, Call
from tests.conftest import THOROUGH

pytestmark = pytest.mark.slow

ESCAPES = "\x1b[31mred\x1b]0;title\x07\r\x08\x9b2J\u202eabc\u2028\u2066\x00"
MARKUP = "[bold]not bold[/bold] [link=x]y[/] :smile: {braces} %s"
HUGE = 10_000_000 if THOROUGH else 3_000_000
"""Characters of the largest value."""

DEEP = 90
"""Nesting of a deep value; a client may record 100."""

DEEPER = 700
"""Nesting of one that no client of ours recorded."""

LOOKS = (
    ("run", "show"),
    ("run", "trace"),
    ("run", "context"),
    ("run", "state"),
    ("run", "state", "--diff", "life@1", "now"),
    ("conversation", "show"),
)
SECONDS_MAX = 20.0
"""Timeout for one look at all of it on a busy machine; it usually takes about 1 s."""


@pytest.fixture(scope="module")
def hostile(record: hansard.Record) -> str:
    """Record a run whose texts are escapes, markup, huge and deep."""
    deep: object = "end"
    for _ in range(DEEP):
        deep = [deep]
    with record.run(
        f"flow {MARKUP}", agent="a", role="r", conversation="hostile", labels={"k": MARKUP}
    ) as session:

        @session.tool(effects="pure")
        def echo(value: object) -> object:
            return value

        for value in (ESCAPES, MARKUP, deep, {ESCAPES: {MARKUP: [ESCAPES]}}):
            echo(value)
            session.message("user", value)
        echo("y" * HUGE)
        session.message("assistant", "z" * HUGE)
        session.message(
            "assistant", None, fields={"tool_calls": [{"function": {"name": ESCAPES}}, 7, ESCAPES]}
        )
        session.checkpoint("checked", value=ESCAPES)
        session.decide(ESCAPES, selected=MARKUP, alternatives=[MARKUP], reason=ESCAPES)
        return session.run


@pytest.fixture(scope="module")
def deeper(record: hansard.Record, home: Path) -> str:
    """Return a run with a value that another writer nested deeper."""
    with record.run("deeper", run="deeper", agent="a", role="r") as session:
        session.message("user", "beside it")
    nested = b"[" * DEEPER + b"]" * DEEPER
    message = b'{"role":"user","content":%s,"fingerprint":"f"}' % nested
    call = (
        b'{"step":1,"tool":"t","effects":"pure","arguments":{"x":%s},"call":"c","fingerprint":"g"}'
    )
    payloads = {"message.added.v1": message, "step.requested.v1": call % nested}
    events = [Recorded(tag, str(uuid4()), msgspec.Raw(data)) for tag, data in payloads.items()]
    plant(home, WORKSPACE, (AgentStream("deeper", "r", "a"), commit(4, *events)))
    return "deeper"


@pytest.fixture(params=LOOKS, ids=lambda look: " ".join(look[:3]))
def look(request: pytest.FixtureRequest, hostile: str) -> tuple[str, ...]:
    """Return a command line that looks at the run."""
    group, command, *more = request.param
    return (group, command, "hostile" if group == "conversation" else hostile, *more)


def test_people_see_no_control_character(call: Call, look: tuple[str, ...]):
    """No output moves a cursor, changes colour or direction, reads markup or is unbounded."""
    began = time.monotonic()
    result = call(*look)
    assert result.code == 0, result.err
    assert time.monotonic() - began < SECONDS_MAX
    kinds = {unicodedata.category(char) for char in result.out + result.err if char != "\n"}
    assert not kinds & {"Cc", "Cf", "Zl", "Zp", "Cs"}
    assert "\\x1b" in result.out or "\\u001b" in result.out
    assert "[bold]not bold" in result.out
    assert len(result.out) < 100_000


@pytest.mark.slow(cases=2)
def test_every_line_for_programs_parses(call: Call, look: tuple[str, ...]):
    """With --json each line is one object, with hostile values unchanged."""
    result = call(*look, "--json")
    assert result.code == 0, result.err
    lines = [json.loads(line) for line in result.out.split("\n")[:-1]]
    assert lines
    assert all(isinstance(line, dict) for line in lines)
    assert len(lines) == len(result.out.splitlines())
    assert not {unicodedata.category(char) for char in result.out if char != "\n"} & {
        "Cc",
        "Zl",
        "Zp",
    }


def test_programs_get_a_huge_value_whole(call: Call, hostile: str):
    """A message or result of millions of characters is complete if it is requested."""
    messages = [line["message"] for line in call("run", "context", hostile, "--json").lines[1:]]
    assert {"role": "user", "content": ESCAPES} in messages
    assert max(len(str(message["content"])) for message in messages) == HUGE
    steps = call("run", "trace", hostile, "--full", "--json").lines
    assert steps[0]["result"] == ESCAPES
    assert len(steps[-1]["result"]) == HUGE


@pytest.mark.thorough(quick="test_a_value_deeper_than_any_of_ours_stops_nothing")
def test_a_deep_value_is_whole(call: Call, hostile: str):
    """Programs get a deep value to its end; `--full` for people ends without an error, too."""
    steps = call("run", "trace", hostile, "--full", "--json").lines
    value = steps[2]["result"]
    for _ in range(DEEP):
        (value,) = value
    assert value == "end"
    assert call("run", "trace", hostile, "--full").code == 0


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("look", LOOKS[:-1], ids=lambda look: " ".join(look[:3]))
@pytest.mark.parametrize("more", [(), ("--json",)], ids=["people", "programs"])
def test_a_value_deeper_than_any_of_ours_stops_nothing(call, deeper, look, more):
    """The values beside it are shown, and each line parses."""
    group, command, *rest = look
    result = call(group, command, deeper, *rest, *more)
    assert result.code == 0, result.err
    assert "Traceback" not in result.err
    if more:
        assert result.lines
    else:
        assert ("a#1" if command in {"show", "trace"} else "beside it") in result.out
