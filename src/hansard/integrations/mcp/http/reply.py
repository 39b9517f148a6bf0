"""What goes back to a client on one request of HTTP: a body, or a stream of events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import anyio
from httpx2 import ServerSentEvent
from sse_starlette import EventSourceResponse
from sse_starlette import ServerSentEvent as Event
from starlette.requests import Request
from starlette.responses import Response

EVENTS_MAX = 64
"""Of a stream whose client does not read; then the server waits, too."""

CLIENT_LEFT = 499
"""A status that nobody reads."""

CLOSING = 503
"""Of a request that nothing was said on when the proxy ended."""


class Reply:
    """What goes back on one HTTP request: a body, or a stream of events.

    `head` and `stream` pass on how the server answers, `finish` gives the last frame either way.
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
        """How the server answers."""
        self._status, self._headers = status, headers

    def stream(self) -> None:
        """What follows are events."""
        if self._ready.done():
            return
        self._is_stream = True
        response = EventSourceResponse(self._events(), status_code=self._status)
        self._with_headers(response)
        self._ready.set_result(response)

    async def put(self, event: ServerSentEvent) -> None:
        """An event of the stream; nothing where nobody takes it any more."""
        told = Event(
            data=event.data,
            event=event.event,
            id=event.id or None,
            retry=event.retry,
        )
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._put.send(told)

    async def finish(self, raw: bytes, status: int | None = None) -> None:
        """The last frame: of a stream an event (of the id that is `last`), else the body; with a
        status it is the proxy's own.
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
        """There is no more."""
        self._put.close()
        if not self._ready.done():
            self._ready.set_result(Response(status_code=CLOSING))

    def _with_headers(self, response: Response) -> None:
        own = "content-type" if self._is_stream else ""
        given = [(name.lower(), value) for name, value in self._headers if name.lower() != own]
        for name in {name for name, _ in given}.intersection(response.headers):
            del response.headers[name]
        for name, value in given:
            response.headers.append(name, value)

    async def response(self, request: Request) -> Response:
        """The response, once it is known what it is."""
        leaving = asyncio.ensure_future(_left(request))
        try:
            either: set[asyncio.Future[Any]] = {self._ready, leaving}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
        if self._ready.done():
            return self._ready.result()
        self._gone()
        return Response(status_code=CLIENT_LEFT)

    async def _events(self) -> AsyncGenerator[Event]:
        try:
            async for event in self._taken:
                yield event
        finally:
            self._gone()

    def _gone(self) -> None:
        """Nobody takes what comes any more."""
        self.left.set()
        self._taken.close()
        if self.calls_off and self.work is not None:
            self.work.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
