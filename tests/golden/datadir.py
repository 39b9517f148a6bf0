"""A data directory of an earlier version, unpacked, and the command line's answers about it.

The questions are those of people and programs: commands with `--json`, and tables by the names of
their columns. So nothing here depends on the structure of the code.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import msgspec

import hansard
from hansard.cli import main
from tests.cli.support import log_of_its_own

FOLDER = Path(__file__).parent / "datadir-0"
ARCHIVE = FOLDER / "datadir.tar.xz"
ANSWERS = FOLDER / "answers.json.xz"

WORKSPACE = "lab"
WORKSPACES = (WORKSPACE, "copy", "odd")


Ask = Callable[[str], list[tuple[Any, ...]]]
Tables = dict[str, dict[str, Any]]
"""Columns, number of rows and their digest, by table or view."""

OWN_TIME = {"projected_at", "delay_ms"}
"""Columns about the creation of the tables, not about recorded events."""

OWN_TIME_TABLES = {"progress", "lag", "schema_version"}
"""Tables and views about the file itself: its progress and its schema."""

GONE = {"migrations"}
"""Removed tables of earlier versions, without data of a record."""

PAST_EACH = 3
"""Every third run's earlier states are read, too ..."""

MANY = 6
"""... if it has at least this many commits."""


def unpacked(folder: Path) -> Path:
    """Unpack the data directory into a folder of the test."""
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(folder, filter="data")
    return folder


class Answer(msgspec.Struct):
    """Result of a command."""

    code: int
    lines: list[Any]
    err: str


def command(home: Path, *arguments: str, workspace: str = WORKSPACE) -> Answer:
    """Run `hansard` in this process and return its result."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["hansard", "--data-dir", os.fspath(home), "--workspace", workspace, *arguments]
    before, sys.argv = sys.argv, argv
    code: Any = 0
    try:
        with log_of_its_own(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        code = left.code or 0
    finally:
        sys.argv = before
    text = out.getvalue()
    lines = [json.loads(line) for line in text.splitlines() if "--json" in arguments]
    return Answer(code, lines, err.getvalue())


# ---------------------------------------------------------------- questions


def answers(home: Path, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return what the command line answers about each workspace and its runs at several points."""
    known = before or {}
    with hansard.connect(WORKSPACE, data_dir=home):  # held open, so that its server stays
        all_answers = {
            workspace: answers_of(home, workspace, known.get(workspace, {}).get("tables"))
            for workspace in WORKSPACES
        }
        all_answers[WORKSPACE]["verify"] = verified(home)
        return all_answers


def verified(home: Path) -> int:
    """Return the exit code of a comparison of the tables with rebuilt ones."""
    return command(home, "rebuild", "--verify", "--json").code


def answers_of(home: Path, workspace: str, known: Tables | None) -> dict[str, Any]:
    """Return the command line's answers about a workspace whose server is held open."""

    def ask(*arguments: str) -> Any:
        answer = command(home, *arguments, "--json", workspace=workspace)
        return {"code": answer.code, "lines": answer.lines}

    made = ask("rebuild")["lines"]
    by_subject = {"check": ask("check"), "head": made[-1]["position"]}
    with _opened(home / "projections" / f"{workspace}.duckdb") as rows_of:
        by_subject |= {"tags": tags(rows_of), "tables": tables(rows_of, known)}
        questions = list(_questions(rows_of))
    by_subject["states"] = {
        f"{' '.join(words)} {run} --at {at}": ask(*words, run, "--at", str(at))
        for words, run, at in questions
    }
    return by_subject


@contextlib.contextmanager
def _opened(store: Path) -> Iterator[Ask]:
    """Open a workspace's tables for queries."""
    with duckdb.connect(store, read_only=True) as con:
        con.execute("SET TimeZone = 'UTC'")
        yield lambda query: con.execute(query).fetchall()


def tags(ask: Ask) -> dict[str, int]:
    """Return the number of events of each tag."""
    return dict(ask("SELECT type, count(*) FROM events GROUP BY ALL ORDER BY ALL"))


def _questions(ask: Ask) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """List the questions: each run at its newest and, for some, at one and two thirds."""
    query = """
        SELECT run, list_sort(list(DISTINCT position)),
            bool_or(type LIKE 'board.%'), bool_or(type LIKE 'task.%')
        FROM events WHERE run IS NOT NULL GROUP BY run ORDER BY run
    """
    for number, (run, there, has_board, has_tasks) in enumerate(ask(query)):
        third, two_thirds, newest = (there[len(there) * n // 3 - 1] for n in (1, 2, 3))
        yield ("run", "state"), run, newest
        if number % PAST_EACH == 0 and len(there) >= MANY:
            yield ("run", "state"), run, third
            yield ("run", "state"), run, two_thirds
        if has_board:
            yield ("board",), run, two_thirds
            yield ("board",), run, newest
        if has_tasks:
            yield ("team",), run, two_thirds
            yield ("team",), run, newest


def tables(ask: Ask, known: Tables | None = None) -> Tables:
    """Return the columns, row count and digest of each table and view, or of the `known` ones."""
    if known is None:
        query = (
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal ORDER BY 1, 2"
        )
        columns: dict[str, list[str]] = {}
        for table, column in ask(query):
            if column not in OWN_TIME and table not in OWN_TIME_TABLES:
                columns.setdefault(table, []).append(column)
    else:
        columns = {table: each["columns"] for table, each in known.items() if table not in GONE}
    return {table: _digest(ask, table, names) for table, names in columns.items()}


def _digest(ask: Ask, table: str, columns: list[str]) -> dict[str, Any]:
    named = ", ".join(f'"{name}"' for name in columns)
    rows = sorted(json.dumps(row, default=str) for row in ask(f'SELECT {named} FROM "{table}"'))
    digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return {"columns": columns, "rows": len(rows), "digest": digest}


def missing(then: Any, now: Any, path: str = "") -> Iterator[str]:
    """Return what was answered before and is missing now; new names may appear."""
    if isinstance(then, dict) and isinstance(now, dict):
        for name, value in then.items():
            if name not in now:
                yield f"{path}.{name} is gone"
            else:
                yield from missing(value, now[name], f"{path}.{name}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, value in enumerate(then):
            yield from missing(value, now[number], f"{path}[{number}]")
    elif then != now:
        yield f"{path} is {now!r:.200}, and was {then!r:.200}"
