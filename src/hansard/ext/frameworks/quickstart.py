"""`hansard quickstart`: an agent of a framework, killed in the middle with and without Hansard.

The agent's model is a script on this machine: a server with the interfaces of OpenAI and Anthropic,
which the SDKs reach by their base-URL variables. It has the agent send one mail. At the next
request, the agent's process is killed, and then started again.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from hansard.domain.choices import nearest
from hansard.domain.errors import BadValue, CallerError

TO, TEXT = "ada@example.org", "Your order has arrived."
"""The mail that the model has the agent send."""

MAILS = "mails.txt"
"""File with a line for each mail that was sent."""

CALLED_S, ENDED_S = 60.0, 120.0
"""Longest time until the agent asks its model after the mail, and until it ends, in seconds."""

AGENTS = Path(__file__).with_name("agents")
"""Folder with the agents: a line that begins with `+` is only in the version with Hansard, one with
`-` only in the version without.
"""


class Framework(msgspec.Struct, frozen=True):
    """A framework, by the name that the command takes, and the package that it needs."""

    name: str
    package: str

    @property
    def version(self) -> str | None:
        """The installed version; None if it is not installed."""
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(self.package)
        return None

    @property
    def agent(self) -> str:
        """The agent's lines, in both versions."""
        return (AGENTS / f"{self.name}.diff").read_text(encoding="utf-8")

    def source(self, *, recorded: bool) -> str:
        """Return the agent's source, with Hansard or without."""
        left_out = "-" if recorded else "+"
        lines = [line for line in self.agent.splitlines() if line[:1] != left_out]
        return "".join(f"{line[1:]}\n" for line in lines)

    @property
    def difference(self) -> list[str]:
        """The lines that the two versions do not share."""
        return [line for line in self.agent.splitlines() if line[:1] in ("+", "-") and line[1:]]


_PACKAGES = {
    "adk": "google-adk",
    "agent-framework": "agent-framework-openai",
    "openai": "openai",
    "anthropic": "anthropic",
    "langchain": "langchain-openai",
    "openai-agents": "openai-agents",
    "pydantic-ai": "pydantic-ai-slim",
}

FRAMEWORKS = {name: Framework(name, package) for name, package in _PACKAGES.items()}
"""Frameworks by the name that the command takes."""


class Trial(msgspec.Struct, frozen=True):
    """An agent that was killed after its mail and started again.

    Attributes:
        agent: The agent's file.
        mails: The mails that were sent.
        requests: The requests to the model, over both starts.
        answer: The output of the second start.
    """

    agent: str
    mails: int
    requests: int
    answer: str


class Quickstart(msgspec.Struct, frozen=True):
    """A framework's agent with and without Hansard."""

    framework: str
    version: str
    folder: str
    data_dir: str
    difference: list[str]
    without: Trial
    recorded: Trial


def framework(name: str) -> tuple[Framework, str]:
    """Return an installed framework and its version. Raises BadValue, CallerError."""
    known = FRAMEWORKS.get(name)
    if known is None:
        remedy = f"{nearest(name, FRAMEWORKS)}the frameworks are {', '.join(FRAMEWORKS)}"
        raise BadValue("FRAMEWORK", f"{name!r:.80} is not known", remedy)
    if known.version is None:
        message = f"{known.package} is not installed: pip install {known.package}"
        raise CallerError(message)
    return known, known.version


def quickstart(name: str, folder: Path) -> Quickstart:
    """Write both agents of a framework to a folder, run them, and return what they did.

    Raises BadValue, and CallerError without the framework, or if an agent fails by itself.
    """
    known, version = framework(name)
    trials = []
    for part, recorded in (("without", False), ("recorded", True)):
        place = folder / part
        place.mkdir(parents=True, exist_ok=True)
        if any(place.iterdir()):
            raise BadValue("--dir", f"{place} is not empty", "name another folder, or remove it")
        (place / "agent.py").write_text(known.source(recorded=recorded), encoding="utf-8")
        trials.append(_trial(place, folder / "record"))
    return Quickstart(
        framework=name,
        version=version,
        folder=str(folder),
        data_dir=str(folder / "record"),
        difference=known.difference,
        without=trials[0],
        recorded=trials[1],
    )


def _trial(folder: Path, data_dir: Path) -> Trial:
    with _model() as model:
        values = model.environment | {"HANSARD_DATA_DIR": str(data_dir)}
        first = _start(folder, values)
        try:
            if not model.called_after_mail.wait(CALLED_S):
                why = "it did not ask its model after the mail"
                raise CallerError(f"{folder / 'agent.py'}: {why}: {_ended(first)}")
        finally:
            first.send_signal(signal.SIGKILL)
            first.communicate()
        model.answers.set()
        second = _start(folder, values)
        output = _ended(second)
        if second.returncode:
            raise CallerError(f"{folder / 'agent.py'} failed: {output}")
    mails = (folder / MAILS).read_text(encoding="utf-8").splitlines()
    return Trial(str(folder / "agent.py"), len(mails), model.requests, output)


def _start(folder: Path, values: Mapping[str, str]) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HANSARD_")}
    return subprocess.Popen(
        [sys.executable, "agent.py"],
        cwd=folder,
        env={**kept, **values},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _ended(process: subprocess.Popen[str]) -> str:
    """Wait for a process; return its output, or the last line of its errors if it failed."""
    try:
        output, errors = process.communicate(timeout=ENDED_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"it did not end within {ENDED_S:g} s"
    return (errors if process.returncode else output).strip().rpartition("\n")[2]


# The scripted model. It holds back its answer to the first request after the mail.


class _Model:
    def __init__(self, url: str) -> None:
        self.called_after_mail, self.answers = threading.Event(), threading.Event()
        self.requests = 0
        self.environment = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "ANTHROPIC_BASE_URL": url,
            "GOOGLE_GEMINI_BASE_URL": url,
            "OPENAI_API_KEY": "none-is-needed",
            "ANTHROPIC_API_KEY": "none-is-needed",
            "GOOGLE_API_KEY": "none-is-needed",
            "NO_PROXY": "127.0.0.1",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
        }

    def reply(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request, in the form of its interface."""
        self.requests += 1
        entries = json.dumps([body.get(field) for field in ("messages", "input", "contents")])
        is_after_mail = any(mark in entries for mark in _RESULTS)
        if is_after_mail and not self.answers.is_set():
            self.called_after_mail.set()
            self.answers.wait(CALLED_S)
        text = None if is_after_mail else json.dumps({"to": TO, "text": TEXT})
        for end, form in _FORMS.items():
            if path.endswith(end):
                return form(body.get("model", ""), text)
        raise BadValue("path", path, f"the script answers {', '.join(_FORMS)}")


_RESULTS = ('"role": "tool"', '"tool_result"', '"function_call_output"', '"functionResponse"')
"""Marks of a tool's result in a request, for each interface."""

DONE = "The mail is sent."


def _completion(model: str, arguments: str | None) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": DONE}
    if arguments is not None:
        function = {"name": "send_mail", "arguments": arguments}
        call = {"id": "call_1", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    reason = "stop" if arguments is None else "tool_calls"
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
    }


def _response(model: str, arguments: str | None) -> dict[str, Any]:
    text = {"type": "output_text", "text": DONE, "annotations": []}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text]}
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "send_mail"}
    item = message if arguments is None else call | {"arguments": arguments}
    tokens = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": model,
        "status": "completed",
        "output": [item | {"status": "completed"}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": tokens | details,
    }


def _message(model: str, arguments: str | None) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": DONE}
    if arguments is not None:
        block = {"type": "tool_use", "id": "toolu_1", "name": "send_mail"}
        block["input"] = json.loads(arguments)
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "end_turn" if arguments is None else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 20, "output_tokens": 5},
    }


def _content(model: str, arguments: str | None) -> dict[str, Any]:
    part: dict[str, Any] = {"text": DONE}
    if arguments is not None:
        part = {"functionCall": {"name": "send_mail", "args": json.loads(arguments)}}
    content = {"role": "model", "parts": [part]}
    return {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 5, "totalTokenCount": 25},
        "modelVersion": model,
    }


_FORMS = {
    "/chat/completions": _completion,
    "/responses": _response,
    "/messages": _message,
    ":generateContent": _content,
}


@contextlib.contextmanager
def _model() -> Iterator[_Model]:
    """Serve the scripted model on a free port of this machine while the block runs."""
    model: _Model

    class Handler(BaseHTTPRequestHandler):
        """Answers requests by the script."""

        def log_message(self, *_: object) -> None:
            """Log nothing."""

        def do_POST(self) -> None:
            """Answer a request."""
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = json.dumps(model.reply(self.path.partition("?")[0], body)).encode()
            with contextlib.suppress(ConnectionError):  # its client was killed
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model = _Model(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.answers.set()
        server.shutdown()
        thread.join()
        server.server_close()
