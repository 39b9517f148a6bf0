"""How many updates a second does one key of shared state take, from 1, 8 and 50 writers at once?

Writers of one process change one key of a run on a strict server: by version with a resolver (each
put is one more than the current value), and by a counter, which commutes. Against the same loop in
plain JetStream by plain nats-py: the last value of one subject, published with
`Nats-Expected-Last-Subject-Sequence`, read again and sent again after each lost race. An update of
ours is the agent's intent, the key's commit and the outcome, or for several writers at once all of
it in one atomic batch, so that it is made once despite kills; the plain one is one message, without
its writer. In turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from statistics import median

from nats.aio.client import Client
from nats.js.errors import APIError

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, say, sized
from hansard.client.record import AsyncRecord
from hansard.client.session import AsyncSession

WRITERS = (1, 8, 50)
LOST_RACES = (10071, 10164)
"""The server's codes for another last sequence than the expected one."""

Update = Callable[[AsyncSession, str, int], Awaitable[int]]
"""Update of a key from the writer's last known value, 0 at first; gives the current value."""


async def by_version(session: AsyncSession, key: str, seen: int) -> int:
    """Add one by version, with a resolver after a lost race; return the new value.

    Each put adds one, so its version equals the value.
    """
    return await session.board.put(key, seen + 1, resolve=lambda _, theirs: (theirs or 0) + 1)


async def by_counter(session: AsyncSession, key: str, _seen: int) -> int:
    """Add one, whatever others write."""
    return await session.board.add(key)


async def raw_update(nc: Client, stream: str, subject: str, seen: list[int]) -> int:
    """Add one by plain nats-py; return the number of lost races. `seen` holds the last sequence and
    value that this writer knows.
    """
    js = nc.jetstream()
    lost = 0
    while True:
        header = {"Nats-Expected-Last-Subject-Sequence": str(seen[0])}
        try:
            ack = await js.publish(subject, str(seen[1] + 1).encode(), headers=header, timeout=60)
        except APIError as error:
            if error.err_code not in LOST_RACES:
                raise
            lost += 1
            [message] = await _world.direct(nc, stream, {"multi_last": [subject]})
            assert message.headers is not None
            seen[:] = [int(message.headers["Nats-Sequence"]), int(message.data)]
        else:
            seen[:] = [ack.seq, seen[1] + 1]
            return lost


async def raw_stream(nc: Client) -> str:
    """Create a stream that keeps the last message of each subject, as key-value stores are made."""
    config = {
        "name": "bench-key",
        "subjects": ["bench.key.>"],
        "storage": "file",
        "max_msgs_per_subject": 1,
        "allow_direct": True,
    }
    await _world.api(nc, "STREAM.CREATE.bench-key", config)
    return "bench-key"


async def run_ours(sessions: list[AsyncSession], update: Update, key: str, each: int) -> float:
    """Seconds for all writers' updates, side by side."""

    async def writer(session: AsyncSession) -> None:
        seen = 0
        for _ in range(each):
            seen = await update(session, key, seen)

    start = time.perf_counter()
    await asyncio.gather(*map(writer, sessions))
    took = time.perf_counter() - start
    assert await sessions[0].board.get(key) == len(sessions) * each, "an update was lost"
    return took


async def run_raw(nc: Client, stream: str, key: str, writers: int, each: int) -> tuple[float, int]:
    """Seconds for as many plain writers, and the races they lost."""
    subject = f"bench.key.{key}"

    async def writer() -> int:
        seen = [0, 0]
        return sum([await raw_update(nc, stream, subject, seen) for _ in range(each)])

    start = time.perf_counter()
    lost = sum(await asyncio.gather(*(writer() for _ in range(writers))))
    took = time.perf_counter() - start
    [message] = await _world.direct(nc, stream, {"multi_last": [subject]})
    assert int(message.data) == writers * each, "an update was lost"
    return took, lost


def speeds(updates: int, times: list[float]) -> dict[str, float]:
    """Return updates a second: median and spread over the rounds."""
    made = sorted(updates / taken for taken in times)
    return {
        "rounds": len(made),
        "updates_s_median": round(median(made)),
        "updates_s_min": round(made[0]),
        "updates_s_max": round(made[-1]),
    }


async def compare(record: AsyncRecord, nc: Client, stream: str, writers: int) -> Findings:
    """One number of writers: both of ours and the plain one, in turns."""
    found = Findings()
    each = sized(max(8, 240 // writers), 2)
    names = ("by version", "by counter", "plain")
    times: dict[str, list[float]] = {name: [] for name in names}
    lost = 0
    async with contextlib.AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(
                record.run("bench", run=f"writers-{writers}", agent=f"a{number}", role="writer")
            )
            for number in range(writers)
        ]
        for number in range(sized(5, 1) + 1):
            key = f"{writers}-{number}"
            took = {
                "by version": await run_ours(sessions, by_version, f"v{key}", each),
                "by counter": await run_ours(sessions, by_counter, f"c{key}", each),
            }
            took["plain"], races = await run_raw(nc, stream, key, writers, each)
            if number:
                lost += races
                for name in names:
                    times[name].append(took[name])
    updates = writers * each
    label = f"{writers} writer{'s' if writers > 1 else ''}"
    for name in names:
        found.results[f"{label}, {name}"] = speeds(updates, times[name])
    found.results[f"{label}, plain: lost races an update"] = round(
        lost / updates / len(times["plain"]), 2
    )
    for name in names[:2]:
        pairs = [plain / ours for ours, plain in zip(times[name], times["plain"], strict=True)]
        found.ratios[f"{label}, {name}: speed / plain"] = median(pairs)
    return found


async def measure(found: Findings) -> None:
    """All numbers of writers on one server."""
    async with _world.world("strict") as place:
        nc = await place.raw()
        stream = await raw_stream(nc)
        async with hansard.connect_async("bench", data_dir=place.folder) as record:
            for writers in WRITERS:
                one = await compare(record, nc, stream, writers)
                found.results |= one.results
                found.ratios |= one.ratios
                say(f"{writers} writers done")
        await nc.close()


if __name__ == "__main__":
    benchmark(measure, __doc__)
