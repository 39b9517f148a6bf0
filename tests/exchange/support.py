"""Runs of every kind, and exports and imports without the command line."""

import asyncio
import contextlib
import hashlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from tenacity import wait_none

import hansard
from hansard import settings
from hansard.agents.exchange.files import Bad, BadRecord, Tally
from hansard.agents.exchange.reader import import_events
from hansard.agents.exchange.writer import Exported
from hansard.agents.exchange.writer import export as write_out
from hansard.agents.workspace import Workspace
from hansard.bus import subjects
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import api
from hansard.bus.log import Stored
from hansard.client.opening import open_workspace
from hansard.domain.events import Recorded
from hansard.domain.ids import RunStream
from hansard.ext.importers.sources import EVENTS, hint_of
from tests.cli.planting import administer, commit, plant
from tests.cli.support import environment, make_runs

T = TypeVar("T")

SECRET = "sk-hunter2-hunter2"
LONG = "a name that no subject can hold " * 6


def in_workspace(home: Path, name: str, work: Callable[[Workspace], Coroutine[Any, Any, T]]) -> T:
    """Do something async with a workspace, which is made where it is missing."""

    async def run() -> T:
        opened = await open_workspace(settings.load(data_dir=home, workspace=name))
        try:
            return await work(opened)
        finally:
            await opened.close()

    return asyncio.run(run())


def log_of(home: Path, name: str) -> list[Stored]:
    """Return the whole log of a workspace."""

    async def read(opened: Workspace) -> list[Stored]:
        head = await opened.log.head()
        return [stored async for stored in opened.log.follow(0, until=head)]

    return in_workspace(home, name, read)


def places(home: Path, name: str) -> list[Any]:
    """Return a log without the times and positions at which it was stored."""
    return [(s.position, s.stream, s.body, s.origin) for s in log_of(home, name)]


def blob_messages(home: Path, name: str) -> int:
    """Return the number of messages that hold a workspace's blobs."""
    counts = []

    async def count(broker: Broker) -> None:
        info = await api(broker, f"STREAM.INFO.{subjects.blob_stream(name)}", {})
        counts.append(info["state"]["messages"])

    administer(home, count)
    return int(counts[0])


PEAK_BYTES_MAX = 100 * 1024 * 1024
"""Largest memory of a command that moves some 80 MB: half of it is Python and its imports."""

_MEASURED = """
import sys
from hansard.cli import main
try:
    main()
finally:
    with open("/proc/self/status") as file:
        print(next(line for line in file if line.startswith("VmHWM")), file=sys.stderr)
"""


class Measured(msgspec.Struct):
    """Output and peak memory of a command."""

    out: str
    messages: list[str]
    peak_bytes: int


def measured(home: Path, name: str, *arguments: object) -> Measured:
    """Run the command line as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, "-w", name, *map(str, arguments)],
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    *messages, peak = done.stderr.strip().splitlines()
    return Measured(done.stdout, messages, int(peak.split()[1]) * 1024)


class Reports:
    """A watcher that keeps each report."""

    def __init__(self, *, strict: bool = False) -> None:
        self.bads: list[Bad] = []
        self.bytes = 0
        self._strict = strict

    def read(self, count: int) -> None:
        """Count bytes."""
        self.bytes += count

    def bad(self, bad: Bad) -> None:
        """Keep a bad record."""
        self.bads.append(bad)
        if self._strict:
            raise BadRecord(bad)


class Brought(msgspec.Struct):
    """Result of an import."""

    tally: Tally
    bads: list[Bad]
    bytes: int


async def bring(opened: Workspace, path: Path) -> Brought:
    """Import a file into an open workspace."""
    reports = Reports()
    tally = await import_events(opened, path, reports, partial(hint_of, format_=EVENTS))
    return Brought(tally, reports.bads, reports.bytes)


def bring_in(home: Path, name: str, path: Path, data: bytes | None = None) -> Brought:
    """Import a file, written first where its bytes are given."""
    if data is not None:
        path.write_bytes(data)
    return in_workspace(home, name, lambda opened: bring(opened, path))


def taken_out(home: Path, name: str, *runs: str) -> tuple[bytes, Exported]:
    """Runs as an export has them."""
    out = io.BytesIO()
    result = in_workspace(home, name, lambda opened: write_out(opened, list(runs), out.write))
    return out.getvalue(), result


def exported(home: Path, name: str, *runs: str) -> bytes:
    """Return an export that lacks nothing."""
    data, result = taken_out(home, name, *runs)
    assert result.missing == []
    return data


def sealed(lines: Iterable[dict[str, Any] | bytes]) -> bytes:
    """Return an export of lines, with new digests, numbers and hash."""
    out = b""
    for number, line in enumerate(lines):
        fields = json.loads(line) if isinstance(line, bytes) else dict(line)
        fields.pop("digest", None)
        fields["n"] = number
        if fields["kind"] == "end":
            fields["sha256"] = hashlib.sha256(out).hexdigest()
        head = msgspec.json.encode(fields)[:-1]
        out += head + b',"digest":"%b"}\n' % hashlib.sha256(head).hexdigest()[:32].encode()
    return out


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """Return an export's lines."""
    return [json.loads(line) for line in data.splitlines()]


# ---------------------------------------------------------------- runs of every kind


class Zoo(msgspec.Struct):
    """The ids of runs by what is special about them."""

    runs: dict[str, str]


def zoo_of(home: Path) -> Zoo:
    """Make a run of every kind in the workspace `zoo`."""
    with hansard.connect("zoo", data_dir=home, redact={"key": SECRET}) as record:
        made = make_runs(record)
        runs = {
            "team": made.team,
            "failed": made.failed,
            "doubt": made.doubt,
            "settled": made.settled,
            "forked": made.forked,
            "fork of a fork": record.fork(made.forked, labels={"why": "once more"}),
            "bounded": bounded(record),
            "redacted": redacted(record),
            "long": long_names(record),
            "open": half(record),
            "talk 1": turn(record, "chat", "one"),
            "talk 2": turn(record, "chat", "two"),
            "talk 3": turn(record, "chat", "three"),
            "retried": retried(record),
        }
        record.fork(runs["open"])  # somebody else's, between the runs
    data = msgspec.Raw(msgspec.json.encode({"by": "é\u2028", "$blob": {"odd": 1}}))
    newer = Recorded("run.blessed.v9", "e1", data)
    version = [s for s in log_of(home, "zoo") if s.stream == RunStream(runs["failed"])][-1]
    planted = commit(version.commit.last_version + 1, newer, epoch=0)
    plant(home, "zoo", (RunStream(runs["failed"]), planted))
    runs["unknown"] = runs["failed"]
    return Zoo(runs)


def bounded(record: hansard.Record) -> str:
    """Record two agents that share a budget; return the run's id."""
    gate = [hansard.budget("calls of the model", limit=3, tool="ask")]
    with record.run("bounded", agent="a", role="r", gate=gate) as session:

        @session.tool(effects="pure")
        def ask(text: str) -> str:
            return text.upper()

        ask("one")
        with record.run(run=session.run, agent="b", role="s", gate=gate) as other:

            @other.tool(effects="pure", name="ask")
            def ask_too(text: str) -> str:
                return text.lower()

            ask_too("TWO")
            session.hand_off("b", payload={"x": 1})
        ask("three")
        with contextlib.suppress(hansard.Blocked):
            ask("four")
        return session.run


def redacted(record: hansard.Record) -> str:
    """Record a run with a secret in its arguments; return its id."""
    with record.run("redacted", agent="a", role="r") as session:

        @session.tool(effects="idempotent")
        def fetch(url: str, key: str) -> str:
            return f"{url} with {key}"

        fetch("https://x.example.org", SECRET)
        return session.run


def long_names(record: hansard.Record) -> str:
    """Record a run with names that subjects digest or escape; return its id."""
    run = f"run {LONG}"
    with record.run("long", run=run, agent=f"agent {LONG}", role="naïve/röle.*>") as session:

        @session.tool(effects="pure")
        def add(a: int) -> int:
            return a + 1

        session.message("user", '日本語 \u2028 \x7f \\ " \U0001f600')
        add(1)
    return run


def half(record: hansard.Record) -> str:
    """Record a run whose process died inside a call; return its id."""
    with contextlib.suppress(KeyboardInterrupt), record.run("half", agent="a", role="r") as session:
        run = session.run

        @session.tool(effects="idempotent")
        def slow(n: int) -> int:
            if n == 2:
                raise KeyboardInterrupt
            return n

        slow(1)
        slow(2)
    return run


def turn(record: hansard.Record, conversation: str, text: str) -> str:
    """Record one run of a conversation; return its id."""
    with record.run("chat", agent="bot", role="responder", conversation=conversation) as session:
        session.message("user", text)
        session.message("assistant", text.upper())
        return session.run


def retried(record: hansard.Record) -> str:
    """Attempts, items of a generator, a large item twice, threads."""
    tries = iter(range(9))
    with record.run("retried", agent="a", role="r") as session:

        @session.tool(effects="idempotent", attempts=3, wait=wait_none())
        def flaky() -> str:
            if next(tries) < 2:
                raise ConnectionError
            return "at last"

        @session.tool(effects="pure")
        def items(n: int) -> Any:
            for i in range(n):
                yield "z" * 600_000 if i == 1 else i

        @session.tool(effects="pure")
        def same() -> str:
            return "z" * 600_000

        with contextlib.suppress(Exception):
            flaky()
        list(items(3))
        same()
        session.thread(same).result()
        return session.run
