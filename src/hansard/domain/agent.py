"""One agent in one run: its calls, the content shown to it, its decisions.

Names, events, state, evolve, decide. The events are the storage format: a tag never changes its
meaning, a field is only added with a default.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, ClassVar, assert_never

import msgspec

from hansard.domain import steps
from hansard.domain.choices import Brief, first
from hansard.domain.conversation import ContextCompacted, replaced
from hansard.domain.decider import By, LabelDeclassified, State
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.steps import (
    NULL,
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
    StepWithheld,
    StepYielded,
    ToolDeclared,
    Verdict,
)

# Refusals by an agent's role, other than refused calls. Events of the agent's stream.
#
# The events are the storage format: a tag never changes its meaning, a field is only added with a
# default.


@event("agent.refused.v1")
class AgentRefused(Event, frozen=True, kw_only=True):
    """The agent's role refused an action; no part of it was done.

    `what` is a `kind` of event, a `key` to write, one to `read`, a `task`, or a permission of a
    role (`settle`, `approve`, `query`); `name` names the one refused. `rule` is the rule that
    refused, `because` the missing permission. Refused calls are `step.blocked`.
    """

    what: str
    name: str
    rule: str
    because: str


class Refusal(msgspec.Struct, frozen=True):
    """The last refusal of one thing by the agent's role, and its epoch.

    Attributes:
        epoch: The agent's session, from 1.
        event: The refused action, and the reason.
    """

    epoch: int
    event: AgentRefused


class Refuse(msgspec.Struct, frozen=True):
    """Record a refusal; the same refusal again in one session is not recorded."""

    event: AgentRefused


Refusals = dict[str, Refusal]
"""The refusals of an agent by what was refused."""


def refusal_key(what: str, name: str) -> str:
    """Return the key of a refusal."""
    return f"{what} {name}"


def fold_refusal(refused: Refusals, event: AgentRefused, epoch: int) -> None:
    """Apply a refusal to a state that the caller owns."""
    refused[refusal_key(event.what, event.name)] = Refusal(epoch, event)


def decide_refusal(refused: Refusals, command: Refuse, epoch: int) -> tuple[AgentRefused, ...]:
    """Return the events of a command; none where the refusal is already on record in this
    session.
    """
    target = command.event
    value = refused.get(refusal_key(target.what, target.name))
    return () if value == Refusal(epoch, target) else (target,)


@event("agent.session_began.v1")
class SessionBegan(Event, frozen=True, kw_only=True):
    """A process acquired the right to write this stream: epoch 1 starts it, each later one fences
    the previous session. The versions are those of the writer.
    """

    epoch: int
    agent: str
    role: str
    server_version: str
    protocol_version: str
    conversation_id: str | None = None
    turns_before: int = 0
    purpose: str = "run"


@event("checkpoint.saved.v1")
class CheckpointSaved(Event, frozen=True, kw_only=True):
    """A named stage. `head` and `after` give its place in its scope.

    Attributes:
        name: The stage's name.
        data: Its data, as JSON in the form of `hansard.domain.values`.
        fingerprint: Identifies the checkpoint in a replay.
        scope: The path of its scope.
        joins: The joins that lead to the head, without those recorded before, as with a step.
    """

    name: str
    data: msgspec.Raw
    fingerprint: str
    scope: str = ""
    head: str = ""
    after: tuple[int, ...] = ()
    joins: tuple[Join, ...] = ()


@event("message.added.v1")
class MessageAdded(Event, frozen=True, kw_only=True):
    """A message in the context window.

    `content` is its value or a reference to it; `fields` holds the other fields of the provider's
    form (name, tool_calls ...). `usage` is its use by name: `input_tokens`, `output_tokens`, `cost`
    (US dollars) and further counts.

    Attributes:
        role: The message's role: `user`, `assistant`, `tool` ...
        fingerprint: Identifies the message in a replay.
        tokens: The number of its tokens; None if they were not counted.
        step: The step that produced it; None for none.
    """

    role: str
    content: msgspec.Raw
    fingerprint: str
    tokens: int | None = None
    fields: msgspec.Raw = NULL
    step: int | None = None
    usage: dict[str, float] = {}


@event("resource.accessed.v1")
class ResourceAccessed(Event, frozen=True, kw_only=True):
    """A resource was read, written or otherwise used.

    Attributes:
        uri: The resource.
        operation: The kind of access: `read`, `write` ...
        fingerprint: Identifies the access in a replay.
        step: The step that made it; None for none.
    """

    uri: str
    operation: str
    fingerprint: str
    step: int | None = None


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True):
    """One option of a decision.

    Attributes:
        id: Its name.
        score: Its score.
        reason: The reason for it.
        rejected_because: The reason for rejecting it.
    """

    id: str
    score: float | None = None
    reason: str = ""
    rejected_because: str = ""


@event("decision.made.v1")
class DecisionMade(Event, frozen=True, kw_only=True):
    """A decision and its inputs. `inputs` are event or commit ids, `after` the steps whose results
    its scope had seen last.

    Attributes:
        question: The question that was decided.
        selected: The selected option.
        fingerprint: Identifies the decision in a replay.
        alternatives: The options.
        threshold: The score that an option had to reach.
        confidence: The agent's confidence.
        because: The reason.
        scope: The path of its scope.
    """

    question: str
    selected: str
    fingerprint: str
    alternatives: tuple[Alternative, ...] = ()
    inputs: tuple[str, ...] = ()
    threshold: float | None = None
    confidence: float | None = None
    because: str = ""
    scope: str = ""
    after: tuple[int, ...] = ()


@event("agent.handed_off.v1")
class HandedOff(Event, frozen=True, kw_only=True):
    """The work was handed to another agent or role, with its input. `after` as in a decision.

    Attributes:
        to: The agent or role.
        fingerprint: Identifies the hand-off in a replay.
        payload: The receiver's input, as JSON in the form of `hansard.domain.values`.
        because: The reason.
    """

    to: str
    fingerprint: str
    payload: msgspec.Raw = NULL
    because: str = ""
    after: tuple[int, ...] = ()


@event("agent.left.v1")
class AgentLeft(Event, frozen=True, kw_only=True):
    """The agent's session ended in order. `outcome`: completed, failed or cancelled.

    `answered` are the earlier steps that the session did not run again: those whose outcomes it
    replayed, with the calls in their bodies, and those of the items that a `resumable` loop
    skipped; as ranges of their numbers, first and last. None in an agent's first session, which has
    no earlier steps, and in older records.
    """

    outcome: str
    error: steps.Failure | None = None
    answered: tuple[tuple[int, int], ...] | None = None


Fact = (
    CheckpointSaved | MessageAdded | ContextCompacted | ResourceAccessed | DecisionMade | HandedOff
)
"""A statement of an agent that is recorded once: its fingerprint identifies it."""

AgentEvent = (
    SessionBegan
    | ToolDeclared
    | steps.StepEvent
    | Fact
    | AgentRefused
    | LabelDeclassified
    | AgentLeft
)


class StatedFact(msgspec.Struct, frozen=True, gc=False):
    """A fact and the version at which it was recorded.

    Attributes:
        version: The version of its event in the agent's stream.
        fact: The fact.
    """

    version: int
    fact: Fact


class Moment(StrEnum):
    """The place of a snapshot in an agent's work.

    Attributes:
        REQUEST: At its beginning: its first message of a user, where that precedes any call;
            else its first event.
        BEFORE: A call is on record that has not ended.
        AFTER: A call has ended, was refused, or was settled.
        FINAL: The agent has left.
        NOW: Any other version: no part of the chain.
    """

    REQUEST = "request"
    BEFORE = "before"
    AFTER = "after"
    FINAL = "final"
    NOW = "now"


class AgentState(Brief, State, kw_only=True):
    """An agent at a version. The fold owns its state: `copy()` it before you change it.

    `version` counts the stream's events, `epoch` the sessions of the `agent` in its `role`;
    `server_version` and `protocol_version` are those of the writer of the newest session.
    `conversation_id` is the conversation it continues, with `turns_before` turns of a user before
    this run; `left` is how it ended (None: it has not); `total_tokens` is the sum of its messages'
    tokens.
    `tools` are the declared ones, by name; `edited` are their earlier declarations, oldest first,
    each with the version of its replacement (`declaration_of`). `steps` are its calls by number, up
    to `last_step`; `call_step` is the newest one that began or ended. `moment` is the last one of
    the chain of snapshots (`Moment`), `moment_version` its version, `moment_before` the version of
    the previous one; 0: none. `known` are the fingerprints of `facts`; `refused` are the refusals
    by key (`refusal`). `label` is the text of the agent's label, empty for public and trusted: its
    commits raise it, a declassification sets it. `quarantined` counts its invalid events.
    """

    noun: ClassVar[str] = "an agent's stream"

    epoch: int = 0
    agent: str = ""
    role: str = ""
    server_version: str = ""
    protocol_version: str = ""
    conversation_id: str | None = None
    turns_before: int = 0
    left: str | None = None
    total_tokens: int = 0
    moment: Moment = Moment.NOW
    moment_version: int = 0
    moment_before: int = 0
    call_step: int | None = None
    last_step: int = 0
    label: str = ""
    quarantined: int = 0
    tools: dict[str, ToolDeclared] = msgspec.field(default_factory=dict)
    edited: dict[str, tuple[tuple[int, ToolDeclared], ...]] = msgspec.field(default_factory=dict)
    steps: dict[int, Step] = msgspec.field(default_factory=dict)
    facts: list[StatedFact] = msgspec.field(default_factory=list)
    known: set[str] = msgspec.field(default_factory=set)
    refused: Refusals = msgspec.field(default_factory=dict)

    def _quarantined(self) -> None:
        self.quarantined += 1

    def _evolve(self, event: Event, by: By) -> None:
        version = self.version
        match event:
            case StepRequested():
                self.steps[event.step] = steps.requested(event, version)
                replaced_step = self.steps.get(event.instead_of or 0)
                if replaced_step is not None:  # its verdict was a decision on this new call
                    self.steps[replaced_step.number] = msgspec.structs.replace(
                        replaced_step, verdict=None
                    )
                self.last_step = max(self.last_step, event.step)
                self.call_step = event.step
                _moment(self, Moment.BEFORE)
            case StepCompleted() | StepFailed() | StepBlocked() | StepInDoubt() | StepSettled():
                step = steps.evolve(_requested(self, event), event, version)
                if self.left is not None and isinstance(event, StepCompleted | StepFailed):
                    step = msgspec.structs.replace(step, late=True)  # it ran when the agent left
                self.steps[event.step] = step
                self.call_step = event.step
                _moment(self, Moment.AFTER)
            case StepAttempted() | StepYielded() | StepWithheld():
                self.steps[event.step] = steps.evolve(_requested(self, event), event, version)
            case (
                MessageAdded()
                | ContextCompacted()
                | CheckpointSaved()
                | ResourceAccessed()
                | DecisionMade()
                | HandedOff()
            ):
                self.facts.append(StatedFact(version, event))
                self.known.add(event.fingerprint)
                if isinstance(event, MessageAdded):
                    self.total_tokens += event.tokens or 0
                    if (
                        event.role == "user" and self.moment_version == 1
                    ):  # the first, before any call
                        self.moment_version = version
            case SessionBegan():
                _began(self, event)
            case ToolDeclared(tool=tool):
                before = self.tools.get(tool)
                if before is not None:
                    self.edited[tool] = (*self.edited.get(tool, ()), (version, before))
                self.tools[tool] = event
            case AgentRefused():
                fold_refusal(self.refused, event, self.epoch)
            case LabelDeclassified():
                self.label = event.to
            case AgentLeft():
                self.left = event.outcome
                _moment(self, Moment.FINAL)
            case _:
                super()._evolve(event, by)

    def _brief(self) -> dict[str, Any]:
        """Return its identity and its newest steps."""
        return {
            "agent": self.agent,
            "role": self.role,
            "version": self.version,
            "epoch": self.epoch,
            "left": self.left,
            "label": self.label,
            "facts": len(self.facts),
            "steps": first(
                self.steps.values(), lambda each: f"{each.number} {each.tool}: {each.status.value}"
            ),
        }

    def declaration_of(self, step: Step) -> ToolDeclared | None:
        """Return the declaration of a step's tool when the step ended, or was requested where it
        has not.

        None where the tool was not declared.
        """
        version = step.outcome_version or step.version
        for ended, declared in self.edited.get(step.tool, ()):
            if version < ended:
                return declared
        return self.tools.get(step.tool)

    @property
    def messages(self) -> list[MessageAdded]:
        """All messages, in order, including those that a summary replaced."""
        return [noted.fact for noted in self.facts if isinstance(noted.fact, MessageAdded)]

    @property
    def window(self) -> list[StatedFact]:
        """The context window, in order: messages, and summaries of compacted messages."""
        return window_of(self.facts)

    @property
    def checkpoints(self) -> dict[str, CheckpointSaved]:
        """The newest checkpoint of each name."""
        facts = (noted.fact for noted in self.facts)
        return {fact.name: fact for fact in facts if isinstance(fact, CheckpointSaved)}

    @property
    def decisions(self) -> list[DecisionMade]:
        """The decisions, in order."""
        return [noted.fact for noted in self.facts if isinstance(noted.fact, DecisionMade)]

    @property
    def resources(self) -> list[StatedFact]:
        """The resources used, in order."""
        return [noted for noted in self.facts if isinstance(noted.fact, ResourceAccessed)]

    @property
    def open_steps(self) -> list[Step]:
        """The intents without a known outcome."""
        return [step for step in self.steps.values() if step.is_open]

    @property
    def in_doubt(self) -> list[Step]:
        """The calls in doubt, which a resumed session may not repeat unless they are idempotent.

        A failed call after which the agent continued is not in doubt: its error was its result.
        """
        # Filtered here, since the property of each of many steps takes four times as long.
        steps = [step for step in self.steps.values() if step.status is not StepStatus.COMPLETED]
        doubtful = [step for step in steps if step.is_in_doubt]
        if all(step.is_open for step in doubtful):
            return doubtful
        followed = self._followed()
        return [step for step in doubtful if step.is_open or step.number not in followed]

    def _followed(self) -> set[int]:
        """Return the numbers of the steps after which the agent continued."""
        numbers = {number for step in self.steps.values() for number in step.after}
        for noted in self.facts:
            numbers.update(getattr(noted.fact, "after", ()))
            if isinstance(noted.fact, MessageAdded) and noted.fact.step is not None:
                numbers.add(noted.fact.step)
        return numbers

    def check_correction(self, step: Step) -> None:
        """Check that the agent did not continue from a settled result. Raises Refused."""
        if step.number in self._followed():
            message = (
                f"step {step.number} ({step.tool}) is settled, and the agent went on from its "
                "result: fork the run before that to give another"
            )
            raise Refused(message)


def window_of(facts: Iterable[StatedFact]) -> list[StatedFact]:
    """Return the context window of an agent's facts: its messages, with summaries in place of the
    compacted ones.
    """
    window: list[StatedFact] = []
    for noted in facts:
        if isinstance(noted.fact, MessageAdded):
            window.append(noted)
        elif isinstance(noted.fact, ContextCompacted):
            window = replaced(window, functools.partial(_is_gone, noted.fact), noted)
    return window


def _is_gone(change: ContextCompacted, each: StatedFact) -> bool:
    return change.replaces_version(each.version)


def reserve_version(state: AgentState, step: int) -> None:
    """Reserve the next version for the outcome of a step.

    The step stays open until the outcome is written at that version.
    """
    state.version += 1
    state.call_step = step
    _moment(state, Moment.AFTER)


class Mark(msgspec.Struct, frozen=True):
    """The parts of a state that folding an event twice would get wrong."""

    version: int
    facts: int
    moment_version: int
    moment_before: int
    step: Step | None


def mark(state: AgentState, event: Event) -> Mark:
    """Return what `undo` needs if folding `event` is cut off."""
    step = state.steps.get(getattr(event, "step", 0))
    return Mark(state.version, len(state.facts), state.moment_version, state.moment_before, step)


def undo(state: AgentState, before: Mark) -> None:
    """Prepare a state whose fold of one event was cut off for folding that event again."""
    state.version = before.version
    state.moment_version, state.moment_before = before.moment_version, before.moment_before
    del state.facts[before.facts :]
    if before.step is not None:
        state.steps[before.step.number] = before.step


def _requested(state: AgentState, event: steps.StepEvent) -> Step:
    try:
        return state.steps[event.step]
    except KeyError:
        message = f"{event.tag} is of step {event.step}, which was never requested"
        raise Refused(message) from None


def _moment(state: AgentState, moment: Moment) -> None:
    """Continue the chain of snapshots at the state's version."""
    state.moment = moment
    state.moment_before = state.moment_version
    state.moment_version = state.version


def _began(state: AgentState, event: SessionBegan) -> None:
    if state.version == 1:
        _moment(state, Moment.REQUEST)
    state.epoch = event.epoch
    state.agent = event.agent
    state.role = event.role
    state.server_version = event.server_version
    state.protocol_version = event.protocol_version
    if event.purpose == "run":
        state.conversation_id = event.conversation_id
        state.turns_before = event.turns_before
        state.left = None


class Begin(msgspec.Struct, frozen=True):
    """Take the next epoch (the first one starts the agent)."""

    agent: str
    role: str
    server_version: str
    protocol_version: str
    conversation_id: str | None = None
    turns_before: int = 0
    purpose: str = "run"


class Tell(msgspec.Struct, frozen=True):
    """Record a step's event, unless it is already on record."""

    event: steps.StepEvent


class Declare(msgspec.Struct, frozen=True):
    """Record a tool's declaration, unless it is unchanged."""

    event: ToolDeclared


class Note(msgspec.Struct, frozen=True):
    """Record a fact. The caller has looked up its fingerprint."""

    fact: Fact


class Leave(msgspec.Struct, frozen=True):
    """End the session in order."""

    outcome: str
    error: steps.Failure | None = None
    answered: tuple[tuple[int, int], ...] | None = None


Command = Begin | Tell | Declare | Note | Refuse | Leave


def decide(state: AgentState, command: Command) -> Sequence[AgentEvent]:
    """Return the events of a command; none where they are already on record. Raises Refused."""
    if state.epoch == 0 and not isinstance(command, Begin):
        message = "the agent has not begun: start or resume the run first"
        raise Refused(message)
    match command:
        case Tell():
            current = state.steps.get(command.event.step)
            if not steps.check(current, command.event):
                return ()
            if (
                isinstance(command.event, StepSettled)
                and command.event.verdict is Verdict.HAPPENED
                and current is not None
                and current.status is StepStatus.COMPLETED
            ):
                state.check_correction(current)
            return (command.event,)
        case Note():
            return () if command.fact.fingerprint in state.known else (command.fact,)
        case Declare():
            same = state.tools.get(command.event.tool) == command.event
            return () if same else (command.event,)
        case Refuse():
            return decide_refusal(state.refused, command, state.epoch)
        case Begin():
            return (_begin(state, command),)
        case Leave():
            return () if state.left == command.outcome else (AgentLeft(**_fields(command)),)
        case _:
            assert_never(command)


def _begin(state: AgentState, command: Begin) -> SessionBegan:
    if state.epoch and command.role != state.role:
        message = (
            f"agent {command.agent!r} has role {state.role!r} in this run, not {command.role!r}: "
            "use that role, or another agent name"
        )
        raise Refused(message)
    return SessionBegan(epoch=state.epoch + 1, **_fields(command))


def _fields(command: Begin | Leave) -> dict[str, Any]:
    return msgspec.structs.asdict(command)


KEYS = "give id, score, reason, rejected_because"


def alternatives(items: Iterable[object]) -> tuple[Alternative, ...]:
    """Return alternatives from dicts, texts or Alternatives. Raises BadValue."""
    out: list[Alternative] = []
    for item in items:
        try:
            shaped = {"id": item} if isinstance(item, str) else item
            unknown = (
                shaped.keys() - Alternative.__struct_fields__ if isinstance(shaped, dict) else ()
            )
            if unknown:
                raise BadValue(
                    "alternatives", f"{item!r:.80} has {', '.join(map(repr, unknown))}", KEYS
                )
            out.append(msgspec.convert(shaped, Alternative, from_attributes=True))
        except msgspec.ValidationError as error:
            raise BadValue("alternatives", f"{item!r:.80} ({error})", KEYS) from error
    return tuple(out)
