"""A session's knowledge of its agent's stream: the state, what each call was answered, what is new.

Shared by the sync and the async session and by their threads; every method is quick and takes one
lock. What is told goes to the stream's writer in the order it was told.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.scope import Scope
from hansard.bus.writer import Pending, Send, StreamWriter
from hansard.domain import agent, fingerprint, steps
from hansard.domain.agent import AgentEvent, AgentState, Command, MessageAdded
from hansard.domain.errors import Refused
from hansard.domain.events import Actor, Event, Recorded
from hansard.domain.ids import AgentStream
from hansard.domain.label import Label, parse, raised
from hansard.domain.steps import (
    NULL,
    Status,
    Step,
    StepAttempted,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepInDoubt,
    StepRequested,
    StepSettled,
    StepYielded,
)

TELLING = (StepAttempted, StepYielded, StepCompleted, StepFailed, StepInDoubt, StepSettled)
"""Events that hold something of what a tool told: they get the label that it gives."""


class Mode(StrEnum):
    """How a session treats what is on record and what is not."""

    LIVE = "live"
    RESUME = "resume"
    FORK = "fork"
    STRICT = "strict"
    OFFLINE = "offline"

    @property
    def reads_only(self) -> bool:
        """Whether nothing may run and nothing is written."""
        return self in (Mode.STRICT, Mode.OFFLINE)


class Place(msgspec.Struct, frozen=True):
    """Where a call stands: its keys, and the chain it is part of."""

    call: str
    fingerprint: str
    head: str
    scope: Scope
    after: tuple[int, ...]
    unordered: bool


class Ledger:
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
        self.stream = stream
        self.state = state
        self.lock = threading.RLock()
        self.root = Scope(self, "", "", (), None)
        self.client: Any = None
        """The session that module-level tools find through the current scope."""
        self.inherited = 0
        """Versions up to this one belong to the parent of a fork."""
        self._writer = writer
        self._post = post
        self._pending = pending
        self._by_fingerprint: dict[str, int] = {}
        self._by_call: dict[str, int] = {}
        self._followed: set[int] = set()
        self._next = state.last_step
        self.busy = 0
        """Calls and child scopes that are open in any scope."""
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

    def _follow(self, event: Event) -> None:
        """Take note of the steps that an event follows: the agent went on after them."""
        self._followed.update(getattr(event, "after", ()))
        if isinstance(event, MessageAdded) and event.step is not None:
            self._followed.add(event.step)

    def next_step(self) -> int:
        """The number of a new step."""
        with self.lock:
            self._next += 1
            return self._next

    def place(self, scope: Scope, base: str) -> tuple[Place, Step | None]:
        """Where a call stands now, and the recorded step it is, if any."""
        with self.lock:
            call = fingerprint.call_key(base, scope.occurrence(base))
            unordered = scope.overlaps
            chained = fingerprint.fingerprint(call, scope.head)
            number = self._by_fingerprint.get(chained)
            apart = chained
            if number is None or unordered:
                apart = fingerprint.fingerprint(call, fingerprint.UNORDERED)
                number = self._by_fingerprint.get(apart, number)
            mark = apart if unordered else chained
            head = fingerprint.UNORDERED if unordered else scope.head
            place = Place(call, mark, head, scope, scope.after, unordered)
            return place, self.state.steps[number] if number is not None else None

    def recorded_call(self, call: str) -> Step | None:
        """The newest step with a call key, whatever came before it."""
        number = self._by_call.get(call)
        return self.state.steps[number] if number is not None else None

    def went_on(self, step: Step) -> bool:
        """Whether the agent did something after a step, in its scope or after joining it."""
        return step.number in self._followed

    def advance(self, scope: Scope, step: Step) -> None:
        """Let a scope go on after a step's outcome."""
        if not step.unordered:
            scope.head = step.digest
            scope.after = (step.number,)

    def enter_call(self, scope: Scope) -> None:
        """A call of this scope is open from here on."""
        with self.lock:
            scope.open += 1
            self.busy += 1

    def leave_call(self, scope: Scope) -> None:
        """A call of this scope is over."""
        with self.lock:
            scope.open -= 1
            self.busy -= 1

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

    def tell(self, commands: Sequence[Command], *, wait: bool = True) -> Any:
        """Decide, fold, and hand the events to the writer as one commit's worth.

        Returns a future to wait for, or None where nothing was new or `wait` is False. Raises
        Refused, BadValue, TooLarge, and what the writer was lost to.
        """
        with self.lock:
            writer = self._open_writer()
            done: Pending | None = None
            events: list[Recorded] = []
            try:
                for command in commands:
                    for event in agent.decide(self.state, command):
                        events.append(writer.recorded(event))
                        self._evolve(event)
                done = self._pending() if events and wait else None
            finally:  # what is folded is written, whatever the next event's error
                if events:
                    label = self.label.stored
                    self._post(lambda: writer.put(events, done, label=label))
            return done

    def _open_writer(self) -> StreamWriter:
        if self._writer is None:
            message = "this replay only reads: nothing can be recorded"
            raise Refused(message)
        if self._writer.lost is not None:
            raise self._writer.lost
        return self._writer

    def tell_jointly(
        self, commands: Sequence[Command], step: int, work: Callable[[Joined, Send], Any]
    ) -> Any:
        """Like `tell`, but a step's outcome is found while it is written: by `work`, together with
        what it writes to other streams.

        The outcome's version is taken now, so that whatever is told meanwhile comes after it; the
        step stays open until `work` has called `Joined.outcome`, which it must, once.
        """
        with self.lock:
            writer = self._open_writer()
            events: list[Recorded] = []
            for command in commands:
                for event in agent.decide(self.state, command):
                    events.append(writer.recorded(event))
                    self._evolve(event)
            begun = self.state.steps[step]
            agent.evolve(self.state, StepCompleted(step=step, result=NULL, digest=""))
            self.state.steps[step] = begun
            joined = Joined(self, writer, step, self.state.version, events)
            done = self._pending()

            async def joint(send: Send) -> Any:
                return await work(joined, send)

            self._post(lambda: writer.put_jointly(joint, done))
            return done

    def _evolve(self, event: AgentEvent) -> None:
        agent.evolve(self.state, event)
        if isinstance(event, StepRequested):
            self._index(self.state.steps[event.step])
        elif isinstance(event, TELLING):
            declared = self.state.tools.get(self.state.steps[event.step].tool)
            if declared is not None and declared.gives:
                self.shown(parse(declared.gives))
        self._follow(event)

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
                    return describe(step)
        return f"nothing more in scope {scope.path or 'run'!r}"


Ended = StepCompleted | StepFailed | StepBlocked
"""How a step ends whose outcome is found while it is written."""


class Joined:
    """A step whose outcome is being found: the events to write before it, and what it came to."""

    def __init__(
        self, ledger: Ledger, writer: StreamWriter, step: int, version: int, events: list[Recorded]
    ) -> None:
        self.identity = writer.identity
        self._ledger = ledger
        self._writer = writer
        self._step = step
        self._version = version
        self._events = events

    def events(self, outcome: Ended) -> list[Recorded]:
        """What is to be sent to the agent's stream. Raises BadValue, TooLarge."""
        return [*self._events, self._writer.recorded(outcome)]

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


def describe(step: Step) -> str:
    """A step in one line."""
    arguments = bytes(step.arguments).decode()
    if len(arguments) > 200:  # noqa: PLR2004 -- one line of an error
        arguments = arguments[:200] + "..."
    return f"step {step.number}: {step.tool} {arguments} -> {step.status.value}"


def is_final(step: Step) -> bool:
    """Whether a step has an outcome that replay can return or raise."""
    return step.status in (Status.COMPLETED, Status.FAILED, Status.BLOCKED)
