"""Hooks of Claude Code and the Claude Agent SDK, posted over HTTP to `hansard up --http`.

Each session of Claude Code is a run, and each subagent an agent of it. `PreToolUse` is a step's
intent: it is answered once the intent is on record, or with a denial by the gate. `PostToolUse` is
its outcome. Both name the call by `tool_use_id`, the step's `call_id`, so a hook that is posted
twice, late or after a restart of the listener counts once. A hook cannot supply a result: to replay
a session, record its model calls as well (`hansard record`).
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import JSONResponse, Response

from hansard.agents import runs
from hansard.agents.errors import Blocked
from hansard.agents.policy import gate
from hansard.agents.steps.gating import watching_questions
from hansard.bus.errors import NotFound
from hansard.bus.loggers import logger
from hansard.client.listening import Call
from hansard.client.record import AsyncRecord
from hansard.client.session import AsyncSession
from hansard.domain.approval import Approval
from hansard.domain.choices import check_options
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.roles.model import tool_matches
from hansard.domain.steps import Effects, Step
from hansard.ext.frameworks._sessions import PairedCall

PATH = "/hooks/claude"
"""Path of the hooks at the listener."""

EVENTS = (
    *("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure"),
    *("SubagentStart", "SubagentStop", "Stop", "SessionEnd"),
)
"""Events that are posted. Claude Code posts no `SessionStart` over HTTP: the first hook begins."""

WORKFLOW, MAIN = "claude-code", "claude"
"""Workflow of the runs, and the name and role of a session's main agent."""

RUN_HEADER, RUN_VARIABLE = "x-hansard-run", "HANSARD_RUN"
"""Header with the run that a session belongs to, and the variable that it is filled from."""

TIMEOUT_S, DECIDED_S = 60, 45.0
"""Seconds that Claude Code waits for an answer, and after which a waiting approval is a denial."""

PURE = ("Read", "Glob", "Grep", "LS", "WebFetch", "WebSearch", "NotebookRead", "ToolSearch")
"""Tools of Claude Code that only read."""

_log = logger(__name__)


class ClaudeToolError(Exception):
    """A tool of Claude Code failed."""


class NoOutcome(ConnectionError):
    """The outcome of a tool was never posted: it may have run."""


class HookRules(msgspec.Struct, frozen=True):
    """Rules of a session, from the query of the hooks' URL: patterns of tools, by commas.

    Attributes:
        deny: Tools whose calls are denied.
        ask_first: Tools whose calls need an approval.
        pure: Tools without an effect, besides `PURE`.
        idempotent: Tools that may run twice.
    """

    deny: tuple[str, ...] = ()
    ask_first: tuple[str, ...] = ()
    pure: tuple[str, ...] = ()
    idempotent: tuple[str, ...] = ()

    @classmethod
    def of(cls, query: Mapping[str, str]) -> HookRules:
        """Read the rules of a URL's query. Raises BadOption."""
        check_options("the URL of the hooks", query, cls.__struct_fields__)
        return cls(**{name: tuple(text.split(",")) for name, text in query.items() if text})

    def gate(self) -> list[gate.GateRule]:
        """Return the rules of the gate. Raises BadValue for a malformed pattern."""
        denied = [gate.deny(tool, reason="denied by the hooks' URL") for tool in self.deny]
        return [*denied, *(gate.ask_first(tool) for tool in self.ask_first)]

    def effects(self, tool: str) -> Effects:
        """Return the effects of a tool's calls."""
        if any(tool_matches(each, tool) for each in (*self.pure, *PURE)):
            return Effects.PURE
        again = any(tool_matches(each, tool) for each in self.idempotent)
        return Effects.IDEMPOTENT if again else Effects.ONCE


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a posted hook that are recorded; which are present depends on the event."""

    hook_event_name: str
    session_id: str
    cwd: str = ""
    prompt_id: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_input: dict[str, Any] = {}
    tool_use_id: str = ""
    tool_response: Any = None
    error: str | None = None
    is_interrupt: bool = False
    agent_id: str = ""
    agent_type: str = ""
    last_assistant_message: str = ""


class _ToolCall(PairedCall):
    """A call of an agent, and the approval that it waits for."""

    def __init__(self, agent: str) -> None:
        super().__init__()
        self.agent, self.approval = agent, ""

    def waits(self, approval: Approval) -> None:
        """Note the approval that the call waits for."""
        self.approval = approval.id

    async def decision(self) -> dict[str, Any]:
        """Return the answer of the intent."""
        if await self.may_run(DECIDED_S):
            return {}
        if not self.task.done():
            self.task.cancel()
            remedy = f"hansard approvals grant {self.approval}; then " if self.approval else ""
            return denial(f"it waits for an approval or the record: {remedy}call it again")
        error = None if self.task.cancelled() else self.task.exception()
        if error is None:
            return {}
        return denial(error.reason if isinstance(error, Blocked) else f"not on record: {error}")


class _Run:
    """A session of Claude Code in this process, and the calls that earlier ones recorded."""

    def __init__(self, record: AsyncRecord, run: str, rules: HookRules) -> None:
        self._record, self._run, self._rules = record, run, rules
        self._opening = asyncio.Lock()
        self._sessions: dict[str, AsyncSession] = {}
        self._calls: dict[str, _ToolCall] = {}
        self._seen: set[str] = set()
        self._earlier: dict[str, tuple[str, Step] | None] = {}
        self._is_read = False
        self._roster: set[str] = set()

    async def post(self, hook: Hook) -> dict[str, Any]:
        """Record a hook; return its answer. Raises as a write."""
        async with self._opening:
            if not self._is_read:
                await self._look_back()
        agent = hook.agent_id or MAIN
        match hook.hook_event_name:
            case "PreToolUse":
                return await self._intent(hook, agent)
            case "PostToolUse" | "PostToolUseFailure":
                await self._outcome(hook, agent)
            case "UserPromptSubmit":
                await self._message(hook, agent, "user", hook.prompt)
            case "SessionStart" | "SubagentStart":
                await self._session(hook, agent)
            case "Stop" | "SubagentStop":
                if hook.last_assistant_message:
                    await self._message(hook, agent, "assistant", hook.last_assistant_message)
                if agent != MAIN:
                    await self._leave(agent)
            case "SessionEnd":
                for each in sorted({*self._sessions}, key=MAIN.__eq__):  # the main agent last
                    await self._leave(each)
            case other:
                _log.info("a hook is not recorded", hook=other, run=self._run)
        return {}

    async def _look_back(self) -> None:
        """Read the calls that earlier processes recorded."""
        self._is_read = True
        try:
            view = await self._record.workspace.points.view(self._run)
        except NotFound:
            return
        self._roster = {*view.life.roster}
        for agent, state in view.agents.items():
            for each in state.steps.values():
                if each.call_id is not None:
                    self._earlier[each.call_id] = (agent, each)

    async def _session(self, hook: Hook, agent: str) -> AsyncSession:
        """Return the session of an agent: a resumed one would have to repeat its calls first, so
        each process takes part under a name of its own.
        """
        async with self._opening:
            if agent not in self._sessions:
                role = hook.agent_type or MAIN
                base = agent if agent == MAIN else f"{role}-{agent}"
                names = (base if n == 1 else f"{base}-{n}" for n in range(1, len(self._roster) + 2))
                name = next(each for each in names if each not in self._roster)
                self._sessions[agent] = await self._record.open(
                    WORKFLOW,
                    run=self._run,
                    agent=name,
                    role=role,
                    gate=self._rules.gate(),
                    labels={"cwd": hook.cwd, "claude_session": hook.session_id},
                )
                self._roster.add(name)
            return self._sessions[agent]

    async def _intent(self, hook: Hook, agent: str) -> dict[str, Any]:
        if hook.tool_use_id in self._earlier:
            return {}
        call = self._calls.get(hook.tool_use_id) or await self._begin(hook, agent)
        return await call.decision()

    async def _begin(self, hook: Hook, agent: str) -> _ToolCall:
        session = await self._session(hook, agent)
        if hook.tool_use_id not in self._calls:
            call, id_ = _ToolCall(agent), hook.tool_use_id
            effects = self._rules.effects(hook.tool_name)
            with watching_questions(call.waits):
                call.begin(
                    session, hook.tool_name, hook.tool_input, effects=effects, call_id=id_ or None
                )
            self._calls[id_] = call
        return self._calls[hook.tool_use_id]

    async def _outcome(self, hook: Hook, agent: str) -> None:
        outcome: Any = hook.tool_response
        if hook.error is not None:
            outcome = (NoOutcome if hook.is_interrupt else ClaudeToolError)(hook.error)
        if hook.tool_use_id in self._earlier:
            earlier, self._earlier[hook.tool_use_id] = self._earlier[hook.tool_use_id], None
            if earlier is not None:
                await self._settle(*earlier, outcome)
            return
        call = self._calls.get(hook.tool_use_id) or await self._begin(hook, agent)
        with contextlib.suppress(
            Blocked
        ):  # Claude Code ran what was denied: the denial is on record
            await call.end(outcome)

    async def _settle(self, agent: str, earlier: Step, outcome: Any) -> None:
        """Settle a call whose listener ended before its outcome was posted."""
        if not earlier.is_in_doubt or earlier.settled_by:
            return
        result = {"error": str(outcome)} if isinstance(outcome, Exception) else outcome
        await runs.settle(
            self._record.workspace,
            self._run,
            f"{agent}#{earlier.number}",
            "happened",
            result=result,
            by=WORKFLOW,
            reason="its hook was posted after the listener had restarted",
        )

    async def _message(self, hook: Hook, agent: str, role: str, text: str) -> None:
        """Record a message, once for each prompt's id."""
        key = f"{agent}/{role}/{hook.prompt_id}"
        if hook.prompt_id and key in self._seen:
            return
        self._seen.add(key)
        await (await self._session(hook, agent)).message(role, text)

    async def _leave(self, agent: str) -> None:
        """End an agent's session; a call without an outcome is in doubt."""
        for call in [call for call in self._calls.values() if call.agent == agent]:
            with contextlib.suppress(HansardError, asyncio.CancelledError):
                await call.end(NoOutcome("no outcome was posted before the session ended"))
        session = self._sessions.pop(agent, None)
        if session is not None:
            await session.close()

    @property
    def is_over(self) -> bool:
        """True if no agent takes part any more."""
        return not self._sessions


class Hooks:
    """The sessions of Claude Code whose hooks are posted to one record."""

    def __init__(self, record: AsyncRecord) -> None:
        self._record = record
        self._runs: dict[str, _Run] = {}

    async def post(self, hook: Hook, rules: HookRules, run: str = "") -> dict[str, Any]:
        """Record a hook and return its answer.

        Args:
            hook: The hook.
            rules: Rules of the session; those of its first hook count.
            run: The run that the session belongs to; by default one of its own, by its id.

        Raises as `record.open`, and as a write.
        """
        key = run or hook.session_id
        current = self._runs.setdefault(key, _Run(self._record, key, rules))
        answer = await current.post(hook)
        if hook.hook_event_name == "SessionEnd" and current.is_over:
            self._runs.pop(key, None)  # what is posted late is read from the record
        return answer


def denial(reason: str) -> dict[str, Any]:
    """Return the answer that denies a call."""
    decision = {"permissionDecision": "deny", "permissionDecisionReason": f"hansard: {reason}"}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


def block(url: str, token_env: str | None = None) -> dict[str, Any]:
    """Return the `hooks` of a settings file that post to a URL: that of the listener and `PATH`.

    A tool whose intent cannot be posted does not run (Claude Code 2.1.295 and later). `token_env`
    is the variable with the listener's token.
    """
    headers = {RUN_HEADER: f"${RUN_VARIABLE}"}
    headers |= {} if token_env is None else {"Authorization": f"Bearer ${token_env}"}
    variables = [each for each in (RUN_VARIABLE, token_env) if each is not None]
    posted: dict[str, Any] = {"type": "http", "url": url, "timeout": TIMEOUT_S}
    posted |= {"headers": headers, "allowedEnvVars": variables}
    strict = {"onFailure": "block"}
    return {
        event: [{"hooks": [posted | (strict if event == "PreToolUse" else {})]}] for event in EVENTS
    }


_by_record: weakref.WeakKeyDictionary[AsyncRecord, Hooks] = weakref.WeakKeyDictionary()


async def handle(call: Call) -> Response:
    """Answer a hook that was posted to the listener. Raises BadValue, BadOption."""
    try:
        hook = msgspec.json.decode(call.body, type=Hook)
    except msgspec.DecodeError as error:
        raise BadValue("the hook", str(error), "post the JSON that Claude Code sends") from None
    hooks = _by_record.setdefault(call.record, Hooks(call.record))
    rules = HookRules.of(call.query)
    return JSONResponse(await hooks.post(hook, rules, call.headers.get(RUN_HEADER, "")))
