"""Who may send requests to a proxy's port, and how they become requests of the proxy."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hansard.client.listening import CLOSE, LOCAL, foreign
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.frames import FRAME_BYTES_MAX
from hansard.integrations.mcp.http.proxy import HttpProxy
from hansard.integrations.mcp.http.reply import CLIENT_LEFT

PATH = "/mcp"
"""Of the endpoint."""


def endpoint(proxy: HttpProxy, hosts: Sequence[str], token: str | None) -> ASGIApp:
    """The application: frames are posted to it, and streams are opened at it. A request is answered
    that asks for a name of this machine or of `hosts`, and has the token, if one is asked for.
    """

    async def answer(request: Request) -> Response:
        try:
            raw = await _body(request)
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        if raw is None:
            message = f"a body of more than {FRAME_BYTES_MAX:,} bytes: send less"
            return _refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        reply = proxy.post(request, raw) if request.method == "POST" else proxy.other(request)
        return await reply.response(request)

    route = Route(PATH, answer, methods=["GET", "POST", "DELETE"])
    return Starlette(routes=[route], middleware=[Middleware(_Door, hosts=hosts, token=token)])


class _Door:
    """Refuses who comes by another name, pages of others, and who has not the token."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], token: str | None) -> None:
        self._app = app
        self._hosts = {*LOCAL, *(host.lower() for host in hosts)}
        self._token = None if token is None else f"bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refused = self._refusal(Request(scope)) if scope["type"] == "http" else None
        if refused is None and self._token is not None:  # it is not the server's
            kept = [each for each in scope.get("headers", []) if each[0] != b"authorization"]
            scope = {**scope, "headers": kept}
        await (refused or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        refused = foreign(headers, self._hosts)
        if refused is not None:
            return _refused(*refused)
        if self._token is None:
            return None
        kind, _, token = headers.get("authorization", "").partition(" ")
        if hmac.compare_digest(f"{kind.lower()} {token.strip()}".encode(), self._token):
            return None
        message = "no known token: send 'Authorization: Bearer TOKEN', that of its --token-file"
        return _refused(HTTPStatus.UNAUTHORIZED, message)


def _refused(status: HTTPStatus, message: str) -> Response:
    told = {"code": frames.INVALID_REQUEST, "message": message}
    headers = CLOSE | ({"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {})
    answer = {"jsonrpc": "2.0", "id": None, "error": told}
    return JSONResponse(answer, status_code=status, headers=headers)


async def _body(request: Request) -> bytes | None:
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > FRAME_BYTES_MAX:
            return None
    return bytes(taken)
