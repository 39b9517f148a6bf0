"""A server that is asked over streamable HTTP, behind the same door as one of pipes.

Each frame is a POST, whose answer is a JSON object or a stream of events; what else the server
says comes in these streams, and in one that is opened for it. A frame's bytes are passed on as they
came; what goes beside them in headers (session, version, method, name) is read from a copy. Which
era a request is of, it says itself: from 2026-07-28 on by its `_meta`, before by the handshake.

Written after the transport's description in MCP's revisions 2025-06-18, 2025-11-25, 2026-07-28.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from typing import Any, Self

import httpx2

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.domain.errors import BadValue
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.calls import INITIALIZE
from hansard.integrations.mcp.frames import (
    FRAME_BYTES_MAX,
    Answer,
    BadFrame,
    Frame,
    Id,
    Notification,
    Request,
)
from hansard.integrations.mcp.upstream import ServerGone

_log = logger(__name__)

CONNECT_S, SEND_S, CLOSE_S = 10.0, 5.0, 2.0
"""Seconds to reach the server; for it to take what it need not answer; and to tell it that its
client leaves.
"""

SESSION, VERSION, METHOD, NAME = "mcp-session-id", "mcp-protocol-version", "mcp-method", "mcp-name"
"""Headers of the transport."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Which parameter a request's NAME header repeats, by its method."""

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
"""Of `_meta`, since 2026-07-28."""

INITIALIZED, CANCELLED = "notifications/initialized", "notifications/cancelled"

JSON, EVENTS = "application/json", "text/event-stream"

ACCEPTED, NO_METHOD, REFUSED_MIN, FAILED_MIN = 202, 405, 400, 500
"""Status codes of HTTP."""

_PLAIN = re.compile(r"[!-~]([ -~]*[!-~])?")


class HttpUpstream:
    """The server at a URL; `ask` and `next` are as those of `Upstream`. Made by `reached`."""

    def __init__(self, url: str, http: httpx2.AsyncClient) -> None:
        self._url = url
        self._http = http
        self._heard: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._waiting: dict[Id, asyncio.Future[Answer]] = {}
        self._posts: dict[Id, asyncio.Task[None]] = {}
        self._asking = set[asyncio.Task[None]]()
        self._session: str | None = None
        self._version: str | None = None
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    def reached(cls, url: str, token: str | None = None) -> Self:
        """What asks there, with a bearer token if one is given. Raises BadValue."""
        try:
            parsed = httpx2.URL(url)
        except (httpx2.InvalidURL, TypeError) as bad:
            raise BadValue("--url", str(bad), "give http://HOST:PORT/PATH") from None
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise BadValue("--url", f"{url!r:.80}", "give http://HOST:PORT/PATH")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        timeout = httpx2.Timeout(
            None, connect=CONNECT_S
        )  # how long a call may take, the proxy says
        return cls(url, httpx2.AsyncClient(headers=headers, timeout=timeout))

    async def send(self, raw: bytes) -> None:
        """Pass a frame on; what answers a request is told by `next`. Raises ServerGone."""
        frame = frames.read(raw)
        if isinstance(frame, Request):
            asking = asyncio.create_task(self._ask_beside(frame))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
            return
        if isinstance(frame, Notification) and frame.method == CANCELLED and self._is_new():
            post = self._posts.get(frame.params.get("requestId", ""))
            if post is not None:  # its stream's end is how the server is told
                post.cancel()
            return
        try:
            async with asyncio.timeout(SEND_S):
                await self._post(frame)
        except TimeoutError:
            fact = f"{self._url} did not take what it was told within {SEND_S:g} s"
            raise ServerGone(fact) from None
        except NotDone as error:
            raise ServerGone(str(error)) from error
        if isinstance(frame, Notification) and frame.method == INITIALIZED:
            self._listening = asyncio.create_task(self._listen())

    async def ask(self, id_: Id, raw: bytes) -> Answer:
        """Pass a request on, and wait for its answer. Raises ServerGone where it may have been
        done, and NotDone where it surely was not.
        """
        if id_ in self._waiting:
            raise NotDone(f"a request with id {id_!r:.40} is still open: give each its own")
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = waiting
        post = self._posts[id_] = asyncio.create_task(self._post(frames.read(raw)))
        try:
            either: set[asyncio.Future[Any]] = {waiting, post}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            if post.cancelled():
                raise ServerGone("the request was called off: nobody knows how far it came")
            post.result()
            raise ServerGone(f"{self._url} ended its answer without one: it may have been done")
        finally:
            post.cancel()
            del self._waiting[id_], self._posts[id_]

    async def _ask_beside(self, frame: Request) -> None:
        """Ask what is no step: it may be answered late, or as long as somebody listens."""
        try:
            answer = await self.ask(frame.id, frame.raw)
        except (NotDone, ServerGone) as error:
            told = {"code": frames.INTERNAL_ERROR, "message": str(error)}
            answer = Answer(frames.error(frame.id, told), frame.id, None, told)
        self._heard.put_nowait(answer)

    async def next(self) -> Frame | None:
        """What the server says that is no answer `ask` waits for; None once this is closed."""
        return await self._heard.get()

    async def close(self) -> None:
        """Leave: the session is ended, if there is one, and nothing is listened to any more."""
        for task in (self._listening, *self._asking, *self._posts.values()):
            if task is not None:
                task.cancel()
        if self._session is not None:
            with contextlib.suppress(httpx2.HTTPError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._http.delete(self._url, headers=self._headers())
        await self._http.aclose()
        self._heard.put_nowait(None)

    def _is_new(self) -> bool:
        return self._version is None

    def _headers(self, frame: Frame | None = None) -> dict[str, str]:
        told = {"Accept": f"{JSON}, {EVENTS}", "Content-Type": JSON}
        if self._session is not None:
            told[SESSION] = self._session
        meta = frame.params.get("_meta") if isinstance(frame, Request | Notification) else None
        said = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        version = said if isinstance(said, str) else self._version
        if version is not None:
            told[VERSION] = _in_header(version)
        if isinstance(said, str) and isinstance(frame, Request):
            told[METHOD] = _in_header(frame.method)
            name = frame.params.get(NAMED_BY.get(frame.method, ""))
            if isinstance(name, str):
                told[NAME] = _in_header(name)
        return told

    async def _post(self, frame: Frame) -> None:
        """Pass a frame on, and take what is answered. Raises NotDone, ServerGone."""
        try:
            asked = self._http.stream(
                "POST", self._url, content=frame.raw, headers=self._headers(frame)
            )
            async with asked as answer:
                await self._taken(frame, answer)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise NotDone(f"{self._url} cannot be reached ({error})") from error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.SSEError) as error:
            fact = str(error) or type(error).__name__
            raise ServerGone(f"{self._url} broke off ({fact}): it may have been done") from error

    async def _taken(self, frame: Frame, answer: httpx2.Response) -> None:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status_code < REFUSED_MIN and kind == EVENTS:
            await self._streamed(answer, frame)
        elif (
            kind == JSON
            and isinstance(frame, Request)
            and self._routed(await _whole(answer), answer, frame)
        ):
            return
        elif answer.status_code >= REFUSED_MIN:
            fact = f"{self._url} answered HTTP {answer.status_code}"
            if answer.status_code >= FAILED_MIN:
                raise ServerGone(f"{fact}: it may have been done")
            raise NotDone(f"{fact}, so that it was not done")
        elif isinstance(frame, Request):
            fact = f"HTTP {answer.status_code} and {kind or 'no content type'}"
            raise ServerGone(f"{self._url} answered {fact}, no frame: it may have been done")

    async def _streamed(self, answer: httpx2.Response, frame: Frame | None) -> None:
        async for event in httpx2.EventSource(answer, max_event_size=FRAME_BYTES_MAX):
            if event.data and event.event == "message":
                self._routed(event.data.encode(), answer, frame)

    def _routed(self, raw: bytes, answer: httpx2.Response, asked: Frame | None) -> bool:
        """Give a frame to who waits for it. What is none is logged and left out: then False."""
        try:
            frame = frames.read(raw)
        except BadFrame as bad:
            _log.warning("the server sent what is no frame: it is left out", why=str(bad))
            return False
        if not isinstance(frame, Answer):
            self._heard.put_nowait(frame)
            return True
        if isinstance(asked, Request):
            if frame.id is None:  # an error of a request that could not be read
                told = frame.error or {}
                frame = Answer(frames.error(asked.id, told), asked.id, None, told)
            if asked.method == INITIALIZE and frame.id == asked.id:
                self._greeted(frame, answer)
        waiting = self._waiting.get(frame.id) if frame.id is not None else None
        if waiting is None:
            self._heard.put_nowait(frame)
        elif not waiting.done():
            waiting.set_result(frame)
        return True

    def _greeted(self, frame: Answer, answer: httpx2.Response) -> None:
        """The handshake of the older eras: from here on the session and its version are said."""
        self._session = answer.headers.get(SESSION)
        told: Any = frame.result
        self._version = told.get("protocolVersion") if isinstance(told, dict) else None

    async def _listen(self) -> None:
        """Take what the server says unasked, as long as it holds the stream open."""
        try:
            headers = self._headers() | {"Accept": EVENTS}
            async with self._http.stream("GET", self._url, headers=headers) as answer:
                if answer.status_code < REFUSED_MIN:
                    await self._streamed(answer, None)
                elif answer.status_code != NO_METHOD:
                    fact = f"HTTP {answer.status_code}"
                    _log.warning("what the server says unasked is not heard", why=fact)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.SSEError) as error:
            _log.warning("what the server says unasked is not heard any more", why=str(error))


async def _whole(answer: httpx2.Response) -> bytes:
    """A body of at most FRAME_BYTES_MAX. Raises ServerGone for a longer one."""
    found = bytearray()
    async for part in answer.aiter_bytes():
        found += part
        if len(found) > FRAME_BYTES_MAX:
            fact = f"more than {FRAME_BYTES_MAX:,} bytes"
            raise ServerGone(f"the server answered {fact}: it may have been done")
    return bytes(found)


def _in_header(value: str) -> str:
    """A value as a header may have it: as it is, or in Base64, marked."""
    if _PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
