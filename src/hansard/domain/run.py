"""A run: one execution of a workflow by one or more agents. Its events are its `life` stream.

A run is open while an agent is at work in it: one that took part (joined, or was resumed) and has
not left. It ends when the last of them leaves, as the worst of its agents' ends; or when somebody
says so, and then whoever is still at work counts no more. An agent that was killed never leaves: it
is at work until it is resumed, or somebody ends the run.

Names, events, state, evolve, decide. The events are the storage format: a tag never changes its
meaning, a field is only added with a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import assert_never

import msgspec

from hansard.domain.agent import AgentLeft, SessionBegan
from hansard.domain.choices import Brief
from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.label import Label, raised
from hansard.domain.quarantined import Quarantined
from hansard.domain.steps import (
    NULL,
    Failure,
    Step,
    StepAttempted,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepInDoubt,
    StepRequested,
    StepSettled,
    Verdict,
)

# The calls that an agent's program made last, by its stream: what a strict replay is to equal.
#
# A session records what it runs, and when it leaves, which of the earlier steps it was answered
# from (`AgentLeft.answered`). Both together are the path that it went. What earlier sessions did,
# and a later one with edited code no longer asked for, is on record and not on that path.

Ranges = tuple[tuple[int, int], ...]
"""Numbers of steps, rising: the first and the last of each row without a hole."""

PURPOSE = "run"
"""Of the sessions in which a program ran; another one settled a step, say."""


class SessionPath(msgspec.Struct, frozen=True):
    """The steps of a path, rising. `exact`: as its session has told; else what leads to the calls
    that it recorded, where it was killed or is of a version that did not tell.
    """

    steps: tuple[int, ...] = ()
    exact: bool = True


class _Session(msgspec.Struct):
    began: bool
    """Whether it was the agent's first: nothing was on record to answer it."""
    ran: set[int] = msgspec.field(default_factory=set)
    settled: set[int] = msgspec.field(default_factory=set)
    left: AgentLeft | None = None


def ranges(numbers: Iterable[int]) -> Ranges:
    """Numbers as ranges."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def within(told: Ranges, steps: Mapping[int, Step]) -> Iterator[int]:
    """Those of some steps whose numbers lie in ranges."""
    return (number for number in steps if any(low <= number <= high for low, high in told))


def with_bodies(numbers: Iterable[int], steps: Mapping[int, Step]) -> set[int]:
    """Steps, and those that were called in their bodies: with a composite that is answered, they
    are. A body's steps come after it.
    """
    found = set(numbers)
    for number in sorted(steps):
        if steps[number].parent in found:
            found.add(number)
    return found


def newest(events: Iterable[Event], steps: Mapping[int, Step]) -> SessionPath:
    """The path of the newest session that recorded a call or ended in order; `steps` are those of
    the state after the events.
    """
    for session in reversed(_sessions(events)):
        done = session.left is not None and session.left.outcome == "completed"
        if not (session.ran or session.settled or done or session.began):
            continue
        if session.began:
            return SessionPath(tuple(sorted(_with(session.settled, session.ran, steps))))
        if session.left is not None and session.left.answered is not None:
            given = {*within(session.left.answered, steps)} | session.settled
            return SessionPath(tuple(sorted(_with(given, session.ran, steps))))
        ran = session.ran | session.settled
        if ran:
            return SessionPath(tuple(sorted(_led(ran, steps))), exact=False)
    return SessionPath(exact=False)


def _with(given: set[int], ran: set[int], steps: Mapping[int, Step]) -> set[int]:
    """What a session ran, and what it was given; of an outcome that it took over to where the call
    stands now, the new step.
    """
    calls = {steps[number].call for number in ran if number in steps}
    return ran | {number for number in given if steps[number].call not in calls}


def _sessions(events: Iterable[Event]) -> list[_Session]:
    found: list[_Session] = []
    runs = False
    for each in events:
        if isinstance(each, SessionBegan):
            runs = each.purpose == PURPOSE
            if runs:
                found.append(_Session(began=not found))
        elif runs:
            _take(found[-1], each)
    return found


def _take(session: _Session, event: Event) -> None:
    match event:
        case (
            StepRequested()
            | StepAttempted()
            | StepCompleted()
            | StepFailed()
            | StepBlocked()
            | StepInDoubt()
        ):
            session.ran.add(event.step)
        case StepSettled() if event.verdict is Verdict.HAPPENED:
            session.settled.add(event.step)
        case AgentLeft():
            session.left = event
        case _:
            pass


def _led(ran: set[int], steps: Mapping[int, Step]) -> set[int]:
    """Steps, and those that their chains lead back to."""
    found: set[int] = set()
    ahead = list(ran)
    while ahead:
        number = ahead.pop()
        step = steps.get(number)
        if step is None or number in found:
            continue
        found.add(number)
        ahead += step.after
        if step.parent is not None:
            ahead.append(step.parent)
    return found


FORK_DEPTH_MAX = 100
"""Longest line of forks of forks that is read through."""


class ForkEffects(StrEnum):
    """What a fork does with tools that have effects."""

    SHADOW = "shadow"
    LIVE = "live"


class Chain(StrEnum):
    """What of the call before it the fingerprint of a call holds."""

    RESULT = "result"
    """The digest of its result: an equal result cuts a change off."""
    FULL = "full"
    """Its fingerprint, and so that of every call before: a change invalidates all that follows."""


@event("run.started.v1")
class RunStarted(Event, frozen=True, kw_only=True):
    """A run began. `program` is what started it, as a label for people; it is never run. `chain` is
    what its calls' fingerprints hold of the call before; in records of before, the result.
    """

    workflow: str
    conversation_id: str | None = None
    program: str = ""
    labels: dict[str, str] = {}
    chain: Chain = Chain.RESULT


class Swap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a probe answers in a fork in the place of what is on record: each call of the tool with
    these arguments returns what it returned to the parent, with another value at one place.

    Attributes:
        probe: The probe that the fork is of; all of its forks have the same.
        path: The path as somebody gave it.
        agent: The parent's agent whose call gave the value first.
        step: The number of that call in the parent.
        tool: What was called.
        arguments: The digest of the arguments that it was called with.
        within: Where in its result the value stands: keys and indices from the outside in.
        before: The value on record, as JSON.
        after: The value in its place. Equal to `before` in the fork that shows whether the program
            decides again as it did.
        live: Whether calls of a model run that the record does not answer.
    """

    probe: str
    path: str
    agent: str
    step: int
    tool: str
    arguments: str
    within: tuple[str, ...]
    before: msgspec.Raw
    after: msgspec.Raw
    live: bool = False


@event("run.forked.v1")
class RunForked(Event, frozen=True, kw_only=True):
    """A run began as a fork: its streams go on where the parent's stood. `at` is the parent's
    version vector, by stream name; streams not in it begin empty.

    Attributes:
        parent: The run that it went on from.
        effects: Whether tools with effects run in it.
        labels: Texts by name, to find the run by.
        swap: What a probe answers in it in the place of what is on record; None where it is none of
            a probe's.
    """

    parent: str
    at: dict[str, int]
    effects: ForkEffects = ForkEffects.SHADOW
    labels: dict[str, str] = {}
    swap: Swap | None = None


@event("run.agent_joined.v1")
class AgentJoined(Event, frozen=True, kw_only=True):
    """An agent joined the roster, in one role for the whole run."""

    agent: str
    role: str


@event("run.assigned.v1")
class RunAssigned(Event, frozen=True, kw_only=True):
    """The run is a trial of a task under an arm of an experiment; what is empty is not known.

    `trial` counts from where the source counts (most from 0). `unit` is what the arm was chosen
    for, `chosen` how: `hash` of the unit, or `caller`; empty where a source does not say.

    Attributes:
        experiment: Which one.
        arm: Which of its arms.
        task: What is tried.
    """

    experiment: str = ""
    arm: str = ""
    task: str = ""
    trial: int | None = None
    unit: str = ""
    chosen: str = ""


@event("run.scored.v1")
class RunScored(Event, frozen=True, kw_only=True):
    """Somebody or something judged what came of the run: finite numbers by metric. `details` is
    what else the judge said, as it was.

    Attributes:
        metrics: What was judged, by name.
        by: Who judged.
        because: Why.
    """

    metrics: dict[str, float]
    by: str
    because: str = ""
    details: msgspec.Raw = NULL


@event("run.resumed.v1")
class RunResumed(Event, frozen=True, kw_only=True):
    """An agent's stream is written under a new epoch from here on."""

    agent: str
    epoch: int


@event("run.agent_left.v1")
class RunAgentLeft(Event, frozen=True, kw_only=True):
    """An agent is no longer at work: written with the end of its own stream, which says the same.
    `outcome`: completed, failed or cancelled. Records of before have no such events: there, who
    began a run ended it.

    Attributes:
        agent: Who.
        error: What ended it; None for none.
    """

    agent: str
    outcome: str
    error: Failure | None = None


@event("run.completed.v1")
class RunCompleted(Event, frozen=True, kw_only=True):
    """The run ended as it should; `because` is a word of somebody who says so."""

    because: str = ""


@event("run.failed.v1")
class RunFailed(Event, frozen=True, kw_only=True):
    """The run ended in an error; it can be resumed. `agent` is the one that failed where another
    one left last: then `error` only says so.
    """

    error: Failure
    agent: str = ""


@event("run.cancelled.v1")
class RunCancelled(Event, frozen=True, kw_only=True):
    """Somebody ended the run."""

    because: str = ""


RunEvent = (
    RunStarted
    | RunForked
    | AgentJoined
    | RunAssigned
    | RunScored
    | RunResumed
    | RunAgentLeft
    | RunCompleted
    | RunFailed
    | RunCancelled
)


class RunStatus(StrEnum):
    """Where a run stands. A run whose process died stays `open` until it is resumed."""

    UNKNOWN = "unknown"
    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(Brief, msgspec.Struct, kw_only=True):
    """A run's life at a `version`, a count of its events: of which `workflow` and `program` it is,
    its `status`, `conversation_id` and `labels`, the `error` of a failed one. `epochs` counts each
    agent's sessions; `assigned` is its arm of an experiment, `judged` its scores.
    `roster` is agent to role; `forked` says what it is a fork of.
    `at_work` are the agents that an open run waits for, in the order they took part; `ends` how the
    others left, in that order, as far as the life tells.

    `label` is the one that it began under, as states keep labels: its id, workflow and labels are
    part of whatever is written in it, so nothing of it is shown to who is not cleared for that.
    `chain` is what its calls' fingerprints hold of the call before; a fork has its parent's.
    """

    version: int = 0
    label: str = ""
    workflow: str = ""
    chain: Chain = Chain.RESULT
    status: RunStatus = RunStatus.UNKNOWN
    conversation_id: str | None = None
    program: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    roster: dict[str, str] = msgspec.field(default_factory=dict)
    epochs: dict[str, int] = msgspec.field(default_factory=dict)
    at_work: list[str] = msgspec.field(default_factory=list)
    ends: dict[str, RunAgentLeft] = msgspec.field(default_factory=dict)
    forked: RunForked | None = None
    error: Failure | None = None
    assigned: RunAssigned | None = None
    judged: list[RunScored] = msgspec.field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """The agents that the run is open for: at work, or killed. None where it has ended."""
        return list(self.at_work) if self.status is RunStatus.OPEN else []

    @property
    def scores(self) -> dict[str, float]:
        """The newest value of each metric."""
        return {metric: value for each in self.judged for metric, value in each.metrics.items()}

    def copy(self) -> RunState:
        """A state that can be folded on without changing this one."""
        return msgspec.structs.replace(
            self,
            labels=dict(self.labels),
            roster=dict(self.roster),
            epochs=dict(self.epochs),
            at_work=list(self.at_work),
            ends=dict(self.ends),
            judged=list(self.judged),
        )


def begun_under(state: RunState, events: Iterable[Event], label: Label | None) -> None:
    """Take the label of a commit into a state that the caller owns: where it begins the run."""
    if label is not None and any(isinstance(each, RunStarted | RunForked) for each in events):
        state.label = raised(state.label, label)


def initial() -> RunState:
    """The state before the first event."""
    return RunState()


def fold(state: RunState, events: Iterable[Event]) -> RunState:
    """The state after more events; the given one is left as it is."""
    state = state.copy()
    for each in events:
        evolve(state, each)
    return state


def evolve(state: RunState, event: Event) -> None:
    """Fold one event into a state that the caller owns."""
    state.version += 1
    match event:
        case RunStarted():
            state.workflow = event.workflow
            state.conversation_id = event.conversation_id
            state.program = event.program
            state.labels = dict(event.labels)
            state.chain = event.chain
            state.status = RunStatus.OPEN
        case RunForked():
            state.forked = event
            state.labels = {**state.labels, **event.labels}
            state.status = RunStatus.OPEN
            state.error = None
            state.at_work = []  # nobody has taken part in the fork yet
            state.ends = {}
        case AgentJoined():
            state.roster.setdefault(event.agent, event.role)  # as in `hansard.domain.integrity`
            state.epochs[event.agent] = 1
            _takes_part(state, event.agent)
        case RunAssigned():
            state.assigned = event
        case RunScored():
            state.judged.append(event)
        case RunResumed():
            state.epochs[event.agent] = event.epoch
            state.status = RunStatus.OPEN
            state.error = None
            _takes_part(state, event.agent)
        case RunAgentLeft():
            _leaves(state, event)
        case RunCompleted() | RunFailed() | RunCancelled():
            _ends(state, event)
        case Quarantined():
            return
        case _:
            message = f"{event.tag} is not an event of a run's life"
            raise Refused(message)


def _takes_part(state: RunState, agent: str) -> None:
    state.ends.pop(agent, None)
    if agent not in state.at_work:
        state.at_work.append(agent)


def _leaves(state: RunState, event: RunAgentLeft) -> None:
    if event.agent in state.at_work:
        state.at_work.remove(event.agent)
    state.ends.pop(event.agent, None)
    state.ends[event.agent] = event


def _ends(state: RunState, event: RunCompleted | RunFailed | RunCancelled) -> None:
    state.at_work = []
    match event:
        case RunCompleted():
            state.status = RunStatus.COMPLETED
        case RunFailed():
            state.status = RunStatus.FAILED
            left = state.ends.get(event.agent)
            state.error = left.error if left is not None and left.error else event.error
        case RunCancelled():
            state.status = RunStatus.CANCELLED
        case _:
            assert_never(event)


def decide(state: RunState, event: RunEvent) -> Sequence[RunEvent]:
    """The events that stating one leads to; none where it is so already. Raises Refused."""
    match event:
        case RunStarted() | RunForked():
            if state.status is not RunStatus.UNKNOWN and not _may_fork(state, event):
                message = "the run has begun already: give another run id, or resume it"
                raise Refused(message)
            return (event,)
        case AgentJoined():
            return _join(state, event)
        case RunAssigned():
            _begun(state)
            return () if state.assigned == event else (event,)
        case RunScored():
            _begun(state)
            last = next((each for each in reversed(state.judged) if each.by == event.by), None)
            return () if last == event else (event,)
        case RunResumed():
            _demand(state, event.agent)
            is_so = state.status is RunStatus.OPEN and event.agent in state.at_work
            return () if is_so and state.epochs[event.agent] >= event.epoch else (event,)
        case RunAgentLeft():
            return _leave(state, event)
        case RunCompleted() | RunFailed() | RunCancelled():
            return _end(state, event)
        case _:
            assert_never(event)


def _may_fork(state: RunState, event: RunStarted | RunForked) -> bool:
    return isinstance(event, RunForked) and event != state.forked


def _begun(state: RunState) -> None:
    if state.status is RunStatus.UNKNOWN:
        message = "the run has not begun: start it first"
        raise Refused(message)


def _join(state: RunState, event: AgentJoined) -> Sequence[RunEvent]:
    _begun(state)
    role = state.roster.get(event.agent)
    if role is None:
        return (event,)
    if role != event.role:
        message = (
            f"agent {event.agent!r} has role {role!r} in this run, not {event.role!r}: "
            "use that role, or another agent name"
        )
        raise Refused(message)
    return ()


def _demand(state: RunState, agent: str) -> None:
    if agent not in state.roster:
        known = ", ".join(sorted(state.roster)) or "nobody"
        message = f"agent {agent!r} is not in this run's roster ({known}): let it join first"
        raise Refused(message)


def _end(state: RunState, event: RunCompleted | RunFailed | RunCancelled) -> Sequence[RunEvent]:
    match event:
        case RunCompleted():
            end = RunStatus.COMPLETED
        case RunFailed():
            end = RunStatus.FAILED
        case RunCancelled():
            end = RunStatus.CANCELLED
        case _:
            assert_never(event)
    if state.status is end:
        return ()
    if state.status in (RunStatus.UNKNOWN, RunStatus.COMPLETED, RunStatus.CANCELLED):
        message = f"the run is {state.status} and cannot become {end}: resume it first"
        raise Refused(message)
    return (event,)


def _leave(state: RunState, event: RunAgentLeft) -> Sequence[RunEvent]:
    """An agent's leaving, and the run's end where it was the last one at work."""
    _demand(state, event.agent)
    if event.agent not in state.at_work and state.ends.get(event.agent) == event:
        return ()
    after = fold(state, (event,))
    if state.status is not RunStatus.OPEN or after.at_work:
        return (event,)
    return (event, _worst(after, event.agent))


def _worst(state: RunState, last: str) -> RunEvent:
    """How a run ends whose agents have all left, `last` the last of them: as the worst of their
    ends. Of several that failed, the first counts: the others may have failed for it.
    """
    failed = [end for end in state.ends.values() if end.outcome == RunStatus.FAILED]
    if failed:
        first = failed[0]
        if first.agent == last and first.error is not None:
            return RunFailed(error=first.error)
        words = f"agent {first.agent!r} failed: see how it left"
        record = Failure("AgentFailed", words, module="hansard")
        return RunFailed(error=record, agent=first.agent)
    for end in state.ends.values():
        if end.outcome == RunStatus.CANCELLED:
            return RunCancelled(because=f"agent {end.agent!r} was cancelled")
    return RunCompleted()
