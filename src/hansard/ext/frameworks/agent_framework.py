"""Microsoft Agent Framework on the record: model calls and function tools are steps.

    agent = Agent(client, tools=[refund, look], middleware=recorded(pure=["look"]))
    async with hansard.AsyncSession("support"):
        response = await agent.run("Refund order 7")

The framework makes an error of a tool a result for the model. What stops a run of Hansard, such as
a call in doubt or a refusal, ends the agent's run as `MiddlewareFailure` instead. Outside a session
of Hansard, and inside the body of a tool, an agent runs unrecorded.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

try:
    from agent_framework import FunctionTool
except ModuleNotFoundError as error:
    from hansard.domain.errors import ExtraMissing

    raise ExtraMissing("recording agents", "agent-framework-core", "agent-framework") from error

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    MiddlewareFailure,
    ResponseStream,
)
from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from hansard.domain.errors import HansardError
from hansard.domain.steps import Effects
from hansard.ext.frameworks._sessions import effects_by_name, execute, report_usage, session_here
from hansard.ext.steps import AnySession, NamedTool, call_async, step

Next = Callable[[], Awaitable[None]]

CONTENTS = "contents"
"""Key of a tool's recorded result that is more than one text."""

_NOT_SENT = ("id", "message_id", "additional_properties", "raw_representation")
"""Fields of messages and contents that no provider gets, or that differ in each run."""


def recorded(
    *, pure: Iterable[str] = (), idempotent: Iterable[str] = (), composite: Iterable[str] = ()
) -> list[Any]:
    """Return the middleware that makes an agent's calls steps; put other middleware before it.

    Tools that are not listed are called once: if the process is killed during a call, a person or
    a policy decides whether it is repeated.

    Args:
        pure: Names of tools that change nothing.
        idempotent: Names of tools whose calls may be repeated.
        composite: Names of tools that make steps themselves, such as agents as tools.

    Raises BadValue for a tool that is listed twice.
    """
    return [_RecordedChats(), _RecordedFunctions(effects_by_name(pure, idempotent, composite))]


class _RecordedFunctions(FunctionMiddleware):
    """Makes calls of function tools steps."""

    def __init__(self, effects: Mapping[str, Effects]) -> None:
        self._effects = effects

    async def process(self, context: FunctionInvocationContext, call_next: Next) -> None:
        """Set the call's result, from the record or by the tool."""
        session = session_here()
        if session is None:
            await call_next()
            return

        async def run() -> Any:
            await call_next()
            return _recordable(context.result)

        name = context.function.name
        tool = step(name, run, effects=self._effects.get(name, Effects.ONCE))
        arguments = context.arguments
        if isinstance(arguments, BaseModel):
            arguments = arguments.model_dump()
        try:
            result = await execute(session, tool, _json(dict(arguments)))
        except HansardError as error:
            raise MiddlewareFailure(str(error)) from error
        context.result = _restored(result)


class _RecordedChats(ChatMiddleware):
    """Makes calls of the model steps."""

    async def process(self, context: ChatContext, call_next: Next) -> None:
        """Set the model's response, from the record or by the client."""
        session = session_here()
        if session is None:
            await call_next()
            return
        response_format = (context.options or {}).get("response_format")
        if context.stream:
            updates = _updates(session, context, call_next)
            finish = partial(ChatResponse.from_updates, output_format_type=response_format)
            context.result = ResponseStream(updates, finalizer=finish)
            return

        async def send() -> Any:
            await call_next()
            response = context.result
            assert isinstance(response, ChatResponse)  # noqa: S101 -- as it is no stream
            report_usage(session, response.usage_details)
            further = _json(response.additional_properties)  # which `to_dict` leaves out
            return {**response.to_dict(), **({"additional_properties": further} if further else {})}

        tool, arguments = _step(context, send)
        answer = await execute(session, tool, arguments)
        response: ChatResponse[Any] = ChatResponse.from_dict(answer)
        response._response_format = response_format  # noqa: SLF001 -- `from_dict` has no argument for it
        context.result = response


async def _updates(
    session: AnySession, context: ChatContext, call_next: Next
) -> AsyncIterator[ChatResponseUpdate]:
    """Yield the updates of a streamed response, from the record or by the client."""

    async def send() -> AsyncIterator[Any]:
        await call_next()
        stream = context.result
        assert isinstance(stream, ResponseStream)  # noqa: S101 -- as the client streams
        async for update in stream:
            for content in update.contents:
                if content.type == "usage":
                    report_usage(session, content.usage_details)
            yield update.to_dict()

    tool, arguments = _step(context, send)
    async for item in await call_async(session, tool, arguments):
        yield ChatResponseUpdate.from_dict(item)


def _step(context: ChatContext, send: Any) -> tuple[NamedTool, dict[str, Any]]:
    """Return a model call's step and its arguments."""
    options = dict(context.options or {})
    tools = options.pop("tools", None) or []
    client = context.client
    model = options.pop("model", None) or getattr(client, "model", None)
    arguments = {
        "model": str(model or type(client).__name__),
        "messages": [_sent(each.to_dict()) for each in context.messages],
        "tools": [_described(each) for each in tools],
        "options": {name: value for name, value in _json(options).items() if value is not None},
    }
    provider = getattr(client, "OTEL_PROVIDER_NAME", "unknown")
    named = f"{type(client).__name__ if provider == 'unknown' else provider}.chat"
    return step(named, send, kind="model", effects=Effects.IDEMPOTENT), arguments


def _sent(message: Any) -> Any:
    """Return a message without what its provider does not get."""
    if isinstance(message, list):
        return [_sent(each) for each in message]
    if not isinstance(message, dict):
        return message
    return {
        name: _sent(value) if name in (CONTENTS, "items") else _json(value)
        for name, value in message.items()
        if name not in _NOT_SENT
    }


def _described(tool: Any) -> Any:
    if isinstance(tool, FunctionTool):
        about = {"name": tool.name, "description": tool.description}
        parameters = _json(tool.parameters())
        parameters.pop("additionalProperties", None)  # OpenAI's client sets it in its first request
        return {**about, "parameters": parameters}
    return _json(tool)


def _json(value: Any) -> Any:
    return to_jsonable_python(
        value, bytes_mode="base64", fallback=lambda each: type(each).__qualname__
    )


def _recordable(result: Any) -> Any:
    """Return a tool's result for the record: a text as such."""
    if not isinstance(result, list) or not all(isinstance(each, Content) for each in result):
        return {CONTENTS: result.to_dict()} if isinstance(result, Content) else str(result)
    contents = [each.to_dict() for each in result]
    match contents:
        case [{"type": "text", "text": str() as text, **rest}] if not any(rest.values()):
            return text
        case _:
            return {CONTENTS: contents}


def _restored(result: Any) -> Any:
    """Return a recorded result, or one that a person supplied, as the framework takes it."""
    match result:
        case {"contents": list() as contents} if len(result) == 1:
            return [Content.from_dict(each) for each in contents]
        case {"contents": dict() as content} if len(result) == 1:
            return Content.from_dict(content)
        case _:
            return [Content.from_text(str(result))]
