"""A tee before a server over HTTP: passes bytes on as they are, and keeps them; afterwards they are
read as exchanges, and what of them is JSON-RPC as frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

PART = 2**16


class Message(msgspec.Struct):
    """A request or a response: its first line, its headers, its body as far as it came."""

    first: str
    headers: dict[str, str]
    body: bytes

    @property
    def frames(self) -> list[dict[str, Any]]:
        """What of it is JSON-RPC: a body, or the events of a stream."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            whole = self.body.replace(b"\r\n", b"\n").rpartition(b"\n\n")[0]
            events = [_data(each) for each in whole.split(b"\n\n")]
            return [json.loads(each) for each in events if each]
        try:
            told = json.loads(self.body)
        except ValueError:
            return []
        return [told] if isinstance(told, dict) else []


class Exchange(msgspec.Struct):
    """A request, and its response; None where there was none."""

    request: Message
    response: Message | None

    @property
    def session(self) -> str:
        """Of which session it is; of what begins one, that."""
        mine = self.request.headers.get("mcp-session-id", "")
        came = {} if self.response is None else self.response.headers
        return mine or came.get("mcp-session-id", "")


class Tee:
    """What passed, by connections."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._kept: list[tuple[bytearray, bytearray]] = []
        self._open = set[asyncio.Task[None]]()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection on."""
        there, out = await asyncio.open_connection(self._to.hostname, self._to.port)
        asked, answered = bytearray(), bytearray()
        self._kept.append((asked, answered))
        both = [
            asyncio.create_task(_copy(reader, out, asked)),
            asyncio.create_task(_copy(there, writer, answered)),
        ]
        self._open.update(both)
        try:
            await asyncio.wait(both)
        finally:
            self._open.difference_update(both)
            for each in (out, writer):
                each.close()

    def close(self) -> None:
        """Pass nothing on any more."""
        for each in self._open:
            each.cancel()

    @property
    def exchanges(self) -> list[Exchange]:
        """All of them, connection by connection."""
        found: list[Exchange] = []
        for asked, answered in self._kept:
            answers = list(_messages(bytes(answered)))
            for number, each in enumerate(_messages(bytes(asked))):
                found.append(Exchange(each, answers[number] if number < len(answers) else None))
        return found


@contextlib.asynccontextmanager
async def teed(url: str) -> AsyncIterator[Tee]:
    """A tee before an address, at one of its own."""
    tee = Tee(url)
    server = await asyncio.start_server(tee.serve, "127.0.0.1", 0)
    tee.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{urlsplit(url).path}"
    try:
        yield tee
    finally:
        server.close()
        tee.close()


async def _copy(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    with contextlib.suppress(OSError):  # either side has left
        while part := await reader.read(PART):
            kept += part
            writer.write(part)
            await writer.drain()
        writer.write_eof()


def _messages(raw: bytes) -> Iterator[Message]:
    """The messages of HTTP/1.1 in what one side of a connection sent."""
    while raw:
        head, between, rest = raw.partition(b"\r\n\r\n")
        if not between:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(":")[::2] for line in lines]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        if "chunked" in headers.get("transfer-encoding", ""):
            body, raw = _unchunked(rest)
        elif "content-length" in headers or not first.startswith("HTTP/"):
            length = int(headers.get("content-length", 0))
            body, raw = rest[:length], rest[length:]
        elif first.split()[1] in ("204", "304"):
            body, raw = b"", rest
        else:
            body, raw = rest, b""
        yield Message(first, headers, body)


def _unchunked(rest: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, between, rest = rest.partition(b"\r\n")
        length = int(size.split(b";")[0], 16) if between and size else 0
        if not length:
            return body, rest.removeprefix(b"\r\n")
        body, rest = body + rest[:length], rest[length:].removeprefix(b"\r\n")


def _data(event: bytes) -> bytes:
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line[:5] == b"data:"]
    return b"\n".join(lines)
