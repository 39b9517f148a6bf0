"""HTTP listeners: by which names they answer, how soon, and how work beside them ends."""

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from hansard.client import listening as module
from hansard.client.listening import CLOSE, LOCAL, Address, foreign, listen
from hansard.client.opening import alongside

WAIT_S = 30.0
WHOLE = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"


async def test_a_cancellation_is_kept_while_work_beside_a_block_ends():
    """The caller that waits for the work's end is cancelled, as by its own deadline."""
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(WAIT_S)
        finally:
            ending.set()
            await asyncio.wait_for(may_end.wait(), WAIT_S)

    async def caller() -> None:
        async with alongside(work()):
            await asyncio.sleep(0)

    task = asyncio.create_task(caller())
    await asyncio.wait_for(ending.wait(), WAIT_S)
    task.cancel()
    may_end.set()
    await asyncio.wait({task})
    assert task.cancelled()


def test_an_answer_waits_for_no_acknowledgement():
    """Accepted connections send small answers at once (TCP_NODELAY)."""
    with (
        Address.of("0").bound() as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8931", None, None),
        ("LOCALHOST", "http://localhost:5173", None),
        ("[::1]:80", "https://[::1]", None),
        ("", None, 421),
        ("evil.example:80", None, 421),
        ("127.0.0.1:8931@evil.example", None, 421),
        ("evil.example@127.0.0.1", None, 421),
        ("127.0.0.1.evil.example", None, 421),
        ("127.0.0.1:8931/x", None, 421),
        ("localhost", "http://evil.example", 403),
        ("localhost", "http://localhost:80@evil.example", 403),
        ("localhost", "http://user@localhost", 403),
        ("localhost", "null", 403),
        ("localhost", "", 403),
    ],
)
def test_a_request_names_the_server_and_nothing_else(host, origin, status):
    """`Host` and `Origin` must be one of the server's names, with or without a port."""
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    refused = foreign(headers, LOCAL)
    assert (None if refused is None else refused[0]) == status


async def _echo(request: Request) -> PlainTextResponse:
    try:
        body = await request.body()
    except ClientDisconnect:
        body = b""
    return PlainTextResponse(body, headers=CLOSE if request.url.path == "/refused" else None)


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


Send = Callable[[bytes], Awaitable[Connection]]


@contextlib.asynccontextmanager
async def _serving() -> AsyncIterator[Send]:
    """Yield a listener that returns request bodies, and a function that sends it bytes."""
    urls: asyncio.Queue[str] = asyncio.Queue()
    app = Starlette(routes=[Route(path, _echo, methods=["POST"]) for path in ("/", "/refused")])
    task = asyncio.create_task(listen(app, Address.of("0"), "/", urls.put_nowait))
    found = re.search(r":(\d+)/", await asyncio.wait_for(urls.get(), WAIT_S))
    assert found is not None
    writers: list[asyncio.StreamWriter] = []

    async def send(begun: bytes) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", found[1])
        writers.append(writer)
        writer.write(begun)
        await writer.drain()
        return reader, writer

    try:
        yield send
    finally:
        for each in writers:
            each.close()
        await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _is_answered(connection: Connection) -> bool:
    """Return whether WHOLE is answered before the connection ends."""
    head = await asyncio.wait_for(connection[0].readuntil(b"\r\n\r\n"), WAIT_S)
    assert await connection[0].readexactly(1) == b"x"
    return head.startswith(b"HTTP/1.1 200")


async def _ended(connection: Connection) -> bytes:
    """Return the data up to the connection's end; empty after a reset."""
    with contextlib.suppress(ConnectionResetError):
        return await asyncio.wait_for(connection[0].read(), WAIT_S)
    return b""


@pytest.mark.slow
async def test_a_request_has_a_deadline_for_its_head_and_its_body(monkeypatch: pytest.MonkeyPatch):
    """A byte-by-byte client is cut off; a whole request may wait for its answer."""
    monkeypatch.setattr(module, "HEAD_S", 0.5)
    monkeypatch.setattr(module, "BODY_S", 0.5)
    async with _serving() as send:
        slow = [await send(begun) for begun in (b"", WHOLE[:20], WHOLE[:-1])]
        again = await send(WHOLE)
        assert await _is_answered(again)
        began = time.monotonic()
        again[1].write(WHOLE[:20])
        for each in (*slow, again):
            assert await _ended(each) == b""
        assert time.monotonic() - began < WAIT_S / 2
        assert await _is_answered(await send(WHOLE))


@pytest.mark.slow
async def test_a_client_that_takes_no_answer_is_dropped(monkeypatch: pytest.MonkeyPatch):
    """A client that stops reading in the middle of an answer holds neither socket nor memory."""
    monkeypatch.setattr(module, "TAKE_S", 0.5)
    size = 32 * 1024 * 1024
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
    async with _serving() as send:
        stuck = await send(head.encode() + b"x" * size)
        await asyncio.sleep(2.0)
        assert len(await _ended(stuck)) < size
        assert await _is_answered(await send(WHOLE))


@pytest.mark.slow
async def test_connections_without_a_request_do_not_keep_others_out(monkeypatch):
    """The oldest of many connections is closed; a complete request is answered at once."""
    monkeypatch.setattr(module, "HEADLESS_LOCAL_MAX", 10)
    async with _serving() as send:
        slow = [await send(WHOLE[:20]) for _ in range(30)]
        assert await _is_answered(await send(WHOLE))
        for each in slow[:20]:
            assert await _ended(each) == b""
        slow[-1][1].write(WHOLE[20:])
        assert await _is_answered(slow[-1])


@pytest.mark.slow
async def test_a_refused_client_holds_no_connection():
    """A refusal closes the connection, however much of the body is missing."""
    async with _serving() as send:
        refused = await send(WHOLE.replace(b"/ ", b"/refused "))
        assert (await _ended(refused)).endswith(b"x")
