"""`hansard.aggregate_type`: under which name and tags the aggregates of a class are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hansard.domain import aggregate_types
from hansard.domain.aggregate_types import AggregateType, Upcast
from hansard.domain.errors import BadValue
from hansard.state.recorder.native import check_events, topic_of


def aggregate_type(
    cls: Any,
    *,
    name: str,
    events: Mapping[str, Any],
    older: Mapping[str, tuple[str, Upcast]] | None = None,
) -> None:
    """Have the aggregates of a class of the `eventsourcing` library recorded under a name, and its
    events under versioned tags: what is stored are these and plain values, never a class.

    name: `order`; what roles and SQL know its events by.
    events: the class of each event by its tag, `{"order-placed.v1": Order.Placed}`, or what it is
    called in the aggregate's class, `"Placed"`, since type checkers know nothing of `Order.Placed`
    where `@event` made it. Take another tag when what an event holds changes, and keep the old one
    in `older`.
    older: by an old tag, the tag that took its place, and a function that gives the state under
    that one: `{"order-placed.v1": ("order-placed.v2", lambda state: {**state, "side": "buy"})}`.

    Declare it before an aggregate is saved or got. Raises BadValue.
    """
    where = f"aggregate_type {name!r:.80}"
    if not isinstance(cls, type):
        raise BadValue(where, f"{cls!r:.80} is no class", "give the class of the aggregates")
    if getattr(cls, "INITIAL_VERSION", None) != 1:
        fact = f"{cls.__qualname__} has INITIAL_VERSION {getattr(cls, 'INITIAL_VERSION', None)!r}"
        raise BadValue(where, fact, "give an aggregate of the library, whose versions begin at 1")
    found = {tag: _class_of(cls, each) for tag, each in events.items()}
    check_events(where, found)
    aggregate_types.register(
        AggregateType(
            cls=cls,
            name=name,
            topic=topic_of(where, cls),
            events=found,
            older=dict(older or {}),
        )
    )


def _class_of(cls: type, given: Any) -> Any:
    """An event's class; one that is named is looked up in the aggregate's."""
    return getattr(cls, given, given) if isinstance(given, str) else given
