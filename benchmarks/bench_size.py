"""How many bytes does a recorded step take beyond its payload, and what do growing prompts take?

Pure steps (one commit) and steps with effects (two commits) with small arguments and results:
what JetStream counts as stored (bodies, subjects, headers, its own frame around each message),
and what lies in the log's folder after a clean stop (its indexes too), each less the JSON of
arguments and results. Then model calls whose list of messages grows by two with each call: bytes
of log and blobs for 10, 100 and 500 calls. Goals: at most 1 KiB of overhead a step; bytes per model
call at 500 at most 1.25 times those at 100 (linear in N).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized
from benchmarks._world import World
from hansard.bus import subjects
from hansard.client.record import AsyncRecord

OVERHEAD_MAX = 1_024
MESSAGE_BYTES = 400
LINEAR_MAX = 1.25
PROMPTS = (10, 100, 500)


async def steps(record: AsyncRecord, count: int, effects: str) -> int:
    """Record steps; the bytes of their arguments and results as JSON."""
    payload = 0
    async with record.run("bench", agent="stepper", role="worker") as session:

        @session.tool(effects=effects)
        async def look_up(query: str, limit: int = 10) -> list[str]:
            return [query[:50], str(limit)]

        for number in range(count):
            query = f"{number} {_world.text(100)}"
            result = await look_up(query, limit=number)
            payload += len(msgspec.json.encode({"query": query, "limit": number}))
            payload += len(msgspec.json.encode(result))
    return payload


async def prompts(record: AsyncRecord, calls: int) -> int:
    """Model calls with a growing prompt; the bytes of all prompts and answers, each in full."""
    whole = 0
    messages: list[dict[str, str]] = []
    async with record.run("bench", agent="writer", role="worker") as session:

        @session.tool(effects="pure", kind="model")
        async def complete(messages: list[dict[str, str]]) -> dict[str, str]:
            return {
                "role": "assistant",
                "content": f"{len(messages)} " + _world.text(MESSAGE_BYTES),
            }

        for number in range(calls):
            asked = f"{number} " + _world.text(MESSAGE_BYTES)
            messages.append({"role": "user", "content": asked})
            whole += len(msgspec.json.encode(messages))
            answer = await complete(messages)
            whole += len(msgspec.json.encode(answer))
            messages.append(answer)
    return whole


async def stored(place: World, workspace: str) -> int:
    """Return the size of a workspace's log and blobs as JetStream counts it, in bytes."""
    nc = await place.raw()
    names = (subjects.log_stream(workspace), subjects.blob_stream(workspace))
    infos = [await _world.api(nc, f"STREAM.INFO.{name}") for name in names]
    await nc.close()
    return sum(int(info["state"]["bytes"]) for info in infos)


def on_disk(folder: Path, workspace: str) -> int:
    """Bytes of the files of a workspace's log and blobs."""
    names = {subjects.log_stream(workspace), subjects.blob_stream(workspace)}
    roots = [path for path in folder.rglob("*") if path.is_dir() and path.name in names]
    assert roots, f"no folder of {names} under {folder}"
    return sum(path.stat().st_size for root in roots for path in root.rglob("*") if path.is_file())


async def measure(found: Findings) -> None:
    """Record, stop the server, count."""
    count = sized(1_000, 50)
    sizes = [sized(size, max(3, size // 20)) for size in PROMPTS]
    payloads: dict[str, int] = {}
    empty: dict[str, Any] = {}
    async with _world.world("relaxed") as place:
        for effects in ("pure", "once"):
            async with hansard.connect_async(effects, data_dir=place.folder) as record:
                payloads[effects] = await steps(record, count, effects)
        for size in sizes:
            name = f"prompts-{size}"
            async with hansard.connect_async(name, data_dir=place.folder) as record:
                start = time.perf_counter()
                payloads[name] = await prompts(record, size)
                taken = (time.perf_counter() - start) * 1_000 / size
                found.results[f"{size} growing prompts: ms a call"] = round(taken, 3)
        async with hansard.connect_async("empty", data_dir=place.folder) as record:
            await steps(record, 0, "pure")
        names = [*payloads, "empty"]
        counted = {name: await stored(place, name) for name in names}
        await place.restart()
        lies = {name: on_disk(place.folder, name) for name in names}
        empty = {"stored": counted["empty"], "disk": lies["empty"]}
    for effects in ("pure", "once"):
        told = payloads[effects]
        over = round((counted[effects] - empty["stored"] - told) / count)
        disk = round((lies[effects] - empty["disk"] - told) / count)
        found.results[f"step {effects}: payload, bytes"] = round(told / count)
        found.results[f"step {effects}: overhead as stored, bytes"] = over
        found.results[f"step {effects}: overhead on disk with indexes, bytes"] = disk
        found.goals[f"overhead of a step {effects} <= 1 KiB"] = max(over, disk) <= OVERHEAD_MAX
    growth(sizes, counted, payloads, empty["stored"], found)


def growth(
    sizes: list[int], counted: dict[str, int], payloads: dict[str, int], empty: int, found: Findings
) -> None:
    """Bytes per model call, and against recording each prompt in full."""
    per_call: dict[int, float] = {}
    for size in sizes:
        taken = counted[f"prompts-{size}"] - empty
        per_call[size] = taken / size
        found.results[f"{size} growing prompts: bytes"] = taken
        found.results[f"{size} growing prompts: bytes a call"] = round(taken / size)
        found.results[f"{size} growing prompts, each in full: bytes"] = payloads[f"prompts-{size}"]
    grown = per_call[sizes[-1]] / per_call[sizes[1]]
    found.ratios[f"bytes a call, {sizes[-1]} / {sizes[1]} growing prompts"] = grown
    found.ratios[f"in full / as recorded, {sizes[-1]} growing prompts"] = payloads[
        f"prompts-{sizes[-1]}"
    ] / (per_call[sizes[-1]] * sizes[-1])
    found.goals["growing prompts linear in N (<= 1.25 per call)"] = grown <= LINEAR_MAX


if __name__ == "__main__":
    benchmark(measure, __doc__)
