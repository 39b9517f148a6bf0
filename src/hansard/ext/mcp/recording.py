"""Steps of a proxy's clients in one session, answered from the record or by the server.

Rules decide the effects of tools, and which calls are refused or need an approval. For a call that
waits for an approval, the client is prompted if it offers elicitation; otherwise it gets progress,
and before its timeout a result that requests another call.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import time
import tomllib
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

import hansard.agents.policy.gate as gates
from hansard.agents.errors import NotDone
from hansard.agents.policy import approvals
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.gating import watching_questions
from hansard.agents.steps.tools import ForwardedTool
from hansard.agents.workspace import Workspace
from hansard.bus.loggers import logger
from hansard.domain.approval import Approval, ApprovalStatus
from hansard.domain.choices import counted, nearest
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.roles.model import DOT, read, tool_matches
from hansard.domain.steps import Effects
from hansard.ext.mcp import frames
from hansard.ext.mcp.frames import (
    CALL,
    INITIALIZE,
    INTERNAL_ERROR,
    LIST_TOOLS,
    PREFIX,
    READ_RESOURCE,
    VERSION_KEY,
    Answer,
    ErrorAnswer,
    Frame,
    Id,
    Notification,
    Request,
    StepRequest,
    ToolErrorResult,
    forwarded,
    refusal,
    result_of,
)
from hansard.ext.mcp.upstream import TooManyPages, pages

# ------------------------------------------------------------ rules

Declared = Literal["pure", "idempotent", "once"]


class GateRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Patterns of tools that are refused, and of tools that need an approval."""

    deny: list[str] = []
    ask_first: list[str] = []


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules of a file: see docs/mcp.md.

    Attributes:
        trust_annotations: Whether `readOnlyHint` and `idempotentHint` of a tool are trusted.
        effects: Effects by patterns of tools.
        gate: Calls that are refused or need an approval.
        redact: Environment variables whose values are redacted, by the names that replace them.
    """

    trust_annotations: bool = True
    effects: dict[str, Declared] = {}
    gate: GateRules = GateRules()
    redact: dict[str, str] = {}

    def rules(self) -> list[gates.GateRule]:
        """Return the rules of the gate."""
        return [
            *(gates.deny(tool) for tool in self.gate.deny),
            *(gates.ask_first(tool) for tool in self.gate.ask_first),
        ]

    def denies(self, tool: str) -> bool:
        """Return whether every call of a tool is refused."""
        return any(tool_matches(pattern, tool) for pattern in self.gate.deny)

    def asks_first(self, tool: str) -> bool:
        """Return whether a tool's calls may need an approval."""
        return any(tool_matches(pattern, tool) for pattern in self.gate.ask_first)

    def secrets(self) -> dict[str, str]:
        """Return the values to keep out of the record. Raises BadValue for a variable that is not
        set.
        """
        missing = [variable for variable in self.redact.values() if not os.environ.get(variable)]
        if missing:
            raise BadValue(
                f"[redact] {missing[0]}", "no such variable is set", "set it, or leave it out"
            )
        return {name: os.environ[variable] for name, variable in self.redact.items()}


def load(path: Path) -> Rules:
    """Read the rules of a file. Raises BadValue."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        rules = msgspec.convert(content, Rules)
    except OSError as error:
        raise BadValue(str(path), f"cannot be read ({error.strerror})", "name a file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadValue(str(path), f"is not TOML ({error})", "see docs/mcp.md") from None
    except msgspec.ValidationError as error:
        known = [*Rules.__struct_fields__, *GateRules.__struct_fields__]
        field = str(error).partition("field `")[2].partition("`")[0]
        like = nearest(field, known) if field else ""
        raise BadValue(str(path), f"{error}", f"{like}see docs/mcp.md for all fields") from None
    for pattern in (*rules.effects, *rules.gate.deny, *rules.gate.ask_first):
        read(pattern, DOT, str(path))
    return rules


class ToolEffects:
    """Known effects of a server's tools; `learn` adds its lists."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._annotated_effects: dict[str, Effects] = {}

    def knows(self, tool: str) -> bool:
        """Return whether a tool's effects are known without its server's list."""
        return tool in self._annotated_effects or self._named(tool) is not None or not self.asks

    def without_denied(self, answer: Answer) -> Answer:
        """Return a list of tools without the refused ones."""
        tools = answer.result.get("tools") if isinstance(answer.result, dict) else None
        if not isinstance(tools, list):
            return answer
        kept = [each for each in tools if not self._is_denied(each)]
        if len(kept) == len(tools):
            return answer
        return frames.result(answer.id, {**answer.result, "tools": kept})

    def _is_denied(self, tool: object) -> bool:
        name = tool.get("name") if isinstance(tool, dict) else None
        return isinstance(name, str) and self._rules.denies(name)

    @property
    def asks(self) -> bool:
        """True if the server's annotations count."""
        return self._rules.trust_annotations

    def learn(self, tools: object) -> dict[str, Effects]:
        """Add a server's list of tools; return the new ones."""
        new: dict[str, Effects] = {}
        for each in tools if isinstance(tools, list) else []:
            name = each.get("name") if isinstance(each, dict) else None
            if isinstance(name, str) and name not in self._annotated_effects:
                self._annotated_effects[name] = _annotated_effects(each.get("annotations"))
                new[name] = self.of(name)
        return new

    def of(self, tool: str) -> Effects:
        """Return a tool's effects: by the rules, else by its annotations, else `once`."""
        if tool.startswith(PREFIX):
            return Effects.PURE
        named = self._named(tool)
        if named is not None:
            return named
        return self._annotated_effects.get(tool, Effects.ONCE) if self.asks else Effects.ONCE

    def _named(self, tool: str) -> Effects | None:
        fitting = (
            Effects(effects)
            for pattern, effects in self._rules.effects.items()
            if tool_matches(pattern, tool)
        )
        return next(fitting, None)


def _annotated_effects(annotations: Any) -> Effects:
    """Return the effects by MCP's ToolAnnotations; their defaults are a tool that writes and is not
    idempotent.
    """
    hints = annotations if isinstance(annotations, dict) else {}
    if hints.get("readOnlyHint") is True:
        return Effects.PURE
    return Effects.IDEMPOTENT if hints.get("idempotentHint") is True else Effects.ONCE


# ------------------------------------------------------------ approvals

_log = logger(__name__)

ANSWER_S = 45.0
"""Seconds after which a waiting client must call again; clients commonly wait for 60."""

FIRST_S, GROWTH, MOST_S = 1.0, 2, 5.0
"""First pause before a notification of progress, its increment, and its maximum, in seconds."""

CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
"""Key in a request's `_meta`, since 2026-07-28."""

STATE = "hansard-approval:"
"""Prefix of the approval's id in the state that a client of 2026-07-28 sends back."""

INPUT = "hansard-approval"
"""Name of the question in an `input_required` result."""


class ClientAnswer(msgspec.Struct, frozen=True):
    """Answer to a client, and whether it is the server's own from now."""

    answer: Answer
    is_servers: bool


class Client(Protocol):
    """Client of an open call."""

    @property
    def elicits(self) -> bool:
        """True if the client supports `elicitation/create`."""
        ...

    async def notify(self, frame: Frame) -> None:
        """Send a notification."""
        ...

    async def elicit(self, params: dict[str, Any]) -> Answer:
        """Send `elicitation/create`, and wait for its answer."""
        ...


class _Waiting:
    """Call that may need an approval."""

    def __init__(self, step: StepRequest, tell: Callable[[Approval], None]) -> None:
        self.key = _key(step)
        self.task: asyncio.Task[ClientAnswer]
        self.question: asyncio.Future[Approval] = asyncio.get_running_loop().create_future()
        self.granted = asyncio.Event()
        self.eliciting: asyncio.Task[None] | None = None
        self._tell = tell

    def report(self, approval: Approval) -> None:
        """Note the approval's request or its answer."""
        if approval.given is ApprovalStatus.GRANTED:
            self.granted.set()
        elif approval.given is ApprovalStatus.PENDING and not self.question.done():
            self.question.set_result(approval)
            self._tell(approval)

    async def decided(self, timeout_s: float) -> None:
        """Wait until the call is answered, or for this time for the approval."""
        granted = asyncio.ensure_future(self.granted.wait())
        try:
            either: set[asyncio.Future[Any]] = {self.task, granted}
            await asyncio.wait(either, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if granted.done():
                await asyncio.wait([self.task])
        finally:
            granted.cancel()


class ApprovalWaits:
    """Calls of one session that wait for approvals.

    Args:
        asks: Function that returns whether a tool's calls may need an approval.
        workspace: The workspace of the approvals.
        timeout_s: The longest duration of a call, in seconds.
        tell: Called once with each approval that a call waits for.
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
        step: StepRequest,
        client: Client | None,
        run: Callable[[], Coroutine[Any, Any, ClientAnswer]],
    ) -> ClientAnswer:
        """Answer a call with the result of `run`, or request that its client calls again."""
        state = frame.params.get("requestState")
        is_retry = isinstance(state, str) and state.startswith(STATE)
        waiting = self._take(step, state if is_retry else None)
        if waiting is None and is_retry:
            why = f"{step.tool} no longer waits for an approval: call it again"
            return ClientAnswer(frames.result(frame.id, refusal(frame, why)), is_servers=False)
        if waiting is None:
            waiting = _Waiting(step, self._tell)
            with watching_questions(waiting.report):
                waiting.task = asyncio.create_task(run())
        try:
            if is_retry:
                responses = frame.params.get("inputResponses")
                response = responses.get(INPUT) if isinstance(responses, dict) else None
                await self._take_answer(waiting, response)
            return await self._await_approval(waiting, frame, client, ask=not is_retry)
        except asyncio.CancelledError:
            waiting.task.cancel()
            raise

    async def close(self) -> None:
        """Stop waiting: calls that were not granted have not run."""
        tasks = [each.task for each in self._left]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, step: StepRequest, state: str | None) -> _Waiting | None:
        """Resume a call whose client calls again."""
        for each in self._left:
            if state is None:
                is_same = each.key == _key(step)
            else:
                is_same = each.question.result().id == state.removeprefix(STATE)
            if is_same:
                self._left.remove(each)
                return each
        return None

    async def _await_approval(
        self, waiting: _Waiting, frame: Request, client: Client | None, *, ask: bool
    ) -> ClientAnswer:
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
            return _under_id(waiting.task.result(), frame.id)
        approval = waiting.question.result()
        why = (
            f"waiting for approval {approval.id}; call again: {approval.request.tool} has not been "
            f"called yet, since a person has to approve it ({_remedy(approval)}). Call it again "
            "with the same arguments for its result"
        )
        return self._leave(waiting, frames.result(frame.id, refusal(frame, why)))

    def _leave(self, waiting: _Waiting, answer: Answer) -> ClientAnswer:
        self._left.append(waiting)
        return ClientAnswer(answer, is_servers=False)

    async def _elicit(self, waiting: _Waiting, client: Client) -> None:
        answer = await client.elicit(_question(waiting.question.result()))
        await self._take_answer(waiting, answer.result)

    async def _take_answer(self, waiting: _Waiting, response: Any) -> None:
        """Grant or deny by the result of an elicitation; a closed one answers nothing."""
        action = response.get("action") if isinstance(response, dict) else None
        content = response.get("content") if action == "accept" else None
        granted = isinstance(content, dict) and content.get("approve") is True
        if action not in ("accept", "decline"):
            return
        try:
            id_, why = waiting.question.result().id, "answered in the client"
            await approvals.answer(self._workspace, id_, granted=granted, reason=why)
        except HansardError as error:  # it was answered before
            _log.info("the client's answer to an approval does not count", why=str(error))
        if granted:
            await waiting.decided(self._answer_s)


def _key(step: StepRequest) -> tuple[str, bytes]:
    return step.tool, frames.result(None, step.arguments).raw


def _remedy(approval: Approval) -> str:
    return f"hansard approvals grant {approval.id}"


def _under_id(response: ClientAnswer, id_: Id) -> ClientAnswer:
    """Return an answer under the id of its request."""
    if response.answer.id == id_:
        return response
    return ClientAnswer(response.answer.under(id_), is_servers=False)


def _elicits_by_result(frame: Request) -> bool:
    """Return whether a client of 2026-07-28 accepts an `input_required` result."""
    meta = frames.meta_of(frame.params)
    return VERSION_KEY in meta and offers_forms(meta.get(CAPABILITIES_KEY))


def offers_forms(capabilities: Any) -> bool:
    """Return whether a client's capabilities include elicitation by a form."""
    offered = capabilities.get("elicitation") if isinstance(capabilities, dict) else None
    return isinstance(offered, dict) and (not offered or "form" in offered)


def answered_elsewhere(id_: Id) -> Notification:
    """Return the notification that a client's user need not answer any more."""
    gone = {"requestId": id_, "reason": "it was answered elsewhere"}
    return frames.notification("notifications/cancelled", gone)


def _question(approval: Approval) -> dict[str, Any]:
    arguments = bytes(approval.request.arguments).decode()
    approve = {
        "type": "boolean",
        "title": "Approve",
        "description": f"Approval {approval.id}, required by the rule: {approval.request.rule}",
    }
    return {
        "message": f"May {approval.request.tool} be called with {arguments:.2000}?",
        "requestedSchema": {
            "type": "object",
            "properties": {"approve": approve},
            "required": ["approve"],
        },
    }


def _input_required(approval: Approval) -> dict[str, Any]:
    question = {"method": "elicitation/create", "params": {"mode": "form", **_question(approval)}}
    return {
        "resultType": "input_required",
        "inputRequests": {INPUT: question},
        "requestState": STATE + approval.id,
    }


async def _progress(frame: Request, approval: Approval, client: Client | None) -> None:
    """Report progress to a client that sent a token, until this is cancelled."""
    token = frames.meta_of(frame.params).get("progressToken")
    if token is None or client is None:
        return
    began_s, pause_s = time.monotonic(), FIRST_S
    while True:
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * GROWTH, MOST_S)
        progress = {
            "progressToken": token,
            "progress": round(time.monotonic() - began_s, 3),
            "message": f"{approval.request.tool} waits for an approval: {_remedy(approval)}",
        }
        with contextlib.suppress(ConnectionError):
            await client.notify(frames.notification("notifications/progress", progress))


NO_SERVER = "a replay calls no server"

TURN_WAIT_S = 5.0
"""Seconds that a call waits for the calls that precede it on record."""

EMPTY = ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""Requests that a replay answers with an empty result: they ask for nothing recorded."""

Ask = Callable[[Request], Awaitable[Answer]]
"""Function that passes a request on and waits for the answer. Raises ServerGone, and NotDone if it
was never passed on.
"""


class ProxyReport(msgspec.Struct):
    """Numbers of a proxy's steps.

    Attributes:
        steps: Requests that are steps.
        from_record: Steps answered without the server.
        failed: Steps answered by an error, now or on record.
        refused: Steps not answered: blocked, in doubt, not on record.
    """

    steps: int = 0
    from_record: int = 0
    failed: int = 0
    refused: int = 0


class Recording:
    """Steps of one session, and the known effects of the server's tools.

    Create it inside the session's scope: work started by `begin` runs in that scope.
    `in_any_order`: concurrent requests may arrive in another order than on record.
    """

    def __init__(
        self,
        session: Any,
        effects: ToolEffects,
        *,
        timeout_s: float,
        tell: Callable[[dict[str, Effects]], None],
        report: ProxyReport,
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
        self.report = report

    @property
    def run(self) -> str:
        """Run of the steps."""
        name: str = self._session.run
        return name

    def begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task in the session's scope."""
        return asyncio.get_running_loop().create_task(work, context=self._context.copy())

    async def close(self) -> None:
        """Stop waiting for approvals."""
        if self._approvals is not None:
            await self._approvals.close()

    async def answer(
        self, frame: Request, step: StepRequest, ask: Ask | None, client: Client | None = None
    ) -> ClientAnswer:
        """Answer a request from the record or through the server (None in an offline replay)."""
        run = partial(self._answer, frame, step, ask)
        if self._approvals is None or frame.method != CALL or not self._approvals.asks(step.tool):
            return await run()
        return await self._approvals.answer(frame, step, client, run)

    async def _answer(self, frame: Request, step: StepRequest, ask: Ask | None) -> ClientAnswer:
        answers: list[Answer] = []

        async def forward(**_: Any) -> Any:
            if ask is None:
                raise NotDone(NO_SERVER)
            answers.append(await ask(frame))
            result = result_of(answers[0])
            if frame.method == READ_RESOURCE and isinstance(uri := frame.params.get("uri"), str):
                await self._session.resource(uri, "read")
            return result

        self.report.steps += 1
        try:
            if ask is not None and frame.method == CALL and not self._effects.knows(step.tool):
                await self._learn(frame, ask)
            effects = self._effects.of(step.tool)
            spec = forwarded(step, effects, self._timeout_s, forward)
            await self._in_turn(spec, step)
            content = await self._session.call(spec, (), step.arguments)
            answer = answers[0] if answers else frames.result(frame.id, content)
            self.report.from_record += not answers
            if ask is not None and frame.method == INITIALIZE and not answers:
                await ask(frame)  # the server needs a handshake as well
        except (ToolErrorResult, ErrorAnswer) as error:
            self.report.failed += 1
            self.report.from_record += not answers
            content, is_result = error.args[0], isinstance(error, ToolErrorResult)
            answer = (frames.result if is_result else frames.error)(frame.id, content)
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr] # it runs in one
                raise
            answer = self._refused(frame, "the call was cancelled")
        except Exception as error:  # noqa: BLE001 -- the caller gets every error
            answer = self._refused(frame, str(error) or self._text_of(error))
        finally:
            self._answered.set()
        answer = answers[0] if answers else answer
        if frame.method == LIST_TOOLS:
            self._report_effects(answer)
            answer = self._effects.without_denied(answer)
        return ClientAnswer(answer, bool(answers))

    async def _in_turn(self, spec: ForwardedTool, step: StepRequest) -> None:
        """Wait for the calls that precede a call on record, if requests arrive in any order.

        It waits in vain only once; then the client is not the recorded one, and the call is treated
        as one without a place on record.
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

    def _text_of(self, error: Exception) -> str:
        """Return a text for an error without a message."""
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s, and it may have been done"
        return type(error).__name__

    def _refused(self, frame: Request, why: str) -> Answer:
        self.report.refused += 1
        if frame.method == CALL:
            return frames.result(frame.id, refusal(frame, why))
        return frames.failure(frame.id, INTERNAL_ERROR, why)

    async def answer_back(
        self, frame: Request, step: StepRequest, ask: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Answer a request of the server from the record or through the client, called by `ask`."""
        answers: list[Answer] = []

        async def forward(**_: Any) -> Any:
            answers.append(await ask())
            return result_of(answers[0])

        spec = forwarded(step, Effects.PURE, self._timeout_s, forward)
        try:
            answer = frames.result(frame.id, await self._session.call(spec, (), step.arguments))
        except ErrorAnswer as error:
            answer = frames.error(frame.id, error.args[0])
        except Exception as error:  # noqa: BLE001 -- the server gets every error
            answer = frames.failure(frame.id, INTERNAL_ERROR, str(error))
        return answers[0] if answers else answer

    # Effects of its tools

    async def _learn(self, frame: Request, ask: Ask) -> None:
        """List the server's tools once for their effects, if the client has not listed them."""
        if self._asked_tools is None:
            self._asked_tools = asyncio.ensure_future(self._ask_tools(frame, ask))
        learning = self._asked_tools
        if not await asyncio.shield(learning) and self._asked_tools is learning:
            self._asked_tools = None  # the next call lists them again

    async def _ask_tools(self, frame: Request, ask: Ask) -> bool:
        meta = frames.meta_of(frame.params)
        about = {name: value for name, value in meta.items() if name != "progressToken"}
        params = {"_meta": about} if about else {}
        listing = Request(b"", "hansard-tools", LIST_TOOLS, params)
        try:
            async with asyncio.timeout(self._timeout_s):
                async for answer in pages(listing, ask):
                    self._report_effects(answer)
        except TooManyPages as error:
            _log.warning("not all of the server's tools are known", why=str(error))
        except Exception as error:  # noqa: BLE001 -- nothing was learned: its tools are `once`
            _log.warning("the server's tools could not be listed", why=str(error))
            return False
        return True

    def _report_effects(self, answer: Answer) -> None:
        if isinstance(answer.result, dict):
            new = self._effects.learn(answer.result.get("tools"))
            if new:
                self._tell(new)


def unanswerable(frame: Request) -> Answer:
    """Return the replay's answer to a request that is no step."""
    if frame.method in EMPTY:
        return frames.result(frame.id, {})
    message = (
        f"{frame.method} is not recorded, so a replay cannot answer it: ask a server "
        "(leave --mode out)"
    )
    return frames.failure(frame.id, frames.METHOD_NOT_FOUND, message)


def summary(report: ProxyReport) -> str:
    """Return a proxy's numbers in a line."""
    return (
        f"{counted(report.steps, 'step')}: {report.from_record} answered from the record, "
        f"{report.failed} with an error, {report.refused} refused, in doubt or not on record"
    )
