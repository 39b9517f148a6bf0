"""The pages of the tables in the site, made from the schema."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hansard.bus import slices
from hansard.projections.store import EVERYWHERE, Store, section
from hansard.projections.table_files import schema_files

HEAD = """
## Pages

{index}
## General columns

These columns mean the same in every table. A table's section lists their names.

"""

INTRO = """\
Each section begins with what one row is. Columns of most tables are explained
[once](../sql.md#general-columns).
"""

ROW = "One row per "
"""Begin of most comments, which `INTRO` makes superfluous."""

OPTIONAL = ("only_", "by_", "at_", "against")
"""Prefix of parameters that have a default."""

PAGES = {
    "record": ("Runs, steps and messages", ("10", "20", "40")),
    "team": ("Teams: state, tasks, approvals, roles and labels", ("12", "50", "51", "52")),
    "experiments": ("Experiments", ("11", "30", "31", "32")),
    "forks": ("Forks and probes", ("33", "34")),
    "artifacts": (
        "Prompts, actions, experience, memory, reuse and aggregates",
        ("13", "53", "54", "55", "56", "57", "58"),
    ),
    "audit": ("Decisions and audit", ("14", "59", "60", "61", "90")),
    "statistics": ("Statistical functions", ("21",)),
}
"""Each page of docs/sql/: its title, and the numbers of the schema files that it describes."""

_CREATED = re.compile(r"^CREATE (?:TABLE|VIEW|MACRO) (\w+)", re.MULTILINE)
_FIELD_TYPE = re.compile(r'(?<=\w|") [A-Z]+(?:\[\])?(?=[,)])')
_RELATIONS = """
    SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal
    UNION ALL
    SELECT view_name, comment FROM duckdb_views() WHERE NOT internal
    ORDER BY table_name
"""
_COLUMNS = """
    SELECT table_name, column_name, data_type, comment FROM duckdb_columns()
    WHERE NOT internal ORDER BY table_name, column_index
"""
_MACROS = """
    SELECT function_name, any_value(parameters), any_value(comment), function_type = 'macro'
    FROM duckdb_functions()
    WHERE NOT internal AND function_type IN ('macro', 'table_macro')
        AND database_name = current_database()
    GROUP BY function_name, function_type
    ORDER BY function_name
"""


def of_slices() -> set[str]:
    """Return the relations and macros of installed slices: their own pages describe them."""
    return {name for each in slices.installed() for name in _CREATED.findall(each.schema)}


def pages(store: Store) -> dict[str, str]:
    """Return the text of each page by its path in docs/; sql.md has a head there already.

    Raises:
        ValueError: A table, view, column or macro has no comment.
    """
    columns: dict[str, list[tuple[str, str, str]]] = {}
    others = of_slices()
    for table, column, type_, comment in store.all(_COLUMNS):
        if table in others:
            continue
        row = (column, _FIELD_TYPE.sub("", type_), _text(f"{table}.{column}", comment))
        columns.setdefault(table, []).append(row)
    sections: dict[str, str] = {}
    functions: dict[str, str] = {}
    helpers: dict[str, str] = {}
    for name, comment in store.all(_RELATIONS):
        if name in others:
            continue
        sections[name] = "\n\n".join(
            [f"## `{name}`", _text(name, comment), *_columns(name, columns), ""]
        )
    for name, parameters, comment, scalar in store.all(_MACROS):
        if name in others:
            continue
        call, text = f"`{name}({', '.join(parameters)})`", _text(name, comment)
        if text.startswith("Helper of"):
            helpers[name] = f"`{name}()`"
        elif scalar:
            functions[name] = f"|{call}|{text}|\n"
        else:
            sections[name] = (
                f"## {call}\n\n{text}\n\n{_returns(store, name, parameters, columns)}\n\n"
            )
    index, texts = "", {}
    for page, (title, numbers) in PAGES.items():
        names = sorted(_created(numbers))
        shown = [name for name in names if name in sections]
        rows = "".join(functions[name] for name in names if name in functions)
        body = "".join(sections[name] for name in shown)
        body += f"## Functions\n\n|Function|Value|\n|---|---|\n{rows}\n" if rows else ""
        calls = ", ".join(helpers[name] for name in names if name in helpers)
        body += f"Helpers of other macros: {calls}.\n" if calls else ""
        texts[f"sql/{page}.md"] = f"# {title}\n\n{INTRO}\n{body.rstrip()}\n"
        index += f"* [{title}](sql/{page}.md)\n"
    general = {
        row[0]: row
        for table, rows in columns.items()
        for row in rows
        if section(table, row[0]) == EVERYWHERE
    }
    texts["sql.md"] = HEAD.format(index=index) + _table(general[name] for name in sorted(general))
    return texts


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    lines = (f"|`{column}`|{type_}|{text}|\n" for column, type_, text in rows)
    return "|Column|Type|Meaning|\n|---|---|---|\n" + "".join(lines)


def _columns(table: str, columns: dict[str, list[tuple[str, str, str]]]) -> list[str]:
    """Describe the columns of a table: its own, then those described elsewhere."""
    described: dict[str, list[tuple[str, str, str]]] = {}
    for row in columns[table]:
        described.setdefault(section(table, row[0]) or table, []).append(row)
    own = described.pop(table, None)
    names = [row[0] for row in columns[table]]
    for source in described:
        if own is None and names == [row[0] for row in columns.get(source, [])]:
            return [f"Columns as in `{source}`."]
    parts = [_table(own).rstrip()] if own else []
    for source, rows in sorted(described.items()):
        label = "General" if source == EVERYWHERE else f"As in `{source}`"
        parts.append(f"{label}: {', '.join(f'`{column}`' for column, *_ in rows)}.")
    return parts


def _returns(
    store: Store, name: str, parameters: list[str], tables: dict[str, list[tuple[str, str, str]]]
) -> str:
    """Name the columns that a table macro returns."""
    needed = [each for each in parameters if not each.startswith(OPTIONAL)]
    query = f"DESCRIBE FROM {name}({', '.join('NULL' for _ in needed)})"
    columns = [column for column, *_ in store.all(query)]
    for table, others in tables.items():
        if columns == [column for column, *_ in others]:
            return f"Columns as in `{table}`."
    return "Columns: " + ", ".join(f"`{column}`" for column in columns) + "."


def _created(numbers: tuple[str, ...]) -> list[str]:
    """Return the tables, views and macros that the files with these numbers create."""
    files = [path for path in schema_files() if path.name.startswith(numbers)]
    return [name for path in files for name in _CREATED.findall(path.read_text(encoding="utf-8"))]


def _text(name: str, comment: str | None) -> str:
    if not comment:
        message = f"{name} has no comment: describe it in the schema (columns.toml)"
        raise ValueError(message)
    if comment.startswith(ROW):
        comment = comment[len(ROW)].upper() + comment[len(ROW) + 1 :]
    return comment.replace("|", "\\|")
