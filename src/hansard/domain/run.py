"""A run: one execution of a workflow by one or more agents. Its events are its `life` stream.

A run is open while an agent is at work in it: one that took part (joined, or was resumed) and has
not left. It ends when the last of them leaves, with the worst outcome of its agents; or when a
person ends it, and then agents still at work are ignored. An agent that was killed never leaves: it
is at work until it is resumed, or the run is ended.

Names, events, state, evolve, decide. The events are the storage format: a tag never changes its
meaning, a field is only added with a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, assert_never

import msgspec

from hansard.domain.agent import AgentLeft, SessionBegan
from hansard.domain.choices import Brief
from hansard.domain.decider import By, Decider, State, fold
from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.label import Label, raised
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

# The result of an import of recorded runs: counts of records read, skipped and assumed.
#
# One stream a set of files.

OBSERVED = "observed"
"""Label of a run that was made of what was seen of another program: no call of it was an intent,
and it can be neither replayed nor resumed."""

SHARED = "hansard.shared"
"""Label of a copy of another workspace's run; its value is the origin. It can be read, replayed and
forked, and nothing is written into it."""

IMPORT_KIND = "import"
"""The kind of its stream; its id is a digest of the format and of the files' names."""

FILES_MAX, REASONS_MAX, REASON_LENGTH_MAX = 100, 20, 500
"""Most files that are named, most reasons of skipped records, and their length in characters; all
files and records are counted."""


@event("import.ended.v1")
class ImportEnded(Event, frozen=True, kw_only=True):
    """Files of recorded runs were imported.

    `format` is theirs, `files` the first 100 of their names, without folders, `more_files` the
    number of further ones; `experiment` and `arm` are those assigned to runs that name none. `runs`
    were read; `duplicates` occurred twice, `skipped` were bad records, of which `reasons` has the
    first 20. `earlier` is no longer written. `assumed` counts, by kind, the values that the source
    does not give and the import assumed. `stopped` is true if it ended at a bad record. `claims`
    are the figures by metric that a submission among the files claims of the arm, by domain; ""
    where it names none. `left_out` counts, by kind, records of the source that were not imported.
    """

    format: str
    files: tuple[str, ...]
    runs: int
    more_files: int = 0
    experiment: str = ""
    arm: str = ""
    duplicates: int = 0
    earlier: int = 0
    skipped: int = 0
    reasons: tuple[str, ...] = ()
    assumed: dict[str, int] = {}
    stopped: bool = False
    claims: dict[str, dict[str, int | float]] = {}
    left_out: dict[str, int] = {}


class ImportState(State):
    """An import at a version, with its last result."""

    noun: ClassVar[str] = "an import"

    ended: ImportEnded | None = None

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        if not isinstance(event, ImportEnded):
            super()._evolve(event, by)
        else:
            self.ended = event


def decide_import(state: ImportState, event: ImportEnded) -> Sequence[ImportEnded]:
    """Return the events of the end of an import; none where the result is the same as before."""
    return () if state.ended == event else (event,)


IMPORTS = Decider(kind=IMPORT_KIND, initial=ImportState, decide=decide_import)


# The calls that an agent's program made last, by its stream: a strict replay must equal them.
#
# A session records the steps it runs, and when it leaves, the earlier steps that it replayed
# (`AgentLeft.answered`). Both together are its path. Steps of earlier sessions that a later one
# with edited code no longer requested are on record, but not on that path.

Ranges = tuple[tuple[int, int], ...]
"""Numbers of steps, ascending: the first and the last of each range without a gap."""

PURPOSE = "run"
"""The purpose of sessions in which a program ran; another session settled a step, for example."""


class SessionPath(msgspec.Struct, frozen=True):
    """The steps of a path, ascending. `exact`: as reported by its session; else the steps that lead
    to the calls that it recorded, where it was killed or written by a version that did not report
    them.
    """

    steps: tuple[int, ...] = ()
    exact: bool = True


class _Session(msgspec.Struct):
    began: bool
    """True if it was the agent's first: no record existed to replay."""
    ran: set[int] = msgspec.field(default_factory=set)
    settled: set[int] = msgspec.field(default_factory=set)
    left: AgentLeft | None = None


def within(ranges: Ranges, steps: Mapping[int, Step]) -> Iterator[int]:
    """Yield the numbers of those steps that lie in ranges."""
    return (number for number in steps if any(low <= number <= high for low, high in ranges))


def with_bodies(numbers: Iterable[int], steps: Mapping[int, Step]) -> set[int]:
    """Return the numbers of steps and of the calls in their bodies, which are replayed with a
    composite step. The steps of a body follow it.
    """
    all_numbers = set(numbers)
    for number in sorted(steps):
        if steps[number].parent in all_numbers:
            all_numbers.add(number)
    return all_numbers


def newest(events: Iterable[Event], steps: Mapping[int, Step]) -> SessionPath:
    """Return the path of the newest session that recorded a call or ended in order; `steps` are
    those of the state after the events.
    """
    for session in reversed(_sessions(events)):
        done = session.left is not None and session.left.outcome == "completed"
        if not (session.ran or session.settled or done or session.began):
            continue
        if session.began:
            return SessionPath(tuple(sorted(_path_steps(session.settled, session.ran, steps))))
        if session.left is not None and session.left.answered is not None:
            replayed = {*within(session.left.answered, steps)} | session.settled
            return SessionPath(tuple(sorted(_path_steps(replayed, session.ran, steps))))
        ran = session.ran | session.settled
        if ran:
            return SessionPath(tuple(sorted(_with_predecessors(ran, steps))), exact=False)
    return SessionPath(exact=False)


def _path_steps(replayed: set[int], ran: set[int], steps: Mapping[int, Step]) -> set[int]:
    """Return the steps that a session ran or replayed; for an outcome that it moved to the call's
    current place, the new step.
    """
    calls = {steps[number].call for number in ran if number in steps}
    return ran | {number for number in replayed if steps[number].call not in calls}


def _sessions(events: Iterable[Event]) -> list[_Session]:
    sessions: list[_Session] = []
    runs = False
    for each in events:
        if isinstance(each, SessionBegan):
            runs = each.purpose == PURPOSE
            if runs:
                sessions.append(_Session(began=not sessions))
        elif runs:
            _apply(sessions[-1], each)
    return sessions


def _apply(session: _Session, event: Event) -> None:
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


def _with_predecessors(ran: set[int], steps: Mapping[int, Step]) -> set[int]:
    """Return steps and their predecessors in their chains."""
    all_numbers: set[int] = set()
    ahead = list(ran)
    while ahead:
        number = ahead.pop()
        step = steps.get(number)
        if step is None or number in all_numbers:
            continue
        all_numbers.add(number)
        ahead += step.after
        if step.parent is not None:
            ahead.append(step.parent)
    return all_numbers


FORK_DEPTH_MAX = 100
"""Longest line of forks of forks that is read."""


class ForkEffects(StrEnum):
    """The handling of tools with effects in a fork."""

    SHADOW = "shadow"
    """They do not run: the parent's outcome or a declared shadow answers."""
    MODELS = "models"
    """As `SHADOW`, but idempotent calls of a model that the record does not answer run."""
    LIVE = "live"
    """They run."""


class Chain(StrEnum):
    """The part of the previous call that a call's fingerprint includes."""

    RESULT = "result"
    """The digest of its result: after an equal result, a change has no further effect."""
    FULL = "full"
    """The fingerprint, and so that of every earlier call: a change invalidates all later calls."""


@event("run.started.v1")
class RunStarted(Event, frozen=True, kw_only=True):
    """A run began. `program` is the program that started it, as a label for people; it is never
    run. `chain` is the part of the previous call that its calls' fingerprints include; the result
    in older records.
    """

    workflow: str
    conversation_id: str | None = None
    program: str = ""
    labels: dict[str, str] = {}
    chain: Chain = Chain.RESULT


class Swap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value that a probe substitutes in a fork: each call of the tool with these arguments
    returns the parent's result with another value at one place.

    Attributes:
        probe: The probe of the fork; all of its forks have the same.
        path: The path as the user gave it.
        agent: The parent's agent whose call returned the value first.
        step: The number of that call in the parent.
        tool: The called tool.
        arguments: The digest of the call's arguments.
        within: The place of the value in its result: keys and indices from the outside in.
        before: The value on record, as JSON.
        after: The substituted value. Equal to `before` in the fork that shows whether the program
            repeats its decision.
        live: True if calls of a model that the record does not answer are run.
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


class EditKind(StrEnum):
    """The kind of value that an edit replaces.

    Attributes:
        RESULT: The result of a call.
        CONTENT: What a call writes to shared state, or sends to another agent.
        MESSAGE: The content of a message in the context window.
        PROMPT: The version of a prompt that calls use.
    """

    RESULT = "result"
    CONTENT = "content"
    MESSAGE = "message"
    PROMPT = "prompt"


class EditedResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that a person put in place of a recorded one, for a fork to go on from.

    Attributes:
        agent: The parent's agent that made the call, or added the message.
        step: The number of the call in the parent; of a message the call before it, 0 for none.
        tool: The called tool; empty for a message.
        call: The call key: the fork's call with this key gets the value. For a message its
            fingerprint, for a prompt its name.
        result: The new value, as JSON in the form of `hansard.domain.values`. For a prompt the
            fields `version`, `text` and `label`.
        digest: The digest of the value.
        by: The author.
        reason: The author's reason.
        kind: The kind of value.
        before: The message's content on record.
    """

    agent: str
    step: int
    tool: str
    call: str
    result: msgspec.Raw
    digest: str
    by: str
    reason: str = ""
    kind: EditKind = EditKind.RESULT
    before: msgspec.Raw = NULL

    @property
    def target(self) -> str:
        """The edited value in words: `clerk#3`."""
        match self.kind:
            case EditKind.MESSAGE:
                return f"a message of {self.agent} after step {self.step}"
            case EditKind.PROMPT:
                return f"prompt {self.call} from {self.agent}#{self.step} on"
            case _:
                return f"{self.agent}#{self.step}"


@event("run.forked.v1")
class RunForked(Event, frozen=True, kw_only=True):
    """A run began as a fork: its streams continue those of the parent. `at` is the parent's version
    vector, by stream name; streams not in it begin empty.

    Attributes:
        parent: The run that it continues.
        effects: The handling of tools with effects.
        labels: Texts by name, to find the run by.
        swap: The value that a probe substitutes; None outside of a probe.
        edits: The values that a person replaced. Calls that do not depend on them are answered
            from the parent's record.
    """

    parent: str
    at: dict[str, int]
    effects: ForkEffects = ForkEffects.SHADOW
    labels: dict[str, str] = {}
    swap: Swap | None = None
    edits: tuple[EditedResult, ...] = ()


@event("run.agent_joined.v1")
class AgentJoined(Event, frozen=True, kw_only=True):
    """An agent joined the roster, in one role for the whole run."""

    agent: str
    role: str


@event("run.assigned.v1")
class RunAssigned(Event, frozen=True, kw_only=True):
    """The run is a trial of a task under an arm of an experiment; empty fields are unknown.

    `trial` counts from where the source counts (most from 0). `unit` is the unit that the arm was
    chosen for, `chosen` the method: `hash` of the unit, or `caller`; empty where the source gives
    none.

    Attributes:
        experiment: The experiment.
        arm: Its arm.
        task: The task.
    """

    experiment: str = ""
    arm: str = ""
    task: str = ""
    trial: int | None = None
    unit: str = ""
    chosen: str = ""


@event("run.scored.v1")
class RunScored(Event, frozen=True, kw_only=True):
    """A person or program scored the run's outcome: finite numbers by metric. `details` are the
    judge's further remarks, verbatim.

    Attributes:
        metrics: The scores, by name.
        by: The judge.
        because: The reason.
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
    """An agent is no longer at work: written with the end of its own stream, which records the
    same.

    `outcome`: completed, failed or cancelled. Older records have no such events: there, the session
    that began a run ended it.

    Attributes:
        agent: The agent.
        error: The error that ended it; None for none.
    """

    agent: str
    outcome: str
    error: Failure | None = None


@event("run.completed.v1")
class RunCompleted(Event, frozen=True, kw_only=True):
    """The run ended as it should. `because` is the reason given by a person who ended it, or why a
    failure does not count.
    """

    because: str = ""


@event("run.failed.v1")
class RunFailed(Event, frozen=True, kw_only=True):
    """The run ended in an error; it can be resumed. `agent` is the one that failed where another
    one left last: then `error` only refers to it.
    """

    error: Failure
    agent: str = ""


@event("run.cancelled.v1")
class RunCancelled(Event, frozen=True, kw_only=True):
    """A person ended the run."""

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
    """The status of a run. A run whose process died stays `open` until it is resumed."""

    UNKNOWN = "unknown"
    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(Brief, State, kw_only=True):
    """A run's life at a `version`, a count of its events.

    `workflow` and `program` are those it executes, then its `status`, `conversation_id` and
    `labels`, and the `error` of a failed one. `epochs` counts each agent's sessions; `assigned` is
    its arm of an experiment, `judged` its scores. `roster` maps agent to role; `forked` names its
    parent. `at_work` are the agents that an open run waits for, in the order they took part; `ends`
    how the others left, in that order, as far as the life records it.

    `label` is the one that it began under, in the form that states keep: its id, workflow and
    labels are part of every event in it, so readers without that clearance see nothing of it.
    `chain` is the part of the previous call that its calls' fingerprints include; a fork has its
    parent's.
    """

    noun: ClassVar[str] = "a run's life"

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
    def observed(self) -> bool:
        """True if the run was made of what was seen of another program (`OBSERVED`)."""
        return self.forked is None and self.labels.get(OBSERVED) == "true"

    def demand_own(self) -> None:
        """Raise Refused for a copy of another workspace's run."""
        if self.forked is None and SHARED in self.labels and self.status is not RunStatus.UNKNOWN:
            message = (
                f"the run is a copy, shared by {self.labels[SHARED]}, and nothing is written into "
                "it; fork it, and go on in the fork"
            )
            raise Refused(message)

    @property
    def missing(self) -> list[str]:
        """The agents that the run is open for: at work, or killed. Empty where it has ended."""
        return list(self.at_work) if self.status is RunStatus.OPEN else []

    @property
    def scores(self) -> dict[str, float]:
        """The newest value of each metric."""
        return {metric: value for each in self.judged for metric, value in each.metrics.items()}

    def _evolve(self, event: Event, by: By) -> None:
        match event:
            case RunStarted():
                self.workflow = event.workflow
                self.conversation_id = event.conversation_id
                self.program = event.program
                self.labels = dict(event.labels)
                self.chain = event.chain
                self.status = RunStatus.OPEN
            case RunForked():
                self.forked = event
                self.labels = {**self.labels, **event.labels}
                self.status = RunStatus.OPEN
                self.error = None
                self.at_work = []  # nobody has taken part in the fork yet
                self.ends = {}
            case AgentJoined():
                self.roster.setdefault(event.agent, event.role)  # as in `hansard.domain.integrity`
                self.epochs[event.agent] = 1
                _add_participant(self, event.agent)
            case RunAssigned():
                self.assigned = event
            case RunScored():
                self.judged.append(event)
            case RunResumed():
                self.epochs[event.agent] = event.epoch
                self.status = RunStatus.OPEN
                self.error = None
                _add_participant(self, event.agent)
            case RunAgentLeft():
                _apply_leave(self, event)
            case RunCompleted() | RunFailed() | RunCancelled():
                _apply_end(self, event)
            case _:
                super()._evolve(event, by)


def begun_under(state: RunState, events: Iterable[Event], label: Label | None) -> None:
    """Apply the label of a commit that begins the run to a state that the caller owns."""
    if label is not None and any(isinstance(each, RunStarted | RunForked) for each in events):
        state.label = raised(state.label, label)


def _add_participant(state: RunState, agent: str) -> None:
    state.ends.pop(agent, None)
    if agent not in state.at_work:
        state.at_work.append(agent)


def _apply_leave(state: RunState, event: RunAgentLeft) -> None:
    if event.agent in state.at_work:
        state.at_work.remove(event.agent)
    state.ends.pop(event.agent, None)
    state.ends[event.agent] = event


def _apply_end(state: RunState, event: RunCompleted | RunFailed | RunCancelled) -> None:
    state.at_work = []
    state.status = ENDS[type(event)]
    if isinstance(event, RunFailed):
        left = state.ends.get(event.agent)
        state.error = left.error if left is not None and left.error else event.error
    else:
        state.error = None


ENDS: Mapping[type[Event], RunStatus] = {
    RunCompleted: RunStatus.COMPLETED,
    RunFailed: RunStatus.FAILED,
    RunCancelled: RunStatus.CANCELLED,
}


def decide(state: RunState, event: RunEvent) -> Sequence[RunEvent]:
    """Return the events of a statement; none where it changes nothing. Raises Refused."""
    state.demand_own()
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
        known = ", ".join(sorted(state.roster)) or "no agent"
        message = f"agent {agent!r} is not in this run's roster ({known}): let it join first"
        raise Refused(message)


def _end(state: RunState, event: RunCompleted | RunFailed | RunCancelled) -> Sequence[RunEvent]:
    end = ENDS[type(event)]
    if state.status is end:
        return ()
    if state.status in (RunStatus.UNKNOWN, RunStatus.COMPLETED, RunStatus.CANCELLED):
        message = f"the run is {state.status} and cannot become {end}: resume it first"
        raise Refused(message)
    return (event,)


def _leave(state: RunState, event: RunAgentLeft) -> Sequence[RunEvent]:
    """Return an agent's leaving, and the run's end where it was the last one at work."""
    _demand(state, event.agent)
    if event.agent not in state.at_work and state.ends.get(event.agent) == event:
        return ()
    after = fold(state, (event,))
    if state.status is not RunStatus.OPEN or after.at_work:
        return (event,)
    return (event, _worst(after, event.agent))


def _worst(state: RunState, last: str) -> RunEvent:
    """Return the end of a run whose agents have all left, `last` the last of them: their worst
    outcome.

    Of several that failed, the first counts: the others may have failed because of it.
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
