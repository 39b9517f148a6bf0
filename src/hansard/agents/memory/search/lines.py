"""Lines by a regular expression, in time linear in the text: RE2's syntax, without look-around and
backreferences. What is given back is bounded, and says where it was cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from hansard.agents.memory.search.extras import imported
from hansard.agents.memory.search.paths import ALL_PATHS, paths_matching
from hansard.domain.errors import BadValue

PATTERN_CHARACTERS_MAX = 1_000
"""Of a regular expression."""

MEMORY_BYTES_MAX = 8 * 1024 * 1024
"""What a pattern may take when it is compiled and matched."""

LINES_MAX = 200
"""Lines that are given back if nothing else is asked for."""

LINES_LIMIT_MAX = 10_000
"""Most that can be asked for."""

LINE_CHARACTERS_MAX = 500
"""Shown of a line; what is cut is around the match."""


class Line(msgspec.Struct, frozen=True):
    """A line that matches.

    Attributes:
        path: The file's.
        line: Its number, from 1.
        text: The line; of a long one the part around the match, with `…` where it was cut.
        begin: Where the first match begins in `text`.
        end: Where it ends.
    """

    path: str
    line: int
    text: str
    begin: int
    end: int


class Lines(msgspec.Struct, frozen=True):
    """The lines that match, by path and number.

    Attributes:
        lines: At most as many as were asked for.
        files: In how many files they stand.
        more: Whether there are others: the limit cut them off.
    """

    lines: list[Line]
    files: int
    more: bool = False


@lru_cache(maxsize=64)
def _compiled(pattern: str, *, ignore_case: bool, literal: bool) -> Any:
    re2 = imported("re2", "grep", "google-re2", "memory")
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.never_nl = False
    options.never_capture = True
    whole = re2.escape(pattern) if literal else pattern
    try:
        return re2.compile(f"(?m:{whole})", options)
    except re2.error as error:
        told = error.args[0] if error.args else ""
        why = told.decode(errors="replace") if isinstance(told, bytes) else str(told)
        remedy = (
            "give RE2's syntax, which has no look-around and no backreferences, or search for the "
            "text as it is (literal)"
        )
        raise BadValue("pattern", f"{pattern!r:.80} ({why})", remedy) from error


def grep(
    tree: Mapping[str, str],
    pattern: str,
    *,
    glob: str = "",
    ignore_case: bool = False,
    literal: bool = False,
    limit: int = LINES_MAX,
) -> Lines:
    """The lines of a tree's files that match a pattern, by path and number.

    Args:
        tree: The files that the reader may see: path and text.
        pattern: In RE2's syntax; `^` and `$` are a line's begin and end.
        glob: Only in files whose path matches it; in all if empty.
        ignore_case: Whether large and small letters are the same.
        literal: Whether the pattern is a text, nothing in which has a meaning of its own.
        limit: So many lines at most.

    Raises:
        BadValue: The pattern, the glob or the limit cannot be taken.
        ExtraMissing: The extra `memory` is not installed.
    """
    _check(pattern, limit)
    regexp = _compiled(pattern, ignore_case=ignore_case, literal=literal)
    paths = paths_matching(tree, glob, limit=ALL_PATHS).paths if glob else sorted(tree)
    found: list[Line] = []
    files = 0
    for path in paths:
        before = len(found)
        for line in _matching(path, tree[path], regexp):
            if len(found) == limit:
                return Lines(found, files + (len(found) > before), more=True)
            found.append(line)
        files += len(found) > before
    return Lines(found, files)


def _check(pattern: str, limit: int) -> None:
    if not pattern:
        raise BadValue("pattern", f"{pattern!r:.80}", "give a regular expression in RE2's syntax")
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        fact = f"a pattern of {len(pattern):,} characters"
        raise BadValue("pattern", fact, f"give at most {PATTERN_CHARACTERS_MAX:,}")
    if not 1 <= limit <= LINES_LIMIT_MAX:
        raise BadValue("limit", f"{limit}", f"give 1 to {LINES_LIMIT_MAX:,}")


def _matching(path: str, text: str, regexp: Any) -> Iterator[Line]:
    """The lines of one file with a match, each once.

    Bytes are searched: of a text, the package would count characters up to each match again.
    """
    data = text.encode("utf-8", "replace")
    at = line = 0  # where the line after the last one found begins, and its number less 1
    while at <= len(data):
        found = regexp.search(data, at)
        if found is None or (found.start() == len(data) and data[-1:] in (b"", b"\n")):
            return  # what follows the last line's end is no line
        start, stop = found.start(), found.end()
        begin = data.rfind(b"\n", 0, start) + 1
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        line += data.count(b"\n", at, begin) + 1
        yield _line(path, line, data[begin:end], start - begin, min(stop, end) - begin)
        at = end + 1


def _line(path: str, number: int, raw: bytes, begin: int, end: int) -> Line:
    raw = raw.removesuffix(b"\r")
    before, hit, after = raw[:begin], raw[begin:end], raw[end:]
    left, match, right = (part.decode(errors="replace") for part in (before, hit, after))
    room = LINE_CHARACTERS_MAX
    match, right = (match[:room] + "…", "") if len(match) > room else (match, right)
    beside = max(0, room - len(match)) // 2
    if len(left) > beside and len(left) + len(match) + len(right) > room:
        left = "…" + left[len(left) - beside :]
    rest = max(0, room - len(left) - len(match))
    if len(right) > rest:
        right = right[:rest] + "…"
    return Line(path, number, left + match + right, len(left), len(left) + len(match))
