"""How many updates a second does one key of shared state take from 8 and from 50 processes at once?

As `bench_board`, but each writer is a process of its own with its own connection, so that none of
them can go in one batch with another: by version with a resolver, by a counter, and in plain
JetStream by plain nats-py. Each process does its share of all three, one after the other; a round
ends with its last process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Generator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import nats

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, quick, say, sized
from benchmarks.bench_board import by_counter, by_version, raw_stream, raw_update, speeds

PROCESSES = (8, 50)
UPDATES = 400
"""Updates of a round, over all processes."""

START_S = 120.0
"""Longest wait of a process for the others: 50 of them start on two cores."""

KINDS = ("by version", "by counter", "plain")


class Job(msgspec.Struct, frozen=True):
    """Work of a process. `login` is url, user and password of the plain connection."""

    folder: Path
    run: str
    name: str
    each: int
    rounds: int
    stream: str
    login: tuple[str, str, str]


async def work(job: Job, barrier: Any, told: Any) -> None:
    """Do every kind in every round; report begin, end and lost races."""
    url, user, password = job.login
    nc = await nats.connect(url, user=user, password=password)
    async with (
        hansard.connect_async("bench", data_dir=job.folder) as record,
        record.run("bench", run=job.run, agent=job.name, role="writer") as session,
    ):
        for number in range(job.rounds):
            for kind in KINDS:
                key, lost, seen = f"{job.run}-{kind[3]}{number}", 0, [0, 0]
                await asyncio.to_thread(barrier.wait, START_S)
                began_s = time.perf_counter()
                for _ in range(job.each):
                    match kind:
                        case "by version":
                            seen[0] = await by_version(session, key, seen[0])
                        case "by counter":
                            await by_counter(session, key, 0)
                        case _:
                            lost += await raw_update(nc, job.stream, f"bench.key.{key}", seen)
                told.put((kind, number, began_s, time.perf_counter(), lost))
                await asyncio.to_thread(barrier.wait, START_S)
                if kind != "plain" and job.name == "p0":
                    stands = await session.board.get(key)
                    assert stands == barrier.parties * job.each, f"{key}: an update was lost"
    await nc.close()


def child(job: Job, barrier: Barrier, told: Any) -> None:
    """Run the work of one process."""
    asyncio.run(work(job, barrier, told))


@contextmanager
def running(jobs: list[Job]) -> Generator[Any, None, None]:
    """Yield a queue of results of the running processes."""
    context = multiprocessing.get_context("spawn")
    barrier, told = context.Barrier(len(jobs)), context.Queue()
    children = [context.Process(target=child, args=(job, barrier, told)) for job in jobs]
    try:
        for each in children:
            each.start()
        yield told
        for each in children:
            each.join()
            assert each.exitcode == 0, "a process failed: its error stands above"
    finally:
        for each in children:
            each.kill()


def compare(found: Findings, place: _world.World, stream: str, processes: int) -> None:
    """One number of processes."""
    admin = place.broker.admin
    assert admin is not None
    login = (admin.urls[0], admin.user or "", admin.password or "")
    each, rounds = sized(max(4, UPDATES // processes), 2), sized(4, 1)
    jobs = [
        Job(place.folder, f"processes-{processes}", f"p{n}", each, rounds, stream, login)
        for n in range(processes)
    ]
    with running(jobs) as told:
        lines = [told.get(timeout=3 * START_S) for _ in range(processes * rounds * len(KINDS))]
    first = 0 if rounds == 1 else 1
    times = {
        kind: [
            max(line[3] for line in lines if line[:2] == (kind, number))
            - min(line[2] for line in lines if line[:2] == (kind, number))
            for number in range(first, rounds)
        ]
        for kind in KINDS
    }
    updates = processes * each
    for kind in KINDS:
        found.results[f"{processes} processes, {kind}"] = speeds(updates, times[kind])
    lost = sum(line[4] for line in lines)
    found.results[f"{processes} processes, plain: lost races an update"] = round(
        lost / updates / rounds, 2
    )
    for kind in KINDS[:2]:
        pairs = [plain / ours for ours, plain in zip(times[kind], times["plain"], strict=True)]
        found.ratios[f"{processes} processes, {kind}: speed / plain"] = median(pairs)


async def measure(found: Findings) -> None:
    """All numbers of processes on one server."""
    async with _world.world("strict") as place:
        nc = await place.raw()
        stream = await raw_stream(nc)
        async with hansard.connect_async("bench", data_dir=place.folder):
            for processes in (2,) if quick() else PROCESSES:
                await asyncio.to_thread(compare, found, place, stream, processes)
                say(f"{processes} processes done")
        await nc.close()


if __name__ == "__main__":
    benchmark(measure, __doc__)
