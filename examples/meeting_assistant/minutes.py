"""An assistant that writes minutes and learns from corrections, from its first week to its third
month.

    python minutes.py              thirteen meetings; completed work is not repeated

It uses Anthropic's SDK, with Anthropic's memory tool over `session.memory`: each instruction is
kept in AGENTS.md, recorded with its author, and is in the next week's system prompt. Its answers
are hand-written, and played in the provider's form by a server on this machine.
"""

import itertools
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
from anthropic.lib.tools import ToolError

import hansard
from hansard.ext.memory.anthropic_tool import MemoryTool

AGENT = "secretary"
MEETINGS = Path(__file__).with_name("meetings.json")
ANSWERS = Path(__file__).with_name("answers.json")
"""Each is written by hand, in the form of Anthropic's Messages API."""

INSTRUCTIONS = "You write the minutes of meetings. What you are told once holds from then on.\n\n"


def answered(
    session: hansard.Session,
    client: anthropic.Anthropic,
    system: str,
    messages: list[Any],
    why: str,
) -> str:
    """Let the model answer, and carry out its memory calls meanwhile."""
    tool = MemoryTool(session.memory, reason=why)

    @session.tool(effects="pure", kind="model")
    def ask(system: str, messages: list[Any]) -> dict[str, Any]:
        told = client.beta.messages.create(
            model="claude-opus-4-5",
            max_tokens=1_000,
            system=system,
            messages=messages,
            tools=[tool.to_dict()],
            betas=["context-management-2025-06-27"],
        )
        answer: dict[str, Any] = told.to_dict(mode="json")
        return answer

    while True:
        content = ask(system, messages)["content"]
        messages.append({"role": "assistant", "content": content})
        calls = [block for block in content if block["type"] == "tool_use"]
        if not calls:
            return "".join(block["text"] for block in content if block["type"] == "text")
        results = [result_of(tool, call) for call in calls]
        messages.append({"role": "user", "content": results})


def result_of(tool: MemoryTool, call: dict[str, Any]) -> dict[str, Any]:
    """Return the memory tool's result for a call; a refusal is returned, too."""
    result = {"type": "tool_result", "tool_use_id": call["id"]}
    try:
        return {**result, "content": str(tool.call(call["input"]))}
    except ToolError as refused:
        return {**result, "content": str(refused), "is_error": True}


def write_minutes(
    session: hansard.Session, client: anthropic.Anthropic, meeting: dict[str, Any]
) -> str:
    """Return the minutes of a meeting, after all comments on them."""
    system = INSTRUCTIONS + session.memory.prompt()
    asked = f"Week {meeting['week']}, {meeting['date']}. Write the minutes. {meeting['notes']}"
    messages: list[Any] = []
    minutes = ""
    for said in (asked, *meeting["corrections"]):
        session.message("user", said)
        messages.append({"role": "user", "content": said})
        minutes = answered(session, client, system, messages, said)
        session.message("assistant", minutes)
    return minutes


def meetings() -> list[dict[str, Any]]:
    """Return the meetings, in order."""
    found: list[dict[str, Any]] = json.loads(MEETINGS.read_text("utf-8"))
    return found


def work(record: hansard.Record, url: str) -> dict[str, str]:
    """Write the minutes of the meetings that have none, a run each; these minutes."""
    record.memory(f"agent/{AGENT}").set_policy("off", by="ann", reason="she corrects it herself")
    done = {run for run, life in record.runs() if life.status == "completed"}
    left = [each for each in meetings() if run_of(each) not in done]
    made: dict[str, str] = {}
    # Give neither to ask the real one: the SDK then takes ANTHROPIC_API_KEY.
    with anthropic.Anthropic(base_url=url, api_key="no key") as client:
        for meeting in left:
            run = run_of(meeting)
            with record.run("minutes", run=run, agent=AGENT, role="assistant") as session:
                made[run] = write_minutes(session, client, meeting)
    return made


def run_of(meeting: dict[str, Any]) -> str:
    """Return the id of a meeting's run."""
    return f"week-{meeting['week']:02}"


def main() -> None:
    """All of them, beside a provider that counts."""
    provider = Provider().start()
    with hansard.connect() as record:
        for run, minutes in work(record, provider.url).items():
            print(f"{run}\n{minutes}\n")
        print(f"{len(provider.asked)} answers were asked for\n")
        print(record.memory(f"agent/{AGENT}").view("AGENTS.md"), end="")
    provider.stop()


# Replacement of a provider, so that this runs anywhere.


class Provider:
    """A server on a free port of this machine that plays the hand-written answers.

    The answer follows from the request alone: the week in its first message, and the number of
    answers in it. So a client that repeats a request after a kill gets the same answer, and `asked`
    counts the calls that a real provider would charge for.
    """

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        """The requests that were answered, each with `week` and `turn`."""
        self.answers: dict[str, list[Any]] = json.loads(ANSWERS.read_text("utf-8"))
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("_OfThis", (_Handler,), {"of": self})
        )
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> "Provider":
        """Answer, in threads of its own."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def counts(self) -> Counter[tuple[str, int]]:
        """Return how often each answer was requested."""
        return Counter((request["week"], request["turn"]) for request in self.asked)

    def reply(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer."""
        messages = request["messages"]
        week = str(messages[0]["content"]).partition(",")[0]
        turn = sum(message["role"] == "assistant" for message in messages)
        if wrong := _wrong(messages):
            return 400, _error("invalid_request_error", wrong)
        if turn >= len(self.answers.get(week, ())):
            return 404, _error("not_found_error", f"no answer {turn + 1} of {week!r} is written")
        self.asked.append({"week": week, "turn": turn, **request})
        return 200, self.answers[week][turn]


class _Handler(BaseHTTPRequestHandler):
    of: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """`/v1/messages`, as the SDK asks for it."""
        body = self.rfile.read(int(self.headers["content-length"]))
        has_key = "x-api-key" in self.headers or "authorization" in self.headers
        if self.path.partition("?")[0] != "/v1/messages" or not has_key:
            status, answer = 404, _error("not_found_error", "ask for /v1/messages, with a key")
        else:
            status, answer = self.of.reply(json.loads(body))
        sent = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as its class has it
        """Log nothing: `asked` has it."""


def _wrong(messages: list[dict[str, Any]]) -> str:
    """Return an error that a real provider raises, too: a tool call without a result directly after
    it.
    """
    for before, after in itertools.pairwise(messages):
        called = _ids(before, "tool_use", "id")
        if called != _ids(after, "tool_result", "tool_use_id"):
            return f"each tool_use wants its tool_result in the next message: {called}"
    return ""


def _ids(message: dict[str, Any], kind: str, name: str) -> list[str]:
    content = message["content"]
    blocks = content if isinstance(content, list) else []
    return [block[name] for block in blocks if block["type"] == kind]


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


if __name__ == "__main__":
    main()
