"""The server over streamable HTTP: who asks is told by the bearer token of each request.

A token is of one agent in one role, and has the server that answers it: what one agent begins is
its own, over however many connections. Without a token that is known nothing is answered but 401.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from http import HTTPStatus

import httpx2
import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hansard.bus.loggers import logger
from hansard.client.listening import (
    LOCAL,
    LOOPBACK,
    Address,
    bearer,
    foreign,
    listen,
    refused,
)
from hansard.domain.errors import BadValue
from hansard.service.mcp.server import PATH, app_of
from hansard.service.mcp.sessions import Sessions

_log = logger(__name__)

TOKEN_LENGTH_MIN = 16
"""Shortest token, in characters: one that can be guessed is none."""

SESSIONS_MAX, SESSIONS_OF_TOKEN_MAX = 1_000, 100
"""Open sessions of the protocol in all, shared out evenly, and of a token; for one more the session
that was idle longest ends.
"""

BUSY_MAX = 10
"""So many more may be open while all of a token's sessions wait for answers; then one gets 503."""

ENDED_MAX = 1_000
"""Sessions of a token that were ended for others; their clients learn why."""

SESSION = "mcp-session-id"
"""Header of the transport."""

UNKNOWN = (
    "no known token: send 'Authorization: Bearer TOKEN', the token of a file of 'hansard "
    "credentials' that the server was given with --as, or that of its --token-file"
)


class Client(msgspec.Struct, frozen=True):
    """Who may ask: by which token, and the sessions that are this agent's."""

    token: str
    sessions: Sessions


REVOKED = (
    "this token may have expired or been revoked: ask the person who gave it for a new one "
    "(hansard credentials ROLE), and the operator of this server to use that file"
)


class _Session(msgspec.Struct):
    """A session of the protocol: when it was last used, and its requests without an answer yet."""

    used_s: float
    open: int = 0


class _Served:
    """Answers the requests of one client, in at most `sessions_max` sessions of the protocol."""

    def __init__(self, sessions: Sessions, app: ASGIApp, sessions_max: int) -> None:
        self.sessions = sessions
        self._app = app
        self._max = sessions_max
        self._open: dict[str, _Session] = {}
        self._ended: dict[str, None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; where it opens a session too many, end the one that is idle longest."""
        name = Request(scope).headers.get(SESSION, "")
        if name in self._ended:
            message = (
                f"this session has ended: its token had more than {self._max} sessions, and this "
                "one was idle longest; begin another with initialize"
            )
            await refused(HTTPStatus.NOT_FOUND, message)(scope, receive, send)
            return
        session = self._open.get(name)
        is_post = scope["method"] == "POST"

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                if scope["method"] == "DELETE" or message["status"] == HTTPStatus.NOT_FOUND:
                    self._open.pop(name, None)
                begun = Headers(raw=message["headers"]).get(SESSION)
                if begun and not name:
                    self._open[begun] = _Session(time.monotonic())
                    await self._make_room(begun)
            await send(message)

        if session is not None and is_post:
            session.used_s, session.open = time.monotonic(), session.open + 1
        try:
            await self._app(scope, receive, sent)
        finally:
            if session is not None and is_post:
                session.used_s, session.open = time.monotonic(), session.open - 1

    async def _make_room(self, begun: str) -> None:
        others = [(each.used_s, name) for name, each in self._open.items() if name != begun]
        idle = [(used_s, name) for used_s, name in others if not self._open[name].open]
        if len(self._open) <= self._max or not idle:
            return
        _, name = min(idle)
        del self._open[name]
        self._ended[name] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        _log.warning("a token has too many sessions: the one idle longest ends", most=self._max)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(self._app)) as http:
            await http.delete(f"http://{LOOPBACK}{PATH}", headers={SESSION: name})


class _Door:
    """Hands each request to the server of its token. One whose token the service refuses meanwhile
    is answered 401, too, where its answer has not begun.
    """

    def __init__(self, servers: Mapping[bytes, _Served], hosts: Collection[str]) -> None:
        self._servers = servers
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Request(scope).headers
        refusal = foreign(headers, self._hosts)
        server = self._servers.get(_digest(bearer(headers)))
        if refusal is None and server is not None and await server.sessions.are_refused():
            refusal = HTTPStatus.UNAUTHORIZED, REVOKED
        if refusal is not None or server is None:
            await refused(*(refusal or (HTTPStatus.UNAUTHORIZED, UNKNOWN)))(scope, receive, send)
            return
        is_refused = False

        async def sent(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and server.sessions.refused:
                is_refused = True
                await refused(HTTPStatus.UNAUTHORIZED, REVOKED)(scope, receive, send)
            if not is_refused:
                await send(message)

        await server(scope, receive, sent)


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
            _digest(client.token.encode(errors="surrogateescape")): _Served(
                client.sessions,
                await stack.enter_async_context(app_of(client.sessions, of_each + BUSY_MAX)),
                of_each,
            )
            for client in clients
        }


def _digest(token: bytes) -> bytes:
    """A token is looked up by its digest, so that how long that takes tells nothing of it."""
    return hashlib.sha256(token).digest()
