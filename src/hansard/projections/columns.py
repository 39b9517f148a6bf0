"""The meaning of each column of the tables and views, stated once, in `schema/columns.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "schema" / "columns.toml"
_ALIKE = "alike"
EVERYWHERE = "everywhere"


@cache
def dictionary() -> dict[str, dict[str, str]]:
    """Return the file: by table or view the columns that have a meaning of their own there, in
    `everywhere` the general columns, in `alike` which table or view has the same columns.
    """
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def section(relation: str, column: str) -> str | None:
    """Return the section of the file that describes a column of a table or view; None for none."""
    sections = dictionary()
    for name in (relation, sections[_ALIKE].get(relation, relation), EVERYWHERE):
        if column in sections.get(name, {}):
            return name
    return None


def meaning(relation: str, column: str) -> str | None:
    """Return the meaning of a column of a table or view; None if the file has none."""
    name = section(relation, column)
    return None if name is None else dictionary()[name][column]
