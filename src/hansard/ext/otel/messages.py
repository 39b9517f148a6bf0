"""Messages of a span's attributes in one chat form, whichever convention or framework wrote them.

A message has a `role` (system, user, assistant, tool), a `content` (a text, or a list of parts),
`tool_calls` with `id`, `name` and `arguments` (JSON text), and `tool_call_id`; other fields of the
source are left out of it. The names `human`, `ai` and `model` are read as user and assistant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hansard.ext.importers.chat import text_of
from hansard.ext.otel import aliases
from hansard.ext.otel.spans import Mark, decoded, decoded_as

Chat = dict[str, Any]
"""A message in the chat form."""

ROLES = {"human": "user", "ai": "assistant", "model": "assistant", "function": "tool"}
"""Roles of frameworks, by which name they are read."""

_RESULTS = ("tool_call_response", "tool_result", "tool-result", "function_result")
_CALLS = ("tool_call", "tool_use", "tool-call", "function_call")
_IDS = ("call_id", "id", "tool_use_id", "toolCallId")
"""Names of the id of a call in a part."""


def inputs(attributes: Mapping[str, Any], events: Iterable[Mark] = ()) -> list[Chat]:
    """Return the messages that a model was given."""
    system = messages(aliases.read(attributes, "system_instructions"), "system")
    stated = messages(aliases.read(attributes, "input_messages"), "user")
    if not stated:
        stated = [each for each, out in _of_events(attributes, events) if not out]
    if not stated:
        stated = messages(aliases.read(attributes, "input"), "user")
    same = stated[: len(system)] == system
    return stated if same else [*system, *stated]


def outputs(attributes: Mapping[str, Any], events: Iterable[Mark] = ()) -> list[Chat]:
    """Return the messages that a model answered with."""
    stated = messages(aliases.read(attributes, "output_messages"), "assistant")
    if stated:
        return stated
    from_events = [each for each, out in _of_events(attributes, events) if out]
    if from_events:
        return from_events
    text, calls = aliases.read(attributes, "output_text"), aliases.read(attributes, "output_calls")
    if text is not None or calls is not None:
        built: Chat = {"role": "assistant", "content": text if text is not None else ""}
        listed = messages(calls, "assistant")
        if listed:
            built["tool_calls"] = [call for each in listed for call in each.get("tool_calls", ())]
        return [built]
    return messages(aliases.read(attributes, "output"), "assistant")


def definitions(attributes: Mapping[str, Any]) -> list[Any]:
    """Return the definitions of the tools that a model was offered, as they were written."""
    listed = decoded_as(list, aliases.read(attributes, "tools"))
    sent = decoded_as(list, aliases.read(attributes, "input_messages"))
    built = [decoded(_unwrapped(each)) for each in listed]
    return built + [each["content"] for each in sent if _is_definition(each)]


def _unwrapped(each: Any) -> Any:
    """Return a definition of OpenInference without its wrapping."""
    inner = each.get("tool") if isinstance(each, dict) else None
    return inner.get("json_schema", inner) if isinstance(inner, dict) else each


def _of_events(attributes: Mapping[str, Any], events: Iterable[Mark]) -> list[tuple[Chat, bool]]:
    """Return the messages of events, each with whether it is the model's own.

    The conventions up to 1.36 had an event, or a log record, for each message; since 1.37 one event
    has the attributes of the whole operation.
    """
    built: list[tuple[Chat, bool]] = []
    listed = decoded_as(list, aliases.read(attributes, "message_events"))
    raws = [each for each in listed if isinstance(each, dict)]
    for mark in events:
        body = mark.body if isinstance(mark.body, dict) else {}
        raws.append({**mark.attributes, **body, "event.name": mark.name})
    for raw in raws:
        name = str(raw.get("event.name", ""))
        if name == "gen_ai.choice":
            inner = decoded_as(dict, raw.get("message")) or raw
            built += [(each, True) for each in messages([{"role": "assistant", **inner}])]
        elif name.startswith("gen_ai.") and name.endswith(".message"):
            role = name.split(".")[1]
            body = {key: value for key, value in raw.items() if not key.startswith("gen_ai.")}
            built += [(each, False) for each in messages([{"role": role, **body}])]
        elif name in ("gen_ai.client.inference.operation.details", "gen_ai.content.prompt"):
            built += [(each, False) for each in messages(raw.get("gen_ai.input.messages"))]
            built += [(each, True) for each in messages(raw.get("gen_ai.output.messages"))]
            built += [(each, False) for each in messages(raw.get("gen_ai.prompt"))]
        elif name == "gen_ai.content.completion":
            built += [(each, True) for each in messages(raw.get("gen_ai.completion"), "assistant")]
    return built


def messages(value: Any, role: str = "user") -> list[Chat]:
    """Return the messages in a value: a text, a message, a list, or a request or response.

    Args:
        value: The value, or JSON text of it.
        role: The role of a message that states none.
    """
    value = decoded(value)
    if value is None or value == "":
        return []
    if isinstance(value, list):
        if len(value) == 1 and isinstance(value[0], list):  # a batch of one, as in LangChain
            value = value[0]
        if value and all(isinstance(each, dict) and "toolName" in each for each in value):
            return [{"role": role, "content": "", "tool_calls": [_call(each) for each in value]}]
        if value and all(_is_part(each) for each in value):
            return _message({"role": role, "parts": value}, role)
        return [each for raw in value for each in _entry(raw, role)]
    if isinstance(value, dict):
        return _of_object(value, role)
    return [{"role": role, "content": text_of(value)}]


def _entry(raw: Any, role: str) -> list[Chat]:
    raw = decoded(raw) if isinstance(raw, str) and raw[:1] == "{" else raw
    if isinstance(raw, dict):
        inner = raw.get("message")
        return _message(inner if isinstance(inner, dict) else raw, role)
    return [{"role": role, "content": text_of(raw)}]


def _of_object(value: dict[str, Any], role: str) -> list[Chat]:
    """Return the messages of a request or a response of a model's API, or of one message."""
    if isinstance(value.get("choices"), list):
        return messages([each for each in value["choices"] if isinstance(each, dict)], "assistant")
    if isinstance(value.get("contents"), list):
        stated = value.get("config")
        config = stated if isinstance(stated, dict) else value
        system = config.get("system_instruction") or config.get("systemInstruction")
        return [*messages(system, "system"), *messages(value["contents"], role)]
    if isinstance(value.get("messages"), list):
        system = value.get("system")
        return [*messages(system, "system"), *messages(value["messages"], role)]
    for name in ("content", "new_message", "message"):
        if isinstance(value.get(name), dict):
            return _message(value[name], role)
    if "prompt" in value and "role" not in value:
        return [*messages(value.get("system"), "system"), *messages(value["prompt"], role)]
    if "role" in value or "parts" in value or "content" in value or "tool_calls" in value:
        return _message(value, role)
    return [{"role": role, "content": text_of(value)}]


def _is_part(raw: Any) -> bool:
    return (
        isinstance(raw, dict)
        and isinstance(raw.get("type"), str)
        and "role" not in raw
        and ("content" in raw or "text" in raw or raw["type"] in (*_CALLS, *_RESULTS))
        and raw["type"] not in ROLES
        and raw["type"] not in ("system", "tool")
    )


def _is_definition(raw: Any) -> bool:
    """Return whether an entry is the definition of a tool, which LangChain's callback adds."""
    content = raw.get("content") if isinstance(raw, dict) else None
    return (
        isinstance(content, dict)
        and raw.get("role") == "tool"
        and isinstance(content.get("function"), dict)
        and "parameters" in content["function"]
    )


def _message(raw: dict[str, Any], role: str) -> list[Chat]:
    """Return a message; one whose parts are results of tools is a message for each of them."""
    if _is_definition(raw):
        return []
    stated = raw.get("role") or (raw.get("type") if raw.get("type") in (*ROLES, "tool") else None)
    name = str(stated or role)
    built: Chat = {"role": ROLES.get(name, name)}
    content = raw.get("parts", raw.get("contents", raw.get("content")))
    results: list[Chat] = []
    calls = _calls(raw)
    if isinstance(content, list):
        kept: list[Any] = []
        for part in content:
            _part(part, kept, calls, results)
        content = _joined(kept)
    elif isinstance(content, dict):
        content = text_of(content)
    if content is not None:
        built["content"] = content
    elif "text" in raw and isinstance(raw["text"], str):
        built["content"] = raw["text"]
    if calls:
        built["tool_calls"] = calls
        built.setdefault("content", "")
    answers = raw.get("tool_call_id") or (raw.get("id") if built["role"] == "tool" else None)
    if answers and built["role"] == "tool":
        built["tool_call_id"] = str(answers)
    if results and content in (None, [], ""):
        return results
    built.setdefault("content", "")
    return [built, *results]


def _calls(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls in the fields of a message."""
    more = raw.get("additional_kwargs")
    listed = raw.get("tool_calls") or (more.get("tool_calls") if isinstance(more, dict) else None)
    return [_call(each) for each in decoded_as(list, listed) if isinstance(each, dict)]


def _call(raw: dict[str, Any]) -> dict[str, Any]:
    inner = raw.get("tool_call") or raw.get("function") or raw.get("functionCall")
    inner = inner if isinstance(inner, dict) else raw
    inner = inner["function"] if isinstance(inner.get("function"), dict) else inner
    names = ("arguments", "args", "input")
    arguments = next((inner[name] for name in names if name in inner), None)
    call_id = next((raw[name] for name in _IDS if raw.get(name)), None) or inner.get("id")
    outer = raw.get("tool_call")
    if isinstance(outer, dict):
        call_id = outer.get("id") or call_id
    name = inner.get("name") or inner.get("toolName")
    built = {"id": str(call_id)} if call_id else {}
    text = text_of(arguments if isinstance(arguments, str) else arguments or {})
    return {**built, "name": str(name or "tool"), "arguments": text}


def _part(raw: Any, kept: list[Any], calls: list[dict[str, Any]], results: list[Chat]) -> None:
    """Sort a part of a message: content, a call, or a result."""
    if not isinstance(raw, dict):
        kept.append(text_of(raw))
        return
    raw = raw["message_content"] if isinstance(raw.get("message_content"), dict) else raw
    kind = raw.get("type")
    call = raw.get("function_call") or raw.get("functionCall")
    response = raw.get("function_response") or raw.get("functionResponse")
    if kind in _CALLS:
        calls.append(_call(raw))
    elif isinstance(call, dict):
        calls.append(_call(call))
    elif isinstance(response, dict):
        results.append({"role": "tool", "content": text_of(response.get("response", response))})
    elif kind in _RESULTS:
        names = ("response", "result", "output", "content")
        value = next((raw[name] for name in names if name in raw), None)
        answers = next((raw[name] for name in _IDS if raw.get(name)), None)
        result = {"role": "tool", "content": text_of(value)}
        results.append({**result, **({"tool_call_id": str(answers)} if answers else {})})
    elif isinstance(raw.get("text"), str) and kind in (None, "text", "input_text", "output_text"):
        kept.append(raw["text"])
    elif kind == "text" and isinstance(raw.get("content"), str):
        kept.append(raw["content"])
    else:
        kept.append(raw)


def _joined(kept: list[Any]) -> Any:
    """Return the content of parts: the text if there is one alone, else the list of parts."""
    if not kept:
        return None
    if len(kept) == 1 and isinstance(kept[0], str):
        return kept[0]
    return [{"type": "text", "text": each} if isinstance(each, str) else each for each in kept]


def parts(message: Chat) -> dict[str, Any]:
    """Return a message in the form of `gen_ai.input.messages` (since 1.37)."""
    content = message.get("content")
    built: list[Any] = []
    if message.get("role") == "tool" and message.get("tool_call_id"):
        answer = {"type": "tool_call_response", "id": message["tool_call_id"], "response": content}
        return {"role": "tool", "parts": [answer]}
    for each in content if isinstance(content, list) else [content]:
        if isinstance(each, dict) and each.get("type") == "text" and "text" in each:
            built.append({"type": "text", "content": each["text"]})
        elif isinstance(each, dict):
            built.append(each)
        elif each not in (None, ""):
            built.append({"type": "text", "content": text_of(each)})
    for call in message.get("tool_calls") or ():
        read = _call(call)
        arguments = decoded(read["arguments"])
        built.append({"type": "tool_call", **read, "arguments": arguments})
    return {"role": str(message.get("role", "user")), "parts": built}
