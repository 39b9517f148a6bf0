"""How fast does `hansard import` bring runs in, and does its memory stay flat?

The command itself, as a process: start-up, parsing, mapping to events, encoding, storing. Against
raw atomic batches of 1,000 that store the same bodies, sent with plain nats-py to the same strict
server (nothing left to parse or to make). Files of growing size; peak memory is the process's own
high-water mark (`VmHWM`). Then the first question in SQL, which makes the tables; and what was
imported is exported and imported again as `events`. Goals: at least 0.4 of raw, memory that does
not grow with the file, and 3 s for the first question of 100,000 events.
"""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks.bench_bulk import Message, raw_batches
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.log import RawMessage

MESSAGES = 30
"""Messages of a run, every third an answer with a call, about as in tau-bench's runs."""

KIB = 1_024

FIRST = "the first question"
QUESTION = ("sql", "SELECT count(*) FROM events", "--json")

LOOK_S = 0.01
"""Interval of sampling a process's memory, in seconds; its output is one line."""


class Ran(msgspec.Struct):
    """Result of a process: duration, peak memory, last output line."""

    took_ms: float
    peak_mib: float
    told: dict[str, Any]


def chats(runs: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield distinct runs in the form of chat-jsonl."""
    made = random.Random(seed)
    for run in range(runs):
        messages: list[dict[str, Any]] = [{"role": "system", "content": _world.text(2_000)}]
        while len(messages) < MESSAGES:
            messages += _turn(made, f"{run}-{len(messages)}")
        yield {
            "run": f"run-{seed}-{run}",
            "workflow": "bench",
            "experiment": "bench",
            "arm": "ab"[run % 2],
            "task": str(run % 50),
            "trial": run // 50,
            "messages": messages,
            "outcome": {"reward": float(made.random() < 0.5), "error": None},
        }


def _turn(made: random.Random, name: str) -> list[dict[str, Any]]:
    arguments = msgspec.json.encode({"order": made.randrange(10**9)}).decode()
    call = {"id": name, "type": "function", "function": {"name": "find", "arguments": arguments}}
    usage = {"prompt_tokens": made.randrange(5_000), "completion_tokens": made.randrange(500)}
    return [
        {"role": "user", "content": _world.text(made.randrange(50, 400))},
        {"role": "assistant", "content": None, "tool_calls": [call], "usage": usage, "cost": 0.01},
        {"role": "tool", "tool_call_id": name, "content": _world.text(made.randrange(100, 1_500))},
    ]


def hansard(folder: Path, workspace: str, *arguments: str) -> Ran:
    """Run the command on the broker of a folder, to its end."""
    command = [sys.executable, "-m", "hansard", "--data-dir", str(folder), "-w", workspace]
    start = time.perf_counter_ns()
    child = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE)
    peak_kib = 0
    while child.poll() is None:
        peak_kib = max(peak_kib, _peak_kib(child.pid))
        time.sleep(LOOK_S)
    took_ms = (time.perf_counter_ns() - start) / 1e6
    assert child.stdout is not None
    lines = child.stdout.read().splitlines()
    assert child.returncode == 0, lines[-3:]
    told = msgspec.json.decode(lines[-1]) if lines else {}
    return Ran(took_ms, peak_kib / KIB, told)


def _peak_kib(pid: int) -> int:
    """Return a process's high-water mark. `ru_maxrss` would keep its parent's across fork and
    exec.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:  # it has just ended
        return 0
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) if found else 0


async def bodies(place: _world.World, workspace: str, name: str) -> tuple[list[Message], int]:
    """Return an import's commits as messages of a raw stream of its own, and their number of
    events.
    """
    raw = await RawWorkspace.open(place.broker.runtime, workspace)
    head = (await raw.extent()).last
    found: list[RawMessage] = [message async for message in raw.follow(until=head)]
    await raw.close()
    prefix = f"hansard.{workspace}."
    other = f"hansard.{_world.RAW}.{name}-"
    messages = [(other + message.subject.removeprefix(prefix), message.body) for message in found]
    events = sum(len(msgspec.json.decode(body)["events"]) for _, body in messages)
    return messages, events


async def measure(found: Findings) -> None:
    """Import growing files, their commits as raw batches, and then the same as `events`."""
    sizes = [sized(runs, small) for runs, small in ((250, 5), (1_000, 10), (4_000, 20))]
    rounds = sized(3, 1)
    peaks: dict[str, list[float]] = {"chat-jsonl": [], "events": [], FIRST: []}
    speeds: dict[str, list[float]] = {"chat-jsonl": [], "events": []}
    async with _world.world("strict") as place:
        nc = await place.raw()
        await _world.raw_stream(nc)
        events, first_s = 0, 0.0
        for size in sizes:
            times: dict[str, list[float]] = {"chat-jsonl": [], "events": [], "raw": []}
            times[FIRST] = []
            for turn in range(rounds):
                name = f"s{size}-{turn}"
                file = place.folder / f"{name}.jsonl"
                with file.open("wb") as out:
                    out.writelines(msgspec.json.encode(chat) + b"\n" for chat in chats(size, turn))
                ours = await asyncio.to_thread(
                    hansard, place.folder, name, "import", "chat-jsonl", str(file), "--json"
                )
                first = await asyncio.to_thread(hansard, place.folder, name, *QUESTION)
                messages, events = await bodies(place, name, name)
                took, _ = await _world.timed(lambda: raw_batches(nc, messages))  # noqa: B023 -- awaited in the same round
                log = await place.log(name)
                runs = await log.runs()
                await log.close()
                again = await asyncio.to_thread(_round_trip, place.folder, name, runs, file)
                times["chat-jsonl"].append(ours.took_ms)
                times["raw"].append(took)
                times[FIRST].append(first.took_ms)
                times["events"].append(again.took_ms)
                peaks["chat-jsonl"].append(ours.peak_mib)
                peaks["events"].append(again.peak_mib)
                peaks[FIRST].append(first.peak_mib)
                file.unlink()
            for kind, taken in times.items():
                found.results[f"{kind}: {size:,} runs, {events:,} events"] = summary(taken)
                found.results[f"{kind}: events/s of {size:,} runs"] = round(
                    events / median(taken) * 1_000
                )
            for kind, by_size in speeds.items():
                by_size.append(median(times["raw"]) / median(times[kind]))
            first_s = median(times[FIRST]) / 1_000
        await nc.close()
    first_mib = median(peaks.pop(FIRST)[-rounds:])
    found.results[f"{FIRST}: peak memory, largest file, MiB"] = f"{first_mib:.0f}"
    found.goals["3 s for the first question of 100,000 events"] = first_s <= 3 * events / 100_000
    for kind, by_size in speeds.items():
        found.ratios[f"{kind}: speed / raw batches, largest file"] = by_size[-1]
        found.goals[f"{kind} >= 0.4 of raw atomic batches"] = by_size[-1] >= 0.4
        small, large = median(peaks[kind][:rounds]), median(peaks[kind][-rounds:])
        found.results[f"{kind}: peak memory, smallest and largest file, MiB"] = (
            f"{small:.0f}, {large:.0f}"
        )
        found.ratios[f"{kind}: peak memory, file of 16 times the size"] = large / small
        found.goals[f"{kind}: memory of a 16 times larger file <= 1.25 times"] = (
            large <= 1.25 * small
        )


def _round_trip(folder: Path, workspace: str, runs: list[str], file: Path) -> Ran:
    """Export a workspace's runs, and import them into an empty one."""
    exported = file.with_suffix(".events.jsonl")
    hansard(folder, workspace, "export", *runs, "--output", str(exported))
    try:
        return hansard(folder, f"{workspace}-again", "import", "events", str(exported), "--json")
    finally:
        exported.unlink()


if __name__ == "__main__":
    benchmark(measure, __doc__)
