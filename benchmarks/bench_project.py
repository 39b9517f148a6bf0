"""How fast is the log projected into tables, and how far behind are they live?

A log of a real mix (every event type, 2 to 3 events a commit, 0.4 KB an event), projected from the
broker with every table filled; against reading the same messages raw, and against DuckDB and
decoding alone, from memory. Then `hansard rebuild` of the whole log in a process of its own: its
time and peak memory. Then 1,000 events a second live onto those tables: the time from the log to
the committed rows, of each event. Goals: 50,000 events/s in bulk, p99 under 250 ms live.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchmarks import _world
from benchmarks._report import Findings, say, sized, summary
from benchmarks._world import WORKSPACE
from hansard import _connect, settings
from hansard.bus.check import RawMessage
from hansard.bus.clock import Clock
from hansard.bus.codec import record
from hansard.bus.jetstream import open_log
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.bus.log import Append
from hansard.domain import agent, run, steps
from hansard.domain.conversation import RunJoined
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import AgentStream, Lasting, Life, StreamId
from hansard.projections.place import Place
from hansard.projections.rows import Batch, Rows
from hansard.projections.runner import BATCH_EVENTS_MAX, Projector, project, wait_for
from hansard.projections.store import Store

LIVE_EVENTS_S = 1_000
LATE_S = 30.0
APPEND = "--append"
USAGE = {"input_tokens": 450.0, "output_tokens": 44.0, "cost": 0.001252}

_clock = Clock()


def raw_json(value: Any) -> msgspec.Raw:
    """A payload."""
    return msgspec.Raw(msgspec.json.encode(value))


SAID = raw_json(_world.text(400))
FOUND = raw_json({"papers": [_world.text(60) for _ in range(5)]})
ASKED = raw_json({"query": _world.text(60), "limit": 10})
NO = steps.Failure("TimeoutError", "no answer in 30 s")


def appended(stream: StreamId, version: int, *events: Event) -> Append:
    """One commit."""
    told = tuple(record(event, _clock.new_id()) for event in events)
    commit = Commit(
        id=_clock.new_id(),
        version=version,
        at=_clock.now(),
        actor=Actor("bench"),
        epoch=1,
        events=told,
    )
    return Append(stream, commit)


def _outcome(step: int) -> list[Event]:
    """What became of a step: most are done, some are not."""
    match step % 12:
        case 3:
            return [
                steps.StepAttempted(step=step, attempt=1, error=NO, retry_in_ms=100.0),
                steps.StepFailed(step=step, error=NO, digest="d" * 32, usage=USAGE),
            ]
        case 5:
            return [steps.StepBlocked(step=step, rule="deny send", reason="no mail at night")]
        case 7:
            return [
                steps.StepInDoubt(step=step, error=NO, duration_ms=30_000.0),
                steps.StepSettled(
                    step=step,
                    verdict=steps.Verdict.HAPPENED,
                    by="ann",
                    result=FOUND,
                    digest="d" * 32,
                ),
            ]
        case 9:
            return [
                steps.StepYielded(step=step, index=0, items=(SAID,)),
                steps.StepCompleted(step=step, result=SAID, digest="d" * 32, items=1),
            ]
        case _:
            return [
                steps.StepCompleted(
                    step=step, result=FOUND, digest="d" * 32, duration_ms=12.5, usage=USAGE
                )
            ]


def _facts(step: int) -> list[Event]:
    """What an agent states after a step."""
    mark = f"{step}" * 8
    calls = raw_json({"tool_calls": [{"id": f"call_{step}", "type": "function"}]})
    found: list[Event] = [
        agent.MessageAdded(
            role="assistant", content=SAID, fingerprint=mark, usage=USAGE, fields=calls, tokens=44
        )
    ]
    match step % 6:
        case 1:
            options = tuple(agent.Alternative(f"p{i}", i / 10, "newest") for i in range(4))
            found.append(
                agent.DecisionMade(
                    question="Which next?",
                    selected="p3",
                    fingerprint=mark,
                    alternatives=options,
                    threshold=0.25,
                )
            )
        case 2:
            found.append(agent.CheckpointSaved(name="found", data=ASKED, fingerprint=mark))
        case 3:
            found.append(
                agent.ResourceAccessed(uri=f"file:///{step}", operation="read", fingerprint=mark)
            )
        case 4:
            tool = {"tool_call_id": f"call_{step}"}
            found.append(
                agent.MessageAdded(
                    role="tool", content=FOUND, fingerprint=mark, fields=raw_json(tool)
                )
            )
        case _:
            pass
    return found


def one_run(number: int, parent: str | None) -> Iterator[Append]:
    """A run of one agent, about 80 events; every tenth is a fork of the one before."""
    name = _clock.new_id()
    ada, life = AgentStream(name, "researcher", "ada"), Life(name)
    if parent is not None:
        yield appended(life, 4, run.RunForked(parent=parent, at={"life": 3}))
        version = 5
    else:
        yield appended(
            life,
            1,
            run.RunStarted(workflow="papers", labels={"source": "bench"}),
            run.AgentJoined(agent="ada", role="researcher"),
            run.RunAssigned(experiment="e", arm="ab"[number % 2], task=f"{number % 50}", trial=0),
        )
        version = 4
    if number % 5 == 0:
        yield appended(Lasting("conversation", name), 1, RunJoined(run=name))
    began = agent.SessionBegan(
        epoch=1, agent="ada", role="researcher", server_version="1", protocol_version="1"
    )
    tool = steps.ToolDeclared(tool="search", effects=steps.Effects.ONCE, source="s" * 32)
    yield appended(ada, 1, began, tool)
    at = 3
    for step in range(1, 21):
        asked = steps.StepRequested(
            step=step,
            tool="search",
            effects=steps.Effects.ONCE,
            arguments=ASKED,
            call="c" * 32,
            fingerprint="f" * 32,
            after=(step - 1,),
        )
        for events in ([asked], [*_outcome(step), *_facts(step)]):
            yield appended(ada, at, *events)
            at += len(events)
    handed = agent.HandedOff(to="writer", fingerprint="h", payload=ASKED)
    yield appended(ada, at, handed, agent.AgentLeft(outcome="completed"))
    scored = run.RunScored(metrics={"reward": float(number % 2), "turns": 20.0}, by="judge")
    yield appended(life, version, scored, run.RunCompleted())


def log_of(events: int) -> Iterator[Append]:
    """Runs, until there are so many events."""
    made, number, before = 0, 0, None
    while made < events:
        number += 1
        commits = list(one_run(number, before if number % 10 == 0 else None))
        before = commits[0].stream.run if isinstance(commits[0].stream, Life) else None
        made += sum(len(each.commit.events) for each in commits)
        yield from commits


async def read_raw(raw: RawWorkspace, until: int) -> list[RawMessage]:
    """Every message, and nothing done with it."""
    found: list[RawMessage] = []
    async for chunk in raw.chunks(until=until):
        found += chunk.messages
    assert found[-1].position == until
    return found


def engine_alone(messages: list[RawMessage], path: Path) -> int:
    """Decode and write what is in memory already; how many events it was."""
    store, rows, events = Store(path), Rows(), 0
    for index, message in enumerate(messages):
        rows.add(message)
        if len(rows) >= BATCH_EVENTS_MAX or index + 1 == len(messages):
            batch = rows.take()
            assert batch is not None
            events += len(batch.rows)
            store.write(batch, messages[-1].position)
    store.close()
    return events


async def bulk(found: Findings, raw: RawWorkspace, folder: Path) -> None:
    """Project from the broker; in turn, read raw; in turn, from memory."""
    _, last = await raw.bounds()
    until = min(last, sized(90_000, 2_000))
    messages = await read_raw(raw, until)
    events = 0

    async def from_broker() -> None:
        nonlocal events
        store = Store(folder / "bulk.duckdb")
        await project(raw, store, until=until)
        [(events,)] = store.all("SELECT count(*) FROM events")
        empty = [
            name for name in store.tables() if not store.all(f"SELECT count(*) FROM {name}")[0][0]
        ]
        assert empty == ["problems"], empty
        store.close()
        (folder / "bulk.duckdb").unlink()

    async def from_memory() -> None:
        await asyncio.to_thread(engine_alone, messages, folder / "memory.duckdb")
        (folder / "memory.duckdb").unlink()

    async def reading() -> None:
        await read_raw(raw, until)

    projected, alone, read = await _world.turns(
        sized(7, 2), from_broker, from_memory, reading, warm_up=1
    )
    for name, times in (("projected", projected), ("from memory", alone), ("raw read", read)):
        found.results[f"{events:,} events {name}"] = summary(times)
        found.results[f"events/s {name}"] = round(events / median(times) * 1_000)
    found.ratios["projected / raw read, events/s"] = median(read) / median(projected)
    found.ratios["projected / from memory, events/s"] = median(alone) / median(projected)
    rate = events / median(projected) * 1_000
    found.goals["projection >= 50,000 events/s in bulk"] = rate >= 50_000


async def append(folder: Path, seconds: float) -> int:
    """Append at a steady rate, in a process of its own as agents do; how many events it was."""
    wanted = settings.load({}, data_dir=folder, durability="relaxed")
    broker = await _connect.find_broker(wanted)
    log = await open_log(broker.runtime, WORKSPACE, broker.durability, admin=broker.admin)
    source, began_s, sent = log_of(10**9), time.monotonic(), 0
    while (elapsed_s := time.monotonic() - began_s) < seconds:
        while sent < elapsed_s * LIVE_EVENTS_S:
            each = next(source)
            sent += len(each.commit.events)
            await log.append(each)
        await asyncio.sleep(0.002)
    await log.close()
    await broker.release()
    return sent


async def live(found: Findings, raw: RawWorkspace, folder: Path) -> None:
    """The delay of every event while a projector follows."""
    seconds = sized(20, 3)
    delays_ms: list[float] = []
    batches: list[int] = []
    _, head = await raw.bounds()

    def moved(batch: Batch, _head: int) -> None:
        now_us = time.time() * 1e6
        delays_ms.extend((now_us - row[LOGGED_AT]) / 1e3 for row in batch.rows if row[0] > head)
        batches.append(len(batch.rows))

    projector = await Projector.open(raw, Place.of(folder, WORKSPACE))
    assert projector.store.progress.position == head
    following = asyncio.ensure_future(projector.run(moved=moved))
    await asyncio.sleep(1)  # its consumer stands
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.bench_project", APPEND, str(folder), str(seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(child.communicate(), seconds + LATE_S)
    sent = int(out)
    _, last = await raw.bounds()
    await wait_for(Place.of(folder, WORKSPACE), last, LATE_S)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert len(delays_ms) == sent, (len(delays_ms), sent)
    await projector.close()
    taken = summary(delays_ms)
    found.results["live, from the log to the tables"] = taken
    found.results["live, events/s"] = round(sent / seconds)
    found.results["live, batches/s"] = round(len(batches) / seconds, 1)
    found.goals["p99 lag < 250 ms at 1,000 events/s"] = taken.p99_ms < 250


LOGGED_AT = 10


async def rebuilt(found: Findings, folder: Path, events: int) -> None:
    """`hansard rebuild` as a process: time and peak memory."""
    command = [sys.executable, "-m", "hansard", "rebuild", "--json"]
    env = os.environ | {"HANSARD_DATA_DIR": str(folder), "HANSARD_WORKSPACE": WORKSPACE}
    began_s = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *command, env=env, stdout=asyncio.subprocess.PIPE
    )
    peak_kib = 0
    assert process.stdout is not None
    reading = asyncio.ensure_future(process.stdout.read())
    while not reading.done():
        peak_kib = max(peak_kib, _peak_kib(process.pid))
        await asyncio.wait({reading}, timeout=0.05)
    assert await process.wait() == 0
    took_s = time.perf_counter() - began_s
    told = [json.loads(line) for line in (await reading).splitlines()]
    rows = {line["table"]: line["rows"] for line in told if line["kind"] == "table"}
    assert rows["events"] == events, rows
    made_s = told[-1]["seconds"]
    found.results["rebuild, events"] = events
    found.results["rebuild, s (digests included)"] = round(took_s, 1)
    found.results["rebuild, events/s (digests included)"] = round(events / made_s)
    found.results["rebuild, peak memory MiB"] = round(peak_kib / 1_024)
    size = Place.of(folder, WORKSPACE).path.stat().st_size
    found.results["rebuild, file MiB"] = round(size / 2**20)


def _peak_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has just ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


async def measure(found: Findings) -> None:
    """Fill the log, then ask each question of it."""
    events = 0

    def counted() -> Iterator[Append]:
        nonlocal events
        for each in log_of(sized(1_000_000, 8_000)):
            events += len(each.commit.events)
            yield each

    async with _world.world("relaxed") as place:
        log = await place.log()
        await log.append_bulk(counted())
        say(f"{events:,} events in {await log.head():,} commits")
        raw = await RawWorkspace.open(place.broker.runtime, WORKSPACE)
        scratch = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
        try:
            await bulk(found, raw, scratch)
            await rebuilt(found, place.folder, events)
            await live(found, raw, place.folder)
        finally:
            shutil.rmtree(scratch)
        await raw.close()
        await log.close()


def main() -> int:
    """Measure and report; or append, for the process that does."""
    if APPEND in sys.argv:
        _, folder, seconds = sys.argv[sys.argv.index(APPEND) :]
        print(asyncio.run(append(Path(folder), float(seconds))))
        return 0
    found = Findings()
    asyncio.run(measure(found))
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
