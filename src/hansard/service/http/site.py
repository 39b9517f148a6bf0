"""The page's files, its login, and the headers that keep other sites' code out of it."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from hansard import web
from hansard.client.opening import data_dir_of
from hansard.service.http.identity import CSRF, Identity, demand_own_page, local_path, set_cookie
from hansard.service.http.logins import Grant, Link, Logins
from hansard.service.http.problems import CallerRefused
from hansard.service.http.routes import Caller, Context, body_of, read
from hansard.web.pages import login_page

FORM_BYTES_MAX, FORM_FIELDS_MAX = 4_096, 10
"""Limits of a login form: its size in bytes, and its number of fields."""

GZIP_BYTES_MIN = 1_000
"""Files from this size on are compressed."""

Workspaces = Callable[[], Awaitable[list[str]]]
"""Returns the names of the workspaces that are served."""

VIEWS = "/ws"
"""Prefix of the addresses of views."""

FILES = "/static/"
"""Prefix of the page's files."""

CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}

PRIVATE = "no-store"
"""Cache-Control of answers that hold data of the record."""

_HASHED = re.compile(r"[.-][0-9A-Za-z]{8,}\.[a-z0-9]+$")
"""End of a file name that changes with its content."""

_FOLDER = Path(web.__file__).parent / "static"
_NAME = re.compile(r"(?:[\w-]+/)*[\w.-]+")
"""Name of a file of the page: no segment of it leads out of the folder."""


@lru_cache
def _packed(path: Path, changed_ns: int) -> tuple[bytes, bytes, str]:
    """Return a file, its compressed form, empty for a small one, and its digest."""
    del changed_ns
    body = path.read_bytes()
    packed = gzip.compress(body, mtime=0) if len(body) >= GZIP_BYTES_MIN else b""
    return body, packed, hashlib.sha256(body).hexdigest()[:32]


def file(name: str, headers: Mapping[str, str]) -> Response | None:
    """Return the answer with a file of the page; None if there is no such file."""
    path = _FOLDER / name
    kind = CONTENT_TYPES.get(path.suffix)
    if kind is None or not _NAME.fullmatch(name) or not path.is_file():
        return None
    body, packed, digest = _packed(path, path.stat().st_mtime_ns)
    is_packed = "gzip" in headers.get("accept-encoding", "") and bool(packed)
    etag = f'"{digest}{"-gzip" if is_packed else ""}"'
    keep = "public, max-age=31536000, immutable" if _HASHED.search(name) else "no-cache"
    sent = {"ETag": etag, "Cache-Control": keep, "Vary": "Accept-Encoding"}
    if etag in {each.strip() for each in headers.get("if-none-match", "").split(",")}:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=sent)
    if is_packed:
        sent["Content-Encoding"] = "gzip"
    return Response(packed if is_packed else body, headers=sent, media_type=kind)


class Site:
    """Answers the paths of the page: its files, its views, and the login."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    async def answer(self, request: Request, workspaces: Workspaces) -> Response | None:
        """Return the answer to a path of the page; None for another path. Raises CallerRefused."""
        path, method = request.url.path, request.method
        match method, path:
            case "GET", "/login":
                # It uses nothing up: a preview of the link must not log in.
                query = request.query_params
                following = local_path(query.get("next", ""))
                return page("login", code=query.get("code", ""), next=following)
            case "POST", "/login":
                return await log_in(request, self._identity)
            case "GET", "/logout":
                caller = await self._caller(request)
                return page("logout", who=caller.principal, csrf=caller.csrf)
            case "POST", "/logout":
                return await log_out(request, self._identity)
            case "GET", "/api/v1/me":
                caller = await self._caller(request)
                own = await workspaces() if caller.is_operator else []
                body = msgspec.json.encode(me(caller, own))
                return Response(body, 200, {"Cache-Control": PRIVATE}, "application/json")
            case "GET" | "HEAD", _ if path.startswith(FILES):
                return file(path.removeprefix(FILES), request.headers)
            case "GET" | "HEAD", _ if path in {"/", VIEWS} or path.startswith(f"{VIEWS}/"):
                return await self._view(request)
            case _:
                return None

    async def _caller(self, request: Request) -> Caller:
        return await self._identity.caller(request.method, request.headers, None)

    async def _view(self, request: Request) -> Response:
        """Return the page, the same for all views; a page about the login without one."""
        try:
            await self._caller(request)
        except CallerRefused as refused:
            if refused.status is not HTTPStatus.UNAUTHORIZED:
                raise
            return page("needed", refused.status, url=_own_url(request))
        answer = file("index.html", request.headers)
        return answer or page("unbuilt", HTTPStatus.NOT_FOUND)


# ------------------------------------------------------------ login


def page(view: str, status: HTTPStatus = HTTPStatus.OK, **values: object) -> Response:
    """Return a page without data of the record."""
    headers = {"Cache-Control": PRIVATE}
    return Response(login_page(view, **values), status, headers, "text/html; charset=utf-8")


async def log_in(request: Request, identity: Identity) -> Response:
    """Begin a session with the code of a form, and go to the page that the link names.

    Raises CallerRefused.
    """
    form = await _form(request)
    path = local_path(form.get("next", ""))
    demand_own_page(request.headers)
    try:
        secret = identity.log_in(form.get("code", ""), request.headers)
    except CallerRefused as refused:
        return page("refused", refused.status, fact=str(refused))
    cookie = set_cookie(identity.cookie, secret, secure=identity.is_secure)
    headers = {"Set-Cookie": cookie, "Cache-Control": PRIVATE}
    return RedirectResponse(path, HTTPStatus.SEE_OTHER, headers)


async def log_out(request: Request, identity: Identity) -> Response:
    """End the session of a request; the CSRF token is in its form, or in the header."""
    form = await _form(request)
    headers = {CSRF: form.get("csrf", ""), **request.headers}
    caller = await identity.caller(request.method, headers, None)
    identity.logins.end(caller.secret)
    answer = page("ended", url=_own_url(request))
    answer.headers["Set-Cookie"] = set_cookie(identity.cookie, "", secure=identity.is_secure)
    return answer


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request.

    Attributes:
        operator: True for the operator of the service, who may see and do everything.
        principal: The principal; null for the operator.
        role: Its role.
        kind: Its kind: agent, person or service.
        way: Proof of the identity: token, cookie or proxy.
        csrf: Value of the header Hansard-CSRF in requests that change something; empty for tokens.
        expires: End of the principal's token (RFC 3339); null if it does not expire.
        workspaces: The workspaces that the caller may open.
    """

    operator: bool
    principal: str | None
    role: str | None
    kind: str | None
    way: str
    csrf: str
    expires: str | None
    workspaces: list[str]


def me(caller: Caller, workspaces: list[str]) -> Me:
    """Describe a caller; `workspaces` are those of an operator."""
    who = caller.principal
    return Me(
        operator=caller.is_operator,
        principal=None if who is None else who.name,
        role=None if who is None else who.role,
        kind=None if who is None else who.kind.value,
        way=caller.way,
        csrf=caller.csrf,
        expires=who.expires.isoformat() if who is not None and who.expires is not None else None,
        workspaces=workspaces if who is None else [caller.workspace],
    )


class LinkRequest(msgspec.Struct, frozen=True):
    """A request for a link that logs a browser in; `next` is the page to open after the login."""

    next: str = ""


class NewLink(msgspec.Struct, frozen=True):
    """A link that works once, within `seconds`. `code` is the secret part of it."""

    url: str
    code: str
    seconds: float


@read("/me")
async def whoami(context: Context) -> Me:
    """Return the caller, and the token that its changes must carry."""
    return me(context.caller, [context.workspace.name])


@read("/logins", method="POST")  # not repeated: its answer, a secret, is not kept
async def logins(context: Context, body: LinkRequest) -> NewLink:
    """Create a link that logs a browser in as the caller.

    It works once, within 60 seconds. Only a bearer token creates links: a page cannot copy its own
    login.
    """
    caller = context.caller
    if caller.way != "token":
        raise CallerRefused(HTTPStatus.FORBIDDEN, "links are created with a bearer token only")
    who = caller.principal
    grant = Grant()
    if who is not None:
        grant = Grant(principal=who.name, token=who.token_id, workspace=caller.workspace)
    code = Logins(data_dir_of(context.workspace.settings)).link(grant)
    link = Link.of(str(context.request.base_url), code, body.next and local_path(body.next))
    return NewLink(link.url, code, link.seconds)


def _own_url(request: Request) -> str:
    return str(request.base_url).rstrip("/")


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises CallerRefused if it is too large, or cut off."""
    body = await body_of(request, FORM_BYTES_MAX)
    try:
        return dict(
            parse_qsl(body.decode("ascii", "replace"), max_num_fields=FORM_FIELDS_MAX)[::-1]
        )
    except ValueError:
        fact = f"a form of more than {FORM_FIELDS_MAX} fields"
        raise CallerRefused(HTTPStatus.BAD_REQUEST, fact) from None
