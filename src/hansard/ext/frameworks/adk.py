"""Google ADK on the record: a plugin whose model and tool calls are steps of the current session.

    runner = InMemoryRunner(agent, plugins=[HansardPlugin(effects={"search": "pure"})])
    async with hansard.AsyncSession("support"):
        async for event in runner.run_async(...):
            ...

A recorded call is answered from the record: the callback before it returns the recorded answer, and
ADK skips the model or the tool. What a tool did to its context (`state`, a transfer, an escalation)
is recorded with its result and repeated. Of a streamed response, the complete one is recorded;
a replay has no partial ones. Outside a session the agent runs as without the plugin.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin

from hansard.domain.steps import Effects
from hansard.ext.frameworks._sessions import PairedCall, report_usage, session_here
from hansard.ext.steps import AnySession

MODEL = "adk.generate_content"
"""Name of a model's step."""

OWN_ID = "adk-"
"""Prefix of the ids that ADK draws for function calls; they are no part of a request."""

ACTIONS = "hansard_actions"
"""Field of a recorded result with what the tool did to its context."""

_ACTIONS = ("state_delta", "transfer_to_agent", "escalate", "skip_summarization", "artifact_delta")
"""Fields of a tool's actions that are recorded and repeated."""


class HansardPlugin(BasePlugin):  # type: ignore[misc]  # ADK has an environment of its own
    """Plugin that makes model and tool calls steps of a session."""

    def __init__(
        self,
        session: AnySession | None = None,
        *,
        effects: Mapping[str, Effects | str] | None = None,
        name: str = "hansard",
    ) -> None:
        """Make a plugin for a runner.

        Args:
            session: The session; by default the one that is current at each call.
            effects: The effects of tools, by name; `once` for others.
            name: The plugin's name in ADK.
        """
        super().__init__(name=name)
        self._own_session = session
        self._effects = dict(effects or {})
        self._calls: dict[Hashable, PairedCall] = {}

    def _session(self) -> AnySession | None:
        return self._own_session or session_here()

    # Models. An agent has at most one model call at a time in an invocation.

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
        """Return the recorded response; record the request of a new call."""
        session = self._session()
        if session is None:
            return None

        def finish(response: LlmResponse) -> dict[str, Any]:
            report_usage(session, response.usage_metadata)
            return _plain(response)

        call = PairedCall(finish)
        request = _plain(llm_request)
        arguments = {
            "model": request.pop("model", ""),
            "body": _without_own_ids(request),
            "agent": callback_context.agent_name,
        }
        effects = Effects.IDEMPOTENT
        call.begin(session, MODEL, arguments, effects=effects, kind="model", aside=("agent",))
        if not await call.may_run():
            return LlmResponse.model_validate(call.task.result())
        self._calls[_place(callback_context)] = call
        return None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Record a complete response."""
        if not llm_response.partial:
            await self._ended(_place(callback_context), llm_response)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: Any, error: Exception
    ) -> None:
        """Record the error of a model call."""
        del llm_request
        await self._ended(_place(callback_context), error)

    # Tools. Both callbacks of a call get the same context.

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> Any:
        """Return the recorded result; record the intent of a new call."""
        session = self._session()
        if session is None:
            return None

        def finish(result: Any) -> Any:
            actions = tool_context.actions.model_dump(mode="json", exclude_defaults=True)
            kept = {name: actions[name] for name in _ACTIONS if actions.get(name)}
            fields = result if isinstance(result, dict) else {"result": result}
            return {**fields, ACTIONS: kept} if kept else result

        call = PairedCall(finish)
        effects = self._effects.get(tool.name, Effects.ONCE)
        id_ = tool_context.function_call_id
        call.begin(session, tool.name, tool_args, effects=effects, call_id=id_)
        if await call.may_run():
            self._calls[id(tool_context)] = call
            return None
        result = call.task.result()
        if result is None:  # as an answer it would mean that the tool is to run
            return {} if tool.is_long_running else {"result": None}
        if isinstance(result, dict) and ACTIONS in result:
            _repeat(result[ACTIONS], tool_context)
            return {name: value for name, value in result.items() if name != ACTIONS}
        return result

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> None:
        """Record the result of a tool."""
        del tool, tool_args
        await self._ended(id(tool_context), result)

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: BaseException
    ) -> None:
        """Record the error of a tool; a cancelled call is in doubt."""
        del tool, tool_args
        await self._ended(id(tool_context), error)

    async def _ended(self, place: Hashable, outcome: Any) -> None:
        call = self._calls.pop(place, None)
        if call is not None:
            await call.end(outcome)


def _place(context: Any) -> tuple[str, str]:
    """Return where a model is called: an agent's invocation has one such call at a time."""
    return context.invocation_id, context.agent_name


def _plain(model: Any) -> dict[str, Any]:
    plain: dict[str, Any] = model.model_dump(mode="json", exclude_none=True, fallback=str)
    return plain


def _repeat(actions: Mapping[str, Any], context: Any) -> None:
    """Apply the recorded actions of a tool to its context."""
    for name, value in actions.items():
        if name == "state_delta":
            context.state.update(value)
        else:
            setattr(context.actions, name, value)


def _without_own_ids(value: Any) -> Any:
    """Return a request without the ids that ADK drew for function calls."""
    if isinstance(value, list):
        return [_without_own_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _without_own_ids(each)
        for name, each in value.items()
        if not (name == "id" and isinstance(each, str) and each.startswith(OWN_ID))
    }
