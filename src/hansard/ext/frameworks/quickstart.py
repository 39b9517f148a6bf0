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

MAILS = "mails.txt"
"""File with a line for each mail that was sent."""

CALLED_S, ENDED_S = 60.0, 120.0
"""Longest time until the agent asks its model after the mail, and until it ends, in seconds."""

ANSWERS = Path(__file__).with_name("agents") / "answers.json"
"""The answers of the script's model, by the end of a request's path: one has the agent send a mail,
the other one follows the mail.
"""

DONE = "The mail is sent."
"""The last answer there."""

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
        for end, answers in json.loads(ANSWERS.read_text("utf-8")).items():
            if path.endswith(end):
                answer: dict[str, Any] = answers[is_after_mail]
                named = {"model", "modelVersion"} & answer.keys()
                return answer | dict.fromkeys(named, body.get("model", ""))
        raise BadValue("path", path, f"{ANSWERS} has no answer to it")


_RESULTS = ('"role": "tool"', '"tool_result"', '"function_call_output"', '"functionResponse"')
"""Marks of a tool's result in a request, for each interface."""


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
