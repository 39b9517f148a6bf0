"""Answers of a server over HTTP are recorded, replayed and bounded like those over pipes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.support import Call
from tests.integrations.mcp.support import WAIT_S, Commands, Setup, ask, at_socket, text, wire

pytestmark = pytest.mark.later

if TYPE_CHECKING:  # see the support's
    from mcp import Client

ERAS = ("2026-07-28", "legacy")


def listening(
    setup: Setup,
) -> contextlib.AbstractAsyncContextManager[tuple[str, asyncio.subprocess.Process]]:
    """Run the server of tools at a free port."""
    return at_socket(setup, setup.server)


@pytest.mark.slow
async def test_a_server_that_dies_in_a_call_leaves_it_in_doubt(setup: Setup, command: Commands):
    """A call during the server's death is in doubt; a later one fails as undelivered."""
    async with (
        listening(setup) as (url, _),
        wire(setup, setup.proxy("--url", url, server=False)) as client,
    ):
        await client.greet()
        died = await client.call("die")
        assert died["isError"] is True
        assert "may have been done" in text(died)
        gone = await client.call("send", to="ada", text="x")
        assert gone["isError"] is True
        assert "cannot be reached" in text(gone)
        assert await client.leave() == 0
    steps = {each["tool"]: each for each in (await command("run", "trace", "last", "--json")).lines}
    assert steps["die"]["status"] == "in_doubt"
    assert steps["send"]["status"] == "failed"


Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


EMPTY = b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
"""End of a response that announces the close; a call during a silent close would be in doubt."""


def peer(response: bytes, repeated: bytes = b"") -> Peer:
    """Return a server that greets, answers a call with some bytes, and repeats others."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ),
                0,
            )
            request = json.loads(await reader.readexactly(length) or b"{}")
            greeting = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "peer", "version": "1"},
            }
            if request.get("method") == "initialize":
                answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": greeting})
                writer.write(_response(answer.encode()))
            elif request.get("method") == "tools/call":
                writer.write(response.replace(b"ID", str(request["id"]).encode()))
                while repeated:
                    await writer.drain()
                    await asyncio.sleep(0.001)
                    writer.write(repeated)
            else:
                writer.write(b"HTTP/1.1 405 No" + EMPTY)
            await writer.drain()
        writer.close()

    return serve


def _response(body: bytes, kind: bytes = b"application/json", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (kind, size) + body


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"

ENDLESS_S = 5
"""Time-out for endless answers, in seconds; the greeting has to be answered within it."""

HOSTILE = {
    "no JSON": (peer(_response(b"{nonsense")), "no frame"),
    "401 with JSON": (
        peer(_response(b'{"error": "unauthorized"}').replace(b"200 OK", b"401 No")),
        "HTTP 401, so that it was not done",
    ),
    "huge": (peer(_response(b'{"x": "', length=10**9), b"x" * 2**20), "more than 67,108,864 bytes"),
    "another id": (peer(_response(b'{"jsonrpc":"2.0","id":"other","result":{}}')), "no answer to"),
    "cut off": (peer(_response(b'{"jsonrpc":"2.0"', length=1000)), "may have been done"),
    "HTML": (peer(_response(b"<html>", b"text/html")), "no frame"),
    "500": (peer(b"HTTP/1.1 500 No" + EMPTY), "HTTP 500"),
    "403": (peer(b"HTTP/1.1 403 No" + EMPTY), "was not done"),
    "no end": (peer(STREAM, b": still here\n\n"), f"no answer within {ENDLESS_S} s"),
    "a stream of rubbish": (peer(STREAM + b"data: [1]\n\ndata: {\n\n"), "without one"),
    "a cut answer on a stream": (
        peer(STREAM + b'data: {"jsonrpc":"2.0","id":ID,"result":{"x":}}\n\n', b": still here\n\n"),
        "no frame",
    ),
    "no HTTP": (peer(b"\x00\x01\x02\r\n\r\n"), "may have been done"),
}


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_hostile_server_is_reported_to_who_asks(setup: Setup, command: Commands, kind: str):
    """A clear error for the call, an exact record, and the proxy goes on."""
    serve, message = HOSTILE[kind]
    timeout_s = ENDLESS_S if kind == "no end" else WAIT_S
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with (
        server,
        wire(setup, setup.proxy("--url", url, "--timeout", timeout_s, server=False)) as client,
    ):
        await client.greet()
        async with asyncio.timeout(WAIT_S):
            refused = await client.call("send", to="ada", text="x")
            assert refused["isError"] is True
            assert message in text(refused)
            assert (await client.call("send", to="ben", text="y"))["isError"] is True
        assert await client.leave() == 0
    (step,) = {
        each["status"]
        for each in (await command("run", "trace", "last", "--json")).lines
        if each["tool"] == "send"
    }
    assert step == ("failed" if kind.startswith("40") else "in_doubt")


@pytest.mark.slow
async def test_a_server_of_the_former_transport_is_named(setup: Setup):
    """Nothing can be posted to the address of an HTTP+SSE server: the client reads what to give."""

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 405 No" + EMPTY)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuses, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/sse"
    async with server, wire(setup, setup.proxy("--url", url, server=False)) as client:
        refused = (await client.greet())["error"]["message"]
        assert "HTTP+SSE" in refused
        assert "streamable HTTP address" in refused
        await client.leave()


@pytest.mark.slow
@pytest.mark.parametrize(("kept_s", "connections"), [(0.1, 2), (WAIT_S, 1)])
async def test_an_idle_connection_is_left_before_the_server_closes_it(
    monkeypatch: pytest.MonkeyPatch, kept_s: float, connections: int
):
    """A call that is sent just when the server closes it would be in doubt for nothing."""
    from hansard.ext.mcp import http_server as http  # noqa: PLC0415 -- it is of an extra

    assert http.KEPT_S < 5  # what uvicorn and Node keep one for
    monkeypatch.setattr(http, "KEPT_S", kept_s)
    made: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(_response(b"{}").replace(b"Connection: close\r\n", b""))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = http.HttpServer(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", {})
    async with server, asyncio.timeout(WAIT_S):
        for _ in range(2):
            async with client.request("GET", []) as answer:
                assert await answer.aread() == b"{}"
            await asyncio.sleep(0.3)
        await client.close()
        for each in made:
            each.close()
            await each.wait_closed()
    assert len(made) == connections


@pytest.mark.slow
@pytest.mark.parametrize("of_many", [True, False])
async def test_a_cookie_goes_with_no_other_clients_request(of_many: bool):
    """A login cookie is never shared among clients; a proxy's only client keeps its own."""
    from hansard.ext.mcp import http_server as http  # noqa: PLC0415 -- it is of an extra

    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        cookies = b"\r\nSet-Cookie: sid=A; Path=/\r\nSet-Cookie: lb=1; Path=/\r\n"
        writer.write(_response(b"{}").replace(b"\r\n", cookies, 1))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    where = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    client = http.HttpServer(where, {}, of_many=of_many)
    async with server, asyncio.timeout(WAIT_S):
        for headers in ([], [], [("cookie", "mine=B")]):
            async with client.request("GET", headers) as answer:
                assert await answer.aread() == b"{}"
            passed = http.passed_on(answer.headers.multi_items())
            assert [value for name, value in passed if name == "set-cookie"] == [
                "sid=A; Path=/",
                "lb=1; Path=/",
            ]
        await client.close()
    sent = [re.findall(rb"(?mi)^cookie: (.*?)\r$", each) for each in heard]
    assert sent == [[], [] if of_many else [b"sid=A; lb=1"], [b"mine=B"]]


def test_a_servers_url_must_be_an_address(call: Call):
    """Neither a command beside it, nor what is no URL, nor a variable that is not set."""
    for options, fact in (
        (["--url", "ftp://x"], "give http://"),
        (["--url", "http://127.0.0.1:1/mcp", "--token-env", "NOT_SET_HERE"], "is not set"),
        (["--url", "http://127.0.0.1:1/mcp", "--", "true"], "give one of them"),
    ):
        result = call("mcp", "proxy", *options)
        assert result.code == 2
        assert fact in result.err


@pytest.mark.slow
async def test_arguments_go_in_headers_where_the_server_wants_them(setup: Setup):
    """Headers that a server requires are filled in from arguments, also offline."""

    async def listed(client: Client) -> Any:
        await client.list_tools()
        return text_of(await client.call_tool("near", {"place": "Nantucket \u2603"}))

    async def more(client: Client) -> Any:
        await client.list_tools()
        return text_of(await client.call_tool("near", {"place": "Hull"}))

    async with listening(setup) as (url, _):
        proxy = setup.proxy("--url", url, server=False)
        assert await ask(setup, proxy, "2026-07-28", listed) == "whales near Nantucket \u2603"
        again = setup.proxy("--url", url, "--run", "last", server=False)
        assert await ask(setup, again, "2026-07-28", more) == "whales near Hull"


def text_of(result: Any) -> str:
    """Return the text of a result."""
    return text(json.loads(result.model_dump_json()))


def broken(*resumed: bytes) -> Peer:
    """Serve a call's stream that breaks off, then these events one by one, then 404."""
    left = list(resumed)
    ids: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"GET"):
            rest = await reader.read(2**16)
            if b'"tools/call"' in rest:
                ids.append(str(json.loads(rest)["id"]).encode())
            again = asyncio.StreamReader()
            again.feed_data(head + rest)
            again.feed_eof()
            await peer(STREAM + b"id: 7\nretry: 20\ndata:\n\n")(again, writer)
            return
        if b"last-event-id" in head.lower():
            response = STREAM + left.pop(0).replace(b"ID", ids[-1]) if left else NOT_FOUND
        else:
            response = NOT_FOUND.replace(b"404", b"405")
        writer.write(response)
        await writer.drain()
        writer.close()

    return serve


NOT_FOUND = b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
DONE = b'id: 9\ndata: {"jsonrpc": "2.0", "id": ID, "result": {"content": []}}\n\n'


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_stream_that_breaks_off_is_taken_up_again(setup, command, goes_on):
    """A broken stream is resumed from its newest event; one that never ends is in doubt."""
    events = [b"id: 8\ndata:\n\n", DONE] if goes_on else []
    server = await asyncio.start_server(broken(*events), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server, wire(setup, setup.proxy("--url", url, server=False)) as client:
        await client.greet()
        async with asyncio.timeout(WAIT_S):
            result = await client.call("send", to="ada", text="x")
        assert await client.leave() == 0
    steps = {each["tool"]: each for each in (await command("run", "trace", "last", "--json")).lines}
    if goes_on:
        assert result == {"content": []}
        assert steps["send"]["status"] == "completed"
    else:
        assert "did not resume after 5 tries (HTTP 404): it may have been done" in text(result)
        assert steps["send"]["status"] == "in_doubt"


@pytest.mark.slow
async def test_a_server_that_leaves_things_unanswered_holds_nothing_up(setup: Setup):
    """Neither what it need not answer nor a request that is no step: calls go on meanwhile."""
    calls = peer(STREAM + b'data: {"jsonrpc": "2.0", "id": ID, "result": {"content": []}}\n\n')

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        rest = await reader.read(2**16)
        if b'"notifications/initialized"' in rest or b'"ping"' in rest:
            await reader.read()  # until the proxy leaves
            writer.close()
            return
        again = asyncio.StreamReader()
        again.feed_data(head + rest)
        again.feed_eof()
        await calls(again, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server, wire(setup, setup.proxy("--url", url, server=False)) as client:
        await client.greet()
        await client.begin("ping")
        async with asyncio.timeout(WAIT_S):
            assert (await client.call("look"))["content"] == []
        assert await client.leave() == 0
