"""What changed between two versions of a text, and the text that an edit makes of the one before.

An edit is a list of `[at, count, text]` in ascending order: from character `at` (a Unicode code
point, from 0) of the text before, `count` characters became `text`. It is found by lines
(`lines.diff`) and narrowed to the characters, so that it says what changed and not the file.
"""

from __future__ import annotations

import re
from typing import Any

from hansard.domain.errors import Corrupt
from hansard.domain.memory import lines

Edit = list[tuple[int, int, str]]


def between(before: str, after: str) -> Edit:
    """The edit that makes `after` of `before`; empty where they are equal. Costs what changed,
    beside a comparison of the texts: only the lines between the first and the last that differ are
    looked at.
    """
    head, tail = _ends(before, after)
    old = lines.split(before[head : len(before) - tail])
    new = lines.split(after[head : len(after) - tail])
    starts = [head]
    for line in old:
        starts.append(starts[-1] + len(line))
    found: Edit = []
    for block in lines.diff(old, new):
        gone = "".join(old[block.start : block.end])
        came = "".join(new[block.new_start : block.new_end])
        found.append(_narrowed(starts[block.start], gone, came))
    return found


def _ends(before: str, after: str) -> tuple[int, int]:
    """How many characters two texts begin and end with alike, in whole lines."""
    most = min(len(before), len(after))
    head = _shared(before, after, most)
    if head < max(len(before), len(after)):
        head = before.rfind("\n", 0, head) + 1
    tail = _shared(before[::-1], after[::-1], most - head)
    begin = before.find("\n", len(before) - tail) + 1
    return head, len(before) - begin if begin else 0


def _narrowed(at: int, gone: str, came: str) -> tuple[int, int, str]:
    """A replaced part less what both sides begin and end with."""
    most = min(len(gone), len(came))
    head = _shared(gone, came, most)
    tail = _shared(gone[::-1], came[::-1], most - head)
    return at + head, len(gone) - head - tail, came[head : len(came) - tail]


def _shared(one: str, other: str, most: int) -> int:
    """How many characters two texts begin with alike, up to a bound; by halving."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def applied(before: str, edit: Any, where: str) -> str:
    """The text that an edit makes of one; `where` is for the error. Raises Corrupt."""
    parts: list[str] = []
    done = 0
    for part in edit if isinstance(edit, list) else [edit]:
        match part:
            case [int(at), int(count), str(text)] if done <= at <= at + count <= len(before):
                parts += (before[done:at], text)
                done = at + count
            case _:
                raise Corrupt(where, f"its edit {part!r:.80} does not fit what it edits")
    return "".join([*parts, before[done:]])


def line_end(text: str) -> str:
    r"""Return what ends the lines of a text: `\r\n` where it ends all of them, else `\n`."""
    ends = text.count("\n")
    return "\r\n" if ends and text.count("\r\n") == ends else "\n"


def with_line_end(text: str, end: str) -> str:
    r"""Return a text with other line ends; as it is where that is `\n`."""
    return re.sub("\r?\n", end, text) if end != "\n" else text


def occurrences(text: str, old: str) -> list[tuple[int, int]]:
    r"""Return where a part stands in a text, as begins and ends: as it is given, or, where it does
    not stand there so, with other line ends: models give a part of a `\r\n` file with `\n`.
    """
    found = [(each.start(), each.end()) for each in re.finditer(re.escape(old), text)]
    if found or "\n" not in old:
        return found
    pieces = [re.escape(piece) for piece in re.split("\r?\n", old)]
    return [(each.start(), each.end()) for each in re.finditer("\r?\n".join(pieces), text)]


def replaced(text: str, places: list[tuple[int, int]], new: str) -> str:
    """Return a text with another part at some places, in its own line ends."""
    new = with_line_end(new, line_end(text))
    parts, done = [], 0
    for begin, end in places:
        parts += [text[done:begin], new]
        done = end
    return "".join([*parts, text[done:]])
