"""A provider on this machine that answers as Anthropic's does, from hand-written answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = Callable[[dict[str, Any], int], list[dict[str, Any]]]
"""Function from a request and its number of earlier answers to the answer's content."""


class Handler(BaseHTTPRequestHandler):
    """Answers any request by a provider's own answers."""

    of: Any
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer any request, and keep it."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.of.asked.append(request)
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        self.answer(request, self.of.answers(request, turn))

    def answer(self, request: dict[str, Any], content: Any) -> None:
        """Answer as `/v1/messages`."""
        del request
        calls = any(block["type"] == "tool_use" for block in content)
        answer = {
            "id": f"msg_hand_{len(self.of.asked)}",
            "type": "message",
            "role": "assistant",
            "model": "hand-written",
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 3},
        }
        self.send("application/json", json.dumps(answer))

    def send(self, kind: str, text: str) -> None:
        """Answer with a body."""
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as its class has it
        """Log nothing, since each request is kept."""


class Provider:
    """A server on a free port; it keeps every request."""

    handler: type[Handler] = Handler

    def __init__(self, answers: Callable[[dict[str, Any], int], Any]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers = answers
        of_this = type("_OfThis", (self.handler,), {"of": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), of_this)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


def text_block(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


def calls(name: str, **given: Any) -> dict[str, Any]:
    """Return a block that calls a tool."""
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": given}
