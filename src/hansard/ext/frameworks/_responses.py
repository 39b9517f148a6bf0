"""Responses of OpenAI's models, and events of their streams, as JSON and back.

A model may answer with more or fewer fields than its SDK's types have, so nothing is validated: the
SDK's own constructors restore what they made of the provider's answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any, get_args

from agents import ModelResponse, Usage
from agents.items import TResponseOutputItem, TResponseStreamEvent
from openai import BaseModel
from pydantic import TypeAdapter

_USAGE = TypeAdapter(Usage)


def _members(union: Any) -> Iterator[type[BaseModel]]:
    if isinstance(union, type) and issubclass(union, BaseModel):
        yield union
    for each in get_args(union):
        yield from _members(each)


def _by_type(union: Any) -> dict[str, type[BaseModel]]:
    """Return the classes of a union by the values of their field `type`."""
    return {
        name: member
        for member in _members(union)
        for name in get_args(member.model_fields["type"].annotation)
    }


_EVENTS, _ITEMS = _by_type(TResponseStreamEvent), _by_type(TResponseOutputItem)


def plain(value: Any) -> Any:
    """Return an event or an item as JSON, with the fields that are set."""
    if isinstance(value, BaseModel):
        return value.to_dict(mode="json", use_api_names=False, warnings=False)
    return value


def event(value: dict[str, Any]) -> TResponseStreamEvent:
    """Restore an event."""
    return _EVENTS.get(value["type"], BaseModel).model_construct(**value)


def plain_response(response: ModelResponse) -> dict[str, Any]:
    """Return a response as JSON."""
    named = {each.name: getattr(response, each.name) for each in fields(response)}
    return {
        **named,
        "output": [plain(each) for each in response.output],
        "usage": _USAGE.dump_python(response.usage, mode="json", warnings=False),
    }


def response(value: dict[str, Any]) -> ModelResponse:
    """Restore a response."""
    output = [
        _ITEMS.get(each["type"], BaseModel).model_construct(**each) for each in value["output"]
    ]
    usage = _USAGE.validate_python(value["usage"])
    return ModelResponse(**{**value, "output": output, "usage": usage})
