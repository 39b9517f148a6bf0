"""What does it cost to load one aggregate whose commits lie dispersed in a large log?

10, 100 and 1,000 commits of 1 KB among 200,000 of other streams: `JetStreamLog.read`, which decodes
and checks each commit, against the plain `multi_last` request that nats-py users write (it decodes
nothing), and against the SQLite recorder of the eventsourcing library holding the same rows. They
take turns. Goal: at most twice raw.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from uuid import UUID, uuid5

from eventsourcing.persistence import StoredEvent
from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore
from nats.aio.client import Client

from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from hansard.bus import subjects
from hansard.bus.jetstream import JetStreamLog
from hansard.domain.ids import AgentStream

SIZES = (10, 100, 1_000)
LENGTH = 100
"""Commits of each of the other streams."""

NAMESPACE = UUID(int=7)


def filled(others: int) -> tuple[list[str], list[int]]:
    """Names and lengths of all streams."""
    names = [f"size{size}" for size in SIZES] + [f"other{number}" for number in range(others)]
    return names, [*SIZES, *[LENGTH] * others]


def sqlite(folder: Path, others: int) -> tuple[SQLiteDatastore, SQLiteApplicationRecorder]:
    """Write the same rows, as dispersed, to eventsourcing's SQLite recorder."""
    store = SQLiteDatastore(str(folder / "events.sqlite"))
    recorder = SQLiteApplicationRecorder(store)
    recorder.create_table()
    body = _world.text(1_024).encode()

    def rows(name: str, length: int) -> Iterator[StoredEvent]:
        key = uuid5(NAMESPACE, name)
        for version in range(1, length + 1):
            yield StoredEvent(key, version, "step.completed", body)

    names, lengths = filled(others)
    lists = [rows(name, length) for name, length in zip(names, lengths, strict=True)]
    every = _world.shuffled(lists, lengths, seed=1)
    while batch := list(islice(every, 1_000)):
        recorder.insert_events(batch)
    return store, recorder


async def ours(log: JetStreamLog, stream: AgentStream, size: int) -> None:
    """Load with all checks."""
    assert len(await log.read(stream)) == size


async def raw(nc: Client, request: dict[str, list[str]], size: int) -> None:
    """Make the plain request."""
    name = subjects.log_stream(_world.WORKSPACE)
    assert len(await _world.direct(nc, name, request)) == size


async def rows(recorder: SQLiteApplicationRecorder, key: UUID, size: int) -> None:
    """Read the rows from SQLite."""
    assert len(recorder.select_events(key)) == size


async def measure(found: Findings) -> None:
    """Fill both stores, then load in turns."""
    others, rounds = sized(2_000, 20), sized(60, 3)
    async with _world.world("relaxed") as place:
        log = await place.log()
        names, lengths = filled(others)
        lists = [
            _world.appends(_world.agent_stream(name), 1, length)
            for name, length in zip(names, lengths, strict=True)
        ]
        await log.append_bulk(_world.shuffled(lists, lengths, seed=1))
        found.results["commits in the log"] = await log.head()
        store, recorder = await asyncio.to_thread(sqlite, place.folder, others)
        nc = await place.raw()
        for size in SIZES:
            stream = _world.agent_stream(f"size{size}")
            request = {"multi_last": [f"{subjects.prefix(_world.WORKSPACE, stream)}.*"]}
            key = uuid5(NAMESPACE, f"size{size}")

            loaded, asked, selected = await _world.turns(
                rounds,
                partial(ours, log, stream, size),
                partial(raw, nc, request, size),
                partial(rows, recorder, key, size),
                warm_up=3,
            )
            found.results[f"read, {size} commits"] = summary(loaded)
            found.results[f"raw multi_last, {size} commits"] = summary(asked)
            found.results[f"eventsourcing SQLite, {size} events"] = summary(selected)
            ratio = median(loaded) / median(asked)
            found.ratios[f"read / raw multi_last, {size}"] = ratio
            found.ratios[f"read / eventsourcing SQLite, {size}"] = median(loaded) / median(selected)
            found.goals[f"load of {size} <= 2 of raw"] = ratio <= 2
        store.close()
        await nc.close()
        await log.close()


if __name__ == "__main__":
    benchmark(measure, __doc__)
