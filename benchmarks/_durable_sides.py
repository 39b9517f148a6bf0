"""What `bench_durable` does in turn, and in processes of their own, with each side's durable steps.

Each side is imported by who uses it: a process of one pays for no other's imports.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORKFLOW, AGENT = "bench", "caller"
OURS, DBOS, LANGGRAPH = "Hansard", "DBOS", "LangGraph @task"
SIDES = (OURS, DBOS, LANGGRAPH)
PUT_S = 1.0
"""Time for what LangGraph's thread still has to put, before its process ends."""

Step = Callable[[int], object]


def look_up(query: str, number: int) -> dict[str, object]:
    """The work of a step."""
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
    """An entrypoint that does `body` with a task."""
    from langgraph.checkpoint.sqlite import SqliteSaver  # noqa: PLC0415 -- see above
    from langgraph.func import entrypoint, task  # noqa: PLC0415 -- see above

    look = task(look_up)

    def flow(_: object) -> object:
        return body(lambda number: look(query(number), number).result())

    return entrypoint(checkpointer=SqliteSaver(con))(flow)


# ---------------------------------------------------------------- a run that is gone on with


def resumed(side: str, folder: Path, size: int, run: str, *, dies: bool) -> float:
    """Make the calls of a run, which are answered where they were made before; then die, or say how
    long it took after the imports, in seconds.
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
    """A session that is opened again."""
    import hansard  # noqa: PLC0415 -- see the module's docstring
    import hansard.bus.jetstream  # noqa: PLC0415 -- what `connect` imports first
    import hansard.client.record_sync  # noqa: PLC0415 -- as the one above

    began = time.perf_counter()
    with (
        hansard.connect("bench", data_dir=folder) as record,
        record.run(WORKFLOW, agent=AGENT, run=run) as session,
    ):
        tool = session.tool(effects="pure")(look_up)
        calls(lambda number: tool(query(number), number))
        return time.perf_counter() - began


def of_dbos(folder: Path, run: str, calls: Callable[[Step], int], dies: bool) -> float:  # noqa: FBT001 -- as the others
    """A workflow, which `launch` goes on with by itself."""
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
    """An entrypoint that is invoked again, given nothing."""
    import langgraph.checkpoint.sqlite  # noqa: PLC0415 -- see the module's docstring
    import langgraph.func  # noqa: F401, PLC0415 -- as the one above

    began = time.perf_counter()
    flow = langgraph_flow(full(folder, "resume.sqlite"), calls)
    flow.invoke(0 if dies else None, {"configurable": {"thread_id": run}}, durability="sync")
    return time.perf_counter() - began


if __name__ == "__main__":
    name, place, number, of, ends = sys.argv[1:]
    print(resumed(name, Path(place), int(number), of, dies=ends == "die"))
