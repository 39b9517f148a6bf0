"""A server over stdio behind HTTP: requests of HTTP clients go to processes of the server.

Each session of 2025-11-25 and before has its own process, which ends with it. Requests of
2026-07-28 share one process, and each has an id and a progress token of the proxy's own there:
clients choose equal ones, and a late answer to one client must never reach another. All other
frames pass unchanged. A notification goes to the request that it names, else to the oldest open
request of its session, or to the stream that the session's client listens to. In the shared process
a notification that names none of several open requests is dropped and logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from uuid import uuid4

import httpx2

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.frames import INITIALIZE, Answer, Frame, Id, Notification, Request
from hansard.integrations.mcp.http.server import (
    ACCEPTED,
    EVENTS,
    JSON,
    NOT_ALLOWED,
    SESSION,
    STATELESS_FROM,
    STATUSES,
    VERSION,
)
from hansard.integrations.mcp.upstream import Replies, Server, ServerGone, ServerNotStarted

_log = logger(__name__)

SESSIONS_MAX = 32
"""Most processes of sessions at once; for another one the session idle longest ends."""

IDLE_S = 1_800.0
"""Seconds without a request after which a session may be ended."""

QUEUED_MAX = 1_000
"""Most frames queued for one client."""

UNHEARD_MAX = 100
"""Most frames stored for a session's client that does not listen yet."""

HEAD_S = 5.0
"""Seconds that a response waits for its body before it becomes a stream."""

PROGRESS, CANCELLED = "notifications/progress", "notifications/cancelled"

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
"""Key with which the newer era links a notification to its request."""

NO_SESSION, BUSY, CONFLICT = 404, 429, 409
"""HTTP status codes."""

OWN = "hansard-client-"
"""Prefix of the ids and progress tokens in the shared process."""

Start = Callable[[], Awaitable[Server]]
"""Function that starts a process, or several behind one interface. Raises ServerNotStarted."""


class _Exchange:
    """Open HTTP request: the frames returned on it, and its id and progress token in the process.

    In a process that clients share, `own_id` replaces both.
    """

    def __init__(self, frame: Request | None, own_id: str | None = None) -> None:
        self.frame = frame
        self.outbox: asyncio.Queue[Frame | Exception] = asyncio.Queue(QUEUED_MAX)
        self.id: Id = "" if frame is None else own_id or frame.id
        self.token = None if frame is None else _token(frame)
        self.raw = b"" if frame is None else frame.raw
        self.work: asyncio.Task[None] | None = None
        self.left_out = 0
        if frame is not None and own_id is not None:
            params = frame.params
            if self.token is not None:
                self.token = own_id
                params = params | {"_meta": params["_meta"] | {"progressToken": own_id}}
            self.raw = frames.request(own_id, frame.method, params)

    def own(self, found: Frame) -> Frame:
        """Return a frame of the process with the client's own id and token."""
        if self.frame is None or self.id == self.frame.id:
            return found
        if isinstance(found, Answer):
            return found.under(self.frame.id)
        if isinstance(found, Notification):
            params = dict(found.params)
            if found.method == PROGRESS:
                params["progressToken"] = _token(self.frame)
            meta = params.get("_meta")
            if isinstance(meta, dict) and SUBSCRIPTION in meta:
                params["_meta"] = meta | {SUBSCRIPTION: self.frame.id}
            return Notification(frames.notification(found.method, params), found.method, params)
        return found


def _token(frame: Request) -> Id | None:
    meta = frame.params.get("_meta")
    found = meta.get("progressToken") if isinstance(meta, dict) else None
    return found if isinstance(found, int | str) else None


class _Process:
    """Process of a server, and its open requests."""

    def __init__(self, server: Server, *, is_shared: bool) -> None:
        self._server = server
        self._replies = Replies(server)
        self._is_shared = is_shared
        self._open: dict[Id, _Exchange] = {}
        self._listening: _Exchange | None = None
        self._unheard: deque[Frame] = deque(maxlen=UNHEARD_MAX)
        self._numbers = itertools.count(1)
        self.used_s = time.monotonic()
        self.is_gone = False
        self._hearing = asyncio.create_task(self._hear())

    @property
    def is_idle(self) -> bool:
        """True if no request and no listener is open."""
        return not self._open and self._listening is None

    async def close(self) -> None:
        """End the process."""
        self._hearing.cancel()
        await self._replies.close()
        for each in [*self._open.values()]:
            if each.work is not None:
                each.work.cancel()
        self._no_more()
        await self._server.close()

    async def send(self, frame: Frame) -> None:
        """Pass on a frame without an answer. Raises ServerGone."""
        self.used_s = time.monotonic()
        await self._server.send(frame.raw)

    async def ask(self, frame: Request, *, is_stateless: bool) -> httpx2.Response:
        """Return a request's response: its answer as a body, or a stream that ends with it.

        Raises ServerGone, NotDone.
        """
        self.used_s = time.monotonic()
        exchange = self._begun(frame)
        try:
            first = await self._first(exchange)
        except BaseException:
            await self._end(exchange)
            raise
        if isinstance(first, Answer):
            code = None if first.error is None else first.error.get("code")
            status = STATUSES.get(code, 200) if is_stateless and isinstance(code, int) else 200
            return httpx2.Response(status, headers={"content-type": JSON}, content=first.raw)
        return self._streaming(exchange, first)

    async def _first(self, exchange: _Exchange) -> Frame | None:
        """Return the first frame, None if none comes for HEAD_S. Raises ServerGone, NotDone."""
        try:
            async with asyncio.timeout(HEAD_S):
                found = await exchange.outbox.get()
        except TimeoutError:
            return None
        if isinstance(found, Exception):
            raise found
        return found

    def listen(self) -> httpx2.Response | None:
        """Open the stream of frames that name no request; None while another client has it."""
        if self._listening is not None:
            return None
        exchange = self._listening = _Exchange(None)
        for each in self._unheard:
            exchange.outbox.put_nowait(each)
        self._unheard.clear()
        return self._streaming(exchange, None)

    def _begun(self, frame: Request) -> _Exchange:
        own_id = f"{OWN}{next(self._numbers)}" if self._is_shared else None
        exchange = _Exchange(frame, own_id)
        if exchange.id in self._open:
            raise NotDone(f"a request with id {frame.id!r:.40} is still open: give each its own")
        self._open[exchange.id] = exchange
        exchange.work = asyncio.create_task(self._answer(exchange))
        return exchange

    async def _answer(self, exchange: _Exchange) -> None:
        item: Frame | Exception
        try:
            item = exchange.own(await self._server.ask(exchange.id, exchange.raw))
            await self._server.flushed()
        except (NotDone, ServerGone) as error:
            item = error
        finally:
            self._open.pop(exchange.id, None)
        await exchange.outbox.put(item)  # never dropped: a client that reads late waits for it

    def _streaming(self, exchange: _Exchange, first: Frame | None) -> httpx2.Response:
        stream = _Stream(_events(exchange, first), lambda: self._end(exchange))
        return httpx2.Response(200, headers={"content-type": EVENTS}, stream=stream)

    async def _end(self, exchange: _Exchange) -> None:
        """Close an exchange; cancel its request if the process still works at it."""
        if self._listening is exchange:
            self._listening = None
        if exchange.work is None or exchange.work.done():
            return
        is_open = self._open.get(exchange.id) is exchange
        exchange.work.cancel()
        if not is_open:
            return
        gone = {"requestId": exchange.id, "reason": "the client no longer waits for it"}
        with contextlib.suppress(ServerGone):
            await self._server.send(frames.notification(CANCELLED, gone))

    # Frames of the process

    async def _hear(self) -> None:
        while (found := await self._server.next()) is not None:
            await self._take(found)
        self.is_gone = True
        self._no_more()

    def _no_more(self) -> None:
        if self._listening is not None:
            self._put(self._listening, ServerGone("the server has ended"))

    async def _take(self, found: Frame) -> None:
        if isinstance(found, Answer):
            _log.info("an answer to no open request is dropped", id=found.id)
            return
        to = self._of(found)
        if to is None:
            if self._is_shared:
                _log.info("a notification names no open request: it is dropped")
            else:
                self._unheard.append(found)
            return
        if not self._put(to, to.own(found)) and isinstance(found, Request):
            await self._replies.refuse(found, "its client does not read")

    def _of(self, found: Request | Notification) -> _Exchange | None:
        """Return the request that a frame of the process belongs to."""
        params = found.params
        meta = params.get("_meta")
        subscription = meta.get(SUBSCRIPTION) if isinstance(meta, dict) else None
        if isinstance(found, Notification) and found.method == PROGRESS:
            token = params.get("progressToken")
            return next((each for each in self._open.values() if each.token == token), None)
        if isinstance(subscription, int | str) and subscription in self._open:
            return self._open[subscription]
        if self._is_shared:
            return next(iter(self._open.values())) if len(self._open) == 1 else None
        return next(iter(self._open.values()), self._listening)

    def _put(self, exchange: _Exchange, item: Frame | Exception) -> bool:
        """Queue an item; return whether there was room for it."""
        try:
            exchange.outbox.put_nowait(item)
        except asyncio.QueueFull:
            exchange.left_out += 1
            if exchange.left_out == 1:  # a client that left may have thousands
                message = "a client does not read its stream: further notifications are dropped"
                _log.warning(message, most=QUEUED_MAX)
            return False
        return True


class LocalServers(httpx2.AsyncBaseTransport):
    """Transport of HTTP requests to the processes."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._sessions: dict[str, _Process] = {}
        self._shared: _Process | None = None
        self._starting = asyncio.Lock()

    async def aclose(self) -> None:
        """End all processes."""
        all_ = [*self._sessions.values(), *([] if self._shared is None else [self._shared])]
        self._sessions, self._shared = {}, None
        await asyncio.gather(*(each.close() for each in all_), return_exceptions=True)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Return a request's response. Raises ServerGone, NotDone."""
        name = request.headers.get(SESSION, "")
        process = self._sessions.get(name)
        if process is not None and process.is_gone:
            del self._sessions[name]
            process = None
        if name and process is None:
            return _refused(NO_SESSION, "there is no such session: begin one with initialize")
        if request.method == "POST":
            is_stateless = request.headers.get(VERSION, "") >= STATELESS_FROM
            frame = frames.read(await request.aread())
            return await self._post(process, frame, is_stateless=is_stateless)
        if process is None:
            return _refused(NOT_ALLOWED, "only a session has a stream, and can be ended")
        if request.method == "DELETE":
            del self._sessions[name]
            await process.close()
            return httpx2.Response(200)
        return process.listen() or _refused(CONFLICT, "this session's stream is open already")

    async def _post(
        self, process: _Process | None, frame: Frame, *, is_stateless: bool
    ) -> httpx2.Response:
        if process is None and isinstance(frame, Request) and frame.method == INITIALIZE:
            return await self._handshake(frame)
        if process is None and not is_stateless:
            return _refused(400, "it names no session: begin one with initialize")
        if process is None:
            process = await self._common()
        if isinstance(frame, Request):
            return await process.ask(frame, is_stateless=is_stateless)
        await process.send(frame)
        return httpx2.Response(ACCEPTED)

    async def _handshake(self, frame: Request) -> httpx2.Response:
        if not await self._has_room():
            message = f"{SESSIONS_MAX} sessions are open, the limit: end one"
            return _refused(BUSY, message)
        process = await self._begun(is_shared=False)
        name = uuid4().hex
        self._sessions[name] = process
        try:
            response = await process.ask(frame, is_stateless=False)
        except BaseException:
            del self._sessions[name]
            await process.close()
            raise
        response.headers[SESSION] = name
        return response

    async def _has_room(self) -> bool:
        """End idle sessions; if there are too many, those idle longest."""
        now = time.monotonic()
        idle = sorted((each.used_s, name) for name, each in self._sessions.items() if each.is_idle)
        over = len(self._sessions) + 1 - SESSIONS_MAX
        for number, (used_s, name) in enumerate(idle):
            if number < over or now - used_s > IDLE_S:
                await self._sessions.pop(name).close()
        return len(self._sessions) < SESSIONS_MAX

    async def _common(self) -> _Process:
        async with self._starting:
            if self._shared is None or self._shared.is_gone:
                self._shared = await self._begun(is_shared=True)
            return self._shared

    async def _begun(self, *, is_shared: bool) -> _Process:
        try:
            return _Process(await self._start(), is_shared=is_shared)
        except ServerNotStarted as error:
            raise NotDone(str(error)) from error


async def _events(exchange: _Exchange, first: Frame | None) -> AsyncGenerator[bytes]:
    """Yield the frames of an exchange as events, until its answer. Raises ServerGone, NotDone."""
    found: Frame | Exception | None = first
    while True:
        if found is None:
            found = await exchange.outbox.get()
        if isinstance(found, Exception):
            raise found
        lines = b"\n".join(b"data: " + line for line in found.raw.splitlines())
        yield b"event: message\n" + lines + b"\n\n"
        if isinstance(found, Answer):
            return
        found = None


class _Stream(httpx2.AsyncByteStream):
    """Byte stream of a response; `ended` is called when it is closed, also if it was never read."""

    def __init__(self, parts: AsyncGenerator[bytes], ended: Callable[[], Awaitable[None]]) -> None:
        self._parts = parts
        self._ended = ended

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            yield part

    async def aclose(self) -> None:
        """Close the stream."""
        await self._parts.aclose()
        await self._ended()


def _refused(status: int, message: str) -> httpx2.Response:
    raw = frames.error(None, {"code": frames.INVALID_REQUEST, "message": message})
    return httpx2.Response(status, headers={"content-type": JSON}, content=raw)
