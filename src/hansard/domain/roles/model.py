"""A role's events: what it sees, what of that is masked, and what it may do. The storage format.

A tag never changes its meaning, a field is only added with a default. Patterns are those of
`hansard.domain.roles.patterns`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from hansard.domain.events import Event, event

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
