"""A provider on this machine that answers as OpenAI's chat completions do, from answers written by
hand: whole, or as a stream of chunks.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = Callable[[dict[str, Any], int], dict[str, Any]]
"""Returns the message that answers a request, by the request and its number of earlier answers."""


class Provider:
    """A server on a free port of the loopback interface; it keeps every request."""

    def __init__(self, answers: Answers) -> None:
        self.requests: list[dict[str, Any]] = []
        self.answers = answers
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("_OfThis", (_Handler,), {"of": self})
        )
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    of: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer any request as `/v1/chat/completions`."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.of.requests.append(request)
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        message = {"role": "assistant", "content": None, **self.of.answers(request, turn)}
        number = len(self.of.requests)
        if request.get("stream"):
            events = [f"data: {json.dumps(chunk)}\n\n" for chunk in _chunks(message, number)]
            self._send("text/event-stream", "".join([*events, "data: [DONE]\n\n"]))
        else:
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason}
            whole = _envelope(number, "chat.completion") | {"choices": [choice], "usage": USAGE}
            self._send("application/json", json.dumps(whole))

    def _send(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base's name
        """Log nothing, since each request is kept."""


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
