"""PydanticAI on the record: a durability capability whose durable units are steps.

    agent = Agent(model, name="support", tools=[refund], capabilities=[HansardDurability()])
    async with hansard.AsyncSession("support"):
        result = await agent.run("Refund order 7")

Model requests, tool calls, MCP servers, event handlers and the run's clock are steps of the current
session. Outside a session, and inside the body of a tool, the agent runs as without the capability.
Built on PydanticAI's published interface for durable execution.
"""

from __future__ import annotations

import base64
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypedDict

try:
    from pydantic_ai.agent import AgentRunResult, EventStreamHandler
except ModuleNotFoundError as error:
    from hansard.domain.errors import ExtraMissing

    raise ExtraMissing("HansardDurability", "pydantic-ai-slim", "pydantic-ai") from error

from pydantic import TypeAdapter
from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    CapabilityOperationId,
    DurabilityEngineSpec,
    DurableOperationId,
    EventStreamHandlerId,
    JournalOperationNamer,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
    conversation_id_from_run_id,
    record_durable_unit,
    replay_scope,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_core import PydanticSerializationError, to_jsonable_python

from hansard.domain.choices import check_options
from hansard.domain.steps import Effects
from hansard.ext.frameworks._sessions import effects_by_name, execute, report_usage, session_here
from hansard.ext.steps import step

VOLATILE = ("timestamp", "run_id", "conversation_id")
"""Fields of a message and of its parts that differ in each run, and are no part of a request."""

_PARAMETERS = TypeAdapter(ModelRequestParameters)

_run_numbers: weakref.WeakKeyDictionary[Any, Counter[str]] = weakref.WeakKeyDictionary()
"""Agent runs so far in each session, by the agent's name."""


class StepOptions(TypedDict, total=False):
    """Options of an operation's steps, also for `metadata={"hansard": ...}` of a tool.

    Attributes:
        effects: `pure`, `idempotent`, `once`, or `composite` for a tool that runs agents.
        attempts: Largest number of attempts of a call.
        timeout_s: Seconds for an attempt.
    """

    effects: str
    attempts: int
    timeout_s: float


class HansardDurability(BaseDurabilityCapability[AgentDepsT]):
    """Make an agent's calls steps of the current session.

    Tools of toolsets need an `id` of their toolset, as PydanticAI demands for durable execution.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="Hansard",
        durable_unit_noun="step",
        durable_container_noun="session",
        codec=JSON_CODEC,
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        tool_config_key="hansard",
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        pure: Iterable[str] = (),
        idempotent: Iterable[str] = (),
        composite: Iterable[str] = (),
    ) -> None:
        """Create the capability.

        Tools that are not listed are called once: if the process is killed during a call, a person
        or a policy decides whether it is repeated. A tool's own
        `metadata={"hansard": {"effects": "pure"}}` has precedence.

        Args:
            models: Further models by id, for `agent.run(model=...)`.
            event_stream_handler: Handles events; it is not called again for those on record.
            name: The agent's name on record; by default its own.
            pure: Names of tools that change nothing.
            idempotent: Names of tools whose calls may be repeated.
            composite: Names of tools that make steps themselves, such as those that run an agent.

        Raises BadValue for a tool that is listed twice.
        """
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._effects = effects_by_name(pure, idempotent, composite)

    @property
    def in_durable_context(self) -> bool:
        """True if a session is current, and no tool's body is running in it."""
        return session_here() is not None

    def get_default_run_id(self) -> str | None:
        """Return an id of the agent's run that a resume repeats: the run and a number."""
        session = session_here()
        if session is None:
            return None
        numbers = _run_numbers.setdefault(session, Counter())
        numbers[self.name] += 1
        return f"{session.run}:{session.agent}:{self.name}:{numbers[self.name]}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return the conversation's id that follows from a run's id."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        """Return the recorded time at which the agent's run first started."""
        session = session_here()
        if session is None:
            return None

        async def now() -> str:
            return datetime.now(UTC).isoformat()

        named = f"{self.name}__run_start_time"
        calling = step(named, now, effects=Effects.PURE, aside=["run_id"])
        started = await execute(session, calling, {"run_id": run_id})
        return datetime.fromisoformat(started)

    def get_durable_operation_backend(self) -> SessionBackend:
        """Return the backend that makes operations steps."""

        def tool_options(_: DurableOperationId, tool: Any, tool_name: str) -> Any:
            if tool is None:  # an operation of a toolset, not of one of its tools
                return {}
            declared: StepOptions = {"effects": self._effects.get(tool_name, Effects.ONCE)}
            options = self._build_resolve_tool_config(declared)(tool, tool_name)
            check_options(
                f"hansard metadata of {tool_name}", options or (), StepOptions.__annotations__
            )
            return options

        return SessionBackend(
            namer=JournalOperationNamer(self.name),
            config=RoleBasedOperationConfig[StepOptions](
                model={"effects": Effects.IDEMPOTENT},
                event={"effects": Effects.IDEMPOTENT},
                capability={"effects": Effects.ONCE},
                tool={},
                resolve_tool=tool_options,
            ),
        )

    async def wrap_run(
        self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Report tool events in the order of the calls, and no telemetry of what is replayed."""
        if self._agent is None or not self.in_durable_context:
            return await super().wrap_run(ctx, handler=handler)
        ordered = self._agent.parallel_tool_call_execution_mode("parallel_ordered_events")
        with replay_scope(), ordered:
            return await super().wrap_run(ctx, handler=handler)


class SessionBackend(CallableOperationBackend[StepOptions]):
    """Executes each operation of an agent as a step of the current session."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: StepOptions,
    ) -> object:
        """Execute an operation, or return its recorded result."""
        session = session_here()
        if session is None:  # the operation's session was left meanwhile, or a body calls it
            return await body()
        named, arguments = _request(operation_id, name, cache_key)
        is_model = isinstance(operation_id, ModelRequestId | ModelCompactMessagesId)

        is_call = isinstance(operation_id, ToolsetCallToolId)
        ran = False

        async def run() -> object:
            nonlocal ran
            ran = True
            payload = await body()
            if is_model:
                report_usage(session, payload.get("usage") if isinstance(payload, dict) else None)
            return _result(payload) if is_call else payload

        options: dict[str, Any] = {"effects": Effects.PURE, **config}
        if isinstance(operation_id, ToolsetValidateToolArgumentsId):
            options["effects"] = Effects.PURE
        calling = step(
            named,
            run,
            kind="model" if is_model else "tool",
            doubtful_errors=(PydanticSerializationError,),  # of a result: the call was made
            **options,
        )
        result = await execute(session, calling, arguments)
        record_durable_unit(executed=ran)
        return _payload(result) if is_call else result


def _result(payload: Any) -> Any:
    """Return the result of a tool's call as it is recorded: what the tool returned, if it did."""
    match payload:
        case {"kind": "tool_return", "result": {"pydantic_ai": _}}:
            return {"pydantic_ai": payload}
        case {"kind": "tool_return", "result": result}:
            return result
        case _:  # the call was deferred, is to be retried, needs an approval ...
            return {"pydantic_ai": payload}


def _payload(result: Any) -> Any:
    """Return what PydanticAI expects for a recorded result, or for one that a person supplied."""
    match result:
        case {"pydantic_ai": payload} if len(result) == 1:
            return payload
        case _:
            return {"kind": "tool_return", "result": result}


def _request(
    operation_id: DurableOperationId, name: str, key: tuple[Any, ...]
) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of an operation's step, from what identifies its call."""
    match operation_id:
        case ModelRequestId(streaming=streaming, model_name=model):
            _, messages, settings, parameters, context = key
            operation = "request_stream" if streaming else "request"
            return f"{_system(context)}.{operation}", {
                "model": model,
                "messages": _messages(messages),
                "settings": plain(settings or {}),
                "parameters": plain(_PARAMETERS.dump_python(parameters, exclude_defaults=True)),
            }
        case ModelCompactMessagesId(model_name=model):
            _, request, instructions, context = key
            request = {"messages": _messages(request.messages), "instructions": instructions}
            return f"{_system(context)}.compact_messages", {"model": model, **request}
        case ModelCancelSuspendedResponseId(model_name=model):
            _, response, context = key
            [message] = _messages([response])
            return f"{_system(context)}.cancel_response", {"model": model, "response": message}
        case ToolsetCallToolId() | ToolsetValidateToolArgumentsId():
            tool, arguments = key[0], plain(key[1])
            return (tool if isinstance(operation_id, ToolsetCallToolId) else name), arguments
        case EventStreamHandlerId():
            event = {part: _timeless(value) for part, value in plain(key[0]).items()}
            return name, {"event": event}
        case CapabilityOperationId():  # and a call of a workspace
            values = (each for each in key if not isinstance(each, RunContext))
            return name, {"arguments": plain([_without_context(each) for each in values])}
        case _:  # discovery of tools and instructions
            return name, {}


def _system(context: RunContext[Any] | None) -> str:
    """Return the provider's name of a run's model."""
    system = getattr(getattr(context, "model", None), "system", None)
    return system if isinstance(system, str) and system else "model"


def _messages(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """Return messages as JSON, without the times and ids of this run."""
    listed = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return [
        {**_timeless(message), "parts": [_timeless(part) for part in message["parts"]]}
        for message in listed
    ]


def _timeless(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if name not in VOLATILE}


def _without_context(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: each for name, each in value.items() if not isinstance(each, RunContext)}


def plain(value: Any) -> Any:
    """Return a value as JSON that is the same in each process: sets sorted, others by class."""
    match value:
        case Mapping():
            return {str(name): plain(each) for name, each in value.items()}
        case set() | frozenset():
            return sorted((plain(each) for each in value), key=repr)
        case list() | tuple():
            return [plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return to_jsonable_python(
                value, bytes_mode="base64", fallback=lambda each: type(each).__qualname__
            )
