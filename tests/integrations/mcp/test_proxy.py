"""Responses through the proxy, and the resulting record."""

import asyncio
import json
import os
import signal
import sys
import time

import pytest

from hansard.ext.mcp.frames import Notification
from hansard.ext.mcp.upstream import Upstream
from tests.cli.support import Call
from tests.integrations.mcp.support import (
    SERVER,
    TOGETHER,
    WAIT_S,
    Commands,
    Setup,
    ask,
    everything,
    text,
    wire,
)

pytestmark = pytest.mark.later

WHERE = """
import json, os
params = {"group": os.getpgid(0), "session": os.getsid(0)}
print(json.dumps({"jsonrpc": "2.0", "method": "where", "params": params}), flush=True)
input()
"""


async def test_a_server_gets_no_interrupt_of_the_proxy_and_is_in_its_session():
    """The server runs in its own process group, in the proxy's session."""
    server = await Upstream.started([sys.executable, "-c", WHERE])
    try:
        async with asyncio.timeout(WAIT_S):
            frame = await server.next()
    finally:
        await server.close()
    assert isinstance(frame, Notification)
    assert frame.params["session"] == os.getsid(0)
    assert frame.params["group"] != os.getpgid(0)


@pytest.mark.slow
@pytest.mark.parametrize("era", ["legacy", pytest.param("2026-07-28", marks=pytest.mark.thorough)])
async def test_a_client_gets_what_it_gets_without_and_again_without_the_server(setup, command, era):
    """Each request is answered alike directly, recorded, offline and resumed, effects once."""
    direct = await ask(setup, setup.server, era, everything)
    effects = setup.effects()
    setup.sent.unlink()
    assert effects == ["ada: hello", "ada: hello", "trash: a note", "slow: 0.0"]
    recorded = await ask(setup, setup.proxy(), era, everything)
    assert recorded == direct
    assert setup.effects() == effects
    offline = setup.proxy("--run", "last", "--mode", "offline", server=False)
    assert await ask(setup, offline, era, everything) == direct
    resumed = await ask(setup, setup.proxy("--run", "last"), era, everything)
    assert resumed == direct
    assert setup.effects() == effects
    (run,) = (await command("runs", "--json")).lines
    assert run["workflow"] == "mcp"
    assert run["labels"] == {"mcp_server": "python"} | run["labels"]
    steps = (await command("run", "trace", "last", "--json")).lines
    tools = [step["tool"] for step in steps if "tool" in step]
    assert tools.count("send") == 2
    assert tools.count("add") == 1 + TOGETHER
    assert "mcp:resources/read" in tools
    if era == "legacy":  # the server sent a question; in 2026 its question is a result
        (elicitation,) = [step for step in steps if step["tool"] == "mcp:elicitation/create"]
        assert elicitation["arguments"]["message"] == "Delete it?"
        assert elicitation["result"] == {"action": "accept", "content": {"sure": True}}


@pytest.mark.slow
async def test_what_is_on_record_is_what_was_on_the_wire(setup: Setup, command: Commands):
    """Recorded arguments and results equal those on the wire."""
    async with wire(setup, setup.proxy()) as client:
        greeting = await client.greet()
        arguments = {"to": "ada\u2603", "text": "1.0 \u0001 \\ $secret"}
        sent = await client.call("send", **arguments)
        assert await client.leave() == 0
    steps = {each["tool"]: each for each in (await command("run", "trace", "last", "--json")).lines}
    assert steps["send"]["arguments"] == arguments
    assert steps["send"]["result"] == sent
    assert steps["mcp:initialize"]["result"] == greeting["result"]


@pytest.mark.slow
async def test_a_call_cut_by_a_kill_is_in_doubt_and_never_silently_again(setup, command):
    """A call cut by a kill is in doubt until somebody settles it."""
    async with wire(setup, setup.proxy()) as client:
        await client.greet()
        await client.begin("tools/call", name="slow", arguments={"seconds": 20})
        await setup.has_effects()
        client.process.send_signal(signal.SIGKILL)
        await client.process.wait()
    async with wire(setup, setup.proxy("--run", "last")) as client:
        await client.greet()
        result = await client.call("slow", seconds=20)
        assert result["isError"] is True
        assert "whether its effect happened is not known" in text(result)
        assert await client.leave() == 0
    assert setup.effects() == ["slow: 20.0"]
    happened = json.dumps({"content": [{"type": "text", "text": "done"}]})
    step = next(
        s for s in (await command("run", "trace", "last", "--json")).lines if s["tool"] == "slow"
    )
    assert (await command("run", "settle", "last", step["step"], "--happened", happened)).code == 0
    async with wire(setup, setup.proxy("--run", "last")) as client:
        await client.greet()
        assert text(await client.call("slow", seconds=20)) == "done"
    assert setup.effects() == ["slow: 20.0"]


@pytest.mark.slow
async def test_rules_say_what_is_refused_and_what_tools_do(setup, command, tmp_path):
    """A call that a rule denies never reaches the server; a secret is not on record."""
    rules = tmp_path / "rules.toml"
    rules.write_text('[gate]\ndeny = ["se*"]\n[effects]\nadd = "once"\n[redact]\nkey = "MCP_KEY"\n')
    started = ["env", "MCP_KEY=s3cr3t-value", *setup.proxy("--rules", rules)]
    async with wire(setup, started) as client:
        await client.greet()
        listed = (await client.ask("tools/list"))["result"]["tools"]
        assert {"add", "fail"} <= {each["name"] for each in listed}
        assert not [each["name"] for each in listed if each["name"].startswith("se")]
        result = await client.call("send", to="ada", text="hello")
        assert result["isError"] is True
        assert "rule" in text(result)
        assert "send" in text(result)
        assert text(await client.call("fail", why="s3cr3t-value")) != ""
        assert text(await client.call("add", a=1, b=1)) == "2"
        assert await client.leave() == 0
    assert setup.effects() == []
    shown = (await command("run", "show", "last", "--json")).out + (
        await command("run", "trace", "last", "--json")
    ).out
    assert "s3cr3t-value" not in shown
    steps = {each["tool"]: each for each in (await command("run", "trace", "last", "--json")).lines}
    assert steps["add"]["effects"] == "once"
    assert steps["send"]["status"] == "blocked"


@pytest.mark.slow
async def test_a_server_that_dies_leaves_its_call_in_doubt(setup: Setup, command: Commands):
    """The client gets an error, the proxy ends like the server, and the effect is in doubt."""
    async with wire(setup, setup.proxy()) as client:
        await client.greet()
        result = await client.call("die")
        assert result["isError"] is True
        assert "exit code 3" in text(result)
        assert await client.process.wait() == 0
    steps = {each["tool"]: each for each in (await command("run", "trace", "last", "--json")).lines}
    assert steps["die"]["status"] == "in_doubt"
    assert setup.effects() == ["nobody: the end"]


@pytest.mark.slow
async def test_what_a_client_calls_off_is_passed_on(setup: Setup, command: Commands):
    """A cancelled call has no answer; its effect is in doubt, and the session goes on."""
    async with wire(setup, setup.proxy()) as client:
        await client.greet()
        number = await client.begin("tools/call", name="slow", arguments={"seconds": 30})
        await setup.has_effects()
        cancelled = {"requestId": number, "reason": "no longer wanted"}
        notification = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled}
        await client.say(json.dumps(notification).encode())
        assert text(await client.call("add", a=2, b=2)) == "4"
        await asyncio.sleep(2.5)
        assert await client.leave() == 0
    steps = {each["tool"]: each for each in (await command("run", "trace", "last", "--json")).lines}
    assert steps["slow"]["status"] == "in_doubt"
    assert steps["add"]["status"] == "completed"


BAD: dict[bytes, str] = {
    b"hello": "no JSON",
    b"[]": "a batch",
    b"7": "no object",
    b'{"jsonrpc":"1.0","id":1,"method":"ping"}': "not '2.0'",
    b'{"jsonrpc":"2.0","id":true,"method":"ping"}': "neither a string nor an integer",
    b'{"jsonrpc":"2.0","id":1,"method":7}': "no text",
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}': "no object",
    b'{"jsonrpc":"2.0","id":1}': "neither a request nor an answer",
    b"\xff\xfe": "no JSON",
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}': "tool name",
    b"[" * 100_000: "nested too deeply",
}


@pytest.mark.slow
async def test_bad_lines_are_answered_and_the_next_call_works(setup: Setup):
    """A bad line is answered with the fault and the remedy, and does not reach the server."""
    async with wire(setup, setup.proxy()) as client:
        await client.greet()
        for line, fact in BAD.items():
            await client.say(line)
            error = (await client.hear())["error"]
            assert fact in error["message"], line[:80]
        await client.say(b"x" * (64 * 1024 * 1024 + 5))
        assert "more than 67,108,864 bytes" in (await client.hear())["error"]["message"]
        for named in ("[1]", "{}", "true", "null"):  # which nobody answers, and which say nothing
            params = f'{{"requestId":{named}}}'
            error = f'{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}'
            await client.say(error.encode())
        assert text(await client.call("add", a=1, b=1)) == "2"
        assert len(text(await client.call("big", characters=3_000_000))) == 3_000_000
        assert await client.leave() == 0


HOSTILE = {
    "no JSON": ("no answer within 2 s", "in_doubt"),
    "another id": ("no answer within 2 s", "in_doubt"),
    "result and error": ("neither a request nor an answer", "in_doubt"),
    "nested deeply": ("nested too deeply", "in_doubt"),
    "without end": ("no answer within 2 s", "in_doubt"),
    "no line's end": ("no answer within 2 s", "in_doubt"),
    "huge": ("more than 67,108,864 bytes", "in_doubt"),
    "against the schema": ("", "completed"),
    "twice": ("done", "completed"),
}
"""A server's behaviour, with the client's text and the call's status on record."""


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_server_is_reported_to_who_asks(setup: Setup, command: Commands, kind: str):
    """A hostile server causes a clear error and an exact record; the next call works."""
    message, status = HOSTILE[kind]
    server = [sys.executable, str(SERVER.with_name("hostile.py")), kind]
    timeout_s = 10 if kind == "huge" else 2
    proxy = [*setup.proxy("--timeout", timeout_s, server=False), "--", *server]
    async with wire(setup, proxy) as client:
        await client.greet()
        async with asyncio.timeout(WAIT_S):
            result = (await client.ask("tools/call", name="send", arguments={}))["result"]
            if kind == "against the schema":
                assert result["content"] == 7
            else:
                assert message in text(result)
            if kind not in ("without end", "no line's end"):
                assert text(await client.call("sound")) in ("sound", "another")
        client.process.kill()
    steps = {each["tool"]: each for each in (await command("run", "trace", "last", "--json")).lines}
    assert steps["send"]["status"] == status


CLIPPED = r'{"content":[{"type":"text","text":"whale \ud83d"}],"\udc0b":1,"big":1E400,"e":-1e-400}'
CLIPPED_ERROR = r'{"content":[{"type":"text","text":"whale \ud83d"}],"isError":true}'


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("result", "delivered", "recorded"),
    [
        (CLIPPED, CLIPPED, [r"whale \ud83d", "1E+400"]),
        (CLIPPED_ERROR, CLIPPED_ERROR, [r"whale \ud83d"]),
        (r'{"x":NaN,"y":[Infinity]}', r'{"x":null,"y":[null]}', ["nan", "inf"]),
    ],
    ids=["clipped", "clipped error", "NaN"],
)
async def test_values_outside_strict_json_pass_and_are_recorded(
    setup: Setup, command: Commands, result: str, delivered: str, recorded: list[str]
):
    """Values outside strict JSON pass, are recorded, and replay equally; NaN becomes null."""
    hostile = [sys.executable, str(SERVER.with_name("hostile.py")), "raw", result]
    arguments = r'{"text":"cut \ud83d","x":1E400}'
    line = r'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"send","arguments":%s}}'
    started = time.monotonic()
    async with wire(setup, [*setup.proxy(server=False), "--", *hostile]) as client:
        await client.greet()
        await client.say((line % arguments).encode())
        answer = await client.line()
        assert delivered.encode() in answer
        assert await client.leave() == 0
    assert time.monotonic() - started < WAIT_S
    offline = setup.proxy("--run", "last", "--mode", "offline", server=False)
    async with wire(setup, offline) as client:
        await client.greet()
        await client.say((line % arguments).encode())
        assert json.loads(await client.line()) == json.loads(answer)
        assert await client.leave() == 0
    trace = await command("run", "trace", "last", "--json")
    (sent,) = [each for each in trace.lines if each["tool"] == "send"]
    assert sent["status"] == ("failed" if result == CLIPPED_ERROR else "completed")
    shown = json.dumps(sent, ensure_ascii=False)
    assert [each for each in recorded if each.replace("\\", "\\\\") not in shown] == []


@pytest.mark.slow
async def test_a_resource_that_was_read_is_an_accessed_resource(setup: Setup, command: Commands):
    """A resource read is an accessed resource in table and snapshot, once."""
    uri = "note://whales"
    for options in ((), ("--run", "last"), ("--run", "last", "--mode", "offline")):
        async with wire(setup, setup.proxy(*options, server="offline" not in options)) as client:
            await client.greet()
            read = await client.ask("resources/read", uri=uri)
            assert read["result"]["contents"][0]["uri"] == uri
            assert "error" in await client.ask("resources/read", uri="none://such")
            assert text(await client.call("send", to="ada", text="x")) == "sent to ada"
            assert await client.leave() == 0
    result = await command("sql", "SELECT uri, operation FROM resources", "--json")
    assert [(each["uri"], each["operation"]) for each in result.lines] == [(uri, "read")]
    assert setup.effects() == ["ada: x"]


@pytest.mark.slow
async def test_a_recorded_error_of_the_last_call_is_replayed(setup: Setup):
    """A recorded error is replayed, and neither kind needs to be settled."""
    for failing in ({"name": "fail", "arguments": {"why": "no reason"}}, {"name": "no such tool"}):
        async with wire(setup, setup.proxy()) as client:
            await client.greet()
            failed = await client.ask("tools/call", **failing)
            assert "error" in failed or failed["result"]["isError"]
            assert await client.leave() == 0
        async with wire(setup, setup.proxy("--run", "last")) as client:
            await client.greet()
            assert await client.ask("tools/call", **failing) == failed
            assert text(await client.call("send", to="ada", text="x")) == "sent to ada"
            assert await client.leave() == 0
            assert client.process.stderr is not None
            summary = (await client.process.stderr.read()).decode()
            assert "3 steps: 2 answered from the record" in summary


@pytest.mark.slow
async def test_an_unreadable_request_is_answered_under_its_id(setup: Setup):
    """NaN, a cut line and invalid UTF-8 are refused at once and not passed on."""
    named = b'{"params":{"name":"send","arguments":{"id":3,"x":%s}},"method":"tools/call","id":"q"'
    async with wire(setup, setup.proxy()) as client:
        await client.greet()
        for line in (named % b"NaN" + b"}", named % b'"\xff"' + b"}", named % b"1" + b",}"):
            await client.say(line)
            answer = await client.hear()
            assert (answer["id"], answer["error"]["code"]) == ("q", -32700), answer
        await client.say(named % (b'"' + b"x" * (64 * 1024 * 1024) + b'"') + b"}")
        answer = await client.hear()
        assert (answer["id"], answer["error"]["code"]) == ("q", -32600), answer
        assert text(await client.call("add", a=1, b=1)) == "2"
        assert await client.leave() == 0
    assert setup.effects() == []


@pytest.mark.slow
async def test_two_requests_of_one_id_are_distinguished(setup: Setup):
    """A second request with an open id is refused."""
    async with wire(setup, setup.proxy()) as client:
        await client.greet()
        call = {"name": "slow", "arguments": {"seconds": 1}}
        request = {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": call}
        line = json.dumps(request).encode()
        await client.say(line)
        await client.say(line)
        refused = await client.hear()
        assert "still open" in refused["error"]["message"]
        assert text((await client.hear())["result"]) == "done"
    assert setup.effects() == ["slow: 1.0"]


@pytest.mark.slow
async def test_a_replay_says_what_it_cannot_answer(setup: Setup):
    """A replay refuses unrecorded calls and requests that are never recorded."""
    async with wire(setup, setup.proxy()) as client:
        await client.greet()
        assert text(await client.call("add", a=1, b=1)) == "2"
        assert await client.leave() == 0
    offline = setup.proxy("--run", "last", "--mode", "strict", server=False)
    async with wire(setup, offline) as client:
        await client.greet()
        assert text(await client.call("add", a=1, b=1)) == "2"
        result = await client.call("add", a=1, b=2)
        assert result["isError"] is True
        assert "not on record" in text(result)
        assert (await client.ask("ping"))["result"] == {}
        unknown = await client.ask("tasks/list")
        assert "not recorded" in unknown["error"]["message"]
    assert SERVER.exists()


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        (["--mode", "offline"], "--run last"),
        (["--run", "last", "--mode", "live"], "leave one out"),
        (["--run", "last"], "no last one"),
        (["--rules", "nowhere.toml"], "cannot be read"),
    ],
)
def test_options_that_contradict_each_other(setup, call, options, fact):
    """Contradictory options are refused before anything is started."""
    result = call("mcp", "proxy", *options, "--", *setup.server)
    assert result.code == 2
    assert fact in result.err


def test_a_server_that_cannot_be_started(call: Call):
    """A server that cannot be started is reported, and no run begins."""
    result = call("mcp", "proxy", "--", "no-such-server")
    assert result.code == 2
    assert "no-such-server" in result.err
    assert "none was given" in call("mcp", "proxy").err
    assert call("runs", "--json").lines == []
