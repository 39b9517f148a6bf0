"""A provider on this machine that answers as OpenAI's chat completions do, from answers written by
hand: whole, or as a stream of chunks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.integrations import hand_written


class _Handler(hand_written.Handler):
    def answer(self, request: dict[str, Any], content: Any) -> None:
        """Answer as `/v1/chat/completions`."""
        message = {"role": "assistant", "content": None, **content}
        number = len(self.of.asked)
        if request.get("stream"):
            events = [f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(message, number)]
            self.send("text/event-stream", "".join([*events, "data: [DONE]\n\n"]))
        else:
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason}
            whole = _envelope(number, "chat.completion") | {"choices": [choice], "usage": USAGE}
            self.send("application/json", json.dumps(whole))


class Provider(hand_written.Provider):
    """As its base, with answers of OpenAI's form."""

    handler = _Handler


USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 4,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 5},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


def _envelope(number: int, kind: str) -> dict[str, Any]:
    id_ = f"chatcmpl-hand-{number}"
    return {"id": id_, "object": kind, "created": 1, "model": "hand-written"}


def _chunks(message: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    envelope = _envelope(number, "chat.completion.chunk")
    words = (message["content"] or "").split(" ")
    deltas: list[dict[str, Any]] = [
        {"content": word if at == 0 else f" {word}"} for at, word in enumerate(words) if word
    ]
    for at, each in enumerate(message.get("tool_calls", ())):
        deltas.append({"tool_calls": [{"index": at, **each}]})
    for delta in [{"role": "assistant", "content": ""}, *deltas]:
        yield envelope | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    yield envelope | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    yield envelope | {"choices": [], "usage": USAGE}


def text(content: str) -> dict[str, Any]:
    """Return an answer of text."""
    return {"content": content}


def calls(*tools: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """Return an answer that calls tools."""
    return {
        "tool_calls": [
            {
                "id": f"call_{name}_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(tools)
        ]
    }
