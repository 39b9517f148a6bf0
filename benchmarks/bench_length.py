"""Does an operation of a session cost more as its run grows?

One run by the sync client on a strict server: from its 100th, 1,000th and 10,000th step on the
median of 50 pure steps, 50 steps with effects and 50 puts of one key, from its first on of five,
each kind in turns with as many raw publishes, in blocks of ten; and, for a client without anything
in memory, the agent at its newest version. What is between is pure steps. Goals: at the 10,000th no
more than 1.5 times at the 100th, in raw publishes; a state has all steps in it, and is reported.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from statistics import median

import hansard
from benchmarks import _world
from benchmarks._report import Findings, benchmark, sized, summary
from benchmarks._states import fresh
from benchmarks._world import World
from benchmarks.bench_append import raw_block
from hansard.domain.ids import AgentStream

LENGTHS = (1, 100, 1_000, 10_000)
"""Steps of the run, of all kinds, around which is measured."""
BLOCK = 10
GROWN_MAX = 1.5

Times = dict[str, list[float]]


class Writer:
    """One session, and the three things that are measured of it."""

    def __init__(self, session: hansard.Session) -> None:
        numbers = count()

        @session.tool(effects="pure")
        def look(query: str, number: int) -> str:
            return f"{query[:100]} {number}"

        @session.tool(effects="once")
        def send(query: str, number: int) -> int:
            return number + len(query)

        board = session.board
        self.steps = 0
        self._kinds: dict[str, Callable[[], object]] = {
            "a pure step": lambda: look(_world.text(600), next(numbers)),
            "a step with effects": lambda: send(_world.text(600), next(numbers)),
            "a put of one key": lambda: board.put("key", next(numbers)),
        }

    def grow(self, to: int) -> None:
        """Pure steps up to so many of all kinds."""
        while self.steps < to:
            self._kinds["a pure step"]()
            self.steps += 1

    def around(self, raw: Callable[[], list[float]], blocks: int) -> Times:
        """Milliseconds of each, in turns with raw publishes."""
        times: Times = {"a raw publish": [], **{kind: [] for kind in self._kinds}}
        for _ in range(blocks):
            times["a raw publish"] += raw()
            for kind, work in self._kinds.items():
                for _ in range(BLOCK):
                    start = time.perf_counter_ns()
                    work()
                    times[kind].append((time.perf_counter_ns() - start) / 1e6)
                    self.steps += 1
        return times


def run_of(place: World, raw: Callable[[], list[float]], lengths: list[int]) -> list[Times]:
    """Return the times around each length of one run."""
    with (
        hansard.connect("bench", data_dir=place.folder) as record,
        record.run("bench", run="long", agent="stepper", role="worker") as session,
    ):
        writer, found = Writer(session), list[Times]()
        for length in lengths:
            writer.grow(length - 1)
            times = writer.around(raw, sized(5, 1) if length > 1 else 1)
            if length == 1:  # what a process imports and opens once is no matter of the run
                times = {kind: taken[BLOCK // 2 :] for kind, taken in times.items()}
            times["an agent's state, nothing in memory"] = asyncio.run(states_of(place))
            found.append(times)
    return found


async def states_of(place: World) -> list[float]:
    """Milliseconds of the agent's newest state, each by a client that has read nothing."""
    stream, times = AgentStream("long", "worker", "stepper"), list[float]()
    async with hansard.connect_async("bench", data_dir=place.folder) as record:
        await record.workspace.log.head()  # the connection is no part of it
        for _ in range(sized(20, 2)):
            reader = fresh(record)
            took, _ = await _world.timed(partial(reader.workspace.states.agent, stream))
            times.append(took)
    return times


async def measure(found: Findings) -> None:
    """Write the run, beside raw publishes on this loop."""
    lengths = [1, *(sized(length, length // 50) for length in LENGTHS[1:])]
    async with _world.world("strict") as place:
        nc = await place.raw()
        await _world.raw_stream(nc, "steps-raw")
        times = await asyncio.to_thread(run_of, place, raw_block(nc), lengths)
        await nc.close()
    for length, taken in zip(lengths, times, strict=True):
        for kind, each in taken.items():
            found.results[f"{kind}, at step {length:,}"] = summary(each)
    in_publishes = [
        {kind: median(each) / median(taken["a raw publish"]) for kind, each in taken.items()}
        for taken in times
    ]
    for kind in ("a pure step", "a step with effects", "a put of one key"):
        grown = in_publishes[-1][kind] / in_publishes[1][kind]
        found.ratios[f"{kind}, in publishes: at {lengths[-1]:,} / at {lengths[1]:,}"] = grown
        found.goals[f"{kind}: no growth (<= {GROWN_MAX})"] = grown <= GROWN_MAX


if __name__ == "__main__":
    benchmark(measure, __doc__)
