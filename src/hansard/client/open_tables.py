"""Who answers questions in SQL for a record, and how they are opened: apart from the tables, and
from what a session is opened with, which both take long to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from hansard.domain.choices import NOTHING
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.reader import Reader

T = TypeVar("T")


class Tables(Protocol):
    """Answers questions in SQL for a record; `hansard.client.tables` takes long to import."""

    async def ask(
        self,
        question: str,
        parameters: tuple[object, ...],
        tables: Mapping[str, Any] = NOTHING,
    ) -> SqlAnswer:
        """The answer."""
        ...

    async def read(self, reads: Callable[[Reader], T]) -> T:
        """What one of our own reads finds."""
        ...

    async def close(self) -> None:
        """Let go of what answers."""
        ...


OpenTables = Callable[[], Tables]
"""Opens the tables when the first question comes."""
