"""What fills the tables from a batch: the files of `tables/`."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from hansard.projections._engine import engine as duckdb

LABELLED = "labelled"
"""What fillers are about that take whatever has a label."""

_HERE = Path(__file__).parent


class Loader(msgspec.Struct, frozen=True):
    """A file of `tables/`: the types of events that it is about (its first line), where alone it
    is done (its second: where forks are met, or where events are partial), and what it does.
    """

    patterns: tuple[str, ...]
    where: str
    statements: tuple[Any, ...]

    def fits(self, *, forks: bool, partial: bool) -> bool:
        """Whether it is to be done where this is so."""
        return {"forks": forks, "partial": partial}.get(self.where, True)

    def concerns(self, types: Iterable[str]) -> bool:
        """Whether there is anything to do: a statement costs 1 to 5 ms where there is not."""
        return any(fnmatchcase(tag, pattern) for tag in types for pattern in self.patterns)


@cache
def fillers() -> tuple[Loader, ...]:
    """What fills the tables from a batch, in order."""
    found: list[Loader] = []
    for path in sorted((_HERE / "tables").glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        first, second, _ = text.split("\n", 2)
        patterns = first.removeprefix("-- On: ").split()
        statements = tuple(duckdb.extract_statements(text))
        _, _, where = second.partition("-- Where: ")
        found.append(Loader(tuple(patterns), where, statements))
    return tuple(found)


atexit.register(fillers.cache_clear)  # else DuckDB's statements are said to leak when we end
