"""A save: the aggregates' commits, made together with the step's outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from hansard.agents.steps import payloads
from hansard.agents.steps.atomic import Draft, JointWrite, Outcome
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.ledger import Joined
from hansard.agents.steps.recorder import Call
from hansard.bus.codec import record
from hansard.bus.states.aggregates import History, history, short_of, without_time
from hansard.bus.writer import MERGE_BYTES_MAX, MERGE_EVENTS_MAX
from hansard.domain import aggregate_types
from hansard.domain.aggregate import AggregateChanged, AggregateConflict, short, stream_of
from hansard.domain.aggregate_types import AggregateType
from hansard.domain.errors import BadValue
from hansard.domain.events import Commit, Recorded
from hansard.domain.ids import WorkspaceStream
from hansard.domain.label import join
from hansard.domain.values import Plain, Scrub

AGGREGATES_MAX = 500
"""Most aggregates of one save: the log takes 1,000 commits at once."""

SAVE_BYTES_MAX = 6 * 1024 * 1024
"""Most event data of one save over all of its aggregates, in bytes: the log takes 8 MiB at once."""


class Unsaved(msgspec.Struct):
    """An aggregate to be saved: what it was changed from, and what happened to it, told."""

    aggregate: Any
    made: AggregateType
    stream: WorkspaceStream
    after: int
    events: list[tuple[str, Plain]]
    packed: list[payloads.Packed] = []

    @property
    def version(self) -> int:
        """The version it will be at."""
        return self.after + len(self.events)

    @property
    def what(self) -> str:
        """What errors call it."""
        return f"{self.made.name} {self.stream.id}"


def unsaved(aggregate: Any, scrub: Scrub | None) -> Unsaved:
    """What of an aggregate is to be saved. Raises BadValue, BadName."""
    made = aggregate_types.declared(type(aggregate))
    pending = list(aggregate.pending_events)
    found = Unsaved(aggregate, made, stream_of(aggregate.id), aggregate.version - len(pending), [])
    if len(pending) > MERGE_EVENTS_MAX:
        fact = f"{len(pending):,} events in one save, the limit is {MERGE_EVENTS_MAX:,}"
        raise BadValue(found.what, fact, "save it in between")
    for event in pending:
        tag, plain = aggregate_types.told(made, event, scrub)
        found.events.append((tag, plain))
        found.packed.append(payloads.pack(plain, f"{tag} of {found.what}"))
    return found


def check_sizes(saves: Sequence[Unsaved]) -> None:
    """Raise BadValue for what is more than the log takes at once, or stands there twice."""
    if len(saves) > AGGREGATES_MAX:
        fact = f"{len(saves):,} aggregates in one save, the limit is {AGGREGATES_MAX:,}"
        raise BadValue("save", fact, "save them in several")
    seen: set[WorkspaceStream] = set()
    total = 0
    for each in saves:
        if each.stream in seen:
            raise BadValue("save", f"{each.what} stands there twice", "give each aggregate once")
        seen.add(each.stream)
        size = sum(len(bytes(packed.raw)) + 300 for packed in each.packed)
        if size > MERGE_BYTES_MAX:
            fact = f"{size:,} bytes of events, the limit of one save is {MERGE_BYTES_MAX:,}"
            raise BadValue(each.what, fact, "save it in between")
        total += size
    if total > SAVE_BYTES_MAX:
        fact = f"{total:,} bytes of events, the limit of one save is {SAVE_BYTES_MAX:,}"
        raise BadValue("save", fact, "save the aggregates in several")


class AggregateWrite(JointWrite):
    """Saves aggregates, each at the version that it was changed from, or none of them.

    `known` are the versions that this session knows to stand; of others the log is asked first,
    since a commit beyond the newest version would leave a hole.
    """

    def __init__(
        self, engine: StepEngine, call: Call, saves: Sequence[Unsaved], known: dict[Any, int]
    ) -> None:
        super().__init__(engine, call)
        self._saves = saves
        self._known = known

    def _streams(self) -> list[WorkspaceStream]:
        return [each.stream for each in self._saves]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        try:
            await self._demand_standing()
            saved = [
                {"aggregate": each.made.name, "id": each.stream.id, "version": each.version}
                for each in self._saves
            ]
            outcome = await self._completed({"saved": saved})
        except Exception as error:  # noqa: BLE001 -- told as the step's outcome, and raised there
            return self._failed(error), []
        return outcome, [self._draft(each) for each in self._saves]

    async def _demand_standing(self) -> None:
        """Raise AggregateConflict where one stands at another version than it was changed from, and
        Blocked where the agent may not be told what happened to it.
        """
        log = self._boards.states.log
        for each in self._saves:
            if not self._lost and each.after == self._known.get(each.stream, 0):
                continue
            last = await log.last(each.stream)
            stands = last.commit.last_version if last is not None else 0
            if stands != each.after:
                after = min(each.after, stands)
                theirs = await history(log, self._blobs, each.stream.id, after=after)
                await self._clearances.demand(theirs.label, each.what, self._call.spec.name)
                self.shown = join(self.shown, theirs.label)
                raise _conflict(each, theirs)

    def _draft(self, each: Unsaved) -> Draft:
        recorded: list[Recorded] = []
        for (tag, _), packed in zip(each.events, each.packed, strict=True):
            event = AggregateChanged(
                aggregate=each.made.name,
                event=tag,
                state=packed.raw,
                run=self._agent.run,
                step=self._call.number,
            )
            recorded.append(record(event, self._clock.new_id()))
        return Draft(each.stream, each.after, recorded)

    def _commit(self, draft: Draft, joined: Joined) -> Commit:
        """Its cause is the step, by the id of its outcome, which stands in the same transaction."""
        return msgspec.structs.replace(super()._commit(draft, joined), causation=joined.id)

    def _sent(self) -> None:
        if self.error is None:
            self._known |= {each.stream: each.version for each in self._saves}


def _conflict(each: Unsaved, theirs: History) -> AggregateConflict:
    told = short_of(theirs.changes)
    return AggregateConflict(
        each.made.name,
        each.stream.id,
        each.after,
        theirs.version,
        short([[tag, without_time(plain)] for tag, plain in each.events]),
        short(told) if told else "nothing",
        theirs.author,
    )
