"""The shape of every aggregate: a state that folds events, and a decision on each command.

`Decider` is that shape as data; `evolve` and `fold` apply events to a `State`. The module also has
the events that streams of several kinds hold (quarantined ones, declassification), and the
artifacts: named things in numbered versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from hansard.domain.choices import Brief
from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.ids import WorkspaceStream
from hansard.domain.ids import name as checked_name
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


class By(msgspec.Struct, frozen=True):
    """Facts of the commit around an event: its author, the log's time in ns, the event's id, and
    the commit's label.
    """

    author: str = ""
    stamp: int = 0
    event: str = ""
    label: Label | None = None


NOBODY = By()
"""The facts of events whose commit does not matter."""


class State(msgspec.Struct):
    """An aggregate at a `version` of its stream. The fold owns its state: `copy()` before changing
    it.
    """

    noun: ClassVar[str] = "an aggregate"

    version: int = 0

    def copy(self) -> Self:
        """Return a copy that can be folded on without changing this one; shallow."""
        parts = ((name, getattr(self, name)) for name in self.__struct_fields__)
        own = {name: part.copy() for name, part in parts if isinstance(part, dict | list | set)}
        return msgspec.structs.replace(self, **own)

    def _quarantined(self) -> None:
        """Skip an invalid event, whose version is counted already."""

    def _evolve(self, event: Any, by: By) -> None:  # noqa: ARG002 -- of those that fold it
        """Change the state by one event, whose version is counted already."""
        message = f"{event.tag} is not an event of {self.noun}"
        raise Refused(message)


S = TypeVar("S", bound=State)
C = TypeVar("C")


def evolve(state: State, event: Event, by: By = NOBODY) -> None:
    """Fold one event into a state that the caller owns. Raises Refused for an event of another
    stream.
    """
    state.version += 1
    if type(event) is Quarantined:
        state._quarantined()  # noqa: SLF001 -- the other half of this function
    else:
        state._evolve(event, by)  # noqa: SLF001 -- the other half of this function


def fold(state: S, events: Iterable[Event], by: By = NOBODY) -> S:
    """Return the state after more events of one commit; the given state is not changed."""
    state = state.copy()
    for each in events:
        evolve(state, each, by)
    return state


class Decider(msgspec.Struct, Generic[S, C], frozen=True, kw_only=True):
    """A kind of aggregate that outlives runs: one stream for each name.

    Attributes:
        kind: The kind of its streams; the id of a stream is the aggregate's name.
        initial: The state before the first event; it folds the events.
        decide: The events of a command; none where it already holds.
        check_name: Return a name, checked. Raises BadName, BadValue.
    """

    kind: str
    initial: Callable[[], S]
    decide: Callable[[S, C], Sequence[Event]]
    check_name: Callable[[object], str] | None = None

    def stream(self, name: object) -> WorkspaceStream:
        """Return the stream of an aggregate. Raises BadName, BadValue."""
        check = self.check_name
        return WorkspaceStream(
            self.kind, checked_name(self.kind, name) if check is None else check(name)
        )


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


def lowered(before: Label, to: Label, approver: str, reason: str) -> LabelDeclassified:
    """Build the event that lowers a label. Raises Refused where `to` is not lower."""
    if to == before or join(to, before) != before:
        message = (
            f"its label is {str(before)!r}, which {str(to)!r} would not lower: "
            "a declassification takes away confidentiality or distrust, and adds none"
        )
        raise Refused(message)
    return LabelDeclassified(to=text(to), approver=approver, because=reason, before=str(before))


def label_after(event: LabelDeclassified) -> Label:
    """Return the label that an event sets. Raises BadValue for a text that no version wrote."""
    return parse(event.to, "label of a declassification")


VERSIONS_MAX = 10_000
"""Versions of an artifact: all of them are read to fold its state."""

V = TypeVar("V", bound=Event)


class ArtifactState(Brief, State, Generic[V]):
    """An artifact at a `version` of its stream.

    Attributes:
        version: A count of events.
        versions: By number.
    """

    remedy: ClassVar[str] = "add one"

    versions: dict[int, V] = {}

    @property
    def newest(self) -> int:
        """The number of the newest version; 0 where there is none."""
        return next(reversed(self.versions), 0)

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


def version_of(state: ArtifactState[Any], event: Any) -> int:
    """Return the version that an event names, or the newest where it names none yet."""
    number: int = event.version or state.newest
    return number


A = TypeVar("A", bound=ArtifactState[Any])


class ArtifactKind(Decider[A, Any], Generic[A], frozen=True, kw_only=True):
    """A kind of artifact. `decide` numbers the versions.

    Attributes:
        noun: The word for one in messages.
        remedy: The advice where no artifact has a name.
        version_of: The version that an event is about, in the state after it.
    """

    noun: str
    remedy: str
    version_of: Callable[[A, Any], int] = version_of
