"""What changed between two texts, for people: git's unified format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hansard.domain.memory import lines
from hansard.domain.memory.lines import Block

CONTEXT = 3
"""Lines around a change that are shown."""


def unified(path: str, before: str | None, after: str | None, was: str = "") -> str:
    """What became of a file; None where there was, or is, none. Empty where nothing did."""
    old, new = lines.split(before or ""), lines.split(after or "")
    blocks = lines.diff(old, new)
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
