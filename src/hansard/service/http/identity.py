"""The caller of a request: the operator of the service."""

from __future__ import annotations

import hmac
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from hansard.client.listening import CLOSE, LOCAL, Address, bearer
from hansard.domain.errors import BadValue
from hansard.service.http.problems import problem
from hansard.service.http.records import OpenWorkspace
from hansard.service.http.routes import Caller

TOKEN_LENGTH_MIN = 16
"""Shortest token, in characters: a shorter one can be guessed."""


class Identity:
    """Recognises callers. `token` is the operator's; without one, all of this machine are trusted.

    Raises BadValue if the address is open to others without a token, or the token is short.
    """

    def __init__(self, address: Address, token: str | None) -> None:
        if token is None and address.host not in LOCAL:
            fact = f"{address.host} can be reached from other machines, and no token is required"
            raise BadValue("--http", fact, f"add --token-file FILE, or listen on {LOCAL[0]}")
        if token is not None and len(token) < TOKEN_LENGTH_MIN:
            fact = f"a token of {len(token)} characters"
            raise BadValue("token", fact, f"give one of {TOKEN_LENGTH_MIN} or more")
        self._token = None if token is None else token.encode()

    def refusal(self, request: Request) -> Response | None:
        """Return the refusal of a request, before anything is read or opened for it."""
        if self._token is None or hmac.compare_digest(bearer(request.headers), self._token):
            return None
        remedy = "send 'Authorization: Bearer TOKEN', that of the --token-file"
        headers = CLOSE | {"WWW-Authenticate": "Bearer"}
        return problem(HTTPStatus.UNAUTHORIZED, "no known token", headers, remedy=remedy)

    async def caller(self, request: Request, workspace: OpenWorkspace | None) -> Caller:
        """Return the caller, as its workspace knows it. Raises AccessDenied."""
        del request, workspace
        return Caller()
