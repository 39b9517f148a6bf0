"""Calls of a proxy that wait for a person's approval.

The client is asked itself where it offers elicitation; else it gets progress, and is told to call
again before it gives up. The call goes on waiting meanwhile, and its answer is kept for the next
equal call.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from hansard.agents.policy import approvals
from hansard.agents.steps.gating import watching_questions
from hansard.agents.workspace import Workspace
from hansard.bus.loggers import logger
from hansard.domain.approval import Approval, ApprovalStatus
from hansard.domain.errors import HansardError
from hansard.integrations.mcp import frames
from hansard.integrations.mcp.calls import VERSION_KEY, Asked, refusal
from hansard.integrations.mcp.frames import Answer, Id, Request

_log = logger(__name__)

ANSWER_S = 45.0
"""Seconds after which a waiting client is told to call again; clients commonly wait for 60."""

FIRST_S, GROWTH, MOST_S = 1.0, 2, 5.0
"""Seconds before the first notification of progress, by what the next pause grows, and its most."""

CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
"""Of a request's `_meta`, since 2026-07-28."""

STATE = "hansard-approval:"
"""Before the approval's id in the state that a client of 2026-07-28 sends back."""

INPUT = "hansard-approval"
"""The name of the question in an `input_required` result."""


class Answered(msgspec.Struct, frozen=True):
    """What a client gets: the answer's bytes, and whether they are the server's own of now."""

    raw: bytes
    is_servers: bool


class Client(Protocol):
    """The client of a call, while the call is open."""

    @property
    def elicits(self) -> bool:
        """Whether it can be asked by `elicitation/create`."""
        ...

    async def notify(self, raw: bytes) -> None:
        """Send a notification."""
        ...

    async def elicit(self, params: dict[str, Any]) -> Answer:
        """Send `elicitation/create`, and wait for its answer."""
        ...


class _Waiting:
    """A call that may have to be approved."""

    def __init__(self, step: Asked, tell: Callable[[Approval], None]) -> None:
        self.key = _key(step)
        self.task: asyncio.Task[Answered]
        self.question: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        self.granted = asyncio.Event()
        self.eliciting: asyncio.Task[None] | None = None
        self._tell = tell

    def report(self, approval: Approval) -> None:
        """Take in the question, or its answer."""
        if approval.given is ApprovalStatus.GRANTED:
            self.granted.set()
        elif approval.given is ApprovalStatus.PENDING and not self.question.done():
            self.question.set_result(approval)
            self._tell(approval)

    async def decided(self, timeout_s: float) -> None:
        """Wait until the call is answered; not longer than this for the approval."""
        granted = asyncio.ensure_future(self.granted.wait())
        try:
            either: set[asyncio.Future[Any]] = {self.task, granted}
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if granted.done():
                await asyncio.wait([self.task])
        finally:
            granted.cancel()


class ApprovalWaits:
    """The calls of one session that wait for approvals.

    Args:
        asks: Whether a tool's calls may have to be approved.
        workspace: Where approvals are.
        timeout_s: Seconds that a call may take.
        tell: Is given each question that a call waits for, once.
    """

    def __init__(
        self,
        asks: Callable[[str], bool],
        workspace: Workspace,
        timeout_s: float,
        tell: Callable[[Approval], None],
    ) -> None:
        self.asks = asks
        self._workspace = workspace
        self._answer_s = min(ANSWER_S, timeout_s)
        self._tell = tell
        self._left: list[_Waiting] = []

    async def answer(
        self,
        frame: Request,
        step: Asked,
        client: Client | None,
        run: Callable[[], Coroutine[Any, Any, Answered]],
    ) -> Answered:
        """Answer a call with what `run` gives, or ask its client to call again."""
        state = frame.params.get("requestState")
        is_retry = isinstance(state, str) and state.startswith(STATE)
        waiting = self._take(step, state if is_retry else None)
        if waiting is None and is_retry:
            why = f"{step.tool} does not wait for an approval any more: call it again"
            return Answered(frames.result(frame.id, refusal(frame, why)), is_servers=False)
        if waiting is None:
            waiting = _Waiting(step, self._tell)
            with watching_questions(waiting.report):
                waiting.task = asyncio.create_task(run())
        try:
            if is_retry:
                responses = frame.params.get("inputResponses")
                given = responses.get(INPUT) if isinstance(responses, dict) else None
                await self._take_answer(waiting, given)
            return await self._waited(waiting, frame, client, ask=not is_retry)
        except asyncio.CancelledError:
            waiting.task.cancel()
            raise

    async def close(self) -> None:
        """Stop waiting: what was not granted has not been done."""
        tasks = [each.task for each in self._left]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, step: Asked, state: str | None) -> _Waiting | None:
        """Take up a call whose client was told to call again."""
        for each in self._left:
            if state is None:
                is_same = each.key == _key(step)
            else:
                is_same = each.question.result().id == state.removeprefix(STATE)
            if is_same:
                self._left.remove(each)
                return each
        return None

    async def _waited(
        self, waiting: _Waiting, frame: Request, client: Client | None, *, ask: bool
    ) -> Answered:
        either: set[asyncio.Future[Any]] = {waiting.task, waiting.question}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.task.done() and not waiting.granted.is_set():
            approval = waiting.question.result()
            if ask and _elicits_by_result(frame):
                return self._leave(waiting, frames.result(frame.id, _input_required(approval)))
            progress = asyncio.create_task(_progress(frame, approval, client))
            if waiting.eliciting is None and client is not None and client.elicits:
                waiting.eliciting = asyncio.create_task(self._elicit(waiting, client))
                waiting.task.add_done_callback(lambda _: waiting.eliciting.cancel())  # type: ignore[union-attr] # it was set
            try:
                await waiting.decided(self._answer_s)
            finally:
                progress.cancel()
        await asyncio.wait([waiting.task], timeout=0 if not waiting.granted.is_set() else None)
        if waiting.task.done():
            return _addressed(waiting.task.result(), frame.id)
        approval = waiting.question.result()
        why = (
            f"waiting for approval {approval.id}; call again: {approval.asked.tool} has not been "
            f"called yet, since a person has to approve it ({_remedy(approval)}). Call it again "
            "with the same arguments for its result"
        )
        return self._leave(waiting, frames.result(frame.id, refusal(frame, why)))

    def _leave(self, waiting: _Waiting, raw: bytes) -> Answered:
        self._left.append(waiting)
        return Answered(raw, is_servers=False)

    async def _elicit(self, waiting: _Waiting, client: Client) -> None:
        answer = await client.elicit(_question(waiting.question.result()))
        await self._take_answer(waiting, answer.result)

    async def _take_answer(self, waiting: _Waiting, given: Any) -> None:
        """Grant or deny by the result of an elicitation; one that was closed answers nothing."""
        action = given.get("action") if isinstance(given, dict) else None
        content = given.get("content") if action == "accept" else None
        granted = isinstance(content, dict) and content.get("approve") is True
        if action not in ("accept", "decline"):
            return
        try:
            id_, why = waiting.question.result().id, "answered in the client"
            await approvals.answer(self._workspace, id_, granted=granted, because=why)
        except HansardError as error:  # somebody answered before
            _log.info("the client's answer to an approval does not count", why=str(error))
        if granted:
            await waiting.decided(self._answer_s)


def _key(step: Asked) -> tuple[str, bytes]:
    return step.tool, frames.result(None, step.arguments)


def _remedy(approval: Approval) -> str:
    return f"hansard approvals grant {approval.id}"


def _addressed(answered: Answered, id_: Id) -> Answered:
    """An answer under the id of the request that it is given to."""
    frame = frames.read(answered.raw, from_server=True)
    if not isinstance(frame, Answer) or frame.id == id_:
        return answered
    return Answered(frame.under(id_).raw, is_servers=False)


def _elicits_by_result(frame: Request) -> bool:
    """Whether a client of 2026-07-28 can be asked by an `input_required` result."""
    meta = frame.params.get("_meta")
    if not isinstance(meta, dict) or VERSION_KEY not in meta:
        return False
    return offers_forms(meta.get(CAPABILITIES_KEY))


def offers_forms(capabilities: Any) -> bool:
    """Return whether a client's capabilities offer elicitation by a form."""
    offered = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(offered, dict) and (not offered or "form" in offered)


def answered_elsewhere(id_: Id) -> bytes:
    """Return the notification that a client's user need not answer any more."""
    gone = {"requestId": id_, "reason": "it was answered elsewhere"}
    return frames.notification("notifications/cancelled", gone)


def _question(approval: Approval) -> dict[str, Any]:
    arguments = bytes(approval.asked.arguments).decode()
    approve = {
        "type": "boolean",
        "title": "Approve",
        "description": f"Approval {approval.id}, asked for by the rule: {approval.asked.rule}",
    }
    return {
        "message": f"May {approval.asked.tool} be called with {arguments:.2000}?",
        "requestedSchema": {
            "type": "object",
            "properties": {"approve": approve},
            "required": ["approve"],
        },
    }


def _input_required(approval: Approval) -> dict[str, Any]:
    asked = {"method": "elicitation/create", "params": {"mode": "form", **_question(approval)}}
    return {
        "resultType": "input_required",
        "inputRequests": {INPUT: asked},
        "requestState": STATE + approval.id,
    }


async def _progress(frame: Request, approval: Approval, client: Client | None) -> None:
    """Report progress to a client that sent a token, until this is cancelled."""
    meta = frame.params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    if token is None or client is None:
        return
    began_s, pause_s = time.monotonic(), FIRST_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, MOST_S)
        progress = {
            "progressToken": token,
            "progress": round(time.monotonic() - began_s, 3),
            "message": f"{approval.asked.tool} waits for an approval: {_remedy(approval)}",
        }
        with contextlib.suppress(ConnectionError):
            await client.notify(frames.notification("notifications/progress", progress))
