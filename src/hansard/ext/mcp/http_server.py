"""Server at a URL over MCP's streamable HTTP: its requests, streams and logins.

A request's answer is one JSON body, or an event on a stream (SSE) among others. Written from the
transport's description in MCP's revisions 2025-06-18, 2025-11-25 and 2026-07-28. It is
long because an answer, its stream and its login are parts of one exchange over HTTP.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import importlib.metadata
import re
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Protocol

import httpx2
import msgspec
from httpx2 import EventSource, ServerSentEvent

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.domain.errors import BadValue
from hansard.ext.mcp import frames
from hansard.ext.mcp.frames import (
    CALL,
    FRAME_BYTES_MAX,
    INITIALIZE,
    LIST_TOOLS,
    VERSION_KEY,
    Answer,
    BadFrame,
    Frame,
    Id,
    Notification,
    Request,
)
from hansard.ext.mcp.upstream import NOTHING, DroppingInbox, Inbox, ServerGone, SideRequests, pages

# ------------------------------------------------------------ OAuth
#
# Clients accept protected resource metadata (RFC 9728) only for the address that they connect to.
# The proxy serves the server's metadata with its own address as the resource; the client logs in at
# the server's authorization server, and its token passes through. The MCP SDK, whose flows these
# are, is imported once a server asks for authorization: that takes a second.

WELL_KNOWN = "/.well-known/oauth-protected-resource"
"""Prefix of the path of a resource's metadata (RFC 9728, section 3.1)."""

CHALLENGES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
"""HTTP statuses of an answer that may ask for authorization."""

METADATA_S = 10.0
"""Longest wait for a server's metadata, in seconds."""

LEGACY_PATHS = ("/authorize", "/token", "/register")
"""Endpoints of a server without metadata, at its own origin.

2025-03-26, "Fallbacks for Servers without Metadata Discovery". A client looks for them at the
proxy's address.
"""

OF_A_TOKEN_REQUEST = ("accept", "authorization", "content-type")
"""Headers passed on with a request to one of them."""

_LOCATION = re.compile(r'(\bresource_metadata=)(?:"([^"]*)"|([^\s,"]+))', re.IGNORECASE)


class Fetch(Protocol):
    """Request to another address than the server's, in no client's name; a body is posted."""

    async def __call__(
        self, url: str, headers: Mapping[str, str] = ..., raw: bytes | None = ...
    ) -> tuple[int, bytes]:
        """Return the status and the body. Raises NotDone, ServerGone."""
        ...


class ResourceMetadata:
    """Metadata of a server as a protected resource, for clients of the proxy's address."""

    def __init__(self, url: str, fetch: Fetch) -> None:
        """`fetch` returns the status and the body of an address. Raises NotDone, ServerGone."""
        self._url, self._fetch = url, fetch
        bare = httpx2.URL(url).copy_with(username=None, password=None, query=None, fragment=None)
        self._origin = str(bare.copy_with(path="/")).rstrip("/")
        self._location: str | None = None
        self._is_challenged = False
        self._has_none = False

    def addressed(
        self, status: int, headers: list[tuple[str, str]], own: httpx2.URL
    ) -> list[tuple[str, str]]:
        """Return an answer's headers; a challenge names the metadata of the proxy's address."""
        if status not in CHALLENGES:
            return headers
        self._is_challenged = self._is_challenged or status == HTTPStatus.UNAUTHORIZED
        return [
            (name, self._challenge(value, own) if name.lower() == "www-authenticate" else value)
            for name, value in headers
        ]

    def _challenge(self, value: str, own: httpx2.URL) -> str:
        match = _LOCATION.search(value)
        if match is None:
            return value
        self._location = match[2] or match[3]
        at = own.copy_with(path=WELL_KNOWN + own.path)
        return _LOCATION.sub(rf'\1"{at}"', value, count=1)

    async def read(self, own: str) -> tuple[int, bytes]:
        """Return the status and the body for the proxy's address.

        A server that requires authorization without metadata is of the revision 2025-03-26: its
        authorization server is at its own origin.
        """
        await asyncio.to_thread(importlib.import_module, "mcp.client.auth")
        from mcp.client.auth.utils import build_protected_resource_metadata_discovery_urls as urls  # noqa: PLC0415 -- it takes a second
        from mcp.shared.auth_utils import check_resource_allowed  # noqa: PLC0415 -- see above

        metadata: dict[str, Any] | None = None
        for url in urls(self._location, self._url):
            try:
                async with asyncio.timeout(METADATA_S):
                    status, raw = await self._fetch(url)
            except (NotDone, ServerGone, TimeoutError):
                return HTTPStatus.BAD_GATEWAY, b""
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                return HTTPStatus.BAD_GATEWAY, b""
            if status == HTTPStatus.OK and (metadata := _object(raw)) is not None:
                break
        if metadata is None and not self._is_challenged:
            return HTTPStatus.NOT_FOUND, b""
        if metadata is None:
            self._has_none = True
            metadata = {"authorization_servers": [self._origin]}
        resource = metadata.get("resource", self._url)
        if isinstance(resource, str) and check_resource_allowed(self._url, resource):
            metadata["resource"] = own  # another one is unchanged, and the client refuses it
        metadata.pop("signed_metadata", None)
        return HTTPStatus.OK, msgspec.json.encode(metadata)

    async def legacy(
        self, path: str, headers: Mapping[str, str], raw: bytes
    ) -> tuple[int, bytes, str]:
        """Return the status, the body and the location of the server's own endpoint.

        404 unless the server is known to have no metadata: a client then logs in at the
        authorization server that the metadata names. `path` includes the query.
        """
        at = self._origin + path
        if self._is_challenged and not self._has_none:  # a client of that revision reads none
            await self.read("")
        if not self._has_none:
            return HTTPStatus.NOT_FOUND, b"", ""
        if path.startswith(LEGACY_PATHS[0]):
            return HTTPStatus.FOUND, b"", at
        kept = {name: headers[name] for name in OF_A_TOKEN_REQUEST if name in headers}
        try:
            async with asyncio.timeout(METADATA_S):
                return *await self._fetch(at, kept, raw), ""
        except (NotDone, ServerGone, TimeoutError):
            return HTTPStatus.BAD_GATEWAY, b"", ""


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        content = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return content if isinstance(content, dict) else None


_log = logger(__name__)

CONNECT_S = 10.0
"""Longest wait for a connection, in seconds; the caller limits the wait for an answer."""

KEPT_S = 1.0
"""Seconds that an idle connection is kept.

Servers close theirs after 5 s (uvicorn, Node) or more: a call sent at that moment would be lost,
and in doubt.
"""

SESSION, VERSION, METHOD, NAME = "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"
"""Headers of the transport, as HTTP/2 writes them."""

UNAUTHORIZED = 401
"""HTTP status of a request without a valid token."""

_LOGIN = (
    ": it needs a login; give its token (--token-env), "
    "or let clients log in through the proxy (--http)"
)

STATELESS_FROM = "2026-07-28"
"""First revision in which a client cancels a request by closing its stream."""

STATUSES = {code: 404 if code == frames.METHOD_NOT_FOUND else 400 for code in frames.NOT_CALLED}
"""HTTP statuses, since that revision, of errors without a response of a server."""

ACCEPTED, BAD_REQUEST, NOT_ALLOWED, LOST = 202, 400, 405, 502
"""Other HTTP statuses."""

JSON, EVENTS = "application/json", "text/event-stream"

NO_SUCH_METHOD = (404, 405)
"""HTTP statuses of an address that accepts no posts."""

REFUSED_MIN, FAILED_MIN = 400, 500
"""Smallest HTTP status by which a server reports that it failed without doing anything."""

OF_A_CONNECTION = {
    *("accept-encoding", "connection", "content-encoding", "content-length", "date", "expect"),
    *("host", "keep-alive", "origin", "proxy-authenticate", "proxy-authorization"),
    *("proxy-connection", "server", "te", "trailer", "transfer-encoding", "upgrade"),
}
"""Headers of one connection, which are not passed on.

The page that a request comes from, `origin`, is checked by the listener.
"""


END_S = 0.02
"""Seconds for a stream to end after its answer; only then is its connection reused."""

BROKEN_OFF = (httpx2.HTTPError, httpx2.StreamError, httpx2.SSEError, httpx2.InvalidURL)
"""Errors of a connection, or of reading from it."""

Headers = list[tuple[str, str]]


class Refused(NotDone):
    """Error: the server's status reports that it did nothing, and its body `raw` is no answer."""

    def __init__(self, fact: str, raw: bytes) -> None:
        super().__init__(fact)
        self.raw = raw


class HttpServer:
    """Server at a URL; `headers` are sent with each request and replace a client's own."""

    def __init__(self, url: str, headers: Mapping[str, str], *, of_many: bool = False) -> None:
        """Create the client of a server.

        Args:
            url: Its address.
            headers: Headers of each request.
            of_many: Whether several clients share it: then no cookie of one is sent for another.

        Raises BadValue for an invalid address.
        """
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError) as bad:
            raise BadValue("--url", str(bad), "give http://HOST:PORT/PATH") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise BadValue("--url", f"{url!r:.80}", "give http://HOST:PORT/PATH")
        self._url, self.url = parsed, str(parsed)
        self.metadata = ResourceMetadata(self.url, self.fetched)
        self.shown = str(parsed.copy_with(username=None, password=None, query=None, fragment=None))
        self._own = [(name.lower(), value) for name, value in headers.items()]
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEPT_S),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])) if of_many else None,
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    @asynccontextmanager
    async def request(
        self, method: str, headers: Headers, raw: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """Open a request's response, with its status and headers.

        Raises ServerGone, also while it is read; NotDone if the server was not reached.
        """
        own = {name for name, _ in self._own}
        passed = [each for each in passed_on(headers) if each[0].lower() not in own]
        with _convert_errors(self.shown):
            asking = self._http.stream(
                method, self._url, headers=[*passed, *self._own], content=raw
            )
            async with asking as answer:
                yield answer

    async def fetched(
        self, url: str, headers: Mapping[str, str] = NOTHING, raw: bytes | None = None
    ) -> tuple[int, bytes]:
        """Return the status and body of another address, without this server's own headers.

        A body is posted. Raises ServerGone, NotDone.
        """
        method = "GET" if raw is None else "POST"
        with _convert_errors(url):
            asking = self._http.stream(method, url, headers=headers, content=raw)
            async with asking as answer:
                return answer.status_code, await self.body(answer)

    async def body(self, answer: httpx2.Response) -> bytes:
        """Return a body of at most FRAME_BYTES_MAX. Raises ServerGone for a longer one."""
        content = bytearray()
        async for part in answer.aiter_bytes():
            content += part
            if len(content) > FRAME_BYTES_MAX:
                fact = f"more than {FRAME_BYTES_MAX:,} bytes"
                raise ServerGone(f"{self.shown} answered {fact}: it may have been done")
        return bytes(content)

    async def answer(self, answer: httpx2.Response, frame: Request) -> Answer:
        """Return the answer of a response that is no stream.

        Raises ServerGone if it does not answer the request, and Refused if its status reports that
        nothing was done.
        """
        raw, status = await self.body(answer), answer.status_code
        is_refused = REFUSED_MIN <= status < FAILED_MIN
        parsed: Frame | None = None
        try:
            parsed = frames.read(raw, from_server=True)
            what = "a frame that is no answer to the request"
        except BadFrame as bad:
            what = f"{kind(answer) or 'no content type'} that is no frame ({bad.fact})"
        about_it = isinstance(parsed, Answer) and parsed.id in (
            {frame.id} if parsed.error is None else {frame.id, None}  # None: it could not be read
        )
        if isinstance(parsed, Answer) and about_it:
            refused = is_refused and parsed.error is not None
            return Answer(parsed.raw, parsed.id, parsed.result, parsed.error, refused)
        if status in NO_SUCH_METHOD and frame.method == INITIALIZE:
            what = (
                f"{self.shown} answered HTTP {status} to initialize: it may speak only the former "
                "HTTP+SSE transport, which the proxy does not; give its streamable HTTP address "
                "(often /mcp in place of /sse)"
            )
            raise Refused(what, raw)
        if is_refused:
            raise Refused(
                f"{self.shown} answered HTTP {status}, so that it was not done"
                f"{_LOGIN if status == UNAUTHORIZED else ''}",
                raw,
            )
        raise ServerGone(f"{self.shown} answered HTTP {status} and {what}: it may have been done")


@contextmanager
def _convert_errors(shown: str) -> Generator[None]:
    """Convert errors of HTTP to NotDone or ServerGone."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise NotDone(f"{shown} cannot be reached ({error})") from error
    except BROKEN_OFF as error:
        fact = str(error) or type(error).__name__
        raise ServerGone(f"{shown} broke off ({fact}): it may have been done") from error


async def events(answer: httpx2.Response) -> AsyncGenerator[tuple[ServerSentEvent, Frame | None]]:
    """Yield the events of a stream, each with its frame.

    The frame is None for an event without data, which gives the position to resume from. An event
    with invalid data is logged and dropped. Raises ServerGone if the invalid event answers a
    request.
    """
    async for event in EventSource(answer, max_event_size=FRAME_BYTES_MAX):
        if event.event != "message":
            continue
        try:
            data = event.data.encode(errors="surrogatepass")
            frame = frames.read(data, from_server=True) if data else None
        except BadFrame as bad:
            if bad.is_answer:
                fact = f"the server's answer is no frame ({bad.fact})"
                raise ServerGone(f"{fact}: it may have been done") from None
            _log.warning("the server sent an invalid frame: it is dropped", why=str(bad))
        else:
            yield event, frame


def kind(answer: httpx2.Response) -> str:
    """Return the media type of a response, without parameters."""
    content_type: str = answer.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()


def is_stream(answer: httpx2.Response) -> bool:
    """Return whether a response is a stream of events."""
    return answer.status_code < REFUSED_MIN and kind(answer) == EVENTS


def passed_on(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers without those of one connection."""
    return [(name, value) for name, value in headers if name.lower() not in OF_A_CONNECTION]


# ------------------------------------------------------------ for a client over stdio
#
# Each frame is a POST; its other frames arrive on the streams of its answers, and on one
# that is opened for it. Headers (session, version, method, name) are read from a copy of the frame.

SEND_S, CLOSE_S = 5.0, 2.0
"""Seconds for the server to accept a frame without an answer, and to learn that its client leaves.
"""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Parameter that a request's NAME header repeats, by method."""

INITIALIZED, CANCELLED = "notifications/initialized", "notifications/cancelled"

NO_METHOD = "HTTP 405"
"""HTTP status of a server without a stream of its own messages."""

LAST_EVENT = "last-event-id"
"""Header with which a stream is resumed."""

RESUMES_MAX = 5
"""Most consecutive resumes of a stream without a new event."""

RESUME_S, RESUME_S_MAX = 1.0, 30.0
"""Default and longest pause before a resume, in seconds."""

_PLAIN = re.compile(r"[!-~]([ -~]*[!-~])?")


class _StreamProgress(msgspec.Struct):
    """Progress of a stream: the id of its newest event, if any, and the server's pause before a
    resume, in seconds.
    """

    last: str = ""
    wait_s: float = RESUME_S


class HttpUpstream:
    """Server at a URL; `ask` and `next` are as in `Upstream`."""

    def __init__(self, server: HttpServer, heard: Inbox | None = None) -> None:
        self._server = server
        self._heard = heard or Inbox()
        self._waiting: dict[Id, asyncio.Future[Answer]] = {}
        self._posts: dict[Id, asyncio.Task[None]] = {}
        self._beside = SideRequests(self, self._heard)
        self._session: str | None = None
        self._version: str | None = None
        self._listening: asyncio.Task[None] | None = None
        self._in_headers: dict[str, Any] | None = None  # schemas by their tools

    async def send(self, frame: Frame) -> None:
        """Pass a frame on; `next` returns an answer to a request. Raises ServerGone."""
        if isinstance(frame, Request):
            await self._beside.ask(frame)
            return
        if isinstance(frame, Notification) and frame.method == CANCELLED and self._is_new():
            post = self._posts.get(frame.calls_off)
            if post is not None:  # the end of its stream notifies the server
                post.cancel()
            return
        try:
            async with asyncio.timeout(SEND_S):
                await self._post(frame)
        except TimeoutError:
            fact = f"{self._server.shown} did not accept a frame within {SEND_S:g} s"
            raise ServerGone(fact) from None
        except NotDone as error:
            raise ServerGone(str(error)) from error
        if isinstance(frame, Notification) and frame.method == INITIALIZED:
            self._listening = asyncio.create_task(self._listen())

    async def ask(self, frame: Request) -> Answer:
        """Pass a request on, and wait for its answer.

        Raises ServerGone if it may have been done, NotDone if it surely was not.
        """
        id_ = frame.id
        if id_ in self._waiting:
            raise NotDone(f"a request with id {id_!r:.40} is still open: give each its own")
        if frame.method == CALL and _version_of(frame):
            await self._list_tools(frame)
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = waiting
        post = self._posts[id_] = asyncio.create_task(self._post(frame))
        try:
            either: set[asyncio.Future[Any]] = {waiting, post}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                ended, _ = await asyncio.wait([post], timeout=END_S)
                for each in ended:  # a break after the answer is no failure of the call
                    _ = each.cancelled() or each.exception()
                self._greeted(frame, waiting.result())
                return waiting.result()
            if post.cancelled():
                raise ServerGone("the request was cancelled: it may have been done")
            post.result()
            fact = f"{self._server.shown} ended its stream without an answer"
            raise ServerGone(f"{fact}: it may have been done")
        finally:
            post.cancel()
            del self._waiting[id_], self._posts[id_]

    def _greeted(self, frame: Request, answer: Answer) -> None:
        """Store the version of an older handshake, which each later request states.

        From a list of tools, store which arguments go in headers.
        """
        if frame.method == LIST_TOOLS:
            self._learn(answer)
        if frame.method == INITIALIZE:
            result: Any = answer.result
            self._version = result.get("protocolVersion") if isinstance(result, dict) else None

    def _learn(self, answer: Answer) -> None:
        listed: Any = answer.result
        tools = listed.get("tools") if isinstance(listed, dict) else None
        known = self._in_headers = self._in_headers or {}
        for each in tools if isinstance(tools, list) else []:
            if isinstance(each, dict) and isinstance(each.get("name"), str):
                known[each["name"]] = each.get("inputSchema")

    def _parameters(self, tool: str, arguments: Any) -> dict[str, str]:
        """Return the headers that repeat arguments of a call, if its tool declares them."""
        schema = (self._in_headers or {}).get(tool)
        if not isinstance(arguments, dict) or "x-mcp-header" not in str(schema):
            return {}
        from mcp.shared import inbound  # noqa: PLC0415 -- it takes a second

        if inbound.find_invalid_x_mcp_header(schema) is not None:
            return {}
        return inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)

    async def _list_tools(self, frame: Request) -> None:
        """List the server's tools if no list of them has passed.

        A client answered from the record has the list from there. Unknown arguments go in no
        header.
        """
        if self._in_headers is not None:
            return
        self._in_headers = {}
        params = {"_meta": frame.params["_meta"]}
        listing = Request(b"", "hansard-headers", LIST_TOOLS, params)
        try:
            async for _ in pages(listing, self.ask):
                pass  # `ask` keeps what the tools declare
        except (NotDone, ServerGone) as error:
            _log.warning("it is unknown which arguments go in headers", why=str(error))

    async def next(self) -> Frame | None:
        """Return the server's next frame that no `ask` waits for; None once this is closed."""
        return await self._heard.next()

    async def flushed(self) -> None:
        """Wait until `next` has returned everything received before."""
        await self._heard.flushed()

    async def close(self) -> None:
        """End the session, if there is one, and stop listening."""
        self._beside.close()
        for task in (self._listening, *self._posts.values()):
            if task is not None:
                task.cancel()
        if self._session is not None:
            with contextlib.suppress(NotDone, ServerGone, TimeoutError):
                async with (
                    asyncio.timeout(CLOSE_S),
                    self._server.request("DELETE", self._headers()),
                ):
                    pass
        await self._server.close()
        self._heard.end()

    def _is_new(self) -> bool:
        return self._version is None

    def _headers(self, frame: Frame | None = None) -> Headers:
        headers = {"accept": f"{JSON}, {EVENTS}", "content-type": JSON}
        if self._session is not None:
            headers[SESSION] = self._session
        stated = _version_of(frame)
        version = stated or self._version
        if version is not None:
            headers[VERSION] = _in_header(version)
        if stated and isinstance(frame, Request):
            headers[METHOD] = _in_header(frame.method)
            name = frame.params.get(NAMED_BY.get(frame.method, ""))
            if isinstance(name, str):
                headers[NAME] = _in_header(name)
            if frame.method == CALL and isinstance(name, str):
                headers |= self._parameters(name, frame.params.get("arguments"))
        return [*headers.items()]

    async def _post(self, frame: Frame) -> None:
        """Pass a frame on and handle its answer; a broken stream whose events have ids is resumed.

        Raises NotDone, ServerGone.
        """
        reached = _StreamProgress()
        try:
            await self._post_response(frame, reached)
        except ServerGone:
            if not reached.last:
                raise
        if reached.last and isinstance(frame, Request):
            await self._resume(reached, frame.id)

    async def _post_response(self, frame: Frame, reached: _StreamProgress) -> None:
        async with self._server.request("POST", self._headers(frame), frame.raw) as answer:
            if isinstance(frame, Request) and frame.method == INITIALIZE:
                self._session = answer.headers.get(SESSION)
            if is_stream(answer):
                await self._follow_answer(answer, reached)
            elif isinstance(frame, Request):
                body = await self._server.answer(answer, frame)
                await self._take(body if body.id is not None else body.under(frame.id))
            elif answer.status_code >= REFUSED_MIN:
                raise NotDone(f"{self._server.shown} answered HTTP {answer.status_code}")

    async def _follow_answer(self, answer: httpx2.Response, reached: _StreamProgress) -> None:
        async for event, frame in events(answer):
            if not self._is_new():  # the newer era resumes no stream
                reached.last = event.id or reached.last
            if event.retry is not None:
                reached.wait_s = min(event.retry / 1000, RESUME_S_MAX)
            if frame is not None:
                await self._take(frame)

    async def _resume(self, reached: _StreamProgress, id_: Id) -> None:
        """Resume a request's stream until the answer arrives. Raises ServerGone."""
        why, tries = "it ended", 0
        while (waiting := self._waiting.get(id_)) is not None and not waiting.done():
            if tries == RESUMES_MAX:
                fact = f"{self._server.shown} broke off, and did not resume after {tries} tries"
                raise ServerGone(f"{fact} ({why}): it may have been done")
            await asyncio.sleep(reached.wait_s)
            before = reached.last
            try:
                why = await self._follow_stream(reached)
            except (NotDone, ServerGone) as error:
                why = str(error)
            tries = tries + 1 if reached.last == before else 0

    async def _follow_stream(self, reached: _StreamProgress) -> str:
        """Open a stream from its last known event, and handle its events; return why it ended."""
        headers = dict(self._headers()) | {"accept": EVENTS}
        if reached.last:
            headers[LAST_EVENT] = reached.last
        async with self._server.request("GET", [*headers.items()]) as answer:
            if not is_stream(answer):
                return f"HTTP {answer.status_code}"
            await self._follow_answer(answer, reached)
            return "it ended"

    async def _take(self, frame: Frame) -> None:
        """Deliver a frame; a stream whose client does not read waits as well."""
        waiting = None
        if isinstance(frame, Answer) and frame.id is not None:
            waiting = self._waiting.get(frame.id)
        if waiting is None:
            await self._heard.put(frame)
        elif isinstance(frame, Answer) and not waiting.done():
            waiting.set_result(frame)

    async def _listen(self) -> None:
        """Handle the server's own messages; a broken stream is resumed."""
        reached, why, tries = _StreamProgress(), "", 0
        while tries < RESUMES_MAX:
            before = reached.last
            try:
                why = await self._follow_stream(reached)
            except (NotDone, ServerGone) as error:
                why = str(error)
            if why == NO_METHOD:
                return
            tries = tries + 1 if reached.last == before else 0
            await asyncio.sleep(reached.wait_s)
        _log.warning("the server's own messages are no longer received", why=why)


def _version_of(frame: Frame | None) -> str | None:
    """Return the version that a request of the newer era states."""
    if not isinstance(frame, Request | Notification):
        return None
    version = frames.meta_of(frame.params).get(VERSION_KEY)
    return version if isinstance(version, str) else None


def _in_header(value: str) -> str:
    """Encode a value for a header: unchanged, or in Base64 with a mark."""
    if _PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


# ------------------------------------------------------------ single requests

PROTOCOL = "2025-11-25"
"""Version offered to a server; the server states if it speaks another one."""

ASK_S = 120.0
"""Longest wait for an answer, in seconds."""


class McpError(Exception):
    """Error: the server answered with an error; the effect of the call is unknown."""


async def tools_of(url: str) -> list[dict[str, Any]]:
    """Return a server's tools. Raises NotDone, ServerGone, McpError."""
    tools: list[dict[str, Any]] = []
    listing = Request(b"", "tools", LIST_TOOLS)
    async with asyncio.timeout(ASK_S):
        upstream = await _greeted(url)
        try:
            async for page in pages(listing, upstream.ask):
                tools += _result(page).get("tools", [])
        finally:
            await upstream.close()
    return tools


async def call_tool(url: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Call a tool and return its result. Raises NotDone if the call surely was not made;
    ServerGone.
    """
    try:
        async with asyncio.timeout(ASK_S):
            upstream = await _greeted(url)
    except (ServerGone, McpError, TimeoutError) as error:
        raise NotDone(f"{url} cannot be reached: {error}") from error
    try:
        async with asyncio.timeout(ASK_S):
            return await _request(upstream, CALL, {"name": tool, "arguments": arguments})
    finally:
        await upstream.close()


async def _greeted(url: str) -> HttpUpstream:
    upstream = HttpUpstream(HttpServer(url, {}), DroppingInbox())
    try:
        version = importlib.metadata.version("hansard")
        who = {"name": "hansard", "version": version}
        params = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": who}
        await _request(upstream, INITIALIZE, params)
        await upstream.send(frames.notification(INITIALIZED, {}))
    except BaseException:
        await upstream.close()
        raise
    return upstream


async def _request(upstream: HttpUpstream, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return _result(await upstream.ask(frames.request(method, method, params)))


def _result(answer: Answer) -> dict[str, Any]:
    if answer.error is not None:
        raise McpError(str(answer.error.get("message", answer.error))[:400])
    return answer.result if isinstance(answer.result, dict) else {}
