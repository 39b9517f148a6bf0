"""Which version of a file each of its lines comes from: that of git's `blame`, by `lines.diff`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from hansard.domain.memory import lines

Mark = TypeVar("Mark")


def blame(versions: Iterable[tuple[Mark, str]]) -> list[tuple[Mark, str]]:
    """The lines of the newest of some versions, which are given oldest first, each with the mark of
    the version that brought it.
    """
    marks: list[Mark] = []
    stands: list[str] = []
    for mark, text in versions:
        after = lines.split(text)
        found: list[Mark] = []
        done = 0
        for block in lines.diff(stands, after):
            found += marks[done : block.start]
            found += [mark] * (block.new_end - block.new_start)
            done = block.end
        marks, stands = [*found, *marks[done:]], after
    return list(zip(marks, stands, strict=True))
