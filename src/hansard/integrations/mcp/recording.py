"""The steps of a proxy's clients, in one session: whatever carries the frames, a request that is a
step is answered here, from the record or by the server.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from hansard.agents.errors import NotDone
from hansard.agents.steps.engine import StepEngine
from hansard.bus.loggers import logger
from hansard.domain.choices import counted
from hansard.domain.steps import Effects
from hansard.integrations.forwarded import ForwardedTool
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.approvals import Answered, ApprovalWaits, Client
from hansard.integrations.mcp.calls import (
    CALL,
    INITIALIZE,
    LIST_TOOLS,
    READ_RESOURCE,
    Asked,
    ErrorAnswer,
    ToolErrorResult,
    came,
    forwarded,
    refusal,
)
from hansard.integrations.mcp.frames import INTERNAL_ERROR, Answer, Frame, Request
from hansard.integrations.mcp.rules import ToolEffects
from hansard.integrations.mcp.upstream import TooManyPages, pages

_log = logger(__name__)

NO_SERVER = "a replay asks no server"

TURN_WAIT_S = 5.0
"""Seconds that a call which is on record after others waits for those to be asked for."""

EMPTY = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""Requests that a replay answers with an empty result: they ask for nothing that is recorded."""

Ask = Callable[[Request], Awaitable[Answer]]
"""Passes a request on, and waits for the server's answer. Raises ServerGone, and NotDone where it
was never passed on.
"""


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


class Recording:
    """The steps of one session, and what the server's tools do as far as that is known.

    Made inside the session's scope, which the work that `begin` starts is in, whoever starts it.
    `in_any_order`: requests that are sent at once may arrive in another order than on record.
    """

    def __init__(
        self,
        session: Any,
        effects: ToolEffects,
        *,
        timeout_s: float,
        tell: Callable[[dict[str, Effects]], None],
        told: Told,
        in_any_order: bool = False,
        approvals: ApprovalWaits | None = None,
    ) -> None:
        self._session = session
        self._effects = effects
        self._timeout_s = timeout_s
        self._tell = tell
        self._asked_tools: asyncio.Task[bool] | None = None
        self._context = contextvars.copy_context()
        self._waits = in_any_order
        self._approvals = approvals
        self._answered = asyncio.Event()
        self.told = told

    @property
    def run(self) -> str:
        """The run that the steps are in."""
        found: str = self._session.run
        return found

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work as a task in the session's scope."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    async def close(self) -> None:
        """Stop waiting for approvals."""
        if self._approvals is not None:
            await self._approvals.close()

    async def answer(
        self, frame: Request, step: Asked, ask: Ask | None, client: Client | None = None
    ) -> Answered:
        """Answer a request, from the record or by the server (None: nothing is asked)."""
        run = partial(self._answer, frame, step, ask)
        if self._approvals is None or frame.method != CALL or not self._approvals.asks(step.tool):
            return await run()
        return await self._approvals.answer(frame, step, client, run)

    async def _answer(self, frame: Request, step: Asked, ask: Ask | None) -> Answered:
        answers: list[Answer] = []

        async def forward(**_: Any) -> Any:
            if ask is None:
                raise NotDone(NO_SERVER)
            answers.append(await ask(frame))
            result = came(answers[0])
            if frame.method == READ_RESOURCE and isinstance(uri := frame.params.get("uri"), str):
                await self._session.resource(uri, "read")
            return result

        self.told.steps += 1
        try:
            if ask is not None and frame.method == CALL and not self._effects.knows(step.tool):
                await self._learn(frame, ask)
            effects = self._effects.of(step.tool)
            spec = forwarded(step, effects, self._timeout_s, forward)
            await self._in_turn(spec, step)
            told = await self._session.call(spec, (), step.arguments)
            answer = answers[0].raw if answers else frames.result(frame.id, told)
            self.told.from_record += not answers
            if ask is not None and frame.method == INITIALIZE and not answers:
                await ask(frame)  # the server, too, must have been greeted
        except (ToolErrorResult, ErrorAnswer) as error:
            self.told.failed += 1
            self.told.from_record += not answers
            told, is_result = error.args[0], isinstance(error, ToolErrorResult)
            answer = (frames.result if is_result else frames.error)(frame.id, told)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr] # it runs in one
                raise
            answer = self._refused(frame, "the call was cancelled")
        except Exception as error:  # noqa: BLE001 -- whatever stops a call, its caller is told
            answer = self._refused(frame, str(error) or self._wordless(error))
        finally:
            self._answered.set()
        raw = answers[0].raw if answers else answer
        if frame.method == LIST_TOOLS:
            listed = answers[0] if answers else frames.read(answer)
            self._learned(listed)
            shown = self._effects.without_denied(listed)
            raw = raw if shown is None else shown.raw
        return Answered(raw, bool(answers))

    async def _in_turn(self, spec: ForwardedTool, step: Asked) -> None:
        """Where requests arrive in any order: let those come first that a call is on record after.
        It waits once in vain; then who asks is not who was recorded, and what is said is as of a
        call that has no place there.
        """
        engine = self._session.engine
        if not self._waits or not isinstance(engine, StepEngine):
            return
        until = asyncio.get_running_loop().time() + TURN_WAIT_S
        while self._waits and engine.is_early(spec, step.arguments):
            self._answered.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._answered.wait()
            except TimeoutError:
                self._waits = False
                self._answered.set()

    def _wordless(self, error: Exception) -> str:
        """What an error says that has no words of its own."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s, and it may have been done"
        return type(error).__name__

    def _refused(self, frame: Request, why: str) -> bytes:
        self.told.refused += 1
        if frame.method == CALL:
            return frames.result(frame.id, refusal(frame, why))
        return frames.error(frame.id, {"code": INTERNAL_ERROR, "message": why})

    async def answer_back(
        self, frame: Request, step: Asked, ask: Callable[[], Awaitable[Answer]]
    ) -> bytes:
        """Answer what the server asks, from the record or by the client, whom `ask` asks."""
        came_raw: list[bytes] = []

        async def forward(**_: Any) -> Any:
            answer = await ask()
            came_raw.append(answer.raw)
            return came(answer)

        spec = forwarded(step, Effects.PURE, self._timeout_s, forward)
        try:
            answer = frames.result(frame.id, await self._session.call(spec, (), step.arguments))
        except ErrorAnswer as error:
            answer = frames.error(frame.id, error.args[0])
        except Exception as error:  # noqa: BLE001 -- whatever stops it, the server is told
            told = {"code": INTERNAL_ERROR, "message": str(error)}
            answer = frames.error(frame.id, told)
        return came_raw[0] if came_raw else answer

    # What its tools do

    async def _learn(self, frame: Request, ask: Ask) -> None:
        """Ask the server itself what its tools do, once, where the client has not asked."""
        if self._asked_tools is None:
            self._asked_tools = asyncio.ensure_future(self._ask_tools(frame, ask))
        asked = self._asked_tools
        if not await asyncio.shield(asked) and self._asked_tools is asked:
            self._asked_tools = None  # the next call asks again

    async def _ask_tools(self, frame: Request, ask: Ask) -> bool:
        meta = frame.params.get("_meta")
        about = (
            {k: v for k, v in meta.items() if k != "progressToken"}
            if isinstance(meta, dict)
            else {}
        )
        params = {"_meta": about} if about else {}
        listing = Request(b"", "hansard-tools", LIST_TOOLS, params)
        try:
            async with asyncio.timeout(self._timeout_s):
                async for answer in pages(listing, ask):
                    self._learned(answer)
        except TooManyPages as error:
            _log.warning("not all of the server's tools are known", why=str(error))
        except Exception as error:  # noqa: BLE001 -- nothing was learned: its tools are `once`
            _log.warning("what the server's tools do could not be asked", why=str(error))
            return False
        return True

    def _learned(self, answer: Frame) -> None:
        if isinstance(answer, Answer) and isinstance(answer.result, dict):
            new = self._effects.learn(answer.result.get("tools"))
            if new:
                self._tell(new)


def unanswerable(frame: Request) -> bytes:
    """What a client gets of a replay for a request that is no step."""
    if frame.method in EMPTY:
        return frames.result(frame.id, {})
    message = (
        f"{frame.method} is not recorded, so a replay cannot answer it: ask a server "
        "(leave --mode out)"
    )
    return frames.error(frame.id, {"code": frames.METHOD_NOT_FOUND, "message": message})


def summary(told: Told) -> str:
    """What a proxy did, in a line."""
    return (
        f"{counted(told.steps, 'step')}: {told.from_record} answered from the record, "
        f"{told.failed} with an error, {told.refused} refused, in doubt or not on record"
    )
