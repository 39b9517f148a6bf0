"""A tee before an HTTP server: passes bytes on, and reads them later as JSON-RPC frames."""

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
    """A request or response: first line, headers, the body received, and whether it is whole."""

    first: str
    headers: dict[str, str]
    body: bytes
    is_whole: bool = True

    @property
    def frames(self) -> list[dict[str, Any]]:
        """JSON-RPC frames of a body or of a stream's events."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            whole = self.body.replace(b"\r\n", b"\n").rpartition(b"\n\n")[0]
            events = [_data(each) for each in whole.split(b"\n\n")]
            return [json.loads(each) for each in events if each]
        try:
            frame = json.loads(self.body)
        except ValueError:
            return []
        return [frame] if isinstance(frame, dict) else []

    @property
    def event_ids(self) -> list[str]:
        """Event ids by which a stream can be resumed."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return []
        lines = self.body.decode(errors="replace").splitlines()
        return [line[3:].strip() for line in lines if line.startswith("id:")]


class Exchange(msgspec.Struct):
    """A request and its response, if any; `is_left`: the client closed before its end."""

    request: Message
    response: Message | None
    is_left: bool = False

    @property
    def session(self) -> str:
        """Session of the exchange; of an exchange that begins one, the new one."""
        mine = self.request.headers.get("mcp-session-id", "")
        headers = {} if self.response is None else self.response.headers
        return mine or headers.get("mcp-session-id", "")


class Kept(msgspec.Struct):
    """Bytes of a connection in both directions, and whether the client closed it first."""

    request_bytes: bytearray
    response_bytes: bytearray
    is_left: bool = False


class Tee:
    """A recorder of an HTTP server's connections."""

    def __init__(self, url: str) -> None:
        self._to = urlsplit(url)
        self._kept: list[Kept] = []
        self._open = set[asyncio.Task[None]]()
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass a connection on."""
        there, out = await asyncio.open_connection(self._to.hostname, self._to.port)
        kept = Kept(bytearray(), bytearray())
        self._kept.append(kept)
        asking, answering = both = [
            asyncio.create_task(_copy(reader, out, kept.request_bytes)),
            asyncio.create_task(_copy(there, writer, kept.response_bytes)),
        ]
        self._open.update(both)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            kept.is_left = asking.done() and not answering.done()
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
    def connections(self) -> int:
        """Number of opened connections."""
        return len(self._kept)

    @property
    def exchanges(self) -> list[Exchange]:
        """All of them, connection by connection."""
        every: list[Exchange] = []
        for kept in self._kept:
            answers = list(_messages(bytes(kept.response_bytes)))
            for number, each in enumerate(_messages(bytes(kept.request_bytes))):
                answer = answers[number] if number < len(answers) else None
                is_left = kept.is_left and (answer is None or not answer.is_whole)
                every.append(Exchange(each, answer, is_left))
        return every


@contextlib.asynccontextmanager
async def teed(url: str) -> AsyncIterator[Tee]:
    """Run a tee in front of an address."""
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
    """Yield the HTTP/1.1 messages in one direction of a connection."""
    while raw:
        head, between, rest = raw.partition(b"\r\n\r\n")
        if not between:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(":")[::2] for line in lines]
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        is_whole = True
        if "chunked" in headers.get("transfer-encoding", ""):
            body, raw, is_whole = _unchunked(rest)
        elif "content-length" in headers or not first.startswith("HTTP/"):
            length = int(headers.get("content-length", 0))
            body, raw = rest[:length], rest[length:]
            is_whole = len(body) == length
        elif first.split()[1] in ("204", "304"):
            body, raw = b"", rest
        else:
            body, raw = rest, b""
        yield Message(first, headers, body, is_whole)


def _unchunked(rest: bytes) -> tuple[bytes, bytes, bool]:
    """Return a body, the bytes after it, and whether it is complete."""
    body = b""
    while True:
        size, between, rest = rest.partition(b"\r\n")
        length = int(size.split(b";")[0], 16) if between and size else 0
        if not length:
            return body, rest.removeprefix(b"\r\n"), bool(size)
        body, rest = body + rest[:length], rest[length:].removeprefix(b"\r\n")


def _data(event: bytes) -> bytes:
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line[:5] == b"data:"]
    return b"\n".join(lines)
