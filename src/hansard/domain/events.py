"""The envelope of recorded events, and the registry of event types.

A commit is the events of one decision in one stream, whole or not at all. Its JSON body is the
storage format: the order of its fields is fixed, old tags never change their meaning, and the parts
of the subject (workspace, run, role, agent) are not repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import msgspec

from hansard.domain.ids import StreamId
from hansard.domain.label import Label

TAG_PATTERN = r"^[a-z_]+(\.[a-z_]+)+\.v[0-9]+$"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of every event: frozen, in the past tense, known by an explicit versioned tag."""

    tag: ClassVar[str] = ""


EventType = TypeVar("EventType", bound=type[Event])

REGISTRY: dict[str, type[Event]] = {}
"""Every event type this version knows, by tag."""

Upcaster = Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]
"""Maps an old event's data to a newer tag and its data. Applied until the tag is the current
one."""

UPCASTERS: dict[str, Upcaster] = {}
"""Upcasters by old tag. Old events never change in the log; `hansard.bus.commits` upcasts them when
they are read."""


def event(tag: str) -> Callable[[EventType], EventType]:
    """Register an event type under its tag, e.g. `step.completed.v1`."""

    def register(cls: EventType) -> EventType:
        if tag in REGISTRY:
            message = f"event tag {tag!r} is taken by {REGISTRY[tag].__name__}"
            raise TypeError(message)
        cls.tag = tag
        REGISTRY[tag] = cls
        return cls

    return register


class Actor(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The writer of a commit, and the principals it acts for, the nearest first."""

    agent: str
    on_behalf_of: tuple[str, ...] = ()

    @classmethod
    def of(cls, who: str | Actor) -> Actor:
        """Return an actor from a name; an actor is returned as it is."""
        return who if isinstance(who, Actor) else cls(who)


class Tx(msgspec.Struct, frozen=True, gc=False):
    """The commit's place in a transaction over several streams: `index` of `count`, from 0."""

    id: str
    index: int
    count: int


class Encryption(msgspec.Struct, frozen=True):
    """Reserved: how an event's data is encrypted. No version writes it yet."""

    key: str
    alg: str


class Recorded(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One event inside a commit: its tag, its id, and its data as the exact JSON bytes.

    `occurred_at` is the time that the source of an imported event claims: ISO 8601 as the source
    wrote it (without a zone where the source gave none). It orders nothing.
    """

    type: str
    id: str
    data: msgspec.Raw
    enc: Encryption | None = None
    occurred_at: str | None = None


class Commit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The body of one JetStream message.

    `version` is the version of the first event; event i has version `version + i`.
    `at` is the writer's clock (UTC); it orders nothing. `epoch` is the writer's epoch in
    an agent's stream; 0 where a stream has no epochs. `causation` is the id of the event that
    led to this commit, `correlation` an id of the caller's, `traceparent` as in W3C Trace Context.
    `stream` is given only where a name is too long for a subject, which then carries its digest.
    `label` is the join of all that its writer had been shown when it wrote this; None is public and
    trusted.
    """

    id: str
    version: int
    at: datetime
    actor: Actor
    epoch: int = 0
    causation: str | None = None
    correlation: str | None = None
    traceparent: str | None = None
    tx: Tx | None = None
    stream: StreamId | None = None
    label: Label | None = None
    events: tuple[Recorded, ...]

    @property
    def last_version(self) -> int:
        """The version of the commit's last event."""
        return self.version + len(self.events) - 1
