"""Accumulated label of a principal: the join of everything its holder was shown, across runs and
processes.

It is recorded in the principal's own stream (`hansard.domain.principal`), which gives the label for
each position of the log, so that nothing here depends on a process's memory:

* before a principal is shown something with a higher label than its own, that is recorded
  (`AccumulatedLabel.shown`);
* everything written for it has at least its label at the position where it is stored: each commit
  is conditional on no newer event in the principal's stream, which the broker enforces
  (`CarriedLog`). A writer that loses this race reads the new events and writes under the new label.

A commit with a higher label than the principal's implies that it was shown that much, which is
recorded first. Lowering the label ends the open sessions: they may still write what they were shown
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit, revive_all
from hansard.bus.errors import BusError, Conflict
from hansard.bus.log import Append, EventLog, NotYet, Stored, VersionFree
from hansard.bus.redacted_log import ChangedLog, ForwardingLog
from hansard.bus.writer import JointSender, StreamWriter, Ticket
from hansard.domain import principal
from hansard.domain.decider import fold
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import LOWEST, Label, join, text
from hansard.domain.principal import PrincipalShown, PrincipalState
from hansard.state.repository import retry, transact


class Lowered(BusError):
    """The label that a principal carries was lowered since its session was opened.

    State: nothing was written, and the session is over.
    Remedy: open the run again.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the label of principal {name!r} was lowered since this session was opened, "
            "and the session may still write what it was shown before: open the run again"
        )
        self.name = name


class AccumulatedLabel:
    """Accumulated label of one principal, as used by a session or a request. Runs on the bus's
    loop.
    """

    def __init__(self, log: EventLog, known: PrincipalState, actor: Actor, role: str) -> None:
        """Create it from the principal's last known state; later events are read when they are
        needed.
        """
        self.log = CarriedLog(log, self)
        self.stream = WorkspaceStream(principal.KIND, actor.agent)
        self.role = role
        self.run = ""
        """Id of the run in which it is shown something; empty outside of runs."""
        self.tell: Callable[[Label], None] = lambda _: None
        """Called when the label rises."""
        self._base = log
        self._state = known
        self._lowered = known.lowered
        self._actor = actor
        self._clock = Clock()

    @property
    def label(self) -> Label:
        """Label as last read."""
        return self._state.carries

    @property
    def lowered(self) -> int:
        """Version of the declassification that it is based on; 0 for none."""
        return self._lowered

    async def begin(self) -> None:
        """Start from the current state: earlier declassifications do not end a session that begins
        now.
        """
        stored = await self._base.read(self.stream, after=self._state.version)
        self._state = self._folded(stored)
        self._lowered = self._state.lowered

    async def refresh(self) -> PrincipalState:
        """Read new events and return the principal. Raises Lowered."""
        self._take(await self._base.read(self.stream, after=self._state.version))
        return self._state

    def _take(self, stored: Iterable[Stored]) -> None:
        state = self._folded(stored)
        if state.lowered != self._lowered:
            raise Lowered(self.stream.id)
        grew = state.label != self._state.label
        self._state = state
        if grew:
            self.tell(state.carries)

    def _folded(self, stored: Iterable[Stored]) -> PrincipalState:
        """Fold the events read, except those that a concurrent operation has already folded."""
        news = (each.commit for each in stored if each.commit.version > self._state.version)
        return fold(self._state, revive_all(news))

    async def shown(self, label: Label | None) -> None:
        """Record that the principal is shown something with this label, unless already covered;
        after that it may be shown. Costs a read unless the label is lowest. Raises Lowered, and
        Conflict after 50 lost races.
        """
        if label is None or label == LOWEST:
            return
        event = PrincipalShown(label=text(label), role=self.role, run=self.run)

        def next_append(state: PrincipalState) -> Append | None:
            events = principal.decide(state, event)
            if not events:
                return None
            version, shown = state.version + 1, join(state.carries, label).stored
            commit = new_commit(self._clock, version, self._actor, events, label=shown)
            return Append(self.stream, commit)

        stored = await transact(self.refresh, next_append, self._base.append)
        if stored is not None:
            self._take([stored])

    async def ready(self, appends: Sequence[Append]) -> list[Append]:
        """Return commits as they may be written for the principal: under its label, on condition
        that it has not changed when they are stored. Higher labels among them are recorded as shown
        first.
        """
        label = join(*(each.commit.label for each in appends))
        if join(self.label, label) != self.label:
            await self.shown(label)
        made = [_labelled(each, self.label) for each in appends]
        free = [index for index, each in enumerate(made) if isinstance(each.expected, VersionFree)]
        if not free:
            message = "each of these commits has a condition: the label's condition fits none"
            raise TypeError(message)
        expected = NotYet(self.stream, self._state.version + 1)
        made[free[-1]] = msgspec.structs.replace(made[free[-1]], expected=expected)
        return made

    def is_news(self, conflict: Conflict) -> bool:
        """Return whether a race was lost to a new event in the principal's stream."""
        return conflict.winner is not None and conflict.winner.stream == self.stream


def _labelled(append: Append, label: Label) -> Append:
    higher = join(append.commit.label, label).stored
    if higher == append.commit.label:
        return append
    commit = msgspec.structs.replace(append.commit, label=higher)
    return msgspec.structs.replace(append, commit=commit)


async def put_together(
    sender: JointSender, log: EventLog, appends: Sequence[Append], after: Sequence[Ticket]
) -> Ticket:
    """Queue commits to several streams in a process's own sender, as they may be written to this
    log. Raises Conflict if they were decided under a lower label than they must be written with.
    `stored_together` waits for the ticket.
    """
    if isinstance(log, CarriedLog):
        return sender.put(log.base, await log.as_decided(appends), after)
    return sender.put(log, appends, after)


async def stored_together(writer: StreamWriter, ticket: Ticket) -> list[Stored]:
    """Return a ticket's commits as stored, the writer's first; after a race lost to a new event of
    the principal, read that event. Raises as `StreamWriter.stored`.
    """
    try:
        return await writer.stored(ticket)
    except Conflict as conflict:
        if isinstance(writer.log, CarriedLog):
            await writer.log.learn(conflict)
        raise


class CarriedLog(ForwardingLog):
    """A log as one principal writes to it; reads are unchanged. See the module."""

    def __init__(self, base: EventLog, carried: AccumulatedLabel) -> None:
        super().__init__(base)
        self.carried = carried

    async def append(self, append: Append) -> Stored:
        """Append as the port defines, under the label that the principal has there. Retries up to
        50 races lost to events of the principal: a higher label, or an issued or revoked token.
        """

        async def attempt() -> Stored:
            [ready] = await self.carried.ready([append])
            try:
                return await self.base.append(ready)
            except Conflict as conflict:
                await self.learn(conflict)
                raise

        return await retry(attempt, ours=self.carried.is_news)

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Append as the port defines. Raises Conflict if the principal's label has risen too, since
        the commits were decided under the lower one.
        """
        ready = await self.as_decided(appends)
        try:
            return await self.base.append_all(ready)
        except Conflict as conflict:
            await self.learn(conflict)
            raise

    async def as_decided(self, appends: Sequence[Append]) -> list[Append]:
        """Return commits as they may be written. Raises Conflict if the principal's label has risen
        since they were decided.
        """
        ready = await self.carried.ready(appends)
        for mine, decided in zip(ready, appends, strict=True):
            if mine.commit is not decided.commit:  # the caller keeps the decided commit
                raise Conflict(appends[-1].stream, appends[-1].commit.version, None)
        return ready

    async def learn(self, conflict: Conflict) -> None:
        """Read the principal's new events, if a race was lost to them. Raises Lowered."""
        if self.carried.is_news(conflict):
            await self.carried.refresh()

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """Append as the port defines, one transaction after the other."""
        return [await self.append_all(group) for group in groups]

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """Append as the port defines, one after the other: principals import nothing in bulk."""
        stored = [await self.append(each) for each in appends]
        return len(stored)


class LabelledLog(ChangedLog):
    """A log whose commits get at least a label."""

    def __init__(self, base: EventLog, label: Label) -> None:
        super().__init__(base)
        self._label = label

    def changed(self, append: Append) -> Append:
        """Return the commit under the label."""
        return _labelled(append, self._label)
