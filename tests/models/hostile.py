"""A hostile provider of models: it sends the bytes that a test gives it, and ends as it says."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec

import hansard
from hansard.client.session import AsyncSession
from hansard.ext.models.proxy import ModelProxy

WAIT_S = 60.0
"""Seconds within which each exchange has to end."""


class Script(msgspec.Struct, frozen=True):
    """What the provider does with a request.

    Attributes:
        pieces: The bytes that it sends, head included.
        end: `close`, `reset`, `hang` (says nothing more), or `endless` (repeats the last piece).
        wait_s: Seconds between the pieces.
    """

    pieces: tuple[bytes, ...] = ()
    end: str = "close"
    wait_s: float = 0.0


class HostileProvider:
    """A provider on a free port of this machine.

    Attributes:
        script: What it does with the next request.
        requests: The heads and bodies that it got.
        arrived: Set once a request has arrived.
        left: Set once a client has closed a connection that was hanging or endless.
    """

    def __init__(self) -> None:
        self.script = Script()
        self.requests: list[bytes] = []
        self.arrived, self.left = asyncio.Event(), asyncio.Event()
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self.requests.append(head + await reader.readexactly(int(length or 0)))
            self.arrived.set()
            await self._act(self.script, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.left.set()
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(ConnectionError):
                writer.close()

    async def _act(
        self, script: Script, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for piece in script.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(script.wait_s)
        if script.end == "reset":
            raw: socket.socket = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif script.end == "hang":
            await reader.read(1)  # until the client leaves
            self.left.set()
        elif script.end == "endless":
            while True:
                writer.write(script.pieces[-1])
                await writer.drain()
                await asyncio.sleep(0.001)


class Answer(msgspec.Struct, frozen=True):
    """What a client got: status, body as transferred, and whether it broke off."""

    status: int
    body: bytes
    broke: bool


async def asking(
    url: str, body: bytes = b'{"model": "m"}', headers: Any = (), most: int | None = None
) -> Answer:
    """Send a request of chat completions; leave after `most` bytes of the answer."""
    received = b""
    async with (
        asyncio.timeout(WAIT_S),
        httpx2.AsyncClient(timeout=WAIT_S) as client,
        client.stream("POST", url, content=body, headers=dict(headers)) as response,
    ):
        try:
            async for piece in response.aiter_raw():
                received += piece
                if most is not None and len(received) >= most:
                    break
        except httpx2.HTTPError:
            return Answer(response.status_code, received, True)
    return Answer(response.status_code, received, False)


class Workspace:
    """A workspace whose runs stand behind proxies to a hostile provider."""

    def __init__(self, record: Any, provider: HostileProvider) -> None:
        self.record = record
        self.provider = provider
        self.proxy: ModelProxy

    @contextlib.asynccontextmanager
    async def proxied(self, run: str, mode: str | None = None) -> AsyncIterator[str]:
        """Open a proxy in a session of a run; yield the URL of chat completions there."""
        workflow = "w" if mode is None else None
        async with self.record.run(workflow, agent="models", run=run, mode=mode) as session:
            assert isinstance(session, AsyncSession)
            self.proxy = ModelProxy(session, {"openai": f"{self.provider.url}/v1"})
            async with self.proxy.serving() as url:
                yield f"{url}/openai/chat/completions"

    async def items(self, run: str) -> list[list[dict[str, Any]]]:
        """Return the recorded items of the run's steps."""
        view = await self.record.state(run)
        steps = view.agents["models"].steps.values()
        return [[msgspec.json.decode(bytes(raw)) for raw in each.items] for each in steps]


@contextlib.asynccontextmanager
async def hostile(folder: Path, name: str, **options: Any) -> AsyncIterator[Workspace]:
    """Open a workspace before a hostile provider."""
    os.environ.setdefault("NO_PROXY", "127.0.0.1")
    async with (
        HostileProvider() as provider,
        hansard.connect_async(name, data_dir=folder, **options) as record,
    ):
        yield Workspace(record, provider)
