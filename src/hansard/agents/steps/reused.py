"""Calls answered by outcomes of earlier runs, and offers of outcomes to later ones.

All checks of a call that runs are made before: permit, labels, rules, approvals, budgets. A call
whose answer cannot be used, for any reason, runs without notice: a role gets no hint of what it may
not see. If two runs reach a key at the same time, both run, and one of them offers its answer.

A kill before the outcome is stored leaves the call unanswered; a kill between an outcome and its
offer leaves it recorded but not offered, and later runs run the call again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import msgspec

from hansard.agents.flow import Flow, Io
from hansard.agents.policy.permits import states
from hansard.agents.steps import payloads
from hansard.agents.steps.conversions import from_plain
from hansard.agents.steps.gating import Gated
from hansard.agents.steps.recorder import Call
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive, revive_all
from hansard.bus.errors import Conflict, NotFound
from hansard.bus.log import Append, Stored
from hansard.domain import reuse
from hansard.domain.agent import AgentState
from hansard.domain.decider import fold
from hansard.domain.errors import RecordError
from hansard.domain.events import Actor
from hansard.domain.fingerprint import canonical, digest
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.label import Label
from hansard.domain.reuse import AnswerOffered, AnswersInvalidated, Reuse, ReuseScope, Stale
from hansard.domain.roles.view import facts, judge, shows_whole
from hansard.domain.steps import AnswerSource, Effects, Step, StepCompleted, StepStatus

SECRET = b'"$secret"'
"""Mark of a secret. In an argument, its value is not part of the key; in an answer, the value is
not the one that was returned."""

NS = 1_000_000_000


class Answer(msgspec.Struct):
    """A reusable answer: as plain values, as the program receives it, and its source."""

    plain: Any
    value: Any
    source: AnswerSource
    label: Label | None


class Lookup(msgspec.Struct):
    """Lookup result of a key: the version of its newest offer, and of the stale marks."""

    key: str
    workflow: str
    version: int
    stale: int
    answer: Answer | None = None


class _Source(msgspec.Struct):
    """An offered step as recorded."""

    state: AgentState
    step: Step
    stored: Stored
    event: str
    labels: dict[str, str]


class Reuser:
    """The part of a session's steps that looks up answers of earlier runs."""

    def __init__(self, gated: Gated, workspace: Workspace) -> None:
        self._gated = gated
        self._workspace = workspace
        self._workflow: str | None = None
        self._stale = Stale()

    def look(self, call: Call, request: Reuse) -> Flow[Lookup | None]:
        """Look up a call, with its answer if it may be used. Return None if no run may use one: the
        call has a secret argument, which the key does not distinguish.

        Costs two small concurrent requests, and for a used answer the read of its step.
        """
        if SECRET in call.canonical:
            return None
        lookup: Lookup
        newest: Stored | None
        lookup, newest = yield Io(functools.partial(self._look, call, request))
        if newest is not None:
            lookup.answer = yield from self._answer(call, request, lookup, newest)
        return lookup

    async def _look(self, call: Call, request: Reuse) -> tuple[Lookup, Stored | None]:
        workflow = await self._of_workflow() if request.scope is ReuseScope.WORKFLOW else ""
        key = reuse.key_of(call.spec.name, call.spec.version, workflow, call.canonical)
        log = self._workspace.log
        newest, stale = await asyncio.gather(
            log.last(WorkspaceStream(reuse.KIND, key)), log.last(reuse.STALE)
        )
        known = self._stale
        if stale is not None and stale.commit.last_version > known.version:
            news = await log.read(reuse.STALE, after=known.version)
            with contextlib.suppress(RecordError):  # from a newer version: then all may be stale
                known = fold(known, revive_all(stored.commit for stored in news))
            if known.version > self._stale.version:
                self._stale = known
        version = newest.commit.last_version if newest is not None else 0
        lookup = Lookup(key, workflow, version, known.version)
        whole = stale is None or stale.commit.last_version <= known.version
        return lookup, newest if whole else None

    async def _of_workflow(self) -> str:
        if self._workflow is None:
            life = await self._workspace.states.life(self._gated.stream.run)
            self._workflow = life.workflow
        return self._workflow

    def _answer(
        self, call: Call, request: Reuse, lookup: Lookup, newest: Stored
    ) -> Flow[Answer | None]:
        """Return the newest offered answer, if it may be used."""
        try:
            offered = revive(newest.commit.events[-1])
        except RecordError:  # from a newer version
            return None
        if not isinstance(offered, AnswerOffered) or not self._is_of(call, lookup, offered):
            return None
        if not self._is_fresh(newest, request):
            return None
        step_source: _Source | None = yield Io(functools.partial(self._source, call, offered))
        if step_source is None or not self._is_fresh(step_source.stored, request):
            return None
        label = step_source.stored.commit.label
        if not (yield Io(functools.partial(self._may_see, step_source, offered))):
            return None
        try:
            reader = payloads.Reader(lambda: step_source.state)
            arguments = yield from self._gated.outcomes.fetch(reader.arguments(step_source.step))
            plain = yield from self._gated.outcomes.fetch(reader.result(step_source.step))
        except (NotFound, RecordError):  # a blob was erased or is damaged
            return None
        text = canonical(plain)
        if canonical(arguments) != call.canonical or digest(text) != step_source.step.digest:
            return None
        if SECRET in text:
            return None
        try:
            value = from_plain(plain, call.spec.returns)
        except Exception:  # noqa: BLE001 -- one of the program's classes has changed
            return None
        source = AnswerSource(
            run=offered.run,
            agent=offered.agent,
            step=offered.step,
            event=step_source.event,
            key=lookup.key,
        )
        return Answer(plain, value, source, label)

    def _is_of(self, call: Call, lookup: Lookup, offered: AnswerOffered) -> bool:
        """Return whether an offer is for this call: from an earlier run, not stale, and by the same
        source if both are known.
        """
        sources = {offered.source, call.spec.source} - {""}
        return (
            (offered.key, offered.tool) == (lookup.key, call.spec.name)
            and offered.run != self._gated.stream.run
            and self._stale.holds(offered)
            and len(sources) <= 1
        )

    def _is_fresh(self, stored: Stored, request: Reuse) -> bool:
        """Return whether an answer is recent enough: its log time against this machine's clock."""
        now = self._workspace.clock.now().timestamp()
        return now - stored.stamp / NS <= request.ttl_s

    async def _source(self, call: Call, offered: AnswerOffered) -> _Source | None:
        """Return the step that an offer names, if it is recorded as offered."""
        stream = AgentStream(offered.run, offered.role, offered.agent)
        workspace = self._workspace
        try:
            state = await workspace.states.agent(stream, offered.outcome)
            position = await workspace.states.position_of(stream, offered.outcome)
            life = await workspace.states.life(offered.run)
            stored = await workspace.log.at(position) if position is not None else None
        except (NotFound, RecordError):
            return None
        step = state.steps.get(offered.step)
        if step is None or stored is None or stored.stream != stream:
            return None
        if not is_answer(step, offered.outcome) or step.tool != call.spec.name:
            return None
        index = offered.outcome - stored.commit.version
        recorded = stored.commit.events[index : index + 1]
        if not recorded or recorded[0].type != StepCompleted.tag:
            return None
        return _Source(state, step, stored, recorded[0].id, dict(life.labels))

    async def _may_see(self, source: _Source, offered: AnswerOffered) -> bool:
        """Return whether the session's role is cleared for an answer, and sees all of it."""
        commit = source.stored.commit
        cleared = await self._gated.clearances.own()
        if commit.label is not None and not commit.label.flows_to(cleared):
            return False
        permit = self._gated.settings.permit
        if not permit.is_limited:
            return True
        judged = facts(
            StepCompleted.tag,
            source.stored.stream,
            commit.actor.agent,
            {offered.agent: offered.role},
            source.labels,
            label=commit.label,
        )
        return shows_whole(judge(permit.rules, judged), "result")

    def offer(self, call: Call, lookup: Lookup) -> Flow[None]:
        """Offer the answer of a call that ran to later runs, if the role may. If another run has
        offered one since the lookup, this one is not needed.
        """
        step = self._gated.ledger.state.steps[call.number]
        version = step.outcome_version
        if version is None or not is_answer(step, version):
            return
        if not self._gated.settings.permit.ask(states(AnswerOffered.tag)).allowed:
            return
        stream = self._gated.stream
        event = AnswerOffered(
            key=lookup.key,
            tool=call.spec.name,
            version=call.spec.version,
            workflow=lookup.workflow,
            run=stream.run,
            role=stream.role,
            agent=stream.agent,
            step=call.number,
            outcome=version,
            digest=step.digest,
            source=call.spec.source,
            stale=lookup.stale,
        )
        yield Io(functools.partial(self._offer, event, lookup.version + 1))

    async def _offer(self, event: AnswerOffered, version: int) -> None:
        ledger = self._gated.ledger
        stream = WorkspaceStream(reuse.KIND, event.key)
        commit = self._workspace.commit(version, ledger.actor, [event], label=ledger.label.stored)
        try:
            await self._workspace.log.append(Append(stream, commit))
        except Conflict:
            return


def is_answer(step: Step, outcome: int) -> bool:
    """Return whether a step's outcome at this version of its stream is an answer that others may
    use: it ran there, and its own result was recorded.
    """
    return (
        step.status is StepStatus.COMPLETED
        and step.outcome_version == outcome
        and step.effects in (Effects.PURE, Effects.IDEMPOTENT)
        and step.verdict is None
        and step.reused is None
        and step.reused_from is None
        and not step.streamed
    )


async def invalidate(workspace: Workspace, change: AnswersInvalidated, *, by: str | Actor) -> None:
    """Declare the answers of a tool, a run or a key stale: those recorded, and those of calls in
    progress. Raises BadValue, BadName, Conflict after 50 lost races.
    """
    event = msgspec.structs.replace(change, because=workspace.text(change.because))
    await workspace.repository.record(reuse.STALE, by, lambda _: reuse.decide(event))
