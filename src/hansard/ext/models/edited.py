"""Edited responses of providers: a JSON body, in the form in which its client expects it.

A person supplies the body of a response: as an edit of a fork, or to settle a call in doubt. A
client that asked for a stream gets it as server-sent events of its provider, in whole pieces. The
forms are those of the SDKs' own readers: openai 3.57, anthropic 2.14, google-genai 3.6. Pure.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from hansard.domain.errors import BadValue
from hansard.domain.steps import Step
from hansard.ext.models.providers import BY_NAME, Operation
from hansard.inspect.trace import recorded

ITEMS = ("head", "chunk", "end")
"""Keys of the items of a recorded exchange; a supplied value that is no such item is a body."""

Body = Mapping[str, Any]
Event = tuple[str, Any]
"""Name of a server-sent event, empty for none, and its data."""


class Query(Protocol):
    """The request that is answered."""

    @property
    def path(self) -> str:
        """Path and query at the provider."""
        ...

    @property
    def body(self) -> bytes:
        """The body as sent."""
        ...

    @property
    def operation(self) -> Operation | None:
        """The model call; None for another request."""
        ...


async def framed(
    items: AsyncGenerator[Any, None], query: Query
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the items of an exchange; a supplied body is yielded as one response."""
    body: list[Any] = []
    empty = True
    async with aclosing(items):
        async for item in items:
            empty = False
            if body or not _is_item(item):
                body.append(item)
            else:
                yield item
    if body or empty:
        for item in response(query, body[0] if len(body) == 1 else body):
            yield item


def _is_item(item: Any) -> bool:
    return isinstance(item, dict) and len(item) == 1 and next(iter(item)) in ITEMS


def response(query: Query, body: Any) -> Iterator[dict[str, Any]]:
    """Yield a body as the items of one response: its head, its pieces and its end.

    A text is sent as it is: server-sent events written by hand, for a client that streams.
    """
    events = _is_streamed(query)
    headers = [["content-type", "text/event-stream" if events else "application/json"]]
    if isinstance(body, str):
        pieces = [body]
    elif not events and query.operation is not None and query.operation.stream:
        pieces = [msgspec.json.encode(body if isinstance(body, list) else [body]).decode()]
    elif events:
        pieces = [_event_text(*each) for each in _events(query, body)]
    else:
        pieces = [msgspec.json.encode(body).decode()]
    size = sum(len(piece.encode()) for piece in pieces)
    if not events:
        headers.append(["content-length", str(size)])
    yield {"head": {"status": 200, "headers": headers}}
    for piece in pieces:
        yield {"chunk": {"data": piece, "ms": [0]}}
    yield {"end": {"how": "complete", "bytes": size, "ms": 0}}


def demand_body(name: str, step: Step, result: Any) -> None:
    """Raise BadValue for a result of a recorded model call that its client could not read."""
    arguments = recorded(step.arguments)
    is_call = isinstance(arguments, dict) and {"path", "identity"} <= arguments.keys()
    if step.kind != "model" or not is_call:
        return
    kind = step.tool.partition(".")[2]
    field = _SPLIT[kind][1] if kind in _SPLIT else ""
    shown = f"an object with {field!r}" if field else "an object"
    if isinstance(result, str):
        body = arguments.get("body")
        streams = "alt=sse" in arguments["path"] or not isinstance(body, dict) or body.get("stream")
        if streams and result.lstrip().startswith(("data:", "event:", ":")):
            return
        fact = f"{result!r:.80} is a text, and {step.tool} answers with JSON"
    else:
        parts = result if isinstance(result, list) and result else [result]
        if all(_is_item(each) or _is_body(each, field) for each in parts):
            return
        fact = f"{result!r:.80} is no answer of {step.tool}"
    remedy = f"give the JSON body of the provider's answer ({shown}), or its error"
    raise BadValue(f"result of {name}", fact, remedy)


def _is_body(value: Any, field: str) -> bool:
    """Return whether a value may be an answer: with its field, an error, or Google's refusal."""
    fields = {field, "error", "promptFeedback"}
    return isinstance(value, dict) and (not field or not fields.isdisjoint(value))


def _is_streamed(query: Query) -> bool:
    """Return whether a request asks for server-sent events."""
    if query.operation is not None and query.operation.stream:
        return "alt=sse" in query.path.partition("?")[2].split("&")
    try:
        body = msgspec.json.decode(query.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(body, dict) and body.get("stream") is True


def _event_text(name: str, data: Any) -> str:
    text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


def _events(query: Query, body: Any) -> Iterator[Event]:
    """Yield a body as its provider's events; one of another form, such as an error, as one."""
    operation = query.operation
    kind = operation.kind if operation is not None else ""
    split = _SPLIT.get(kind)
    if split is not None and isinstance(body, dict):
        form, field = split
        if field in body:
            yield from form(body)
            return
    yield "error" if isinstance(body, dict) and body.get("type") == "error" else "", body
    if operation is not None and BY_NAME[operation.provider].dialect == "openai":
        yield "", "[DONE]"


def _chat(body: Body) -> Iterator[Event]:
    """Yield a chat completion as chunks: the messages, the ends, the usage."""
    head = {k: v for k, v in body.items() if k not in ("choices", "usage", "object")}
    head["object"] = "chat.completion.chunk"
    for choice in body["choices"]:
        delta = dict(choice.get("message") or {})
        if delta.get("tool_calls"):
            delta["tool_calls"] = [
                {"index": index, **each} for index, each in enumerate(delta["tool_calls"])
            ]
        for part, reason in ((delta, None), ({}, choice.get("finish_reason") or "stop")):
            piece = {"index": choice.get("index", 0), "delta": part, "finish_reason": reason}
            yield "", {**head, "choices": [piece]}
    if body.get("usage") is not None:
        yield "", {**head, "choices": [], "usage": body["usage"]}
    yield "", "[DONE]"


def _completion(body: Body) -> Iterator[Event]:
    """Yield a legacy completion, whose chunks have its own form."""
    yield "", body
    yield "", "[DONE]"


def _responses(body: Body) -> Iterator[Event]:
    """Yield a response of OpenAI's Responses API as its events, numbered."""
    for number, data in enumerate(_response_events(body)):
        yield data["type"], {**data, "sequence_number": number}


_BARE: Mapping[str, dict[str, Any]] = {
    "message": {"content": []},
    "function_call": {"arguments": ""},
}
"""Fields of an item that its later events fill, by its type."""


def _response_events(body: Body) -> Iterator[dict[str, Any]]:
    status = body.get("status", "completed")
    begun = {**body, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(body["output"]):
        place = {"output_index": index, "item_id": item.get("id", "")}
        added = {**item, **_BARE.get(item.get("type", ""), {}), "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        for number, part in enumerate(item.get("content") or ()):
            yield from _part_events({**place, "content_index": number}, part)
        if item.get("type") == "function_call":
            kind, text = "response.function_call_arguments", item.get("arguments", "")
            yield {"type": f"{kind}.delta", **place, "delta": text}
            yield {"type": f"{kind}.done", **place, "name": item.get("name"), "arguments": text}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    end = "incomplete" if status == "incomplete" else "failed" if status == "failed" else ""
    yield {"type": f"response.{end or 'completed'}", "response": {**body, "status": status}}


def _part_events(place: dict[str, Any], part: Body) -> Iterator[dict[str, Any]]:
    """Yield the events of one part of a message."""
    texts = {"output_text": "text", "refusal": "refusal"}
    field = texts.get(part.get("type", ""), "")
    added = {**part, field: ""} if field else part
    yield {"type": "response.content_part.added", **place, "part": added}
    if field:
        kind = f"response.{part['type']}"
        more: dict[str, Any] = {"logprobs": []} if field == "text" else {}
        yield {"type": f"{kind}.delta", **place, "delta": part.get(field, ""), **more}
        yield {"type": f"{kind}.done", **place, field: part.get(field, ""), **more}
    yield {"type": "response.content_part.done", **place, "part": part}


_DELTAS: Mapping[str, Mapping[str, str]] = {
    "text": {"text": "text_delta"},
    "thinking": {"thinking": "thinking_delta", "signature": "signature_delta"},
}
"""Texts of a block of Anthropic's content, with the kind of their differences."""


def _messages(body: Body) -> Iterator[Event]:
    """Yield a message of Anthropic as its events."""
    used = {"input_tokens": 0, "output_tokens": 0, **(body.get("usage") or {})}
    begun = {**body, "content": [], "stop_reason": None, "stop_sequence": None, "usage": used}
    yield "message_start", {"type": "message_start", "message": begun}
    for index, block in enumerate(body["content"]):
        bare, deltas = dict(block), []
        for field, kind in _DELTAS.get(block.get("type", ""), {}).items():
            deltas.append({"type": kind, field: block.get(field, "")})
            bare[field] = ""
        if "input" in block:
            text = msgspec.json.encode(block["input"]).decode()
            deltas.append({"type": "input_json_delta", "partial_json": text})
            bare["input"] = {}
        place = {"index": index}
        start = {"type": "content_block_start", **place, "content_block": bare}
        yield "content_block_start", start
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", **place, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", **place}
    end = {"stop_reason": body.get("stop_reason"), "stop_sequence": body.get("stop_sequence")}
    last = {"type": "message_delta", "delta": end, "usage": used}
    yield "message_delta", last
    yield "message_stop", {"type": "message_stop"}


def _content(body: Body) -> Iterator[Event]:
    """Yield a response of Google's API, whose chunks have its own form."""
    yield "", body


_SPLIT: Mapping[str, tuple[Callable[[Body], Iterator[Event]], str]] = {
    "chat.completions": (_chat, "choices"),
    "completions": (_completion, "choices"),
    "responses": (_responses, "output"),
    "messages": (_messages, "content"),
    "generate_content": (_content, "candidates"),
}
"""Events of a body by the operation's kind, and the field that such a body has."""
