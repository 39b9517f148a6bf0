"""A server at a URL, over MCP's streamable HTTP: what is posted to it, and the streams it answers.

A request's answer is one JSON body, or an event on a stream (SSE) among what else the server says.
Written after the transport's description in MCP's revisions 2025-06-18, 2025-11-25, 2026-07-28.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2
from httpx2 import EventSource, ServerSentEvent

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.domain.errors import BadValue
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.calls import INITIALIZE
from hansard.integrations.mcp.frames import FRAME_BYTES_MAX, Answer, BadFrame, Frame, Request
from hansard.integrations.mcp.http.authorization import LoginAuth, ResourceMetadata
from hansard.integrations.mcp.servers import Login
from hansard.integrations.mcp.upstream import NOTHING, ServerGone

_log = logger(__name__)

CONNECT_S = 10.0
"""Seconds to reach it; how long an answer may take is the caller's to say."""

KEPT_S = 1.0
"""How long an idle connection is kept. Servers close theirs after 5 s (uvicorn, Node) or more: a
call sent in that moment would be lost, and in doubt."""

SESSION, VERSION, METHOD, NAME = "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"
"""Headers of the transport, as HTTP/2 writes them."""

UNAUTHORIZED = 401
"""Status of a request without a valid token."""

_LOGIN = (
    ": it needs a login; give its token (--token-env) or credentials for the proxy (--client-id), "
    "or let clients log in through the proxy (--http)"
)

JSON, EVENTS = "application/json", "text/event-stream"

NO_SUCH_METHOD = (404, 405)
"""Statuses of an address to which nothing is posted."""

REFUSED_MIN, FAILED_MIN = 400, 500
"""From which status of HTTP on a server says that it did nothing, and that it failed."""

OF_A_CONNECTION = {
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "date",
    "expect",
    "host",
    "keep-alive",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
"""Headers that are not passed on: each connection has its own. (Whose page a request came from,
`origin`, is looked at by who listens.)
"""


Headers = list[tuple[str, str]]


class Refused(NotDone):
    """A server's status says that it did nothing, and its body is no answer: `raw` is that body."""

    def __init__(self, fact: str, raw: bytes) -> None:
        super().__init__(fact)
        self.raw = raw


class HttpServer:
    """One server; `headers` go with each request, in the place of a client's own of those names."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        carried_by: httpx2.AsyncBaseTransport | None = None,
        *,
        of_many: bool = False,
        login: Login | None = None,
    ) -> None:
        """`carried_by`: what takes the requests there; else the network does. `of_many` clients: a
        cookie that one is given goes with no other's request. `login`: who the proxy is there, in
        the place of its clients. Raises BadValue for what is no address of a server.
        """
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError) as bad:
            raise BadValue("--url", str(bad), "give http://HOST:PORT/PATH") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise BadValue("--url", f"{url!r:.80}", "give http://HOST:PORT/PATH")
        self._url, self.url = parsed, str(parsed)
        self.metadata = None if carried_by or login else ResourceMetadata(self.url, self.fetched)
        self.shown = str(parsed.copy_with(username=None, password=None, query=None, fragment=None))
        self._own = [(name.lower(), value) for name, value in headers.items()]
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=KEPT_S),
            transport=carried_by,
            auth=None if login is None else LoginAuth(self.url, login),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])) if of_many else None,
        )

    async def close(self) -> None:
        """End its connections."""
        await self._http.aclose()

    @asynccontextmanager
    async def asked(
        self, method: str, headers: Headers, raw: bytes | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """A request's response, of which the status and headers are there. Raises ServerGone, also
        while it is read; NotDone where the server was not reached.
        """
        own = {name for name, _ in self._own}
        told = [each for each in passed_on(headers) if each[0].lower() not in own]
        with _lost(self.shown):
            asking = self._http.stream(method, self._url, headers=[*told, *self._own], content=raw)
            async with asking as answer:
                yield answer

    async def fetched(
        self, url: str, headers: Mapping[str, str] = NOTHING, raw: bytes | None = None
    ) -> tuple[int, bytes]:
        """Return the status and body of another address, without headers of this server's own; a
        body is posted. Raises ServerGone, NotDone.
        """
        method = "GET" if raw is None else "POST"
        with _lost(url):
            asking = self._http.stream(method, url, headers=headers, content=raw, auth=None)
            async with asking as answer:
                return answer.status_code, await self.body(answer)

    async def body(self, answer: httpx2.Response) -> bytes:
        """A body of at most FRAME_BYTES_MAX. Raises ServerGone for a longer one."""
        found = bytearray()
        async for part in answer.aiter_bytes():
            found += part
            if len(found) > FRAME_BYTES_MAX:
                fact = f"more than {FRAME_BYTES_MAX:,} bytes"
                raise ServerGone(f"{self.shown} answered {fact}: it may have been done")
        return bytes(found)

    async def answer(self, answer: httpx2.Response, frame: Request) -> Answer:
        """What a response that is no stream answers; the status may say that nothing was done.
        Raises ServerGone where it says nothing of the request, and Refused where its status does.
        """
        raw, status = await self.body(answer), answer.status_code
        is_refused = REFUSED_MIN <= status < FAILED_MIN
        found: Frame | None = None
        try:
            found = frames.read(raw, from_server=True)
            what = "a frame that is no answer to the request"
        except BadFrame as bad:
            what = f"{kind(answer) or 'no content type'} that is no frame ({bad.fact})"
        about_it = isinstance(found, Answer) and found.id in (
            {frame.id} if found.error is None else {frame.id, None}  # None: it could not be read
        )
        if isinstance(found, Answer) and about_it:
            refused = is_refused and found.error is not None
            return Answer(found.raw, found.id, found.result, found.error, refused)
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
def _lost(shown: str) -> Generator[None]:
    """Raise errors of HTTP as NotDone or ServerGone."""
    try:
        yield
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise NotDone(f"{shown} cannot be reached ({error})") from error
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.SSEError, httpx2.InvalidURL) as error:
        fact = str(error) or type(error).__name__
        raise ServerGone(f"{shown} broke off ({fact}): it may have been done") from error


async def events(answer: httpx2.Response) -> AsyncGenerator[tuple[ServerSentEvent, Frame | None]]:
    """The events of a stream, each with its frame; None for one that carries none (it says where a
    client that is cut off goes on). An event whose data is no frame is logged and left out; raises
    ServerGone where it answers a request.
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
            _log.warning("the server sent what is no frame: it is left out", why=str(bad))
        else:
            yield event, frame


def kind(answer: httpx2.Response) -> str:
    """What a response's body is, without parameters."""
    said: str = answer.headers.get("content-type", "")
    return said.partition(";")[0].strip().lower()


def is_stream(answer: httpx2.Response) -> bool:
    """Whether a response is a stream of events."""
    return answer.status_code < REFUSED_MIN and kind(answer) == EVENTS


def passed_on(headers: Iterable[tuple[str, str]]) -> Headers:
    """Headers without those of one connection."""
    return [(name, value) for name, value in headers if name.lower() not in OF_A_CONNECTION]
