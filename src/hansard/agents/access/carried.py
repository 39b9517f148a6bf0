"""What a principal carries: the label of all that its holder was shown, over runs and processes.

It stands in the principal's own stream (`hansard.domain.principal`), which says of each moment of
the log what the label was. So nothing here rests on what a process remembers:

* before a principal is shown what is labelled higher than what it carries, that it is shown stands
  on record (`Carried.shown`);
* whatever is written for it has at least the label that it carries at the position where it is
  stored: each commit is conditional on nobody having gone on in the principal's stream, which the
  broker sees to (`CarriedLog`). Who lost that race reads what is new, and writes under that.

A commit with a higher label than the principal carries says that it was shown so much; that is put
on record before. Somebody who lowers the label ends the sessions that were open: what those were
shown they may not have said yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from hansard.agents.transact import retry, transact
from hansard.bus.atomic_sender import JointSender, Ticket
from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit, revive_all
from hansard.bus.errors import BusError, Conflict
from hansard.bus.log import Append, EventLog, NotYet, Stored, VersionFree
from hansard.bus.redacted_log import ForwardingLog
from hansard.bus.writer import StreamWriter
from hansard.domain import principal
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import LOWEST, Label, join, text
from hansard.domain.principal import PrincipalShown, PrincipalState


class Lowered(BusError):
    """The label that a principal carries was lowered since its session was opened.

    State: nothing was written, and the session is over.
    Remedy: open the run again.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the label that principal {name!r} carries was lowered since this session was opened, "
            "and what the session was shown it may not have said yet: open the run again"
        )
        self.name = name


class AccumulatedLabel:
    """What one principal carries, as a session or a request of it goes by. On the bus's loop."""

    def __init__(self, log: EventLog, known: PrincipalState, actor: Actor, role: str) -> None:
        """known: the principal as it was read last; what has come since is read when it counts."""
        self.log = CarriedLog(log, self)
        self.stream = WorkspaceStream(principal.KIND, actor.agent)
        self.role = role
        self.run = ""
        """Where it is shown what it is shown; empty outside of runs."""
        self.tell: Callable[[Label], None] = lambda _: None
        """Told when it carries more than it did."""
        self._base = log
        self._state = known
        self._lowered = known.lowered
        self._actor = actor
        self._clock = Clock()

    @property
    def label(self) -> Label:
        """What it carries, as read last."""
        return self._state.carries

    @property
    def lowered(self) -> int:
        """The version of the declassification that it goes by; 0 for none."""
        return self._lowered

    async def begin(self) -> None:
        """Go by what stands on record now: what was lowered before is no news to who begins."""
        stored = await self._base.read(self.stream, after=self._state.version)
        self._state = self._folded(stored)
        self._lowered = self._state.lowered

    async def refresh(self) -> PrincipalState:
        """The principal with what is new. Raises Lowered."""
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
        """The principal with what was read, less what another operation has taken in meanwhile."""
        news = (each.commit for each in stored if each.commit.version > self._state.version)
        return principal.fold(self._state, revive_all(news))

    async def shown(self, label: Label | None) -> None:
        """Have it on record that it is shown what is labelled so, if it is not yet: return, and it
        may be shown. Costs a read for what is labelled at all. Raises Lowered, Conflict after 50
        lost races.
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
        """Commits as they may be written for it: with what it carries, if that is still so when
        they are stored. What they say that it was shown is on record before.
        """
        label = join(*(each.commit.label for each in appends))
        if join(self.label, label) != self.label:
            await self.shown(label)
        made = [_labelled(each, self.label) for each in appends]
        free = [index for index, each in enumerate(made) if isinstance(each.expected, VersionFree)]
        if not free:
            message = "each of these commits has a condition of its own, and none is left for ours"
            raise TypeError(message)
        expected = NotYet(self.stream, self._state.version + 1)
        made[free[-1]] = msgspec.structs.replace(made[free[-1]], expected=expected)
        return made

    def is_news(self, conflict: Conflict) -> bool:
        """Whether a race was lost because something new stands in the principal's stream."""
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
    log. Raises Conflict where they were decided under a lower label than they have to be written
    with. `stored_together` waits for the ticket.
    """
    if isinstance(log, CarriedLog):
        return sender.put(log.base, await log.as_decided(appends), after)
    return sender.put(log, appends, after)


async def stored_together(writer: StreamWriter, ticket: Ticket) -> list[Stored]:
    """Return a ticket's commits as stored, the writer's first; who loses by what is new of the
    principal has it read. Raises as `StreamWriter.stored`.
    """
    try:
        return await writer.stored(ticket)
    except Conflict as conflict:
        if isinstance(writer.log, CarriedLog):
            await writer.log.learn(conflict)
        raise


class CarriedLog(ForwardingLog):
    """A log as one principal writes to it; read as any. See the module."""

    def __init__(self, base: EventLog, carried: AccumulatedLabel) -> None:
        super().__init__(base)
        self.carried = carried

    async def append(self, append: Append) -> Stored:
        """As the port says; under the label that the principal carries there. Only races over what
        it carries are made good, up to 50: each lost one means that it was shown more, or was
        issued a token or lost one.
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
        """As the port says; a Conflict where the principal has come to carry more, too, since what
        is written together was decided under what it carried.
        """
        ready = await self.as_decided(appends)
        try:
            return await self.base.append_all(ready)
        except Conflict as conflict:
            await self.learn(conflict)
            raise

    async def as_decided(self, appends: Sequence[Append]) -> list[Append]:
        """Commits as they may be written. Raises Conflict where the principal has come to carry
        more since they were decided.
        """
        ready = await self.carried.ready(appends)
        for mine, given in zip(ready, appends, strict=True):
            if mine.commit is not given.commit:  # whoever decided keeps what it decided in mind
                raise Conflict(appends[-1].stream, appends[-1].commit.version, None)
        return ready

    async def learn(self, conflict: Conflict) -> None:
        """Read what is new of the principal, if a race was lost by that. Raises Lowered."""
        if self.carried.is_news(conflict):
            await self.carried.refresh()

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """As the port says, one transaction after the other."""
        return [await self.append_all(group) for group in groups]

    async def append_bulk(self, appends: Iterable[Append]) -> int:
        """As the port says, one after the other: a principal imports nothing."""
        stored = [await self.append(each) for each in appends]
        return len(stored)
