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
workspace. `hansard up` keeps it up to date, `hansard rebuild` makes it anew from the log, and the
log alone is the truth. Times are UTC. Rows are as recorded: no sums of floats are kept, so that the
rows are the same however the log was read. A table whose rows name a `version` and a `position` has
one row an event: join it with `events` on `run`, `agent` and `version`.
"""

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


def page(store: Store) -> str:
    """The page. Raises ValueError for a table, view or column without a comment."""
    parts = [HEAD]
    for name, comment, kind in store.all(_RELATIONS):
        parts.append(f"## `{name}`{' (view)' if kind else ''}\n\n{_said(name, comment)}\n")
        lines = ["| column | type | |", "|---|---|---|"]
        for column, type_, told in store.all(_COLUMNS, [name]):
            lines.append(f"| `{column}` | {type_} | {_said(f'{name}.{column}', told)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _said(name: str, comment: str | None) -> str:
    if not comment:
        message = f"{name} has no comment: say in the schema what it is"
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
