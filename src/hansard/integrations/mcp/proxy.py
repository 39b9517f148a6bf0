"""The proxy of one client over pipes: between it and a server, each request that is a step put on
record.

What passes is the raw frames: a request goes on as it came, and so does its answer, once that is on
record. A call that is on record is answered from it, under the id of who asks now; then the server
is not asked, and in a replay that only reads it is not even started.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from hansard.bus.loggers import logger
from hansard.domain.errors import HansardError
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.approvals import answered_elsewhere, offers_forms
from hansard.integrations.mcp.calls import INITIALIZE, Asked, asked, asked_back
from hansard.integrations.mcp.frames import (
    Answer,
    BadFrame,
    Frame,
    Id,
    Notification,
    Request,
)
from hansard.integrations.mcp.recording import Recording, unanswerable
from hansard.integrations.mcp.upstream import ASKED_MAX, Lines, Replies, Server, ServerGone

_log = logger(__name__)

CANCELLED_WAIT_S = 2.0
"""Seconds that a server has to answer what a client has cancelled; then it is in doubt."""

LEAVE_WAIT_S = 5.0
"""Seconds for calls that are open when the client leaves; then they are in doubt."""

Write = Callable[[bytes], Awaitable[None]]
"""Writes a frame to the client, and waits while it has not read much. Raises ConnectionError where
it has left.
"""


class Proxy:
    """One client, one server, one session. `upstream` is None where nothing is asked."""

    def __init__(self, recording: Recording, upstream: Server | None, write: Write) -> None:
        self._recording = recording
        self._upstream = upstream
        self._write = write
        self._left = asyncio.Event()
        self._open: dict[Id, asyncio.Task[None]] = {}
        self._others = set[asyncio.Task[None]]()
        self._asked_back: dict[Id | None, asyncio.Future[Answer]] = {}
        self._numbers = itertools.count(1)
        self.elicits = False

    async def serve(self, client: asyncio.StreamReader) -> None:
        """Until the client leaves, or the server has ended; calls that are open then are waited
        for a little.
        """
        reading = asyncio.ensure_future(self._client(Lines(client)))
        leaving = asyncio.ensure_future(self._left.wait())
        doing: set[asyncio.Future[Any]] = {reading, leaving}
        if self._upstream is not None:
            doing.add(asyncio.ensure_future(self._server(self._upstream)))
        try:
            await asyncio.wait(doing, return_when=asyncio.FIRST_COMPLETED)
            await self._settled()
        finally:
            for each in (*doing, *self._open.values(), *self._others):
                each.cancel()
            await asyncio.gather(
                *doing, *self._open.values(), *self._others, return_exceptions=True
            )
        for each in doing:
            if not each.cancelled() and (error := each.exception()) is not None:
                raise error

    # The client, as a call that waits for an approval sees it

    async def notify(self, raw: bytes) -> None:
        """Send a notification."""
        await self._tell(raw)

    async def elicit(self, params: dict[str, Any]) -> Answer:
        """Send `elicitation/create`, and wait for its answer; cancelled, the client is told."""
        id_ = f"hansard-approval-{next(self._numbers)}"
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked_back[id_] = waiting
        try:
            await self._tell(frames.request(id_, "elicitation/create", params))
            return await waiting
        except asyncio.CancelledError:
            await self._tell(answered_elsewhere(id_))
            raise
        finally:
            del self._asked_back[id_]

    async def _tell(self, raw: bytes) -> None:
        """Write a frame to the client, which waits where it does not read. One that has left is
        told nothing: what comes of its calls is on record.
        """
        try:
            await self._write(raw)
        except ConnectionError:
            self._left.set()

    async def _settled(self) -> None:
        waiting = [*self._open.values()]
        if waiting:
            await asyncio.wait(waiting, timeout=LEAVE_WAIT_S)

    # What comes from either side

    async def _client(self, lines: Lines) -> None:
        while True:
            try:
                line = await lines.next()
                if line is None:
                    return
                frame = frames.read(line)
            except BadFrame as bad:
                error = {"code": bad.code, "message": str(bad)}
                if not bad.is_answer or bad.id not in self._asked_back:
                    await self._tell(frames.error(bad.id, error))
                    continue
                frame = Answer(frames.error(bad.id, error), bad.id, None, error)
            if isinstance(frame, Request):
                await self._request(frame)
                continue
            if isinstance(frame, Notification):
                self._called_off(frame)
            if not self._answered_back(frame):
                await self._pass_on(frame)

    async def _server(self, upstream: Server) -> None:
        replies = Replies(upstream)
        try:
            while (frame := await upstream.next()) is not None:
                await self._said(upstream, frame, replies)
        finally:
            await replies.close()

    async def _said(self, upstream: Server, frame: Frame, replies: Replies) -> None:
        step = asked_back(frame) if isinstance(frame, Request) else None
        if isinstance(frame, Answer) and frame.id in self._open:
            # The first is being put on record; this one never is, so that nobody is given it.
            _log.warning("the server answered a request twice: the first counts", id=frame.id)
        elif step is None or not isinstance(frame, Request):
            await self._tell(frame.raw)
        elif len(self._others) >= ASKED_MAX:
            await replies.refuse(frame, f"{ASKED_MAX:,} questions wait for the client's answers")
        else:
            task = self._recording.begin(self._step_back(upstream, frame, step))
            self._others.add(task)
            task.add_done_callback(self._others.discard)

    async def _pass_on(self, frame: Frame) -> None:
        if self._upstream is not None:
            with contextlib.suppress(ServerGone):  # its end is told to who waits for an answer
                await self._upstream.send(frame.raw)

    async def _step_back(self, upstream: Server, frame: Request, step: Asked) -> None:
        """Answer what the server asks, from the record or by the client."""

        async def ask() -> Answer:
            waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._asked_back[frame.id] = waiting
            try:
                await self._tell(frame.raw)
                return await waiting
            finally:
                del self._asked_back[frame.id]

        answer = await self._recording.answer_back(frame, step, ask)
        with contextlib.suppress(ServerGone):
            await upstream.send(answer)

    def _answered_back(self, frame: Frame) -> bool:
        """Whether a frame answers what the server asked, of which a step waits."""
        waiting = self._asked_back.get(frame.id) if isinstance(frame, Answer) else None
        if waiting is None or waiting.done() or not isinstance(frame, Answer):
            return False
        waiting.set_result(frame)
        return True

    def _called_off(self, frame: Notification) -> None:
        if frame.method != "notifications/cancelled":
            return
        task = self._open.get(frame.calls_off)
        if task is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(CANCELLED_WAIT_S, task.cancel)

    async def _request(self, frame: Request) -> None:
        if frame.id in self._open:
            message = f"id {frame.id!r:.40} is that of a request that is still open"
            told = {"code": frames.INVALID_REQUEST, "message": f"{message}: give each its own"}
            await self._tell(frames.error(frame.id, told))
            return
        if frame.method == INITIALIZE:
            self.elicits = offers_forms(frame.params.get("capabilities"))
        try:
            step = asked(frame)
        except HansardError as bad:
            told = {"code": frames.INVALID_PARAMS, "message": str(bad)}
            await self._tell(frames.error(frame.id, told))
            return
        if step is None and self._upstream is not None:
            await self._pass_on(frame)
        elif step is None:
            await self._tell(unanswerable(frame))
        else:
            task = self._recording.begin(self._step(frame, step))
            self._open[frame.id] = task
            task.add_done_callback(lambda _: self._open.pop(frame.id, None))

    async def _step(self, frame: Request, step: Asked) -> None:
        """Answer a request, from the record or by the server."""
        ask = None if self._upstream is None else partial(self._ask, self._upstream)
        found = await self._recording.answer(frame, step, ask, self)
        if self._upstream is not None and found.is_servers:
            await self._upstream.flushed()  # what was said before it goes before it
        await self._tell(found.raw)

    async def _ask(self, upstream: Server, frame: Request) -> Answer:
        """The server's answer; where nobody waits for it any more the server is told."""
        try:
            return await upstream.ask(frame.id, frame.raw)
        except asyncio.CancelledError:
            gone = {"requestId": frame.id, "reason": "the proxy waits no longer"}
            with contextlib.suppress(ServerGone, TimeoutError):  # it may read nothing any more
                async with asyncio.timeout(CANCELLED_WAIT_S):
                    await upstream.send(frames.notification("notifications/cancelled", gone))
            raise
