"""What does recording cost a program, beside the plainest thing that could be done instead?

A recorded pure step, a step with effects and a message of a session (the sync twin), strict and
relaxed, in ms and bytes; beside them, in turns, a JSON line and an SQLite commit of the same
payload (strict: on disk with fsync and synchronous FULL; relaxed: neither). A run's begin and end.
A replayed call beside a bare one. What it takes before the first call: importing, starting the
embedded broker, joining one that runs. The broker's memory, idle and for each commit it holds.
Goals: `import hansard` at most 20 ms beyond Python's own start, a replayed call at most 0.1 ms, the
broker started within 2 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._world import World
from benchmarks.bench_size import stored
from hansard.broker.lease import peek

ARGUMENT_BYTES = 600
RESULT_BYTES = 100
WORKSPACE = "costs"
COMMITS = 100_000
"""Commits of 1 KB whose share of the broker's memory is measured."""

BULK = 1_000
SETTLES_S = 3.0
"""Longest watch of the broker's memory after a start, in seconds; the least value counts."""

IMPORT_MS_MAX = 20.0
REPLAY_MS_MAX = 0.1
START_MS_MAX = 2_000.0

RECORDED = ("a pure step", "a step with effects", "a message")

Work = Callable[[], object]


# ---------------------------------------------------------------- a call, and instead of it


def calls(session: hansard.Session) -> dict[str, Work]:
    """Return one work for each kind of record of a session, with similar payloads."""
    numbers = count()

    @session.tool(effects="pure")
    def look_up(query: str, number: int) -> str:
        return f"{query[:RESULT_BYTES]} {number}"

    @session.tool(effects="once")
    def send(query: str, number: int) -> str:
        return f"{query[:RESULT_BYTES]} {number}"

    text = _world.text(ARGUMENT_BYTES)
    return {
        "a pure step": lambda: look_up(text, next(numbers)),
        "a step with effects": lambda: send(text, next(numbers)),
        "a message": lambda: session.message("user", f"{next(numbers)} {text}"),
    }


@contextlib.contextmanager
def instead(folder: Path, durability: str) -> Iterator[dict[str, Work]]:
    """Yield the alternatives that a program could write: a JSON line, a row in SQLite."""
    strict = durability == "strict"
    numbers = count()
    text = _world.text(ARGUMENT_BYTES)
    line_file = os.open(folder / "lines.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    database = sqlite3.connect(folder / "rows.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute(f"PRAGMA synchronous = {'FULL' if strict else 'NORMAL'}")
    database.execute("CREATE TABLE calls (number INTEGER PRIMARY KEY, call TEXT NOT NULL)")

    def call() -> str:
        number = next(numbers)
        result = f"{text[:RESULT_BYTES]} {number}"
        return json.dumps({"tool": "look_up", "query": text, "number": number, "result": result})

    def line() -> None:
        os.write(line_file, call().encode() + b"\n")
        if strict:
            os.fsync(line_file)

    def row() -> None:
        database.execute("INSERT INTO calls (call) VALUES (?)", (call(),))

    try:
        yield {"a JSON line": line, "an SQLite commit": row}
    finally:
        database.close()
        os.close(line_file)


WARM_UP = 10
"""Turns that do not count."""


def timed_turns(
    works: dict[str, Work], rounds: int, warm_up: int = WARM_UP
) -> dict[str, list[float]]:
    """Milliseconds of each work, the works taking turns."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(-warm_up, rounds):
        for name, work in works.items():
            start = time.perf_counter_ns()
            work()
            if number >= 0:
                times[name].append((time.perf_counter_ns() - start) / 1e6)
    return times


def recorded(folder: Path, durability: str, found: Findings) -> None:
    """Measure each recorded operation, its alternatives, and a whole empty run."""
    rounds = sized(1_000, 20)
    with (
        hansard.connect(WORKSPACE, data_dir=folder) as record,
        instead(folder, durability) as plain,
    ):
        with record.run("costs", agent="worker") as session:
            times = timed_turns(calls(session) | plain, rounds)

        def empty_run() -> None:
            with record.run("costs", agent="worker"):
                pass

        times |= timed_turns({"an empty run": empty_run}, sized(200, 5))
    for name, taken in times.items():
        found.results[f"{name}, {durability}"] = summary(taken)
    for name in RECORDED:
        for peer in plain:
            ratio = median(times[name]) / median(times[peer])
            found.ratios[f"{name} / {peer}, {durability}"] = ratio
    for name, file in (("a JSON line", "lines.jsonl"), ("an SQLite commit", "rows.sqlite")):
        size = (folder / file).stat().st_size
        found.results[f"{name}: bytes"] = round(size / (rounds + WARM_UP))


async def sizes(place: World, found: Findings) -> None:
    """Bytes that each recorded thing adds to the log, as JetStream counts them."""
    number = sized(500, 20)
    async with hansard.connect_async(WORKSPACE, data_dir=place.folder):
        before = await stored(place, WORKSPACE)
    for name in RECORDED:

        def repeat(name: str = name) -> None:
            with (
                hansard.connect(WORKSPACE, data_dir=place.folder) as record,
                record.run("costs", agent="worker") as session,
            ):
                work = calls(session)[name]
                for _ in range(number):
                    work()

        await asyncio.to_thread(repeat)
        after = await stored(place, WORKSPACE)
        found.results[f"{name}: bytes in the log"] = round((after - before) / number)
        before = after


# ---------------------------------------------------------------- a call answered from the record


def replayed(folder: Path, found: Findings) -> None:
    """Measure a recorded call on resume beside a bare one."""
    number = sized(2_000, 50)
    per_call: dict[str, list[float]] = {"a replayed call": [], "a bare call": []}
    text = _world.text(ARGUMENT_BYTES)

    def bare(query: str, number: int) -> str:
        return f"{query[:RESULT_BYTES]} {number}"

    with hansard.connect(WORKSPACE, data_dir=folder) as record:
        for turn in range(sized(9, 2) + 1):
            with record.run("costs", run="replayed", agent="worker") as session:
                tool = session.tool(effects="pure", name="bare")(bare)
                for name, work in (("a replayed call", tool), ("a bare call", bare)):
                    start = time.perf_counter()
                    for each in range(number):
                        work(text, each)
                    if turn:
                        per_call[name].append((time.perf_counter() - start) * 1e3 / number)
    for name, taken in per_call.items():
        found.results[name] = summary(taken)
    found.goals["a replayed call <= 0.1 ms"] = (
        found.results["a replayed call"].median_ms <= REPLAY_MS_MAX
    )


# ---------------------------------------------------------------- before the first call


def imports(found: Findings) -> None:
    """Measure Python's own start, and that with each import, in processes of their own."""
    programs = {
        "python starts": "pass",
        "python and import hansard": "import hansard",
        "python and hansard.connect": "from hansard import connect",
    }

    def process(code: str) -> Work:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    works = {name: process(code) for name, code in programs.items()}
    times = timed_turns(works, sized(30, 2), warm_up=1)
    own = times.pop("python starts")
    found.results["python starts"] = summary(own)
    beyond: dict[str, float] = {}
    for name, taken in times.items():
        found.results[name] = summary(taken)
        beyond[name] = median(
            with_it - without for with_it, without in zip(taken, own, strict=True)
        )
        found.results[f"{name}: ms beyond Python's own start"] = round(beyond[name], 2)
    found.goals["import hansard <= 20 ms beyond Python's start"] = (
        beyond["python and import hansard"] <= IMPORT_MS_MAX
    )


def starts(found: Findings) -> None:
    """`hansard.connect` where no broker runs, and where one does."""
    started: list[float] = []
    joined: list[float] = []
    for _ in range(sized(10, 2)):
        with tempfile.TemporaryDirectory(prefix="hansard-bench-") as folder:
            start = time.perf_counter()
            with hansard.connect(WORKSPACE, data_dir=folder):
                started.append((time.perf_counter() - start) * 1e3)
                start = time.perf_counter()
                with hansard.connect(WORKSPACE, data_dir=folder):
                    joined.append((time.perf_counter() - start) * 1e3)
            asyncio.run(_world.gone(Path(folder)))
    found.results["connect, the broker started"] = summary(started)
    found.results["connect, a broker runs"] = summary(joined)
    found.goals["the broker started within 2 s"] = (
        found.results["connect, the broker started"].median_ms <= START_MS_MAX
    )


# ---------------------------------------------------------------- the broker's memory


def resident_mib(folder: Path) -> float | None:
    """Return the least resident memory seen of the broker, in MiB; None without /proc."""
    info = peek(folder)
    assert info is not None
    status = Path(f"/proc/{info.server_pid}/status")
    if not status.exists():
        return None
    seen: list[float] = []
    until = time.monotonic() + sized(round(SETTLES_S * 10), 2) / 10
    while time.monotonic() < until:
        lines = status.read_text(encoding="utf-8").splitlines()
        [kib] = [line.split()[1] for line in lines if line.startswith("VmRSS")]
        seen.append(int(kib) / 1_024)
        time.sleep(0.1)
    return min(seen)


async def started_again(place: World) -> float:
    """Stop the broker, start it on the same files; the milliseconds that the start took."""
    await place.broker.release()
    await _world.gone(place.folder)
    start = time.perf_counter()
    place.broker = await _world._start(place.folder, "relaxed")  # noqa: SLF001 -- shared as well
    return (time.perf_counter() - start) * 1e3


async def memory(found: Findings) -> None:
    """Measure the broker's memory with an empty and with a full log, each after a start."""
    commits = sized(COMMITS, 2_000)
    async with _world.world("relaxed") as place:
        log = await place.log()
        await log.close()
        await started_again(place)
        idle = await asyncio.to_thread(resident_mib, place.folder)
        log = await place.log()
        stream = _world.agent_stream("filler")
        for first in range(1, commits, BULK):
            await log.append_bulk(list(_world.appends(stream, first, BULK)))
        await log.close()
        restarted = await started_again(place)
        full = await asyncio.to_thread(resident_mib, place.folder)
    if idle is None or full is None:
        found.results["the broker's memory"] = "not measured: no /proc here"
        return
    found.results["the broker's memory, empty log: MiB"] = round(idle, 1)
    found.results[f"the broker's memory, {commits:,} commits: MiB"] = round(full, 1)
    found.results["the broker's memory, a commit: bytes"] = round((full - idle) * 2**20 / commits)
    found.results[f"the broker started again on {commits:,} commits: ms"] = round(restarted)


async def measure(found: Findings) -> None:
    """All of it, on brokers of their own."""
    imports(found)
    await asyncio.to_thread(starts, found)
    for durability in ("strict", "relaxed"):
        async with _world.world(durability) as place:
            await asyncio.to_thread(recorded, place.folder, durability, found)
            if durability == "relaxed":
                await sizes(place, found)
                await asyncio.to_thread(replayed, place.folder, found)
    await memory(found)


if __name__ == "__main__":
    benchmark(measure, __doc__)
