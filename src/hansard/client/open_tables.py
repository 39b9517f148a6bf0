"""The interface of a record's SQL tables, and the type of the function that opens them.

Separate from the implementation and from session options, which both take long to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from hansard.domain.choices import NOTHING
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.snapshots import Reader

T = TypeVar("T")


class Tables(Protocol):
    """SQL queries on a record. `hansard.client.tables`, which implements it, is slow to import."""

    async def ask(
        self,
        question: str,
        parameters: tuple[object, ...],
        tables: Mapping[str, Any] = NOTHING,
    ) -> SqlAnswer:
        """Answer a question in SQL; `tables` are tables of the caller's own, by name."""
        ...

    async def read(self, reads: Callable[[Reader], T]) -> T:
        """Run a read of our own and return its result."""
        ...

    async def close(self) -> None:
        """Release what answers queries."""
        ...


OpenTables = Callable[[], Tables]
"""Opens the tables, at the first query."""
