"""Work that `bench_durable` does in turns and in processes of their own, with each side's durable
steps.

Each side is imported by its user, so that a process pays for no other's imports.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

WORKFLOW, AGENT = "bench", "caller"
OURS, DBOS, LANGGRAPH = "Hansard", "DBOS", "LangGraph @task"
SIDES = (OURS, DBOS, LANGGRAPH)
EVENTSOURCING, ZYMI = "eventsourcing SQLite insert", "zymi-core append"
PUT_S = 1.0
"""Seconds for LangGraph's thread to store its rest before the process ends."""

Step = Callable[[int], object]


def look_up(query: str, number: int) -> dict[str, object]:
    """Return the result of a step's work."""
    return {"number": number, "found": query[:200]}


def query(number: int) -> str:
    """Arguments of 200 to 1,000 bytes."""
    return (f"{number} of the words that somebody looks for, " * 30)[: 200 + number % 9 * 100]


def full(folder: Path, name: str) -> sqlite3.Connection:
    """SQLite with each commit on disk."""
    con = sqlite3.connect(folder / name, check_same_thread=False)
    for pragma in ("journal_mode=wal", "synchronous=full"):
        con.execute(f"PRAGMA {pragma}")
    return con


def dbos_over(folder: Path) -> Any:
    """DBOS with its system database in a file, as it makes it."""
    from dbos import DBOS as DBOS_  # type: ignore[import-not-found]  # noqa: PLC0415 -- of bench.txt

    url = f"sqlite:///{folder / 'dbos.sqlite'}"
    DBOS_(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})
    return DBOS_


def langgraph_flow(con: sqlite3.Connection, body: Callable[[Step], object]) -> Any:
    """Run an entrypoint that does `body` with a task."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 -- see above
    from langgraph.func import entrypoint, task  # noqa: PLC0415 -- see above

    look = task(look_up)

    def flow(_: object) -> object:
        return body(lambda number: look(query(number), number).result())

    return entrypoint(checkpointer=SqliteSaver(con))(flow)


# ---------------------------------------------------------------- steps, in turns

Turns = Callable[[dict[str, Step]], None]


def turns_of(each: int) -> Turns:
    """For each line on stdin so many steps of each kind: a line with their milliseconds."""

    def turns(works: dict[str, Step]) -> None:
        number = 0
        for _ in sys.stdin:
            times: dict[str, list[float]] = {name: [] for name in works}
            for name, step in works.items():
                for _ in range(each):
                    number += 1
                    start = time.perf_counter()
                    step(number)
                    times[name].append((time.perf_counter() - start) * 1e3)
            print(json.dumps(times), flush=True)

    return turns


def steps_of_ours(folder: Path, turns: Turns) -> None:
    """Run a session under two policies."""
    import hansard  # noqa: PLC0415 -- see the module's docstring

    with (
        hansard.connect("bench", data_dir=folder) as record,
        record.run(WORKFLOW, agent=AGENT) as session,
    ):
        pure = session.tool(effects="pure", name="pure")(look_up)
        once = session.tool(effects="once", name="once")(look_up)
        turns(
            {
                "Hansard, pure": lambda number: pure(query(number), number),
                "Hansard, once": lambda number: once(query(number), number),
            }
        )


def steps_of_dbos(folder: Path, turns: Turns) -> None:
    """Run steps of one workflow."""
    dbos = dbos_over(folder)
    look = dbos.step()(look_up)
    work = dbos.workflow()(lambda: turns({DBOS: lambda number: look(query(number), number)}))
    dbos.launch()
    work()


def steps_of_langgraph(folder: Path, turns: Turns) -> None:
    """Tasks of one entrypoint."""
    flow = langgraph_flow(full(folder, "steps.sqlite"), lambda task: turns({LANGGRAPH: task}))
    flow.invoke(0, {"configurable": {"thread_id": "t"}}, durability="sync")


def steps_of_eventsourcing(folder: Path, turns: Turns) -> None:
    """Events of a recorder."""
    from eventsourcing.persistence import StoredEvent  # noqa: PLC0415 -- see above
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore  # noqa: PLC0415 -- see above

    recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(folder / "events.sqlite")))
    recorder.create_table()

    def insert(number: int) -> None:
        body = json.dumps(look_up(query(number), number)).encode()
        recorder.insert_events([StoredEvent(UUID(int=number), 1, "looked.up", body)])

    turns({EVENTSOURCING: insert})


def steps_of_zymi(folder: Path, turns: Turns) -> None:
    """Events of a store."""
    from zymi import Event, EventStore  # type: ignore[import-not-found]  # noqa: PLC0415 -- of bench.txt

    store = EventStore(str(folder / "zymi.sqlite"))

    def append(number: int) -> None:
        data = {"content": {"User": query(number)}, "connector": "bench"}
        store.append(Event("bench", {"type": "UserMessageReceived", "data": data}, "bench"))

    turns({ZYMI: append})


STEPPING = {
    OURS: steps_of_ours,
    DBOS: steps_of_dbos,
    LANGGRAPH: steps_of_langgraph,
    EVENTSOURCING: steps_of_eventsourcing,
    ZYMI: steps_of_zymi,
}


# ---------------------------------------------------------------- a run that is gone on with


def resumed(side: str, folder: Path, size: int, run: str, *, dies: bool) -> float:
    """Make the calls of a run, where earlier ones are answered; then die, or return the seconds
    after the imports.
    """

    def calls(step: Step) -> int:
        for number in range(size):
            step(number)
        if dies:
            time.sleep(PUT_S)
            os._exit(0)
        return size

    return {OURS: of_ours, DBOS: of_dbos, LANGGRAPH: of_langgraph}[side](folder, run, calls, dies)


def of_ours(folder: Path, run: str, calls: Callable[[Step], int], _: bool) -> float:  # noqa: FBT001 -- as the others
    """Reopen a session and time it."""
    import hansard  # noqa: PLC0415 -- see the module's docstring
    import hansard.bus.jetstream  # noqa: PLC0415 -- what `connect` imports first
    import hansard.client.record  # noqa: PLC0415 -- as the one above

    began = time.perf_counter()
    with (
        hansard.connect("bench", data_dir=folder) as record,
        record.run(WORKFLOW, agent=AGENT, run=run) as session,
    ):
        tool = session.tool(effects="pure")(look_up)
        calls(lambda number: tool(query(number), number))
        return time.perf_counter() - began


def of_dbos(folder: Path, run: str, calls: Callable[[Step], int], dies: bool) -> float:  # noqa: FBT001 -- as the others
    """Time a workflow, which `launch` resumes by itself."""
    from dbos import SetWorkflowID  # noqa: PLC0415 -- see the module's docstring

    began = time.perf_counter()
    dbos = dbos_over(folder)
    look = dbos.step()(look_up)

    @dbos.workflow()  # type: ignore[untyped-decorator]  # dbos is not in what types are checked with
    def work() -> int:
        return calls(lambda number: look(query(number), number))

    dbos.launch()
    if dies:
        with SetWorkflowID(run):
            work()
    dbos.retrieve_workflow(run).get_result(polling_interval_sec=0.005)
    return time.perf_counter() - began


def of_langgraph(folder: Path, run: str, calls: Callable[[Step], int], dies: bool) -> float:  # noqa: FBT001 -- as the others
    """Time an entrypoint that is invoked again without input."""
    import langgraph.checkpoint.sqlite  # noqa: PLC0415 -- see the module's docstring
    import langgraph.func  # noqa: F401, PLC0415 -- as the one above

    began = time.perf_counter()
    flow = langgraph_flow(full(folder, "resume.sqlite"), calls)
    flow.invoke(0 if dies else None, {"configurable": {"thread_id": run}}, durability="sync")
    return time.perf_counter() - began


if __name__ == "__main__":
    name, place, number, *more = sys.argv[1:]
    if more:
        took_s = resumed(name, Path(place), int(number), more[0], dies=more[1] == "die")
        print(took_s)
    else:
        STEPPING[name](Path(place), turns_of(int(number)))
        sys.stdout.flush()
        os._exit(0)  # threads of a side may wait for work
