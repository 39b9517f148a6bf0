"""What a read answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from hansard.domain.brief import Brief


class Answer(msgspec.Struct, kw_only=True):
    """An answer that is more than one line for programs, or says more than its lines do."""

    def lines(self) -> Iterable[object]:
        """One object a line: what programs are told of it."""
        return (self,)


class SqlAnswer(Brief, msgspec.Struct, frozen=True):
    """The rows that a question in SQL comes to. Values are plain: numbers, texts, booleans, times,
    None, lists and dicts; bytes are hexadecimal, and what is no finite number is a text.

    Attributes:
        columns: The columns' names, no two alike.
        rows: A tuple a row, in the order of the columns.
        position: Up to where the tables had been made: of the workspace's log, or for a restricted
            agent the number of the newest event that its role is shown.
        cut: `rows` or `bytes` where there were more than an answer holds; else None.
    """

    columns: list[str]
    rows: list[tuple[Any, ...]]
    position: int
    cut: str | None = None

    def dicts(self) -> list[dict[str, Any]]:
        """Each row by the names of its columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]
