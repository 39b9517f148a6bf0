"""What each column of the tables and views means, said once, in `schema/columns.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parent / "schema" / "columns.toml"
_ALIKE = "alike"
_EVERYWHERE = "everywhere"


@cache
def dictionary() -> dict[str, dict[str, str]]:
    """What stands in the file: of each table and view the columns that mean something of their own
    there, `everywhere` the others, `alike` which table has the same columns.
    """
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def meaning(relation: str, column: str) -> str | None:
    """What a column of a table or view means; None where that is not said."""
    told = dictionary()
    for name in (relation, told[_ALIKE].get(relation, relation), _EVERYWHERE):
        if column in told.get(name, {}):
            return told[name][column]
    return None
