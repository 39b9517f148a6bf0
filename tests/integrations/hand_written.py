"""A provider on this machine that answers as Anthropic's does, from hand-written answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = Callable[[dict[str, Any], int], list[dict[str, Any]]]
"""Function from a request and its number of earlier answers to the answer's content."""


class Provider:
    """A server on a free port; it keeps every request."""

    def __init__(self, answers: Answers) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers = answers
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("_OfThis", (_Handler,), {"of": self})
        )
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    of: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Any request, as `/v1/messages`."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.of.asked.append(request)
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        content = self.of.answers(request, turn)
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
        sent = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as its class has it
        """Log nothing, since each request is kept."""


def text_block(text: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": text}


def calls(name: str, **given: Any) -> dict[str, Any]:
    """Return a block that calls a tool."""
    return {"type": "tool_use", "id": f"toolu_{name}", "name": name, "input": given}
