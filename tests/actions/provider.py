"""A model's provider on this machine: it counts requests, and answers in wire form by a key.

The key is written by hand, and no model: no recording of such answers exists. The SDKs are the
real ones, and speak to it over HTTP.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Awaitable, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Key = Callable[[str], str]
"""A question to its answer."""

USAGE = {"input": 1_200, "output": 20}
"""Tokens of each answer, as in the wire form."""


class Provider:
    """A server that answers as OpenAI and Anthropic do; `requests` counts the requests."""

    def __init__(self, key: Key) -> None:
        self.requests = 0
        self.key = key
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                provider.requests += 1
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                choice = provider.key(request["messages"][-1]["content"])
                answer = (
                    _openais(choice) if "chat/completions" in self.path else _anthropics(choice)
                )
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextlib.contextmanager
    def serving(self) -> Iterator[Provider]:
        """Serve until the block ends."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def openai(self, session: Any) -> Callable[[str], Awaitable[str]]:
        """Return a model through OpenAI's SDK, whose usage is the session's."""
        import openai  # noqa: PLC0415 -- takes half a second, of each worker

        client = openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

        async def ask(question: str) -> str:
            completion = await client.chat.completions.create(
                model="gpt-4o", messages=[{"role": "user", "content": question}]
            )
            assert completion.usage is not None
            used = completion.usage.prompt_tokens, completion.usage.completion_tokens
            session.usage(input_tokens=used[0], output_tokens=used[1], cost=_cost(*used))
            return completion.choices[0].message.content or ""

        return ask

    def anthropic(self, session: Any) -> Callable[[str], Awaitable[str]]:
        """Return a model through Anthropic's SDK, whose usage is the session's."""
        import anthropic  # noqa: PLC0415 -- takes a second, of each worker

        client = anthropic.AsyncAnthropic(base_url=self.url, api_key="none", max_retries=0)

        async def ask(question: str) -> str:
            message = await client.messages.create(
                model="claude-sonnet-5",
                max_tokens=100,
                messages=[{"role": "user", "content": question}],
            )
            used = message.usage.input_tokens, message.usage.output_tokens
            session.usage(input_tokens=used[0], output_tokens=used[1], cost=_cost(*used))
            return "".join(each.text for each in message.content if each.type == "text")

        return ask


def _cost(input_tokens: int, output_tokens: int) -> float:
    """Return the cost in dollars, at 2.5 and 10 per million tokens."""
    return input_tokens * 2.5e-6 + output_tokens * 10e-6


def _openais(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o",
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {
            "prompt_tokens": USAGE["input"],
            "completion_tokens": USAGE["output"],
            "total_tokens": sum(USAGE.values()),
        },
    }


def _anthropics(text: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": USAGE["input"], "output_tokens": USAGE["output"]},
    }


ANSWER_COST = _cost(USAGE["input"], USAGE["output"])
"""Dollars of each answer."""

LINE = re.compile(r"(?P<id>\d+-\d+) <(?P<tag>[\w-]+)(?P<about>[^>]*)> ?(?P<says>.*)")


def read(question: str) -> tuple[str, list[dict[str, str]]]:
    """Return the request of a question, and the lines of the page."""
    [instruction] = re.findall(r"^Instruction: (.*)$", question, re.MULTILINE)
    lines = [match.groupdict() for match in LINE.finditer(question.partition("\nPage:\n")[2])]
    return instruction, lines
