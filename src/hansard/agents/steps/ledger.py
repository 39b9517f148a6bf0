"""A session's knowledge of its agent's stream: the state, what each call was answered, what is new.

Shared by the sync and the async session and by their threads; every method is quick and takes one
lock. What is told goes to the stream's writer in the order it was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.steps.scope import Junction, OpenCalls, Scope, untold
from hansard.bus.log import Stored
from hansard.bus.portal import Arrival, own_task
from hansard.bus.writer import HandOver, StreamWriter
from hansard.domain import agent, fingerprint, steps
from hansard.domain.agent import AgentEvent, AgentState, Command, Leave, MessageAdded, Tell
from hansard.domain.errors import HansardError, Refused
from hansard.domain.events import Actor, Event, Recorded
from hansard.domain.ids import AgentStream
from hansard.domain.label import Label, parse, raised
from hansard.domain.payload.parts import WholeSteps
from hansard.domain.run import Ranges, SessionPath, ranges, with_bodies
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

TELLING = (StepAttempted, StepYielded, StepCompleted, StepFailed, StepInDoubt, StepSettled)
"""Events that hold something of what a tool told: they get the label that it gives."""


ENDING = (StepCompleted, StepFailed, StepBlocked, StepSettled)
"""Events that may say what a step came to."""

OUTCOMES = (StepCompleted, StepFailed, StepInDoubt)
"""What may come of a call after its session has ended."""


class Mode(StrEnum):
    """How a session treats what is on record and what is not. `record.run(mode=...)` takes `strict`
    and `offline`; the others follow from the run.
    """

    LIVE = "live"
    """A run that begins: all runs, and is recorded."""
    RESUME = "resume"
    """What is on record is answered; the rest runs, and is recorded."""
    FORK = "fork"
    """As `resume`; of the parent's effects none is made again."""
    STRICT = "strict"
    """What is on record is answered; the rest is a `Miss`, and nothing is written."""
    OFFLINE = "offline"
    """As `strict`, on a machine that has neither the tools nor their secrets."""

    @property
    def reads_only(self) -> bool:
        """Whether nothing may run and nothing is written."""
        return self in (Mode.STRICT, Mode.OFFLINE)


class CallIdentity(msgspec.Struct, frozen=True):
    """What equal calls have in common.

    Attributes:
        base: The digest of it (`fingerprint.call_base`).
        defaults: The arguments that are no part of it: they have their declared defaults.
        tool: The name of the tool in it.
    """

    base: str
    defaults: tuple[str, ...]
    tool: str


class CallPosition(msgspec.Struct, frozen=True):
    """Where a call stands: its keys, and the chain it is part of."""

    call: str
    fingerprint: str
    head: str
    scope: Scope
    after: tuple[int, ...]
    unordered: bool
    junction: Junction | None
    base: str
    """What its scope counts equal calls by."""
    occurrence: int
    """How many equal calls its scope made before it."""
    defaults: tuple[str, ...] = ()
    """The arguments that are no part of the call key."""
    other: str | None = None
    """The fingerprint by the chain that the run's is not; None where it is not known."""
    recorded_as: str | None = None
    """The call key of the same call on record, made under another name of the tool."""

    @property
    def known_by(self) -> str:
        """The call key by which the record is to be searched."""
        return self.recorded_as or self.call


class Ledger(OpenCalls):
    """One agent's stream in one session.

    `writer` is None where the mode only reads. `post` has something called on the loop's thread,
    `pending` makes a future that whoever asked can wait for.
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
        """The version at which the session began: what came later is its own."""
        self.full = False
        """Whether the run's chain is the full one."""
        self._others: dict[str, str | None] = {}
        """Fingerprints by the other chain, by the call keys of what was placed."""
        self.path: SessionPath | None = None
        """What a strict replay is to ask for; None in any other mode."""
        self.skipped: set[int] = set()
        """Steps of the items that a loop skipped, since they were done before; and those whose
        outcomes were put where their calls stand now."""
        self.met: set[int] = set()
        """Steps without an outcome that a replay has met: it cannot be given one."""
        self.parent_calls: dict[str, Step] = {}
        """Of a fork, the calls of its parent, by their call keys."""
        self.requested: set[int] = set()
        """Steps on record that this session's calls turned out to be."""
        self.replaced: set[int] = set()
        """Steps in whose place others were called, by somebody's decision."""
        self.missed: list[str] = []
        """What a replay was asked for in vain."""
        self.inherited = 0
        """Versions up to this one belong to the parent of a fork."""
        self._writer = writer
        self._post = post
        self._pending = pending
        self._by_fingerprint: dict[str, int] = {}
        self._by_call: dict[str, int] = {}
        self._followed: set[int] = set()
        self._next = state.last_step
        self.handed: dict[int, None] = {}
        """The steps whose outcomes this session was given, in that order."""
        self.ids: dict[int, str] = {}
        """Ids of the events that say what steps came to, of those that this session has told."""
        self._telling: dict[int, list[Junction]] = {}
        """Joins that are told once a step is on record, by its number."""
        self._running: set[int] = set()
        """Steps whose bodies run."""
        self._hand_over = HandOver()
        """Held from the decision until its events are the writer's: they are in one order."""
        self._watching: set[asyncio.Task[Any]] = set()
        for step in state.steps.values():
            self._index(step)
        for noted in state.facts:
            self._follow(noted.fact)
            # A step that a fact names was begun, though it never got on record.
            self._next = max(self._next, getattr(noted.fact, "step", None) or 0)

    @property
    def actor(self) -> Actor:
        """Who its commits say wrote them, and for whom."""
        return self._writer.identity.actor if self._writer is not None else Actor(self.stream.agent)

    def _index(self, step: Step) -> None:
        self._by_fingerprint[step.fingerprint] = step.number
        self._by_call[step.call] = step.number
        self._followed.update(step.after)
        if step.instead_of is not None:
            self.replaced.add(step.instead_of)

    def _follow(self, event: Event) -> None:
        """Take note of the steps that an event follows: the agent went on after them."""
        self._followed.update(getattr(event, "after", ()))
        if isinstance(event, MessageAdded) and event.step is not None:
            self._followed.add(event.step)

    # ------------------------------------------------------------ the session's end

    def start(self, step: int) -> None:
        """A call's body begins. Raises SessionEnded."""
        with self.lock:
            self.demand_open()
            self._running.add(step)

    def stop(self, step: int) -> None:
        """A call's body is over, whatever came of it."""
        with self.lock:
            self._running.discard(step)

    async def watch(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """What something that only looks comes to. On the bus's loop. Raises SessionEnded as soon
        as the session ends.
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
        """The session has ended, though nothing says so on record."""
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
        """Like `record`, of the session's end; `work` sends it with what it is to the run. On the
        bus's loop.

        A call with effects whose body still runs is in doubt from here on: what comes of it may
        never be on record. What is told of it later is recorded as late.
        """
        with self.lock, self._hand_over.alone():
            writer = self._open_writer()
            events: list[Recorded] = []
            self._decide(writer, [*map(Tell, self._unfinished()), command], events)
            self._take_turn(writer, functools.partial(work, writer, events), done)
            self.end()

    def _unfinished(self) -> list[StepInDoubt]:
        why = Failure("SessionEnded", "the session ended while the call ran", module="hansard")
        steps = [self.state.steps.get(number) for number in sorted(self._running)]
        return [
            StepInDoubt(step=step.number, error=why)
            for step in steps
            if step is not None and step.status is StepStatus.REQUESTED and step.is_of_world
        ]

    def next_step(self) -> int:
        """The number of a new step."""
        with self.lock:
            self._next += 1
            return self._next

    def place(
        self, scope: Scope, base: str, defaults: tuple[str, ...] = ()
    ) -> tuple[CallPosition, Step | None]:
        """Where a call stands now, and the recorded step it is, if any."""
        with self.lock:
            occurrence = scope.occurrence(base)
            call = fingerprint.call_key(base, occurrence)
            return self._position(scope, call, base, occurrence, defaults)

    def place_as_recorded(
        self, place: CallPosition, tool: str, identities: Iterable[CallIdentity]
    ) -> tuple[CallPosition, Step | None]:
        """The same of a call whose own key is not on record, by the first of the identities that
        it is on record with, if any.
        """
        with self.lock:
            if place.call in self._by_call:
                return place, None
            for each in identities:
                key = fingerprint.call_key(each.base, place.occurrence)
                if key not in self._by_call and key not in self.parent_calls:
                    continue
                found, step = self._position(
                    place.scope, key, place.base, place.occurrence, each.defaults
                )
                if step is None and each.tool != tool:
                    return msgspec.structs.replace(place, recorded_as=key), None
                return found, step
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
        """Whether a call made now is on record, but not here: after steps whose outcomes this
        session was not given yet.
        """
        with self.lock:
            call = fingerprint.call_key(base, scope.occurrences.get(base, 0))
            number = self._by_call.get(call)
            heads = (scope.head, fingerprint.UNORDERED)
            if number is None or any(
                fingerprint.fingerprint(call, head) in self._by_fingerprint for head in heads
            ):
                return False
            return any(before not in self.handed for before in self.state.steps[number].after)

    def joins(self, place: CallPosition, step: int) -> tuple[Join, ...]:
        """The joins that a new step tells of; they are told once it is on record."""
        with self.lock:
            found = untold(place.junction)
            if found:
                self._telling[step] = [junction for junction, _ in found]
            return tuple(join for _, join in found)

    def recorded_call(self, call: str) -> Step | None:
        """The newest step with a call key, whatever came before it."""
        with self.lock:
            number = self._by_call.get(call)
            return self.state.steps[number] if number is not None else None

    def is_replayed(self, step: Step) -> bool:
        """Whether this session has met a recorded step: it was called again, another call took its
        place, or its body did not run because the composite around it was answered.
        """
        if (
            step.number in self.requested
            or step.number in self.replaced
            or self._by_call.get(step.call) != step.number
        ):
            return True
        around: Step | None = step
        while around is not None:
            if around.number in self.handed or around.number in self.skipped:
                return True
            around = self.state.steps.get(around.parent) if around.parent is not None else None
        return False

    def in_doubt(self, scope: Scope, since: int) -> bool:
        """Whether a call that does something to the world was begun in a scope, or in what that
        began, after a step, and what came of it is not known.
        """
        with self.lock:
            return any(
                step.number > since
                and step.is_open
                and step.is_of_world
                and self._stands_in(step, scope.path)
                for step in self.state.steps.values()
            )

    def _stands_in(self, step: Step | None, path: str) -> bool:
        while step is not None:
            if step.scope == path or step.scope.startswith(f"{path}/"):
                return True
            step = self.state.steps.get(step.parent) if step.parent is not None else None
        return False

    def went_on(self, step: Step) -> bool:
        """Whether the agent did something after a step, in its scope or after joining it."""
        with self.lock:
            return step.number in self._followed

    def advance(self, scope: Scope, step: Step, *, given: bool = True) -> None:
        """Let a scope go on after a step's outcome; `given`: its caller was handed that."""
        with self.lock:
            if given:
                self.handed[step.number] = None
            if step.unordered:
                scope.beside.append(step.number)
            else:
                mine, other = step.digest, self._others.get(step.call)
                if self.full:
                    mine, other = step.fingerprint, step.digest
                scope.go_on(mine, (step.number,), other)

    @property
    def answered(self) -> set[int]:
        """The steps from before the session that it did not run again."""
        with self.lock:
            steps = self.state.steps
            given = (
                number
                for number in self.handed
                if (steps[number].outcome_version or self.opened + 1) <= self.opened
            )
            return with_bodies(self.skipped.union(given), steps)

    @property
    def answered_ranges(self) -> Ranges | None:
        """The same, to tell; None of an agent's first session, which had nothing before it."""
        with self.lock:
            return ranges(self.answered) if self.state.epoch > 1 else None

    def skip(self, scope: Scope, name: str, after: tuple[int, ...]) -> None:
        """Count the steps of a loop's items that were done before as answered: those in scopes of
        this name, that the chain at the end of the last one leads back to.
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

    def given(self, scope: Scope) -> list[int]:
        """The steps whose results the agent has been given in a scope: those that its chain leads
        back to, into scopes that were joined and out of those that it is in, and what overlapped
        others there.
        """
        with self.lock:
            found: set[int] = set()
            ahead = [*scope.after, *scope.beside]
            while ahead:
                number = ahead.pop()
                step = self.state.steps.get(number)
                if step is not None and number not in found:
                    found.add(number)
                    ahead += step.after
            return sorted(found)

    @contextlib.contextmanager
    def noting(self, scope: Scope) -> Generator[None]:
        """A fact of this scope is being written."""
        with self.lock:
            scope.noting += 1
        try:
            yield
        finally:
            with self.lock:
                scope.noting -= 1

    def record(self, commands: Sequence[Command], *, wait: bool = True) -> Any:
        """Decide, fold, and hand the events to the writer as one commit's worth.

        Returns a future to wait for, or None where nothing was new or `wait` is False. Raises
        Refused, BadValue, TooLarge, what the writer was lost to, and SessionEnded for all but what
        came of a call.
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
            finally:  # what is folded is written, whatever the next event's error
                try:
                    if events:
                        done = self._put(writer, events, done)
                except HansardError:
                    raise
                except BaseException:  # of a signal handler, in the middle of the hand-over
                    label = self.label.stored
                    writer.post(lambda: writer.put_again(events, label))
                    raise
            return done

    def _decide(
        self, writer: StreamWriter, commands: Iterable[Command], events: list[Recorded]
    ) -> None:
        """Fold what commands come to, and add it to `events`: whatever the next one's error, what
        is folded has to be written.
        """
        for command in commands:
            for event in agent.decide(self.state, command):
                events.append(writer.recorded(event))
                self._evolve(event)
                if isinstance(event, ENDING):
                    self.ids[event.step] = events[-1].id

    def _put(self, writer: StreamWriter, events: list[Recorded], done: Any) -> Any:
        """Give events to the writer; what to wait for. A thread that waits may send them itself."""
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

    def tell_jointly(
        self,
        commands: Sequence[Command],
        step: int,
        work: Callable[[Joined], Coroutine[Any, Any, Stored]],
    ) -> Any:
        """Like `record`, but a step's outcome is found while it is written: by `work`, together
        with what it writes to other streams.

        The outcome's version is taken now, so that whatever is told meanwhile comes after it; the
        step stays open until `work` has called `Joined.outcome`, which it must, once.
        """
        with self.lock, self._hand_over.alone():
            self.demand_open()
            writer = self._open_writer()
            events: list[Recorded] = []
            self._decide(writer, commands, events)
            agent.reserve_version(self.state, step)
            joined = Joined(self, writer, step, self.state.version, events)
            done = self._pending()
            self._take_turn(writer, functools.partial(work, joined), done)
            return done

    def _take_turn(
        self,
        writer: StreamWriter,
        decide: Callable[[], Coroutine[Any, Any, Stored]],
        done: Any,
    ) -> None:
        """Have a decision over several streams made once all that was told before is stored, in a
        task of its own: whoever waits for it may be interrupted.
        """

        async def decided(turn: asyncio.Future[None]) -> Stored:
            await turn
            return await decide()

        def begin() -> None:
            turn = writer.take_turn()
            decision = own_task(decided(turn))
            decision.add_done_callback(lambda _: writer.end_turn(turn, decision, done))

        writer.post(begin)

    def _evolve(self, event: AgentEvent) -> None:
        agent.evolve(self.state, event)
        if isinstance(event, StepRequested):
            self._index(self.state.steps[event.step])
            for junction in self._telling.pop(event.step, ()):
                junction.tell()
        self._took_over(event)
        if isinstance(event, TELLING):
            declared = self.state.tools.get(self.state.steps[event.step].tool)
            if declared is not None and declared.gives:
                self.shown(parse(declared.gives))
        self._follow(event)

    def derive(self, outcome: StepCompleted) -> Step:
        """Take over what a step came to from elsewhere on record, where nothing is written."""
        with self.lock:
            found = self.state.steps
            step = steps.evolve(found[outcome.step], outcome, found[outcome.step].version)
            found[outcome.step] = step
            self.met.discard(outcome.step)
            return step

    def _took_over(self, event: AgentEvent) -> None:
        """Take note of an earlier step of this stream whose outcome a call was given. A number may
        be one of the parent's of a fork, too: then it is another call here.
        """
        if isinstance(event, StepCompleted) and event.reused not in (None, event.step):
            old, new = self.state.steps.get(event.reused or 0), self.state.steps[event.step]
            if old is not None and old.call == new.call:
                self.skipped.add(old.number)

    @property
    def label(self) -> Label:
        """The agent's label: the join of all that it was shown."""
        return parse(self.state.label)

    def shown(self, label: Label | None) -> None:
        """The agent is shown something with this label: what it says from here on has it, too."""
        if label is not None:
            with self.lock:
                self.state.label = raised(self.state.label, label)

    def expected(self, scope: Scope) -> str:
        """What the record has next in a scope, for the error that shows both sides."""
        with self.lock:
            for step in self.state.steps.values():
                if step.scope == scope.path and step.after == scope.after:
                    return describe(WholeSteps(self.state.steps)[step.number])
        return f"nothing more in scope {scope.path or 'run'!r}"


Ended = StepCompleted | StepFailed | StepBlocked
"""How a step ends whose outcome is found while it is written."""


class Joined:
    """A step whose outcome is being found: the events to write before it, and what it came to."""

    def __init__(
        self, ledger: Ledger, writer: StreamWriter, step: int, version: int, events: list[Recorded]
    ) -> None:
        self.writer = writer
        self._ledger = ledger
        self._step = step
        self._version = version
        self._events = events
        self.id = ""
        """The id of the outcome's event, as it was made last."""
        self.intent = events[-1].id if events else ""
        """The id of the intent's event; empty where that stood on record before."""

    def opened(self) -> None:
        """What is to be written before the outcome is stored: only that is left."""
        self._events = []

    def events(self, outcome: Ended) -> list[Recorded]:
        """What is to be sent to the agent's stream. Raises BadValue, TooLarge."""
        recorded = self.writer.recorded(outcome)
        self.id = recorded.id
        return [*self._events, recorded]

    def shown(self, label: Label | None) -> Label | None:
        """The agent's label, raised by that of what the outcome tells it."""
        with self._ledger.lock:
            self._ledger.shown(label)
            return self._ledger.label.stored

    def outcome(self, outcome: Ended) -> None:
        """Fold the outcome, now that it is stored."""
        with self._ledger.lock:
            found = self._ledger.state.steps
            found[self._step] = steps.evolve(found[self._step], outcome, self._version)
            self._ledger.ids[self._step] = self.id


def describe(step: Step) -> str:
    """A step in one line."""
    arguments = bytes(step.arguments).decode()
    if len(arguments) > 200:  # noqa: PLR2004 -- one line of an error
        arguments = arguments[:200] + "..."
    return f"step {step.number}: {step.tool} {arguments} -> {step.status.value}"


def _is_outcome(commands: Sequence[Command]) -> bool:
    """Whether commands say what a call came to, and nothing after it."""
    last = commands[-1] if commands else None
    return isinstance(last, Tell) and isinstance(last.event, OUTCOMES)


def is_final(step: Step) -> bool:
    """Whether a step has an outcome that replay can return or raise."""
    return step.status in (StepStatus.COMPLETED, StepStatus.FAILED, StepStatus.BLOCKED)
