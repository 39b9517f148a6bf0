"""A server over HTTP for a client of pipes, behind the same door as one of pipes.

Each frame is a POST; what else the server says comes in the streams that it answers with, and in
one that is opened for it. A frame's bytes are passed on as they came; what goes beside them in
headers (session, version, method, name) is read from a copy. Which era a request is of, it says
itself: from 2026-07-28 on by its `_meta`, before by the handshake.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from typing import Any

import httpx2
import msgspec

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.calls import CALL, INITIALIZE, LIST_TOOLS, VERSION_KEY
from hansard.integrations.mcp.frames import Answer, Frame, Id, Notification, Request
from hansard.integrations.mcp.http.server import (
    EVENTS,
    JSON,
    METHOD,
    NAME,
    REFUSED_MIN,
    SESSION,
    VERSION,
    Headers,
    HttpServer,
    events,
    is_stream,
)
from hansard.integrations.mcp.upstream import Beside, Heard, ServerGone, pages

_log = logger(__name__)

SEND_S, CLOSE_S = 5.0, 2.0
"""Seconds for the server to take what it need not answer, and to be told that its client leaves."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Which parameter a request's NAME header repeats, by its method."""

INITIALIZED, CANCELLED = "notifications/initialized", "notifications/cancelled"

NO_METHOD = "HTTP 405"
"""The answer of a server that says nothing unasked."""

LAST_EVENT = "last-event-id"
"""The header by which a stream is taken up where it broke off."""

RESUMES_MAX = 5
"""So often in a row a stream is taken up again that tells nothing new."""

RESUME_S, RESUME_S_MAX = 1.0, 30.0
"""Seconds before that where the server does not say how many, and the most that it may say."""

_PLAIN = re.compile(r"[!-~]([ -~]*[!-~])?")


class _Reached(msgspec.Struct):
    """How far a stream was heard: the id of its newest event, if any has one, and the seconds that
    its server wants a client to wait before it takes it up again.
    """

    last: str = ""
    wait_s: float = RESUME_S


class HttpUpstream:
    """A server at a URL; `ask` and `next` are as those of `Upstream`."""

    def __init__(self, server: HttpServer, heard: Heard | None = None) -> None:
        self._server = server
        self._heard = heard or Heard()
        self._waiting: dict[Id, asyncio.Future[Answer]] = {}
        self._posts: dict[Id, asyncio.Task[None]] = {}
        self._beside = Beside(self, self._heard)
        self._session: str | None = None
        self._version: str | None = None
        self._listening: asyncio.Task[None] | None = None
        self._in_headers: dict[str, Any] | None = None  # schemas by their tools

    async def send(self, raw: bytes) -> None:
        """Pass a frame on; what answers a request is told by `next`. Raises ServerGone."""
        frame = frames.read(raw)
        if isinstance(frame, Request):
            await self._beside.ask(frame)
            return
        if isinstance(frame, Notification) and frame.method == CANCELLED and self._is_new():
            post = self._posts.get(frame.calls_off)
            if post is not None:  # its stream's end is how the server is told
                post.cancel()
            return
        try:
            async with asyncio.timeout(SEND_S):
                await self._post(frame)
        except TimeoutError:
            fact = f"{self._server.shown} did not take what it was told within {SEND_S:g} s"
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
        frame = frames.read(raw)
        if isinstance(frame, Request) and frame.method == CALL and _said_version(frame):
            await self._know_headers(frame)
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = waiting
        post = self._posts[id_] = asyncio.create_task(self._post(frame))
        try:
            either: set[asyncio.Future[Any]] = {waiting, post}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                self._greeted(frame, waiting.result())
                return waiting.result()
            if post.cancelled():
                raise ServerGone("the request was called off: nobody knows how far it came")
            post.result()
            fact = f"{self._server.shown} ended its answer without one"
            raise ServerGone(f"{fact}: it may have been done")
        finally:
            post.cancel()
            del self._waiting[id_], self._posts[id_]

    def _greeted(self, frame: Frame, answer: Answer) -> None:
        """After the handshake of the older eras its version is said in each request; of a list of
        tools is kept which arguments go in headers.
        """
        if isinstance(frame, Request) and frame.method == LIST_TOOLS:
            self._learn(answer)
        if isinstance(frame, Request) and frame.method == INITIALIZE:
            told: Any = answer.result
            self._version = told.get("protocolVersion") if isinstance(told, dict) else None

    def _learn(self, answer: Answer) -> None:
        found: Any = answer.result
        tools = found.get("tools") if isinstance(found, dict) else None
        known = self._in_headers = self._in_headers or {}
        for each in tools if isinstance(tools, list) else []:
            if isinstance(each, dict) and isinstance(each.get("name"), str):
                known[each["name"]] = each.get("inputSchema")

    def _parameters(self, tool: str, arguments: Any) -> dict[str, str]:
        """Return the headers that repeat arguments of a call, where its tool declares them."""
        schema = (self._in_headers or {}).get(tool)
        if not isinstance(arguments, dict) or "x-mcp-header" not in str(schema):
            return {}
        from mcp.shared import inbound  # noqa: PLC0415 -- it takes a second

        if inbound.find_invalid_x_mcp_header(schema) is not None:
            return {}
        return inbound.mcp_param_headers(inbound.x_mcp_header_map(schema), arguments)

    async def _know_headers(self, frame: Request) -> None:
        """Ask what its tools take, where no list of them has passed: a client that is answered from
        the record has it from there. What is not known goes in no header.
        """
        if self._in_headers is not None:
            return
        self._in_headers = {}
        params = {"_meta": frame.params["_meta"]}
        listing = Request(b"", "hansard-headers", LIST_TOOLS, params)
        try:
            async for _ in pages(listing, lambda page: self.ask(page.id, page.raw)):
                pass  # `ask` keeps what the tools declare
        except (NotDone, ServerGone) as error:
            _log.warning("which arguments go in headers is not known", why=str(error))

    async def next(self) -> Frame | None:
        """What the server says that is no answer `ask` waits for; None once this is closed."""
        return await self._heard.next()

    async def flushed(self) -> None:
        """Wait until `next` has given all that was said before."""
        await self._heard.flushed()

    async def close(self) -> None:
        """Leave: the session is ended, if there is one, and nothing is listened to any more."""
        self._beside.close()
        for task in (self._listening, *self._posts.values()):
            if task is not None:
                task.cancel()
        if self._session is not None:
            with contextlib.suppress(NotDone, ServerGone, TimeoutError):
                async with (
                    asyncio.timeout(CLOSE_S),
                    self._server.asked("DELETE", self._headers()),
                ):
                    pass
        await self._server.close()
        self._heard.end()

    def _is_new(self) -> bool:
        return self._version is None

    def _headers(self, frame: Frame | None = None) -> Headers:
        told = {"accept": f"{JSON}, {EVENTS}", "content-type": JSON}
        if self._session is not None:
            told[SESSION] = self._session
        said = _said_version(frame)
        version = said or self._version
        if version is not None:
            told[VERSION] = _in_header(version)
        if said and isinstance(frame, Request):
            told[METHOD] = _in_header(frame.method)
            name = frame.params.get(NAMED_BY.get(frame.method, ""))
            if isinstance(name, str):
                told[NAME] = _in_header(name)
            if frame.method == CALL and isinstance(name, str):
                told |= self._parameters(name, frame.params.get("arguments"))
        return [*told.items()]

    async def _post(self, frame: Frame) -> None:
        """Pass a frame on, and take what is answered; a stream that breaks off is taken up again
        where its events have ids. Raises NotDone, ServerGone.
        """
        reached = _Reached()
        try:
            await self._posted(frame, reached)
        except ServerGone:
            if not reached.last:
                raise
        if reached.last and isinstance(frame, Request):
            await self._resume(reached, frame.id)

    async def _posted(self, frame: Frame, reached: _Reached) -> None:
        async with self._server.asked("POST", self._headers(frame), frame.raw) as answer:
            if isinstance(frame, Request) and frame.method == INITIALIZE:
                self._session = answer.headers.get(SESSION)
            if is_stream(answer):
                await self._streamed(answer, reached)
            elif isinstance(frame, Request):
                found = await self._server.answer(answer, frame)
                await self._take(found if found.id is not None else found.under(frame.id))
            elif answer.status_code >= REFUSED_MIN:
                raise NotDone(f"{self._server.shown} answered HTTP {answer.status_code}")

    async def _streamed(self, answer: httpx2.Response, reached: _Reached) -> None:
        async for event, frame in events(answer):
            if not self._is_new():  # the newer era takes no stream up again
                reached.last = event.id or reached.last
            if event.retry is not None:
                reached.wait_s = min(event.retry / 1000, RESUME_S_MAX)
            if frame is not None:
                await self._take(frame)

    async def _resume(self, reached: _Reached, id_: Id) -> None:
        """Take a request's stream up where it broke off, until the answer has come. Raises
        ServerGone.
        """
        why, tries = "it ended", 0
        while (waiting := self._waiting.get(id_)) is not None and not waiting.done():
            if tries == RESUMES_MAX:
                fact = f"{self._server.shown} broke off, and does not go on after {tries} tries"
                raise ServerGone(f"{fact} ({why}): it may have been done")
            await asyncio.sleep(reached.wait_s)
            before = reached.last
            try:
                why = await self._listened(reached)
            except (NotDone, ServerGone) as error:
                why = str(error)
            tries = tries + 1 if reached.last == before else 0

    async def _listened(self, reached: _Reached) -> str:
        """Open a stream, from where it was heard to, and take what is said; why it is over."""
        told = dict(self._headers()) | {"accept": EVENTS}
        if reached.last:
            told[LAST_EVENT] = reached.last
        async with self._server.asked("GET", [*told.items()]) as answer:
            if not is_stream(answer):
                return f"HTTP {answer.status_code}"
            await self._streamed(answer, reached)
            return "it ended"

    async def _take(self, frame: Frame) -> None:
        """Give a frame to who waits for it. A stream whose client does not read waits, too."""
        waiting = None
        if isinstance(frame, Answer) and frame.id is not None:
            waiting = self._waiting.get(frame.id)
        if waiting is None:
            await self._heard.put(frame)
        elif isinstance(frame, Answer) and not waiting.done():
            waiting.set_result(frame)

    async def _listen(self) -> None:
        """Take what the server says unasked; a stream that breaks off is taken up again."""
        reached, why, tries = _Reached(), "", 0
        while tries < RESUMES_MAX:
            before = reached.last
            try:
                why = await self._listened(reached)
            except (NotDone, ServerGone) as error:
                why = str(error)
            if why == NO_METHOD:
                return
            tries = tries + 1 if reached.last == before else 0
            await asyncio.sleep(reached.wait_s)
        _log.warning("what the server says unasked is not heard any more", why=why)


def _said_version(frame: Frame | None) -> str | None:
    """The version that a request of the newer era says."""
    meta = frame.params.get("_meta") if isinstance(frame, Request | Notification) else None
    said = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    return said if isinstance(said, str) else None


def _in_header(value: str) -> str:
    """A value as a header may have it: as it is, or in Base64, marked."""
    if _PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
