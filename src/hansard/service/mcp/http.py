"""The server over streamable HTTP: who asks is told by the bearer token of each request.

A token is of one agent in one role, and has the server that answers it: what one agent begins is
its own, over however many connections. Without a token that is known nothing is answered but 401.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hansard.client.listening import CLOSE, LOCAL, Address, foreign, listen
from hansard.domain.errors import BadValue
from hansard.service.mcp.server import PATH, app_of
from hansard.service.mcp.sessions import Sessions

TOKEN_LENGTH_MIN = 16
"""Shortest token, in characters: one that can be guessed is none."""

SESSIONS_MAX, SESSIONS_OF_TOKEN_MAX = 1_000, 100
"""Open sessions of the protocol in all, shared out evenly, and of a token; one more gets 503."""

BEARER = "bearer "

UNKNOWN = (
    "no known token: send 'Authorization: Bearer TOKEN', the token of a file of 'hansard "
    "credentials' that the server was given with --as, or that of its --token-file"
)


class Client(msgspec.Struct, frozen=True):
    """Who may ask: by which token, and the sessions that are this agent's."""

    token: str
    sessions: Sessions


REVOKED = (
    "this token may have expired or been revoked: ask who gave it for a new one (hansard "
    "credentials ROLE), and whoever runs this server to give it that file"
)


class _Served(msgspec.Struct, frozen=True):
    """What answers the requests of one client."""

    sessions: Sessions
    app: ASGIApp


class _Door:
    """Hands each request to the server of its token. One whose token the service refuses meanwhile
    is answered 401, too, where its answer has not begun.
    """

    def __init__(self, servers: Mapping[bytes, _Served], hosts: Collection[str]) -> None:
        self._servers = servers
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Request(scope).headers
        refused_name = foreign(headers, self._hosts)
        if refused_name is not None:
            status, message = refused_name
            answer = JSONResponse({"error": "refused", "message": message}, status, CLOSE)
            await answer(scope, receive, send)
            return
        said = headers.get("authorization", "")
        token = said[len(BEARER) :].strip() if said.lower().startswith(BEARER) else ""
        server = self._servers.get(_digest(token))
        if server is None:
            await _unauthorized(UNKNOWN)(scope, receive, send)
            return
        if await server.sessions.are_refused():
            await _unauthorized(REVOKED)(scope, receive, send)
            return
        refused = False

        async def sent(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and server.sessions.refused:
                refused = True
                await _unauthorized(REVOKED)(scope, receive, send)
            if not refused:
                await send(message)

        await server.app(scope, receive, sent)


def _unauthorized(why: str) -> JSONResponse:
    told = {"error": "unauthorized", "message": why}
    return JSONResponse(told, 401, headers={"WWW-Authenticate": "Bearer", **CLOSE})


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
    hosts = {name.lower() for name in (*LOCAL, address.host, *address.hosts)}
    async with _servers(clients) as servers:
        await listen(_Door(servers, hosts), address, PATH, told)


@contextlib.asynccontextmanager
async def _servers(clients: Sequence[Client]) -> AsyncGenerator[dict[bytes, _Served]]:
    of_each = min(SESSIONS_OF_TOKEN_MAX, max(1, SESSIONS_MAX // max(1, len(clients))))
    async with contextlib.AsyncExitStack() as stack:
        yield {
            _digest(client.token): _Served(
                client.sessions,
                await stack.enter_async_context(app_of(client.sessions, of_each)),
            )
            for client in clients
        }


def _digest(token: str) -> bytes:
    """A token is looked up by its digest, so that how long that takes tells nothing of it."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
