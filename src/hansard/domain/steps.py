"""Steps: one call an agent makes to the world, an intent and then an outcome.

The events below are the storage format: a tag never changes its meaning, a field is only added with
a default. `step` counts an agent's steps from 1; payloads (`arguments`, `result`, `items`) are JSON
in the form of `hansard.domain.values`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

import msgspec

from hansard.domain.choices import Brief
from hansard.domain.errors import Refused
from hansard.domain.events import Event, event
from hansard.domain.fingerprint import joined

NULL = msgspec.Raw(b"null")
NO_ATTRIBUTES = msgspec.Raw(b"{}")


class Effects(StrEnum):
    """The effect of a tool on the world, which decides how a call in doubt is handled."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    RECONCILE = "reconcile"
    ONCE = "once"
    COMPOSITE = "composite"


class Verdict(StrEnum):
    """The verdict on a call in doubt or a divergence."""

    HAPPENED = "happened"
    DID_NOT_HAPPEN = "did_not_happen"
    REUSE = "reuse"
    RUN_AGAIN = "run_again"


class Withheld(StrEnum):
    """The answer of a fork to a call whose effect it withheld.

    Attributes:
        OUTCOME: A recorded outcome: its parent's, or an earlier one of its own.
        SHADOW: The tool's `shadow=`.
        REFUSED: None: the call raised `ShadowedEffect`.
        EDIT: The result that the author of the fork supplied.
    """

    OUTCOME = "outcome"
    SHADOW = "shadow"
    REFUSED = "refused"
    EDIT = "edit"


IMPORTER = "import"
"""The writer of imported runs, on behalf of their agents, and the module of their errors."""

ANSWERS = frozenset({"ToolErrorResult", "ErrorAnswer", "NotCalled"})
"""Names of the errors of `hansard.ext.mcp` that carry a server's answer."""


_MEANINGS = {"GeneratorExit": "the program dropped the session without ending it"}
"""Explanations of exceptions that have no text."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An exception as it is recorded: its class's name, its text, its arguments and attributes.

    Attributes:
        type: The class's qualified name.
        message: The text.
        arguments: As JSON, in the form of `hansard.domain.values`.
        module: The module of the class.
        attributes: By name, as JSON in the same form.
        lost: The arguments (`args`) and attributes that are not recorded.
        exceptions: Those of an exception group.
        cause: The exception it was raised from.
        notes: The notes added to it.
    """

    type: str
    message: str
    arguments: msgspec.Raw = msgspec.Raw(b"[]")
    module: str = "builtins"
    attributes: msgspec.Raw = NO_ATTRIBUTES
    lost: tuple[str, ...] = ()
    exceptions: tuple[Failure, ...] = ()
    cause: Failure | None = None
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The class's name, and the text if it is not empty."""
        message = self.message or _MEANINGS.get(self.type)
        return f"{self.type}: {message}" if message else self.type

    @property
    def is_answer(self) -> bool:
        """True if the call had this error as its outcome: a remote tool answered with it, or the
        record of another program states it.
        """
        is_of_tool = self.type in ANSWERS and self.module.startswith("hansard.")
        return is_of_tool or self.module == IMPORTER


@event("tool.declared.v1")
class ToolDeclared(Event, frozen=True, kw_only=True):
    """A tool's declaration when this agent first called it (again after each change). `gives` is
    the label of its results, `takes` the highest confidentiality of its arguments (empty: any).

    Attributes:
        tool: Its name.
        effects: Its effect on the world.
        version: The declared version.
        source: A digest of the function's source text.
    """

    tool: str
    effects: Effects
    version: str = ""
    source: str = ""
    gives: str = ""
    takes: str = ""


class Join(msgspec.Struct, frozen=True, omit_defaults=True):
    """A join of child scopes: the scope's next head follows from its `head` before and the heads at
    the `ends` of its children, in spawn order (`hansard.domain.fingerprint`).

    `times`: the number of consecutive joins of as many children each, none of which made a call.
    Without ends, `head` is the result of more joins than are recorded.
    """

    head: str
    ends: tuple[str, ...] = ()
    times: int = 1

    def result(self) -> str:
        """Return the head after it."""
        head, ends = self.head, self.ends
        for _ in range(self.times if ends else 0):
            head = joined(head, list(ends))
            ends = (head,) * len(ends)
        return head


JOIN_TIMES_MAX = 100_000
"""Most joins that one `Join` represents."""


class PromptUse(msgspec.Struct, frozen=True, omit_defaults=True):
    """A version of a prompt that was among a call's arguments.

    Attributes:
        prompt: The prompt's name.
        version: The version.
        alias: The alias that it was requested by; empty for a number.
    """

    prompt: str
    version: int
    alias: str = ""


@event("step.requested.v1")
class StepRequested(Event, frozen=True, kw_only=True):
    """The intent. `call` and `fingerprint` as in `hansard.domain.fingerprint`; `after` are the
    steps whose results its scope had seen last; `parent` the composite step around it; `key` the
    idempotency key passed to it; `call_id` the model's id of it (`gen_ai.tool.call.id`); `approval`
    the granted one (`hansard.domain.approval`).

    `joins` are those that lead to the head before the call, each after those that it needs, without
    those that earlier steps of the agent recorded. Older records have none.

    `full` is the fingerprint by the full chain, in a run whose chain is by results; `by_result` the
    other way round. Empty where it is unknown: in older records, and after the items that a
    `resumable` loop skipped.

    `prompts` are the versions of prompts among its arguments (`hansard.domain.prompt`).

    `defaults` names the arguments that are not part of the call key, because they had the value
    that the tool declares as their default. Older records have none: there every argument is part
    of it. `instead_of` is the recorded effect that the call was about to repeat under another key,
    until a person decided.
    """

    step: int
    tool: str
    effects: Effects
    arguments: msgspec.Raw
    call: str
    fingerprint: str
    scope: str = ""
    after: tuple[int, ...] = ()
    parent: int | None = None
    key: str | None = None
    unordered: bool = False
    kind: str = "tool"
    call_id: str | None = None
    approval: str | None = None
    joins: tuple[Join, ...] = ()
    full: str = ""
    by_result: str = ""
    prompts: tuple[PromptUse, ...] = ()
    defaults: tuple[str, ...] = ()
    instead_of: int | None = None


@event("step.attempted.v1")
class StepAttempted(Event, frozen=True, kw_only=True):
    """An attempt failed and another follows: the intent of attempt `attempt + 1`. `approval` is the
    grant for it, where the earlier one was used up.

    Attributes:
        step: The step's number.
        attempt: The attempt that failed, from 1.
        error: Its error.
        retry_in_ms: The wait before the next attempt.
        duration_ms: The duration of this attempt.
    """

    step: int
    attempt: int
    error: Failure
    retry_in_ms: float = 0.0
    duration_ms: float = 0.0
    approval: str | None = None


@event("step.yielded.v1")
class StepYielded(Event, frozen=True, kw_only=True):
    """Items of a streamed result, in order of arrival; `index` of the first, from 0."""

    step: int
    index: int
    items: tuple[msgspec.Raw, ...]


class AnswerSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The step of an earlier run that answered a call.

    Attributes:
        run: Its run.
        agent: Its agent there.
        step: Its number there.
        event: The id of the event that holds the answer.
        key: The key that it was found by (`hansard.domain.reuse.key_of`).
    """

    run: str
    agent: str
    step: int
    event: str
    key: str


@event("step.completed.v1")
class StepCompleted(Event, frozen=True, kw_only=True):
    """The outcome. `digest` is that of the result; `items` the number of a stream's items; `closed`
    is true if its reader stopped early; `reused` names the step whose outcome this is,
    `reused_from` the step of an earlier run: then nothing ran here. `inexact` is the reason why the
    result is not recorded exactly, and the remedy; empty where it is.
    """

    step: int
    result: msgspec.Raw
    digest: str
    duration_ms: float = 0.0
    usage: dict[str, float] = {}
    items: int | None = None
    closed: bool = False
    reused: int | None = None
    reused_from: AnswerSource | None = None
    inexact: str = ""


@event("step.failed.v1")
class StepFailed(Event, frozen=True, kw_only=True):
    """The call raised. `safe` is true if the effect certainly did not happen."""

    step: int
    error: Failure
    digest: str
    safe: bool = False
    duration_ms: float = 0.0
    usage: dict[str, float] = {}


@event("step.blocked.v1")
class StepBlocked(Event, frozen=True, kw_only=True):
    """The gate refused the call; nothing ran."""

    step: int
    rule: str
    reason: str


@event("step.in_doubt.v1")
class StepInDoubt(Event, frozen=True, kw_only=True):
    """The call ended, and it is unknown whether its effect happened. `happened` is true if it did,
    and only its result could not be recorded: `error` has the reason and the result.
    """

    step: int
    error: Failure
    duration_ms: float = 0.0
    happened: bool = False


@event("step.withheld.v1")
class StepWithheld(Event, frozen=True, kw_only=True):
    """A fork withheld a call's effect; the tool did not run. The event follows the call's intent,
    which has its tool and arguments, and precedes the substituted answer.

    Attributes:
        step: The step's number.
        how: The source of the answer.
        would: The first line of the tool's docstring.
    """

    step: int
    how: Withheld
    would: str = ""


@event("step.settled.v1")
class StepSettled(Event, frozen=True, kw_only=True):
    """A person or a policy decided the outcome of a step."""

    step: int
    verdict: Verdict
    by: str
    result: msgspec.Raw = NULL
    digest: str = ""
    because: str = ""


StepEvent = (
    StepRequested
    | StepAttempted
    | StepYielded
    | StepCompleted
    | StepFailed
    | StepBlocked
    | StepInDoubt
    | StepWithheld
    | StepSettled
)
Outcome = StepCompleted | StepFailed | StepBlocked | StepInDoubt


class StepStatus(StrEnum):
    """The status of a step."""

    REQUESTED = "requested"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    IN_DOUBT = "in_doubt"
    NOT_DONE = "not_done"


KINDS_IN_RECORD = frozenset({"aggregate", "board", "memory", "team"})
"""Kinds of calls that write to the record alone."""


class Step(Brief, msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A step as folded so far. Versions are those of its events in the agent's stream. `approvals`
    are those that its intents name, the newest last. `late`: its outcome was recorded after its
    agent had left. `happened`: the effect of a step in doubt happened, and only its result could
    not be recorded.

    Attributes:
        number: Its number in the agent's stream, from 1.
        tool: The called tool.
        effects: The tool's effect on the world.
        arguments: By name, as JSON in the form of `hansard.domain.values`.
        call: The call key.
        fingerprint: The call key and the result before it in its scope.
        version: The version of its first intent.
        scope: The path of its scope.
        after: The steps whose results its scope had seen last.
        parent: The step in whose body it was called; None for none.
        key: The idempotency key that was passed to the tool.
        unordered: True if it overlapped others, so that its predecessor is unknown.
        kind: `tool`, `model`, `resource` or `memory`.
        call_id: The provider's id of the call.
        status: Its status.
        attempts: The failed attempts that were followed by another.
        items: The items of a stream so far.
        result: Its result, as JSON in the form of `hansard.domain.values`.
        error: Its error.
        digest: Digest of the result.
        safe: True if its error means that the effect did not happen.
        rule: The rule of the gate that blocked it.
        duration_ms: Its duration.
        usage: Its use, by name.
        streamed: True if its result was recorded as items.
        closed: True if its stream's reader closed it before the end.
        reused: The step whose outcome it took; None for none.
        reused_from: The step of an earlier run whose answer it took; None for none.
        verdict: The verdict that settled it.
        settled_by: The author of the verdict.
        outcome_version: The version of the event that ended it; None while it is open.
        withheld: The fork's answer in place of its effect; None where it was not withheld.
        would: The tool's own description of the withheld effect.
        defaults: The arguments that are not part of the call key: they had their default values.
        instead_of: The step that it replaced, by a person's decision; None for none.
        inexact: The reason why its result is not recorded exactly; empty where it is.
    """

    number: int
    tool: str
    effects: Effects
    arguments: msgspec.Raw
    call: str
    fingerprint: str
    version: int
    scope: str = ""
    after: tuple[int, ...] = ()
    parent: int | None = None
    key: str | None = None
    unordered: bool = False
    kind: str = "tool"
    call_id: str | None = None
    status: StepStatus = StepStatus.REQUESTED
    attempts: tuple[StepAttempted, ...] = ()
    items: tuple[msgspec.Raw, ...] = ()
    result: msgspec.Raw = NULL
    error: Failure | None = None
    digest: str = ""
    safe: bool = False
    rule: str = ""
    duration_ms: float = 0.0
    usage: dict[str, float] = {}
    streamed: bool = False
    closed: bool = False
    reused: int | None = None
    verdict: Verdict | None = None
    settled_by: str = ""
    outcome_version: int | None = None
    approvals: tuple[str, ...] = ()
    late: bool = False
    happened: bool = False
    withheld: Withheld | None = None
    would: str = ""
    reused_from: AnswerSource | None = None
    defaults: tuple[str, ...] = ()
    instead_of: int | None = None
    inexact: str = ""

    @property
    def has_effect(self) -> bool:
        """True if the call itself may have an effect on the world."""
        return self.effects not in (Effects.PURE, Effects.COMPOSITE)

    @property
    def is_external(self) -> bool:
        """True if the effect is outside the record: a mail, not an entry of the board."""
        return self.has_effect and self.kind not in KINDS_IN_RECORD

    @property
    def attempt(self) -> int:
        """The attempt that is under way or was the last, from 1."""
        return len(self.attempts) + 1

    @property
    def is_open(self) -> bool:
        """True if the intent has no known outcome."""
        return self.status in (StepStatus.REQUESTED, StepStatus.IN_DOUBT)

    @property
    def is_in_doubt(self) -> bool:
        """True if its effect may or may not have happened.

        An error that does not exclude the effect leaves it in doubt, too, unless the remote tool
        answered with that error, or the agent continued after it (`AgentState.in_doubt`).
        """
        if not self.has_effect or self.withheld is not None:
            return False
        if self.status is StepStatus.FAILED:  # an idempotent call that failed simply runs again
            is_answer = self.error is not None and self.error.is_answer
            return not self.safe and not is_answer and self.effects is not Effects.IDEMPOTENT
        return self.is_open

    @property
    def may_have_happened(self) -> bool:
        """True if its effect happened in this run, or may have happened."""
        if not self.has_effect or self.withheld is not None or self.reused_from is not None:
            return False
        if self.status is StepStatus.FAILED:
            return not self.safe and self.effects is not Effects.IDEMPOTENT
        return self.is_open or self.status is StepStatus.COMPLETED


def requested(event: StepRequested, version: int) -> Step:
    """Build a new step from its intent."""
    return Step(
        event.step,
        event.tool,
        event.effects,
        event.arguments,
        event.call,
        event.fingerprint,
        version,
        event.scope,
        event.after,
        event.parent,
        event.key,
        event.unordered,
        event.kind,
        event.call_id,
        approvals=() if event.approval is None else (event.approval,),
        defaults=event.defaults,
        instead_of=event.instead_of,
    )


def evolve(step: Step, event: StepEvent, version: int) -> Step:
    """Return the step after one more of its events."""
    change = msgspec.structs.replace
    match event:
        case StepCompleted():
            return change(
                step,
                status=StepStatus.COMPLETED,
                result=event.result,
                error=None,
                digest=event.digest,
                duration_ms=event.duration_ms,
                usage=event.usage,
                streamed=event.items is not None,
                closed=event.closed,
                reused=event.reused,
                reused_from=event.reused_from,
                inexact=event.inexact,
                outcome_version=version,
            )
        case StepFailed():
            return change(
                step,
                status=StepStatus.FAILED,
                error=event.error,
                digest=event.digest,
                safe=event.safe,
                duration_ms=event.duration_ms,
                usage=event.usage,
                outcome_version=version,
            )
        case StepAttempted():
            return _attempted(step, event)
        case StepYielded():
            return change(step, items=step.items + event.items, streamed=True)
        case StepBlocked():
            return change(
                step,
                status=StepStatus.BLOCKED,
                rule=event.rule,
                error=Failure("Blocked", event.reason, module="hansard"),
                outcome_version=version,
            )
        case StepInDoubt():
            return change(
                step,
                status=StepStatus.IN_DOUBT,
                error=event.error,
                duration_ms=event.duration_ms,
                happened=event.happened,
                outcome_version=version,
            )
        case StepWithheld():
            return change(step, withheld=event.how, would=event.would)
        case StepSettled():
            return _settled(step, event, version)
        case StepRequested():
            return requested(event, version)
        case _:
            assert_never(event)


def _attempted(step: Step, event: StepAttempted) -> Step:
    """Return the step when another attempt begins: its outcome is unknown."""
    named = () if event.approval is None else (event.approval,)
    return msgspec.structs.replace(
        step,
        status=StepStatus.REQUESTED,
        attempts=(*step.attempts, event),
        approvals=step.approvals + named,
        items=(),
        closed=False,
        late=False,
        error=None,
        verdict=None,
        happened=False,
        withheld=None,
        would="",
    )


def _settled(step: Step, event: StepSettled, version: int) -> Step:
    change = msgspec.structs.replace
    settled = change(step, verdict=event.verdict, settled_by=event.by)
    match event.verdict:
        case Verdict.HAPPENED:
            return change(
                settled,
                status=StepStatus.COMPLETED,
                result=event.result,
                digest=event.digest,
                error=None,
                outcome_version=version,
            )
        case Verdict.DID_NOT_HAPPEN:
            return change(settled, status=StepStatus.NOT_DONE, safe=True, outcome_version=version)
        case Verdict.REUSE | Verdict.RUN_AGAIN:
            return settled
        case _:
            assert_never(event.verdict)


# The events that may follow on earlier ones of a step: one outcome, attempts in order


def check(step: Step | None, event: StepEvent) -> bool:
    """Return whether an event changes a step: False when the step already has it. Raises
    Refused.
    """
    if step is None:
        if isinstance(event, StepRequested):
            return True
        message = f"step {event.step} was never requested: request it first"
        raise Refused(message)
    match event:
        case StepRequested():
            if step.fingerprint != event.fingerprint:
                message = f"step {event.step} is already another call ({step.tool})"
                raise Refused(message)
            return False
        case StepSettled():
            return _check_settlement(step, event)
        case StepYielded(index=at):
            due = len(step.items)
            return at >= due and _follows(step, f"item {at}", due=at == due)
        case StepWithheld():
            return step.withheld is not event.how and _withholds(step)
        case StepAttempted(attempt=at):
            if at == step.attempt and step.closed:  # its reader stopped early and now reads on
                return True
            return at >= step.attempt and _follows(step, f"attempt {at}", due=at == step.attempt)
        case StepCompleted() | StepFailed() | StepBlocked() | StepInDoubt():
            return _check_outcome(step, event)
        case _:
            assert_never(event)


def _follows(step: Step, what: str, *, due: bool) -> bool:
    if due and step.status is not StepStatus.COMPLETED:
        return True
    message = f"{what} cannot follow on step {step.number} ({step.tool}, {step.status})"
    raise Refused(message)


def _withholds(step: Step) -> bool:
    if step.status in (StepStatus.REQUESTED, StepStatus.NOT_DONE) and step.has_effect:
        return True
    message = (
        f"nothing of step {step.number} ({step.tool}, {step.effects}, {step.status}) can be "
        "withheld: only an effect whose outcome is not known can"
    )
    raise Refused(message)


def _check_outcome(step: Step, event: Outcome) -> bool:
    if step.status in (StepStatus.REQUESTED, StepStatus.NOT_DONE):
        return True
    if step.status is StepStatus.IN_DOUBT and not isinstance(event, StepInDoubt):
        return True
    same = {
        StepCompleted: StepStatus.COMPLETED,
        StepFailed: StepStatus.FAILED,
        StepBlocked: StepStatus.BLOCKED,
        StepInDoubt: StepStatus.IN_DOUBT,
    }[type(event)]
    if step.status is same and getattr(event, "digest", step.digest) == step.digest:
        return False
    message = (
        f"step {step.number} ({step.tool}) is already {step.status}; "
        "an outcome is recorded once: settle it if it is wrong"
    )
    raise Refused(message)


def _check_settlement(step: Step, event: StepSettled) -> bool:
    doubtful = event.verdict in (Verdict.HAPPENED, Verdict.DID_NOT_HAPPEN)
    if step.verdict is event.verdict and step.digest == (event.digest or step.digest):
        return False
    corrects = step.verdict is Verdict.HAPPENED and event.verdict is Verdict.HAPPENED
    if doubtful and not (
        corrects or step.is_open or (step.status is StepStatus.FAILED and not step.safe)
    ):
        message = (
            f"step {step.number} ({step.tool}) is {step.status}, not in doubt: "
            f"to change its result: hansard run fork RUN --replace AGENT#{step.number}=FILE"
        )
        raise Refused(message)
    if (
        not doubtful
        and step.status is not StepStatus.COMPLETED
        and step.status is not StepStatus.FAILED
    ):
        message = (
            f"step {step.number} ({step.tool}) is {step.status} and has no outcome to reuse or "
            "run again: settle it with --happened RESULT or --did-not-happen"
        )
        raise Refused(message)
    return True
