"""Callers of the HTTP service: tokens, cookies of browsers, and headers signed by a proxy.

A request states its caller in one of three ways, looked up in this order:

* `Hansard-Identity`, with `--behind-proxy`: a JWT (HS256), signed with the key of the proxy;
* `Authorization: Bearer TOKEN`: a token of the operator (of the option, or of `hansard login
  --token`), or of a principal;
* the cookie of a session, which a link of `hansard login` began.

A way that is present and invalid is refused: the next one is not tried. Cookies and the proxy's
header are sent by browsers without their user's intent, so that requests which change something
must also carry the token of `GET /api/v1/me` in `Hansard-CSRF`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import re
import time
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from hansard.agents.access.principals import AccessDenied, Authenticator
from hansard.agents.errors import RoleRefused
from hansard.bus.errors import BusError, NotFound
from hansard.bus.loggers import logger
from hansard.client.listening import LOCAL, Address, bearer
from hansard.domain.errors import BadValue, HansardError
from hansard.service.http.logins import Logins
from hansard.service.http.problems import CallerRefused, of_error
from hansard.service.http.records import Records
from hansard.service.http.routes import Caller

CSRF = "hansard-csrf"
"""Header with the CSRF token of a session."""

IDENTITY = "hansard-identity"
"""Header in which a proxy states the caller."""

CLAIMS_S_MAX = 300.0
"""Longest validity of a proxy's statement, in seconds."""

CLOCK_SKEW_S = 30.0
"""Seconds by which the clock of a proxy may be ahead."""

KEY_BYTES_MIN = 32
"""Shortest key shared with a proxy, in bytes: the length of an HS256 signature."""

READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

SWEEP_S = 0.25
"""Seconds between two checks that the callers of open responses still have access."""

EVENTS = "text/event-stream"
"""Type of streams that may end at any event."""

STREAMS_MAX = 400
"""Most open streams of one caller; one more is refused."""

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy: only files of this server, and no code within a page."""

HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer a form would send Origin: null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""Headers of every answer."""

SECURE_HEADERS = HEADERS | {"Strict-Transport-Security": "max-age=31536000"}
"""Headers of every answer over TLS."""

_COOKIE = re.compile(r"(?:^|;)\s*(?P<name>[!-:<>-~]+)=(?P<value>[A-Za-z0-9_-]*)\s*(?=;|$)")
_NEXT = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")

_log = logger(__name__)


UNKNOWN = (
    "no valid login: open the link that 'hansard login' prints, or send 'Authorization: Bearer "
    "TOKEN' with the token of 'hansard login --token', of the service's --token-file, or of "
    "credentials; the token of credentials is valid only for paths of its own workspace, such as "
    "/api/v1/WORKSPACE/me"
)


TOKEN_LENGTH_MIN = 16
"""Shortest token, in characters: a shorter one can be guessed."""


class Security(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the listener that decide who may send requests.

    Attributes:
        token: The operator's bearer token; None for none.
        tls: The files of the certificate and its key; None to speak HTTP.
        proxy_key: The key shared with the proxy before the listener; None without a proxy.
    """

    token: str | None = None
    tls: tuple[Path, Path] | None = None
    proxy_key: bytes | None = None

    @property
    def is_encrypted(self) -> bool:
        """True if browsers speak HTTPS, here or with the proxy."""
        return self.tls is not None or self.proxy_key is not None

    def check(self, address: Address) -> None:
        """Raise BadValue for a short token or key, or an address that is open to others."""
        if self.token is not None and len(self.token) < TOKEN_LENGTH_MIN:
            fact = f"a token of {len(self.token)} characters"
            raise BadValue("token", fact, f"give one of {TOKEN_LENGTH_MIN} or more")
        if self.proxy_key is not None and len(self.proxy_key) < KEY_BYTES_MIN:
            fact = f"a key of {len(self.proxy_key)} bytes"
            raise BadValue("--behind-proxy", fact, f"give one of {KEY_BYTES_MIN} or more")
        if address.host not in LOCAL and not self.is_encrypted:
            fact = f"{address.host} can be reached from other machines, and nothing is encrypted"
            remedy = (
                "add --tls-cert and --tls-key, put a proxy before it (--behind-proxy), or listen "
                f"on {LOCAL[0]}"
            )
            raise BadValue("--http", fact, remedy)


class Identity:
    """Finds the caller of a request, and ends streams of callers that lost their access.

    Args:
        logins: Links and sessions.
        records: The open workspaces.
        address: The address of the listener.
        security: Its options.

    Raises BadValue as `Security.check`.
    """

    def __init__(
        self, logins: Logins, records: Records, address: Address, security: Security
    ) -> None:
        security.check(address)
        self.logins = logins
        self.is_secure = security.is_encrypted
        self.cookie = "hansard"
        self._records = records
        self._token = None if security.token is None else security.token.encode()
        self._proxy_key = security.proxy_key
        self._trusts_machine = (
            address.host in LOCAL and security.token is None and security.proxy_key is None
        )
        self._open: set[_OpenResponse] = set()

    def use_port(self, port: int) -> None:
        """Name the cookie. Without TLS, browsers send the cookie of one port to all of a host."""
        self.cookie = "__Host-hansard" if self.is_secure else f"hansard-{port}"

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of every answer, which keep other sites' code out of the page."""
        return SECURE_HEADERS if self.is_secure else HEADERS

    async def caller(
        self, method: str, headers: Mapping[str, str], workspace: str | None
    ) -> Caller:
        """Return the caller of a request to a workspace, or to none in particular.

        Raises CallerRefused, and NotFound for the workspace of others, as if it were absent.
        """
        if self._proxy_key is not None and IDENTITY in headers:
            caller = await self._by_proxy(self._proxy_key, headers[IDENTITY], workspace)
        elif "authorization" in headers:
            return await self._by_token(bearer(headers), workspace)
        else:
            caller = await self._by_cookie(headers, workspace)
        demand_intent(method, headers, caller)
        return caller

    async def program(self, method: str, headers: Mapping[str, str]) -> Caller:
        """Return the caller of a slice's path: the operator. Raises CallerRefused.

        Without a token, every program of this machine may send traces and hooks.
        """
        if self._trusts_machine:
            return Caller()
        caller = await self.caller(method, headers, None)
        if not caller.is_operator:
            fact = "this path takes the data of trusted programs, and no principal's"
            raise CallerRefused(HTTPStatus.FORBIDDEN, fact)
        return caller

    async def _authenticator(self, workspace: str) -> Authenticator:
        async with self._records.of(workspace) as opened:
            return await opened.authenticator()

    async def _by_token(self, token: bytes, workspace: str | None) -> Caller:
        if self._token is not None and hmac.compare_digest(token, self._token):
            return Caller(way="token")
        text = token.decode("ascii", "replace")
        if self.logins.is_token(text):
            return Caller(valid=partial(self.logins.is_token, text), way="token")
        if workspace is None:
            raise CallerRefused(HTTPStatus.UNAUTHORIZED, UNKNOWN)
        try:
            authenticator = await self._authenticator(workspace)
            who = authenticator.holder(text)
        except NotFound:  # as in a workspace that does not know the token
            raise CallerRefused(HTTPStatus.UNAUTHORIZED, UNKNOWN) from None
        except AccessDenied as denied:
            await self._note(workspace, denied)
            raise CallerRefused(HTTPStatus.UNAUTHORIZED, UNKNOWN) from None
        valid = partial(authenticator.admits, who)
        return Caller(principal=who, valid=valid, way="token", workspace=workspace)

    async def _by_cookie(self, headers: Mapping[str, str], workspace: str | None) -> Caller:
        secret = cookies(headers.get("cookie", "")).get(self.cookie, "")
        grant = self.logins.session(secret) if secret else None
        if grant is None:
            raise CallerRefused(HTTPStatus.UNAUTHORIZED, UNKNOWN)
        csrf = hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()

        def is_open() -> bool:
            return self.logins.session(secret, used=False) is not None

        if not grant.principal:
            return Caller(valid=is_open, way="cookie", csrf=csrf, secret=secret)
        authenticator = await self._authenticator(grant.workspace)
        who = authenticator.by_token(grant.token)
        if who is None or who.name != grant.principal:
            self.logins.end(secret)
            raise CallerRefused(HTTPStatus.UNAUTHORIZED, UNKNOWN)
        _demand_same(grant.workspace, workspace)
        return Caller(
            principal=who,
            valid=lambda: is_open() and authenticator.admits(who),
            way="cookie",
            workspace=grant.workspace,
            csrf=csrf,
            secret=secret,
        )

    async def _by_proxy(self, key: bytes, header: str, workspace: str | None) -> Caller:
        claims = _claims(key, header)
        mark = f"csrf {claims.workspace} {claims.sub} {claims.role}".encode()
        csrf = hmac.new(key, mark, hashlib.sha256).hexdigest()
        if claims.operator:
            return Caller(way="proxy", csrf=csrf)
        _demand_same(claims.workspace, workspace)
        authenticator = await self._authenticator(claims.workspace)
        who = authenticator.acting(claims.sub, claims.role)
        if who is None:
            reason = f"the proxy names it, and it holds no valid token of role {claims.role!r:.80}"
            await self._note(claims.workspace, AccessDenied(reason, claims.sub, claims.role))
            raise CallerRefused(HTTPStatus.UNAUTHORIZED, UNKNOWN)
        valid = partial(authenticator.admits, who)
        return Caller(
            principal=who, valid=valid, way="proxy", workspace=claims.workspace, csrf=csrf
        )

    async def note_refusal(self, caller: Caller, error: RoleRefused) -> None:
        """Record that a principal's role does not permit a request."""
        if (who := caller.principal) is not None:
            denied = AccessDenied(error.reason, who.name, who.role, known=True)
            await self._note(caller.workspace, denied, error.what)

    async def _note(self, workspace: str, denied: AccessDenied, what: str = "http") -> None:
        """Record that a request was refused."""
        try:
            async with self._records.of(workspace) as opened:
                await opened.denials.note(denied, what)
        except BusError as error:
            _log.warning("a refused access could not be recorded", error=str(error))

    def log_in(self, code: str, headers: Mapping[str, str]) -> str:
        """Use a link up; return the secret of a new session. Raises CallerRefused.

        A session of the request's cookie ends: the secret of an earlier login is never kept.
        """
        grant = self.logins.redeem(code)
        if grant is None:
            fact = "this link was used, or is older than 60 s: run 'hansard login' again"
            raise CallerRefused(HTTPStatus.FORBIDDEN, fact)
        earlier = cookies(headers.get("cookie", "")).get(self.cookie)
        if earlier:
            self.logins.end(earlier)
        return self.logins.begin(grant)

    # -------------------------------------------------------- answers that stay open

    async def send(
        self, caller: Caller | None, answer: ASGIApp, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Send an answer. A stream is cut off when its caller loses access.

        So is that of another application, such as `/mcp`; only ours also for other rules.
        """
        kind = getattr(answer, "media_type", "")
        is_stream = isinstance(answer, StreamingResponse) or not isinstance(answer, Response)
        if caller is None or not is_stream:
            await answer(scope, receive, send)
            return
        mine = sum(each.caller.owner == caller.owner for each in self._open)
        if mine >= STREAMS_MAX:
            fact = f"{STREAMS_MAX} streams of this caller are open: close some"
            refusal = of_error(CallerRefused(HTTPStatus.TOO_MANY_REQUESTS, fact))
            await refusal(scope, receive, send)
            return
        rules = await self._rules(caller) if isinstance(answer, Response) else None
        opened = _OpenResponse(caller, rules)
        task = opened.task = asyncio.ensure_future(answer(scope, receive, send))
        self._open.add(opened)
        try:
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()
            elif kind == EVENTS:  # another format would look complete
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(SWEEP_S):
                        await send({"type": "http.response.body", "body": b""})
        finally:
            self._open.discard(opened)
            if not task.done():  # the request itself was cancelled
                task.cancel()
                await asyncio.wait({task})

    async def end(self) -> None:
        """Cut off all streams, which have no end of their own: the listener ends."""
        for each in list(self._open):
            if each.task is not None:
                each.task.cancel()

    async def _rules(self, caller: Caller) -> tuple[int, int]:
        """Return a mark that changes with the rules of a caller's role and a lowered label."""
        if caller.principal is None:
            return 0, 0
        authenticator = await self._authenticator(caller.workspace)
        who = caller.principal
        return authenticator.rules_version(who.role), authenticator.lowered(who.name)

    async def sweep(self) -> None:
        """Cut off streams, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            valid: dict[tuple[str, str, str], bool] = {}
            for each in list(self._open):
                caller = each.caller
                token = "" if caller.principal is None else caller.principal.token_id
                key = (caller.workspace, token, caller.secret)
                if key not in valid:
                    valid[key] = caller.valid()
                is_valid = valid[key]
                with contextlib.suppress(HansardError):  # of a record that is not there now
                    is_valid = is_valid and each.rules in (None, await self._rules(caller))
                if not is_valid and each.task is not None:
                    each.task.cancel()


class _OpenResponse(msgspec.Struct, eq=False):
    """An open stream: its caller, and the rules that it began under."""

    caller: Caller
    rules: tuple[int, int] | None
    task: asyncio.Future[None] | None = None


def _demand_same(own: str, named: str | None) -> None:
    """Raise NotFound if a principal names another workspace than its own."""
    if named not in (None, own):
        raise absent(str(named))


def absent(workspace: str) -> NotFound:
    """Return the error for a workspace that is absent, or hidden from its caller."""
    return NotFound(f"workspace {workspace!r:.80}", "see 'hansard status' for those that exist")


def demand_own_page(headers: Mapping[str, str]) -> None:
    """Refuse requests that another site made the caller's browser send. Raises CallerRefused.

    `foreign` compares host names. Here the port counts, too: another server on this machine is
    another site, although browsers send it the same cookies.
    """
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != headers.get("host"):
        raise CallerRefused(HTTPStatus.FORBIDDEN, f"a page of {origin!r:.80} cannot use this login")
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode")
    if site not in {"none", "same-origin"} and mode != "navigate":
        raise CallerRefused(HTTPStatus.FORBIDDEN, "a page of another site cannot use this login")


def demand_intent(method: str, headers: Mapping[str, str], caller: Caller) -> None:
    """Refuse a change that the caller's own page did not send. Raises CallerRefused."""
    demand_own_page(headers)
    if method not in READS and not hmac.compare_digest(
        headers.get(CSRF, "").encode(), caller.csrf.encode()
    ):
        fact = "no valid header Hansard-CSRF: send the 'csrf' of GET /api/v1/me"
        raise CallerRefused(HTTPStatus.FORBIDDEN, fact)


def cookies(header: str) -> dict[str, str]:
    """Return the cookies of a header; of several with one name the first."""
    parsed: dict[str, str] = {}
    for match in _COOKIE.finditer(header):
        parsed.setdefault(match["name"], match["value"])
    return parsed


def set_cookie(name: str, secret: str, *, secure: bool) -> str:
    """Return the header that sets a session's cookie, or removes it with an empty secret."""
    ends = "" if secret else "; Max-Age=0"
    return f"{name}={secret}; Path=/; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}{ends}"


def local_path(text: str) -> str:
    """Return a path of this server to go to after the login. Raises CallerRefused for another."""
    if text and not _NEXT.fullmatch(text):
        fact = f"next={text!r:.80} is not a path of this server: give one such as /ws/default/runs"
        raise CallerRefused(HTTPStatus.BAD_REQUEST, fact)
    return text or "/"


# ------------------------------------------------------------ the header of a proxy


class _Header(msgspec.Struct):
    """Header of a JWT (RFC 7519): only HS256 is accepted, whatever it states."""

    alg: Literal["HS256"]


class Claims(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Claims of a proxy about the caller; `iat` and `exp` are seconds since 1970."""

    aud: Literal["hansard"]
    iat: float
    exp: float
    sub: str = ""
    role: str = ""
    workspace: str = ""
    operator: bool = False


def signed(key: bytes, claims: Claims) -> str:
    """Return the header of a proxy: a JWT with the claims."""
    parts = (msgspec.json.encode(_Header("HS256")), msgspec.json.encode(claims))
    text = b".".join(map(_base64, parts))
    return (text + b"." + _base64(hmac.digest(key, text, "sha256"))).decode()


def _claims(key: bytes, header: str) -> Claims:
    """Return the claims of a valid header. Raises CallerRefused."""
    text, _, signature = header.rpartition(".")
    first, _, second = text.partition(".")
    try:
        if hmac.compare_digest(_bytes(signature), hmac.digest(key, text.encode(), "sha256")):
            msgspec.json.decode(_bytes(first), type=_Header)
            claims = msgspec.json.decode(_bytes(second), type=Claims)
            now_s = time.time()
            is_timely = claims.iat - CLOCK_SKEW_S <= now_s < claims.exp
            is_one = claims.operator != bool(claims.sub and claims.role and claims.workspace)
            if is_timely and is_one and claims.exp - claims.iat <= CLAIMS_S_MAX:
                return claims
    except (ValueError, binascii.Error, msgspec.DecodeError):
        pass  # answered as a wrong signature
    fact = (
        "the header Hansard-Identity is not valid: compare the key and the clock of the proxy, "
        "and see docs/login.md for its claims"
    )
    raise CallerRefused(HTTPStatus.UNAUTHORIZED, fact)


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), b"-_", validate=True)
