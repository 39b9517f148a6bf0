"""How much longer does a call take through the service than straight to the broker?

A restricted agent's call of a tool is two requests to the service (the call, and its body's
result), which records the intent and the outcome; a trusted agent records them itself. The same
program with both, in turns, on a strict server, the service a process of its own (`hansard up`).
Then requests to a record: a role's view of a run of 20 steps, which is put on record as served by
both ways, and a question in SQL, which each answers from tables of its own. That a role's was
answered is on record, too: so each question, either way, has a commit to take in first.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from statistics import median

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, say, sized, summary
from hansard import settings as configuration
from hansard.client.common import AsyncCommonRecord
from hansard.client.credentials import CredentialsRequest, make
from hansard.client.record import AsyncRecord
from hansard.client.session import AsyncCommonSession
from hansard.domain.roles import check as role_file

ROLE = """
[roles.writer]
[[roles.writer.sees]]
name = "all"
kinds = ["**"]
[roles.writer.may]
tools = ["**"]
kinds = ["**"]
keys = ["**"]
query = true
"""
READS = {"a view": 100, "a question in SQL": 20}
"""Rounds of each."""

Once = Callable[[AsyncCommonSession, int], Awaitable[object]]


@contextlib.asynccontextmanager
async def service(folder: Path) -> AsyncIterator[Path]:
    """`hansard up` as a process, and credentials for it."""
    async with hansard.connect_async("bench", data_dir=folder) as record:
        for name, rules in role_file.parse(ROLE).items():
            await record.roles.apply(name, rules)
    command = [sys.executable, "-m", "hansard", "up", "--json"]
    command += ["--data-dir", str(folder), "--workspace", "bench"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        draining = asyncio.ensure_future(process.stdout.read())
        yield await login(folder, "ada")
        process.terminate()
        await process.wait()
        draining.cancel()
    finally:
        if process.returncode is None:
            process.kill()


async def login(folder: Path, name: str) -> Path:
    """Credentials of a principal."""
    place = folder / f"{name}.json"
    settings = configuration.load(workspace="bench", data_dir=folder)
    await make(settings, CredentialsRequest(role="writer", name=name, output=place))
    return place


def tools(session: AsyncCommonSession) -> dict[str, Once]:
    """Return the tools that are timed."""

    @session.tool(effects="once")
    async def send(number: int) -> int:
        return number

    @session.tool(effects="pure")
    async def look(number: int) -> int:
        return number

    async def message(session: AsyncCommonSession, number: int) -> None:
        await session.message("user", f"message {number}")

    async def put(session: AsyncCommonSession, number: int) -> None:
        await session.board.put("key", number)

    return {
        "a tool with an effect": lambda _, number: send(number),
        "a pure tool": lambda _, number: look(number),
        "a message": message,
        "a put": put,
    }


async def reads(found: Findings, trusted: AsyncRecord, restricted: AsyncCommonRecord) -> None:
    """Measure requests to a record, both ways, in turns."""
    async with trusted.run("bench", agent="eve", role="writer") as session:
        look = tools(session)["a pure tool"]
        for number in range(20):
            await look(session, number)
    count = "SELECT count(*) FROM steps WHERE run = $1"
    asked: dict[str, dict[str, Callable[[], Awaitable[object]]]] = {
        "a view": {
            "served": lambda: restricted.roles.view(session.run),
            "direct": lambda: trusted.roles.view(session.run, role="writer", by="eve"),
        },
        "a question in SQL": {
            "served": lambda: restricted.sql(count, session.run),
            "direct": lambda: trusted.sql(count, session.run),
        },
    }
    for what, ways in asked.items():
        times: dict[str, list[float]] = {"direct": [], "served": []}
        for number in range(sized(READS[what], 3) + 1):
            for side, ask in ways.items():
                began = time.perf_counter()
                await ask()
                if number:
                    times[side].append((time.perf_counter() - began) * 1_000)
        note(found, what, times)


def note(found: Findings, what: str, times: dict[str, list[float]]) -> None:
    """Both ways' times, in milliseconds, and their ratio pair by pair."""
    for side, taken in times.items():
        found.results[f"{what}, {side}"] = summary(taken)
    pairs = zip(times["served"], times["direct"], strict=True)
    found.ratios[f"{what}: served / direct"] = median(a / b for a, b in pairs)
    say(f"{what} done")


async def measure(found: Findings) -> None:
    """Both ways, in turns."""
    async with (
        _world.world("strict") as place,
        service(place.folder) as login,
        hansard.connect_async("bench", data_dir=place.folder) as trusted,
        hansard.connect_async(credentials=login) as restricted,
        trusted.run("bench", agent="eve", role="writer") as direct,
        restricted.run("bench") as served,
    ):
        sides = {"direct": (direct, tools(direct)), "served": (served, tools(served))}
        for what in sides["direct"][1]:
            times: dict[str, list[float]] = {"direct": [], "served": []}
            for number in range(sized(400, 3) + 1):
                for side, (session, named) in sides.items():
                    began = time.perf_counter()
                    await named[what](session, number)
                    if number:
                        times[side].append((time.perf_counter() - began) * 1_000)
            note(found, what, times)
        await reads(found, trusted, restricted)


if __name__ == "__main__":
    benchmark(measure, __doc__)
