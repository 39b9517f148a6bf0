"""A role's events: what it sees, what of that is masked, and what it may do. The storage format.

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
# abc      itself, case included
# *        any characters inside one segment, none included: `search_*`, `*.pdf`, `*`
# **       as the last segment alone: the rest, one or more segments
# \* \\    a star, a backslash; in a field a dot behind a backslash is part of the name
#
# Nothing else has a meaning of its own: `?`, `[` and `{` are themselves. So `findings/**` matches
# `findings/a` and `findings/a/b`, but neither `findings` nor `findings-old/a`.
#
# What separates: `.` in kinds, tools and fields, `/` in keys. Roles, agents and labels' values are
# one segment whatever they hold, so there `*` reaches over everything.

DOT, SLASH, NONE = ".", "/", ""
"""Separators: of kinds, tools and fields; of keys; of names that are one segment."""

REST = "**"
PATTERN_STARS_MAX = 20
"""Most stars in a pattern."""

_ESCAPE, _STAR = "\\", "*"


class Pattern(msgspec.Struct, frozen=True):
    """A pattern, read: of each segment the literal parts between its stars; `rest` says whether
    one or more segments may follow.
    """

    segments: tuple[tuple[str, ...], ...]
    rest: bool
    separator: str


@lru_cache(maxsize=4_096)
def read(text: str, separator: str, where: str = "pattern") -> Pattern:
    """A pattern. Raises BadValue, which names `where` and what is wrong with it."""
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
    """Whether a whole name is of a pattern. Linear in the name's length for each star."""
    given = name.split(pattern.separator) if pattern.separator else [name]
    target = pattern.segments
    if len(given) <= len(target) if pattern.rest else len(given) != len(target):
        return False
    return all(map(segment_matches, target, given))


def segment_matches(parts: tuple[str, ...], segment: str) -> bool:
    """Whether a segment is the literal parts in their order, with anything between them."""
    if len(parts) == 1:
        return segment == parts[0]
    first, *middle, last = parts
    if len(segment) < len(first) + len(last):
        return False
    if not segment.startswith(first) or not segment.endswith(last):
        return False
    at, end = len(first), len(segment) - len(last)
    for part in middle:
        found = segment.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def any_matches(texts: tuple[str, ...], separator: str, name: str) -> bool:
    """Whether a name is of one of some patterns."""
    return any(matches(read(text, separator), name) for text in texts)


def tool_matches(text: str, tool: str) -> bool:
    """Whether a pattern of tools takes in one: for the gate's rules and for what roles may."""
    return matches(read(text, DOT, "pattern of tools"), tool)


def role_matches(text: str, role: str) -> bool:
    """Whether a pattern of roles takes in one."""
    return matches(read(text, NONE, "pattern of roles"), role)


def kind_matches(text: str, tag: str) -> bool:
    """Whether a pattern of kinds takes in a tag. The version counts only where a pattern's last
    segment is one: `step.*` and `step.completed` take in `step.completed.v1`.
    """
    pattern = read(text, DOT)
    name, _, version = tag.rpartition(".")
    last = pattern.segments[-1] if pattern.segments else ()
    if pattern.rest or (len(last) == 1 and is_version(last[0])) or not is_version(version):
        return matches(pattern, tag)
    return matches(pattern, name)


def is_version(segment: str) -> bool:
    """Whether a tag's segment is its version: v1, v2 ..."""
    return segment[:1] == "v" and segment[1:].isascii() and segment[1:].isdigit()


def behind_space(space: str, path: str) -> str:
    """A file of memory as `paths` name it, behind its space: `org/AGENTS.md`. A slash in an owner's
    name is `%2F` there, so that no agent's name reaches into the files of another.
    """
    kind, slash, owner = space.partition("/")
    if "/" in owner:
        owner = owner.replace("%", "%25").replace("/", "%2F")
    return f"{kind}{slash}{owner}/{path}"


KIND = "role"
"""The kind of its stream; its id is the role's name."""


class RoleRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """Lets a role see events of which every matcher given holds.

    `kinds` are patterns of tags; `roles` and `agents` of who wrote it, `keys` of the key of shared
    state that it changes, `labels` of the run's labels, by their names. What an event does not have
    (a key, an author in a role, a label) matches nothing. `fields` are the paths of its data that
    are shown; None shows all. `aggregates` are patterns of what happens to a program's own
    aggregates: the name and the tag that it declared, `order/order-placed.v1`. `paths` are patterns
    of files of memory behind the name of their space, `org/skills/**`: a change of several files is
    seen where all of them match.

    Attributes:
        name: What `hansard roles explain` calls it.
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
    """What becomes of a masked value. Of several for one value the first of these wins."""

    DROP = "drop"
    HASH = "hash"
    TRUNCATE = "truncate"


class Mask(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which fields of which kinds are dropped, replaced by a keyed digest, or cut to so many
    characters; where `roles` and the others are given, only of events that they match, too.

    Attributes:
        name: What `hansard roles explain` calls it.
        kinds: Patterns of tags.
        fields: Paths of their data.
        how: What becomes of the value.
        characters: How many are left, where it is cut.
        agents: Patterns of who wrote it.
        keys: Patterns of the key that it changes.
        labels: Patterns of the run's labels, by their names.
        aggregates: Patterns of an aggregate's name and the tag of what happens to it.
        paths: Patterns of files of memory, behind their space: one of those changed matches.
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
    """What a role may do: the tools it calls, the kinds and keys it writes (patterns), whether it
    approves what a gate asks, settles doubts, and queries in SQL, and whose views it is shown.

    Attributes:
        tools: Patterns of tools.
        kinds: Patterns of tags.
        keys: Patterns of keys.
        paths: Patterns of files of memory that it changes, behind their space: `org/skills/**`.
        approve: Whether it answers questions of a gate.
        settle: Whether it settles doubts.
        query: Whether it asks in SQL.
        view: Patterns of other roles: it is shown what they are shown of a run.
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
    """The whole set of a role's rules from here on; it replaces the one before. `sees` are the
    rules by which it is shown events, `masks` what is left out of these, `may` what it may do,
    `about` a sentence for people. `clearance` is the
    highest confidentiality that it is shown anything of (`hansard.domain.label`), whatever its
    rules say; empty is public.
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
