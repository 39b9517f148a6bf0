"""Answers of read operations, and the escaping of recorded text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar

import msgspec

from hansard.domain.steps import Step, Withheld

# Safe rendering of recorded text.


class _Escapes(dict[int, str]):
    """Escapes of unprintable characters, computed on first use."""

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
    """Escape unprintable characters, so that a text cannot move the cursor or change colours."""
    if text.isprintable():
        return text
    return text.translate(_ESCAPES_IN_LINES if lines else _ESCAPES)


def masked(text: str) -> str:
    """Remove the passwords from addresses in a text."""
    return _PASSWORD.sub("***", text)


_WITHHELD = {
    Withheld.OUTCOME: "withheld: answered with an outcome on record",
    Withheld.SHADOW: "withheld: answered by its shadow",
    Withheld.REFUSED: "withheld: without an answer",
    Withheld.EDIT: "withheld: answered with an edited result",
}


def withheld_text(step: Step) -> str:
    """Return how a fork withheld a step's effect; empty if it did not."""
    return _WITHHELD[step.withheld] if step.withheld is not None else ""


T = TypeVar("T", bound=msgspec.Struct)


def by_name(kind: type[T], /, *sources: object, **fields: Any) -> T:
    """Build a struct: its required fields that are not given are the attributes of that name of the
    first source that has one.
    """
    for name in _required(kind):
        if name not in fields:
            fields[name] = getattr(next(each for each in sources if hasattr(each, name)), name)
    return kind(**fields)


@cache
def _required(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind) if field.required)


class Rows(Protocol):
    """Rows of an SQL query, and the position that they hold for."""

    @property
    def position(self) -> int:
        """Position up to which the tables were made."""
        ...

    def dicts(self) -> list[dict[str, Any]]:
        """Return each row as a dict by column name."""
        ...


class Answer(msgspec.Struct, kw_only=True):
    """Answer with several lines for programs, or with more content than its lines."""

    _lines: ClassVar[tuple[str, ...]] = ()
    """Fields with the lines, in order; without any, the answer itself is the line."""

    def lines(self) -> Iterable[object]:
        """Return the objects that programs get, one per line."""
        if not self._lines:
            return (self,)
        return [each for name in self._lines for each in _each(getattr(self, name))]


def _each(part: Any) -> Iterable[object]:
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, list):
        return part
    return () if part is None else (part,)


class Listed(Answer):
    """Things of one kind, as of a position of the log.

    Attributes:
        position: The position.
    """

    _listed: ClassVar[str]
    """Name of the field that holds the things."""

    position: int

    def lines(self) -> Iterator[object]:
        """Yield each thing, then their number and the position."""
        rows = getattr(self, self._listed)
        yield from rows
        yield {"kind": self._listed, "count": len(rows), "position": self.position}
