"""What the library calls classes in this process. It is never stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventsourcing.domain import CanMutateAggregate
from eventsourcing.utils import TopicError, get_topic

from hansard.domain.errors import BadValue


def topic_of(where: str, cls: type) -> str:
    """What the library finds a class by in this process. Raises BadValue where it has another one
    of that name already: it keeps the first.
    """
    try:
        return get_topic(cls)
    except TopicError as error:
        fact = f"the library knows another class as {cls.__module__}:{cls.__qualname__}"
        raise BadValue(where, fact, "define the class once; in a notebook, restart") from error


def check_events(where: str, events: Mapping[str, Any]) -> None:
    """Raise BadValue for what is no class of events that change an aggregate."""
    for tag, cls in events.items():
        if not (isinstance(cls, type) and issubclass(cls, CanMutateAggregate)):
            fact = f"what is given for {tag!r} is {cls!r:.80}"
            raise BadValue(where, fact, "give the class of an event of the aggregate")
