"""Paths by a glob: `skills/*/SKILL.md`, `**/*.md`, `{a,b}/notes.md`.

`*` and `?` stay within a folder, `**` goes through folders, `{a,b}` is either. Names that begin
with a dot are names like others. What a pattern may cost is bounded before it is tried: each `**`
multiplies what is tried by the depth of a path.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from hansard.agents.memory.search.extras import imported
from hansard.domain.errors import BadValue

PATTERN_CHARACTERS_MAX = 500
"""Of a glob."""

FOLDERS_MAX = 2
"""`**` in one glob: three take seconds on a deep path that does not match."""

BRANCHES_MAX = 100
"""What braces may come to."""

PATHS_MAX = 1_000
"""Paths that are listed if nothing else is asked for."""

ALL_PATHS = 10_000_000
"""No bound but that of the tree, for who bounds what comes of them."""


class Paths(msgspec.Struct, frozen=True):
    """The paths that match, in order; `more` where a limit cut them off.

    Attributes:
        paths: In the order of their characters.
        more: Whether others match, too.
    """

    paths: list[str]
    more: bool = False


@lru_cache(maxsize=128)
def _matcher(pattern: str) -> Any:
    glob = imported("wcmatch.glob", "a glob", "wcmatch", "memory")
    flags = glob.FORCEUNIX | glob.GLOBSTAR | glob.DOTGLOB | glob.BRACE
    try:
        return glob.compile(pattern, flags=flags, limit=BRANCHES_MAX)
    except Exception as error:  # its expansion of braces has errors of its own package
        remedy = f"braces may come to {BRANCHES_MAX} patterns; see 'hansard memory glob --help'"
        raise BadValue("glob", f"{pattern!r:.80} ({error})", remedy) from error


def checked(pattern: str) -> str:
    """A glob whose cost is bounded. Raises BadValue."""
    if not pattern or "\0" in pattern:
        raise BadValue("glob", f"{pattern!r:.80}", "give a pattern such as 'skills/**'")
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        fact = f"a pattern of {len(pattern):,} characters"
        raise BadValue("glob", fact, f"give at most {PATTERN_CHARACTERS_MAX}")
    if pattern.count("**") > FOLDERS_MAX:
        remedy = f"give '**' at most {FOLDERS_MAX} times: it goes through any number of folders"
        raise BadValue("glob", f"{pattern!r:.80}", remedy)
    return pattern


def matches(path: str, pattern: str) -> bool:
    """Whether a path matches a glob. Raises BadValue, ExtraMissing."""
    return bool(_matcher(checked(pattern)).match(path))


def paths_matching(paths: Iterable[str], pattern: str, *, limit: int = PATHS_MAX) -> Paths:
    """The paths that match a glob, in order, at most `limit`. Raises BadValue, ExtraMissing."""
    if limit < 1:
        raise BadValue("limit", f"{limit}", "give 1 or more")
    matcher = _matcher(checked(pattern))
    found: list[str] = []
    for path in sorted(paths):
        if matcher.match(path):
            if len(found) == limit:
                return Paths(found, more=True)
            found.append(path)
    return Paths(found)
