"""Which lines changed between two texts, and which version of a text each line comes from.

By `difflib`, whose blocks are mostly, but not always, those of git.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


def merged(base: str, one: str, other: str) -> str | None:
    """A text with both of the changes that led from `base` to `one` and to `other`, by lines; None
    where they changed the same lines, or added in the same place, each in its own way.
    """
    stood, mine, theirs = split(base), split(one), split(other)
    blocks = sorted(
        [
            *(
                (block.start, block.end, mine[block.new_start : block.new_end])
                for block in diff(stood, mine)
            ),
            *(
                (block.start, block.end, theirs[block.new_start : block.new_end])
                for block in diff(stood, theirs)
            ),
        ],
        key=lambda block: (block[0], block[1]),
    )
    found: list[str] = []
    at = 0
    before: tuple[int, int, list[str]] | None = None
    for block in blocks:
        start, end, news = block
        if block == before:  # both did the same
            continue
        if start < at or (before is not None and start == end == before[0] == before[1]):
            return None
        found += [*stood[at:start], *news]
        at, before = end, block
    return "".join([*found, *stood[at:]])


CONTEXT = 3
"""Lines around a change that are shown."""


def unified(path: str, before: str | None, after: str | None, was: str = "") -> str:
    """What became of a file; None where there was, or is, none. Empty where nothing did."""
    old, new = split(before or ""), split(after or "")
    blocks = diff(old, new)
    if before is not None and after is not None and not blocks and not was:
        return ""
    heads = [
        f"--- {f'a/{was or path}' if before is not None else '/dev/null'}\n",
        f"+++ {f'b/{path}' if after is not None else '/dev/null'}\n",
    ]
    return "".join(
        [*heads, *(line for group in _groups(blocks) for line in _hunk(old, new, group))]
    )


def _groups(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks that share a hunk, since the lines around them touch."""
    group: list[Block] = []
    for block in blocks:
        if group and block.start - group[-1].end > 2 * CONTEXT:
            yield group
            group = []
        group.append(block)
    if group:
        yield group


def _hunk(old: Sequence[str], new: Sequence[str], group: Sequence[Block]) -> Iterator[str]:
    first, last = group[0], group[-1]
    begin, end = max(first.start - CONTEXT, 0), min(last.end + CONTEXT, len(old))
    new_begin = first.new_start - (first.start - begin)
    new_end = last.new_end + (end - last.end)
    yield f"@@ -{_range(begin, end)} +{_range(new_begin, new_end)} @@\n"
    at = begin
    for block in group:
        yield from map(_context, old[at : block.start])
        yield from (_line("-", line) for line in old[block.start : block.end])
        yield from (_line("+", line) for line in new[block.new_start : block.new_end])
        at = block.end
    yield from map(_context, old[at:end])


def _context(line: str) -> str:
    return _line(" ", line)


def _line(mark: str, line: str) -> str:
    return (
        f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
    )


def _range(begin: int, end: int) -> str:
    count = end - begin
    start = begin + 1 if count else begin
    return f"{start}" if count == 1 else f"{start},{count}"
