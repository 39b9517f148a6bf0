"""Several servers behind one proxy are one server to its client."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hansard.ext.mcp import frames
from hansard.ext.mcp.upstream import McpMultiplexer, Upstream
from tests.cli.support import Call
from tests.faults._warm import python
from tests.integrations.mcp.support import SERVER, Setup, text, wire

pytestmark = pytest.mark.later

if TYPE_CHECKING:  # see the support's
    from mcp import Client


def servers(setup: Setup, url: str | None = None) -> Path:
    """Write a file of two servers: one command, and a URL or another command."""
    file = setup.sent.with_name("servers.json")
    other = {"command": python(), "args": [str(SERVER), f"{setup.sent}.two"]}
    two: dict[str, Any] = other if url is None else {"type": "http", "url": url}
    command = {"command": "${PYTHON}", "args": [str(SERVER), str(setup.sent)], "env": {"X": "1"}}
    file.write_text(json.dumps({"mcpServers": {"one": command, "two": two}}))
    return file


def door(setup: Setup, url: str | None = None) -> list[str]:
    """Return the command of the proxy in front of both."""
    return setup.proxy("--servers", servers(setup, url), server=False)


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON", python())


async def both(client: Client) -> list[Any]:
    """Return the lists of both servers and the results of their calls."""
    tools = await client.list_tools()
    results: list[Any] = [
        tools,
        await client.list_prompts(),
        await client.list_resource_templates(),
        await client.call_tool("one__add", {"a": 1, "b": 2}),
        await client.call_tool("two__send", {"to": "ada", "text": "x"}),
        await client.call_tool("one__delete", {"item": "a note"}),
        await client.call_tool("two__delete", {"item": "another"}),
        await client.get_prompt("two__review", {"title": "Moby-Dick"}),
        await client.read_resource("note://whales"),
        await client.call_tool("three__add", {"a": 1, "b": 2}),
    ]
    names = {each.name for each in tools.tools}
    assert names >= {"one__add", "two__add", "one__die", "two__die"}
    return [json.loads(each.model_dump_json()) for each in results]


@pytest.mark.thorough(
    quick="integrations/mcp/test_proxy.py::test_a_server_that_dies_leaves_its_call_in_doubt"
)
async def test_one_that_ends_leaves_the_other(setup: Setup):
    """An ended server's call is in doubt, and later ones are refused; the other server goes on."""
    async with wire(setup, door(setup)) as client:
        await client.greet()
        assert "has ended" in text(await client.call("one__die"))
        assert "has ended" in text(await client.call("one__add", a=1, b=1))
        assert text(await client.call("two__add", a=1, b=1)) == "2"
        listed = (await client.ask("tools/list"))["result"]["tools"]
        assert {each["name"].partition("__")[0] for each in listed} == {"two"}
        assert await client.leave() == 0


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ("{", "is no such file"),
        ("[]", "is no such file"),
        ("{}", "names no server"),
        ('{"mcpServers": {"a__b": {"command": "x"}}}', "cannot be the prefix"),
        ('{"mcpServers": {"a": {}}}', "needs either command or url"),
        ('{"mcpServers": {"a": {"command": "x", "url": "y"}}}', "needs either command or url"),
        ('{"mcpServers": {"a": {"command": "${NO_SUCH}"}}}', "${NO_SUCH} is not set"),
        ('{"servers": {"a": {"command": 7}}}', "is no such file"),
        ('{"servers": {"a": {"command": "/no/such"}}}', "cannot be run"),
        ('{"servers": {"a": {"url": "nowhere"}}}', "give http://HOST:PORT/PATH"),
    ],
)
def test_a_file_of_servers_that_is_none(call: Call, tmp_path: Path, content: str, fact: str):
    """An invalid file of servers is refused before anything is recorded."""
    file = tmp_path / "servers.json"
    file.write_text(content)
    ran = call("mcp", "proxy", "--servers", file)
    assert ran.code == 2
    assert fact in ran.err
    assert call("runs", "--json").lines == []


@pytest.mark.slow
def test_a_server_among_many_that_cannot_be_started_ends_the_others(setup: Setup, call: Call):
    """If one server cannot start, all are stopped and no run begins."""
    file = servers(setup)
    document = json.loads(file.read_text())
    document["mcpServers"]["two"] = {"command": "/no/such"}
    file.write_text(json.dumps(document))
    ran = call("mcp", "proxy", "--servers", file)
    assert "'/no/such' cannot be run" in ran.err
    assert "give one of them" in call("mcp", "proxy", "--servers", file, "--url", "x").err
    assert call("runs", "--json").lines == []


REPEATING = """
import json, sys

before = None
for line in sys.stdin:
    asked = json.loads(line)
    page = int(asked["params"].get("cursor", "1"))
    result = {"tools": [{"name": f"tool{page}", "inputSchema": {}}]}
    if page < 3:
        result["nextCursor"] = str(page + 1)
    answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result})
    for each in [before, answer] if before else [answer]:
        print(each, flush=True)
    before = answer
"""


async def test_an_answer_counts_for_its_own_page():
    """A repeated page answer is neither used twice nor skipped."""
    server = await Upstream.started([sys.executable, "-c", REPEATING])
    several = McpMultiplexer({"one": server})
    try:
        async with asyncio.timeout(30):
            answer = await several.ask(frames.request(7, "tools/list", {}))
    finally:
        await several.close()
    assert answer.id == 7
    names = [each["name"] for each in answer.result["tools"]]
    assert names == ["one__tool1", "one__tool2", "one__tool3"]
