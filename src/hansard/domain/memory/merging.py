"""Two changes of one text, made apart, as one."""

from __future__ import annotations

from hansard.domain.memory import lines


def merged(base: str, one: str, other: str) -> str | None:
    """A text with both of the changes that led from `base` to `one` and to `other`, by lines; None
    where they changed the same lines, or added in the same place, each in its own way.
    """
    stood, mine, theirs = lines.split(base), lines.split(one), lines.split(other)
    blocks = sorted(
        [
            *(
                (block.start, block.end, mine[block.new_start : block.new_end])
                for block in lines.diff(stood, mine)
            ),
            *(
                (block.start, block.end, theirs[block.new_start : block.new_end])
                for block in lines.diff(stood, theirs)
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
