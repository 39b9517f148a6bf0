"""What a read answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec


class Rows(Protocol):
    """What a question in SQL came to, and up to which position."""

    @property
    def position(self) -> int:
        """Up to where the tables had been made."""
        ...

    def dicts(self) -> list[dict[str, Any]]:
        """Each row by the names of its columns."""
        ...


class Answer(msgspec.Struct, kw_only=True):
    """An answer that is more than one line for programs, or says more than its lines do."""

    def lines(self) -> Iterable[object]:
        """One object a line: what programs are told of it."""
        return (self,)
