"""What a read answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Protocol

import msgspec

from hansard.domain.steps import Step, Withheld

# Recorded text as it may be shown.


class _Escapes(dict[int, str]):
    """Each character that does not print as an escape, found out when it is first met."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if not char.isprintable():
            char = char.encode("unicode_escape", "backslashreplace").decode()
        self[code] = char
        return char


_PASSWORD = re.compile(r"(?<=://)[^@/\s]+(?=@)")
_ESCAPES = _Escapes()
_ESCAPES_IN_LINES = _Escapes({ord("\n"): "\n", ord("\t"): "\t"})


def plain_text(text: str, *, lines: bool = False) -> str:
    """A text that cannot move the cursor or change colours: what does not print is escaped."""
    if text.isprintable():
        return text
    return text.translate(_ESCAPES_IN_LINES if lines else _ESCAPES)


def masked(text: str) -> str:
    """A text without the passwords of the addresses in it."""
    return _PASSWORD.sub("***", text)


_WITHHELD = {
    Withheld.OUTCOME: "withheld: answered with an outcome on record",
    Withheld.SHADOW: "withheld: answered by its shadow",
    Withheld.REFUSED: "withheld: nothing answered for it",
}


def withheld_text(step: Step) -> str:
    """How a fork withheld a step's effect; empty where it did not."""
    return _WITHHELD[step.withheld] if step.withheld is not None else ""


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
