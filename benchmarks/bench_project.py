"""How fast is the log projected into tables, and how far behind are they live?

A log of a real mix (its types are counted in the answer; about 2 events a commit, 0.4 KB an event),
projected from the broker with the tables filled that the mix fills, into a file that has its schema
and is closed, and so checkpointed, in the end; against reading the same messages raw, and against
DuckDB and decoding alone, from memory. Then `hansard rebuild` of the whole log in a process of its
own: its time and peak memory. Then 1,000 events a second live onto those tables: the time from the
log to the committed rows, and to the published ones that SQL is answered from, of each event.
Last, a batch with rows that DuckDB cannot take, against the same without: what each of them costs.
Goals: 50,000 events/s in bulk, p99 under 250 ms live, to both.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from statistics import median

import msgspec

from benchmarks import _world
from benchmarks._report import Findings, say, sized, summary
from benchmarks._runs import appended, log_of, one_run, plans
from benchmarks._team_mix import team_run
from benchmarks._world import WORKSPACE
from hansard import settings
from hansard.bus import subjects
from hansard.bus.commits import encode
from hansard.bus.jetstream import open_log
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.log import Append, RawMessage
from hansard.client import opening
from hansard.domain.events import Actor, Commit, Recorded
from hansard.domain.ids import AgentStream
from hansard.projections.rows import Batch, Rows
from hansard.projections.runner import BATCH_EVENTS_MAX, Projector, project, wait_for
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles

__all__ = ["APPEND", "appended", "log_of", "one_run"]  # what other benchmarks take from here

LIVE_EVENTS_S = 1_000
LATE_S = 30.0
APPEND = "--append"


async def read_raw(raw: RawWorkspace, until: int) -> list[RawMessage]:
    """Every message, and nothing done with it."""
    found: list[RawMessage] = []
    async for chunk in raw.chunks(until=until):
        found += chunk.messages
    assert found[-1].position == until
    return found


def engine_alone(messages: list[RawMessage], path: Path) -> int:
    """Decode and write messages from memory; return the number of events."""
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
    last = (await raw.extent()).last
    until = min(last, sized(150_000, 1_000))
    messages = await read_raw(raw, until)
    made = folder / "made.duckdb"
    Store(made).close()
    events, cpu_s = 0, 0.0
    empty: list[str] = []

    async def from_broker() -> None:
        nonlocal events, cpu_s, empty
        path = folder / "bulk.duckdb"
        shutil.copyfile(made, path)
        before = os.times()
        store = Store(path)
        await project(raw, store, until=until)
        [(events,)] = store.all("SELECT count(*) FROM events")
        empty = [
            name for name in store.tables() if not store.all(f"SELECT count(*) FROM {name}")[0][0]
        ]
        store.close()
        after = os.times()
        cpu_s = after.user + after.system - before.user - before.system
        path.unlink()

    async def from_memory() -> None:
        shutil.copyfile(made, folder / "memory.duckdb")
        await asyncio.to_thread(engine_alone, messages, folder / "memory.duckdb")
        (folder / "memory.duckdb").unlink()

    async def reading() -> None:
        await read_raw(raw, until)

    projected, alone, read = await _world.turns(
        sized(5, 2), from_broker, from_memory, reading, warm_up=1
    )
    for name, times in (("projected", projected), ("from memory", alone), ("raw read", read)):
        found.results[f"{events:,} events {name}"] = summary(times)
        found.results[f"events/s {name}"] = round(events / median(times) * 1_000)
    found.results["CPU us an event projected, last round"] = round(cpu_s / events * 1e6, 1)
    found.ratios["projected / raw read, events/s"] = median(read) / median(projected)
    found.ratios["projected / from memory, events/s"] = median(alone) / median(projected)
    found.results["tables that this mix leaves empty"] = empty
    rate = events / median(projected) * 1_000
    found.goals["projection >= 50,000 events/s in bulk"] = rate >= 50_000


async def append(folder: Path, seconds: float) -> int:
    """Append at a steady rate, in a process of its own as agents do; how many events it was."""
    wanted = settings.load({}, data_dir=folder, durability="relaxed")
    broker = await opening.find_broker(wanted)
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
    """Measure the delay of every event while a projector follows."""
    seconds = sized(20, 2)
    delays_ms: list[float] = []
    batches: list[int] = []
    told: list[tuple[int, float]] = []
    place = TableFiles.of(folder, WORKSPACE)
    head = (await raw.extent()).last

    def moved(batch: Batch, _head: int) -> None:
        now_us = time.time() * 1e6
        new = [(row[0], row[LOGGED_AT]) for row in batch.rows if row[0] > head]
        delays_ms.extend((now_us - logged_us) / 1e3 for _, logged_us in new)
        told.extend(new)
        batches.append(len(batch.rows))

    projector = await Projector.open(raw, place)
    assert projector.store.progress.position == head
    following = asyncio.ensure_future(projector.run(moved=moved))
    published: list[tuple[int, float]] = []
    watching = asyncio.ensure_future(watch(place, published))
    await asyncio.sleep(1)  # its consumer exists
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.bench_project", APPEND, str(folder), str(seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(child.communicate(), seconds + LATE_S)
    sent = int(out)
    last = (await raw.extent()).last
    await wait_for(place, last, LATE_S)
    until_s = time.monotonic() + LATE_S
    while not published or published[-1][0] < last:
        assert time.monotonic() < until_s, (published[-1:], last)
        await asyncio.sleep(0.01)
    for task in (following, watching):
        task.cancel()
    await asyncio.gather(following, watching, return_exceptions=True)
    assert len(delays_ms) == sent, (len(delays_ms), sent)
    await projector.close()
    taken = summary(delays_ms)
    positions = [position for position, _ in published]
    times_us = [time_us for _, time_us in published]
    shown = summary([(times_us[bisect_left(positions, at)] - us) / 1e3 for at, us in told])
    found.results["live, from the log to the tables"] = taken
    found.results["live, from the log to what SQL is answered from"] = shown
    found.results["live, publications/s"] = round(len(published) / seconds, 1)
    found.results["live, events/s"] = round(sent / seconds)
    found.results["live, batches/s"] = round(len(batches) / seconds, 1)
    found.goals["p99 lag < 250 ms at 1,000 events/s, tables"] = taken.p99_ms < 250
    found.goals["p99 lag < 250 ms at 1,000 events/s, published"] = shown.p99_ms < 250


async def watch(place: TableFiles, published: list[tuple[int, float]]) -> None:
    """For ever: when which position was published (us since 1970), 5 ms too late at most."""
    while True:
        status = place.status()
        if status is not None and (not published or status.published > published[-1][0]):
            published.append((status.published, time.time() * 1e6))
        await asyncio.sleep(0.005)


LOGGED_AT = 10


def with_bad(many: int, bad: int) -> list[RawMessage]:
    """Return commits of one event each, some with a number that no column takes."""
    each = many // max(1, bad)
    found: list[RawMessage] = []
    for number in range(many):
        is_bad = bad and number % each == each // 2
        step = 2**70 if is_bad else number
        data = msgspec.Raw(b'{"step":%d,"rule":"r","reason":"x"}' % step)
        stream = AgentStream(f"run {number // 20}", "r", "a")
        commit = Commit(
            id=f"commit {number}",
            version=number % 20 + 1,
            at=datetime(2026, 1, 1, tzinfo=UTC),
            actor=Actor("a"),
            epoch=1,
            events=(Recorded("step.blocked.v1", f"event {number}", data),),
        )
        subject = subjects.subject(WORKSPACE, stream, commit.version)
        body = encode(stream, commit)
        found.append(RawMessage(number + 1, (number + 1) * 1_000_000, subject, body))
    return found


def bad_rows(found: Findings, folder: Path) -> None:
    """One batch from memory with more and more rows that cannot be taken."""
    many = sized(BATCH_EVENTS_MAX, 200)
    sound_s = 0.0
    for bad in (0, 1, 10, 100) if sized(1, 0) else (0, 1, 2):
        messages, path = with_bad(many, bad), folder / f"bad-{bad}.duckdb"
        Store(path).close()
        began_s = time.perf_counter()
        assert engine_alone(messages, path) == many
        took_s = time.perf_counter() - began_s
        store = Store(path, read_only=True)
        assert store.all("SELECT count(*) FROM problems") == [(bad,)]
        store.close()
        path.unlink()
        found.results[f"a batch of {many:,} events, {bad} of them bad, ms"] = round(took_s * 1e3)
        if not bad:
            sound_s = took_s
            continue
        found.ratios[f"{bad} bad of {many:,} / none"] = took_s / sound_s
        found.results[f"ms a bad row, of {bad}"] = round((took_s - sound_s) * 1e3 / bad)


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
    size = TableFiles.of(folder, WORKSPACE).path.stat().st_size
    found.results["rebuild, file MiB"] = round(size / 2**20)


def _peak_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:  # it has just ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


async def measure(found: Findings) -> None:
    """Fill the log, then ask each question of it."""
    events, types = 0, Counter[str]()

    def counted() -> Iterator[Append]:
        nonlocal events
        for each in chain(plans(), team_run(), log_of(sized(1_000_000, 1_000))):
            events += len(each.commit.events)
            types.update(event.type for event in each.commit.events)
            yield each

    async with _world.world("relaxed") as place:
        log = await place.log()
        await log.append_bulk(counted())
        found.results["events by type"] = dict(types.most_common())
        say(f"{events:,} events in {await log.head():,} commits")
        raw = await RawWorkspace.open(place.broker.runtime, WORKSPACE)
        scratch = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
        try:
            await bulk(found, raw, scratch)
            await rebuilt(found, place.folder, events)
            await live(found, raw, place.folder)
            bad_rows(found, scratch)
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
