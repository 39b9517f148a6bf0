"""A role's events: the events it sees, their masks, and its permissions. The storage format.

A tag never changes its meaning, a field is only added with a default. Patterns are those of
`hansard.domain.roles.model`.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

import msgspec

from hansard.domain import ids
from hansard.domain.errors import BadName, BadValue
from hansard.domain.events import Event, event

# Patterns over names: whole segments, never string prefixes.
#
# A pattern is split into segments at its separator, and so is the name. Segment by segment they
# must agree, all of them:
#
# abc      the same text, case included
# *        any characters inside one segment, none included: `search_*`, `*.pdf`, `*`
# **       as the last segment alone: the rest, one or more segments
# \* \\    a star, a backslash; in a field a dot behind a backslash is part of the name
#
# Every other character is literal: also `?`, `[` and `{`. So `findings/**` matches
# `findings/a` and `findings/a/b`, but neither `findings` nor `findings-old/a`.
#
# Separators: `.` in kinds, tools and fields, `/` in keys. Roles, agents and labels' values are one
# segment, whatever they contain, so there `*` matches everything.

DOT, SLASH, NONE = ".", "/", ""
"""Separators: of kinds, tools and fields; of keys; of names that are one segment."""

REST = "**"
PATTERN_STARS_MAX = 20
"""Most stars in a pattern."""

_ESCAPE, _STAR = "\\", "*"


class Pattern(msgspec.Struct, frozen=True):
    """A parsed pattern: of each segment the literal parts between its stars; `rest` is true if one
    or more segments may follow.
    """

    segments: tuple[tuple[str, ...], ...]
    rest: bool
    separator: str


@lru_cache(maxsize=4_096)
def read(text: str, separator: str, where: str = "pattern") -> Pattern:
    """Parse a pattern. Raises BadValue, which names `where` and the fault."""
    try:
        ids.name("pattern", text)
    except BadName as error:
        raise BadValue(where, f"{error.value!r:.80} is no pattern", error.remedy) from error
    segments: list[tuple[str, ...]] = []
    parts: list[str] = []
    literal, stars, rest = "", 0, False
    waiting = list(reversed(text))
    while waiting:
        char = waiting.pop()
        if char == _ESCAPE:
            if not waiting or waiting[-1] not in (_ESCAPE, _STAR, separator):
                remedy = f"write a backslash as {_ESCAPE * 2}"
                raise BadValue(where, f"{text!r:.80} has a backslash before nothing", remedy)
            literal += waiting.pop()
        elif char == _STAR and waiting[-1:] == [_STAR]:
            if literal or parts or len(waiting) > 1:
                fact = f"{text!r:.80} has '**' inside or before other segments"
                raise BadValue(where, fact, "put it at the end, as a segment of its own")
            waiting.pop()
            rest = True
        elif char == _STAR:
            parts, literal, stars = [*parts, literal], "", stars + 1
        elif char == separator:
            segments.append((*parts, literal))
            parts, literal = [], ""
        else:
            literal += char
    if stars > PATTERN_STARS_MAX:
        remedy = f"use at most {PATTERN_STARS_MAX}"
        raise BadValue(where, f"{text!r:.80} has {stars} stars", remedy)
    if not rest:
        segments.append((*parts, literal))
    if separator != SLASH and any(segment == ("",) for segment in segments):
        raise BadValue(where, f"{text!r:.80} has an empty segment", "leave out one separator")
    return Pattern(tuple(segments), rest, separator)


def matches(pattern: Pattern, name: str) -> bool:
    """Return whether a pattern matches a whole name. Linear in the name's length for each star."""
    parts = name.split(pattern.separator) if pattern.separator else [name]
    target = pattern.segments
    if len(parts) <= len(target) if pattern.rest else len(parts) != len(target):
        return False
    return all(map(segment_matches, target, parts))


def segment_matches(parts: tuple[str, ...], segment: str) -> bool:
    """Return whether a segment consists of the literal parts in order, with anything between
    them.
    """
    if len(parts) == 1:
        return segment == parts[0]
    first, *middle, last = parts
    if len(segment) < len(first) + len(last):
        return False
    if not segment.startswith(first) or not segment.endswith(last):
        return False
    at, end = len(first), len(segment) - len(last)
    for part in middle:
        index = segment.find(part, at, end)
        if index < 0:
            return False
        at = index + len(part)
    return True


def any_matches(texts: tuple[str, ...], separator: str, name: str) -> bool:
    """Return whether one of some patterns matches a name."""
    return any(matches(read(text, separator), name) for text in texts)


def tool_matches(text: str, tool: str) -> bool:
    """Return whether a pattern of tools matches one: for the gate's rules and for roles'
    permissions.
    """
    return matches(read(text, DOT, "pattern of tools"), tool)


def role_matches(text: str, role: str) -> bool:
    """Return whether a pattern of roles matches one."""
    return matches(read(text, NONE, "pattern of roles"), role)


def kind_matches(text: str, tag: str) -> bool:
    """Return whether a pattern of kinds matches a tag.

    The version is compared only where a pattern's last segment is one: `step.*` and
    `step.completed` match `step.completed.v1`.
    """
    pattern = read(text, DOT)
    name, _, version = tag.rpartition(".")
    last = pattern.segments[-1] if pattern.segments else ()
    if pattern.rest or (len(last) == 1 and is_version(last[0])) or not is_version(version):
        return matches(pattern, tag)
    return matches(pattern, name)


def is_version(segment: str) -> bool:
    """Return whether a tag's segment is its version: v1, v2 ..."""
    return segment[:1] == "v" and segment[1:].isascii() and segment[1:].isdigit()


def behind_space(space: str, path: str) -> str:
    """Return the name of a memory file in `paths`, behind its space: `org/AGENTS.md`.

    A slash in an owner's name is `%2F` there, so that no agent's name reaches into the files of
    another.
    """
    kind, slash, owner = space.partition("/")
    if "/" in owner:
        owner = owner.replace("%", "%25").replace("/", "%2F")
    return f"{kind}{slash}{owner}/{path}"


KIND = "role"
"""The kind of its stream; its id is the role's name."""


class RoleRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lets a role see events that all of its given matchers match.

    `kinds` are patterns of tags; `roles` and `agents` of the author, `keys` of the key of shared
    state that it changes, `labels` of the run's labels, by their names. An absent property (no key,
    no author in a role, no label) matches nothing. `fields` are the paths of its data that are
    shown; None shows all. `aggregates` are patterns of changes of a program's own aggregates: the
    declared name and tag, `order/order-placed.v1`. `paths` are patterns of files of memory behind
    the name of their space, `org/skills/**`: a change of several files is seen where all of them
    match.

    Attributes:
        name: Its name in `hansard roles explain`.
    """

    name: str
    kinds: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    fields: tuple[str, ...] | None = None
    aggregates: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None


class Masking(StrEnum):
    """The form of a masked value. Of several masks for one value the first of these wins."""

    DROP = "drop"
    HASH = "hash"
    TRUNCATE = "truncate"


class Mask(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields of kinds that are dropped, replaced by a keyed digest, or cut to a number of
    characters; with `roles` and the other matchers, only in events that they match, too.

    Attributes:
        name: Its name in `hansard roles explain`.
        kinds: Patterns of tags.
        fields: Paths of their data.
        how: The form of the masked value.
        characters: The number of characters left by a cut.
        agents: Patterns of the author.
        keys: Patterns of the key that it changes.
        labels: Patterns of the run's labels, by their names.
        aggregates: Patterns of an aggregate's name and the tag of its change.
        paths: Patterns of files of memory, behind their space: one changed file must match.
    """

    name: str
    kinds: tuple[str, ...]
    fields: tuple[str, ...]
    how: Masking = Masking.DROP
    characters: int | None = None
    roles: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    labels: dict[str, str] | None = None
    aggregates: tuple[str, ...] | None = None
    paths: tuple[str, ...] | None = None


class May(msgspec.Struct, frozen=True, omit_defaults=True):
    """The permissions of a role: tools it may call, kinds and keys it may write (patterns), whether
    it may answer approval requests, settle doubts, and query in SQL, and the roles whose views it
    may see.

    Attributes:
        tools: Patterns of tools.
        kinds: Patterns of tags.
        keys: Patterns of keys.
        paths: Patterns of files of memory that it may change, behind their space: `org/skills/**`.
        approve: True if it may answer approval requests of a gate.
        settle: True if it may settle doubts.
        query: True if it may query in SQL.
        view: Patterns of other roles: it may see their views of a run.
    """

    tools: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    approve: bool = False
    settle: bool = False
    query: bool = False
    view: tuple[str, ...] = ()


@event("role.defined.v1")
class RoleDefined(Event, frozen=True, kw_only=True):
    """The complete rules of a role from here on; they replace the previous ones.

    `sees` are the rules by which it is shown events, `masks` the masks of these, `may` its
    permissions, `about` a sentence for people. `clearance` is the highest confidentiality that it
    is shown (`hansard.domain.label`), regardless of its rules; empty is public.
    """

    sees: tuple[RoleRule, ...] = ()
    masks: tuple[Mask, ...] = ()
    may: May = May()
    about: str = ""
    clearance: str = ""


@event("role.withdrawn.v1")
class RoleWithdrawn(Event, frozen=True, kw_only=True):
    """The role sees nothing and may do nothing from here on, until it is defined again."""

    because: str = ""


RoleEvent = RoleDefined | RoleWithdrawn
