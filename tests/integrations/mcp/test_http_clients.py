"""HTTP clients of the proxy get the server's answers, which are on record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import Call
from tests.integrations.mcp.http_tee import teed
from tests.integrations.mcp.support import NO_TLS, SCENARIO_S, WAIT_S, Setup, ask, served, text, yes
from tests.integrations.mcp.test_http import listening

pytestmark = pytest.mark.later

if TYPE_CHECKING:  # see the support's
    import httpx2
    from mcp import Client

CALLS = 20
TOKEN = "a token of thirty-two characters"


def port(
    setup: Setup, *options: object
) -> AbstractAsyncContextManager[tuple[str, asyncio.subprocess.Process]]:
    """Run the proxy at a free port."""
    return served(setup, setup.proxy("--http", 0, *options, server=False))


async def asks(url: str, mode: str, do: Callable[[Client], Awaitable[Any]], token: str = "") -> Any:
    """Do something as the SDK's client of an address."""
    import httpx2  # noqa: PLC0415 -- it is an extra that may be missing
    from mcp import Client  # noqa: PLC0415 -- it is an extra that may be missing
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 -- it is an extra that may be missing

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        asyncio.timeout(SCENARIO_S),
        httpx2.AsyncClient(headers=headers, timeout=WAIT_S, verify=NO_TLS) as http,
        Client(
            streamable_http_client(url, http_client=http), mode=mode, elicitation_callback=yes
        ) as client,
    ):
        return await do(client)


async def posted(url: str, body: bytes, **headers: str) -> httpx2.Response:
    """Post a body and return the response."""
    import httpx2  # noqa: PLC0415 -- it is an extra that may be missing

    accepts = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    async with httpx2.AsyncClient(timeout=WAIT_S, verify=NO_TLS) as http:
        return await http.post(url, content=body, headers=accepts | headers)


def called(tool: str, **arguments: object) -> bytes:
    """Return a call as 2026-07-28 has it."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(frame).encode()


def headed(tool: str) -> dict[str, str]:
    """Return the headers of a call."""
    return {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool}


@pytest.mark.thorough(quick="integrations/mcp/test_wire.py::test_the_record_is_the_wire_over_http")
async def test_calls_sent_at_once_may_arrive_in_another_order_than_on_record(setup: Setup):
    """A replay answers concurrent calls in any order; one without its predecessors fails."""

    async def add(front: str, number: int) -> str:
        answer = await posted(front, called("add", a=number, b=number), **headed("add"))
        return answer.text

    numbers = range(6)
    async with listening(setup) as (url, _), port(setup, "--url", url) as (front, _):
        recorded = [await add(front, number) for number in numbers]
    offline = ("--run", "last", "--mode", "offline")
    async with port(setup, *offline) as (front, _):
        asking: list[asyncio.Future[str]] = []
        for number in reversed(numbers):
            asking.insert(0, asyncio.ensure_future(add(front, number)))
            await asyncio.sleep(0.05)
        again = await asyncio.gather(*asking)
    results = [[text(json.loads(line)["result"]) for line in lines] for lines in (recorded, again)]
    assert results[0] == results[1] == [str(2 * number) for number in numbers]
    async with port(setup, *offline) as (front, _):
        late = json.loads(await add(front, 3))["result"]
        assert late["isError"]
        assert "not on record" in text(late)
        assert text(json.loads(await add(front, 0))["result"]) == "0"


@pytest.mark.slow
async def test_what_is_no_request_is_refused_and_the_next_works(setup, command, tmp_path):
    """Bad frames, foreign origins and wrong tokens are refused and never reach the server."""
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    token = {"authorization": f"bearer {TOKEN}"}
    async with (
        listening(setup) as (url, _),
        port(setup, "--url", url, "--token-file", file) as (front, _),
    ):
        send = called("send", to="ada", text="x")
        refused = [
            (b"{", token, 400, "no JSON"),
            (b"[]", token, 400, "a batch"),
            (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', token, 400, "jsonrpc is '1.0'"),
            (called("no such name\n"), token | headed("x"), 400, "name"),
            (send, headed("send"), 401, "no known token"),
            (send, headed("send") | {"authorization": "Bearer other"}, 401, "no known token"),
            (send, headed("send") | token | {"origin": "https://evil.example"}, 403, "Origin"),
            (send, headed("send") | token | {"host": "evil.example:80"}, 421, "Host"),
        ]
        for body, headers, status, data in refused:
            answer = await posted(front, body, **headers)
            assert answer.status_code == status, data
            assert data in answer.json()["error"]["message"]
        huge = await posted(front, b'"' + b"x" * 2**26 + b'"', **token)
        assert huge.status_code == 413
        assert "67,108,864 bytes" in huge.json()["error"]["message"]
        assert setup.effects() == []
        answer = await posted(front, send, **token, **headed("send"))
        assert answer.status_code == 200
    assert setup.effects() == ["ada: x"]
    steps = (await command("run", "trace", "last", "--json")).lines
    (step,) = (each for each in steps if each["tool"] == "send")
    data = answer.text.partition("data: ")[2] or answer.text
    assert step["result"] == json.loads(data)["result"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--http", "0", "--", "no-such-program"), "give --url, or leave --http out"),
        (("--http", "no", "--url", "http://127.0.0.1:1/mcp"), "give [HOST:]PORT"),
        (("--http", "0.0.0.0:0", "--url", "http://127.0.0.1:1/mcp"), "other machines can connect"),
        (("--token-file", "t", "--url", "http://127.0.0.1:1/mcp"), "there is no --http"),
    ],
)
def test_where_clients_come_in_is_checked(call: Call, options: tuple[str, ...], message: str):
    """Before a run begins."""
    ran = call("mcp", "proxy", *options)
    assert ran.code == 2
    assert message in ran.err
    assert call("runs", "--json").lines == []


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["pipes", "http"])
async def test_calls_in_turn_share_a_connection_to_the_server(setup: Setup, transport: str):
    """Streams of answers are read to their end, so that their connections are used again."""

    async def calls(client: Client) -> None:
        for number in range(CALLS):
            await client.call_tool("add", {"a": number, "b": 1})

    async with listening(setup) as (url, _), teed(url) as tee:
        if transport == "pipes":
            await ask(setup, setup.proxy("--url", tee.url, server=False), "legacy", calls)
        else:
            async with port(setup, "--url", tee.url) as (front, _):
                await asks(front, "legacy", calls)
        assert tee.connections < CALLS / 2
