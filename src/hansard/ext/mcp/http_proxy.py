"""Proxy for clients over streamable HTTP.

Any number of clients share one proxy and one run. Each request is passed on as a request of its
own, with the protocol's session (`Mcp-Session-Id`), which is the server's. An answer is held until
it is on record, wherever it arrives: as a body, on the stream of its own request, or, if that
broke, on the stream that its client resumes.

Long because a reply and its call are one exchange.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hmac
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import msgspec
from httpx2 import ServerSentEvent
from sse_starlette import EventSourceResponse
from sse_starlette import ServerSentEvent as Event
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.client.listening import LOCAL, Address, bearer, foreign, listen, refuse
from hansard.domain.errors import BadValue, HansardError
from hansard.ext.mcp import frames
from hansard.ext.mcp.frames import (
    FRAME_BYTES_MAX,
    INITIALIZE,
    Answer,
    BadFrame,
    Frame,
    Id,
    Notification,
    Request,
    StepRequest,
    reverse_step_of,
    step_of,
)
from hansard.ext.mcp.http_server import (
    ACCEPTED,
    BAD_REQUEST,
    BROKEN_OFF,
    END_S,
    LEGACY_PATHS,
    LOST,
    METHOD,
    NOT_ALLOWED,
    SESSION,
    STATELESS_FROM,
    STATUSES,
    VERSION,
    WELL_KNOWN,
    Headers,
    HttpServer,
    HttpUpstream,
    Refused,
    ResourceMetadata,
    events,
    is_stream,
    passed_on,
)
from hansard.ext.mcp.recording import Recording, answered_elsewhere, offers_forms, unanswerable
from hansard.ext.mcp.serving import CANCELLED_WAIT_S, LEAVE_WAIT_S
from hansard.ext.mcp.upstream import QUESTIONS_MAX, Expected, ServerGone

_log = logger(__name__)

# ------------------------------------------------------------ replies

EVENTS_MAX = 64
"""Most events queued for a client that does not read; then the server waits as well."""

CLIENT_LEFT = 499
"""HTTP status for a client that left; it is never read."""

CLOSING = 503
"""HTTP status of a request without any response when the proxy ends."""


class Reply:
    """Response to one HTTP request: a body, or a stream of events.

    `head` and `stream` pass on the server's response, `finish` gives the last frame in either
    case.
    """

    def __init__(self, *, calls_off: bool) -> None:
        self.calls_off = calls_off
        self.left = asyncio.Event()
        self.last = ""
        self.work: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._put, self._taken = anyio.create_memory_object_stream[Event](EVENTS_MAX)
        self._is_stream = False
        self._status = 200
        self._headers: list[tuple[str, str]] = [("content-type", "application/json")]

    def head(self, status: int, headers: list[tuple[str, str]]) -> None:
        """Set the server's status and headers."""
        self._status, self._headers = status, headers

    def stream(self) -> None:
        """Begin a stream of events."""
        if self._ready.done():
            return
        self._is_stream = True
        response = EventSourceResponse(self._events(), status_code=self._status)
        self._with_headers(response)
        self._ready.set_result(response)

    async def put(self, event: ServerSentEvent) -> None:
        """Queue an event of the stream; it is dropped if the client has left."""
        sent = Event(data=event.data, event=event.event, id=event.id or None, retry=event.retry)
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._put.send(sent)

    async def finish(self, raw: bytes, status: int | None = None) -> None:
        """Give the last frame: an event of a stream (with the id `last`), else the body.

        With a status, it is the proxy's own response.
        """
        if self._is_stream:
            await self.put(ServerSentEvent(data=raw.decode(), id=self.last))
        elif not self._ready.done():
            response = Response(raw, status_code=self._status if status is None else status)
            self._with_headers(response)
            if status is not None:
                response.headers["content-type"] = "application/json"
            self._ready.set_result(response)
        self.close()

    def close(self) -> None:
        """Close the response."""
        self._put.close()
        if not self._ready.done():
            self._ready.set_result(Response(status_code=CLOSING))

    def _with_headers(self, response: Response) -> None:
        own = "content-type" if self._is_stream else ""
        passed = [(name.lower(), value) for name, value in self._headers if name.lower() != own]
        for name in {name for name, _ in passed}.intersection(response.headers):
            del response.headers[name]
        for name, value in passed:
            response.headers.append(name, value)

    async def response(self, request: HttpRequest) -> Response:
        """Return the response, once its kind is known."""
        leaving = asyncio.ensure_future(_left(request))
        try:
            either: set[asyncio.Future[Any]] = {self._ready, leaving}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
        if self._ready.done():
            return self._ready.result()
        self._mark_left()
        return Response(status_code=CLIENT_LEFT)

    async def _events(self) -> AsyncGenerator[Event]:
        try:
            async for event in self._taken:
                yield event
        finally:
            self._mark_left()

    def _mark_left(self) -> None:
        """Note that the client has left."""
        self.left.set()
        self._taken.close()
        if self.calls_off and self.work is not None:
            self.work.cancel()


async def _left(request: HttpRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


REFUSE_S = 5.0
"""Seconds that a server has to read the refusal of its request."""

ELICITING_MAX = 10_000
"""Most sessions remembered whose client offers elicitation; the oldest is dropped."""

OF_A_CALL = ("mcp-name", "mcp-param-")
"""Prefixes of headers that belong to one request."""

Key = tuple[str, Id]
"""Session, and a request's id in it."""


class _Source(msgspec.Struct, frozen=True):
    """Origin of a client's frame.

    Its headers, its session ("" for none), the response of its request, the address it was sent to,
    and whether its revision has no sessions.
    """

    headers: Headers
    session: str
    reply: Reply
    address: httpx2.URL
    is_stateless: bool = False


def _source_of(request: HttpRequest, reply: Reply) -> _Source:
    headers = request.headers
    is_stateless = headers.get(VERSION, "") >= STATELESS_FROM
    session, address = headers.get(SESSION, ""), httpx2.URL(str(request.url.replace(query="")))
    return _Source([*headers.items()], session, reply, address, is_stateless)


class _ToClient:
    """Client of a call over HTTP, while the call waits for an approval."""

    def __init__(self, call: _Source, expected: ExpectedBack, *, elicits: bool) -> None:
        self.elicits = elicits
        self._call = call
        self._expected = expected

    async def notify(self, frame: Frame) -> None:
        """Send a notification on the request's own stream."""
        self._call.reply.stream()
        await self._call.reply.put(ServerSentEvent(data=frame.raw.decode()))

    async def elicit(self, params: dict[str, Any]) -> Answer:
        """Send `elicitation/create` on that stream, and wait for its answer."""
        id_ = f"hansard-approval-{uuid4().hex}"
        with self._expected.answer_to((self._call.session, id_)) as awaited:
            try:
                await self.notify(frames.request(id_, "elicitation/create", params))
                answer, sent = await awaited
            except asyncio.CancelledError:
                await self.notify(answered_elsewhere(id_))
                raise
        await sent.reply.finish(b"", ACCEPTED)
        return answer


ExpectedBack = Expected[Key, tuple[Answer, _Source]]
"""Expected answers of clients, and the requests that bring them."""


class _Call(msgspec.Struct, eq=False):
    """Open request; its answer may arrive on another stream than its own.

    `refused` is the body with which the server's HTTP refused it.
    """

    answer: asyncio.Future[Answer]
    recorded: asyncio.Future[bytes]
    resumable: bool = False
    refused: bytes | None = None


class HttpProxy:
    """Proxy of any number of clients to one server in one run; `server` is None in an offline
    replay.
    """

    def __init__(self, recording: Recording, server: HttpServer | None) -> None:
        self._recording = recording
        self._server = server
        self._tasks = set[asyncio.Task[None]]()
        self._steps = set[asyncio.Task[None]]()
        self._questions = set[asyncio.Task[None]]()
        self._refused_back = 0
        self._calls: dict[Key, _Call] = {}
        self._expected = ExpectedBack()
        self._elicits: dict[str, None] = {}  # sessions whose client offers elicitation

    async def close(self) -> None:
        """Close the proxy; open calls get a short time, then they are in doubt."""
        if self._steps:
            await asyncio.wait(self._steps, timeout=LEAVE_WAIT_S)
        tasks = [*self._tasks]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Frames of clients

    def post(self, request: HttpRequest, raw: bytes) -> Reply:
        """Handle a frame of a client."""
        reply = Reply(calls_off=False)
        source = _source_of(request, reply)
        try:
            frame = frames.read(raw)
        except BadFrame as bad:
            self._begin(reply, self._refuse(bad.id, bad.code, str(bad), source))
            return reply
        try:
            step = step_of(frame) if isinstance(frame, Request) else None
        except HansardError as bad:
            id_ = frame.id if isinstance(frame, Request) else None
            self._begin(reply, self._refuse(id_, frames.INVALID_PARAMS, str(bad), source))
            return reply
        if (
            isinstance(frame, Answer)
            and frame.id is not None
            and self._expected.give((source.session, frame.id), (frame, source))
        ):
            return reply  # its waiter passes it on
        if not isinstance(frame, Request) or step is None:
            reply.calls_off = isinstance(frame, Request)
            self._begin(reply, self._no_step(frame, source))
        elif source.session and (source.session, frame.id) in self._calls:
            message = f"id {frame.id!r:.40} is that of an open request: give each its own"
            self._begin(reply, self._refuse(frame.id, frames.INVALID_REQUEST, message, source))
        else:
            reply.calls_off = source.is_stateless
            task = self._begin(reply, self._step(frame, step, source))
            self._steps.add(task)
            task.add_done_callback(self._steps.discard)
        return reply

    def other(self, request: HttpRequest) -> Reply:
        """Handle a client that opens the stream of its session or ends the session."""
        reply = Reply(calls_off=request.method == "GET")
        source = _source_of(request, reply)
        if self._server is None:
            self._begin(reply, reply.finish(b"", NOT_ALLOWED))
        else:
            self._begin(reply, self._pass(self._server, request.method, None, source))
        return reply

    def _begin(self, reply: Reply, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def until_closed() -> None:
            try:
                await work
            finally:
                reply.close()

        task = reply.work = self._recording.begin(until_closed())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _refuse(self, id_: Id | None, code: int, why: str, source: _Source) -> None:
        await source.reply.finish(frames.failure(id_, code, why).raw, BAD_REQUEST)

    async def _no_step(self, frame: Frame, source: _Source) -> None:
        if self._server is not None:
            await self._pass(self._server, "POST", frame.raw, source)
            if isinstance(frame, Notification) and frame.method == "notifications/cancelled":
                self._cancel((source.session, frame.calls_off))
        elif isinstance(frame, Request):
            answer = unanswerable(frame)
            await source.reply.finish(answer.raw, _status(answer, source))
        else:
            await source.reply.finish(b"", ACCEPTED)

    def _cancel(self, key: Key) -> None:
        call = self._calls.get(key)
        if call is not None:
            gone = ServerGone("its client cancelled it, and the server did not answer")
            asyncio.get_running_loop().call_later(CANCELLED_WAIT_S, _fail, call, gone)

    # Steps

    async def _step(self, frame: Request, step: StepRequest, source: _Source) -> None:
        """Answer a request from the record or through the server."""
        loop = asyncio.get_running_loop()
        call, key = _Call(loop.create_future(), loop.create_future()), (source.session, frame.id)
        if source.session:
            self._calls[key] = call
        ask = (
            None if self._server is None else partial(self._ask, self._server, frame, call, source)
        )
        try:
            client = _ToClient(source, self._expected, elicits=source.session in self._elicits)
            response = await self._recording.answer(frame, step, ask, client)
            raw = response.answer.raw
            call.recorded.set_result(raw)
            if call.refused is not None:
                await source.reply.finish(call.refused)
            else:
                status = None if response.is_servers else _status(response.answer, source)
                await source.reply.finish(raw, status)
        finally:
            if self._calls.get(key) is call:
                del self._calls[key]
            call.recorded.cancel()

    async def _ask(
        self, server: HttpServer, asked_: Request, call: _Call, source: _Source, frame: Request
    ) -> Answer:
        """Return the server's answer to a client's request, or to the proxy's own one for it."""
        if frame is not asked_:
            return await self._ask_aside(server, frame, source)
        async with server.request("POST", source.headers, frame.raw) as response:
            _head(server, response, source)
            session = response.headers.get(SESSION) if asked_.method == INITIALIZE else None
            if session and offers_forms(asked_.params.get("capabilities")):
                self._elicits[session] = None
                if len(self._elicits) > ELICITING_MAX:
                    del self._elicits[next(iter(self._elicits))]
            if not is_stream(response):
                try:
                    return await server.answer(response, frame)
                except Refused as refused:
                    call.refused = refused.raw
                    raise
            source.reply.stream()
            answer = await self._on_stream(response, frame, call, source)
        if answer is None and source.session and call.resumable:
            source.reply.close()  # its client continues on another stream, by the last event's id
            answer = await call.answer
        if answer is None:
            raise ServerGone(f"{server.shown} ended its stream before the answer")
        return answer

    async def _on_stream(
        self, response: httpx2.Response, frame: Request, call: _Call, source: _Source
    ) -> Answer | None:
        """Return the answer on a request's own stream, or on another that has it first.

        None if the stream ends before, or if its client left it to resume it elsewhere.
        """
        taking = asyncio.ensure_future(self._take(response, frame, call, source))
        leaving = asyncio.ensure_future(source.reply.left.wait())
        try:
            waiting: set[asyncio.Future[Any]] = {taking, call.answer, leaving}
            while True:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if taking in done:
                    return taking.result()
                if call.answer in done:
                    return await call.answer
                if call.resumable and source.session:
                    return None
        finally:
            for each in (taking, leaving):
                each.cancel()
            await asyncio.gather(taking, leaving, return_exceptions=True)

    async def _take(
        self, response: httpx2.Response, frame: Request, call: _Call, source: _Source
    ) -> Answer | None:
        answer: Answer | None = None
        try:
            async with asyncio.timeout(None) as limit:
                async for event, passed in events(response):
                    call.resumable = call.resumable or bool(event.id)
                    if answer is None and isinstance(passed, Answer) and passed.id == frame.id:
                        source.reply.last, answer = event.id, passed
                        limit.reschedule(asyncio.get_running_loop().time() + END_S)
                    else:
                        await self._say(event, passed, source)
        except (TimeoutError, ServerGone, *BROKEN_OFF):
            if answer is None:
                raise
        return answer

    async def _ask_aside(self, server: HttpServer, frame: Request, source: _Source) -> Answer:
        """Return the answer to a request of the proxy's own in the client's name."""
        headers = [
            (name, frame.method if name == METHOD else value)
            for name, value in source.headers
            if not name.startswith(OF_A_CALL)
        ]
        async with server.request("POST", headers, frame.raw) as response:
            if not is_stream(response):
                return await server.answer(response, frame)
            async for _, received in events(response):
                if isinstance(received, Answer) and received.id == frame.id:
                    return received
        raise ServerGone(f"{server.shown} ended its stream before the answer")

    # Frames of the server

    async def _pass(
        self, server: HttpServer, method: str, raw: bytes | None, source: _Source
    ) -> None:
        """Pass on a request that is no step, and return its answer."""
        try:
            async with server.request(method, source.headers, raw) as response:
                _head(server, response, source)
                if is_stream(response):
                    source.reply.stream()
                    async for event, frame in events(response):
                        await self._say(event, frame, source)
                else:
                    await source.reply.finish(await server.body(response))
            if method == "DELETE" and response.is_success:
                self._ended(source.session)
        except (NotDone, ServerGone) as lost:
            failure = frames.failure(None, frames.INTERNAL_ERROR, str(lost))
            await source.reply.finish(failure.raw, LOST)

    def _ended(self, session: str) -> None:
        self._elicits.pop(session, None)
        for (of, _), call in self._calls.items():
            if of == session:
                _fail(call, ServerGone("its client ended the session"))

    async def _say(self, event: ServerSentEvent, frame: Frame | None, source: _Source) -> None:
        """Pass on frames of the server's stream: an answer once it is on record, a request as a
        step.
        """
        step = reverse_step_of(frame) if isinstance(frame, Request) else None
        if isinstance(frame, Request) and step is not None:
            if len(self._questions) >= QUESTIONS_MAX:
                await self._refuse_back(frame, source)
                return
            task = self._recording.begin(self._step_back(frame, step, event, source))
            for held in (self._tasks, self._questions):
                held.add(task)
                task.add_done_callback(held.discard)
            return
        call = None
        if isinstance(frame, Answer) and frame.id is not None:
            call = self._calls.get((source.session, frame.id))
        if call is not None and isinstance(frame, Answer):
            if not call.answer.done():
                call.answer.set_result(frame)
            event = dataclasses.replace(event, data=(await call.recorded).decode())
        await source.reply.put(event)

    async def _step_back(
        self, frame: Request, step: StepRequest, event: ServerSentEvent, source: _Source
    ) -> None:
        """Answer a request of the server from the record or through the client."""
        answers: list[_Source] = []

        async def ask() -> Answer:
            with self._expected.answer_to((source.session, frame.id)) as awaited:
                await source.reply.put(event)
                answer, answerer = await awaited
                answers.append(answerer)
                return answer

        answer = await self._recording.answer_back(frame, step, ask)
        await self._answer_back(answer.raw, answers[0] if answers else _aside(source))

    async def _answer_back(self, raw: bytes, to: _Source) -> None:
        if self._server is not None:
            with contextlib.closing(to.reply):
                await self._pass(self._server, "POST", raw, to)

    async def _refuse_back(self, frame: Request, source: _Source) -> None:
        """Refuse a request of the server: too many are open."""
        why = f"{QUESTIONS_MAX:,} requests wait for the client's answers"
        self._refused_back += 1
        if self._refused_back == 1:  # their number is unbounded
            _log.warning("a request of the server is refused", method=frame.method, why=why)
        failure = frames.failure(frame.id, frames.INTERNAL_ERROR, why)
        with contextlib.suppress(TimeoutError):  # then it accepts no answer
            async with asyncio.timeout(REFUSE_S):
                await self._answer_back(failure.raw, _aside(source))


def _aside(source: _Source) -> _Source:
    """Return a source for requests in a client's name whose answers it does not get."""
    return msgspec.structs.replace(source, reply=Reply(calls_off=False))


def _head(server: HttpServer, response: httpx2.Response, source: _Source) -> None:
    """Pass on the server's status and headers."""
    status = response.status_code
    headers = passed_on(response.headers.multi_items())
    source.reply.head(status, server.metadata.addressed(status, headers, source.address))


def _fail(call: _Call, gone: ServerGone) -> None:
    if not call.answer.done():
        call.answer.set_exception(gone)


def _status(answer: Answer, source: _Source) -> int:
    """Return the HTTP status of an answer without a response of a server."""
    code = answer.error.get("code") if answer.error else None
    return STATUSES.get(code or 0, 200) if source.is_stateless else 200


# ------------------------------------------------------------ the listener

PATH = "/mcp"
"""Path of the endpoint."""

UNKNOWN = "no known token: send 'Authorization: Bearer TOKEN', the one in --token-file"


def server_at(url: str, headers: Mapping[str, str]) -> HttpUpstream:
    """Create a server at a URL, for a client over stdio. Raises BadValue."""
    return HttpUpstream(HttpServer(url, headers))


def address(text: str, hosts: Sequence[str], client_token: str | None) -> Address:
    """Parse the address for clients. Raises BadValue."""
    parsed = Address.of(text, hosts)
    if parsed.host not in LOCAL and client_token is None:
        fact = f"at {parsed.host} other machines can connect"
        raise BadValue("--http", fact, "give --token-file, whose token clients must send")
    return parsed


async def serve(
    where: Address,
    client_token: str | None,
    server: HttpServer | None,
    recording: Callable[[], AbstractAsyncContextManager[Recording]],
    listens: Callable[[str], None],
) -> None:
    """Serve clients over HTTP until cancelled, which ends the run as completed.

    `server` is None in an offline replay. Raises BadValue.
    """
    try:
        async with recording() as opened:
            proxy = HttpProxy(opened, server)
            metadata = None if server is None else server.metadata
            app = _endpoint(proxy, metadata, [where.host, *where.hosts], client_token)
            with contextlib.suppress(asyncio.CancelledError):
                await listen(app, where, PATH, listens, proxy.close)
    finally:
        if server is not None:
            await server.close()


def _endpoint(
    proxy: HttpProxy, metadata: ResourceMetadata | None, hosts: Sequence[str], token: str | None
) -> ASGIApp:
    """Build the ASGI application that accepts posted frames and opens streams.

    It answers requests for a name of this machine or of `hosts`, with the token if one is required.
    """

    async def describe(request: HttpRequest) -> Response:
        if metadata is None:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        status, raw = await metadata.read(str(request.url.replace(path=PATH, query="")))
        return Response(raw, status, media_type="application/json")

    async def legacy(request: HttpRequest) -> Response:
        raw = await _body(request)
        if metadata is None or raw is None:
            return Response(status_code=HTTPStatus.NOT_FOUND)
        url = request.url
        path = f"{url.path}?{url.query}" if url.query else url.path
        status, body, location = await metadata.legacy(path, request.headers, raw)
        headers = {"Location": location} if location else {"Cache-Control": "no-store"}
        return Response(body, status, headers, "application/json")

    async def answer(request: HttpRequest) -> Response:
        try:
            raw = await _body(request)
        except ClientDisconnect:
            return Response(status_code=CLIENT_LEFT)
        if raw is None:
            message = f"a body of more than {FRAME_BYTES_MAX:,} bytes: send less"
            return refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
        reply = proxy.post(request, raw) if request.method == "POST" else proxy.other(request)
        return await reply.response(request)

    routes = [
        Route(PATH, answer, methods=["GET", "POST", "DELETE"]),
        Route(WELL_KNOWN + PATH, describe),
        *(Route(path, legacy, methods=["GET", "POST"]) for path in LEGACY_PATHS),
    ]
    return Starlette(routes=routes, middleware=[Middleware(_AccessCheck, hosts=hosts, token=token)])


class _AccessCheck:
    """Middleware that refuses requests for other host names, from foreign pages, and without the
    token.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], token: str | None) -> None:
        self._app = app
        self._hosts = {*LOCAL, *(host.lower() for host in hosts)}
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        headers = HttpRequest(scope).headers
        refusal = foreign(headers, self._hosts)
        if refusal is None and self._token is not None:
            if not hmac.compare_digest(bearer(headers), self._token):
                refusal = HTTPStatus.UNAUTHORIZED, UNKNOWN
            kept = [each for each in scope["headers"] if each[0] != b"authorization"]
            scope = {**scope, "headers": kept}  # the token is not the server's
        app = self._app if refusal is None else refuse(*refusal)
        await app(scope, receive, send)


async def _body(request: HttpRequest) -> bytes | None:
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > FRAME_BYTES_MAX:
            return None
    return bytes(taken)
