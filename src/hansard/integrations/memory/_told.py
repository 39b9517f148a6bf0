"""What is told to a model that uses memory, in words and with lines numbered."""

from __future__ import annotations

from collections.abc import Iterable

from hansard.agents.errors import Blocked
from hansard.bus.errors import NotFound
from hansard.domain.errors import BadValue
from hansard.domain.memory.space import MemoryConflict, MemoryInvalid

FOR_THE_MODEL = (BadValue, Blocked, MemoryConflict, MemoryInvalid, NotFound)
"""What a model can do something about. All else ends its run, as it does without an adapter."""

SNIPPET_LINES = 2
"""Around a change, on each side."""

DEPTH_SHOWN = 2
"""Folders of a listing."""


def numbered(lines: Iterable[str], first: int = 1) -> str:
    """Lines with their numbers, as `cat -n` has them."""
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))


def excerpt(text: str, at: int) -> str:
    """The lines around a character, numbered."""
    line = text.count("\n", 0, at)
    begin = max(line - SNIPPET_LINES, 0)
    return numbered(text.split("\n")[begin : line + SNIPPET_LINES + 1], begin + 1)


def listing(paths: Iterable[str], within: str) -> list[str]:
    """Files and folders under a folder, two levels deep; folders end with a slash."""
    found: set[str] = set()
    for path in paths:
        parts = path.removeprefix(within).split("/")
        for depth in range(1, min(len(parts), DEPTH_SHOWN) + 1):
            found.add("/".join(parts[:depth]) + ("/" if depth < len(parts) else ""))
    return sorted(found)
