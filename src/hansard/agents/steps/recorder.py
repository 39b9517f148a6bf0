"""Recording of steps: the intent before an effect, the outcome before its result is returned."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from hansard.agents import errors
from hansard.agents.errors import Miss, NeedsSettling, SessionEnded, doubt_note
from hansard.agents.flow import Flow, Io, Wait
from hansard.agents.policy import gate
from hansard.agents.policy.permits import FREE, Need, Permit, refused
from hansard.agents.steps import payloads
from hansard.agents.steps.failures import failed, failure
from hansard.agents.steps.ledger import CallPosition, Ledger, Mode
from hansard.agents.steps.payloads import SOURCE_CHARACTERS_MIN, Learned, Shared
from hansard.agents.steps.placeholders import Masker, SecretProvider
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.substitution import Substitutes
from hansard.agents.steps.tools import DidNotHappen, Happened, ToolSpec
from hansard.bus.errors import BusError, NotFound
from hansard.bus.log import Blobs
from hansard.domain import values
from hansard.domain.agent import AgentState, Declare, Refuse, Tell, refusal_key
from hansard.domain.errors import BadValue, Corrupt, HansardError, Refused
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.payload import Fetch, Key, Text, arguments_of
from hansard.domain.redaction import Redaction
from hansard.domain.run import EditedResult, Swap
from hansard.domain.steps import (
    AnswerSource,
    Effects,
    Failure,
    PromptUse,
    Step,
    StepAttempted,
    StepBlocked,
    StepCompleted,
    StepFailed,
    StepInDoubt,
    StepRequested,
    StepStatus,
    StepWithheld,
    ToolDeclared,
    Verdict,
    Withheld,
)
from hansard.domain.values import recordable

REMEMBERED_MAX = 32
"""Number of newest recorded texts that a session compares with when it resumes an agent."""

REMEMBERED_CHARACTERS_MAX = 4 * 1024 * 1024
"""Their total size, in characters."""


class UnsettledStep(Step, frozen=True, omit_defaults=True):
    """A step for a policy to settle: its record, and further facts.

    Attributes:
        run: The run's id.
        agent: The agent's name.
        command: The command that reaches the record from a shell: `hansard --workspace lab`.
        diverged: True if it has an outcome but the calls before it changed, or if an unrecorded
            call may be this one in another form.
        now: For a divergence, the call that is made now: tool, arguments, and the steps before it.
        source_before: Digest of the tool's source when this call was recorded; empty if none was.
        source_now: Digest of its current source.
        defined: Location of that source, as `path:line`.
    """

    run: str = ""
    agent: str = ""
    command: str = "hansard"
    diverged: bool = False
    now: str = ""
    source_before: str = ""
    source_now: str = ""
    defined: str = ""


Settled = Verdict | Happened | DidNotHappen | None
Settle = Callable[[UnsettledStep], Settled | Awaitable[Settled]]
"""A policy that settles doubt and divergence; None leaves it to a person."""

UNTOUCHED = (NeedsSettling, SessionEnded, BusError, Miss, Refused)
"""Exceptions that a composite's body may raise without being the composite's own outcome."""


INTERRUPTIONS = (asyncio.CancelledError, KeyboardInterrupt)
"""Exceptions that end a wait from outside. An event in flight is still recorded."""


def comes_from_outside(error: BaseException) -> bool:
    """Return whether a wait for the record was ended from outside: by a cancellation, or an
    exception of a signal handler.
    """
    return not isinstance(error, HansardError | GeneratorExit)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a session besides its stream."""

    mode: Mode
    rules: Sequence[gate.GateRule] = ()
    scrub: Redaction | None = None
    secrets: SecretProvider | None = None
    settle: Settle | None = None
    parent: AgentState | None = None
    shadows: bool = False
    models: bool = False
    """True if a fork with shadows still runs calls of models that the record does not answer."""
    swap: Swap | None = None
    edits: Mapping[str, EditedResult] | None = None
    """Edited results of this agent's calls by call key; None in a fork without edits."""
    contents: Mapping[str, EditedResult] = MappingProxyType({})
    """Edited contents of this agent's writes of shared state and messages, by call key."""
    texts: Substitutes | None = None
    """Messages and prompt versions in place of the parent's; None for none."""
    permit: Permit = FREE
    command: str = "hansard"


class Call(msgspec.Struct):
    """A call in progress. `is_recorded` is true once its intent is recorded; `needs` are the
    permissions of a session's own operation, None for a tool's call; `approval` is its grant;
    `withheld` is the substitute for its effect in a fork; `prompts` are the prompt versions it
    uses; `masker` holds its placeholders; `instead_of` is the recorded effect that it replaces, as
    decided by a person or policy.
    """

    spec: ToolSpec
    arguments: Mapping[str, Any]
    plain: dict[str, Any]
    form: bytes | None
    """The canonical form of its arguments; None until needed."""
    place: CallPosition
    step: Step | None
    effects: Effects
    number: int = 0
    key: str | None = None
    attempt: int = 1
    is_recorded: bool = False
    needs: tuple[Need, ...] | None = None
    approval: str | None = None
    learned: list[Learned] = []
    withheld: Withheld | None = None
    prompts: tuple[PromptUse, ...] = ()
    masker: Masker | None = None
    instead_of: int | None = None

    @property
    def canonical(self) -> bytes:
        """The canonical form of its arguments."""
        if self.form is None:
            self.form = canonical(self.plain)
        return self.form

    @property
    def has_effects(self) -> bool:
        """True if the tool itself has effects."""
        return self.effects not in (Effects.PURE, Effects.COMPOSITE)

    def take_up(self, step: Step) -> None:
        """Continue a recorded step: this is its next attempt."""
        self.number, self.key, self.is_recorded = step.number, step.key, True
        self.attempt = step.attempt + 1


def texts_of(step: Step) -> Iterator[tuple[Key, Text, str]]:
    """Yield the texts of a step that can be referred to, with the tool's name."""
    raw = bytes(step.arguments)
    if len(raw) >= SOURCE_CHARACTERS_MIN:
        for name, value in arguments_of(raw, f"step {step.number}").items():
            record = bytes(value)
            if len(record) >= SOURCE_CHARACTERS_MIN and not record.startswith(b'{"$append"'):
                yield (step.number, name), Text(step.version, record), step.tool
    if (
        step.status is StepStatus.COMPLETED
        and step.outcome_version is not None
        and not step.streamed
    ):
        record = bytes(step.result)
        if len(record) >= SOURCE_CHARACTERS_MIN:
            yield (step.number, None), Text(step.outcome_version, record), step.tool


class StepRecorder:
    """Records the requests and outcomes of a session's calls."""

    def __init__(self, ledger: Ledger, settings: Settings, blobs: Blobs) -> None:
        self.ledger = ledger
        self.settings = settings
        self.stream = ledger.stream
        self.address = errors.RunAddress(self.stream.run, self.stream.agent, settings.command)
        self.blobs = blobs
        self.reader = payloads.Reader(lambda: ledger.state)
        self._shared: Shared | None = None
        self.warns = True
        """True if it warns of inexact results; a service does not, since its clients do."""

    def fetch(self, request: Fetch) -> Flow[Any]:
        """Run a fetch, getting the blobs that it requests."""
        try:
            reference = next(request)
            while True:
                sha256, size = reference
                data = yield Io(functools.partial(self.blobs.get, sha256, size))
                reference = request.send(data)
        except StopIteration as stop:
            return stop.value

    def intend(self, call: Call) -> Flow[None]:
        """Record the intent; the effect starts only after it is acknowledged."""
        request = yield from self.requested(call)
        declare = Declare(self._declaration(call.spec))
        if call.effects is Effects.COMPOSITE:
            self.ledger.record([declare, Tell(request)], wait=False)
        else:
            yield from self._before(call, declare, Tell(request))
        call.is_recorded = True
        self.learn(call)

    def again(self, call: Call) -> Flow[None]:
        """Record the start of another attempt, before it starts."""
        step = self.ledger.state.steps[call.number]
        why = step.error or Failure("Interrupted", "the session ended before the outcome was known")
        news = call.approval if call.approval not in step.approvals else None
        event = StepAttempted(step=call.number, attempt=step.attempt, error=why, approval=news)
        yield from self._before(call, Declare(self._declaration(call.spec)), Tell(event))
        call.attempt = step.attempt + 1

    def _before(self, call: Call, *commands: Any) -> Flow[None]:
        """Record an intent; if interrupted meanwhile, the attempt never starts."""
        try:
            yield from self.record(*commands)
        except BaseException as error:
            if comes_from_outside(error) and call.number in self.ledger.state.steps:
                yield from self.never_began(call, error)
            raise

    def never_began(self, call: Call, error: BaseException) -> Flow[None]:
        """Record that an attempt with a recorded intent was stopped before its body started."""
        earlier = self.ledger.state.steps[call.number].attempts
        safe = not earlier or call.effects in (Effects.ONCE, Effects.RECONCILE)
        event = failed(call.number, error, self.settings.scrub, safe=safe)
        yield from self.record(Tell(event))

    def _declaration(self, spec: ToolSpec) -> ToolDeclared:
        return ToolDeclared(
            tool=spec.name,
            effects=spec.effects,
            version=spec.version,
            source=spec.source,
            gives=spec.gives,
            takes=spec.takes,
        )

    def requested(self, call: Call) -> Flow[StepRequested]:
        """Return a call's intent as an event, after storing the blobs that it names."""
        blobs, event = yield from self._packed_request(call)
        yield from self.put(blobs)
        return event

    def opening(self, call: Call) -> Flow[tuple[list[bytes], list[Any]]]:
        """Return a call's intent as commands, and the blobs to store before them."""
        blobs, request = yield from self._packed_request(call)
        return blobs, [Declare(self._declaration(call.spec)), Tell(request)]

    def _packed_request(self, call: Call) -> Flow[tuple[list[bytes], StepRequested]]:
        shared = yield from self._sharing()
        packed = payloads.pack_arguments(call.plain, call.spec.name, shared)
        call.learned = packed.learned
        return packed.blobs, self._request(call, packed.raw)

    def packed_result(self, call: Call, plain: values.Plain) -> Flow[payloads.Packed]:
        """Return a call's result, ready to record. Raises BadValue."""
        shared = yield from self._sharing()
        return payloads.pack(plain, "result", call.spec.name, shared)

    def _sharing(self) -> Flow[Shared]:
        """Return the agent's known texts; for a resumed agent, starting with its newest ones."""
        if self._shared is not None:
            return self._shared
        made = Shared()
        if self.ledger.state.steps:
            yield from self._remember(made)
        if self._shared is None:  # another call may have been first
            self._shared = made
        return self._shared

    def _remember(self, shared: Shared) -> Flow[None]:
        """Load the newest recorded texts. One that is unreadable, since its blob was erased or is
        damaged, is not referred to.
        """
        newest: list[tuple[Key, Text, str]] = []
        for step in self.ledger.state.steps.values():
            newest += texts_of(step)
        newest.sort(key=lambda one: one[1].version, reverse=True)
        texts: list[tuple[Key, str, str]] = []
        left = REMEMBERED_CHARACTERS_MAX
        for key, stored, tool in newest[:REMEMBERED_MAX]:
            try:
                text: str = yield from self.fetch(self.reader.texts.text(key, stored))
            except (NotFound, Corrupt):
                continue
            texts.append((key, text, tool))
            left -= len(text)
            if left <= 0:
                break
        for (number, argument), text, tool in reversed(texts):
            kind = (tool, argument)
            new = shared.find(text, kind).new
            shared.learn(number, [Learned(argument, text, kind, new)])

    def _request(self, call: Call, arguments: msgspec.Raw) -> StepRequested:
        """Return a call's intent as an event; assigns the step's number and idempotency key."""
        if not call.number:
            call.number = self.ledger.next_step()
        if call.key is None and call.spec.has_key:
            call.key = digest(b"key", self.stream.run.encode(), call.place.call.encode())
        place = call.place
        return StepRequested(
            step=call.number,
            tool=call.spec.name,
            effects=call.effects,
            arguments=arguments,
            call=place.call,
            fingerprint=place.fingerprint,
            scope=place.scope.path,
            after=place.after,
            parent=place.scope.step,
            key=call.key,
            unordered=place.unordered,
            kind=call.spec.kind,
            call_id=call.spec.call_id,
            approval=call.approval,
            joins=self.ledger.joins(place, call.number),
            full="" if self.ledger.full else place.other or "",
            by_result=place.other or "" if self.ledger.full else "",
            prompts=call.prompts,
            defaults=place.defaults,
            instead_of=call.instead_of,
        )

    def completed(
        self, call: Call, result: Any, took: float, usage: dict[str, float]
    ) -> Flow[None]:
        """Record the outcome before the result is returned. A result that cannot be recorded
        exactly is approximated, with a warning.
        """
        approximation = payloads.plain_result(result, call.spec.returns, self.settings.scrub)
        inexact = yield from self.completed_as(call, approximation, took, usage)
        self.warn_inexact(call.number, call.spec.name, inexact)

    def warn_inexact(self, step: int, tool: str, inexact: str) -> None:
        """Warn if a result is not recorded exactly."""
        if inexact and self.warns:
            message = (
                f"step {self.stream.agent}#{step} ({tool}): its result is not recorded exactly, "
                f"and a resume or replay returns the recorded part: {inexact}"
            )
            errors.warn(message, errors.ResultInexact)

    def completed_as(
        self,
        call: Call,
        result: payloads.Result,
        took: float,
        usage: dict[str, float],
        source: AnswerSource | None = None,
    ) -> Flow[str]:
        """Record an outcome; return the reason if it is inexact, else an empty text. `source` is
        the step of an earlier run that the answer is from.
        """
        try:
            packed = yield from self.packed_result(call, result.plain)
        except BadValue as error:
            result = payloads.too_large_result(call.spec.name, error)
            packed = yield from self.packed_result(call, result.plain)
        blobs = packed.blobs
        items: list[Any] = []
        if not call.is_recorded:
            more, items = yield from self.opening(call)
            blobs = blobs + more
        yield from self.put(blobs)
        done = StepCompleted(
            step=call.number,
            result=packed.raw,
            digest=digest(canonical(result.plain)),
            duration_ms=round(took, 3),
            usage=usage,
            reused_from=source,
            inexact=result.inexact,
        )
        yield from self.record(*items, *self.withheld(call), Tell(done))
        if items:
            self.learn(call)
        if self._shared is not None:
            self._shared.learn(call.number, packed.learned)
        return result.inexact

    def ended_as(
        self, call: Call, outcome: Callable[[int], StepFailed | StepBlocked]
    ) -> Flow[None]:
        """Record the end of a call that did not run, after its intent; `outcome` receives the
        step's number.
        """
        opening: list[Any] = []
        if not call.is_recorded:
            blobs, opening = yield from self.opening(call)
            yield from self.put(blobs)
        yield from self.record(*opening, *self.withheld(call), Tell(outcome(call.number)))
        if opening:
            call.is_recorded = True
            self.learn(call)

    def failed(self, call: Call, error: Exception) -> Flow[None]:
        """Record that a call that did not run failed."""
        scrub = self.settings.scrub
        yield from self.ended_as(call, lambda number: failed(number, error, scrub))

    def withheld(self, call: Call) -> list[Any]:
        """Return the commands that record a withheld effect; empty if none was withheld."""
        if call.withheld is None:
            return []
        would = recordable(call.spec.does, self.settings.scrub)
        return [Tell(StepWithheld(step=call.number, how=call.withheld, would=would))]

    def learn(self, call: Call) -> None:
        """Register a call's argument texts, once its intent is recorded."""
        if self._shared is not None:
            self._shared.learn(call.number, call.learned)
            call.learned = []

    def raised(self, call: Call, error: BaseException, scope: Scope) -> Flow[float]:
        """Record an error's consequence and raise it, or return the seconds to wait before a
        retry.
        """
        spec = call.spec
        if isinstance(error, UNTOUCHED):
            raise error
        failure_record = failure(error, self.settings.scrub)
        again = spec.may_retry(error) and call.attempt < spec.attempts and not self.ledger.ended
        if spec.is_doubtful(error) and not again:
            yield from self.record(Tell(StepInDoubt(step=call.number, error=failure_record)))
            error.add_note(doubt_note(self.address, call.number, spec.name))
            raise error
        if not isinstance(error, Exception) and not spec.is_safe(error):
            raise error
        request: list[Any] = []
        if not call.is_recorded:
            intent = yield from self.requested(call)
            request = [Declare(self._declaration(spec)), Tell(intent)]
            call.is_recorded = True
        if again:
            wait_s = spec.wait_s(call.attempt)
            tried = StepAttempted(
                step=call.number,
                attempt=call.attempt,
                error=failure_record,
                retry_in_ms=round(wait_s * 1_000, 3),
            )
            yield from self.record(*request, Tell(tried))
            call.attempt += 1
            return wait_s
        event = failed(
            call.number, error, self.settings.scrub, safe=spec.is_safe(error), usage=scope.usage
        )
        yield from self.record(*request, Tell(event))
        raise error

    def put(self, blobs: list[bytes]) -> Flow[None]:
        """Store blobs, acknowledged before the event that names them."""
        for blob in blobs:
            yield Io(functools.partial(self.blobs.put, blob))

    def demand(self, *needs: Need) -> Flow[None]:
        """Raise RoleRefused for what the role does not allow, after recording the refusal."""
        if self.settings.mode.reads_only:
            self.refused_before(*needs)
            return
        for need in needs:
            refusal = self.settings.permit.refusal(need)
            if refusal is not None:
                yield from self.record(Refuse(refusal))
                raise refused(refusal)

    def refused_before(self, *needs: Need) -> None:
        """Raise a recorded refusal when a replay reaches the refused operation."""
        for need in needs:
            known = self.ledger.state.refused.get(refusal_key(need.what, need.name))
            if known is not None:
                raise refused(known.event)

    def record(self, *commands: Any) -> Flow[None]:
        """Record commands' events and wait until they are acknowledged."""
        done = self.ledger.record(commands)
        if done is not None:
            yield Wait(done)
