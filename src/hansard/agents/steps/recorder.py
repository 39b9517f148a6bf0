"""Putting steps on record: the intent before an effect, the outcome before its result."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from hansard.agents import errors
from hansard.agents.errors import Miss, NeedsSettling, SessionEnded, doubt_note
from hansard.agents.flow import Flow, Io, Wait
from hansard.agents.policy import gate
from hansard.agents.policy.permits import FREE, Need, Permit, refused
from hansard.agents.steps import payloads
from hansard.agents.steps.failures import failure, failure_digest
from hansard.agents.steps.ledger import CallPosition, Ledger, Mode
from hansard.agents.steps.payloads import SOURCE_CHARACTERS_MIN, Learned, Shared
from hansard.agents.steps.placeholders import Masker, SecretProvider
from hansard.agents.steps.scope import Scope
from hansard.agents.steps.tools import DidNotHappen, Happened, ToolSpec
from hansard.bus.errors import BusError, NotFound
from hansard.bus.log import Blobs
from hansard.domain import values
from hansard.domain.agent import AgentState, Declare, Tell
from hansard.domain.errors import BadValue, Corrupt, HansardError, Refused
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.payload.parts import Key, Text, arguments_of
from hansard.domain.payload.references import Fetch
from hansard.domain.redaction import Redaction
from hansard.domain.refusal import Refuse, refusal_key
from hansard.domain.run import Swap
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
"""Newest texts on record that a session compares with when it goes on with an agent."""

REMEMBERED_CHARACTERS_MAX = 4 * 1024 * 1024
"""Characters of them."""


class UnsettledStep(Step, frozen=True, omit_defaults=True):
    """A step as a policy is given it that is to settle it: what is on record, and what is known
    besides.

    Attributes:
        run: The run's id.
        agent: The agent.
        command: What reaches the record from a shell: `hansard --workspace lab`.
        diverged: It has an outcome, and what came before it is not what it was; or a call that is
            not on record may be this one in another form.
        now: Where it diverged, the call that is made now: its tool, its arguments, and the steps
            that it comes after.
        source_before: The digest of the tool's source when this call was recorded; empty where
            none was.
        source_now: That of its source now.
        defined: Where that stands, as `path:line`.
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
"""What a composite's body may raise without that being the composite's own outcome."""


INTERRUPTIONS = (asyncio.CancelledError, KeyboardInterrupt)
"""What ends a wait from outside. What was being recorded is still recorded."""


def comes_from_outside(error: BaseException) -> bool:
    """Return whether what ended a wait for the record is none of its own errors: a cancellation, or
    an exception of a signal handler.
    """
    return not isinstance(error, HansardError)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is given besides its stream."""

    mode: Mode
    rules: Sequence[gate.GateRule] = ()
    scrub: Redaction | None = None
    secrets: SecretProvider | None = None
    settle: Settle | None = None
    parent: AgentState | None = None
    shadows: bool = False
    swap: Swap | None = None
    permit: Permit = FREE
    command: str = "hansard"


class Call(msgspec.Struct):
    """One call on its way through. `told` says whether its intent is on record; `needs` what an
    operation of the session itself needs, None for a tool's call; `approval` what was granted it;
    `withheld` what answers for its effect in a fork that withholds it; `prompts` the versions that
    it is given; `veil` what it is given placeholders for; `instead_of` the recorded effect in whose
    place it is made, by somebody's decision.
    """

    spec: ToolSpec
    arguments: Mapping[str, Any]
    plain: dict[str, Any]
    form: bytes | None
    """The canonical form of its arguments; None where it was not needed yet."""
    place: CallPosition
    step: Step | None
    effects: Effects
    number: int = 0
    key: str | None = None
    attempt: int = 1
    told: bool = False
    needs: tuple[Need, ...] | None = None
    approval: str | None = None
    learned: list[Learned] = []
    withheld: Withheld | None = None
    prompts: tuple[PromptUse, ...] = ()
    veil: Masker | None = None
    instead_of: int | None = None

    @property
    def canonical(self) -> bytes:
        """The canonical form of its arguments."""
        if self.form is None:
            self.form = canonical(self.plain)
        return self.form

    @property
    def has_effects(self) -> bool:
        """Whether the tool itself does something to the world."""
        return self.effects not in (Effects.PURE, Effects.COMPOSITE)

    def take_up(self, step: Step) -> None:
        """Go on with a step that is on record: what runs now is its next attempt."""
        self.number, self.key, self.told = step.number, step.key, True
        self.attempt = step.attempt + 1


def texts_of(step: Step) -> Iterator[tuple[Key, Text, str]]:
    """What may be referred to of a step, and the name of its tool."""
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
    """Records what a session's calls asked for and came to."""

    def __init__(self, ledger: Ledger, settings: Settings, blobs: Blobs) -> None:
        self.ledger = ledger
        self.settings = settings
        self.stream = ledger.stream
        self.address = errors.RunAddress(self.stream.run, self.stream.agent, settings.command)
        self.blobs = blobs
        self.reader = payloads.Reader(lambda: ledger.state)
        self._shared: Shared | None = None
        self.warns = True
        """Whether it warns of inexact results; a service does not: its clients do."""

    def fetch(self, request: Fetch) -> Flow[Any]:
        """Drive a fetch: get the blobs it asks for."""
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
        call.told = True
        self.learn(call)

    def again(self, call: Call) -> Flow[None]:
        """Record that another attempt begins, before it does."""
        step = self.ledger.state.steps[call.number]
        why = step.error or Failure("Interrupted", "the session ended before the outcome was known")
        news = call.approval if call.approval not in step.approvals else None
        event = StepAttempted(step=call.number, attempt=step.attempt, error=why, approval=news)
        yield from self._before(call, Declare(self._declaration(call.spec)), Tell(event))
        call.attempt = step.attempt + 1

    def _before(self, call: Call, *commands: Any) -> Flow[None]:
        """Record an intent; interrupted while that is on its way, the attempt never begins."""
        try:
            yield from self.record(*commands)
        except BaseException as error:
            if comes_from_outside(error) and call.number in self.ledger.state.steps:
                yield from self.never_began(call, error)
            raise

    def never_began(self, call: Call, error: BaseException) -> Flow[None]:
        """Record that an attempt whose intent is on record was called off before its body."""
        earlier = self.ledger.state.steps[call.number].attempts
        failure_record = failure(error, self.settings.scrub)
        failed = StepFailed(
            step=call.number,
            error=failure_record,
            digest=failure_digest(failure_record),
            safe=not earlier or call.effects in (Effects.ONCE, Effects.RECONCILE),
        )
        yield from self.record(Tell(failed))

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
        """A call's intent as an event; the blobs that it names are stored."""
        blobs, event = yield from self._packed_request(call)
        yield from self.put(blobs)
        return event

    def opening(self, call: Call) -> Flow[tuple[list[bytes], list[Any]]]:
        """A call's intent as commands, and the blobs to store before them."""
        blobs, request = yield from self._packed_request(call)
        return blobs, [Declare(self._declaration(call.spec)), Tell(request)]

    def _packed_request(self, call: Call) -> Flow[tuple[list[bytes], StepRequested]]:
        shared = yield from self._sharing()
        packed = payloads.pack_arguments(call.plain, call.spec.name, shared)
        call.learned = packed.learned
        return packed.blobs, self._request(call, packed.raw)

    def packed_result(self, call: Call, plain: values.Plain) -> Flow[payloads.Packed]:
        """A call's result, ready to record. Raises BadValue."""
        shared = yield from self._sharing()
        return payloads.pack(plain, "result", call.spec.name, shared)

    def _sharing(self) -> Flow[Shared]:
        """What is known of the agent's texts; of an agent that goes on, its newest ones."""
        if self._shared is not None:
            return self._shared
        made = Shared()
        if self.ledger.state.steps:
            yield from self._remember(made)
        if self._shared is None:  # another call may have come first
            self._shared = made
        return self._shared

    def _remember(self, shared: Shared) -> Flow[None]:
        """Take in the newest texts on record. One that cannot be read any more, because its blob
        was erased or it is damaged, is not referred to.
        """
        newest: list[tuple[Key, Text, str]] = []
        for step in self.ledger.state.steps.values():
            newest += texts_of(step)
        newest.sort(key=lambda one: one[1].version, reverse=True)
        found: list[tuple[Key, str, str]] = []
        left = REMEMBERED_CHARACTERS_MAX
        for key, standing, tool in newest[:REMEMBERED_MAX]:
            try:
                text: str = yield from self.fetch(self.reader.texts.text(key, standing))
            except (NotFound, Corrupt):
                continue
            found.append((key, text, tool))
            left -= len(text)
            if left <= 0:
                break
        for (number, argument), text, tool in reversed(found):
            kind = (tool, argument)
            new = shared.find(text, kind).new
            shared.learn(number, [Learned(argument, text, kind, new)])

    def _request(self, call: Call, arguments: msgspec.Raw) -> StepRequested:
        """A call's intent as an event; numbers the step and gives it its idempotency key."""
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
        """Record the outcome before the result is handed on. A result that cannot be recorded
        exactly is recorded as far as it can be, with a warning.
        """
        found = payloads.plain_result(result, call.spec.returns, self.settings.scrub)
        inexact = yield from self.completed_as(call, found, took, usage)
        self.warn_inexact(call.number, call.spec.name, inexact)

    def warn_inexact(self, step: int, tool: str, inexact: str) -> None:
        """Warn where a result is not recorded exactly."""
        if inexact and self.warns:
            message = (
                f"step {self.stream.agent}#{step} ({tool}): its result is not recorded exactly, "
                f"and a resume or replay gives what is: {inexact}"
            )
            warnings.warn(message, errors.ResultInexact, stacklevel=2)

    def completed_as(
        self,
        call: Call,
        found: payloads.Result,
        took: float,
        usage: dict[str, float],
        source: AnswerSource | None = None,
    ) -> Flow[str]:
        """Record an outcome, and return why that is not exact; empty where it is. `source` is the
        step of an earlier run whose answer it is.
        """
        try:
            packed = yield from self.packed_result(call, found.plain)
        except BadValue as error:  # larger than any value may be
            found = payloads.Result(f"<{call.spec.name}: {error.fact}>", str(error))
            packed = yield from self.packed_result(call, found.plain)
        blobs = packed.blobs
        items: list[Any] = []
        if not call.told:
            more, items = yield from self.opening(call)
            blobs = blobs + more
        yield from self.put(blobs)
        done = StepCompleted(
            step=call.number,
            result=packed.raw,
            digest=digest(canonical(found.plain)),
            duration_ms=round(took, 3),
            usage=usage,
            reused_from=source,
            inexact=found.inexact,
        )
        yield from self.record(*items, *self.withheld(call), Tell(done))
        if items:
            self.learn(call)
        if self._shared is not None:
            self._shared.learn(call.number, packed.learned)
        return found.inexact

    def ended_as(
        self, call: Call, outcome: Callable[[int], StepFailed | StepBlocked]
    ) -> Flow[None]:
        """Record how a call ended that was not run, its intent before it; `outcome` is given the
        step's number.
        """
        opening: list[Any] = []
        if not call.told:
            blobs, opening = yield from self.opening(call)
            yield from self.put(blobs)
        yield from self.record(*opening, *self.withheld(call), Tell(outcome(call.number)))
        if opening:
            call.told = True
            self.learn(call)

    def withheld(self, call: Call) -> list[Any]:
        """What says that a call's effect was withheld, as commands: none where it was not."""
        if call.withheld is None:
            return []
        would = recordable(call.spec.does, self.settings.scrub)
        return [Tell(StepWithheld(step=call.number, how=call.withheld, would=would))]

    def learn(self, call: Call) -> None:
        """Take note of what a call was given, once its intent is told."""
        if self._shared is not None:
            self._shared.learn(call.number, call.learned)
            call.learned = []

    def raised(self, call: Call, error: BaseException, scope: Scope) -> Flow[float]:
        """Record what an error means and raise it; the seconds to wait where it is tried again."""
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
        if not call.told:
            event = yield from self.requested(call)
            request = [Declare(self._declaration(spec)), Tell(event)]
            call.told = True
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
        failed = StepFailed(
            step=call.number,
            error=failure_record,
            digest=failure_digest(failure_record),
            safe=spec.is_safe(error),
            usage=scope.usage,
        )
        yield from self.record(*request, Tell(failed))
        raise error

    def put(self, blobs: list[bytes]) -> Flow[None]:
        """Store blobs, acknowledged before the event that names them."""
        for blob in blobs:
            yield Io(functools.partial(self.blobs.put, blob))

    def demand(self, *needs: Need) -> Flow[None]:
        """Raise RoleRefused for what the role does not allow, put on record before."""
        if self.settings.mode.reads_only:
            self.refused_before(*needs)
            return
        for need in needs:
            refusal = self.settings.permit.refusal(need)
            if refusal is not None:
                yield from self.record(Refuse(refusal))
                raise refused(refusal)

    def refused_before(self, *needs: Need) -> None:
        """Raise a refusal that is on record, where a replay comes to what was refused."""
        for need in needs:
            known = self.ledger.state.refused.get(refusal_key(need.what, need.name))
            if known is not None:
                raise refused(known.event)

    def record(self, *commands: Any) -> Flow[None]:
        """Record commands' events and wait until they are acknowledged."""
        done = self.ledger.record(commands)
        if done is not None:
            yield Wait(done)
