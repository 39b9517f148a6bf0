"""Checks before a call runs: the role's permit, the gate's rules, approvals, budgets.

A refusal is recorded before it is raised; nothing of the refused call is.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import NoReturn, TypeVar

import msgspec

from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.errors import Blocked
from hansard.agents.flow import Flow, Io, Watch
from hansard.agents.policy import gate as gates
from hansard.agents.policy.approvals import Approvals, LogBudgets
from hansard.agents.policy.gate import AskFirst
from hansard.agents.policy.permits import RULE, TOOL, Clearances, Need, is_public, refused
from hansard.agents.steps import payloads
from hansard.agents.steps.ledger import is_final
from hansard.agents.steps.recorder import INTERRUPTIONS, Call, StepRecorder
from hansard.bus.clock import Clock
from hansard.bus.errors import AppendUnknown, Unreachable
from hansard.bus.loggers import logger
from hansard.domain import approval as approvals
from hansard.domain import ids
from hansard.domain.agent import AgentRefused, Refuse, Tell, refusal_key
from hansard.domain.approval import Approval, ApprovalRequested, ApprovalStatus
from hansard.domain.fingerprint import digest
from hansard.domain.label import LOWEST, Confidentiality, Label, join, level
from hansard.domain.steps import StepBlocked
from hansard.domain.values import Plain, recordable
from hansard.state.boards import Boards

# A session requests approval of a call, and waits for the answer. See
# `hansard.agents.policy.approvals`.

_log = logger(__name__)

REMIND_S = 300.0
"""Longest time without a further report of a call that waits for its approval, in seconds."""

_watcher: ContextVar[Callable[[Approval], None] | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watching_questions(report: Callable[[Approval], None]) -> Iterator[None]:
    """Report each approval request that calls made in this context wait for, again every REMIND_S,
    and its answer; by default, a warning is logged of those that wait.
    """
    token = _watcher.set(report)
    try:
        yield
    finally:
        _watcher.reset(token)


class Basis(msgspec.Struct, frozen=True):
    """Basis of an approval besides the call: `shown` holds further facts by name; another `mark`
    makes another request.
    """

    mark: str
    shown: dict[str, Plain]


def refusal(approval: Approval) -> str:
    """Return the reason that a call without approval does not run."""
    if approval.given is ApprovalStatus.DENIED:
        why = f": {approval.because}" if approval.because else ""
        return f"{approval.by!r} denied it (approval {approval.id}){why}"
    waited_s = approval.request.timeout_ms / 1_000
    return f"no answer within {waited_s:,g} s (approval {approval.id}); a resume requests it again"


K = TypeVar("K")

STOPPED = (Exception, *INTERRUPTIONS)
"""Exceptions that may stop a call before its body starts, after which the session can still release
its reservations; a closed flow cannot."""

RECEIVER = "receiver"
"""Operation name of the refusal of a hand-off."""


class Reservation(msgspec.Struct):
    """The budgets on which a call has a reservation, under its `name`."""

    name: str = ""
    budgets: list[gates.Budget] = []


class Gated:
    """The part of a session's steps that admits or refuses calls."""

    def __init__(self, outcomes: StepRecorder, budgets: LogBudgets, boards: Boards) -> None:
        self.outcomes = outcomes
        self.ledger = outcomes.ledger
        self.settings = outcomes.settings
        self.stream = outcomes.stream
        self.boards = boards
        self.clearances = Clearances(boards.states, outcomes.stream)
        self.carried: AccumulatedLabel | None = None
        """Label carried by the session's principal; None for a trusted program."""
        self._budgets = budgets
        self._approvals = Approvals(boards.states, outcomes.stream.run)
        self._approvals.label = lambda: outcomes.ledger.label.stored
        self._clock = Clock()
        self._released: dict[int, int] = {}
        """Number of released reservations of a step that was recorded before its call. Such a step
        may start again, and a budget does not reserve again what it already knows."""

    @property
    def asks_anything(self) -> bool:
        """True if any call must be checked at all."""
        return bool(self.settings.rules) or self.settings.permit.enforced

    def gate(self, call: Call) -> Flow[Reservation]:
        """Pass the gate, or record the refusal and raise Blocked. Return the budgets held."""
        request, verdict = yield from self.ask_rules(call)
        yield from demand_takes(self, call)
        if verdict.asks is not None and call.approval is None:
            yield from self.ask_first(call, verdict.asks)
        held = Reservation()
        for rule in self.settings.rules:
            if isinstance(rule, gates.Budget) and rule.matches(request):
                held.name, granted = held.name or self._budget_call(call), False
                try:
                    granted = yield Io(functools.partial(self._budgets.reserve, rule, held.name))
                except Blocked as error:
                    yield from self.release(call, held)
                    yield from self.blocked(call, error.rule, error.reason)
                except STOPPED as error:
                    # An interruption does not stop the write; after other errors there is none.
                    if isinstance(error, INTERRUPTIONS):
                        held.budgets.append(rule)
                    yield from self.called_off(call, held, error)
                    raise
                if not granted:
                    yield from self.release(call, held)
                    reason = f"its limit of {rule.limit:g} {rule.unit} is used up"
                    yield from self.blocked(call, rule.name, reason)
                held.budgets.append(rule)
        return held

    def ask_rules(self, call: Call) -> Flow[tuple[gates.GateCall, gates.Verdict]]:
        """Check the permit and the rules, without approvals and budgets."""
        yield from self.permitted(call)
        request = gates.GateCall(
            call.spec.name,
            call.arguments,
            self.stream.run,
            self.stream.agent,
            self.stream.role,
            call.effects.value,
        )
        verdict = gates.ask(self.settings.rules, request)
        if not verdict.allowed:
            yield from self.blocked(call, verdict.rule, verdict.reason)
        return request, verdict

    def ask_first(self, call: Call, rule: gates.AskFirst, basis: Basis | None = None) -> Flow[None]:
        """Wait until a call is approved. Raises Blocked, after recording the refusal."""
        answer = yield from self._approval(call, rule, basis)
        approval = yield from answer_for_agent(self, answer)
        if call.approval is None:
            yield from self.blocked(call, rule.title(), refusal(approval))

    def _approval(self, call: Call, rule: AskFirst, basis: Basis | None = None) -> Flow[Approval]:
        """Request approval for a call, and wait for the answer. A grant is recorded with the call's
        intent; another attempt of the same call uses the same grant, on the same basis.
        """
        step = call.step
        if call.number:
            step = self.ledger.state.steps.get(call.number)
        usable = functools.partial(approvals.usable, step)
        actor = self.ledger.actor
        blobs, target = self._question(call, rule, basis)
        yield from self.outcomes.put(blobs)
        approval: Approval = yield Io(functools.partial(self._approvals.ask, target, actor, usable))
        report = _watcher.get() or self._warn_of_wait
        report_at = 0.0
        while approval.given is ApprovalStatus.PENDING:
            if time.monotonic() >= report_at:
                report(approval)
                report_at = time.monotonic() + REMIND_S
            wait = functools.partial(self._approvals.wait, approval.id, REMIND_S)
            approval = yield Watch(functools.partial(self.ledger.watch, wait))
            pending = approval.given is ApprovalStatus.PENDING
            if pending and self._approvals.left_s(approval) <= 0:
                approval = yield Io(functools.partial(self._approvals.expire, approval.id, actor))
        report(approval)
        if approval.given is ApprovalStatus.GRANTED:
            call.approval = approval.id
        return approval

    def _warn_of_wait(self, approval: Approval) -> None:
        if approval.given is ApprovalStatus.PENDING:
            request, address = approval.request, self.outcomes.address
            _log.warning(
                f"{address.agent}#{request.step} ({request.tool}) of run {address.run} waits for "
                f"approval; from another terminal: {address.command} approvals grant {approval.id}"
            )

    def _question(
        self, call: Call, rule: AskFirst, basis: Basis | None
    ) -> tuple[list[bytes], ApprovalRequested]:
        if not call.number:
            call.number = self.ledger.next_step()
        shown = basis.shown if basis is not None else {}
        packed = payloads.pack_arguments({**call.plain, **shown})
        fingerprint = call.place.fingerprint
        if basis is not None:
            fingerprint = digest(b"basis", fingerprint.encode(), basis.mark.encode())
        stream = self.stream
        return packed.blobs, ApprovalRequested(
            approval=ids.marked(self._clock.new_id(), stream.run),  # `find` needs the mark
            agent=stream.agent,
            role=stream.role,
            step=call.number,
            tool=call.spec.name,
            arguments=packed.raw,
            call=call.place.call,
            fingerprint=fingerprint,
            rule=recordable(rule.title(), self.settings.scrub),
            timeout_ms=round(rule.timeout_s * 1_000),
        )

    def permitted(self, call: Call) -> Flow[None]:
        """Check the role's permit: a refused call is a step, any other refusal is not."""
        permit = self.settings.permit
        if call.needs is not None:
            yield from self.outcomes.demand(*call.needs)
        elif permit.enforced and not self.settings.mode.reads_only:
            refusal = permit.refusal(Need(TOOL, call.spec.name))
            if refusal is not None:
                yield from self.blocked(call, refusal.rule, refusal.because, refused(refusal))

    def release(self, call: Call, held: Reservation) -> Flow[None]:
        """Release the reservations of a call that does not run after all. If interrupted, release
        the rest first, then raise the interruption.
        """
        if not held.budgets:
            return
        if call.step is not None:
            with self.ledger.lock:
                self._released[call.number] = self._released.get(call.number, 0) + 1
        interrupted: BaseException | None = None
        for budget in held.budgets:
            try:
                yield Io(functools.partial(self._budgets.spend, budget, held.name, 0.0))
            except INTERRUPTIONS as error:
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def called_off(self, call: Call, held: Reservation, error: BaseException) -> Flow[None]:
        """Release the reservations of a call that an error stopped before its body started.

        They are kept if the broker did not answer: whether the intent is recorded is unknown, and
        nothing else can be written now. They count like those of a session that died.
        """
        if not isinstance(error, (AppendUnknown, Unreachable)):
            yield from self.release(call, held)

    def _budget_call(self, call: Call) -> str:
        """Return a budget's key for this attempt of a call: an attempt of an earlier session has
        another key, and so has one that starts again after its reservation was released.
        """
        if not call.number:
            call.number = self.ledger.next_step()
        name = f"{self.stream.agent}#{call.number}.{call.attempt}@{self.ledger.state.epoch}"
        released = self._released.get(call.number, 0) if self._released else 0
        return f"{name}+{released}" if released else name

    def blocked(
        self, call: Call, rule: str, reason: str, error: Blocked | None = None
    ) -> Flow[NoReturn]:
        """Record that a call is refused, and raise the error."""
        step = self.ledger.state.steps.get(call.number)
        untouched = call.step is not None and not call.is_recorded
        if not untouched and (step is None or not is_final(step)):
            items = [] if call.is_recorded else [Tell((yield from self.outcomes.requested(call)))]
            reason = recordable(reason, self.settings.scrub)
            named = recordable(rule, self.settings.scrub)
            event = StepBlocked(step=call.number, rule=named, reason=reason)
            yield from self.outcomes.record(*items, Tell(event))
        raise error if error is not None else Blocked(rule, reason, call.spec.name)

    def spend(self, held: Reservation, usage: dict[str, float] | None) -> Flow[None]:
        """Replace the reservations by the actual usage; None is that of a call that did not run."""
        for budget in held.budgets:
            if usage is not None:
                amount = budget.used(usage)
            else:
                amount = budget.used({}) if budget.unit == "calls" else 0.0
            yield Io(functools.partial(self._budgets.spend, budget, held.name, amount))


# ---------------------------------------------------------------- labels


def _label_now(gated: Gated) -> Flow[Label]:
    """Return the agent's label; for a principal, joined with what it has seen elsewhere."""
    if gated.carried is not None:
        yield Io(gated.carried.refresh)
    return gated.ledger.label


def demand_cleared(gated: Gated, call: Call, label: Label | None, what: str) -> Flow[None]:
    """Check that the agent may see a label; otherwise record the refusal and raise Blocked. A
    permitted label is joined to the agent's.
    """
    try:
        if not is_public(label):
            yield Io(functools.partial(gated.clearances.demand, label, what, call.spec.name))
    except Blocked as error:
        yield from gated.blocked(call, error.rule, error.reason)
    gated.ledger.shown(label)


def demand_receiver(gated: Gated, call: Call, role: str | None, agent: str | None) -> Flow[None]:
    """Check that a role or agent may receive what this agent has seen; otherwise record the refusal
    and raise Blocked.
    """
    label = yield from _label_now(gated)
    if is_public(label):
        return
    reason: str = yield Io(functools.partial(gated.clearances.receives, label, role, agent))
    if reason:
        yield from gated.blocked(call, RULE, reason)


def demand_takes(gated: Gated, call: Call) -> Flow[None]:
    """Check that a call's tool takes what this agent has seen; otherwise record the refusal and
    raise Blocked.
    """
    takes = call.spec.takes
    label = (yield from _label_now(gated)) if takes else LOWEST
    if takes and not label.flows_to(level(takes)):
        yield from gated.blocked(
            call,
            RULE,
            f"this agent has seen data labelled {str(label)!r}, and {call.spec.name} takes "
            f"{takes!r} at most; ask an approver for a declassification",
        )


def answer_for_agent(gated: Gated, approval: Approval) -> Flow[Approval]:
    """Return an answer to the agent's request as it may see it: with its text if the agent is
    cleared for it, whose label is then joined to the agent's; otherwise only the decision.
    """
    if not is_public(approval.label):
        cleared = yield Io(gated.clearances.own)
        if approval.label is not None and not approval.label.flows_to(cleared):
            return msgspec.structs.replace(approval, because="")
    gated.ledger.shown(approval.label)
    return approval


def cleared_of(gated: Gated, labels: Mapping[K, Label | None]) -> Flow[list[K]]:
    """Return the labelled items that the agent may see; their labels are joined to the agent's."""
    cleared = Confidentiality.SECRET
    if not all(map(is_public, labels.values())):
        cleared = yield Io(gated.clearances.own)
    may = [each for each, label in labels.items() if label is None or label.flows_to(cleared)]
    gated.ledger.shown(join(*(labels[each] for each in may)).stored)
    return may


def demand_hand_off(gated: Gated, to: str) -> Flow[None]:
    """Check that an agent or role may receive what this agent has seen; otherwise record the
    refusal and raise Blocked.
    """
    what = f"hand_off to {to!r:.200}"
    if gated.settings.mode.reads_only:
        known = gated.ledger.state.refused.get(refusal_key(RECEIVER, to))
        if known is not None and known.event.rule == RULE:
            raise Blocked(RULE, known.event.because, what)
        return
    label = yield from _label_now(gated)
    if is_public(label):
        return
    reason: str = yield Io(functools.partial(gated.clearances.receives, label, to, to))
    if reason:
        event = AgentRefused(what=RECEIVER, name=to, rule=RULE, because=reason)
        yield from gated.outcomes.record(Refuse(event))
        raise Blocked(RULE, reason, what)
