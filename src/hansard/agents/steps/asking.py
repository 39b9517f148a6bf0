"""A session asks for a person's word on a call, and waits for it. See
`hansard.agents.policy.approvals`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import msgspec

from hansard.agents.flow import Flow, Io, Watch
from hansard.agents.policy.approvals import Approvals
from hansard.agents.policy.gate import AskFirst
from hansard.agents.steps import payloads
from hansard.agents.steps.recorder import Call, StepRecorder
from hansard.bus.clock import Clock
from hansard.bus.states.replay import States
from hansard.domain import approval as approvals
from hansard.domain import ids
from hansard.domain.approval import Approval, ApprovalRequested, ApprovalStatus
from hansard.domain.fingerprint import digest
from hansard.domain.values import Plain, recordable

_watcher: ContextVar[Callable[[Approval], None] | None] = ContextVar("watcher", default=None)


@contextlib.contextmanager
def watching_questions(report: Callable[[Approval], None]) -> Iterator[None]:
    """Report each question that calls made in this context wait for, and its answer."""
    token = _watcher.set(report)
    try:
        yield
    finally:
        _watcher.reset(token)


class Basis(msgspec.Struct, frozen=True):
    """What a question is decided by besides the call: `shown` beside its arguments, by name;
    another `mark` is another question.
    """

    mark: str
    shown: dict[str, Plain]


class Asking:
    """A session's questions."""

    def __init__(self, outcomes: StepRecorder, states: States) -> None:
        self._outcomes = outcomes
        self._store = Approvals(states, outcomes.stream.run)
        self._store.label = lambda: outcomes.ledger.label.stored
        self._clock = Clock()

    def obtain(self, call: Call, rule: AskFirst, basis: Basis | None = None) -> Flow[Approval]:
        """Ask about a call, and wait for the answer. A grant goes with the call's intent; another
        attempt of the same call goes by the same grant, on the same basis.
        """
        step = call.step
        if call.number:
            step = self._outcomes.ledger.state.steps.get(call.number)
        usable = functools.partial(approvals.usable, step)
        actor = self._outcomes.ledger.actor
        blobs, wanted = self._question(call, rule, basis)
        yield from self._outcomes.put(blobs)
        found: Approval = yield Io(functools.partial(self._store.ask, wanted, actor, usable))
        report = _watcher.get()
        while found.given is ApprovalStatus.PENDING:
            if report is not None:
                report(found)
            wait = functools.partial(self._store.wait, found.id)
            found = yield Watch(functools.partial(self._outcomes.ledger.watch, wait))
            if found.given is ApprovalStatus.PENDING:
                found = yield Io(functools.partial(self._store.expire, found.id, actor))
        if report is not None:
            report(found)
        if found.given is ApprovalStatus.GRANTED:
            call.approval = found.id
        return found

    def _question(
        self, call: Call, rule: AskFirst, basis: Basis | None
    ) -> tuple[list[bytes], ApprovalRequested]:
        if not call.number:
            call.number = self._outcomes.ledger.next_step()
        shown = basis.shown if basis is not None else {}
        packed = payloads.pack_arguments({**call.plain, **shown})
        fingerprint = call.place.fingerprint
        if basis is not None:
            fingerprint = digest(b"basis", fingerprint.encode(), basis.mark.encode())
        stream = self._outcomes.stream
        return packed.blobs, ApprovalRequested(
            approval=ids.marked(self._clock.new_id(), stream.run),  # `find` goes by it
            agent=stream.agent,
            role=stream.role,
            step=call.number,
            tool=call.spec.name,
            arguments=packed.raw,
            call=call.place.call,
            fingerprint=fingerprint,
            rule=recordable(rule.title(), self._outcomes.settings.scrub),
            timeout_ms=round(rule.timeout_s * 1_000),
        )


def refusal(found: Approval) -> str:
    """Why a call that was asked about does not run."""
    if found.given is ApprovalStatus.DENIED:
        why = f": {found.because}" if found.because else ""
        return f"{found.by!r} denied it (approval {found.id}){why}"
    waited_s = found.asked.timeout_ms / 1_000
    return f"nobody answered within {waited_s:,g} s (approval {found.id}); it is asked again"
