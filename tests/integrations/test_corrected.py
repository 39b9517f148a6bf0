"""A model that writes an invalid file to memory through the real anthropic SDK: it gets it right by
what it is told, or is told to ask. The model's answers are written by hand, in the wire form of
anthropic's API, and served on this machine.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.integrations.packages import imported

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _packages() -> None:
    imported("anthropic")


PATH = "/memories/skills/pay/SKILL.md"
RIGHT = "---\nname: pay\ndescription: How bills are paid.\n---\nBy card.\n"

MENDED = {
    "": "Bills are paid by card.\n",
    "frontmatter.missing": "---\nname: Pay\ndescription: How bills are paid.\n---\nBy card.\n",
    "skill.name.case": RIGHT,
}
"""What the model writes, by the rule that it was told of last."""

Results = list[dict[str, Any]]
"""What the tool said until now, the oldest first."""

Model = Callable[[Results], dict[str, Any]]
"""Gives the one block of its next answer."""


@contextmanager
def served(model: Model) -> Iterator[tuple[str, list[Any], Results]]:
    """A server that answers as anthropic's does; its address, the requests that it had, and what
    the tool said in them.
    """
    asked: list[dict[str, Any]] = []
    told: Results = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(given)
            last = given["messages"][-1]["content"]
            told.extend(each for each in last if not isinstance(each, str))
            block = model(told)
            answer = {
                "id": f"msg_{len(asked)}",
                "type": "message",
                "role": "assistant",
                "model": given["model"],
                "content": [block],
                "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    worker = threading.Thread(target=server.serve_forever)
    worker.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked, told
    finally:
        server.shutdown()
        worker.join()
        server.server_close()


def created(number: int, text: str) -> dict[str, Any]:
    """A call of the memory tool, as a model makes it."""
    given = {"command": "create", "path": PATH, "file_text": text}
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "memory", "input": given}


def conversation(record, model: Model) -> tuple[str, Results]:
    """What the model said last, and what the tool had told it."""
    import anthropic  # noqa: PLC0415 -- takes a second

    from hansard.integrations.memory.anthropic_tool_sync import (  # noqa: PLC0415 -- it imports anthropic
        MemoryTool,
    )

    record.memory("agent/writer").set_policy("off", by="ann", because="a test")
    with (
        served(model) as (url, asked, told),
        record.run("w", agent="writer", run="r") as session,
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client,
    ):
        runner = client.beta.messages.tool_runner(
            max_tokens=1_000,
            model="claude-scripted",
            messages=[{"role": "user", "content": "Remember how bills are paid."}],
            tools=[MemoryTool(session.memory, because="told so")],
        )
        last = runner.until_done()
    assert asked[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
    [said] = last.content
    assert said.type == "text"
    return said.text, told


def test_a_model_that_writes_an_invalid_skill_gets_it_right_within_three(record):
    """By path, line, rule and what is allowed, which the tool's result has."""

    def model(told: Results) -> dict[str, Any]:
        if told and not told[-1].get("is_error"):
            return {"type": "text", "text": "Remembered."}
        said = json.dumps(told[-1]) if told else ""
        [rule] = [each for each in MENDED if each and each in said] or [""]
        return created(len(told), MENDED[rule])

    said, told = conversation(record, model)
    assert (said, len(told)) == ("Remembered.", 3)
    assert "skills/pay/SKILL.md:1: frontmatter.missing" in str(told[0])
    assert "skills/pay/SKILL.md:2: skill.name.case" in str(told[1])
    assert "ask the user" not in str(told)
    space = record.memory("agent/writer")
    assert space.view("skills/pay/SKILL.md") == RIGHT
    assert len(space.history()) == 1
    refused = record.sql("SELECT count(DISTINCT position), list(rule) FROM memory_rejections").rows
    assert refused[0][0] == 2
    assert {"frontmatter.missing", "skill.name.case"} <= set(refused[0][1])


def test_a_model_that_gets_it_wrong_three_times_is_told_to_ask(record):
    """From the third refusal in a row on; nothing of it is committed."""

    def model(told: Results) -> dict[str, Any]:
        if told and "ask the user" in str(told[-1]):
            return {"type": "text", "text": "How are bills paid?"}
        return created(len(told), f"Wrong {len(told)}.\n")

    said, told = conversation(record, model)
    assert (said, len(told)) == ("How are bills paid?", 3)
    assert all(each["is_error"] for each in told)
    assert ["ask the user" in str(each) for each in told] == [False, False, True]
    assert record.memory("agent/writer").entries() == []
