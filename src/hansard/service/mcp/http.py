"""The server over streamable HTTP: who asks is told by the bearer token of each request.

A token is of one agent in one role, and has the server that answers it: what one agent begins is
its own, over however many connections. Without a token that is known nothing is answered but 401.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence

import msgspec
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hansard.domain.errors import BadValue
from hansard.service.mcp.server import PATH, app_of
from hansard.service.mcp.sessions import Sessions

LOOPBACK = "127.0.0.1"

TOKEN_LENGTH_MIN = 16
"""Shortest token, in characters: one that can be guessed is none."""

BEARER = "bearer "

CLOSING_S = 3
"""How long answers that are under way are waited for at the end; streams are then cut."""

UNKNOWN = (
    "no known token: send 'Authorization: Bearer TOKEN', the token of a file of 'hansard "
    "credentials' that the server was given with --as, or that of its --token-file"
)


class Client(msgspec.Struct, frozen=True):
    """Who may ask: by which token, and the sessions that are this agent's."""

    token: str
    sessions: Sessions


class Address(msgspec.Struct, frozen=True):
    """Where to listen; `hosts` are names that requests may ask for beside the machine's own."""

    host: str
    port: int
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str, hosts: Sequence[str] = ()) -> Address:
        """From `PORT` or `HOST:PORT`. Raises BadValue."""
        host, _, port = text.rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise BadValue("--http", f"{text!r:.80}", "give [HOST:]PORT, such as 8931, or 0")
        return cls(host.strip("[]") or LOOPBACK, int(port), tuple(hosts))

    def bound(self) -> socket.socket:
        """A socket that listens there. Raises BadValue."""
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            return socket.create_server((self.host, self.port), family=family)
        except OSError as error:
            fact = f"{self.host}:{self.port} cannot be listened on ({error.strerror or error})"
            raise BadValue("--http", fact, "take another port, or 0 for a free one") from error


class _Door:
    """Hands each request to the server of its token."""

    def __init__(self, servers: Mapping[bytes, ASGIApp]) -> None:
        self._servers = servers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = Request(scope).headers.get("authorization", "")
        token = said[len(BEARER) :].strip() if said.lower().startswith(BEARER) else ""
        server = self._servers.get(_digest(token))
        if server is None:
            told = {"error": "unauthorized", "message": UNKNOWN}
            refused = JSONResponse(told, 401, headers={"WWW-Authenticate": "Bearer"})
            await refused(scope, receive, send)
            return
        await server(scope, receive, send)


class _Server(uvicorn.Server):
    """One that leaves signals to who runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def serve_http(
    clients: Sequence[Client], address: Address, told: Callable[[str], None]
) -> None:
    """Serve until it is cancelled; `told` is called with the URL once it listens.

    Raises BadValue.
    """
    for client in clients:
        if len(client.token) < TOKEN_LENGTH_MIN:
            fact = f"a token of {len(client.token)} characters"
            raise BadValue("token", fact, f"give one of {TOKEN_LENGTH_MIN} or more")
    listening = address.bound()
    with contextlib.closing(listening):
        async with _servers(clients, address) as servers:
            config = uvicorn.Config(
                _Door(servers),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=CLOSING_S,
            )
            server = _Server(config)
            host, port = listening.getsockname()[:2]
            told(f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")
            running = asyncio.create_task(server.serve([listening]))
            try:
                await asyncio.shield(running)
            except asyncio.CancelledError:
                server.should_exit = True
                await running
                raise


@contextlib.asynccontextmanager
async def _servers(
    clients: Sequence[Client], address: Address
) -> AsyncGenerator[dict[bytes, ASGIApp]]:
    async with contextlib.AsyncExitStack() as stack:
        yield {
            _digest(client.token): await stack.enter_async_context(
                app_of(client.sessions, [address.host, *address.hosts])
            )
            for client in clients
        }


def _digest(token: str) -> bytes:
    """A token is looked up by its digest, so that how long that takes tells nothing of it."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
