"""What does a durable step, a state in the past and a resume cost, beside others that keep steps?

* a step, sync, one after the other: ours under `pure` and `once`, nats-py's publish of as many
  bytes, DBOS's step (SQLite, by its own settings), LangGraph's task under `durability="sync"` (on
  SQLite, WAL, synchronous FULL; a thread beside puts the task's result), an event of
  eventsourcing's SQLite recorder (the same settings) and one of zymi-core's event store
* the state after k of 1,000 changes, by a client that has read nothing: ours, LangGraph's
  checkpoint, eventsourcing's aggregate at a version, without snapshots
* a run of 1,000 calls whose process ended before its last line, resumed in a new process until
  all calls are answered: with the imports, and after them

They take turns. The others have no server and no second client. Goals: a pure step at most 1.25
publishes, one under `once` 2.5; a state at most 3 ms; a resume at most 150 ms after the imports.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import operator
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated, Any, TypedDict

import hansard
from benchmarks import _world
from benchmarks._durable_sides import OURS, SIDES, STEPPING, full
from benchmarks._report import Findings, say, sized, summary
from benchmarks._states import fresh, record_run
from benchmarks.bench_append import raw_block

RUN = "durable"
PUBLISH = "nats-py publish"

SIDE = (sys.executable, "-m", "benchmarks._durable_sides")
BOUND_S = 300
"""For one process of a side."""


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


# ---------------------------------------------------------------- a step


class Side:
    """A process that makes steps of one side on request."""

    def __init__(self, name: str, folder: Path, each: int) -> None:
        self._process = subprocess.Popen(
            [*SIDE, name, str(folder), str(each)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self) -> dict[str, list[float]]:
        """Return the milliseconds of each step of a block, by kind."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        found: dict[str, list[float]] = json.loads(self._process.stdout.readline())
        return found

    def end(self) -> None:
        """End the process."""
        self._process.communicate(timeout=BOUND_S)


def measure_steps(
    found: Findings, folder: Path, data_dir: Path, publishes: Callable[[], list[float]]
) -> None:
    """Blocks of all in turn, each side in a process of its own; the first blocks do not count."""
    times: dict[str, list[list[float]]] = {}
    each = sized(20, 3)
    with contextlib.ExitStack() as stack:
        sides = []
        for number, name in enumerate(STEPPING):
            place = folder / f"steps-{number}"
            place.mkdir()
            side = Side(name, data_dir if name == OURS else place, each)
            stack.callback(side.end)
            sides.append(side)
        for _ in range(sized(20, 2) + 1):
            times.setdefault(PUBLISH, []).append(publishes())
            for side in sides:
                for kind, taken in side.turn().items():
                    times.setdefault(kind, []).append(taken)
    flat = {name: [ms for block in blocks[1:] for ms in block] for name, blocks in times.items()}
    for name, taken in flat.items():
        found.results[f"a step: {name}"] = summary(taken)
    raw = median(flat[PUBLISH])
    for name, goal in (("Hansard, pure", 1.25), ("Hansard, once", 2.5)):
        ratio = median(flat[name]) / raw
        found.ratios[f"{name} / {PUBLISH}"] = ratio
        found.goals[f"{name} <= {goal} of a publish"] = ratio <= goal


# ---------------------------------------------------------------- a state in the past


class Counted(TypedDict):
    """The state of a graph: its list grows by one a step."""

    found: Annotated[list[str], operator.add]


def langgraph_states(folder: Path, size: int) -> Callable[[int], int]:
    """Make a graph of so many checkpoints; return a function for the number of changes after k of
    them.
    """
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 -- see above
    from langgraph.graph import START, StateGraph  # noqa: PLC0415 -- see above

    config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": size + 5}

    def graph_over(con: sqlite3.Connection) -> Any:
        graph = StateGraph(Counted)
        graph.add_node("look", lambda state: {"found": [f"{len(state['found'])} found"]})
        graph.add_edge(START, "look")
        graph.add_conditional_edges(
            "look", lambda state: "look" if len(state["found"]) < size else "__end__"
        )
        return graph.compile(checkpointer=SqliteSaver(con))

    name = "states.sqlite"
    with contextlib.closing(full(folder, name)) as con:
        made = graph_over(con)
        made.invoke({"found": []}, config, durability="sync")
        kept = {len(each.values["found"]): each.config for each in made.get_state_history(config)}

    def read(k: int) -> int:
        with contextlib.closing(full(folder, name)) as con:
            return len(graph_over(con).get_state(kept[k]).values["found"])

    return read


def eventsourcing_states(folder: Path, size: int) -> Callable[[int], int]:
    """Make an aggregate of so many events; return a function for the number of changes after k."""
    from eventsourcing.application import Application  # noqa: PLC0415 -- see above
    from eventsourcing.domain import Aggregate, event  # noqa: PLC0415 -- see above

    class Caller(Aggregate):
        def __init__(self) -> None:
            self.found: list[str] = []

        @event("Looked")
        def look(self, text: str) -> None:
            self.found.append(text)

    env = {"PERSISTENCE_MODULE": "eventsourcing.sqlite"}
    env["SQLITE_DBNAME"] = str(folder / "aggregate.sqlite")
    application: Any = Application(env=env)
    caller = Caller()
    for number in range(size):
        caller.look(f"{number} found")
    application.save(caller)

    def read(k: int) -> int:
        return len(application.repository.get(caller.id, version=k + 1).found)

    return read


async def measure_states(found: Findings, folder: Path, data_dir: Path) -> None:
    """Each at the same k, in turn."""
    size = sized(1_000, 40)
    others = {
        "LangGraph checkpoint": langgraph_states(folder, size),
        "eventsourcing aggregate": eventsourcing_states(folder, size),
    }
    times: dict[str, list[float]] = {}
    async with hansard.connect_async("states", data_dir=data_dir) as record:
        ours = await record_run(record, size)
        await record.workspace.states.agent(ours.stream)  # its snapshots are made
        draw = random.Random(7)
        for number in range(sized(100, 5) + 1):
            k = draw.randrange(1, size)
            states, version = fresh(record).workspace.states, ours.versions[k]
            took, state = await _world.timed(partial(states.agent, ours.stream, to=version))
            assert state.version == version
            each = {"Hansard": took}
            for name, read in others.items():
                each[name] = timed(partial(read, k))
                assert read(k) == k
            if number:
                for name, took in each.items():
                    times.setdefault(name, []).append(took)
    for name, taken in times.items():
        found.results[f"state at k of {size:,}: {name}"] = summary(taken)
    found.goals["state at k <= 3 ms"] = median(times["Hansard"]) <= 3


# ---------------------------------------------------------------- a resume


def process(*words: str) -> tuple[float, float]:
    """Return the milliseconds of such a process, whole and after its imports."""
    start = time.perf_counter()
    done = subprocess.run(
        [*SIDE, *words], stdout=subprocess.PIPE, text=True, timeout=BOUND_S, check=True
    )
    whole = (time.perf_counter() - start) * 1e3
    return whole, float(done.stdout or 0) * 1e3


def measure_resumes(found: Findings, folder: Path, data_dir: Path) -> None:
    """Measure the resume of a run that died, for each side in turn, with runs of its own each
    round.
    """
    size = sized(1_000, 20)
    times: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for number in range(sized(5, 1)):
        for side in SIDES:
            place = folder / f"resume-{number}-{SIDES.index(side)}"
            place.mkdir()
            words = [side, str(data_dir if side == OURS else place), str(size), f"{RUN}-{number}"]
            process(*words, "die")
            times[side].append(process(*words, "go on"))
    for side, taken in times.items():
        whole, after = zip(*taken, strict=True)
        found.results[f"resume of {size:,} calls, new process: {side}"] = summary(list(whole))
        found.results[f"the same after the imports: {side}"] = summary(list(after))
    ours = median(after for _, after in times[OURS])
    found.goals["resume <= 150 ms after the imports"] = ours <= 150


def main() -> int:
    """Measure and report."""
    missing = [name for name in ("dbos", "langgraph", "zymi") if find_spec(name) is None]
    if missing:
        say(f"{', '.join(missing)} cannot be imported: `make bench` makes where they can")
        return 1
    found = Findings()
    asyncio.run(measure(found))
    found.emit(__doc__)
    return 0


async def measure(found: Findings) -> None:
    """Measure all sides beside one server of ours."""
    async with _world.world("strict") as place:
        with tempfile.TemporaryDirectory(prefix="hansard-bench-") as name:
            folder = Path(name)
            nc = await place.raw()
            await _world.raw_stream(nc, "steps-raw")
            publishes = raw_block(nc)
            await asyncio.to_thread(measure_steps, found, folder, place.folder, publishes)
            await nc.close()
            await measure_states(found, folder, place.folder)
            await asyncio.to_thread(measure_resumes, found, folder, place.folder)


if __name__ == "__main__":
    sys.exit(main())
