"""A provider with the interface of Anthropic's messages; its answers are written by hand.

It calls the tool `Bash` with a command, and after the tool's result answers with a text.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ANSWER = "Done."


def _message(content: list[dict[str, Any]], stop: str, model: str) -> Iterator[dict[str, Any]]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    begun: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
    }
    begun |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(content):
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": stop, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def _reply(body: dict[str, Any], command: str) -> tuple[list[dict[str, Any]], str]:
    blocks = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    if not body.get("tools") or any(each.get("type") == "tool_result" for each in blocks):
        return [{"type": "text", "text": ANSWER}], "end_turn"
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": command}}
    return [call], "tool_use"


@contextlib.contextmanager
def provider(command: str) -> Iterator[tuple[str, list[str]]]:
    """Serve while the block runs; yield the URL, and the paths of the requests so far."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def do_POST(self) -> None:
            """Answer a request for a message."""
            requests.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            content, stop = _reply(body, command)
            events = _message(content, stop, body["model"])
            lines = (f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
            answer = "".join(lines).encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
