"""What a read answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol

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


class Listed(Answer):
    """Things of a kind, as of a position of the log.

    Attributes:
        position: As of which position.
    """

    _listed: ClassVar[str]
    """The field that holds them."""

    position: int

    def lines(self) -> Iterator[object]:
        """Each of them, then how many there are, and the position."""
        found = getattr(self, self._listed)
        yield from found
        yield {"kind": self._listed, "count": len(found), "position": self.position}
