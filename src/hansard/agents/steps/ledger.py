"""A session's view of its agent's stream: the state, the answers that calls received, and new
events.

Shared by the sync and the async session and by their threads; every method is quick and takes one
lock. Events reach the stream's writer in the order in which they were decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.steps.scope import Junction, OpenCalls, Scope, unrecorded_joins
from hansard.bus.log import Stored
from hansard.bus.portal import Arrival, own_task
from hansard.bus.writer import HandOver, StreamWriter
from hansard.domain import agent, fingerprint, steps
from hansard.domain.agent import AgentEvent, AgentState, Command, Fact, Leave, MessageAdded, Tell
from hansard.domain.conversation import ranges
from hansard.domain.decider import evolve
from hansard.domain.errors import HansardError, Refused
from hansard.domain.events import Actor, Event, Recorded
from hansard.domain.ids import AgentStream
from hansard.domain.label import Label, parse, raised
from hansard.domain.payload import WholeSteps
from hansard.domain.run import Ranges, SessionPath, with_bodies
from hansard.domain.steps import (
    Failure,
    Join,
    Step,
    StepAttempted,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepInDoubt,
    StepRequested,
    StepSettled,
    StepStatus,
    StepYielded,
)

LABELLED = (StepAttempted, StepYielded, StepCompleted, StepFailed, StepInDoubt, StepSettled)
"""Events that hold data returned by a tool: they get the label that the tool gives."""


FINAL_EVENTS = (StepCompleted, StepFailed, StepBlocked, StepSettled)
"""Events that may hold a step's outcome."""

KEPT_BYTES_MAX = 16 * 2**20
"""Most bytes of items of repeatable streams that a session keeps in memory (`Ledger.keep`)."""

OUTCOMES = (StepCompleted, StepFailed, StepInDoubt)
"""Outcomes of a call that may be recorded after its session has ended."""


class Mode(StrEnum):
    """Handling of recorded and unrecorded calls in a session. `record.run(mode=...)` takes `strict`
    and `offline`; the others follow from the run.
    """

    LIVE = "live"
    """A new run: every call runs and is recorded."""
    RESUME = "resume"
    """Recorded calls are answered from the record; the others run and are recorded."""
    FORK = "fork"
    """Like `resume`, but no effect of the parent is repeated."""
    STRICT = "strict"
    """Recorded calls are answered; any other is a `Miss`, and nothing is written."""
    OFFLINE = "offline"
    """Like `strict`, on a machine that has neither the tools nor their secrets."""

    @property
    def reads_only(self) -> bool:
        """True if nothing may run and nothing is written."""
        return self in (Mode.STRICT, Mode.OFFLINE)


class CallIdentity(msgspec.Struct, frozen=True):
    """Common identity of equal calls.

    Attributes:
        base: Its digest (`fingerprint.call_base`).
        defaults: Arguments that are not part of it: they have their declared defaults.
        tool: The tool's name in it.
    """

    base: str
    defaults: tuple[str, ...]
    tool: str


class CallPosition(msgspec.Struct, frozen=True):
    """Position of a call: its keys, and its place in the chain."""

    call: str
    fingerprint: str
    head: str
    scope: Scope
    after: tuple[int, ...]
    unordered: bool
    junction: Junction | None
    base: str
    """Digest by which its scope counts equal calls."""
    occurrence: int
    """Number of equal calls that its scope made before it."""
    defaults: tuple[str, ...] = ()
    """Arguments that are not part of the call key."""
    other: str | None = None
    """Fingerprint by the chain that the run does not use; None if unknown."""
    recorded_as: str | None = None
    """Call key of the same call as recorded under an earlier name of the tool."""

    @property
    def known_by(self) -> str:
        """Call key by which to search the record."""
        return self.recorded_as or self.call


class Ledger(OpenCalls):
    """One agent's stream in one session.

    `writer` is None if the mode only reads. `post` calls a function on the loop's thread; `pending`
    creates a future that a caller can wait for.
    """

    def __init__(
        self,
        stream: AgentStream,
        state: AgentState,
        writer: StreamWriter | None,
        post: Callable[[Callable[[], None]], None],
        pending: Callable[[], Any],
    ) -> None:
        super().__init__(stream)
        self.state = state
        self.opened = state.version
        """Version at which the session started; later events are its own."""
        self.full = False
        """True if the run uses the full chain."""
        self._others: dict[str, str | None] = {}
        """Fingerprints by the other chain, by the keys of the placed calls."""
        self.path: SessionPath | None = None
        """Path that a strict replay must follow; None in any other mode."""
        self.skipped: set[int] = set()
        """Steps of loop items skipped as done, and steps whose outcomes later calls adopted."""
        self.adopted: dict[int, Step] = {}
        """Steps of a fork's parent whose outcomes this session adopted, by the fork's steps."""
        self.met: set[int] = set()
        """Open steps that a replay has reached, which cannot be answered."""
        self.parent_calls: dict[str, Step] = {}
        """Calls of a fork's parent, by their call keys."""
        self.requested: set[int] = set()
        """Recorded steps that calls of this session matched."""
        self.replaced: set[int] = set()
        """Steps that were replaced by other calls, as decided by a person or policy."""
        self.missed: list[str] = []
        """Calls of a replay that are not recorded."""
        self.inherited = 0
        """Versions up to this one belong to a fork's parent."""
        self._writer = writer
        self._post = post
        self._pending = pending
        self._by_fingerprint: dict[str, int] = {}
        self._by_call: dict[str, int] = {}
        self._followed: set[int] = set()
        self._next = state.last_step
        self.received: dict[int, None] = {}
        """Steps whose outcomes this session received, in that order."""
        self.ids: dict[int, str] = {}
        """Event ids of the step outcomes that this session has recorded."""
        self._pending_joins: dict[int, list[Junction]] = {}
        """Joins to mark as recorded with a step, by its number."""
        self._kept: deque[tuple[int, int]] = deque()
        """Steps of `keep` and the sizes of their items, oldest first."""
        self._kept_bytes = 0
        self._running: set[int] = set()
        """Steps whose bodies are running."""
        self._hand_over = HandOver()
        """Held from a decision until the writer has its events, which keeps one order."""
        self._watching: set[asyncio.Task[Any]] = set()
        for step in state.steps.values():
            self._index(step)
        for noted in state.facts:
            self._follow(noted.fact)
            # A step that a fact names was started, even if it was never recorded.
            self._next = max(self._next, getattr(noted.fact, "step", None) or 0)

    @property
    def actor(self) -> Actor:
        """Author of the session's commits, with its principals."""
        return self._writer.identity.actor if self._writer is not None else Actor(self.stream.agent)

    def _index(self, step: Step) -> None:
        self._by_fingerprint[step.fingerprint] = step.number
        self._by_call[step.call] = step.number
        self._followed.update(step.after)
        if step.instead_of is not None:
            self.replaced.add(step.instead_of)

    def _follow(self, event: Event) -> None:
        """Note the steps that an event follows: the agent continued after them."""
        self._followed.update(getattr(event, "after", ()))
        if isinstance(event, MessageAdded) and event.step is not None:
            self._followed.add(event.step)

    # ------------------------------------------------------------ the session's end

    def start(self, step: int) -> None:
        """Mark a call's body as running. Raises SessionEnded."""
        with self.lock:
            self.demand_open()
            self._running.add(step)

    def stop(self, step: int) -> None:
        """Mark a call's body as ended, with any outcome."""
        with self.lock:
            self._running.discard(step)

    async def watch(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Run a read-only coroutine on the bus's loop and return its result. Raises SessionEnded as
        soon as the session ends.
        """
        self.demand_open()
        looking = asyncio.ensure_future(work())
        self._watching.add(looking)
        try:
            return await looking
        except asyncio.CancelledError:
            self.demand_open()
            raise
        finally:
            self._watching.discard(looking)
            looking.cancel()

    def end(self) -> None:
        """Mark the session as ended, without recording it."""
        with self.lock:
            if self.ended:
                return
            self.ended = True

        def cut() -> None:
            for looking in self._watching:
                looking.cancel()

        self._post(cut)

    def leave(
        self,
        command: Leave,
        work: Callable[[StreamWriter, Sequence[Recorded]], Coroutine[Any, Any, Stored]],
        done: asyncio.Future[Any],
    ) -> None:
        """Record the session's end; `work` appends it together with its effect on the run. On the
        bus's loop.

        A call with effects whose body still runs is in doubt from now on: its outcome may never be
        recorded. An outcome that arrives later is recorded as late.
        """
        with self.lock, self._hand_over.alone():
            writer = self._open_writer()
            events: list[Recorded] = []
            self._decide(writer, [*map(Tell, self._unfinished()), command], events)
            writer.post(self._turn(writer, functools.partial(work, writer, events), done))
            self.end()

    def _unfinished(self) -> list[StepInDoubt]:
        why = Failure("SessionEnded", "the session ended while the call ran", module="hansard")
        steps = [self.state.steps.get(number) for number in sorted(self._running)]
        return [
            StepInDoubt(step=step.number, error=why)
            for step in steps
            if step is not None and step.status is StepStatus.REQUESTED and step.has_effect
        ]

    def next_step(self) -> int:
        """Return the number of a new step."""
        with self.lock:
            self._next += 1
            return self._next

    def place(
        self, scope: Scope, base: str, defaults: tuple[str, ...] = ()
    ) -> tuple[CallPosition, Step | None]:
        """Return a call's position now, and its recorded step, if any."""
        with self.lock:
            occurrence = scope.occurrence(base)
            call = fingerprint.call_key(base, occurrence)
            return self._position(scope, call, base, occurrence, defaults)

    def place_as_recorded(
        self, place: CallPosition, tool: str, identities: Iterable[CallIdentity]
    ) -> tuple[CallPosition, Step | None]:
        """Return the position and step of a call whose own key is not recorded, by the first
        recorded identity, if any.
        """
        with self.lock:
            if place.call in self._by_call:
                return place, None
            for each in identities:
                key = fingerprint.call_key(each.base, place.occurrence)
                if key not in self._by_call and key not in self.parent_calls:
                    continue
                position, step = self._position(
                    place.scope, key, place.base, place.occurrence, each.defaults
                )
                if step is None and each.tool != tool:
                    return msgspec.structs.replace(place, recorded_as=key), None
                return position, step
            return place, None

    def _position(
        self, scope: Scope, call: str, base: str, occurrence: int, defaults: tuple[str, ...]
    ) -> tuple[CallPosition, Step | None]:
        unordered = scope.overlaps
        chained = fingerprint.fingerprint(call, scope.head)
        number = self._by_fingerprint.get(chained)
        apart = chained
        if number is None or unordered:
            apart = fingerprint.fingerprint(call, fingerprint.UNORDERED)
            number = self._by_fingerprint.get(apart, number)
        step = None
        if number is not None:
            step = self.state.steps[number]
            self.requested.add(number)
            if step.is_open:
                self.met.add(number)
        beside = fingerprint.UNORDERED if unordered else scope.other
        other = None if beside is None else fingerprint.fingerprint(call, beside)
        self._others[call] = other
        place = CallPosition(
            call,
            apart if unordered else chained,
            fingerprint.UNORDERED if unordered else scope.head,
            scope,
            scope.after,
            unordered,
            None if unordered else scope.junction,
            base,
            occurrence,
            defaults,
            other,
        )
        return place, step

    def is_early(self, scope: Scope, base: str) -> bool:
        """Return whether a call made now is recorded, but later: after steps whose outcomes this
        session has not received yet.
        """
        with self.lock:
            call = fingerprint.call_key(base, scope.occurrences.get(base, 0))
            number = self._by_call.get(call)
            heads = (scope.head, fingerprint.UNORDERED)
            if number is None or any(
                fingerprint.fingerprint(call, head) in self._by_fingerprint for head in heads
            ):
                return False
            return any(before not in self.received for before in self.state.steps[number].after)

    def joins(self, place: CallPosition, step: int) -> tuple[Join, ...]:
        """Return the joins to record with a new step, and mark them once the step is recorded."""
        with self.lock:
            joins_due = unrecorded_joins(place.junction)
            if joins_due:
                self._pending_joins[step] = [junction for junction, _ in joins_due]
            return tuple(join for _, join in joins_due)

    def recorded_call(self, call: str) -> Step | None:
        """Return the newest step with a call key, regardless of the steps before it."""
        with self.lock:
            number = self._by_call.get(call)
            return self.state.steps[number] if number is not None else None

    def is_replayed(self, step: Step) -> bool:
        """Return whether this session has dealt with a recorded step: it was called again, another
        call replaced it, or its body did not run because the enclosing composite was answered.
        """
        if (
            step.number in self.requested
            or step.number in self.replaced
            or self._by_call.get(step.call) != step.number
        ):
            return True
        return any(
            around.number in self.received or around.number in self.skipped
            for around in self._lineage(step)
        )

    def in_doubt(self, scope: Scope, since: int) -> bool:
        """Return whether a call with effects, in a scope or below it and after a step, has an
        unknown outcome.
        """
        with self.lock:
            return any(
                step.number > since
                and step.is_open
                and step.has_effect
                and any(
                    around.scope == scope.path or around.scope.startswith(f"{scope.path}/")
                    for around in self._lineage(step)
                )
                for step in self.state.steps.values()
            )

    def _lineage(self, step: Step | None) -> Iterator[Step]:
        """Yield a step, and the composites around it from the inside out."""
        while step is not None:
            yield step
            step = self.state.steps.get(step.parent) if step.parent is not None else None

    def has_continued(self, step: Step) -> bool:
        """Return whether the agent continued after a step, in its scope or after joining it."""
        with self.lock:
            return step.number in self._followed

    def advance(self, scope: Scope, step: Step, *, was_received: bool = True) -> None:
        """Advance a scope past a step's outcome, which the caller may have received."""
        with self.lock:
            if was_received:
                self.received[step.number] = None
            if step.unordered:
                if not scope.forgets:
                    scope.beside.append(step.number)
            else:
                mine, other = step.digest, self._others.get(step.call)
                if self.full:
                    mine, other = step.fingerprint, step.digest
                scope.go_on(mine, (step.number,), other)

    def forget(self, number: int) -> None:
        """Drop a completed step of this session from memory: it is in the record, and no call of
        this session can be answered from it.
        """
        with self.lock:
            step = self.state.steps.get(number)
            if (
                step is None
                or step.version <= self.opened
                or step.status is not StepStatus.COMPLETED
            ):
                return
            del self.state.steps[number], self._by_fingerprint[step.fingerprint]
            del self._by_call[step.call]
            self._others.pop(step.call, None)
            self.received.pop(number, None)
            self.ids.pop(number, None)

    def keep(self, number: int) -> None:
        """Keep the items of a step in memory; drop the oldest beyond `KEPT_BYTES_MAX`.

        For calls outside composites: no other call of this session is answered from their steps.
        """
        with self.lock:
            step = self.state.steps.get(number)
            if step is None or step.status is not StepStatus.COMPLETED:
                return
            size = sum(len(bytes(each)) for each in step.items)
            self._kept.append((number, size))
            self._kept_bytes += size
            while self._kept_bytes > KEPT_BYTES_MAX:
                oldest, size = self._kept.popleft()
                self._kept_bytes -= size
                step = self.state.steps[oldest]
                self.state.steps[oldest] = msgspec.structs.replace(step, items=())

    def forget_fact(self, fact: Fact) -> None:
        """Drop a fact of this session from memory: it is in the record."""
        with self.lock:
            facts = self.state.facts
            for index in range(len(facts) - 1, -1, -1):  # it is among the newest
                if facts[index].fact is fact:
                    del facts[index]
                    self.state.known.discard(fact.fingerprint)
                    return

    @property
    def answered(self) -> set[int]:
        """Steps that were answered from the record: those from before the session that it did not
        run again, and those that adopted an outcome of a fork's parent.
        """
        with self.lock:
            steps = self.state.steps
            received = (
                number
                for number in self.received
                if (steps[number].outcome_version or self.opened + 1) <= self.opened
            )
            return with_bodies(self.skipped.union(received, self.adopted), steps)

    @property
    def answered_ranges(self) -> Ranges | None:
        """The answered steps as ranges, to record; None for an agent's first session."""
        with self.lock:
            return ranges(self.answered) if self.state.epoch > 1 else None

    def skip(self, scope: Scope, name: str, after: tuple[int, ...]) -> None:
        """Count the steps of a loop's finished items as answered: those in scopes of this name that
        the chain leads back to from the last item's end.
        """
        within = f"{scope.path}/{name}."
        with self.lock:
            ahead = list(after)
            while ahead:
                step = self.state.steps.get(ahead.pop())
                if (
                    step is not None
                    and step.number not in self.skipped
                    and step.scope.startswith(within)
                ):
                    self.skipped.add(step.number)
                    ahead += step.after

    def received_in(self, scope: Scope) -> list[int]:
        """Return the steps whose results the agent has received in a scope: those that its chain
        leads back to, through joined and enclosing scopes, and those that overlapped others there.
        """
        with self.lock:
            numbers: set[int] = set()
            ahead = [*scope.after, *scope.beside]
            while ahead:
                number = ahead.pop()
                step = self.state.steps.get(number)
                if step is not None and number not in numbers:
                    numbers.add(number)
                    ahead += step.after
            return sorted(numbers)

    @contextlib.contextmanager
    def noting(self, scope: Scope) -> Generator[None]:
        """Mark a fact of this scope as being written."""
        with self.lock:
            scope.noting += 1
        try:
            yield
        finally:
            with self.lock:
                scope.noting -= 1

    def record(self, commands: Sequence[Command], *, wait: bool = True) -> Any:
        """Decide, fold, and hand the events to the writer for one commit.

        Returns a future to wait for, or None if there is nothing new or `wait` is False. Raises
        Refused, BadValue, TooLarge, the writer's error, and SessionEnded for all but a call's
        outcome.
        """
        with self.lock, self._hand_over.alone():
            if not _is_outcome(commands):
                self.demand_open()
            writer = self._open_writer()
            done: Any = None
            events: list[Recorded] = []
            try:
                self._decide(writer, commands, events)
                done = self._pending() if events and wait else None
            finally:  # folded events are written even if a later one raises
                try:
                    if events:
                        done = self._put(writer, events, done)
                except HansardError:
                    raise
                except BaseException:  # from a signal handler, during the hand-over
                    label = self.label.stored
                    writer.post(lambda: writer.put_again(events, label))
                    raise
            return done

    def _decide(
        self, writer: StreamWriter, commands: Iterable[Command], events: list[Recorded]
    ) -> None:
        """Fold the events of commands, and add them to `events`: even if a later command raises,
        folded events must be written.
        """
        for command in commands:
            for event in agent.decide(self.state, command):
                recorded = writer.recorded(event)
                before = agent.mark(self.state, event)
                try:
                    self._evolve(event, recorded)
                    events.append(recorded)
                except HansardError:
                    raise
                except BaseException:  # of a signal handler: the event is folded and written whole
                    agent.undo(self.state, before)
                    self._evolve(event, recorded)
                    if events[-1:] != [recorded]:
                        events.append(recorded)
                    raise

    def _put(self, writer: StreamWriter, events: list[Recorded], done: Any) -> Any:
        """Hand events to the writer and return the future to wait for. A waiting thread may send
        them itself.
        """
        label = self.label.stored
        if isinstance(done, Arrival):
            held = writer.hold(events, done, label)
            if held is not None:
                return held
        writer.post(lambda: writer.put(events, done, label=label))
        return done

    def _open_writer(self) -> StreamWriter:
        if self._writer is None:
            message = "this replay only reads: nothing can be recorded"
            raise Refused(message)
        if self._writer.lost is not None:
            raise self._writer.lost
        self._writer.demand_free()
        return self._writer

    def record_jointly(
        self,
        commands: Sequence[Command],
        step: int,
        work: Callable[[PendingOutcome], Coroutine[Any, Any, Stored]],
    ) -> Any:
        """Record like `record`, but with an outcome that `work` determines while it writes to other
        streams.

        The outcome's version is reserved now, so that later events follow it; the step stays open
        until `work` has called `PendingOutcome.outcome`, exactly once.
        """
        with self.lock, self._hand_over.alone():
            self.demand_open()
            writer = self._open_writer()
            label = self.label.stored
            events: list[Recorded] = []
            begin: Callable[[], None] | None = None
            version = 0
            try:
                self._decide(writer, commands, events)
                version = self.state.version + 1
                pending = PendingOutcome(self, writer, step, version, events)
                done = self._pending()
                begin = self._turn(writer, functools.partial(work, pending), done)
                agent.reserve_version(self.state, step)
                writer.post(begin)
            except HansardError:
                raise
            except BaseException:  # of a signal handler: what was decided is written
                if begin is not None:
                    if self.state.version < version:
                        agent.reserve_version(self.state, step)
                    writer.post(begin)
                elif events:
                    writer.post(lambda: writer.put_again(events, label))
                raise
            return done

    def _turn(
        self, writer: StreamWriter, decide: Callable[[], Coroutine[Any, Any, Stored]], done: Any
    ) -> Callable[[], None]:
        """Return the call, for the loop, that has a decision over several streams made once all
        earlier events are stored. It runs in its own task, since its waiter may be interrupted.
        Calling it again changes nothing.
        """
        begun: list[asyncio.Future[None]] = []

        async def decided(turn: asyncio.Future[None]) -> Stored:
            await turn
            return await decide()

        def begin() -> None:
            if begun:
                return
            turn = writer.take_turn()
            begun.append(turn)
            decision = own_task(decided(turn))
            decision.add_done_callback(lambda _: writer.end_turn(turn, decision, done))

        return begin

    def _evolve(self, event: AgentEvent, recorded: Recorded) -> None:
        evolve(self.state, event)
        if isinstance(event, FINAL_EVENTS):
            self.ids[event.step] = recorded.id
        if isinstance(event, StepRequested):
            self._index(self.state.steps[event.step])
            for junction in self._pending_joins.get(event.step, ()):
                junction.mark_recorded()
            self._pending_joins.pop(event.step, None)
        self._note_adopted(event)
        if isinstance(event, LABELLED):
            declared = self.state.tools.get(self.state.steps[event.step].tool)
            if declared is not None and declared.gives:
                self.shown(parse(declared.gives))
        self._follow(event)

    def derive(self, outcome: StepCompleted) -> Step:
        """Adopt a step's outcome from elsewhere in the record, without writing it."""
        with self.lock:
            known = self.state.steps
            step = steps.evolve(known[outcome.step], outcome, known[outcome.step].version)
            known[outcome.step] = step
            self.met.discard(outcome.step)
            return step

    def _note_adopted(self, event: AgentEvent) -> None:
        """Note an earlier step of this stream whose outcome a call adopted. The number may also be
        a step of a fork's parent, which is another call here.
        """
        if isinstance(event, StepCompleted) and event.reused not in (None, event.step):
            old, new = self.state.steps.get(event.reused or 0), self.state.steps[event.step]
            if old is not None and old.call == new.call:
                self.skipped.add(old.number)

    @property
    def label(self) -> Label:
        """The agent's label: the join of all labels that it has seen."""
        return parse(self.state.label)

    def shown(self, label: Label | None) -> None:
        """Join a label to the agent's; all its later events have it."""
        if label is not None:
            with self.lock:
                self.state.label = raised(self.state.label, label)

    def expected(self, scope: Scope) -> str:
        """Return the next recorded step of a scope, for error messages."""
        with self.lock:
            for step in self.state.steps.values():
                if step.scope == scope.path and step.after == scope.after:
                    return describe(WholeSteps(self.state.steps)[step.number])
        return f"nothing more in scope {scope.path or 'run'!r}"


Ended = StepCompleted | StepFailed | StepBlocked
"""Outcomes of a step that are determined while it is written."""


class PendingOutcome:
    """A step whose outcome is being determined, with the events to write before it."""

    def __init__(
        self, ledger: Ledger, writer: StreamWriter, step: int, version: int, events: list[Recorded]
    ) -> None:
        self.writer = writer
        self._ledger = ledger
        self._step = step
        self._version = version
        self._events = events
        self.id = ""
        """Id of the outcome's event, as created last."""
        self.intent = events[-1].id if events else ""
        """Id of the intent's event; empty if it was recorded before."""

    def opened(self) -> None:
        """Drop the events before the outcome, since they are stored."""
        self._events = []

    def events(self, outcome: Ended) -> list[Recorded]:
        """Return the events to append to the agent's stream. Raises BadValue, TooLarge."""
        recorded = self.writer.recorded(outcome)
        self.id = recorded.id
        return [*self._events, recorded]

    def shown(self, label: Label | None) -> Label | None:
        """Return the agent's label, joined with that of the outcome's data."""
        with self._ledger.lock:
            self._ledger.shown(label)
            return self._ledger.label.stored

    def outcome(self, outcome: Ended) -> None:
        """Fold the outcome, which is now stored."""
        with self._ledger.lock:
            known = self._ledger.state.steps
            known[self._step] = steps.evolve(known[self._step], outcome, self._version)
            self._ledger.ids[self._step] = self.id


def describe(step: Step) -> str:
    """Return a step as one line."""
    arguments = bytes(step.arguments).decode()
    if len(arguments) > 200:  # noqa: PLR2004 -- one line of an error
        arguments = arguments[:200] + "..."
    return f"step {step.number}: {step.tool} {arguments} -> {step.status.value}"


def _is_outcome(commands: Sequence[Command]) -> bool:
    """Return whether the last command is a call's outcome."""
    last = commands[-1] if commands else None
    return isinstance(last, Tell) and isinstance(last.event, OUTCOMES)


def is_final(step: Step) -> bool:
    """Return whether a step has an outcome that replay can return or raise."""
    return step.status in (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.BLOCKED)
