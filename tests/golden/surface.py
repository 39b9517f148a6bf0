"""What this package offers, drawn from the package itself: commands, names, tags, tables.

`python -m tests.golden.surface` writes it to `surface.json`, beside what stands there already:
what is new is added, and nothing is ever taken out by it.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, is_typeddict

import hansard
from hansard.cli import command
from hansard.domain.events import REGISTRY
from hansard.projections.store import Store

FILE = Path(__file__).with_name("surface.json")

MODULES = (
    "hansard",
    "hansard.bus.recorder",
    "hansard.logging",
    "hansard.settings",
    "hansard.testing",
)
"""What a program may import by name: the package, the library's persistence module, what
configures both, and what tests of programs use.
"""

MADE = (
    hansard.AsyncCommonSession,
    hansard.AsyncRestrictedSession,
    hansard.CommonSession,
    hansard.RestrictedSession,
)
"""Sessions that no run of `reached` hands out."""

RENAMED: dict[str, str] = {
    "hansard.AgentState.call_version": "hansard.AgentState.moment_version",
    "hansard.AgentState.parent_version": "hansard.AgentState.moment_before",
    "hansard.Record.state().agents.call_version": "hansard.Record.state().agents.moment_version",
    "hansard.Record.state().agents.parent_version": "hansard.Record.state().agents.moment_before",
}
"""Public names of Python that have another name now: `"Session.old": "Session.new"`. A command, an
option, a tag, a table or a column is never renamed.
"""

Surface = dict[str, list[str]]
Handed = list[tuple[str, type]]


def commands() -> Iterator[str]:
    """Each command, and each argument and option it takes, under every name."""
    yield from _of_command(command(), "hansard")


def _of_command(given: Any, path: str) -> Iterator[str]:
    command = getattr(given, "loaded", given)
    yield path
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            yield f"{path} <{parameter.metavar or parameter.name.upper()}>"
        else:
            yield from (f"{path} {name}" for name in parameter.opts + parameter.secondary_opts)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _of_command(inner, f"{path} {name}")


def names(handed_out: Handed) -> Iterator[str]:
    """Each public name; the public attributes of each class, and of what the clients hand out."""
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        offered = getattr(module, "__all__", None) or _own(module)
        for name in offered:
            yield f"{module_name}.{name}"
            found = getattr(module, name)
            if inspect.isclass(found):
                yield from _attributes(f"{module_name}.{name}", found)
    for within, cls in handed_out:
        yield from _attributes(within, cls)


def _own(module: Any) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def reached(folder: Path) -> list[tuple[str, type]]:
    """The classes of what the clients hand out: asked of a run of each client, since they are named
    nowhere else.
    """
    return _sync(folder / "sync") + asyncio.run(_async(folder / "async"))


def _sync(folder: Path) -> list[tuple[str, type]]:
    with hansard.connect(data_dir=folder, durability="relaxed") as record:
        with record.run("w", agent="a", role="r") as session:
            session.team.add("t")
            session.team.send("m", agent="a")
            session.board.put("k", 1)
            with session.board.transaction() as transaction:
                transaction.put("k", 2)
            found: dict[str, Any] = {
                "Session": session,
                "Session.board": session.board,
                "Session.board.entry()": session.board.entry("k"),
                "Session.board.transaction()": transaction,
                "Session.team": session.team,
                "Session.team.claim()": session.team.claim(),
                "Session.team.inbox()": session.team.inbox()[0],
                "Session.team.tasks()": session.team.tasks()[0],
                "Session.thread()": session.thread(lambda: None),
            }
            found["Session.thread()"].result()
        view = record.state(session.run)
        found |= {
            "Record": record,
            "Record.state()": view,
            "Record.state().agents": view.agents["a"],
            "Record.state().life": view.life,
            "Record.conversation()": record.conversation("c"),
            "Record.experiment()": record.experiment("e"),
        }
    return [(f"hansard.{path}", type(value)) for path, value in found.items()]


async def _async(folder: Path) -> list[tuple[str, type]]:
    async with (
        hansard.connect_async(data_dir=folder, durability="relaxed") as record,
        record.run("w", agent="a", role="r") as session,
    ):
        async with session.board.transaction() as transaction:
            transaction.put("k", 2)
        async with session.task_group() as tasks:
            pass
        found: dict[str, Any] = {
            "AsyncRecord": record,
            "AsyncSession": session,
            "AsyncSession.board": session.board,
            "AsyncSession.board.transaction()": transaction,
            "AsyncSession.task_group()": tasks,
            "AsyncSession.team": session.team,
        }
    return [(f"hansard.{path}", type(value)) for path, value in found.items()]


def _attributes(within: str, cls: Any) -> Iterator[str]:
    """The public attributes of a class: methods, fields, properties; not those of every object."""
    if is_typeddict(cls):
        yield from (f"{within}.{name}" for name in sorted(cls.__annotations__))
        return
    base: set[str] = {*dir(object), *dir(Exception), *dir(str), *dir(int)}
    fields = {*getattr(cls, "__struct_fields__", ())}
    for name in sorted({*dir(cls), *fields} - (base - fields)):
        if not name.startswith("_"):
            yield f"{within}.{name}"


def parameters(handed_out: Handed) -> Iterator[str]:
    """The parameters of public functions, and of the public methods of classes; of constructors
    only those that people call: errors, records and sessions are made for them.
    """
    found: list[tuple[str, Any]] = []
    made = {*MADE, *(cls for _, cls in handed_out)}
    for name in hansard.__all__:
        value = getattr(hansard, name)
        if inspect.isfunction(value):
            found.append((f"hansard.{name}", value))
        elif inspect.isclass(value):
            found += _methods(f"hansard.{name}", value)
            called = not (issubclass(value, Exception) or is_typeddict(value))
            if called and value not in made:
                found.append((f"hansard.{name}", value))
    for within, cls in handed_out:
        found += _methods(within, cls)
    for path, function in found:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name != "self" and not parameter.name.startswith("_"):
                yield f"{path}({parameter.name})"


def _methods(within: str, cls: Any) -> list[tuple[str, Any]]:
    """The public methods that a class has of this package, its bases' included."""
    return [
        (f"{within}.{name}", function)
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and function.__module__.startswith("hansard")
    ]


def tables() -> Iterator[str]:
    """Each table, view and column with its type, and each macro with its parameters, as they stand
    in a workspace's file without a message. A role's file is made of the same.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "t.duckdb")
        try:
            yield from of_store(store)
        finally:
            store.close()


def of_store(store: Store) -> Iterator[str]:
    """What stands in an open file."""
    views = {
        name for (name,) in store.all("SELECT view_name FROM duckdb_views() WHERE NOT internal")
    }
    asked = """
        SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal
        ORDER BY table_name, column_index
    """
    seen = set()
    for table, column, type_ in store.all(asked):
        kind = "view" if table in views else "table"
        if table not in seen:
            seen.add(table)
            yield f"{kind} {table}"
        yield f"{table}.{column} {type_}"
    macros = """
        SELECT DISTINCT function_name, parameters::VARCHAR FROM duckdb_functions()
        WHERE NOT internal AND function_type IN ('macro', 'table_macro')
            AND database_name = current_database()
    """
    for name, given in store.all(macros):
        yield f"macro {name}{given}"


def surface() -> Surface:
    """All of it, each part sorted."""
    # Its server ends up to two seconds after its last user, and writes until then.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        handed_out = reached(Path(folder))
    drawn = {
        "commands": commands(),
        "names": names(handed_out),
        "parameters": parameters(handed_out),
        "tables": tables(),
        "tags": iter(REGISTRY),
    }
    return {part: sorted(set(found)) for part, found in drawn.items()}


def kept() -> Surface:
    """What the file says."""
    told: Surface = json.loads(FILE.read_text(encoding="utf-8"))
    return told


def main() -> None:
    """Add to the file what is new."""
    before = kept() if FILE.exists() else {}
    told = {part: sorted({*before.get(part, ()), *found}) for part, found in surface().items()}
    FILE.write_text(json.dumps(told, indent=0) + "\n", encoding="utf-8")
    sys.stdout.writelines(f"{len(found):,} {part}\n" for part, found in told.items())


if __name__ == "__main__":
    main()
