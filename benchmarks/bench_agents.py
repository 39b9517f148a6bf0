"""How many commits a second do many agents at once get through, when an ack means on disk?

1, 8, 64 and 256 agents in one process, each with a stream of its own and one awaited append at a
time, against as many plain publishers (nats-py `js.publish`, one message each) of the same bytes
with the same header on the same strict server, in turns; then 8 processes of 8 agents each, the
same way. Goal: 64 agents at least three times the speed of one publish each.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median

import msgspec
import nats
from nats.js import JetStreamContext

from benchmarks import _world
from benchmarks._report import QUICK_FLAG, Findings, quick, sized
from benchmarks._world import EXPECT_FREE, World
from hansard.bus.jetstream import BrokerOptions, JetStreamLog, open_log
from hansard.bus.log import Append

CHILD_FLAG = "--child"
PROCESSES = 8
AGENTS_EACH = 8

Work = Callable[[int], Awaitable[float]]
"""Runs a round of a number and returns its seconds."""


class Login(msgspec.Struct):
    """Parameters of a child, sent over its stdin. `number` identifies the child."""

    number: int
    url: str
    user: str
    password: str
    appends: int


async def run_ours(log: JetStreamLog, prefix: str, agents: int, each: int) -> float:
    """Seconds for all agents' appends, side by side."""
    streams = [_world.agent_stream(f"{prefix}-{number}") for number in range(agents)]
    todo = [list(_world.appends(stream, 1, each)) for stream in streams]

    async def agent(appends: list[Append]) -> None:
        for append in appends:
            await log.append(append)

    start = time.perf_counter()
    await asyncio.gather(*map(agent, todo))
    return time.perf_counter() - start


async def run_raw(js: JetStreamContext, prefix: str, agents: int, each: int) -> float:
    """Seconds for as many plain publishers."""
    streams = [_world.agent_stream(f"{prefix}-{number}") for number in range(agents)]
    todo = [list(map(_world.raw_message, _world.appends(stream, 1, each))) for stream in streams]

    async def agent(messages: list[tuple[str, bytes]]) -> None:
        for subject, body in messages:
            await js.publish(subject, body, headers=EXPECT_FREE, timeout=60)

    start = time.perf_counter()
    await asyncio.gather(*map(agent, todo))
    return time.perf_counter() - start


async def in_turns(rounds: int, ours: Work, raw: Work) -> tuple[list[float], list[float]]:
    """Seconds of each round of both, after one that does not count."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for kept, work in zip(times, (ours, raw), strict=True):
            took = await work(number)
            if number:
                kept.append(took)
    return times


def speeds(commits: int, times: list[float]) -> dict[str, float]:
    """Return commits a second: median and spread over the rounds."""
    made = sorted(commits / taken for taken in times)
    return {
        "rounds": len(made),
        "commits_s_median": round(median(made)),
        "commits_s_min": round(made[0]),
        "commits_s_max": round(made[-1]),
    }


async def one_process(place: World, found: Findings) -> None:
    """1 to 256 agents."""
    log = await place.log()
    nc = await place.raw()
    await _world.raw_stream(nc)
    js = nc.jetstream()
    for agents in (1, 8, 64, 256):
        each = sized(max(16, 4_096 // agents), 2) if agents > 1 else sized(400, 20)

        async def ours(number: int, agents: int = agents, each: int = each) -> float:
            return await run_ours(log, f"{agents}-{number}", agents, each)

        async def raw(number: int, agents: int = agents, each: int = each) -> float:
            return await run_raw(js, f"{agents}-{number}", agents, each)

        mine, theirs = await in_turns(sized(7, 1), ours, raw)
        name = f"{agents} agent{'s' if agents > 1 else ''}, one process"
        _note(found, name, agents * each, mine, theirs)
    await nc.close()
    await log.close()
    ratio = found.ratios["64 agents, one process: speed / one publish each"]
    found.goals["64 agents >= 3 of one publish each"] = ratio >= 3


async def many_processes(place: World, found: Findings) -> None:
    """8 processes of 8 agents."""
    admin = place.broker.admin
    assert admin is not None
    assert admin.user is not None
    assert admin.password is not None
    each = sized(100, 5)
    children = [await _child() for _ in range(PROCESSES)]
    try:
        for number, child in enumerate(children):
            login = Login(number, admin.urls[0], admin.user, admin.password, each)
            await _tell(child, msgspec.json.encode(login))
        for child in children:
            await _hear(child)

        async def all_of(kind: str, number: int) -> float:
            start = time.perf_counter()
            for child in children:
                await _tell(child, f"{kind} {number}".encode())
            for child in children:
                await _hear(child)
            return time.perf_counter() - start

        mine, theirs = await in_turns(
            sized(5, 1), lambda n: all_of("ours", n), lambda n: all_of("raw", n)
        )
    finally:
        for child in children:
            assert child.stdin is not None
            child.stdin.close()
        for child in children:
            await child.wait()
    total = PROCESSES * AGENTS_EACH * each
    _note(found, f"{PROCESSES} processes of {AGENTS_EACH} agents", total, mine, theirs)


def _note(found: Findings, name: str, commits: int, mine: list[float], theirs: list[float]) -> None:
    found.results[name] = speeds(commits, mine)
    found.results[f"{name}, one publish each"] = speeds(commits, theirs)
    pairs = sorted(raw / ours for ours, raw in zip(mine, theirs, strict=True))
    found.ratios[f"{name}: speed / one publish each"] = median(pairs)
    found.results[f"{name}: that ratio, round by round"] = [round(each, 2) for each in pairs]


async def _child() -> asyncio.subprocess.Process:
    flags = [CHILD_FLAG, *([QUICK_FLAG] if quick() else [])]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.bench_agents",
        *flags,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def _tell(child: asyncio.subprocess.Process, line: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(line + b"\n")
    await child.stdin.drain()


async def _hear(child: asyncio.subprocess.Process) -> None:
    assert child.stdout is not None
    line = await child.stdout.readline()
    assert line == b"done\n", f"a child said {line!r}"


async def as_child() -> None:
    """Run the commands of stdin line by line, until its end."""
    told = msgspec.json.decode(sys.stdin.readline(), type=Login)
    options = BrokerOptions(urls=(told.url,), user=told.user, password=told.password)
    log = await open_log(options, _world.WORKSPACE, "strict")
    nc = await nats.connect(told.url, user=told.user, password=told.password)
    js = nc.jetstream()
    print("done", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        kind, number = line.split()
        prefix = f"process{told.number}-{number}"
        if kind == "ours":
            await run_ours(log, prefix, AGENTS_EACH, told.appends)
        else:
            await run_raw(js, prefix, AGENTS_EACH, told.appends)
        print("done", flush=True)
    await nc.close()
    await log.close()


async def measure(found: Findings) -> None:
    """Both on one server."""
    async with _world.world("strict") as place:
        await one_process(place, found)
        await many_processes(place, found)


def main() -> int:
    """Measure and report, or be one of the 8 processes."""
    if CHILD_FLAG in sys.argv[1:]:
        asyncio.run(as_child())
        return 0
    found = Findings()
    asyncio.run(measure(found))
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
