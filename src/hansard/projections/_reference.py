"""docs/sql.md, from what the schema says of itself: `python -m hansard.projections._reference`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from hansard.projections.store import Store

HEAD = """# Tables

Made by `python -m hansard.projections._reference > docs/sql.md`; a test fails where it is out of
date.

What is recorded, as tables in DuckDB: `<data dir>/projections/<workspace>.duckdb`, one file a
workspace. `hansard up` keeps it up to date, `hansard rebuild` makes it again from the log, and the
log alone is the truth. Times are UTC. Rows are as recorded: no sums of floats are kept, so that the
rows are the same however the log was read. A table whose rows name a `version` and a `position` has
one row an event: join it with `events` on `run`, `agent` and `version`.

A program asks by `record.sql(question, *parameters)`, a shell by `hansard sql`: both have what was
recorded before they asked, and say up to which position of the log.

Tables of your own can be joined, for one question: `record.sql(question, tables={"mine": frame})`
takes data frames of pandas and polars, pyarrow tables, lists of dicts, earlier answers and the
paths of files; `hansard sql --with mine=costs.parquet` takes Parquet, CSV, JSON, NDJSON and Arrow.
They are read where the question is asked and handed over as Arrow, 16 at most and 256 MiB
altogether (512 KiB from a restricted agent); what answers opens no file. None may be called as a
table of the record is. It takes pyarrow, as do answers as Arrow, Parquet and data frames:
`pip install 'hansard[arrow]'`. Data frames take pandas or polars as well, which no extra brings.

What takes parameters is a macro, usable in any query: `FROM comparisons('greeting')`, or with a
parameter by its name, `FROM comparisons('greeting', against := 'short')`. Of experiments these are:
`only_metric` (else the plan's metrics), `against` (the arm to compare with, else the first one),
`by_label` (also for each value of that label of runs; the whole has the slice `''`), `at_alpha`
(else the plan's) and `at_power` (0.8).
"""

OPTIONAL = ("only_", "by_", "at_", "against")
"""Names of parameters that have a default begin so."""

_RELATIONS = """
    SELECT table_name, comment, 0 AS kind FROM duckdb_tables() WHERE NOT internal
    UNION ALL
    SELECT view_name, comment, 1 FROM duckdb_views() WHERE NOT internal
    ORDER BY kind, table_name
"""
_COLUMNS = """
    SELECT column_name, data_type, comment FROM duckdb_columns()
    WHERE NOT internal AND table_name = $1 ORDER BY column_index
"""
_MACROS = """
    SELECT function_name, any_value(parameters), any_value(comment), function_type = 'macro'
    FROM duckdb_functions()
    WHERE NOT internal AND function_type IN ('macro', 'table_macro')
        AND database_name = current_database()
    GROUP BY function_name, function_type
    ORDER BY function_type DESC, function_name
"""


def page(store: Store) -> str:
    """The page. Raises ValueError for a table, view, column or macro without a comment."""
    parts = [HEAD]
    for name, comment, kind in store.all(_RELATIONS):
        parts.append(f"## `{name}`{' (view)' if kind else ''}\n\n{_said(name, comment)}\n")
        lines = ["| column | type | |", "|---|---|---|"]
        for column, type_, told in store.all(_COLUMNS, [name]):
            lines.append(f"| `{column}` | {type_} | {_said(f'{name}.{column}', told)} |")
        parts.append("\n".join(lines) + "\n")
    functions = ["## Functions\n", "| function | |", "|---|---|"]
    for name, parameters, comment, scalar in store.all(_MACROS):
        shown = f"`{name}({', '.join(parameters)})`"
        if scalar:
            functions.append(f"| {shown} | {_said(name, comment)} |")
        else:
            parts.append(
                f"## {shown}\n\n{_said(name, comment)}\n\n{_gives(store, name, parameters)}\n"
            )
    return "\n".join([*parts, *functions, ""])


def _gives(store: Store, name: str, parameters: list[str]) -> str:
    """The columns of a macro that gives a table."""
    needed = [each for each in parameters if not each.startswith(OPTIONAL)]
    asked = f"DESCRIBE FROM {name}({', '.join('NULL' for _ in needed)})"
    columns = [f"`{column}` {type_}" for column, type_, *_ in store.all(asked)]
    return "Columns: " + ", ".join(columns) + "."


def _said(name: str, comment: str | None) -> str:
    if not comment:
        message = f"{name} has no comment: say in the schema what it is (columns.toml)"
        raise ValueError(message)
    return comment.replace("|", "\\|")


def main() -> None:
    """Print the page."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "t.duckdb")
        sys.stdout.write(page(store))
        store.close()


if __name__ == "__main__":
    main()
