"""Steps that write what agents share: the step's outcome and what it writes, in one commit of all.

So whoever is killed leaves both or none, and a session that was fenced can write nothing any more.
A write to one stream alone may be three commits instead, which costs less: the intent, what is
written, the outcome (docs/decisions/0014-writes.md).
What is shared is streams of the run's board; `hansard.agents.board.operations` and
`hansard.agents.team.tasks` say what is written.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from hansard.agents.access.carried import put_together, stored_together
from hansard.agents.errors import Blocked
from hansard.agents.flow import Flow, Io, Wait
from hansard.agents.steps import payloads
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.failures import failure, failure_digest
from hansard.agents.steps.gating import STOPPED
from hansard.agents.steps.ledger import Joined
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope
from hansard.agents.transact import retry
from hansard.bus.atomic_sender import Ticket
from hansard.bus.clock import Clock
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, Stored
from hansard.domain import values
from hansard.domain.events import Commit, Recorded
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import KeyStream, WorkspaceStream
from hansard.domain.label import Label, join
from hansard.domain.payload import references
from hansard.domain.steps import Step, StepBlocked, StepCompleted, StepFailed, StepStatus
from hansard.domain.values import Plain

RACES_MAX = 1_000
"""Most lost races of one write before it fails; each means that another one got through."""

ALONE_PATIENCE = 4
"""So many times what a lost publish took is what others are left alone for at first: whoever won
has its outcome and its next intent to publish before it writes the key again.
"""

Outcome = StepCompleted | StepFailed | StepBlocked


SharedStream = KeyStream | WorkspaceStream


class Draft(msgspec.Struct, frozen=True):
    """What is to be appended to a shared stream after its version `after`."""

    stream: SharedStream
    after: int
    events: Sequence[Recorded]


class JointWrite(ABC):
    """Decides and sends until it is through. `error` is what the write failed with, if it did;
    `result` what it came to; `now` the newest time of the log's that is known, in ns. `shown` is
    the label of what the outcome tells, `used` of what the written comes from, besides the agent's.
    """

    is_caused = False
    """Whether what is written names its cause: the step, by the id of its outcome, which is in the
    same transaction."""

    def __init__(self, engine: StepEngine, call: Call) -> None:
        self.error: Exception | None = None
        self.result: Plain = None
        self.now = 0
        self.shown: Label | None = None
        self.used: Label | None = None
        self._own = engine.ledger.label
        self._ledger = engine.ledger
        self._clearances = engine.clearances
        self._lost = False
        self._boards = engine.boards
        self._blobs = engine.outcomes.blobs
        self._agent = engine.stream
        self._scrub = engine.settings.scrub
        self._call = call
        self._clock = Clock()
        self._began = time.perf_counter()

    @abstractmethod
    def _streams(self) -> Sequence[SharedStream]:
        """The shared streams that are written."""

    @abstractmethod
    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        """What the write comes to now, and what it writes. A stream over which a race was lost is
        outdated by then: who goes by what is known of it reads it again, once for all who wait.
        What it raises is recorded as the step's outcome, and raised where the step is made.
        """

    def _follows(self) -> Sequence[Ticket]:
        """What is on its way and what was decided last goes by."""
        return ()

    def _expect(self, ticket: Ticket) -> bool:  # noqa: ARG002 -- most writes go by what is stored alone
        """Whether others may decide before what is sent with this ticket is acknowledged."""
        return False

    def _sent(self) -> None:  # noqa: B027 -- most writes keep nothing of what they sent
        """What was decided last is stored."""

    async def __call__(self, joined: Joined) -> Stored:
        """The joint decision; see `Ledger.tell_jointly`."""
        attempt = functools.partial(self._sent_once, joined)
        try:
            return await retry(attempt, RACES_MAX, ours=self._is_shared)
        except Conflict as lost:
            if not self._is_shared(lost):
                raise
            outcome = self._failed(lost)
        mine = await joined.writer.append(joined.events(outcome), joined.shown(self.used))
        joined.outcome(outcome)
        return mine

    async def _sent_once(self, joined: Joined) -> Stored:
        """Decide, send, and let the next one decide as soon as it can. Raises Conflict."""
        streams = self._streams()
        async with self._boards.turn(streams) as give_back:
            self.shown, self._own = None, self._ledger.label
            try:
                outcome, drafts = await self._outcome()
            except Exception as error:  # noqa: BLE001 -- the step's outcome
                outcome, drafts = self._failed(error), []
            label = joined.shown(join(self.used, self.shown))
            events = joined.events(outcome)
            news = [each for each in drafts if each.events]
            others = [Append(each.stream, self._commit(each, joined)) for each in news]
            if len(news) == 1 and joined.intent and self._goes_alone(news[0].stream):
                mine = await self._sent_alone(joined, events, others[0], label, give_back)
                joined.outcome(outcome)
                return mine
            if others:
                mine = await self._sent_together(joined, events, others, label, give_back)
            else:
                mine = await joined.writer.append(events, label)
            for stream in streams:
                self._boards.won(stream)
            self._sent()
            joined.outcome(outcome)
            return mine

    async def _sent_together(
        self,
        joined: Joined,
        events: Sequence[Recorded],
        others: Sequence[Append],
        label: Label | None,
        give_back: Callable[[], None],
    ) -> Stored:
        """Send what was decided and the step in one transaction, with those of others of this
        process. Raises Conflict.
        """
        boards, writer = self._boards, joined.writer
        appends = [writer.next_commit(events, label), *others]
        ticket: Ticket | None = None
        try:
            ticket = await put_together(boards.sender, writer.log, appends, self._follows())
            if self._expect(ticket):
                give_back()
            stored = await stored_together(writer, ticket)
        except Conflict as conflict:
            self._race_lost(conflict, ticket.took_s if ticket is not None else 0.0)
            raise
        return stored[0]

    def _race_lost(self, conflict: Conflict, wait_s: float) -> None:
        """Read again over what a race was lost, and leave it to others for a while."""
        if self._is_shared(conflict):
            self._lost = True
            if isinstance(conflict.stream, KeyStream):
                self._boards.outdate(conflict.stream)
            if wait_s:
                self._boards.lost(conflict.stream, wait_s)

    def _goes_alone(self, stream: SharedStream) -> bool:  # noqa: ARG002 -- most writes are one commit
        """Whether what is written to a stream may be a commit of its own, which names its intent:
        for a write that finds its outcome again by that.
        """
        return False

    async def _sent_alone(
        self,
        joined: Joined,
        events: Sequence[Recorded],
        other: Append,
        label: Label | None,
        give_back: Callable[[], None],
    ) -> Stored:
        """Publish the intent, the shared stream's commit, which is the outcome, and the outcome's
        event, one after the other. The commit in the middle names the intent's event as its cause,
        and is refused to whoever was fenced: so whoever goes on after a kill finds it, or it never
        will be there. Raises Conflict.
        """
        *opening, outcome = events
        if opening:
            await joined.writer.append(opening, label)
            joined.opened()
        began_s = time.perf_counter()
        commit = msgspec.structs.replace(other.commit, causation=joined.intent)
        try:
            await joined.writer.append_beside(msgspec.structs.replace(other, commit=commit))
        except Conflict as conflict:
            self._race_lost(conflict, ALONE_PATIENCE * (time.perf_counter() - began_s))
            raise
        self._boards.won(other.stream)
        self._sent()
        give_back()
        return await joined.writer.append([outcome], label)

    async def _completed(self, result: Plain) -> StepCompleted:
        """The step's outcome; what is large in it is stored as a blob first."""
        self.result = result
        packed = payloads.pack(result, "result")
        for blob in packed.blobs:
            await self._blobs.put(blob)
        return StepCompleted(
            step=self._call.number,
            result=packed.raw,
            digest=digest(canonical(result)),
            duration_ms=round((time.perf_counter() - self._began) * 1_000, 3),
        )

    def _failed(self, error: Exception) -> StepFailed | StepBlocked:
        self.error = error
        if isinstance(error, Blocked):
            return StepBlocked(step=self._call.number, rule=error.rule, reason=error.reason)
        failure_record = failure(error, self._scrub)
        return StepFailed(
            step=self._call.number,
            error=failure_record,
            digest=failure_digest(failure_record),
            safe=True,
        )

    @property
    def label(self) -> Label | None:
        """The label of what is written."""
        return join(self._own, self.used).stored

    def _is_shared(self, lost: Conflict) -> bool:
        """Whether a lost race was for one of the shared streams."""
        return lost.stream in self._streams()

    def _commit(self, draft: Draft, joined: Joined) -> Commit:
        identity = joined.writer.identity
        return Commit(
            id=self._clock.new_id(),
            version=draft.after + 1,
            at=self._clock.now(),
            actor=identity.actor,
            causation=joined.id if self.is_caused else None,
            correlation=identity.correlation,
            traceparent=identity.traceparent,
            label=self.label,
            events=tuple(draft.events),
        )


class JointSteps:
    """The steps of a session that read or write what agents share."""

    def __init__(self, engine: StepEngine) -> None:
        self.engine = engine

    def _recorded(self, call: Call, read: Callable[[], Flow[Any]]) -> Flow[Any]:
        """Read something and put what it said on record."""
        engine = self.engine
        held = yield from engine.gate(call)
        scope = engine.body_scope(call)
        name = engine.budget_call(call)
        begin = time.perf_counter()
        try:
            if call.told:
                yield from engine.outcomes.again(call)
            value = yield from read()
            plain = value
            scrub = engine.settings.scrub
            if scrub is not None:  # somebody else's value may hold a secret of this session
                plain = yield from engine.outcomes.fetch(references.resolve(value))
                plain = values.plain(values.revive(plain), call.spec.name, scrub)
            took = (time.perf_counter() - begin) * 1_000
            found = payloads.Result(plain)
            yield from engine.outcomes.completed_as(call, found, took, scope.usage)
        finally:
            yield from engine.spend(held, name, scope)
        whole = yield from engine.outcomes.fetch(references.resolve(value))
        return values.revive(whole)

    def _log_time(self, call: Call) -> Flow[int]:
        """The log's time, now: no earlier than a commit of this session's own."""
        if not call.told:
            yield from self.engine.outcomes.intend(call)
        now: int = yield Io(self.engine.boards.log_time)
        return now

    def _jointly(
        self,
        call: Call,
        blobs: list[bytes],
        make: Callable[[Scope], JointWrite],
        *,
        timed: bool | Callable[[], Coroutine[Any, Any, bool]] = False,
    ) -> Flow[Any]:
        """Make a write together with the step's outcome. `timed`: whether it needs to know the
        log's time, which costs a commit of the intent alone; or how to find out.
        """
        engine = self.engine
        held = yield from engine.gate(call)
        scope = engine.body_scope(call)
        name = engine.budget_call(call)
        work = make(scope)
        try:
            yield from engine.outcomes.put(blobs)
            if call.told:
                yield from engine.outcomes.again(call)
            if timed is True or (timed and (yield Io(timed))):
                work.now = yield from self._log_time(call)
            commands: list[Any] = []
            if not call.told:
                more, commands = yield from engine.outcomes.opening(call)
                yield from engine.outcomes.put(more)
                call.told = True
        except STOPPED as error:
            yield from engine.called_off(call, held, error)
            raise
        try:
            done = engine.ledger.tell_jointly(commands, call.number, work)
            engine.outcomes.learn(call)
            yield Wait(done)
        finally:
            yield from engine.spend(held, name, scope)
        if work.error is not None:
            raise work.error
        whole = yield from engine.outcomes.fetch(references.resolve(work.result))
        return values.revive(whole)

    def plan(self, call: Call) -> Flow[Step | None]:
        """What is to be done about a call: the step that answers it, or None: run it.

        An intent without an outcome, also in what is written, wrote nothing: it simply runs. What
        a fork's agents share is its own, so nothing of it is shadowed.
        """
        engine, step = self.engine, call.step
        if step is None:
            engine.demand_writes(call)
            old = engine.ledger.recorded_call(call.place.call)
            if not call.has_effects or old is None:
                return None
            old = yield from self._ended(old)
            if old.status is StepStatus.COMPLETED:
                yield from engine.doubts.adopt(call, old)
                return engine.ledger.state.steps[call.number]
            return None
        call.step = step = yield from self._ended(step)
        holds = step.status is StepStatus.COMPLETED or engine.raises_again(step)
        if holds or engine.settings.mode.reads_only:
            return (yield from engine.plan(call))
        call.take_up(step)
        return None

    def _ended(self, step: Step) -> Flow[Step]:
        """A step that is on record, with the outcome that what it wrote tells of."""
        yield from ()
        return step

    def ask(self, call: Call, run: Callable[[Call], Flow[Any]]) -> Flow[Any]:
        """What the record answers, or else what running it gives."""
        answered, recorded = self.engine.answer(call)
        if not answered:
            recorded = yield from self.engine.execute(call, self.plan, run)
        return recorded
