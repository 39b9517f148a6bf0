"""`hansard.aggregate_type`: the recorded name and tags of a class of aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hansard.domain import aggregate_types
from hansard.domain.aggregate_types import AggregateType, Upcast
from hansard.domain.errors import BadValue
from hansard.state.native import check_events, topic_of


def aggregate_type(
    cls: Any,
    *,
    name: str,
    events: Mapping[str, Any],
    older: Mapping[str, tuple[str, Upcast]] | None = None,
) -> None:
    """Register the name and the versioned event tags under which aggregates of a class of the
    `eventsourcing` library are recorded. Only these and plain values are stored, never a class.

    name: such as `order`; roles and SQL know its events by it.
    events: the class of each event by its tag, `{"order-placed.v1": Order.Placed}`, or its name in
    the aggregate's class, `"Placed"`, since type checkers do not know an `Order.Placed` that
    `@event` made. Use a new tag when an event's fields change, and keep the old one in `older`.
    older: for each old tag, the tag that replaced it, and a function that converts the state:
    `{"order-placed.v1": ("order-placed.v2", lambda state: {**state, "side": "buy"})}`.

    Declare it before an aggregate is saved or loaded. Raises BadValue.
    """
    where = f"aggregate_type {name!r:.80}"
    if not isinstance(cls, type):
        raise BadValue(where, f"{cls!r:.80} is no class", "give the class of the aggregates")
    if getattr(cls, "INITIAL_VERSION", None) != 1:
        fact = f"{cls.__qualname__} has INITIAL_VERSION {getattr(cls, 'INITIAL_VERSION', None)!r}"
        raise BadValue(where, fact, "give an aggregate of the library, whose versions begin at 1")
    classes = {tag: _class_of(cls, each) for tag, each in events.items()}
    check_events(where, classes)
    aggregate_types.register(
        AggregateType(
            cls=cls,
            name=name,
            topic=topic_of(where, cls),
            events=classes,
            older=dict(older or {}),
        )
    )


def _class_of(cls: type, event: Any) -> Any:
    """Return an event's class; a name is looked up in the aggregate's class."""
    return getattr(cls, event, event) if isinstance(event, str) else event
