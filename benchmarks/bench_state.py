"""What does it cost to rebuild a state in the past, and does a larger log make it dearer?

A run of 1,000 steps, then events of other runs up to 10,000, 1,000,000 and 5,000,000 (in bulk, ten
to a commit, dispersed over many runs). At random points: the agent at a version (`states.agent`),
and the whole run at a position (`points.view`). Warm: by a client that has read the run before.
Hot: by one that has nothing in memory, from a broker that has just served it. Cold: the first read
of such a client after the broker was started again. Then what a new run writes onto that log: a
pure step, a put of one key. Goals: warm at most 1 ms, hot at most 10 ms, and nothing more than
doubled from the smallest to the largest log.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from functools import partial
from statistics import median

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, say, sized, summary
from benchmarks._states import ARGUMENT_BYTES, Recorded, fresh, record_run
from benchmarks._world import World
from hansard.bus.log import EventLog
from hansard.client.record import AsyncRecord
from hansard.domain.ids import AgentStream

EVENTS_EACH = 10
COMMITS_EACH = 100
"""Commits of each other run: 1,000 events."""

Read = Callable[[AsyncRecord], Awaitable[None]]

WRITTEN = ("a pure step", "a put of one key")

WARM_MS, HOT_MS, GROWN_MAX = 1.0, 10.0, 2.0


async def fill(log: EventLog, have: int, wanted: int) -> None:
    """Append events of other runs until there are as many as needed."""
    each = COMMITS_EACH * EVENTS_EACH
    runs = range(have // each, wanted // each)
    streams = [AgentStream(f"other-{number}", "worker", "filler") for number in runs]
    lists = [
        _world.appends(stream, 1, COMMITS_EACH, events=EVENTS_EACH, body=2_000)
        for stream in streams
    ]
    for start in range(0, len(lists), COMMITS_EACH):
        part = lists[start : start + COMMITS_EACH]
        await log.append_bulk(_world.shuffled(part, [COMMITS_EACH] * len(part), seed=start))


class Reads:
    """The two questions, at random points of one run."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._random = random.Random(3)

    async def agent(self, record: AsyncRecord) -> None:
        """Read the agent at a version."""
        version = self._random.randint(3, self._recorded.versions[-1])
        state = await record.workspace.states.agent(self._recorded.stream, to=version)
        assert state.version == version

    async def view(self, record: AsyncRecord) -> None:
        """Read the whole run at a position where a commit ends."""
        index = self._random.randrange(len(self._recorded.positions))
        view = await record.workspace.points.view(
            self._recorded.run, self._recorded.positions[index]
        )
        assert view.agent("stepper").version == self._recorded.versions[index]


async def _fresh(read: Read, record: AsyncRecord) -> None:
    await read(fresh(record))


async def cold(place: World, reads: Reads, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of the first read after each restart of the broker."""
    times: dict[str, list[float]] = {"agent at a version": [], "run at a position": []}
    for _ in range(rounds):
        for name, read in (("agent at a version", reads.agent), ("run at a position", reads.view)):
            await place.restart()
            async with hansard.connect_async("bench", data_dir=place.folder) as record:
                await record.workspace.log.head()  # the connection is no part of it
                took, _ = await _world.timed(partial(read, record))
                times[name].append(took)
    return times


async def written(record: AsyncRecord, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each pure step and each put of a new run, in turns."""
    async with record.run("bench", agent="stepper", role="worker") as session:

        @session.tool(effects="pure")
        async def look(query: str) -> str:
            return query[:200]

        step, put = await _world.turns(
            rounds, lambda: look(_world.text(ARGUMENT_BYTES)), lambda: session.board.put("key", 1)
        )
    return step, put


async def at_size(
    place: World, recorded: Recorded, label: str, found: Findings
) -> dict[str, float]:
    """Medians of everything at one size of the log."""
    reads = Reads(recorded)
    rounds = sized(200, 5)
    medians: dict[str, float] = {}

    def note(kind: str, times: list[float]) -> None:
        found.results[f"{kind}, {label} other events"] = summary(times)
        medians[kind] = median(times)

    async with hansard.connect_async("bench", data_dir=place.folder) as record:
        asked: dict[str, Read] = {
            "agent at a version": reads.agent,
            "run at a position": reads.view,
        }
        for name, read in asked.items():
            for _ in range(sized(100, 10)):  # fill the memory of what is called warm
                await read(record)
            warm, hot = await _world.turns(
                rounds, partial(read, record), partial(_fresh, read, record)
            )
            note(f"{name}, warm", warm)
            note(f"{name}, hot", hot)
        for name, times in zip(WRITTEN, await written(record, rounds), strict=True):
            note(name, times)
    for name, times in (await cold(place, reads, sized(3, 1))).items():
        note(f"{name}, cold", times)
    return medians


async def measure(found: Findings) -> None:
    """Grow the log, measure at each size."""
    sizes = [sized(10_000, 1_000), sized(1_000_000, 2_000), sized(5_000_000, 4_000)]
    medians: list[dict[str, float]] = []
    async with _world.world("relaxed") as place:
        async with hansard.connect_async("bench", data_dir=place.folder) as record:
            recorded = await record_run(record, sized(1_000, 40))
            found.results["versions of the run"] = recorded.versions[-1]
            first, _ = await _world.timed(partial(Reads(recorded).agent, fresh(record)))
            found.results["the first read ever, which makes the snapshots: ms"] = round(first, 2)
        have = 0
        for wanted in sizes:
            async with hansard.connect_async("bench", data_dir=place.folder) as record:
                took, _ = await _world.timed(partial(fill, record.workspace.log, have, wanted))
            say(f"{wanted:,} events of other runs: filled in {took / 1_000:.1f} s")
            have = wanted
            medians.append(await at_size(place, recorded, f"{wanted:,}", found))
    found.results["the other events are"] = "bulk appends of 10 events a commit, 2 KB a commit"
    for name in ("agent at a version", "run at a position"):
        warm = max(each[f"{name}, warm"] for each in medians)
        hot = max(each[f"{name}, hot"] for each in medians)
        found.goals[f"{name}: warm <= 1 ms"] = warm <= WARM_MS
        found.goals[f"{name}: from the broker, hot <= 10 ms"] = hot <= HOT_MS
        for kind in ("warm", "hot", "cold"):
            grown = medians[-1][f"{name}, {kind}"] / medians[0][f"{name}, {kind}"]
            found.ratios[f"{name}, {kind}: at {sizes[-1]:,} / at {sizes[0]:,}"] = grown
            if kind != "cold":
                found.goals[f"{name}, {kind}: independent of the log (<= 2)"] = grown <= GROWN_MAX

    for name in WRITTEN:
        grown = medians[-1][name] / medians[0][name]
        found.ratios[f"{name}: at {sizes[-1]:,} / at {sizes[0]:,}"] = grown
        found.goals[f"{name}: independent of the log (<= 2)"] = grown <= GROWN_MAX


if __name__ == "__main__":
    benchmark(measure, __doc__)
