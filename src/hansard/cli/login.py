"""Commands `hansard login` and `logout`: sessions of browsers with the HTTP service."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
import webbrowser
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import msgspec

from hansard.broker import access
from hansard.cli import output
from hansard.cli.common import Commands, flag, option
from hansard.cli.opening import settings
from hansard.cli.output import Hint
from hansard.client.opening import data_dir_of
from hansard.domain.choices import counted
from hansard.domain.errors import BadValue
from hansard.service.http.logins import LINK_S, TOKEN_S, Grant, Link, Logins, listeners

app = Commands()

REQUEST_S = 30.0
"""Longest wait for the service, in seconds."""

ANSWER_BYTES_MAX = 64 * 1024

Credentials = Annotated[
    Path | None, option("Log in as the principal of this file [as the operator].", "FILE")
]
Url = Annotated[str | None, option("The service's address [one that runs on this record].", "URL")]


@app.command()
async def login(
    credentials: Credentials = None,
    url: Url = None,
    ca: Annotated[
        Path | None, option("With --credentials: certificates to trust for https.", "FILE")
    ] = None,
    path: Annotated[
        str, option("Page to open after the login, such as /ws/default.", "PATH", "--next")
    ] = "",
    open_: Annotated[bool, flag("--open", "Open the link in a browser of this machine.")] = False,
    token: Annotated[
        bool, flag("--token", "Print a token for programs and MCP clients instead, for 30 days.")
    ] = False,
) -> None:
    """Print a link that logs a browser in to 'hansard up --http'.

    The link works once, within 60 seconds. The browser sees and does everything; with
    --credentials, what the role of the file may.
    """
    if token:
        _print_token(credentials, url)
        return
    if credentials is None:
        link = Link.of(url or _own_url(), Logins(data_dir_of(settings())).link(Grant()), path)
    else:
        link = await asyncio.to_thread(_requested, access.load(credentials), url, ca, path)
    who = "the operator" if credentials is None else f"the principal of {credentials}"
    hint = Hint(f"logs a browser in as {who}, once, within {LINK_S:g} s")
    output.show(link, [link.url, hint])
    if open_:
        webbrowser.open(link.url)


@app.command()
async def logout() -> None:
    """End all browser sessions of this record's services.

    Unused links and tokens of 'hansard login --token' end, too. Tokens of credentials stay valid:
    see 'hansard principals revoke'.
    """
    ended = Logins(data_dir_of(settings())).end_all()
    output.show({"ended": ended}, f"{counted(ended, 'session')} ended")


def _print_token(credentials: Path | None, url: str | None) -> None:
    """Print a new token of the operator. Raises BadValue for a principal, whose file has one."""
    if credentials is not None:
        remedy = "send the 'token' of that file, or leave --credentials out"
        raise BadValue("--token", "it is the operator's, and --credentials is given", remedy)
    base = (url or _own_url()).rstrip("/")
    made = OperatorToken(Logins(data_dir_of(settings())).token(), f"{base}/mcp", TOKEN_S)
    hint = (
        f"for 30 days, of the operator; clients send 'Authorization: Bearer TOKEN', to {made.mcp}"
    )
    output.show(made, [made.token, Hint(f"{hint} for MCP; end it: hansard logout")])


class OperatorToken(msgspec.Struct, frozen=True):
    """A token of the operator, the address of the MCP server, and the token's validity."""

    token: str
    mcp: str
    seconds: float


def _own_url() -> str:
    """Return the URL of the newest service on this record. Raises BadValue."""
    folder = data_dir_of(settings())
    running = listeners(folder)
    if not running:
        fact = f"no 'hansard up --http' runs on {str(folder)!r}"
        raise BadValue("--url", fact, "start it, or name its address with --url")
    if len(running) > 1:
        others = ", ".join(each.url for each in running[1:])
        output.hint(f"of several services the newest; others: {others}")
    return running[0].url


def _requested(who: access.Credentials, url: str | None, ca: Path | None, path: str) -> Link:
    """Request a link from the service. Raises BadValue."""
    base = (url or _own_url()).rstrip("/")
    parts = urlsplit(base)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BadValue("--url", f"{base!r:.80}", "give http://HOST:PORT or https://HOST")
    request = urllib.request.Request(  # noqa: S310 -- its scheme was checked
        f"{base}/api/v1/{quote(who.workspace)}/logins",
        data=msgspec.json.encode({"next": path}),
        headers={"Authorization": f"Bearer {who.token}", "Content-Type": "application/json"},
    )
    try:
        context = ssl.create_default_context(cafile=ca)
        handlers: list[Any] = [urllib.request.HTTPSHandler(context=context)]
        if parts.hostname in {"127.0.0.1", "localhost", "::1"}:
            handlers.append(urllib.request.ProxyHandler({}))  # no proxy reaches this machine
        opener = urllib.request.build_opener(*handlers)
        with opener.open(request, timeout=REQUEST_S) as answer:
            code = msgspec.json.decode(answer.read(ANSWER_BYTES_MAX), type=_Code)
    except urllib.error.HTTPError as error:
        with error:
            fact = _detail(error.read(ANSWER_BYTES_MAX)) or f"status {error.code}"
        remedy = "check the credentials (hansard principals) and the address"
        raise BadValue("--credentials", f"{base} refuses them: {fact}", remedy) from None
    except (OSError, msgspec.DecodeError) as error:
        fact = f"{base} cannot be used: {getattr(error, 'reason', error)}"
        raise BadValue("--url", fact, "name the address of 'hansard up --http'") from error
    return Link.of(base, code.code, path)


class _Code(msgspec.Struct):
    code: str


def _detail(body: bytes) -> str:
    """Return the detail of a problem document; empty for another answer."""
    try:
        problem: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ""
    return str(problem.get("detail", "")) if isinstance(problem, dict) else ""
