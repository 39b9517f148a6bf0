"""Serving a proxy over HTTP: a server at a URL, and clients that connect to a port; which of their
requests are refused, and how the others become requests of the proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hansard.client.listening import LOCAL, Address, bearer, foreign, listen, refused
from hansard.domain.errors import BadValue
from hansard.integrations.mcp.frames import FRAME_BYTES_MAX
from hansard.integrations.mcp.http.authorization import LEGACY_PATHS, WELL_KNOWN, ResourceMetadata
from hansard.integrations.mcp.http.local import LocalServers, Start
from hansard.integrations.mcp.http.proxy import HttpProxy
from hansard.integrations.mcp.http.reply import CLIENT_LEFT
from hansard.integrations.mcp.http.server import HttpServer
from hansard.integrations.mcp.http.upstream import HttpUpstream
from hansard.integrations.mcp.recording import Recording
from hansard.integrations.mcp.servers import Login

PATH = "/mcp"
"""Of the endpoint."""

UNKNOWN = "no known token: send 'Authorization: Bearer TOKEN', that of its --token-file"


def asked_at(url: str, headers: Mapping[str, str], login: Login | None = None) -> HttpUpstream:
    """A server at a URL, for a client of pipes. Raises BadValue."""
    return HttpUpstream(HttpServer(url, headers, login=login))


def carried_to(start: Start, name: str) -> HttpServer:
    """Processes of a server, for clients over HTTP. Its name stands in what they are told."""
    server = HttpServer("http://localhost/mcp", {}, LocalServers(start), of_many=True)
    server.shown = repr(name)
    return server


def address(text: str, hosts: Sequence[str], client_token: str | None) -> Address:
    """Where clients come in. Raises BadValue."""
    found = Address.of(text, hosts)
    if found.host not in LOCAL and client_token is None:
        fact = f"at {found.host} other machines can ask, too"
        raise BadValue("--http", fact, "give --token-file, whose token clients must send")
    return found


async def serve(
    where: Address,
    client_token: str | None,
    server: HttpServer | None,
    recording: Callable[[], AbstractAsyncContextManager[Recording]],
    listens: Callable[[str], None],
) -> None:
    """Serve clients over HTTP until this is cancelled, which is how the run ends, too: nothing went
    wrong. `server` is None where nothing is asked. Raises BadValue.
    """
    try:
        async with recording() as found:
            proxy = HttpProxy(found, server)
            metadata = None if server is None else server.metadata
            app = _endpoint(proxy, metadata, [where.host, *where.hosts], client_token)
            with contextlib.suppress(asyncio.CancelledError):
                await listen(app, where, PATH, listens, proxy.close)
    finally:
        if server is not None:
            await server.close()


def _endpoint(
    proxy: HttpProxy, metadata: ResourceMetadata | None, hosts: Sequence[str], token: str | None
) -> ASGIApp:
    """The application: frames are posted to it, and streams are opened at it. A request is answered
    that asks for a name of this machine or of `hosts`, and has the token, if one is asked for.
    """

    async def describe(request: Request) -> Response:
        if metadata is None:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        status, raw = await metadata.read(str(request.url.replace(path=PATH, query="")))
        return Response(raw, status, media_type="application/json")

    async def legacy(request: Request) -> Response:
        raw = await _body(request)
        if metadata is None or raw is None:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        url = request.url
        path = f"{url.path}?{url.query}" if url.query else url.path
        status, body, location = await metadata.legacy(path, request.headers, raw)
        headers = {"Location": location} if location else {"Cache-Control": "no-store"}
        return Response(body, status, headers, "application/json")

    async def answer(request: Request) -> Response:
        try:
            raw = await _body(request)
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        if raw is None:
            message = f"a body of more than {FRAME_BYTES_MAX:,} bytes: send less"
            return refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        reply = proxy.post(request, raw) if request.method == "POST" else proxy.other(request)
        return await reply.response(request)

    routes = [
        Route(PATH, answer, methods=["GET", "POST", "DELETE"]),
        Route(WELL_KNOWN + PATH, describe),
        *(Route(path, legacy, methods=["GET", "POST"]) for path in LEGACY_PATHS),
    ]
    return Starlette(routes=routes, middleware=[Middleware(_Door, hosts=hosts, token=token)])


class _Door:
    """Refuses requests by another name, from foreign pages, and without the token."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], token: str | None) -> None:
        self._app = app
        self._hosts = {*LOCAL, *(host.lower() for host in hosts)}
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        headers = Request(scope).headers
        refusal = foreign(headers, self._hosts)
        if refusal is None and self._token is not None:
            if not hmac.compare_digest(bearer(headers), self._token):
                refusal = HTTPStatus.UNAUTHORIZED, UNKNOWN
            kept = [each for each in scope["headers"] if each[0] != b"authorization"]
            scope = {**scope, "headers": kept}  # the token is not the server's
        app = self._app if refusal is None else refused(*refusal)
        await app(scope, receive, send)


async def _body(request: Request) -> bytes | None:
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > FRAME_BYTES_MAX:
            return None
    return bytes(taken)
