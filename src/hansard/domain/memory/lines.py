"""Which lines changed between two texts, and which version of a text each line comes from.

By `difflib`, whose blocks are mostly, but not always, those of git.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import TypeVar

import msgspec

COMPARED_MAX = 9_000_000
"""Product of the numbers of lines of both sides, between the first and the last line that differ,
up to which they are compared (3,000 lines with 3,000: about a second at worst, since difflib takes
quadratic time). Above it all lines between are one changed block."""

Mark = TypeVar("Mark")


class Block(msgspec.Struct, frozen=True):
    """Lines `start` to `end` of the text before became `new_start` to `new_end` of the one after;
    from 0, ends excluded.
    """

    start: int
    end: int
    new_start: int
    new_end: int


def split(text: str) -> list[str]:
    """Split a text into lines, each with its newline; what follows the last one is a line, too."""
    found = [line + "\n" for line in text.split("\n")]
    last = found.pop()[:-1]
    return [*found, last] if last else found


def diff(before: Sequence[str], after: Sequence[str]) -> list[Block]:
    """Return the blocks of lines that changed, in order; none touch each other."""
    shared = min(len(before), len(after))
    head = next((at for at in range(shared) if before[at] != after[at]), shared)
    most = shared - head
    tail = next((at for at in range(most) if before[-1 - at] != after[-1 - at]), most)
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if len(old) * len(new) > COMPARED_MAX:
        return [Block(head, head + len(old), head, head + len(new))]
    return [
        Block(head + start, head + end, head + new_start, head + new_end)
        for kind, start, end, new_start, new_end in SequenceMatcher(None, old, new).get_opcodes()
        if kind != "equal"
    ]


def blame(versions: Iterable[tuple[Mark, str]]) -> list[tuple[Mark, str]]:
    """Return the lines of the newest of some versions, which are given oldest first, each with the
    mark of the version that brought it.
    """
    marks: list[Mark] = []
    before: list[str] = []
    for mark, text in versions:
        after = split(text)
        found: list[Mark] = []
        done = 0
        for block in diff(before, after):
            found += marks[done : block.start]
            found += [mark] * (block.new_end - block.new_start)
            done = block.end
        marks, before = [*found, *marks[done:]], after
    return list(zip(marks, before, strict=True))
