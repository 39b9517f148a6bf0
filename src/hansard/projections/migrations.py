"""The steps of the tables' schema: the numbered files of `schema/`, in order.

What a step makes is never changed, since files stand that were made by it. What columns mean is no
part of them: it stands in `schema/columns.toml`, and is put into the file by whoever brings it up.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

_HERE = Path(__file__).parent
_NUMBERED = re.compile(r"(?P<number>\d{4})_(?P<name>\w+)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def refills(self) -> bool:
        """Whether it adds what rows written before do not have."""
        return self.sql.startswith("-- Refill")


@cache
def migrations() -> tuple[Migration, ...]:
    """Every step of the schema, in order."""
    return tuple(
        Migration(number, name, path.read_text(encoding="utf-8"))
        for number, (name, path) in enumerate(_named(), 1)
    )


@cache
def newest_step() -> int:
    """The number of the newest step; none is read for it."""
    return len(_named())


def _named() -> list[tuple[str, Path]]:
    """The name of each step and its file, in order."""
    found: list[tuple[str, Path]] = []
    for path in sorted((_HERE / "schema").glob("*.sql")):
        named = _NUMBERED.fullmatch(path.name)
        if named is None or int(named["number"]) != len(found) + 1:
            message = f"{path.name} does not follow on migration {len(found)}"
            raise ValueError(message)
        found.append((named["name"], path))
    return found
