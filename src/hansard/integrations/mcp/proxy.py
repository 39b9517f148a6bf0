"""The proxy: between a client and a server, each request that is a step put on record.

What passes is the raw frames: a request goes on as it came, and so does its answer, once that is on
record. A call that is on record is answered from it, under the id of who asks now; then the server
is not asked, and in a replay that only reads it is not even started.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from hansard.agents.errors import NotDone
from hansard.bus.loggers import logger
from hansard.domain.counted import counted
from hansard.domain.errors import HansardError
from hansard.domain.steps import Effects
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.calls import (
    CALL,
    INITIALIZE,
    LIST_TOOLS,
    Asked,
    ErrorAnswer,
    ToolErrorResult,
    asked,
    asked_back,
    came,
    forwarded,
    refusal,
)
from hansard.integrations.mcp.frames import (
    INTERNAL_ERROR,
    Answer,
    BadFrame,
    Frame,
    Id,
    Notification,
    Request,
)
from hansard.integrations.mcp.rules import ToolEffects
from hansard.integrations.mcp.upstream import Lines, Server, ServerGone

_log = logger(__name__)

NO_SERVER = "a replay asks no server"

CANCELLED_WAIT_S = 2.0
"""Seconds that a server has to answer what a client has cancelled; then it is in doubt."""

LEAVE_WAIT_S = 5.0
"""Seconds for calls that are open when the client leaves; then they are in doubt."""

PAGES_MAX = 50
"""Pages of a list of tools that the proxy itself asks for."""

EMPTY = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""Requests that a replay answers with an empty result: they ask for nothing that is recorded."""

Write = Callable[[bytes], Awaitable[None]]
"""Writes a frame to the client."""


class Told(msgspec.Struct):
    """What a proxy did.

    Attributes:
        steps: Requests that are steps.
        from_record: Of them answered without the server.
        failed: Of them answered by an error, now or on record.
        refused: Of them not answered: blocked, in doubt, not on record.
    """

    steps: int = 0
    from_record: int = 0
    failed: int = 0
    refused: int = 0


class Proxy:
    """One client, one server, one session. `upstream` is None where nothing is asked."""

    def __init__(
        self,
        session: Any,
        upstream: Server | None,
        effects: ToolEffects,
        write: Write,
        *,
        timeout_s: float,
        tell: Callable[[dict[str, Effects]], None],
        told: Told,
    ) -> None:
        self._session = session
        self._upstream = upstream
        self._effects = effects
        self._write = write
        self._timeout_s = timeout_s
        self._tell = tell
        self._open: dict[Id, asyncio.Task[None]] = {}
        self._others = set[asyncio.Task[None]]()
        self._asked_back: dict[Id | None, asyncio.Future[Answer]] = {}
        self._asked_tools: asyncio.Task[None] | None = None
        self.told = told

    async def serve(self, client: asyncio.StreamReader) -> None:
        """Until the client leaves, or the server has ended; calls that are open then are waited
        for a little.
        """
        reading = asyncio.ensure_future(self._client(Lines(client)))
        doing = {reading}
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
                told = {"code": frames.INVALID_REQUEST, "message": str(bad)}
                await self._write(frames.error(bad.id, told))
                continue
            if isinstance(frame, Request):
                await self._request(frame)
                continue
            if isinstance(frame, Notification):
                self._called_off(frame)
            if not self._answered_back(frame):
                await self._pass_on(frame)

    async def _server(self, upstream: Server) -> None:
        while (frame := await upstream.next()) is not None:
            step = asked_back(frame) if isinstance(frame, Request) else None
            if step is None or not isinstance(frame, Request):
                await self._write(frame.raw)
                continue
            task = asyncio.ensure_future(self._step_back(upstream, frame, step))
            self._others.add(task)
            task.add_done_callback(self._others.discard)

    async def _pass_on(self, frame: Frame) -> None:
        if self._upstream is not None:
            with contextlib.suppress(ServerGone):  # its end is told to who waits for an answer
                await self._upstream.send(frame.raw)

    async def _step_back(self, upstream: Server, frame: Request, step: Asked) -> None:
        """Answer what the server asks, from the record or by the client."""
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        async def forward(**_: Any) -> Any:
            self._asked_back[frame.id] = waiting
            try:
                await self._write(frame.raw)
                return came(await waiting)
            finally:
                del self._asked_back[frame.id]

        spec = forwarded(step, Effects.PURE, self._timeout_s, forward)
        try:
            answer = frames.result(frame.id, await self._session.call(spec, (), step.arguments))
        except ErrorAnswer as error:
            answer = frames.error(frame.id, error.args[0])
        except Exception as error:  # noqa: BLE001 -- whatever stops it, the server is told
            told = {"code": INTERNAL_ERROR, "message": str(error)}
            answer = frames.error(frame.id, told)
        if waiting.done() and not waiting.cancelled():
            answer = waiting.result().raw
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
        task = self._open.get(frame.params.get("requestId", ""))
        if task is not None:
            loop = asyncio.get_running_loop()
            loop.call_later(CANCELLED_WAIT_S, task.cancel)

    async def _request(self, frame: Request) -> None:
        if frame.id in self._open:
            message = f"id {frame.id!r:.40} is that of a request that is still open"
            told = {"code": frames.INVALID_REQUEST, "message": f"{message}: give each its own"}
            await self._write(frames.error(frame.id, told))
            return
        try:
            step = asked(frame)
        except HansardError as bad:
            told = {"code": frames.INVALID_PARAMS, "message": str(bad)}
            await self._write(frames.error(frame.id, told))
            return
        if step is None:
            await self._not_a_step(frame)
            return
        task = asyncio.ensure_future(self._step(frame, step))
        self._open[frame.id] = task
        task.add_done_callback(lambda _: self._open.pop(frame.id, None))

    async def _not_a_step(self, frame: Request) -> None:
        if self._upstream is not None:
            await self._pass_on(frame)
        elif frame.method in EMPTY:
            await self._write(frames.result(frame.id, {}))
        else:
            message = (
                f"{frame.method} is not recorded, so a replay cannot answer it: ask a server "
                "(leave --mode out)"
            )
            told = {"code": frames.METHOD_NOT_FOUND, "message": message}
            await self._write(frames.error(frame.id, told))

    # A step

    async def _step(self, frame: Request, step: Asked) -> None:
        """Answer a request, from the record or by the server."""
        came_raw: list[bytes] = []

        async def forward(**_: Any) -> Any:
            if self._upstream is None:
                raise NotDone(NO_SERVER)
            answer = await self._ask(self._upstream, frame)
            came_raw.append(answer.raw)
            return came(answer)

        self.told.steps += 1
        try:
            if frame.method == CALL and not self._effects.knows(step.tool):
                await self._learn(frame)
            effects = self._effects.of(step.tool)
            spec = forwarded(step, effects, self._timeout_s, forward)
            told = await self._session.call(spec, (), step.arguments)
            answer = frames.result(frame.id, told)
            self.told.from_record += not came_raw
            if frame.method == INITIALIZE and not came_raw and self._upstream is not None:
                await self._ask(self._upstream, frame)  # the server, too, must have been greeted
        except (ToolErrorResult, ErrorAnswer) as error:
            self.told.failed += 1
            self.told.from_record += not came_raw
            told, is_result = error.args[0], isinstance(error, ToolErrorResult)
            answer = (frames.result if is_result else frames.error)(frame.id, told)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr] # it runs in one
                raise
            answer = self._refused(frame, "the call was cancelled")
        except Exception as error:  # noqa: BLE001 -- whatever stops a call, its caller is told
            answer = self._refused(frame, str(error) or self._wordless(error))
        if came_raw:
            answer = came_raw[0]
        if frame.method == LIST_TOOLS:
            self._learned(frames.read(answer))
        await self._write(answer)

    def _wordless(self, error: Exception) -> str:
        """What an error says that has no words of its own."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s, and it may have been done"
        return type(error).__name__

    def _refused(self, frame: Request, why: str) -> bytes:
        self.told.refused += 1
        if frame.method == CALL:
            return frames.result(frame.id, refusal(why))
        return frames.error(frame.id, {"code": INTERNAL_ERROR, "message": why})

    async def _ask(self, upstream: Server, frame: Request) -> Answer:
        """The server's answer; where nobody waits for it any more the server is told."""
        try:
            return await upstream.ask(frame.id, frame.raw)
        except asyncio.CancelledError:
            gone = {"requestId": frame.id, "reason": "the proxy waits no longer"}
            with contextlib.suppress(ServerGone):
                await upstream.send(frames.notification("notifications/cancelled", gone))
            raise

    # What its tools do

    async def _learn(self, frame: Request) -> None:
        """Ask the server itself what its tools do, once, where the client has not asked."""
        if self._upstream is None:
            return
        if self._asked_tools is None:
            self._asked_tools = asyncio.ensure_future(self._ask_tools(self._upstream, frame))
        await asyncio.shield(self._asked_tools)

    async def _ask_tools(self, upstream: Server, frame: Request) -> None:
        meta = frame.params.get("_meta")
        about = {k: v for k, v in meta.items() if k != "progressToken"} if meta else {}
        cursor: Any = None
        for page in range(PAGES_MAX):
            params = ({"_meta": about} if about else {}) | ({"cursor": cursor} if cursor else {})
            own = f"hansard-tools-{page}"
            try:
                async with asyncio.timeout(self._timeout_s):
                    answer = await upstream.ask(own, frames.request(own, LIST_TOOLS, params))
            except Exception as error:  # noqa: BLE001 -- nothing was learned: its tools are `once`
                _log.warning("what the server's tools do could not be asked", why=str(error))
                return
            self._learned(answer)
            cursor = answer.result.get("nextCursor") if isinstance(answer.result, dict) else None
            if not cursor:
                return

    def _learned(self, answer: Frame) -> None:
        if isinstance(answer, Answer) and isinstance(answer.result, dict):
            new = self._effects.learn(answer.result.get("tools"))
            if new:
                self._tell(new)


def summary(told: Told) -> str:
    """What a proxy did, in a line."""
    return (
        f"{counted(told.steps, 'step')}: {told.from_record} answered from the record, "
        f"{told.failed} with an error, {told.refused} refused, in doubt or not on record"
    )
