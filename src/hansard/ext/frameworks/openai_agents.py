"""The OpenAI Agents SDK on the record: an agent's model calls and function tools are steps.

    agent = recorded(Agent("support", tools=[refund, look], handoffs=[billing]), pure=["look"])
    async with hansard.AsyncSession("support"):
        result = await Runner.run(
            agent, "Refund order 7", session=RecordedSession("ann"), hooks=RecordedHooks()
        )

`RecordedSession` keeps a conversation's items on the record, `RecordedHooks` notes hand-offs and
answers. Outside a session of Hansard, and inside the body of a tool, an agent runs unrecorded.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

try:
    from agents.models import get_default_model
except ModuleNotFoundError as error:
    from hansard.domain.errors import ExtraMissing

    raise ExtraMissing("recording agents", "openai-agents", "openai-agents") from error

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    Model,
    ModelProvider,
    ModelResponse,
    ModelSettings,
    MultiProvider,
    OpenAIProvider,
    RunHooks,
    Tool,
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
)
from agents.items import TResponseStreamEvent
from agents.tool import ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool
from agents.tool_context import ToolContext
from pydantic_core import to_jsonable_python

from hansard.domain.errors import BadValue
from hansard.domain.steps import Effects
from hansard.ext.frameworks import _responses
from hansard.ext.frameworks._sessions import (
    effects_by_name,
    execute,
    report_usage,
    session_here,
    state,
)
from hansard.ext.frameworks.agents_sessions import RecordedSession as RecordedSession
from hansard.ext.steps import NamedTool, call_async, step

LOCAL = (ApplyPatchTool, ComputerTool, CustomTool, LocalShellTool, ShellTool)
"""Tools that the SDK runs here, with no hook to record them."""

OPERATIONS = {
    "OpenAIResponsesModel": "openai.responses",
    "OpenAIResponsesWSModel": "openai.responses",
    "OpenAIChatCompletionsModel": "openai.chat.completions",
}
"""Names of steps by the class of a model; others are named by their class."""

BUNDLED = {"litellm": "LitellmModel", "any-llm": "AnyLLMModel"}
"""Classes of models by the prefix of their name, as `MultiProvider` reads it."""

_OUTPUTS = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)


def recorded(
    agent: Agent[Any],
    *,
    pure: Iterable[str] = (),
    idempotent: Iterable[str] = (),
    composite: Iterable[str] = (),
    provider: ModelProvider | None = None,
) -> Agent[Any]:
    """Return a copy of an agent, and of the agents that it hands off to, whose calls are steps.

    Tools that are not listed are called once: if the process is killed during a call, a person or
    a policy decides whether it is repeated. A model that a `RunConfig` names takes precedence over
    the agent's, and is not recorded.

    Args:
        agent: The agent; it stays as it is.
        pure: Names of tools that change nothing.
        idempotent: Names of tools whose calls may be repeated.
        composite: Names of tools that make steps themselves, such as agents as tools.
        provider: Provider of models given by name; by default the SDK's.

    Raises BadValue for a tool that is listed twice, or that the SDK runs without a hook.
    """
    effects = effects_by_name(pure, idempotent, composite)
    return _Copies(effects, provider or MultiProvider()).of(agent)


class _Copies:
    """Recorded copies of agents, one for each."""

    def __init__(self, effects: Mapping[str, Effects], provider: ModelProvider) -> None:
        self._effects = effects
        self._provider = provider
        self._copies: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    def of(self, agent: Any) -> Any:
        """Return the copy of an agent; of an agent that was not known, a new one."""
        if not isinstance(agent, Agent):
            return agent
        if id(agent) not in self._copies:
            copied = agent.clone(
                model=RecordedModel(agent.model, self._provider),
                model_settings=agent.model_settings,
                tools=[self._tool(each) for each in agent.tools],
            )
            self._copies[id(agent)] = (agent, copied)
            copied.handoffs = [self._handoff(each) for each in agent.handoffs]
        return self._copies[id(agent)][1]

    def _tool(self, tool: Tool) -> Tool:
        if isinstance(tool, LOCAL):
            fact = f"a {type(tool).__name__} runs without a hook, so no replay could answer it"
            remedy = "make it a function tool, or leave it out"
            raise BadValue(f"tool {tool.name!r:.80}", fact, remedy)
        if not isinstance(tool, FunctionTool):
            return tool  # run by the provider: part of the model's answer
        return recorded_tool(tool, self._effects.get(tool.name, Effects.ONCE))

    def _handoff(self, to: Agent[Any] | Handoff[Any, Any]) -> Agent[Any] | Handoff[Any, Any]:
        if isinstance(to, Agent):
            return cast("Agent[Any]", self.of(to))

        async def invoke(context: Any, arguments: str) -> Any:
            return self.of(await to.on_invoke_handoff(context, arguments))

        copied = copy.copy(to)
        copied.on_invoke_handoff = invoke
        return copied


def recorded_tool(tool: FunctionTool, effects: Effects | str = Effects.ONCE) -> FunctionTool:
    """Return a copy of a function tool whose calls are steps.

    An error that the tool's `failure_error_function` makes a text is a result on record.
    """

    async def invoke(context: ToolContext[Any], text: str) -> Any:
        async def run() -> Any:
            return _output(await tool.on_invoke_tool(context, text), tool)

        session = session_here()
        if session is None:
            return await tool.on_invoke_tool(context, text)
        return await execute(session, step(tool.name, run, effects=effects), _read(text))

    copied = copy.copy(tool)
    copied.on_invoke_tool = invoke
    return copied


def _read(text: str) -> dict[str, Any]:
    """Return a call's arguments; those that are no JSON object as one argument."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = text
    return arguments if isinstance(arguments, dict) else {"input": arguments}


def _output(output: Any, tool: FunctionTool) -> Any:
    """Return a tool's output in a form that is the same when it is read from the record."""
    match output:
        case None | str() | bool() | int() | float() | dict():
            return output
        case list():
            return [_output(each, tool) for each in output]
        case _ if isinstance(output, _OUTPUTS):
            return output.model_dump(mode="json", exclude_none=True)
        case _ if tool.output_json_schema is not None:
            return to_jsonable_python(output)
        case _:
            return str(output)  # as the SDK does


class RecordedModel(Model):  # type: ignore[misc]  # see mypy's configuration
    """Model whose calls are steps of the current session.

    A model given by name is made by its provider for the first call that really runs, so that a
    replay needs no key.
    """

    def __init__(self, model: str | Model | None, provider: ModelProvider) -> None:
        self._source = model
        self._provider = provider
        self._instance = model if isinstance(model, Model) else None

    @property
    def model(self) -> str:
        """The model's name."""
        if isinstance(self._source, Model):
            return str(getattr(self._source, "model", type(self._source).__name__))
        return self._source or get_default_model()

    @property
    def _operation(self) -> str:
        kind = _class_of(self._source, self._provider)
        return OPERATIONS.get(kind, f"agents.{kind}")

    @property
    def _real(self) -> Model:
        if self._instance is None:
            name = None if isinstance(self._source, Model) else self._source
            self._instance = self._provider.get_model(name)
        return self._instance

    def get_retry_advice(self, request: Any) -> Any:
        """Return the model's advice; none in a replay."""
        return self._instance and self._instance.get_retry_advice(request)

    async def close(self) -> None:
        """Close the model."""
        if self._instance is not None:
            await self._instance.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        if self._instance is not None:
            await self._instance._cleanup_on_run_end(owner)  # noqa: SLF001 -- the SDK calls it for each model

    def _supports_default_prompt_cache_key(self) -> bool:
        """Return whether the SDK adds a key of its own, as it asks each model."""
        if self._instance is None:
            return self._operation.startswith("openai.")
        supports = getattr(self._instance, "_supports_default_prompt_cache_key", None)
        return bool(supports and supports())

    async def get_response(self, *request: Any, **more: Any) -> ModelResponse:
        """Return the model's response, or the recorded one."""
        session = session_here()
        if session is None:
            return await self._real.get_response(*request, **more)

        async def send() -> Any:
            response = await self._real.get_response(*request, **more)
            report_usage(session, response.usage)
            return _responses.plain_response(response)

        tool, arguments = self._step(send, request, more)
        answer = await execute(session, tool, arguments)
        return _responses.response(answer)

    async def stream_response(
        self, *request: Any, **more: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Yield the model's events, or the recorded ones."""
        session = session_here()
        if session is None:
            async for event in self._real.stream_response(*request, **more):
                yield event
            return

        async def send() -> AsyncIterator[Any]:
            async for event in self._real.stream_response(*request, **more):
                response = getattr(event, "response", None)
                if event.type in ("response.completed", "response.incomplete") and response:
                    report_usage(session, response.usage)
                yield _responses.plain(event)

        tool, arguments = self._step(send, request, more)
        async for item in await call_async(session, tool, arguments):
            yield _responses.event(item)

    def _step(
        self, send: Any, request: tuple[Any, ...], more: Mapping[str, Any]
    ) -> tuple[NamedTool, dict[str, Any]]:
        """Return a call's step, and the request as its arguments."""
        names = ("system_instructions", "input", "model_settings", "tools", "output_schema")
        fields = {**dict(zip((*names, "handoffs", "tracing"), request, strict=False)), **more}
        schema = fields["output_schema"]
        plain_text = schema is None or schema.is_plain_text()
        arguments = {
            "model": self.model,
            "instructions": fields["system_instructions"],
            "input": to_jsonable_python(fields["input"]),
            "settings": _settings(fields["model_settings"]),
            "tools": [_described(each) for each in fields["tools"]],
            "handoffs": [each.tool_name for each in fields["handoffs"]],
            "output_schema": None if plain_text else schema.json_schema(),
            "previous_response_id": fields.get("previous_response_id"),
            "conversation_id": fields.get("conversation_id"),
            "prompt": to_jsonable_python(fields.get("prompt")),
        }
        is_given = {name: value for name, value in arguments.items() if value not in (None, [], {})}
        return step(self._operation, send, kind="model", effects=Effects.IDEMPOTENT), is_given


def _class_of(model: str | Model | None, provider: ModelProvider) -> str:
    """Return the class of a model, without making the model: a replay makes none.

    A provider that is not the SDK's own does not state it: it is named instead.
    """
    if isinstance(model, Model):
        return type(model).__name__
    if isinstance(provider, MultiProvider):
        prefix, slash, name = (model or "").partition("/")
        mapped = provider.provider_map.get_provider(prefix) if provider.provider_map else None
        if slash and mapped is not None:
            return _class_of(name, mapped)
        if slash and prefix in BUNDLED:
            return BUNDLED[prefix]
        provider = provider.openai_provider
    if not isinstance(provider, OpenAIProvider):
        return type(provider).__name__
    is_responses = provider._use_responses  # noqa: SLF001 -- the SDK offers no other way to read it
    return "OpenAIResponsesModel" if is_responses else "OpenAIChatCompletionsModel"


def _settings(settings: ModelSettings) -> dict[str, Any]:
    """Return a model's settings without headers, which may hold keys, and the random cache key."""
    extra = {**(settings.extra_args or {})}
    if str(extra.get("prompt_cache_key", "")).startswith("agents-sdk:"):
        del extra["prompt_cache_key"]
    settings = replace(settings, extra_headers=None, extra_args=extra or None)
    return {name: value for name, value in settings.to_json_dict().items() if value is not None}


def _described(tool: Tool) -> dict[str, Any]:
    if isinstance(tool, FunctionTool):
        schema = tool.params_json_schema
        return {"name": tool.name, "description": tool.description, "parameters": schema}
    return {"name": tool.name}


class RecordedHooks(RunHooks[Any]):  # type: ignore[misc]  # as RecordedModel
    """Hooks that note hand-offs and agents' answers in the current session.

    A processor of traces cannot: its methods must not wait, so that the agent would go on before
    what they note is on record.
    """

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        """Note a hand-off."""
        del context
        session = session_here()
        if session is not None:
            await state(session, "hand_off", to_agent.name, {"from": from_agent.name})

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        """Note an agent's answer as a message."""
        del context
        session = session_here()
        if session is not None:
            content = to_jsonable_python(output)
            await state(session, "message", "assistant", content, fields={"name": agent.name})
