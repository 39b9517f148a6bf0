"""Real runs, made through the public client, and the results of commands."""

import contextlib
import fcntl
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tenacity import wait_none

import hansard
from hansard.broker.lease import peek
from hansard.cli import run_line

SRC = Path(hansard.__file__).parents[1]
WORKSPACE = "lab"
GONE_S = 60.0
"""At most this long a server may take to end after its last user."""
BIG = 100_000
"""Characters of a result that must go to a blob."""


class Ran(msgspec.Struct):
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return its stdout, parsed as NDJSON."""
        return [json.loads(line) for line in self.out.splitlines()]


OF_OTHERS = '{"event": "broker connection", "level": "warning", "error": "nats: unexpected EOF"'
"""First characters of a log line about another test's connection: logging is the whole process's,
and a broker whose test has ended may close a connection while a command runs. Log lines about a
command's own connection are tested where the command is a process of its own.
"""


def until(holds: Callable[[], bool]) -> None:
    """Poll a condition until it holds, at most `GONE_S` seconds."""
    end_s = time.monotonic() + GONE_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def ended(home: Path) -> bool:
    """Check that a data directory's server and its supervisor, which writes last, have ended."""
    with (home / "store.lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return peek(home) is None


@contextlib.contextmanager
def log_of_its_own() -> Iterator[None]:
    """End logging with the command, as its process would."""
    ours = logging.getLogger("hansard")
    handlers, propagate, level = ours.handlers[:], ours.propagate, ours.level
    try:
        yield
    finally:
        ours.handlers[:], ours.propagate = handlers, propagate
        ours.setLevel(level)


def ran(
    capture: pytest.CaptureFixture[Any],
    monkeypatch: pytest.MonkeyPatch,
    arguments: Iterable[object],
    encoding: str = "utf-8",
) -> Ran:
    """Run `hansard` with these arguments in this process; captured bytes are decoded."""
    monkeypatch.setattr(sys, "argv", ["hansard", *map(str, arguments)])
    capture.readouterr()
    with log_of_its_own(), pytest.raises(SystemExit) as left:
        run_line()
    captured = capture.readouterr()
    code = left.value.code
    out = captured.out.decode(encoding) if isinstance(captured.out, bytes) else captured.out
    err = captured.err.decode() if isinstance(captured.err, bytes) else captured.err
    lines = err.splitlines(keepends=True)
    err = "".join(line for line in lines if not line.startswith(OF_OTHERS))
    return Ran(code if isinstance(code, int) else 0, out, err)


class Runs(msgspec.Struct):
    """The ids of the runs that every test reads and none writes to."""

    team: str
    failed: str
    doubt: str
    settled: str
    forked: str


Call = Callable[..., Ran]


def environment(home: Path, **more: str) -> dict[str, str]:
    """Return a clean environment for a child."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HANSARD_", "COLUMNS"))}
    for name in ("NO_COLOR", "FORCE_COLOR"):
        kept.pop(name, None)
    return kept | {
        "PYTHONPATH": str(SRC),
        "HANSARD_DATA_DIR": str(home),
        "HANSARD_WORKSPACE": WORKSPACE,
        **more,
    }


def make_runs(record: hansard.Record) -> Runs:
    """Make real runs: complete with two agents, failed, in doubt, settled, forked."""
    whole = team(record)
    return Runs(
        team=whole,
        failed=failed(record),
        doubt=in_doubt(record, "doubt"),
        settled=settled(record),
        forked=record.fork(whole, at="researcher_1@6"),
    )


def team(record: hansard.Record) -> str:
    """Record a complete run of two agents with one of everything."""
    tries = iter(range(9))
    with record.run(
        "paper-pipeline",
        agent="researcher_1",
        role="researcher",
        conversation="talk",
        labels={"kind": "test"},
    ) as session:

        @session.tool(effects="pure")
        def add(a: int, b: int) -> int:
            return a + b

        @session.tool(effects="pure")
        def big(size: int) -> str:
            return "x" * size

        @session.tool(effects="idempotent", attempts=3, wait=wait_none())
        def flaky(x: str) -> Any:
            if next(tries) < 1:
                raise ValueError("not \x1b[31myet")
            return (x, {1, 2})

        @session.tool(effects="composite")
        def both(n: int) -> int:
            session.resource(f"file:///{n}")
            return int(add(n, 1)) + int(add(n, 2))

        @session.tool(effects="pure")
        def chat(messages: list[Any]) -> int:
            return len(messages)

        @session.tool(effects="pure")
        def absent(key: str) -> str:
            return {"there": "yes"}[key]

        session.message("user", "find papers", tokens=3)
        add(1, 2)
        both(5)
        big(BIG)
        flaky("a")
        chat_log = [{"role": "user", "content": "hello " * 200}]
        for _ in range(3):
            chat_log.append({"role": "assistant", "content": f"{chat(list(chat_log))}"})
        with contextlib.suppress(KeyError):
            absent("nowhere")
        session.gather(lambda: add(10, 1), lambda: add(20, 2), lambda: None)
        add(3, 4)
        session.checkpoint("gathered", papers=3)
        session.decide(
            "Which first?",
            selected="p1",
            alternatives=[{"id": "p1", "score": 0.9}, "p2"],
            threshold=0.85,
            confidence=0.9,
            reason="it is newest",
        )
        with record.run(run=session.run, agent="writer", role="writer") as writer:

            @writer.tool(effects="once")
            def mail(to: str) -> dict[str, str]:
                return {"sent": to}

            mail("x@example.org")
        return session.run


def failed(record: hansard.Record) -> str:
    """Return a run that its gate ended."""
    with (
        contextlib.suppress(hansard.Blocked),
        record.run("cleaning", agent="a", role="r", gate=[hansard.deny("remove")]) as session,
    ):
        run = session.run

        @session.tool
        def remove(path: str) -> None:
            return None

        remove("everything")
    return run


def in_doubt(record: hansard.Record, workflow: str) -> str:
    """Return a run whose only step is in doubt."""
    with (
        contextlib.suppress(TimeoutError),
        record.run(workflow, agent="sender", role="sender") as session,
    ):
        run = session.run

        @session.tool
        def send(to: str) -> str:
            raise TimeoutError("slow")

        send("x@example.org")
    return run


def settled(record: hansard.Record) -> str:
    """Return a run whose doubt a person settled."""
    run = in_doubt(record, "settled")
    record.settle(run, "1", "happened", result={"id": 7}, reason="the log of the server says so")
    return run
