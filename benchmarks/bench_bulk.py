"""How fast are many commits imported?

`JetStreamLog.append_bulk` (which also encodes each commit) against raw atomic batches of 1,000 of
the same bytes with the same header: as nats-py users write them (`publish` 999 times, `request`
once), and with every message rendered beforehand, which is what the wire and the server allow.
The three take turns on one strict server, each into streams of its own. Goal: at least half of
raw.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median
from uuid import uuid4

import msgspec
from nats.aio.client import Client

from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._world import EXPECT_FREE
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Known, publish_all
from hansard.bus.jetstream.wire import FIRST
from hansard.bus.log import Append

BATCH = 1_000
STREAMS = 50
"""Streams that an import goes to in turn, as an import of many runs does."""

Message = tuple[str, bytes]


def prepared(round_: str, commits: int) -> list[Append]:
    """Return the commits of one round, its streams in turns."""
    streams = [_world.agent_stream(f"{round_}-{number}") for number in range(STREAMS)]
    each = commits // STREAMS
    made = [list(_world.appends(stream, 1, each)) for stream in streams]
    return [made[index][version] for version in range(each) for index in range(STREAMS)]


async def raw_batches(nc: Client, messages: list[Message]) -> None:
    """Atomic batches with plain nats-py."""
    for start in range(0, len(messages), BATCH):
        batch = messages[start : start + BATCH]
        headers = {"Nats-Batch-Id": uuid4().hex, **EXPECT_FREE}
        for number, (subject, body) in enumerate(batch[:-1], 1):
            headers["Nats-Batch-Sequence"] = str(number)
            await nc.publish(subject, body, headers=headers)
        subject, body = batch[-1]
        end = {**headers, "Nats-Batch-Sequence": str(len(batch)), "Nats-Batch-Commit": "1"}
        answer = await nc.request(subject, body, timeout=30, headers=end)
        assert msgspec.json.decode(answer.data).get("count") == len(batch), answer.data


async def rendered_batches(broker: Broker, messages: list[Message]) -> None:
    """Atomic batches with nothing left to do but to send them."""
    for start in range(0, len(messages), BATCH):
        batch = [(subject, body, FIRST) for subject, body in messages[start : start + BATCH]]
        await publish_all(broker, batch, Known())


async def measure(found: Findings) -> None:
    """Take turns: ours, raw, rendered."""
    commits, rounds = sized(20_000, 2_000), sized(7, 2)
    async with _world.world("strict") as place:
        log = await place.log()
        nc = await place.raw()
        await _world.raw_stream(nc)
        assert place.broker.admin is not None
        broker = await Broker.open(place.broker.admin)
        times: dict[str, list[float]] = {"append_bulk": [], "raw": [], "rendered": []}
        for number in range(-1, rounds):
            ours = prepared(f"ours{number}", commits)
            raws = [_world.raw_message(each) for each in prepared(f"raw{number}", commits)]
            rendered = [_world.raw_message(each) for each in prepared(f"own{number}", commits)]
            works: dict[str, Callable[[], Awaitable[object]]] = {
                "append_bulk": partial(log.append_bulk, ours),
                "raw": partial(raw_batches, nc, raws),
                "rendered": partial(rendered_batches, broker, rendered),
            }
            for name, work in works.items():
                took, result = await _world.timed(work)
                assert name != "append_bulk" or result == commits
                if number >= 0:
                    times[name].append(took)
        await broker.close()
        await nc.close()
        await log.close()
    for name, taken in times.items():
        found.results[f"{name}: {commits:,} commits of 1 KB"] = summary(taken)
        found.results[f"{name}: commits/s"] = round(commits / median(taken) * 1_000)
    for name in ("raw", "rendered"):
        speed = median(times[name]) / median(times["append_bulk"])
        found.ratios[f"speed of append_bulk / {name} batches"] = speed
        found.goals[f"append_bulk >= 0.5 of {name} batches of 1,000"] = speed >= 0.5


if __name__ == "__main__":
    benchmark(measure, __doc__)
