"""How fast is the whole log read from its beginning?

`follow(0, until=head)`, which decodes every commit and checks body against subject, against
nats-py's ordered consumer that only counts the messages of the same stream. They take turns. Goal:
at least half of raw.
"""

from __future__ import annotations

import asyncio
from statistics import median

from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy

from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from hansard.bus import subjects

STREAMS = 200
RAW_TIMEOUT_S = 120.0


async def measure(found: Findings) -> None:
    """Fill a log, then read it in turns."""
    commits, rounds = sized(100_000, 4_000), sized(5, 2)
    async with _world.world("relaxed") as place:
        log = await place.log()
        each = commits // STREAMS
        filler = [
            _world.appends(_world.agent_stream(f"a{number}"), 1, each) for number in range(STREAMS)
        ]
        await log.append_bulk(_world.shuffled(filler, [each] * STREAMS, seed=1))
        head = await log.head()
        assert head == commits
        nc = await place.raw()
        js = nc.jetstream()

        async def ours() -> None:
            seen = 0
            async for _ in log.follow(0, until=head):
                seen += 1
            assert seen == commits

        async def raw() -> None:
            ended = asyncio.get_running_loop().create_future()
            seen = 0

            async def take(_: Msg) -> None:
                nonlocal seen
                seen += 1
                if seen == commits:
                    ended.set_result(None)

            subscription = await js.subscribe(
                f"{subjects.workspace_prefix(_world.WORKSPACE)}.>",
                stream=subjects.log_stream(_world.WORKSPACE),
                ordered_consumer=True,
                cb=take,
                config=ConsumerConfig(deliver_policy=DeliverPolicy.ALL),
            )
            await asyncio.wait_for(ended, RAW_TIMEOUT_S)
            await subscription.unsubscribe()

        followed, counted = await _world.turns(rounds, ours, raw)
        await nc.close()
        await log.close()
    for name, taken in (("follow", followed), ("raw ordered consumer", counted)):
        found.results[f"{name}: {commits:,} commits of 1 KB"] = summary(taken)
        found.results[f"{name}: commits/s"] = round(commits / median(taken) * 1_000)
    speed = median(counted) / median(followed)
    found.ratios["speed of follow / raw ordered consumer"] = speed
    found.goals["full replay >= 0.5 of a raw ordered consumer"] = speed >= 0.5


if __name__ == "__main__":
    benchmark(measure, __doc__)
