"""The common part of aggregates: quarantined events, declassification, and named artifacts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from hansard.domain.choices import Brief
from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.label import Label, join, parse, text

# The replacement that a reader gets for an invalid event: it takes the version, and has no effect.
#
# No log holds such an event: it is made when a log is read (`hansard.bus.validation.reads`). So it
# has a tag, but is not registered under it, and a stored event with this tag is itself invalid.

TAG = "commit.quarantined.v1"


class Quarantined(Event, frozen=True, kw_only=True):
    """Takes the version of an invalid event; `reason` is why it is invalid."""

    tag: ClassVar[str] = TAG

    reason: str


# Declassification: the lowered label of an agent or a key, its approver and the reason.
#
# This is the storage format: a tag never changes its meaning, a field is only added with a default.
# The event is in the stream of the agent or key whose label it lowers.


@event("label.declassified.v1")
class LabelDeclassified(Event, frozen=True, kw_only=True):
    """The label is `to` from here on, whatever it was before.

    Labels are texts (`hansard.domain.label`); an empty `to` is public and trusted. `approver` is
    responsible for the change, `because` is the reason, `before` the label until then.
    """

    to: str
    approver: str
    because: str
    before: str


def decide(before: Label, to: Label, approver: str, reason: str) -> LabelDeclassified:
    """Build the event that lowers a label. Raises Refused where `to` is not lower."""
    if to == before or join(to, before) != before:
        message = (
            f"its label is {str(before)!r}, which {str(to)!r} would not lower: "
            "a declassification takes away confidentiality or distrust, and adds none"
        )
        raise Refused(message)
    return LabelDeclassified(to=text(to), approver=approver, because=reason, before=str(before))


def after(event: LabelDeclassified) -> Label:
    """Return the label that an event sets. Raises BadValue for a text that no version wrote."""
    return parse(event.to, "label of a declassification")


VERSIONS_MAX = 10_000
"""Versions of an artifact: all of them are read to fold its state."""

V = TypeVar("V", bound=Event)


class ArtifactState(Brief, msgspec.Struct, Generic[V]):
    """An artifact at a `version` of its stream.

    Attributes:
        version: A count of events.
        versions: By number.
    """

    remedy: ClassVar[str] = "add one"

    version: int = 0
    versions: dict[int, V] = {}

    @property
    def newest(self) -> int:
        """The number of the newest version; 0 where there is none."""
        return next(reversed(self.versions), 0)

    def evolve(self, event: Any) -> None:
        """Apply one event in place. Raises Refused for an event of another kind."""
        message = f"{event.tag} is not an event of a {type(self).__name__}"
        raise Refused(message)

    def demand(self, version: int) -> V:
        """Return a version. Raises Refused where there is none."""
        if version not in self.versions:
            has = f"its newest is {self.newest}" if self.versions else f"it has none: {self.remedy}"
            message = f"there is no version {version}: {has}"
            raise Refused(message)
        return self.versions[version]

    def next_number(self) -> int:
        """Return the number of the next version. Raises Refused where there is no room for one."""
        if len(self.versions) >= VERSIONS_MAX:
            message = f"it has {VERSIONS_MAX:,} versions, the most there may be: begin another"
            raise Refused(message)
        return self.newest + 1


S = TypeVar("S", bound=ArtifactState[Any])


def fold(state: S, events: Iterable[Event]) -> S:
    """Return the state after more events; the given state is not changed."""
    fields = {name: copy(getattr(state, name)) for name in state.__struct_fields__}
    made = type(state)(**fields)
    for each in events:
        made.version += 1
        if not isinstance(each, Quarantined):
            made.evolve(each)
    return made


def version_of(state: ArtifactState[Any], event: Any) -> int:
    """Return the version that an event names, or the newest where it names none yet."""
    number: int = event.version or state.newest
    return number


class ArtifactKind(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A kind of artifact: its rules, and its words in messages.

    Attributes:
        kind: The kind of its streams; the id of a stream is the artifact's name.
        noun: The word for one in messages.
        remedy: The advice where no artifact has a name.
        initial: The state before the first event.
        decide: The events of a statement; none where it already holds. Numbers versions.
        check_name: Return a name, checked. Raises BadName, BadValue.
        version_of: The version that an event is about, in the state after it.
    """

    kind: str
    noun: str
    remedy: str
    initial: Callable[[], S]
    decide: Callable[[S, Any], Sequence[Event]]
    check_name: Callable[[object], str]
    version_of: Callable[[S, Any], int] = version_of
