"""A local reverse proxy before providers of models: each request is a step of one session.

A program reaches it by the providers' base-URL variables: `/SECRET/PROVIDER/...` is passed to that
provider. Its bytes pass unchanged, piece by piece. A recorded call is answered from the record,
without the provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
from starlette.types import Message, Receive, Scope, Send

from hansard.agents.errors import Blocked, Miss
from hansard.agents.steps.scope import Scope as Steps
from hansard.agents.steps.scope import enter, leave
from hansard.bus.loggers import logger
from hansard.client.listening import LOCAL, Address, listen
from hansard.client.session import AsyncSession
from hansard.domain.errors import HansardError
from hansard.ext.models.clients import STEP_HEADER
from hansard.ext.models.exchange import (
    BROKEN,
    CLOSED,
    COMPLETE,
    Closed,
    Exchange,
    Headers,
    Received,
    Request,
    Rules,
    Unreached,
    awaited,
    errors,
    pieces_of,
    with_texts,
)
from hansard.ext.models.providers import PROVIDERS, Provider

_log = logger(__name__)

BODY_BYTES_MAX = 256 * 2**20
"""Largest body of a request."""

DISCARDED_BYTES_MAX = 16 * 2**30
"""Most bytes of a larger body that are received before it is refused: a client that is still
sending when the connection closes does not read why.
"""

TIMEOUT = httpx2.Timeout(600.0, connect=15.0)
"""Seconds that a provider may be silent, and that a connection may take."""

CLIENT_WAIT_S = 5.0
"""Seconds that a replay waits for the client to close an exchange, as it did on record."""

VERTEX = "vertex"

SCOPE = "models"
"""Name of the scope of the requests in a run."""

URL_HEADER = "x-hansard-url"
"""Header in which this process names the address that a request is for."""

OWN_HEADERS = (STEP_HEADER, URL_HEADER)

HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te"),
        *("trailer", "transfer-encoding", "upgrade", "proxy-connection"),
    }
)
"""Headers of one connection, which are not passed on."""

NO_RETRY = ("x-should-retry", "false")
"""Header of a refusal, by which the SDKs of OpenAI and Anthropic do not repeat the request."""

STATUSES = {Unreached: HTTPStatus.BAD_GATEWAY, Blocked: HTTPStatus.FORBIDDEN}
"""Statuses of refusals; any other is 422."""

NO_WEBSOCKET = (
    "WebSocket connections are not recorded, so hansard refuses them: use the provider's HTTP "
    "API with stream=true instead"
)


class ModelReport(msgspec.Struct):
    """Numbers of a proxy.

    Attributes:
        calls: Requests that were answered.
        from_record: Requests answered without the provider.
        input_tokens: Tokens of the calls that went to the provider.
        output_tokens: As above.
        refused: Why requests were refused, each in a line.
    """

    calls: int = 0
    from_record: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    refused: list[str] = []


class ModelProxy:
    """The proxy of one session, as an ASGI application.

    Args:
        session: The session whose steps the requests are.
        upstreams: Base URLs by provider.
        pace: Whether recorded pieces are sent at the pace at which they were received.
        rules: The rules of its exchanges.
    """

    def __init__(
        self,
        session: AsyncSession,
        upstreams: Mapping[str, str],
        *,
        pace: bool = False,
        rules: Rules | None = None,
    ) -> None:
        self._session = session
        self._scope: Steps = session.engine.ledger.root.item(SCOPE)
        self._scope.forgets = True
        self._upstreams = upstreams
        self._pace = pace
        self._rules = rules or Rules()
        self.secret = secrets.token_urlsafe(12)
        self.url = ""
        """Its address, while it serves."""
        self.report = ModelReport()
        self._client: httpx2.AsyncClient | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[str]:
        """Serve on a free port of this machine inside the block; provide the base URL."""
        ledger = self._session.engine.ledger
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=100)
        listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # Requests have no order: each overlaps the scope's open call, and is found by its identity.
        ledger.enter_call(self._scope)
        token = enter(self._scope)
        try:
            async with httpx2.AsyncClient(timeout=TIMEOUT, limits=limits) as self._client:
                serving = asyncio.ensure_future(
                    listen(
                        self,
                        Address.of("0"),
                        f"/{self.secret}",
                        listening.set_result,
                        date_header=False,
                        proxy_headers=False,
                        log_level="critical",
                    )
                )
                try:
                    first: set[asyncio.Future[Any]] = {serving, listening}
                    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
                    if serving.done():
                        await serving
                    self.url = listening.result()
                    yield self.url
                finally:
                    serving.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await serving
        finally:
            leave(token)
            ledger.leave_call(self._scope)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        _, secret, name, *rest = [*raw.decode("latin-1").split("/"), "", ""]
        path = "/".join(rest[:-2])
        if not secrets.compare_digest(secret, self.secret) or name not in self._upstreams:
            await _refuse(send, None, HTTPStatus.NOT_FOUND, "no provider has this path")
            return
        provider = next(each for each in PROVIDERS if each.name == name)
        if headers.get("upgrade", "").lower() == "websocket":
            await self._refused(send, provider, HTTPStatus.NOT_IMPLEMENTED, NO_WEBSOCKET)
            return
        query = scope["query_string"].decode("latin-1")
        url = self._upstreams[name].rstrip("/") + f"/{path}" + (f"?{query}" if query else "")
        url = headers.get(URL_HEADER, url)
        parts = urlsplit(url)
        try:
            body = await _body(receive)
        except Closed:
            return
        if body is None:
            await self._refused(send, provider, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large())
            return
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        request = Request.of(name, scope["method"], path, headers, body)
        await self._answer(provider, request, url, scope, receive, send)

    async def _answer(
        self,
        provider: Provider,
        request: Request,
        url: str,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        request = with_texts(self._session, request)
        gone = asyncio.ensure_future(_gone(receive))
        fields = [(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"]]
        acknowledged = asyncio.Event()
        passes = partial(self._send, request, url, fields, gone, acknowledged)
        reply = _Reply(send, gone, pace=self._pace)
        token = enter(self._scope)
        exchange = Exchange(self._session, request, passes, self._rules, acknowledged)
        gone.add_done_callback(lambda _: exchange.close())
        self.report.calls += 1
        try:
            async with aclosing(self._items(exchange)) as items:
                async for item in items:
                    exchange.observe(item)
                    await reply.item(item, exchange)
            await reply.end(exchange)
            for each in exchange.new_messages():
                await self._session.message(each.role, each.content, fields=each.fields)
        except HansardError as error:
            status = HTTPStatus.UNPROCESSABLE_ENTITY
            if isinstance(error, Unreached | Blocked):
                status = STATUSES[type(error)]
            why = summary = str(error)
            if isinstance(error, Miss):
                why = summary = f"{request.method} {request.shown_path} is not on record"
                if near := await self._session._flow(exchange.nearest()):  # noqa: SLF001 -- reads the record
                    why, summary = f"{why}; {near}", f"{why}; {near.summary}"
            is_late = reply.has_begun
            await self._refused(send, provider, status, why, summary=summary, is_late=is_late)
        except Exception as error:  # noqa: BLE001 -- the client gets every error
            _log.exception("a request failed", provider=provider.name, path=request.shown_path)
            why = f"{type(error).__name__}: {error}"
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            await self._refused(send, provider, status, why, is_late=reply.has_begun)
        else:
            self.report.from_record += not exchange.ran
        finally:
            exchange.drop()
            gone.cancel()
            leave(token)
        if exchange.ran and exchange.facts is not None:
            self.report.input_tokens += exchange.facts.input_tokens or 0
            self.report.output_tokens += exchange.facts.output_tokens or 0

    def _items(self, exchange: Exchange) -> Any:
        """Return the items of an exchange: recorded ones, or those of the provider."""
        return exchange.items_async()

    async def _refused(
        self,
        send: Send,
        provider: Provider,
        status: HTTPStatus,
        why: str,
        *,
        summary: str = "",
        is_late: bool = False,
    ) -> None:
        """Refuse a request; if it is too late for that, the server closes the connection."""
        self.report.refused.append(summary or why)
        _log.info("a request was refused", provider=provider.name, why=why)
        if not is_late:
            await _refuse(send, provider, status, why)

    async def _send(
        self,
        request: Request,
        url: str,
        headers: Headers,
        gone: asyncio.Future[None],
        acknowledged: asyncio.Event,
    ) -> Received:
        """Send a request to the provider, the body once the intent is acknowledged.

        Raises Unreached, Broken, Closed.
        """
        assert self._client is not None  # noqa: S101 -- it serves
        passed = [
            (name, value)
            for name, value in headers
            if name not in HOP_BY_HOP and name not in ("host", "content-length", *OWN_HEADERS)
        ]
        if request.body:
            passed.append(("content-length", str(len(request.body))))

        async def body() -> AsyncGenerator[bytes]:
            await acknowledged.wait()
            yield request.body

        content = body() if request.body else None
        try:
            sent = httpx2.Request(request.method, url, headers=passed, content=content)
        except httpx2.InvalidURL as error:
            message = f"{url.partition('?')[0]!r:.200} is no address of a provider: {error}"
            raise Unreached(message) from error
        with errors(httpx2, f"{request.provider} at {urlsplit(url).netloc}"):
            sending = asyncio.ensure_future(self._client.send(sent, stream=True))
            return Received(await _unless(gone, sending), httpx2, awaited)


class _Reply:
    """The response to a client, from the items of an exchange."""

    def __init__(self, send: Send, gone: asyncio.Future[None], *, pace: bool) -> None:
        self._send = send
        self._gone = gone
        self._pace = pace
        self._began_s = time.monotonic()
        self.has_begun = False
        self._left: int | None = None
        """Bytes of the body to come, if the provider announced them."""
        self._held = b""
        self._ending: Mapping[str, Any] = {}

    async def item(self, item: Mapping[str, Any], exchange: Exchange) -> None:
        """Send an item."""
        if "head" in item:
            headers = exchange.headers if exchange.ran else item["head"]["headers"]
            await self._send(
                {
                    "type": "http.response.start",
                    "status": item["head"]["status"],
                    "headers": [
                        (name.encode("latin-1"), value.encode("latin-1"))
                        for name, value in headers
                        if name.lower() not in HOP_BY_HOP
                    ],
                }
            )
            self.has_begun = True
            length = dict(headers).get("content-length", "")
            self._left = int(length) if length.isdecimal() else None
        elif "chunk" in item:
            if exchange.ran:
                for data in exchange.pieces:
                    await self._piece(data)
            else:
                for data, ms in pieces_of(item["chunk"]):
                    if self._pace:
                        await self._wait(ms / 1000)
                    await self._piece(data)
        else:
            self._ending = item["end"]

    async def _piece(self, data: bytes) -> None:
        if self._left is not None:
            self._left -= len(data)
        if self._left == 0:  # the client takes it as the end
            self._held = data
        else:
            await self._body(data)

    async def _body(self, data: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _wait(self, at_s: float) -> None:
        """Wait until a time of the recorded exchange, or until the client is gone."""
        left_s = self._began_s + at_s - time.monotonic()
        if left_s > 0:
            await asyncio.wait({self._gone}, timeout=left_s)

    async def end(self, exchange: Exchange) -> None:
        """End the response, now that the exchange is on record."""
        how = self._ending.get("how")
        if how == CLOSED and not exchange.ran:
            await asyncio.wait({self._gone}, timeout=CLIENT_WAIT_S)
        if how == COMPLETE:
            await self._body(self._held, more=False)
        elif not self.has_begun and how == BROKEN:
            why = f"the provider closed the connection without an answer: {self._ending['error']}"
            await _refuse(self._send, None, HTTPStatus.BAD_GATEWAY, why)
        # Otherwise the response stays incomplete: the server closes the connection.


async def _gone(receive: Receive) -> None:
    """Wait until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _unless(gone: asyncio.Future[None], work: asyncio.Future[Any]) -> Any:
    """Wait for work. Raises Closed if the client is gone before."""
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        work.cancel()
        raise
    if work.done():
        return work.result()
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, httpx2.HTTPError):
        await work
    raise Closed


def too_large() -> str:
    """Return why a body of more than `BODY_BYTES_MAX` is refused."""
    return f"a request has over {BODY_BYTES_MAX:,} bytes: pass a reference to the file instead"


async def _body(receive: Receive) -> bytes | None:
    """Return a request's body; None if it is too large. Raises Closed if its client left."""
    parts: list[bytes] = []
    size = 0
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise Closed
        part = message.get("body", b"")
        size += len(part)
        if size <= BODY_BYTES_MAX:
            parts.append(part)
        else:
            parts.clear()
        if not message.get("more_body") or size > DISCARDED_BYTES_MAX:
            return None if size > BODY_BYTES_MAX else b"".join(parts)


async def _refuse(send: Send, provider: Provider | None, status: HTTPStatus, why: str) -> None:
    """Send an error in the form of a provider; SDKs repeat a request for a bad gateway alone."""
    content = json.dumps(error_of(provider, status, why)).encode()
    headers = [("content-type", "application/json"), ("content-length", str(len(content)))]
    headers += [] if status is HTTPStatus.BAD_GATEWAY else [NO_RETRY]
    raw = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content})


def error_of(provider: Provider | None, status: int, why: str) -> dict[str, Any]:
    """Return an error in the form that a provider's SDK reads."""
    message = why if why.startswith("hansard") else f"hansard: {why}"
    dialect = "openai" if provider is None else provider.dialect
    if dialect == "anthropic":
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}
    if dialect == "google":
        return {"error": {"code": int(status), "message": message, "status": "FAILED_PRECONDITION"}}
    return {"error": {"message": message, "type": "hansard", "param": None, "code": None}}


def upstreams(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the base URLs of the known providers: those of an environment, else the defaults."""
    return {
        each.name: next((environment[name] for name in each.variables if environment.get(name)), "")
        or each.base
        for each in PROVIDERS
    }


def base_urls(proxy: str) -> dict[str, str]:
    """Return the variables by which SDKs find the proxy at a URL.

    Vertex AI has an address in each region: its variables are replaced only if one of them is set.
    """
    announced = (
        each
        for each in PROVIDERS
        if each.name != VERTEX or any(os.environ.get(name) for name in each.variables)
    )
    return {name: f"{proxy}/{each.name}" for each in announced for name in each.variables}


def child_environment(proxy: str) -> dict[str, str]:
    """Return what a child process needs in its environment to be recorded."""
    from hansard.ext.models import clients  # noqa: PLC0415 -- it is written for other interpreters

    hosts = {host: each.name for each in PROVIDERS for host in each.hosts}
    for name, base in upstreams(os.environ).items():
        host = urlsplit(base).hostname
        if host and host not in LOCAL:  # other services of this machine share its name
            hosts.setdefault(host, name)
    site = str(clients.SITE)
    path = os.environ.get("PYTHONPATH")
    known = [os.environ.get(name, "") for name in ("NO_PROXY", "no_proxy")]
    without_proxy = ",".join(dict.fromkeys(filter(None, [*known, "127.0.0.1"])))
    return {
        **base_urls(proxy),
        clients.PROXY: proxy,
        clients.HOSTS: json.dumps(hosts),
        "PYTHONPATH": f"{site}{os.pathsep}{path}" if path else site,
        "NO_PROXY": without_proxy,
        "no_proxy": without_proxy,
    }
