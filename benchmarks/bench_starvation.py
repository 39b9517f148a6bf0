"""How much longer do others wait while one principal burns resources?

`hansard up` as a process, on a strict server. One principal burns from a process of its own, which
is niced, since it represents another machine: endless questions in SQL, views of a long run, or
messages, as many at once as it can. Meanwhile another asks for a view, states a message, and makes
a query in SQL, one after the other. The same without anybody who burns, in turns.

Each operation is repeated up to its number of rounds or its time. With fewer than a hundred rounds
the longest is reported instead of the p99: so with SQL, where one query takes seconds under load.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import hansard
from benchmarks import _world
from benchmarks._report import Findings, say, sized, summary
from benchmarks.bench_service import login, service
from hansard.client.session import AsyncCommonSession

BURN = "--burn"
AT_ONCE = {"SQL": 24, "views": 24, "messages": 64}
"""Kinds of load, and concurrent requests of each."""

ENDLESS = "SELECT count(*) FROM range(1000000) a(i), range(1000000) b(i) WHERE a.i * b.i = 3"
LONG_RUN = "long"
SETTLE_S = 12.0
"""Seconds after a load; requests in flight end after 10 s without a sign of life."""

BURNS = "burns"
"""Line that the load prints as it begins, which takes time on a busy machine."""

TIME_S_MAX = 6.0
"""Longest time of an operation in one turn, in seconds: all turns together take under four
minutes.
"""

ROUNDS_P99_MIN = 100
"""Least number of rounds for a p99; with fewer the longest is compared."""

WARM_S = 2.0
"""After so long all that it asks at once is under way."""


async def burn(kind: str, place: Path) -> None:
    """Ask for ever, whatever is answered."""
    os.nice(19)
    connected: Any = hansard.connect_async(credentials=place)  # a restricted record has SQL
    async with connected as record, record.run("burn") as session:
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "SQL": lambda: record.sql(ENDLESS),
            "views": lambda: record.roles.view(LONG_RUN),
            "messages": lambda: session.message("user", "x" * 1_000),
        }

        async def on() -> None:
            while True:
                with contextlib.suppress(hansard.HansardError):
                    await works[kind]()

        print(BURNS, flush=True)
        await asyncio.gather(*(on() for _ in range(AT_ONCE[kind])))


@contextlib.asynccontextmanager
async def burning(kind: str, place: Path) -> AsyncGenerator[None, None]:
    """Run a load during the block, started before it begins."""
    command = [sys.executable, "-m", "benchmarks.bench_starvation", BURN, kind, str(place)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert (await process.stdout.readline()).decode().strip() == BURNS
        await asyncio.sleep(WARM_S)
        assert process.returncode is None
        yield
        assert process.returncode is None
    finally:
        process.kill()
        await process.wait()


async def asked(record: Any, session: AsyncCommonSession) -> dict[str, list[float]]:
    """Return the milliseconds of each operation of the other principal."""
    works: dict[str, tuple[int, Callable[[], Awaitable[object]]]] = {
        "a view": (sized(100, 3), lambda: record.roles.view("short")),
        "a message": (sized(400, 3), lambda: session.message("user", "hi")),
        "SQL": (sized(4, 1), lambda: record.sql("SELECT 1 AS one")),
    }
    found: dict[str, list[float]] = {}
    for what, (count, work) in works.items():
        until = time.perf_counter() + TIME_S_MAX
        for _ in range(count):
            began = time.perf_counter()
            await work()
            ended = time.perf_counter()
            found.setdefault(what, []).append((ended - began) * 1_000)
            if ended > until:
                break
    return found


async def fill(folder: Path) -> None:
    """Record a long run to view, and a short one."""
    async with hansard.connect_async("bench", data_dir=folder) as record:
        for run, count in ((LONG_RUN, sized(2_000, 20)), ("short", 3)):
            async with record.run("bench", run=run, agent="eve", role="writer") as session:
                for number in range(count):
                    await session.message("user", f"message {number} " + "x" * 500)


async def measure(found: Findings) -> None:
    """Measure alone and under each load, in turns."""
    times: dict[str, dict[str, list[float]]] = {}
    async with (
        _world.world("strict") as place,
        service(place.folder) as ada,
        hansard.connect_async(credentials=ada) as record,
        record.run("bench") as session,
    ):
        await fill(place.folder)
        burner = await login(place.folder, "burner")
        for turn in range(sized(2, 1)):
            for kind in ("nobody", *AT_ONCE):
                async with contextlib.AsyncExitStack() as stack:
                    if kind != "nobody":
                        await stack.enter_async_context(burning(kind, burner))
                    taken = await asked(record, session)
                for what, each in taken.items():
                    times.setdefault(what, {}).setdefault(kind, []).extend(each)
                if kind != "nobody":
                    await asyncio.sleep(sized(int(SETTLE_S), 0))
                say(f"turn {turn + 1}, {kind} done")
    for what, by_kind in times.items():
        _compare(found, what, by_kind)


def _compare(found: Findings, what: str, by_kind: dict[str, list[float]]) -> None:
    """Compare an operation's times under each load with those alone."""
    alone = summary(by_kind["nobody"])
    tells = min(map(len, by_kind.values())) >= ROUNDS_P99_MIN
    worst = "p99" if tells else "longest"
    for kind, all_ms in by_kind.items():
        result = summary(all_ms)
        found.results[f"{what}, {kind} burnt"] = result
        if kind == "nobody":
            continue
        ratio = result.p99_ms / alone.p99_ms if tells else result.max_ms / alone.max_ms
        found.ratios[f"{what}: {worst} while {kind} burn / alone"] = ratio
        middle = result.median_ms / alone.median_ms
        found.ratios[f"{what}: median while {kind} burn / alone"] = middle
        found.goals[f"{what} beside {kind}: {worst} within 3 times"] = ratio <= 3


def main() -> int:
    """Measure and report."""
    if BURN in sys.argv:
        kind, place = sys.argv[sys.argv.index(BURN) + 1 :]
        asyncio.run(burn(kind, Path(place)))
        return 0
    found = Findings()
    asyncio.run(measure(found))
    found.emit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
