"""How many acknowledged edits of eight writers of one file are there at the end?

Each writer adds lines at a place of its own in one file, as fast as it can, in a thread of one
process: through Hansard, and through `deepagents`' own backends (a folder, a LangGraph store in
memory and on SQLite, a graph's state) by the call that edits a file; and through LangGraph's own
stores and ours by `get`, then `put`. An edit is acknowledged once the call returns success; a
refused one is retried. A lost edit was acknowledged, and is not there at the end.

Fewer edits go by `get` and `put`, where each of ours that loses a race is made again.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import hansard
from benchmarks import _report

if TYPE_CHECKING:
    from deepagents.backends.protocol import BackendProtocol
    from langgraph.store.base import BaseStore

    from hansard.client.session import Session

WRITERS = 8
EDITS = _report.sized(1_000, 10)
PUTS = _report.sized(60, 4)
THOUGHT_S = 0.001
"""Between a `get` and its `put`; a model takes a thousand times that."""

ROW_S_MAX = 60.0
"""Longest writing through one door, in seconds; later acknowledgements are not counted."""

AGAIN_S = 0.001
"""Between a refusal and the next try."""

PATH = "/shared.md"
SPACE = "agent/team"
NAMESPACE, KEY = ("files",), "shared"

Add = Callable[[int], bool]
"""Adds a line with a number; returns whether it was acknowledged."""


class Row(msgspec.Struct):
    """Results of one door.

    Attributes:
        asked: Edits to be made.
        told: Edits acknowledged within `ROW_S_MAX` seconds.
        lost: Acknowledged edits that are missing at the end.
        refused: Tries that ended in an error, and were repeated.
        seconds: Duration of the whole.
    """

    asked: int = 0
    told: int = 0
    lost: int = 0
    refused: int = 0
    seconds: float = 0.0


def mark(writer: int) -> str:
    """Return the place where a writer adds its lines."""
    return f"<!-- {writer} -->"


def line(writer: int, number: int) -> str:
    """Return a line that a writer adds."""
    return f"- {writer} {number}\n"


def begun() -> str:
    """Return the initial content of the file."""
    return "".join(f"{mark(writer)}\n" for writer in range(WRITERS))


def measured(adds: list[Add], edits: int, there: Callable[[], set[tuple[int, int]]]) -> Row:
    """Run all writers at once, and compare the result."""
    row = Row()
    told: set[tuple[int, int]] = set()
    lock = threading.Lock()

    def write(writer: int) -> None:
        mine: set[tuple[int, int]] = set()
        refused = 0
        for number in range(edits):
            while not (is_told := adds[writer](number)) and time.perf_counter() < until:
                refused += 1
                time.sleep(AGAIN_S)
            if not is_told:
                break
            mine.add((writer, number))
        with lock:
            told.update(mine)
            row.refused += refused

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    began = time.perf_counter()
    until = began + ROW_S_MAX
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    row.seconds = round(time.perf_counter() - began, 2)
    row.told = len(told)
    row.asked = WRITERS * edits
    row.lost = len(told - there())
    return row


def lines_in(text: str) -> set[tuple[int, int]]:
    """Return the writer and number of each line of a file."""
    found = (each[2:].split(" ") for each in text.splitlines() if each.startswith("- "))
    return {(int(writer), int(number)) for writer, number in found}


# ---------------------------------------------------------------- by an edit


def edit(backend: BackendProtocol, writer: int, number: int) -> bool:
    """Add a line by the call that edits a file."""
    after = f"{line(writer, number)}{mark(writer)}"
    return backend.edit(PATH, mark(writer), after).error is None


def text_of(backend: BackendProtocol) -> str:
    """Return the whole file."""
    [loaded] = backend.download_files([PATH])
    assert loaded.content is not None
    return loaded.content.decode()


def by_backend(backends: list[BackendProtocol]) -> Row:
    """Edit through a backend, one a writer or one for all."""
    assert backends[0].write(PATH, begun()).error is None

    def add_of(writer: int) -> Add:
        backend = backends[writer % len(backends)]
        return lambda number: edit(backend, writer, number)

    adds = [add_of(writer) for writer in range(WRITERS)]
    return measured(adds, EDITS, lambda: lines_in(text_of(backends[0])))


def in_a_graph() -> Row:
    """Edit a graph's state, in parallel nodes of one step."""
    from deepagents.backends import StateBackend  # noqa: PLC0415 -- a rival, silenced
    from deepagents.backends.utils import create_file_data  # noqa: PLC0415 -- a rival, silenced
    from deepagents.middleware.filesystem import FilesystemState  # noqa: PLC0415 -- a rival, silenced
    from langgraph.graph import START, StateGraph  # noqa: PLC0415 -- a rival, silenced

    row = Row()
    graph: Any = StateGraph(FilesystemState)
    backend = StateBackend()

    def node_of(writer: int) -> Callable[[Any], dict[str, Any]]:
        def node(_state: Any) -> dict[str, Any]:
            for number in range(PUTS):
                assert edit(backend, writer, number)
                row.told += 1
            return {}

        return node

    for writer in range(WRITERS):
        graph.add_node(f"writer{writer}", node_of(writer))
        graph.add_edge(START, f"writer{writer}")
    began = time.perf_counter()
    given = {"messages": [], "files": {PATH: create_file_data(begun())}}
    after = graph.compile().invoke(given)
    row.seconds = round(time.perf_counter() - began, 2)
    row.asked = row.told
    row.lost = row.told - len(lines_in(after["files"][PATH]["content"]))
    return row


# ---------------------------------------------------------------- by get, then put


def by_store(stores: list[BaseStore]) -> Row:
    """Read an item, add to it and put it."""
    stores[0].put(NAMESPACE, KEY, {"lines": []})

    def add_of(writer: int) -> Add:
        store = stores[writer % len(stores)]

        def add(number: int) -> bool:
            item = store.get(NAMESPACE, KEY)
            assert item is not None
            time.sleep(THOUGHT_S)
            try:
                store.put(NAMESPACE, KEY, {"lines": [*item.value["lines"], [writer, number]]})
            except hansard.errors.MemoryConflict:
                return False
            return True

        return add

    def there() -> set[tuple[int, int]]:
        item = stores[0].get(NAMESPACE, KEY)
        assert item is not None
        return {(writer, number) for writer, number in item.value["lines"]}

    return measured([add_of(writer) for writer in range(WRITERS)], PUTS, there)


# ---------------------------------------------------------------- the doors


@contextlib.contextmanager
def sessions(home: Path) -> Iterator[list[Session]]:
    """Yield a session for each writer, in one space that changes without approval."""
    with contextlib.ExitStack() as stack:
        record = stack.enter_context(hansard.connect("bench", data_dir=home))
        record.memory(SPACE).set_policy("off", by="bench")
        yield [
            stack.enter_context(record.run("w", agent="team", role="writer", run=f"run-{number}"))
            for number in range(WRITERS)
        ]


@contextlib.contextmanager
def sqlite(home: Path) -> Iterator[BaseStore | None]:
    """LangGraph's store on SQLite; None where it is not installed."""
    try:
        from langgraph.store.sqlite import SqliteStore  # noqa: PLC0415 -- an optional rival
    except ImportError:
        yield None
        return
    path = str(home / "store.sqlite")
    with contextlib.closing(
        sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    ) as connection:
        store = SqliteStore(connection)
        store.setup()
        yield store


def main() -> None:
    """Each door in turn."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other people's packages, as they are imported
        from deepagents.backends import FilesystemBackend, StoreBackend  # noqa: PLC0415 -- a rival, silenced
        from langgraph.store.memory import InMemoryStore  # noqa: PLC0415 -- a rival, silenced

        from hansard.ext.memory.deep_agent import MemoryBackend  # noqa: PLC0415 -- imports deepagents
        from hansard.ext.memory.langgraph_store import SessionStore  # noqa: PLC0415 -- imports LangGraph

        def backend_of(store: BaseStore) -> list[BackendProtocol]:
            return [StoreBackend(store=store, namespace=lambda _: NAMESPACE)]

        rows: dict[str, Row] = {}
        with tempfile.TemporaryDirectory() as place:
            home = Path(place)
            with sessions(home / "edits") as made:
                rows["edit: hansard"] = by_backend([MemoryBackend(each.memory) for each in made])
            folder = FilesystemBackend(root_dir=home / "folder", virtual_mode=True)
            rows["edit: deepagents, a folder"] = by_backend([folder])
            rows["edit: deepagents, a store in memory"] = by_backend(backend_of(InMemoryStore()))
            with sqlite(home) as store:
                if store is not None:
                    rows["edit: deepagents, a store on SQLite"] = by_backend(backend_of(store))
            rows["edit: deepagents, a graph's state"] = in_a_graph()
            with sessions(home / "puts") as made:
                rows["put: hansard"] = by_store([SessionStore(each.memory) for each in made])
            rows["put: LangGraph, in memory"] = by_store([InMemoryStore()])
            with sqlite(home) as store:
                if store is not None:
                    rows["put: LangGraph, on SQLite"] = by_store([store])
    _report.emit(
        question=f"Of what {WRITERS} writers of one file were told is written, is all there?",
        results={name: msgspec.to_builtins(row) for name, row in rows.items()},
        goals={
            "nothing that went through Hansard is lost": not any(
                row.lost for name, row in rows.items() if "hansard" in name
            )
        },
    )


if __name__ == "__main__":
    main()
