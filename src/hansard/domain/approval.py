"""Approvals: a person's answer to a call, given before it runs. One aggregate a run.

Names, events, state, evolve, decide. The events are the storage format: a tag never changes its
meaning, a field is only added with a default.

All approvals of a run are one stream, so that each gets one answer even if several people answer at
the same time. A request made at log time T with a timeout of L is closed at every point whose log
time is T + L or later: an answer stored then is ignored. No process's own clock is used.

The use of a grant is no event of its own: the intent of the call names it (`StepRequested`). A
grant covers one call of that agent, identified by call key and fingerprint, until the call had, or
may have had, an effect (`usable`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from typing import ClassVar, assert_never

import msgspec

from hansard.domain import ids, values
from hansard.domain.decider import By, State
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Event, event
from hansard.domain.label import Label
from hansard.domain.steps import Step, StepStatus

# A budget: the amount that all agents of a run together may still spend. One aggregate a limit.
#
# An amount is reserved before a call and corrected after it, so the sum holds over processes and
# after a kill. A reservation whose call never ended stays reserved: the call may have been made.


@event("budget.reserved.v1")
class Reserved(Event, frozen=True, kw_only=True):
    """Part of a budget was reserved for one call: `call` names agent, step, attempt and epoch."""

    call: str
    amount: float


@event("budget.spent.v1")
class Spent(Event, frozen=True, kw_only=True):
    """The actual amount of a call; it replaces its reservation."""

    call: str
    amount: float


def key_of(name: str) -> str:
    """Return the key of a run's shared state that counts a budget."""
    return f"budget {name}"


class BudgetState(State):
    """Amounts reserved or spent, by call.

    `gone` is their exact sum, kept up to date: the cost of a call does not grow with the number of
    earlier calls.
    """

    noun: ClassVar[str] = "a budget"

    calls: dict[str, float] = msgspec.field(default_factory=dict)
    gone: Fraction = Fraction(0)

    @property
    def total(self) -> float:
        """The sum of all reserved and spent amounts."""
        return _float(self.gone)

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        if not isinstance(event, Reserved | Spent):
            super()._evolve(event, by)
            return
        before = self.calls.get(event.call, 0.0)
        if event.amount != before:
            self.gone += Fraction(event.amount) - Fraction(before)
        self.calls[event.call] = event.amount


def _float(amount: Fraction) -> float:
    try:
        return float(amount)
    except OverflowError:
        return math.copysign(math.inf, amount)


def reserve(state: BudgetState, call: str, amount: float, limit: float) -> Sequence[Event] | None:
    """Return the events that reserve `amount`; None where `limit` does not allow it."""
    if call in state.calls:
        return ()
    if _float(state.gone + Fraction(amount)) > limit:
        return None
    return (Reserved(call=call, amount=amount),)


def spend(state: BudgetState, call: str, amount: float) -> Sequence[Event]:
    """Return the events that correct a reservation; none where it was exact."""
    return () if state.calls.get(call) == amount else (Spent(call=call, amount=amount),)


KEY = "team approvals"
"""The key of the run's board that approvals are kept under; no agent may write it as a key."""

REQUESTS_MAX = 10_000
"""Most requests of a run: every reader reads all of them."""

TIMEOUT_MS_MIN = 100
"""Shortest timeout of a request: far more than a commit takes on a local disk."""

TIMEOUT_MS_MAX = 365 * 24 * 3_600_000
"""Longest timeout of a request: a year."""


@event("approval.requested.v1")
class ApprovalRequested(Event, frozen=True, kw_only=True):
    """An agent requests approval of a call.

    `arguments` are the call's, as JSON in the form of `hansard.domain.values` (large ones blob
    references); `call` and `fingerprint` identify the call; `rule` is the gate's rule that requires
    the approval; `timeout_ms` is how long the request waits for an answer.

    Attributes:
        approval: The request's id.
        agent: The requesting agent.
        role: Its role.
        step: The step's number in the agent's stream.
        tool: The tool to call.
    """

    approval: str
    agent: str
    role: str
    step: int
    tool: str
    arguments: msgspec.Raw
    call: str
    fingerprint: str
    rule: str
    timeout_ms: int


@event("approval.granted.v1")
class ApprovalGranted(Event, frozen=True, kw_only=True):
    """A person allows the call, once."""

    approval: str
    by: str
    because: str = ""


@event("approval.denied.v1")
class ApprovalDenied(Event, frozen=True, kw_only=True):
    """A person refuses the call."""

    approval: str
    by: str
    because: str = ""


@event("approval.expired.v1")
class ApprovalExpired(Event, frozen=True, kw_only=True):
    """The request was not answered in time; the agent stopped waiting."""

    approval: str


Answer = ApprovalGranted | ApprovalDenied
ApprovalEvent = ApprovalRequested | ApprovalGranted | ApprovalDenied | ApprovalExpired


class ApprovalStatus(StrEnum):
    """The status of a request."""

    PENDING = "pending"
    GRANTED = "granted"
    DENIED = "denied"
    EXPIRED = "expired"


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A request as folded so far. `requested_at`, `answered_at` and `expires` are log times in ns;
    `by` answered it, `because` is the reason, `label` the label of the answer, `requester` that of
    what the agent had been shown when it requested it.

    Attributes:
        request: The request.
        given: The answer on record; `standing` also takes the timeout into account.
    """

    request: ApprovalRequested
    requested_at: int
    answered_at: int | None = None
    given: ApprovalStatus = ApprovalStatus.PENDING
    by: str = ""
    because: str = ""
    label: Label | None = None
    requester: Label | None = None

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.approval

    @property
    def expires(self) -> int:
        """The log time from which on an answer is ignored, in ns."""
        return self.requested_at + self.request.timeout_ms * 1_000_000

    def standing(self, now: int) -> ApprovalStatus:
        """Return the status at a log time in ns."""
        if self.given is ApprovalStatus.PENDING and now >= self.expires:
            return ApprovalStatus.EXPIRED
        return self.given


class ApprovalsState(State, kw_only=True):
    """The requests of a run by id, in order."""

    noun: ClassVar[str] = "a run's approvals"

    requests: dict[str, Approval] = msgspec.field(default_factory=dict)

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event, stored at log time `by.stamp`, in place."""
        match event:
            case ApprovalRequested():
                self.requests[event.approval] = Approval(
                    request=event, requested_at=by.stamp, requester=by.label
                )
            case ApprovalGranted():
                self._answered(event, ApprovalStatus.GRANTED, by)
            case ApprovalDenied():
                self._answered(event, ApprovalStatus.DENIED, by)
            case ApprovalExpired():
                request = self.requests.get(event.approval)
                if request is not None and request.standing(by.stamp) is ApprovalStatus.EXPIRED:
                    over = msgspec.structs.replace(
                        request, given=ApprovalStatus.EXPIRED, answered_at=by.stamp
                    )
                    self.requests[event.approval] = over
            case _:
                super()._evolve(event, by)

    def _answered(self, event: Answer, status: ApprovalStatus, by: By) -> None:
        """Apply an answer that was stored while the request was pending, by another than the
        requesting agent; all others are ignored.
        """
        request = self.requests.get(event.approval)
        if request is None or request.request.agent in (event.by, by.author):
            return
        if request.standing(by.stamp) is ApprovalStatus.PENDING:
            self.requests[event.approval] = msgspec.structs.replace(
                request,
                given=status,
                answered_at=by.stamp,
                by=event.by,
                because=event.because,
                label=by.label,
            )


def initial(version: int = 0) -> ApprovalsState:
    """Return the state before the first event; in a fork it follows its parent's `version`.

    A fork takes over no request of its parent: the grants were given for the parent's calls.
    """
    return ApprovalsState(version=version)


def find(state: ApprovalsState, approval: str) -> Approval:
    """Return a request by id. Raises Refused."""
    try:
        return state.requests[approval]
    except KeyError:
        message = f"there is no approval {approval!r} in this run: see 'hansard approvals'"
        raise Refused(message) from None


def decide(state: ApprovalsState, command: ApprovalEvent, now: int) -> Sequence[ApprovalEvent]:
    """Return the events of a command at a log time in ns; none where it changes nothing, or where
    the same request is pending. Raises Refused, BadName, BadValue.
    """
    match command:
        case ApprovalRequested():
            return _request(state, command, now)
        case ApprovalGranted() | ApprovalDenied():
            return _answer(state, command, now)
        case ApprovalExpired():
            holds = find(state, command.approval).given is ApprovalStatus.PENDING
            return (command,) if holds else ()
        case _:
            assert_never(command)


def _request(
    state: ApprovalsState, command: ApprovalRequested, now: int
) -> Sequence[ApprovalEvent]:
    if not TIMEOUT_MS_MIN <= command.timeout_ms <= TIMEOUT_MS_MAX:
        remedy = f"give {TIMEOUT_MS_MIN / 1_000:g} s to {TIMEOUT_MS_MAX / 1_000:,.0f} s"
        raise BadValue("timeout of an approval", f"{command.timeout_ms / 1_000:g} s", remedy)
    if len(state.requests) >= REQUESTS_MAX:
        fact = f"the run already requested {REQUESTS_MAX:,}"
        raise BadValue("approvals", fact, "begin another run, or allow more calls")
    if command.approval in state.requests:
        return ()
    same = same_call(state, command.agent, command.call, command.fingerprint)
    pending = any(each.standing(now) is ApprovalStatus.PENDING for each in same)
    return () if pending else (command,)


def _answer(state: ApprovalsState, command: Answer, now: int) -> Sequence[ApprovalEvent]:
    ids.name("by", command.by)
    values.demand_text(command.because, "reason")
    request = find(state, command.approval)
    if command.by == request.request.agent:
        message = (
            f"approval {request.id} was requested by agent {command.by!r}, who may not answer it: "
            "let another person answer"
        )
        raise Refused(message)
    status = (
        ApprovalStatus.GRANTED if isinstance(command, ApprovalGranted) else ApprovalStatus.DENIED
    )
    current = request.standing(now)
    if current is ApprovalStatus.PENDING:
        return (command,)
    if current is status and (request.by, request.because) == (command.by, command.because):
        return ()
    by = f" by {request.by!r}" if request.by else ""
    message = f"approval {request.id} is {current.value}{by} already: it is answered once"
    raise Refused(message)


def same_call(state: ApprovalsState, agent: str, call: str, fingerprint: str) -> list[Approval]:
    """Return the requests about one call of an agent, in order."""
    return [
        each
        for each in state.requests.values()
        if (each.request.agent, each.request.call, each.request.fingerprint)
        == (agent, call, fingerprint)
    ]


def usable(step: Step | None, approval: str) -> bool:
    """Return whether a grant may still let a call run; `step` is the call's step (None: it has none
    yet).

    The intent of an attempt uses the grant; it is used up once the call had, or may have had, its
    effect. A call that certainly had none, or was interrupted, may try again under the same grant.
    """
    if step is None or approval not in step.approvals:
        return True
    if approval != step.approvals[-1] or step.status in (StepStatus.COMPLETED, StepStatus.IN_DOUBT):
        return False
    return step.status is not StepStatus.FAILED or step.safe
