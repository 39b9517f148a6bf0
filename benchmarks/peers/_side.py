"""Interface of each side, so that all do the same work: traces, writers, servers, queries.

Needs the standard library and msgspec only: it runs in each side's own environment.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

READY_S = 120.0
"""Longest start of a server: a peer imports for half a minute where others use the machine."""

STOP_S = 20.0

LOOK_S = 0.1

ARMS = ("prompt-1", "prompt-2")

WORDS = ("agent", "paper", "event", "result", "query", "score", "commit", "replay", "stream")


class Step(msgspec.Struct, frozen=True):
    """One call of a tool; some 400 bytes of result."""

    tool: str
    arguments: dict[str, Any]
    result: dict[str, Any]


class Trace(msgspec.Struct, frozen=True):
    """One run; `batch` identifies the writer."""

    name: str
    batch: str
    arm: str
    task: str
    score: float
    steps: tuple[Step, ...]


def traces(batch: str, runs: int, steps: int, seed: int) -> Iterator[Trace]:
    """Yield runs of agents that search, the same for every side."""
    made = random.Random(f"{seed} {batch}")

    def words(count: int) -> str:
        return " ".join(made.choices(WORDS, k=count))

    for number in range(runs):
        yield Trace(
            name=f"{batch}-{number:06d}",
            batch=batch,
            arm=ARMS[number % 2],
            task=f"task {number // 2 % 50}",
            score=float(made.random() < (0.55 + 0.1 * (number % 2))),
            steps=tuple(
                Step(
                    tool="search",
                    arguments={"query": words(8), "number": step},
                    result={"papers": [words(9) for _ in range(6)]},
                )
                for step in range(steps)
            ),
        )


PAUSE_S = 0.5
"""Pause of writers that wait for no answer: two short runs a second, which the slowest side takes
in. A flood would overflow the queues of their clients, which is another loss than that of a kill
(see `spans_missing` of the ingest).
"""


class Mode(msgspec.Struct, frozen=True):
    """A documented way to write. `acknowledged`: what the writer takes for an acknowledgement."""

    name: str
    acknowledged: str
    flush_each: bool = False
    survives: bool = False
    """True if the writer survives the kill of the server, and flushes after its restart."""

    pause_s: float = 0.0
    """Between two runs of a writer that is killed or outlives a kill."""


class Server(msgspec.Struct):
    """A running server: where it is, and the processes that are it (None: another's)."""

    url: str
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    others: list[int] = []
    """Process ids outside the process's own group."""

    def kill(self) -> None:
        """SIGKILL, all at once."""
        for pid in self.others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.process is not None, "a writer kills no server"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        until_s = time.monotonic() + STOP_S
        while any(alive(pid) for pid in self.others) and time.monotonic() < until_s:
            time.sleep(LOOK_S)

    def stop(self) -> None:
        """Ask it to end; kill what has not."""
        assert self.process is not None, "a writer stops no server"
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_S)
        until_s = time.monotonic() + STOP_S
        while any(alive(pid) for pid in self.others) and time.monotonic() < until_s:
            time.sleep(LOOK_S)
        self.kill()


class Writer(Protocol):
    """Writes runs; `ids` are what the side calls a run, by its name."""

    ids: dict[str, Any]

    def write(self, trace: Trace) -> None:
        """Write a trace with the client's own calls; raise their errors."""

    def flush(self) -> None:
        """Flush the client, where calls are not awaited."""

    def close(self) -> None:
        """Let go."""


class Side(Protocol):
    """One of those compared."""

    modes: Sequence[Mode]
    losses: Sequence[Mode]

    def versions(self) -> dict[str, str]:
        """Return the versions that the figures depend on."""

    def serve(self, folder: Path, ports: Sequence[int]) -> Server:
        """Start its server on a folder's files and these two ports, with its defaults, and wait
        until it serves.
        """

    def writer(self, server: Server, mode: Mode) -> Writer:
        """Return a client."""

    def readable(self, server: Server, batch: str) -> dict[str, int]:
        """Return the number of readable steps of each run of a batch, by the run's name."""

    def settle(self, server: Server) -> None:
        """Wait until stored spans can be queried, where the side reports it."""

    def score(self, server: Server, ids: Mapping[str, Any], scores: Mapping[str, float]) -> None:
        """Record the scores of runs, untimed."""

    def questions(
        self, server: Server, batch: str, ids: Mapping[str, Any]
    ) -> contextlib.AbstractContextManager[Questions]:
        """Return the queries of a batch, as a context manager."""


class Questions(msgspec.Struct):
    """`trail`: number of steps of a run by name; `means`: several queries for the mean score of
    each arm, by name.
    """

    trail: Callable[[str], int]
    means: dict[str, Callable[[], dict[str, float]]]
    more: dict[str, Callable[[], object]] = {}


def side_of(name: str) -> Side:
    """Return the side that a module implements."""
    return cast("Side", importlib.import_module(f"benchmarks.peers._{name}").SIDE)


def free_port() -> int:
    """Return a port on loopback that was just free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(
    command: Sequence[str],
    folder: Path,
    serves: Callable[[], bool],
    env: Mapping[str, str],
    *,
    url: str = "",
) -> Server:
    """Start a server in a process group of its own; wait until it serves. Raises RuntimeError."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | env,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    server = Server(url, folder, process)
    until_s = time.monotonic() + READY_S
    while not serves():
        if process.poll() is not None or time.monotonic() > until_s:
            server.kill()
            told = (folder / "server.log").read_text(errors="replace")[-1_500:]
            message = f"{command[0]} did not serve within {READY_S:g} s; it said: {told}"
            raise RuntimeError(message)
        time.sleep(LOOK_S)
    return server


def answers(url: str) -> bool:
    """Return whether a server of ours answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as told:  # noqa: S310 -- loopback, made above
            return int(told.status) == 200
    except OSError:
        return False


def alive(pid: int) -> bool:
    """Return whether the process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
