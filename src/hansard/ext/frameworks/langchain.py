"""LangChain agents on the record: each model call and each tool call is a step of a session.

    agent = create_agent(model, tools=[search, mail], **recorded(pure=[search]))
    with hansard.Session("support"):
        agent.invoke(question, {"configurable": {"thread_id": "ann"}})

Middleware of the program goes into `recorded(middleware=...)`, which puts the recording last: a
retry by another middleware is a step of its own. Parallel tool calls of one answer have a scope
each, so that a resumed run finds them in any order. A tool that calls `interrupt()` ends its step
with the question; the call that gets the answer is the next step. Tools that are declared with
`hansard.tool` already record themselves.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypedDict, cast

try:
    from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
except ModuleNotFoundError as error:
    from hansard.domain.errors import ExtraMissing

    raise ExtraMissing("recording agents", "langchain", "langchain") from error

from langchain_core import messages as lc
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, Send, interrupt

from hansard.agents.flow import done
from hansard.agents.steps.scope import Scope, enter, leave
from hansard.agents.steps.tools import Tool, source_digest
from hansard.domain import value_types
from hansard.domain.errors import BadValue
from hansard.domain.steps import Effects
from hansard.domain.value_types import ValueType
from hansard.ext.frameworks._sessions import effects_by_name, report_usage, session_here
from hansard.ext.frameworks.langgraph import Checkpointer
from hansard.ext.steps import AnySession, NamedTool, arrived, call_either, step

_MESSAGES = (lc.HumanMessage, lc.AIMessage, lc.SystemMessage, lc.ToolMessage, lc.RemoveMessage)
_NOT_SENT = {"id", "type", "response_metadata", "usage_metadata", "artifact"}
"""Fields of a message that its provider does not get: random ids, facts of an earlier answer."""

_RETURNED = (lc.ToolMessage, Command)

QUESTION, SCHEMA = "interrupt", "response_schema"
"""Keys of the result of a tool that stopped for a person: its question."""


class Recorded(TypedDict, total=False):
    """Arguments for `create_agent`."""

    middleware: list[AgentMiddleware[Any, Any]]
    checkpointer: Checkpointer


def recorded(
    session: AnySession | None = None,
    *,
    pure: Iterable[Any] = (),
    idempotent: Iterable[Any] = (),
    composite: Iterable[Any] = (),
    middleware: Sequence[AgentMiddleware[Any, Any]] = (),
    checkpointer: bool = True,
) -> Recorded:
    """Return the arguments of `create_agent` that put an agent on the record.

    Tools are given as objects or by name. All others are called once: if their process is killed
    during a call, a person or a policy decides whether it is repeated.

    Args:
        session: The session whose steps the calls are: of the async client for `ainvoke`. By
            default the one that is current at each call.
        pure: Tools that change nothing.
        idempotent: Tools whose calls may be repeated.
        composite: Tools that make steps themselves, such as those that run another agent.
        middleware: Middleware of the program; the recording runs inside of it.
        checkpointer: Whether to keep threads on the record; not for a restricted agent.

    Raises BadValue for a tool that is listed twice.
    """
    effects = effects_by_name(_names(pure), _names(idempotent), _names(composite))
    arguments: Recorded = {"middleware": [*middleware, RecordingMiddleware(session, effects)]}
    if checkpointer:
        arguments["checkpointer"] = Checkpointer(session)
    return arguments


class RecordingMiddleware(AgentMiddleware[Any, Any]):
    """Middleware that makes model and tool calls steps; it is the last of its agent."""

    def __init__(self, session: AnySession | None, effects: Mapping[str, Effects]) -> None:
        super().__init__()
        self._given = session
        self._effects = effects
        self._branches: dict[tuple[Scope, tuple[str, ...]], list[Scope]] = {}
        """Scopes of the parallel tool calls of an answer, by their scope and ids."""

    @property
    def _session(self) -> AnySession | None:
        return session_here() if self._given is None else self._given

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Make a model call a step."""
        return done(self._call_model(request, handler, is_plain=True))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Make a model call a step."""
        return await self._call_model(request, handler, is_plain=False)

    def wrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], lc.ToolMessage | Command[Any]],
    ) -> lc.ToolMessage | Command[Any]:
        """Make a tool call a step."""
        return done(self._call_tool(request, handler, is_plain=True))

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[lc.ToolMessage | Command[Any]]],
    ) -> lc.ToolMessage | Command[Any]:
        """Make a tool call a step."""
        return await self._call_tool(request, handler, is_plain=False)

    async def _call_model(
        self, request: ModelRequest[Any], handler: Callable[..., Any], *, is_plain: bool
    ) -> ModelResponse[Any]:
        session = self._session
        if session is None:
            return cast("ModelResponse[Any]", await arrived(handler(request)))

        async def send() -> Any:
            return _used(session, await arrived(handler(request)))

        self._join(session)
        tool, arguments = self._model(request, send)
        return _response(await call_either(session, tool, arguments, is_plain=is_plain))

    async def _call_tool(
        self, request: ToolCallRequest, handler: Callable[..., Any], *, is_plain: bool
    ) -> lc.ToolMessage | Command[Any]:
        session, stops = self._session, list[GraphInterrupt]()
        if session is None or _records_itself(request.tool):
            return cast("lc.ToolMessage", await arrived(handler(request)))

        async def run() -> Any:
            try:
                return await arrived(handler(request))
            except GraphInterrupt as stop:
                return _question(stop, stops)

        with self._branch(session, request):
            tool, arguments = self._tool(request, run), request.tool_call["args"]
            result = await call_either(session, tool, arguments, is_plain=is_plain)
        return cast("lc.ToolMessage", _answer(result, request, stops))

    def _model(
        self, request: ModelRequest[Any], send: Callable[[], Any]
    ) -> tuple[NamedTool, dict[str, Any]]:
        """Return the step of a model call, and its arguments."""
        facts = dict(request.model._get_ls_params())  # noqa: SLF001 -- the provider's hook for traces
        provider = facts.pop("ls_provider", type(request.model).__name__)
        system = [] if request.system_message is None else [request.system_message]
        arguments = {
            "model": facts.pop("ls_model_name", None),
            "messages": [_sent(each) for each in (*system, *request.messages)],
            "tools": [_schema(each) for each in request.tools],
            "tool_choice": request.tool_choice,
            "response_format": _format(request.response_format),
            "settings": facts | request.model_settings,
        }
        set_ = {name: value for name, value in arguments.items() if value not in (None, [], {})}
        return step(f"{provider}.chat", send, kind="model", effects=Effects.IDEMPOTENT), set_

    def _tool(self, request: ToolCallRequest, run: Callable[[], Any]) -> NamedTool:
        """Return the step of a tool call."""
        name = request.tool_call["name"]
        function = getattr(request.tool, "func", None) or getattr(request.tool, "coroutine", None)
        lines = (request.tool.description if request.tool is not None else "").splitlines()
        return step(
            name,
            run,
            effects=self._effects.get(name, Effects.ONCE),
            source=source_digest(function) if function is not None else "",
            does=lines[0] if lines else "",
        )

    @contextlib.contextmanager
    def _branch(self, session: AnySession, request: ToolCallRequest) -> Generator[None]:
        """Enter the scope of a tool call, if its answer made several."""
        id_ = request.tool_call["id"]
        ids: tuple[Any, ...] = ()
        for message in reversed(_messages(request.state)):
            if isinstance(message, lc.AIMessage) and message.tool_calls:
                ids = tuple(each["id"] for each in message.tool_calls)
                break
        if len(ids) < 2 or id_ not in ids:  # noqa: PLR2004 -- two are several
            yield
            return
        ledger = session.engine.ledger
        with ledger.lock:
            here = ledger.here
            if (here, ids) not in self._branches:
                for other, more in [*self._branches]:
                    if other.session.ended:
                        del self._branches[other, more]
                self._branches[here, ids] = here.spawn(len(ids))
            scope = self._branches[here, ids][ids.index(id_)]
        token = enter(scope)
        try:
            yield
        finally:
            leave(token)

    def _join(self, session: AnySession) -> None:
        """Continue after the parallel tool calls that were made here."""
        ledger = session.engine.ledger
        with ledger.lock:
            here = ledger.here
            for parent, ids in [*self._branches]:
                if parent is here:
                    parent.join(self._branches.pop((parent, ids)))


def _names(tools: Iterable[Any]) -> list[str]:
    """Return the names of tools, or of functions that become tools. Raises BadValue."""
    names: list[str] = []
    for tool in [tools] if isinstance(tools, str) else tools:
        name = tool if isinstance(tool, str) else getattr(tool, "name", None)
        name = name or getattr(tool, "__name__", None)
        if not isinstance(name, str):
            raise BadValue("recorded", f"{tool!r:.80} is no tool", "give a tool, or its name")
        names.append(name)
    return names


def _records_itself(tool: Any) -> bool:
    """Return whether a tool was declared with `hansard.tool`."""
    return isinstance(getattr(tool, "func", None), Tool)


def _used(session: AnySession, response: ModelResponse[Any]) -> Any:
    """Report the tokens of an answer; return it as it is recorded: the message, if that is all."""
    for message in response.result:
        report_usage(session, getattr(message, "usage_metadata", None))
    if len(response.result) != 1 or response.structured_response is not None:
        return response
    return response.result[0]


def _response(result: Any) -> ModelResponse[Any]:
    """Return a step's result as an answer; a text is one that a person supplied."""
    if isinstance(result, ModelResponse):
        return result
    message = result if isinstance(result, lc.AIMessage) else lc.AIMessage(_text(result))
    return ModelResponse(result=[message])


def _text(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, default=str)


def _question(stop: GraphInterrupt, stops: list[GraphInterrupt]) -> dict[str, Any]:
    """Return the recorded form of a tool's question to a person."""
    stops.append(stop)
    question = stop.args[0][0]
    return {QUESTION: question.value, SCHEMA: question.response_schema}


def _answer(result: Any, request: ToolCallRequest, stops: list[GraphInterrupt]) -> Any:
    """Return a step's result as that of this call, or ask the recorded question again. A result
    that a person supplied becomes a message.
    """
    call_id, name = request.tool_call["id"], request.tool_call["name"]
    if type(result) is dict and result.keys() == {QUESTION, SCHEMA}:
        if stops:
            raise stops[0]
        while True:  # answers that the tool already received are passed over
            interrupt(result[QUESTION], response_schema=result[SCHEMA])
    if isinstance(result, lc.ToolMessage):
        return result.model_copy(update={"tool_call_id": call_id})
    if isinstance(result, Command) or (
        isinstance(result, list) and all(isinstance(each, _RETURNED) for each in result)
    ):
        return result
    return lc.ToolMessage(_text(result), name=name, tool_call_id=call_id)


def _messages(state: Any) -> list[Any]:
    """Return the messages of a graph's state, in any of its forms."""
    if isinstance(state, dict):
        state = state.get("messages")
    return list(getattr(state, "messages", state) or ())


def _sent(message: lc.BaseMessage) -> dict[str, Any]:
    """Return a message as its provider gets it."""
    return {"type": message.type} | message.model_dump(exclude=_NOT_SENT, exclude_defaults=True)


def _schema(tool: BaseTool | dict[str, Any]) -> dict[str, Any]:
    return tool if isinstance(tool, dict) else convert_to_openai_tool(tool)


def _format(response_format: Any) -> str | None:
    """Return the name of a structured answer's schema."""
    schema = getattr(response_format, "schema", response_format)
    return None if schema is None else getattr(schema, "__name__", str(schema))


def _register() -> None:
    """Let messages, and what graphs keep beside them, be recorded as values."""
    for cls in _MESSAGES:
        tag = f"langchain.{cls.model_fields['type'].default}.v1"
        value_types.register(
            ValueType(
                cls=cls,
                tag=tag,
                encode=lambda message: message.model_dump(exclude_defaults=True),
                decode=lambda data, cls=cls: cls(**data),  # type: ignore[misc] # one a class
            )
        )
    node, tag = attrgetter("node", "arg"), "langgraph.send.v1"
    send = ValueType(cls=Send, tag=tag, encode=node, decode=lambda pair: Send(*pair))
    value_types.register(send)


_register()
