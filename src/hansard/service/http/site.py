"""The page's files, its login, and the headers that keep other sites' code out of it."""

from __future__ import annotations

import gzip
import hashlib
import html
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response

from hansard import web
from hansard.client.opening import data_dir_of
from hansard.service.http.identity import CSRF, Identity, demand_own_page, local_path, set_cookie
from hansard.service.http.logins import Grant, Link, Logins
from hansard.service.http.problems import CallerRefused
from hansard.service.http.routes import Caller, Context, read

FORM_BYTES_MAX = 4_096
"""Largest form of a login."""

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


class File(msgspec.Struct, frozen=True):
    """A file of the page, as it is sent."""

    mark: tuple[int, int]
    body: bytes
    packed: bytes
    etag: str


class Files:
    """The built files of the page. Only files that are there by name are ever opened."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(web.__file__).parent / "static"
        self._cache: dict[str, File] = {}

    def answer(self, name: str, headers: Mapping[str, str]) -> Response | None:
        """Return the answer with a file; None if there is no such file."""
        suffix = Path(name).suffix
        file = self._read(name) if suffix in CONTENT_TYPES else None
        if file is None:
            return None
        is_packed = "gzip" in headers.get("accept-encoding", "") and len(file.packed) > 0
        etag = f'"{file.etag}{"-gzip" if is_packed else ""}"'
        keep = "public, max-age=31536000, immutable" if _HASHED.search(name) else "no-cache"
        sent = {"ETag": etag, "Cache-Control": keep, "Vary": "Accept-Encoding"}
        if etag in {each.strip() for each in headers.get("if-none-match", "").split(",")}:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=sent)
        if is_packed:
            sent["Content-Encoding"] = "gzip"
        return Response(
            file.packed if is_packed else file.body,
            headers=sent | {"Content-Type": CONTENT_TYPES[suffix]},
        )

    def _read(self, name: str) -> File | None:
        path = self._folder / name
        names = {each.relative_to(self._folder).as_posix() for each in self._folder.rglob("*")}
        if name not in names or not path.is_file():
            return None
        status = path.stat()
        mark = status.st_mtime_ns, status.st_size
        file = self._cache.get(name)
        if file is None or file.mark != mark:
            body = path.read_bytes()
            packed = gzip.compress(body, mtime=0) if len(body) >= GZIP_BYTES_MIN else b""
            etag = hashlib.sha256(body).hexdigest()[:32]
            file = self._cache[name] = File(mark, body, packed, etag)
        return file


class Site:
    """Answers the paths of the page: its files, its views, and the login."""

    def __init__(self, identity: Identity, files: Files | None = None) -> None:
        self._identity = identity
        self._files = files or Files()

    async def answer(self, request: Request, workspaces: Workspaces) -> Response | None:
        """Return the answer to a path of the page; None for another path. Raises CallerRefused."""
        path, method = request.url.path, request.method
        match method, path:
            case "GET", "/login":
                return login_form(request)
            case "POST", "/login":
                return await log_in(request, self._identity)
            case "GET", "/logout":
                return logout_form(await self._caller(request))
            case "POST", "/logout":
                return await log_out(request, self._identity)
            case "GET", "/api/v1/me":
                caller = await self._caller(request)
                own = await workspaces() if caller.is_operator else []
                body = msgspec.json.encode(me(caller, own))
                return Response(body, 200, {"Cache-Control": PRIVATE}, "application/json")
            case _:
                pass
        if method not in {"GET", "HEAD"}:
            return None
        if path.startswith(FILES):
            return self._files.answer(path.removeprefix(FILES), request.headers)
        if path in {"/", VIEWS} or path.startswith(f"{VIEWS}/"):
            return await self._view(request)
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
            return login_needed(request)
        answer = self._files.answer("index.html", request.headers)
        if answer is None:
            body = "<p>This installation has no built page: run <code>make web</code>.</p>"
            return page("There is no page", body, HTTPStatus.NOT_FOUND)
        return answer


# ------------------------------------------------------------ login

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title} - Hansard</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/login.css">
<main>
<h1>{title}</h1>
{body}
</main>
"""

_FORM = """<form method="post" action="/login">
<input type="hidden" name="code" value="{code}">
<input type="hidden" name="next" value="{next}">
<button autofocus>Log in</button>
</form>
<p>The link works once, within 60 seconds. This browser then stays logged in for 7 days, or until
it is not used for 12 hours.</p>"""

_LOGOUT = """<form method="post" action="/logout">
<input type="hidden" name="csrf" value="{csrf}">
<p>You are logged in as {who}.</p>
<button autofocus>Log out</button>
</form>"""

_NO_LOGIN = """<p>Run <code>hansard login</code> on the machine of the service, or
<code>hansard login --credentials FILE --url {url}</code> with your credentials, and open the link
that it prints.</p>"""


def page(title: str, body: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Return a page without data of the record."""
    text = _PAGE.format(title=html.escape(title), body=body)
    headers = {"Cache-Control": PRIVATE}
    return Response(text, status, headers, media_type="text/html; charset=utf-8")


def login_needed(request: Request) -> Response:
    """Return the page for a browser without a login."""
    body = _NO_LOGIN.format(url=_own_url(request))
    return page("You are not logged in", body, HTTPStatus.UNAUTHORIZED)


def login_form(request: Request) -> Response:
    """Return the page of a link. It uses nothing up: a preview of the link must not log in."""
    code, path = request.query_params.get("code", ""), request.query_params.get("next", "")
    body = _FORM.format(code=html.escape(code), next=html.escape(local_path(path)))
    return page("Log in to Hansard", body)


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
        body = f"<p>{html.escape(str(refused))}.</p>"
        return page("This link does not work", body, refused.status)
    cookie = set_cookie(identity.cookie, secret, secure=identity.is_secure)
    headers = {"Set-Cookie": cookie, "Cache-Control": PRIVATE}
    return RedirectResponse(path, HTTPStatus.SEE_OTHER, headers)


def logout_form(caller: Caller) -> Response:
    """Return the page that ends the session."""
    who = "the operator" if caller.principal is None else caller.principal.name
    role = "" if caller.principal is None else f" in the role {caller.principal.role}"
    body = _LOGOUT.format(who=html.escape(who + role), csrf=caller.csrf)
    return page("Log out of Hansard", body)


async def log_out(request: Request, identity: Identity) -> Response:
    """End the session of a request; the CSRF token is in its form, or in the header."""
    form = await _form(request)
    headers = dict(request.headers)
    headers.setdefault(CSRF, form.get("csrf", ""))
    caller = await identity.caller(request.method, headers, None)
    identity.logins.end(caller.secret)
    answer = page("You are logged out", _NO_LOGIN.format(url=_own_url(request)))
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
    return html.escape(str(request.base_url).rstrip("/"))


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises CallerRefused if it is too large, or cut off."""
    taken = bytearray()
    try:
        async for chunk in request.stream():
            taken += chunk
            if len(taken) > FORM_BYTES_MAX:
                fact = f"a form of more than {FORM_BYTES_MAX:,} bytes"
                raise CallerRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, fact)
    except ClientDisconnect:
        raise CallerRefused(HTTPStatus.BAD_REQUEST, "the client has left") from None
    try:
        fields = parse_qs(taken.decode("ascii", "replace"), max_num_fields=10)
    except ValueError:
        raise CallerRefused(HTTPStatus.BAD_REQUEST, "a form of more than 10 fields") from None
    return {name: values[0] for name, values in fields.items()}
