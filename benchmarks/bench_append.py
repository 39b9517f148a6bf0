"""What does one awaited append cost, and does it stay so as a stream grows?

`JetStreamLog.append` (which also encodes the commit) against nats-py's own `js.publish` of the
same bytes with the same header into a stream with the same settings on the same server, block by
block in turns; strict and relaxed. Beside strict, what else writes one small record durably: the
SQLite recorder of the eventsourcing library and LangGraph's SqliteSaver (both file, WAL,
synchronous FULL). Then a recorded step of a session, pure (one commit) and with effects (two), by
the async client; by its sync twin in turns with raw publishes, block by block. Goals: p50 at most
1.25 of raw; the last thousand of 10,000 appends to one stream at most 1.25 of the first; a pure
step of the sync client at most 1.25 raw publishes, one with effects at most 2.5.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID, uuid4

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore
from nats.aio.client import Client

import hansard
from benchmarks import _world
from benchmarks._report import Findings, Measured, sized, summary
from benchmarks._world import EXPECT_FREE, World

BLOCK = 100
"""Appends of one kind before the other has its turn."""

FLAT_MAX = 1.25
"""The goal of both ratios: of raw, and of the stream's first appends."""

STEP_GOALS = {"pure": 1.25, "once": 2.5}
"""Most raw publishes that a step of the sync client may take as long as, by its effects."""

STEPS_BLOCK = 50
"""Steps of one kind, and raw publishes, before the other has its turn."""

GROUPS = 10
"""Parts of the run whose ratios give the spread."""


async def against_raw(place: World, blocks: int) -> dict[str, list[float]]:
    """Milliseconds of each awaited append: ours, raw, and ours in one long stream."""
    log = await place.log()
    nc = await place.raw()
    await _world.raw_stream(nc)
    js = nc.jetstream()
    stream = _world.agent_stream("appender")
    total = blocks * BLOCK
    ours = _world.appends(stream, 1, total)
    theirs = [_world.raw_message(each) for each in _world.appends(stream, 1, total)]
    times: dict[str, list[float]] = {"hansard": [], "raw": []}
    for block in range(blocks):
        for append in [next(ours) for _ in range(BLOCK)]:
            took, _ = await _world.timed(partial(log.append, append))
            times["hansard"].append(took)
        for subject, body in theirs[block * BLOCK : (block + 1) * BLOCK]:
            start = time.perf_counter_ns()
            await js.publish(subject, body, headers=EXPECT_FREE)
            times["raw"].append((time.perf_counter_ns() - start) / 1e6)
    assert len(await log.read(stream)) == total
    await nc.close()
    await log.close()
    return times


def sqlite_recorder(folder: Path, rounds: int) -> list[float]:
    """Milliseconds of each insert of one event with eventsourcing's SQLite recorder."""
    store = SQLiteDatastore(str(folder / "events.sqlite"))
    recorder = SQLiteApplicationRecorder(store)
    recorder.create_table()
    with store.transaction(commit=False) as cursor:
        cursor.execute("PRAGMA synchronous")
        assert cursor.fetchone()[0] == 2, "not FULL: it would not be the twin of strict"
    run: UUID = uuid4()
    body = _world.text(1_024).encode()
    number = count(1)

    def insert() -> None:
        recorder.insert_events([StoredEvent(run, next(number), "step.completed", body)])

    times = _times(insert, rounds)
    store.close()
    return times


def langgraph_saver(folder: Path, rounds: int) -> list[float] | None:
    """Return the milliseconds of each `put` of a checkpoint of 1 KB; None without LangGraph."""
    try:
        from langgraph.checkpoint.base import empty_checkpoint  # noqa: PLC0415 -- optional rival
        from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 -- optional rival
    except ImportError:
        return None
    with contextlib.closing(sqlite3.connect(folder / "langgraph.sqlite")) as connection:
        saver = SqliteSaver(connection)
        config: dict[str, Any] = {"configurable": {"thread_id": "1", "checkpoint_ns": ""}}
        number = count(1)

        def put() -> None:
            step = next(number)
            checkpoint = empty_checkpoint()
            checkpoint["channel_values"] = {"result": _world.text(1_024)}
            checkpoint["channel_versions"] = {"result": step}
            told = {"source": "loop", "step": step, "parents": {}}
            config.update(saver.put(config, checkpoint, told, {"result": step}))

        return _times(put, rounds)


def _times(call: Callable[[], object], rounds: int) -> list[float]:
    times: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1e6)
    return times


async def steps_async(folder: Path, steps: int) -> dict[str, Measured]:
    """Measure a recorded step of an async session: its whole cost beside the tool's own."""
    found: dict[str, Measured] = {}
    async with (
        hansard.connect_async("steps", data_dir=folder) as record,
        record.run("bench", agent="stepper") as session,
    ):
        for effects in ("pure", "once"):

            @session.tool(effects=effects, name=effects)
            async def tool(query: str, number: int) -> str:
                return f"{query[:100]} {number}"

            times = []
            for number in range(-20, steps):
                start = time.perf_counter_ns()
                await tool(_world.text(600), number)
                if number >= 0:
                    times.append((time.perf_counter_ns() - start) / 1e6)
            found[f"step {effects}, async"] = summary(times)
    return found


async def steps_sync(place: World, blocks: int, found: Findings) -> None:
    """Measure the sync twin in a thread, block by block in turns with raw publishes."""
    nc = await place.raw()
    await _world.raw_stream(nc, "steps-raw")
    times = await asyncio.to_thread(_in_turns, place.folder, blocks, raw_block(nc))
    await nc.close()
    for kind, taken in times.items():
        name = "raw publish, beside them" if kind == "raw" else f"step {kind}, sync"
        found.results[name] = summary([each for block in taken for each in block])
    for kind, goal in STEP_GOALS.items():
        ratios = [
            median(step) / median(raw) for step, raw in zip(times[kind], times["raw"], strict=True)
        ]
        ratio = median(ratios)
        found.ratios[f"step {kind}, sync / raw publish beside it, strict"] = ratio
        found.results[f"step {kind}, sync / raw over {len(ratios)} blocks"] = [
            round(min(ratios), 3),
            round(max(ratios), 3),
        ]
        found.goals[f"step {kind}, sync <= {goal} raw publishes, strict"] = ratio <= goal


def raw_block(nc: Client) -> Callable[[], list[float]]:
    """Return a function for another thread: milliseconds of each publish of a block, on this
    loop.
    """
    js, loop = nc.jetstream(), asyncio.get_running_loop()
    messages = map(
        partial(_world.raw_message, workspace="steps-raw"),
        _world.appends(_world.agent_stream("raw"), 1, sys.maxsize),
    )

    async def publish() -> list[float]:
        times: list[float] = []
        for subject, body in [next(messages) for _ in range(STEPS_BLOCK)]:
            start = time.perf_counter_ns()
            await js.publish(subject, body, headers=EXPECT_FREE)
            times.append((time.perf_counter_ns() - start) / 1e6)
        return times

    return lambda: asyncio.run_coroutine_threadsafe(publish(), loop).result()


def _in_turns(
    folder: Path, blocks: int, raw: Callable[[], list[float]]
) -> dict[str, list[list[float]]]:
    """Milliseconds of each step and publish, by kind and block, after a block that is left out."""
    times: dict[str, list[list[float]]] = {"raw": [], "pure": [], "once": []}
    with (
        hansard.connect("steps", data_dir=folder) as record,
        record.run("bench", agent="stepper") as session,
    ):
        numbers, steps = count(), {}
        for effects in STEP_GOALS:

            @session.tool(effects=effects, name=effects)
            def tool(query: str, number: int) -> str:
                return f"{query[:100]} {number}"

            steps[effects] = partial(_step, tool, numbers)
        for block in range(-1, blocks):
            taken = {"raw": raw()}
            taken |= {kind: _times(step, STEPS_BLOCK) for kind, step in steps.items()}
            if block >= 0:
                for kind, each in taken.items():
                    times[kind].append(each)
    return times


def _step(tool: Callable[[str, int], str], numbers: Iterator[int]) -> None:
    tool(_world.text(600), next(numbers))


def ratios_of(times: dict[str, list[float]]) -> Iterator[float]:
    """Ratio of the medians in each tenth of the run: its spread."""
    length = max(1, len(times["raw"]) // GROUPS)
    for start in range(0, len(times["raw"]) - length + 1, length):
        part = slice(start, start + length)
        yield median(times["hansard"][part]) / median(times["raw"][part])


async def measure(durability: str, found: Findings) -> None:
    """Measure everything on a server of one durability."""
    async with _world.world(durability) as place:
        times = await against_raw(place, sized(100, 3))
        if durability == "strict":
            await rivals(place.folder, found)
            steps = sized(500, 20)
            found.results.update(await steps_async(place.folder, steps))
            await steps_sync(place, sized(20, 2), found)
    for kind, taken in times.items():
        found.results[f"{kind} append, {durability}"] = summary(taken)
    ratio = median(times["hansard"]) / median(times["raw"])
    spread = sorted(ratios_of(times))
    found.results[f"append / raw over tenths of the run, {durability}"] = [
        round(spread[0], 3),
        round(spread[-1], 3),
    ]
    found.ratios[f"append / raw publish, {durability}"] = ratio
    found.goals[f"append p50 <= 1.25 of raw, {durability}"] = ratio <= FLAT_MAX
    for kind, taken in times.items():
        grown = last_to_first(taken)
        found.ratios[f"{kind}: last / first tenth of one stream, {durability}"] = grown
        if kind == "hansard":
            found.goals[f"append flat in N (<= 1.25), {durability}"] = grown <= FLAT_MAX


async def rivals(folder: Path, found: Findings) -> None:
    """Measure other durable writes of one small record in the same folder."""
    rounds = sized(1_000, 50)
    found.results["eventsourcing SQLite insert"] = summary(
        await asyncio.to_thread(sqlite_recorder, folder, rounds)
    )
    saver = await asyncio.to_thread(langgraph_saver, folder, rounds)
    found.results["LangGraph SqliteSaver put"] = (
        summary(saver) if saver else "not measured: it is not installed here (see make bench)"
    )


def last_to_first(times: list[float]) -> float:
    """Return the ratio of the last tenth's cost to the first's."""
    length = max(1, len(times) // GROUPS)
    return median(times[-length:]) / median(times[:length])


def main() -> int:
    """Measure and report."""
    found = Findings()
    for durability in ("strict", "relaxed"):
        asyncio.run(measure(durability, found))
    found.results["appends to one stream"] = sized(100, 3) * BLOCK
    strict = found.results["hansard append, strict"].median_ms
    for rival in ("eventsourcing SQLite insert", "LangGraph SqliteSaver put"):
        if isinstance(taken := found.results[rival], Measured):
            found.ratios[f"append / {rival}, strict"] = strict / taken.median_ms
    raw = found.results["raw append, strict"].median_ms
    for step in ("step pure, async", "step once, async"):
        found.ratios[f"{step} / raw publish, strict"] = found.results[step].median_ms / raw
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
