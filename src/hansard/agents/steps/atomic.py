"""Steps that write shared state: the step's outcome and what it writes, in one commit of all
streams. Among them is `session.view`.

So a kill leaves both or none, and a fenced session can no longer write anything. A write to a
single stream may instead be three commits, which costs less: the intent, the write, the outcome
(docs/decisions/0014-writes.md). Shared state is in streams of the run's board;
`hansard.agents.board` and `hansard.agents.team.tasks` define what is written.
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

import msgspec

from hansard.agents.access import roles
from hansard.agents.access.carried import put_together, stored_together
from hansard.agents.access.roles import DerivedView, OnRecord, View
from hansard.agents.errors import Blocked, ViewDiffers
from hansard.agents.flow import Flow, Io, Wait
from hansard.agents.steps import payloads
from hansard.agents.steps.engine import StepEngine
from hansard.agents.steps.failures import failed
from hansard.agents.steps.gating import STOPPED
from hansard.agents.steps.ledger import Ended, PendingOutcome
from hansard.agents.steps.recorder import Call
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import operation
from hansard.bus.clock import Clock
from hansard.bus.commits import record
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, Stored
from hansard.bus.writer import Ticket
from hansard.domain import payload, values
from hansard.domain.access import ViewServed
from hansard.domain.errors import Corrupt
from hansard.domain.events import Commit, Recorded
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import KeyStream, WorkspaceStream
from hansard.domain.label import Label, join
from hansard.domain.steps import Step, StepBlocked, StepCompleted, StepFailed, StepStatus
from hansard.domain.values import Plain
from hansard.state.repository import retry

RACES_MAX = 1_000
"""Largest number of lost races of one write; each means that another writer succeeded."""

ALONE_PATIENCE = 4
"""Initial back-off after a lost race, in multiples of the lost publish's duration: the winner has
its outcome and its next intent to publish before it writes the key again."""

Outcome = Ended
SharedStream = KeyStream | WorkspaceStream


class Draft(msgspec.Struct, frozen=True):
    """Events to append to a shared stream after its version `after`."""

    stream: SharedStream
    after: int
    events: Sequence[Recorded]


class JointWrite(ABC):
    """Decides and sends until it succeeds. `error` is the write's failure, if any; `result` its
    result; `now` the newest known time of the log, in ns. `shown` is the label of the outcome's
    data, `used` the label of the written data's sources besides the agent's.
    """

    is_caused = False
    """True if the write names its cause: the id of the outcome in the same transaction."""

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
        self.began_s = 0.0
        self.scope = call.place.scope
        """The scope of the call's body, from `begin` on."""

    def begin(self, scope: Scope) -> None:
        """Start the write, once its call has passed the gate."""
        self.scope = scope
        self.began_s = self.began_s or time.perf_counter()

    @abstractmethod
    def _streams(self) -> Sequence[SharedStream]:
        """Return the shared streams that are written."""

    @abstractmethod
    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        """Decide the outcome and the write on the current state. A stream whose race was lost is
        marked outdated before; a decision based on its known state reads it again, once for all
        waiters.

        An exception is recorded as the step's outcome, and raised from the call.
        """

    def _follows(self) -> Sequence[Ticket]:
        """Return the in-flight appends that the last decision depends on."""
        return ()

    def _expect(self, ticket: Ticket) -> bool:  # noqa: ARG002 -- most writes depend only on stored commits
        """Return whether others may decide before this ticket's append is acknowledged."""
        return False

    def _sent(self) -> None:  # noqa: B027 -- most writes keep no state of what they sent
        """Handle that the last decision is stored."""

    async def __call__(self, pending: PendingOutcome) -> Stored:
        """Run the joint decision; see `Ledger.record_jointly`."""
        attempt = functools.partial(self._sent_once, pending)
        try:
            return await retry(attempt, RACES_MAX, ours=self._is_shared)
        except Conflict as lost:
            if not self._is_shared(lost):
                raise
            outcome = self._failed(lost)
        mine = await pending.writer.append(pending.events(outcome), pending.shown(self.used))
        pending.outcome(outcome)
        return mine

    async def _sent_once(self, pending: PendingOutcome) -> Stored:
        """Decide, send, and release the turn as early as possible. Raises Conflict."""
        streams = self._streams()
        async with self._boards.turn(streams) as give_back:
            self.shown, self._own = None, self._ledger.label
            try:
                outcome, drafts = await self._outcome()
            except Exception as error:  # noqa: BLE001 -- the step's outcome
                outcome, drafts = self._failed(error), []
            label = pending.shown(join(self.used, self.shown))
            events = pending.events(outcome)
            news = [each for each in drafts if each.events]
            others = [Append(each.stream, self._commit(each, pending)) for each in news]
            if len(news) == 1 and pending.intent and self._goes_alone(news[0].stream):
                mine = await self._sent_alone(pending, events, others[0], label, give_back)
                pending.outcome(outcome)
                return mine
            if others:
                mine = await self._sent_together(pending, events, others, label, give_back)
            else:
                mine = await pending.writer.append(events, label)
            for stream in streams:
                self._boards.won(stream)
            self._sent()
            pending.outcome(outcome)
            return mine

    async def _sent_together(
        self,
        pending: PendingOutcome,
        events: Sequence[Recorded],
        others: Sequence[Append],
        label: Label | None,
        give_back: Callable[[], None],
    ) -> Stored:
        """Send the decision and the step in one transaction, batched with those of other writers of
        this process. Raises Conflict.
        """
        boards, writer = self._boards, pending.writer
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
        """Mark the contested stream as outdated, and back off from it for a while."""
        if self._is_shared(conflict):
            self._lost = True
            if isinstance(conflict.stream, KeyStream):
                self._boards.outdate(conflict.stream)
            if wait_s:
                self._boards.lost(conflict.stream, wait_s)

    def _goes_alone(self, stream: SharedStream) -> bool:  # noqa: ARG002 -- most writes are one commit
        """Return whether the write to a stream may be a separate commit that names its intent, for
        writes that find their outcome by it.
        """
        return False

    async def _sent_alone(
        self,
        pending: PendingOutcome,
        events: Sequence[Recorded],
        other: Append,
        label: Label | None,
        give_back: Callable[[], None],
    ) -> Stored:
        """Publish the intent, the shared stream's commit (which is the outcome), and the outcome's
        event, one after another.

        The commit in the middle names the intent's event as its cause, and is rejected for a fenced
        writer: so a process that resumes after a kill finds it, or it will never exist. Raises
        Conflict.
        """
        *opening, outcome = events
        if opening:
            await pending.writer.append(opening, label)
            pending.opened()
        began_s = time.perf_counter()
        commit = msgspec.structs.replace(other.commit, causation=pending.intent)
        try:
            await pending.writer.append_beside(msgspec.structs.replace(other, commit=commit))
        except Conflict as conflict:
            self._race_lost(conflict, ALONE_PATIENCE * (time.perf_counter() - began_s))
            raise
        self._boards.won(other.stream)
        self._sent()
        give_back()
        return await pending.writer.append([outcome], label)

    async def _completed(self, result: Plain) -> StepCompleted:
        """Return the step's outcome, after storing large parts as blobs."""
        self.result = result
        packed = payloads.pack(result, "result")
        for blob in packed.blobs:
            await self._blobs.put(blob)
        return StepCompleted(
            step=self._call.number,
            result=packed.raw,
            digest=digest(canonical(result)),
            duration_ms=round((time.perf_counter() - self.began_s) * 1_000, 3),
        )

    def _failed(self, error: Exception) -> StepFailed | StepBlocked:
        self.error = error
        if isinstance(error, Blocked):
            return StepBlocked(step=self._call.number, rule=error.rule, reason=error.reason)
        return failed(self._call.number, error, self._scrub)

    @property
    def label(self) -> Label | None:
        """The label of what is written."""
        return join(self._own, self.used).stored

    def _is_shared(self, lost: Conflict) -> bool:
        """Return whether a lost race was for one of the shared streams."""
        return lost.stream in self._streams()

    def _commit(self, draft: Draft, pending: PendingOutcome) -> Commit:
        identity = pending.writer.identity
        return Commit(
            id=self._clock.new_id(),
            version=draft.after + 1,
            at=self._clock.now(),
            actor=identity.actor,
            causation=pending.id if self.is_caused else None,
            correlation=identity.correlation,
            traceparent=identity.traceparent,
            label=self.label,
            events=tuple(draft.events),
        )


class JointSteps:
    """Steps of a session that read or write shared state."""

    outlives_runs = False
    """True for state that is not the run's: a fork uses its parent's."""

    def __init__(self, engine: StepEngine) -> None:
        self.engine = engine

    def _recorded(self, call: Call, read: Callable[[], Flow[Any]]) -> Flow[Any]:
        """Read something and record the result."""
        engine = self.engine
        held = yield from engine.gate(call)
        scope = engine.body_scope(call)
        begin = time.perf_counter()
        try:
            if call.is_recorded:
                yield from engine.outcomes.again(call)
            value = yield from read()
            plain = value
            scrub = engine.settings.scrub
            if scrub is not None:  # another agent's value may hold a secret of this session
                plain = yield from engine.outcomes.fetch(payload.resolve(value))
                plain = values.plain(values.revive(plain), call.spec.name, scrub)
            took = (time.perf_counter() - begin) * 1_000
            result = payloads.Result(plain)
            yield from engine.outcomes.completed_as(call, result, took, scope.usage)
        finally:
            yield from engine.spend(held, scope.usage)
        whole = yield from engine.outcomes.fetch(payload.resolve(value))
        return values.revive(whole)

    def _log_time(self, call: Call) -> Flow[int]:
        """Return the log's current time, no earlier than a commit of this session."""
        if not call.is_recorded:
            yield from self.engine.outcomes.intend(call)
        now: int = yield Io(self.engine.boards.log_time)
        return now

    def _jointly(
        self,
        call: Call,
        blobs: list[bytes],
        work: JointWrite,
        *,
        timed: bool | Callable[[], Coroutine[Any, Any, bool]] = False,
    ) -> Flow[Any]:
        """Write together with the step's outcome. `timed`: whether the write needs the log's time,
        which costs a separate commit of the intent; or a function that determines it.
        """
        engine = self.engine
        held = yield from engine.gate(call)
        scope = engine.body_scope(call)
        work.begin(scope)
        try:
            yield from engine.outcomes.put(blobs)
            if call.is_recorded:
                yield from engine.outcomes.again(call)
            if timed is True or (timed and (yield Io(timed))):
                work.now = yield from self._log_time(call)
            commands: list[Any] = []
            if not call.is_recorded:
                more, commands = yield from engine.outcomes.opening(call)
                yield from engine.outcomes.put(more)
                call.is_recorded = True
        except STOPPED as error:
            yield from engine.called_off(call, held, error)
            raise
        try:
            done = engine.ledger.record_jointly(commands, call.number, work)
            engine.outcomes.learn(call)
            yield Wait(done)
        finally:
            yield from engine.spend(held, scope.usage)
        if work.error is not None:
            raise work.error
        whole = yield from engine.outcomes.fetch(payload.resolve(work.result))
        return values.revive(whole)

    def content(self, call: Call, name: str) -> Flow[dict[str, Any]]:
        """Return the arguments of a write; in a fork with an edit of its content, that content is
        the argument `name`.
        """
        edit = self.engine.settings.contents.get(call.place.known_by)
        if edit is None:
            return call.plain
        plain = yield from self.engine.outcomes.fetch(payload.unpack(edit.result))
        return {**call.plain, name: plain}

    def plan(self, call: Call) -> Flow[Step | None]:
        """Return the step that answers a call, or None to run it.

        An intent without an outcome, even in the shared stream, wrote nothing: it simply runs
        again. A fork has its own shared state, so nothing of it is shadowed, unless it outlives
        runs: that is the parent's, and a fork that shadows effects shadows its changes.
        """
        engine, step = self.engine, call.step
        if self.outlives_runs and engine.settings.shadows and call.has_effects:
            return (yield from engine.plan(call))
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
        """Return a recorded step with the outcome that its write contains."""
        yield from ()
        return step

    def ask(self, call: Call, run: Callable[[Call], Flow[Any]]) -> Flow[Any]:
        """Return the recorded answer, or else the result of running the call."""
        answered, recorded = self.engine.answer(call)
        if not answered:
            recorded = yield from self.engine.execute(call, self.plan, run)
        return recorded


# `session.view`: the view of the session's own role, as a recorded step.
#
# The step's outcome holds the number of visible events, their digest, and the event that records
# the serving; the events themselves are stored in the log only once. On replay they are derived
# again, and a difference is an error. Costs a read of the run and, live, a commit over two streams.
#
# Written once for both clients as flows (see `hansard.agents.flow`).

SPEC = operation("view", "at", kind="view")


class ViewFlows(JointSteps):
    """Views of a session."""

    def __init__(self, engine: StepEngine) -> None:
        super().__init__(engine)
        self._stream: KeyStream = roles.stream_of(engine.stream.run, engine.stream.role)
        self._known: dict[str, OnRecord] = {}

    def view(self, at: object, key: bytes | None) -> Flow[View]:
        """Return the view of this session's role of the run at a point."""
        engine = self.engine
        point = at.isoformat() if isinstance(at, datetime) else at
        call = engine.begin(SPEC, (point,), {})
        call.needs = ()
        made: list[DerivedView] = []
        recorded = yield from self.ask(call, functools.partial(self._serve, key=key, made=made))
        if made:
            return made[0].view
        return (yield from self._again(call, recorded, key))

    def _serve(self, call: Call, key: bytes | None, made: list[DerivedView]) -> Flow[Any]:
        engine = self.engine
        began_s = time.perf_counter()
        run, role, at = engine.stream.run, engine.stream.role, call.arguments["at"]
        derive = functools.partial(roles.derive, engine.boards.states, role, run, at, key)
        derived: DerivedView = yield Io(derive)
        event = derived.event(engine.stream.agent)
        engine.ledger.shown(derived.label)
        write = _Write(engine, call, self._stream, event)
        write.began_s = began_s
        result = yield from self._jointly(call, [], write)
        made.append(derived)
        return result

    def _again(self, call: Call, plain: Any, key: bytes | None) -> Flow[View]:
        engine = self.engine
        one = self._known.get(plain["served"])
        if one is None:
            run, role = engine.stream.run, engine.stream.role
            on_record = functools.partial(roles.on_record, engine.boards.states, run, role)
            self._known = {each.id: each for each in (yield Io(on_record))}
            one = self._known.get(plain["served"])
        if one is None:
            raise Corrupt(f"stream {self._stream}", f"it has no event {plain['served']}")
        made: DerivedView = yield Io(
            functools.partial(roles.derive_again, engine.boards.states, one, key)
        )
        now = (len(made.view.events), made.view.digest)
        recorded = (plain["events"], plain["digest"])
        if now != recorded:
            step = call.step.number if call.step is not None else call.number
            raise ViewDiffers(step, recorded, now)
        return made.view


class _Write(JointWrite):
    """Records the serving of a view. After a lost race for the stream of views, the event follows
    the winner's: nothing depends on its position.
    """

    def __init__(
        self, engine: StepEngine, call: Call, stream: KeyStream, event: ViewServed
    ) -> None:
        super().__init__(engine, call)
        self._stream = stream
        self._event = event
        self._recorded = record(event, self._clock.new_id())

    def _streams(self) -> list[KeyStream]:
        return [self._stream]

    async def _outcome(self) -> tuple[Outcome, list[Draft]]:
        event = self._event
        fields = {"events": event.events, "digest": event.digest, "served": self._recorded.id}
        after = await roles.next_version(self._boards.states, self._stream) - 1
        return await self._completed(fields), [Draft(self._stream, after, [self._recorded])]
