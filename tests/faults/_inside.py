"""Tools of a program that is to be killed: the world, its own notes, and its stops.

The code under test is untouched: a stop is a tool body, or an event log around the real one, that
makes a file and then waits for ever. See `support` for the other side.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import msgspec

import hansard
from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.blocking import READ_BYTES
from hansard.bus.log import Append, EventLog, Stored

APPEND_LINE = Path(__file__).with_name("_append_line.py")


class Point(StrEnum):
    """A point at which a program stops and waits to be killed."""

    NOWHERE = ""
    BEFORE_INTENT = "before_intent"
    AFTER_INTENT = "after_intent"
    AFTER_EFFECT = "after_effect"
    BEFORE_RECEIPT = "before_receipt"
    AFTER_RECEIPT = "after_receipt"
    HALF_SENT_INTENT = "half_sent_intent"
    UNREAD_INTENT = "unread_intent"
    HALF_SENT_RECEIPT = "half_sent_receipt"
    UNREAD_RECEIPT = "unread_receipt"


HALF_SENT = (Point.HALF_SENT_INTENT, Point.HALF_SENT_RECEIPT)
"""Points inside the `send` of a thread that sends its commit itself: half of the bytes are out."""

UNREAD = (Point.UNREAD_INTENT, Point.UNREAD_RECEIPT)
"""Points between that `send` and its `recv`: the server's answer has arrived and is unread."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A program's input.

    `world` is a folder outside the broker's; `acks` and `marker` are files of this one process;
    `freeze` makes a stop one from which SIGCONT wakes it; `settings` holds the program's options.
    """

    workspace: str
    run: str
    world: str
    acks: str
    marker: str
    point: Point = Point.NOWHERE
    tool: str = ""
    freeze: bool = False
    settings: dict[str, Any] = {}


class Acked(msgspec.Struct, frozen=True):
    """A line of an `acks` file: a commit that was acknowledged, and the digest of its body."""

    position: int
    stream: str
    version: int
    commit: str
    sha256: str


def acked(stored: Stored) -> Acked:
    """Return a commit's line in the notes."""
    return Acked(
        stored.position,
        str(stored.stream),
        stored.commit.version,
        stored.commit.id,
        hashlib.sha256(stored.body).hexdigest(),
    )


def append_line(path: str | Path, line: bytes) -> None:
    """Append a line and have it on disk before this returns."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class World:
    """The world outside: effects are lines that other processes wrote."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def effect(self, tool: str, word: str, key: str | None = None) -> None:
        """Change the world, through a process that outlives this one being killed."""
        line = json.dumps({"tool": tool, "word": word, "key": key})
        subprocess.run(
            [sys.executable, "-I", "-S", str(APPEND_LINE), str(self._folder / "effects"), line],
            check=True,
        )

    def note(self, what: str, **fields: object) -> None:
        """Note something that is no effect: a body that ran, a question to a person."""
        append_line(self._folder / what, json.dumps(fields).encode())

    def read(self, what: str = "effects", **values: object) -> list[dict[str, Any]]:
        """Return the lines of a kind, in order, whose fields have the given values."""
        try:
            lines = (self._folder / what).read_text().splitlines()
        except FileNotFoundError:
            return []
        records: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [
            line for line in records if all(line[key] == value for key, value in values.items())
        ]


class Stops:
    """Stops this process for good at one point of one tool."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._went_on = False

    def stops_at(self, point: Point, tool: str) -> bool:
        """Return whether to stop here; False once the program went on from this stop."""
        return point is self._job.point and tool == self._job.tool and not self._went_on

    def reach(self) -> bool:
        """Tell who waits outside that the point is reached; True where work goes on after it."""
        Path(self._job.marker).touch()
        self._went_on = self._job.freeze
        if self._job.freeze:
            # To this thread: sent to the process, another thread may take it, and this one goes on.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        return self._job.freeze

    def here(self, point: Point, tool: str) -> None:
        """Stop in a tool's body, if this is where to."""
        if self.stops_at(point, tool) and not self.reach():
            threading.Event().wait()

    def hold(self, point: Point, tool: str) -> None:
        """Wait for ever if this is the stop; the log reports that it is reached."""
        if self.stops_at(point, tool) and not self._job.freeze:
            threading.Event().wait()


class Halting:
    """A real socket whose `send` stops before, within or after the bytes of a commit."""

    def __init__(self, real: socket.socket, stops: Stops, point: Point, tool: str) -> None:
        self._real = real
        self._stops = stops
        self._at = point, tool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sendall(self, data: bytes) -> None:
        """Send half of it, or wait for the answer to all of it; then stop for good."""
        if self._at[0] in HALF_SENT:
            self._real.sendall(data[: len(data) // 2])
        else:
            self._real.sendall(data)
            while b"MSG " not in self._real.recv(READ_BYTES, socket.MSG_PEEK):
                pass  # it may be a PING
        self._stops.here(*self._at)


class WatchedLog:
    """The real log; notes on disk what was acknowledged, and stops before or after an append."""

    def __init__(self, log: EventLog, job: Job, stops: Stops) -> None:
        self._log = log
        self._job = job
        self._stops = stops
        self._tools: dict[int, str] = {}
        self.here = 0
        """Commits that threads sent themselves."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Stored:
        """Append, watched."""
        [stored] = await self._watched([append], self._single)
        return stored

    def append_here(self, append: Append) -> Stored | None:
        """Append in the calling thread, watched where the log sends from this thread."""
        seen = self._steps(append)
        self._stop_here(seen, Point.BEFORE_INTENT, Point.BEFORE_RECEIPT)
        assert isinstance(self._log, JetStreamLog)
        self._halt_inside(seen, self._log)
        stored = self._log.append_here(append)
        if stored is not None:
            self.here += 1
            append_line(self._job.acks, msgspec.json.encode(acked(stored)))
            self._stop_here(seen, Point.AFTER_INTENT, Point.AFTER_RECEIPT)
        return stored

    async def append_again(self, append: Append, tried_s: float) -> Stored:
        """Append again after an unknown outcome, and note it."""
        assert isinstance(self._log, JetStreamLog)
        stored = await self._log.append_again(append, tried_s)
        append_line(self._job.acks, msgspec.json.encode(acked(stored)))
        return stored

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append several, watched."""
        return await self._watched(appends, self._log.append_all)

    async def _single(self, appends: Sequence[Append]) -> list[Stored]:
        return [await self._log.append(append) for append in appends]

    async def _watched(
        self, appends: Sequence[Append], work: Callable[[Sequence[Append]], Any]
    ) -> list[Stored]:
        seen = [pair for append in appends for pair in self._steps(append)]
        await self._stop(seen, Point.BEFORE_INTENT, Point.BEFORE_RECEIPT)
        stored: list[Stored] = await work(appends)
        for each in stored:
            append_line(self._job.acks, msgspec.json.encode(acked(each)))
        await self._stop(seen, Point.AFTER_INTENT, Point.AFTER_RECEIPT)
        return stored

    def _steps(self, append: Append) -> list[tuple[str, str]]:
        """(event type, tool) of each intent and receipt in a commit."""
        calls: list[tuple[str, str]] = []
        for event in append.commit.events:
            if event.type == "step.requested.v1":
                data = msgspec.json.decode(event.data)
                self._tools[data["step"]] = data["tool"]
                calls.append((event.type, data["tool"]))
            elif event.type == "step.completed.v1":
                step = msgspec.json.decode(event.data)["step"]
                calls.append((event.type, self._tools.get(step, "")))
        return calls

    def _stop_here(self, seen: list[tuple[str, str]], intent: Point, receipt: Point) -> None:
        for kind, tool in seen:
            self._stops.here(intent if kind == "step.requested.v1" else receipt, tool)

    def _halt_inside(self, seen: list[tuple[str, str]], log: JetStreamLog) -> None:
        """Have the socket stop, if that is where to."""
        for kind, tool in seen:
            for point in (*HALF_SENT, *UNREAD):
                intent = point in (Point.HALF_SENT_INTENT, Point.UNREAD_INTENT)
                if intent == (kind == "step.requested.v1") and self._stops.stops_at(point, tool):
                    real = log._blocking._socket
                    assert real is not None
                    log._blocking._socket = cast("Any", Halting(real, self._stops, point, tool))

    async def _stop(self, seen: list[tuple[str, str]], intent: Point, receipt: Point) -> None:
        for kind, tool in seen:
            point = intent if kind == "step.requested.v1" else receipt
            if self._stops.stops_at(point, tool) and not self._stops.reach():
                await asyncio.Event().wait()


class Inside:
    """Argument of a program's `main`."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.world = World(job.world)
        self.stops = Stops(job)

    def connect(self, **more: Any) -> hansard.Record:
        """Connect to the workspace with a watched log; the environment names the broker."""
        record = hansard.connect(workspace=self.job.workspace, **more)
        self.log = WatchedLog(record.workspace.log, self.job, self.stops)
        record.workspace.log = self.log
        return record

    def until_here(self, session: hansard.Session) -> None:
        """Write until this thread sends what it writes itself."""
        while not self.log.here:
            session.checkpoint("here")


def run_program(main: Callable[[Inside], Any]) -> None:
    """Run a program and print its report as one line of JSON."""
    inside = Inside(msgspec.json.decode(sys.argv[1], type=Job))
    report: dict[str, Any] = {"results": None, "error": "", "message": "", "step": 0}
    try:
        report["results"] = main(inside)
    except (hansard.HansardError, KeyboardInterrupt, OSError) as error:
        report["error"] = type(error).__name__
        report["message"] = str(error)
        if isinstance(error, hansard.errors.NeedsSettling):
            report["step"] = error.step.number
    print(json.dumps(report), flush=True)  # noqa: T201 -- its parent reads this
