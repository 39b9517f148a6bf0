"""Approvals at work: asked by a session before a call runs (`hansard.agents.steps.gating`), and
answered by anybody else.

The question stands in the log before anybody waits for its answer, so a session that is killed and
resumed waits for the same one. What is waited for is followed in the log; when the time is up is
decided by the log's time (`hansard.domain.approval`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec

from hansard.agents.policy import permits
from hansard.agents.policy import permits as refusals
from hansard.agents.policy.permits import trusts
from hansard.agents.transact import transact
from hansard.agents.workspace import Workspace
from hansard.bus import waiting
from hansard.bus.clock import OS_USER, Clock
from hansard.bus.commits import new_commit, revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Append, EventLog, Stored
from hansard.domain import approval as approvals
from hansard.domain import ids
from hansard.domain.approval import (
    Answer,
    Approval,
    ApprovalDenied,
    ApprovalEvent,
    ApprovalExpired,
    ApprovalGranted,
    ApprovalRequested,
    ApprovalsState,
    ApprovalStatus,
)
from hansard.domain.board import By
from hansard.domain.choices import Brief
from hansard.domain.errors import Refused
from hansard.domain.events import Actor
from hansard.domain.ids import KeyStream
from hansard.domain.label import Label
from hansard.domain.roles.authorize import Trust
from hansard.state.replay import States

STREAMS_MAX = 200
"""Runs whose questions are read in one request."""

PAUSE_S = 0.25
"""Shortest wait for an answer's time to be up, in seconds: this process's clock, by which that
moment is guessed, may be ahead of the log's, by which it is decided.
"""


def stream_of(run: str) -> KeyStream:
    """The stream of a run's approvals."""
    return KeyStream(run, approvals.KEY)


class Approvals:
    """The questions of one run, read on from what was read last. On the bus's loop."""

    def __init__(self, states: States, run: str) -> None:
        self.stream = stream_of(run)
        self._log: EventLog = states.log
        self._states = states
        self._clock = Clock()
        self._known: ApprovalsState | None = None
        self._ahead_ns = 0
        """How far the log's clock was ahead of this process's at the last own commit."""
        self.label: Callable[[], Label | None] = lambda: None
        """The label of who writes here, when it is asked for."""

    async def state(self) -> ApprovalsState:
        """They as they stand; not to be changed. A fork begins with none of its parent's."""
        known = self._known
        if known is None:
            forked = await self._states.forked(self.stream.run)
            cut = forked.at.get(str(self.stream), 0) if forked is not None else 0
            known = approvals.initial(cut)
        commits = await self._log.read(self.stream, after=known.version)
        if commits:
            known = folded(known, commits)
        self._known = known
        return known

    async def log_time(self) -> int:
        """The log's time now: that of its newest commit, in ns since 1970."""
        return (await self._log.at(await self._log.head())).stamp

    async def record(self, command: ApprovalEvent, actor: str | Actor) -> None:
        """State something. Raises Refused, BadValue, and Conflict after 50 lost races."""

        async def read() -> tuple[ApprovalsState, int]:
            return await self.state(), await self.log_time()

        def next_append(found: tuple[ApprovalsState, int]) -> Append | None:
            state, now = found
            events = approvals.decide(state, command, now)
            if not events:
                return None
            version, by = state.version + 1, Actor.of(actor)
            commit = new_commit(self._clock, version, by, events, label=self.label())
            return Append(self.stream, commit)

        if await transact(read, next_append, self._log.append) is not None:
            self._ahead_ns = await self.log_time() - time.time_ns()

    async def ask(
        self, wanted: ApprovalRequested, actor: Actor, usable: Callable[[str], bool]
    ) -> Approval:
        """The question about a call that still counts, asked now if there is none."""
        found = await self._asked(wanted, usable)
        if found is None:
            await self.record(wanted, actor)
            found = await self._asked(wanted, usable)
        if found is None:  # what was asked long ago and had its answer a moment ago
            message = f"approval of {wanted.tool}: it was asked and answered meanwhile: try again"
            raise Refused(message)
        return found

    async def _asked(
        self, command: ApprovalRequested, usable: Callable[[str], bool]
    ) -> Approval | None:
        same = approvals.same_call(
            await self.state(), command.agent, command.call, command.fingerprint
        )
        now = await self.log_time()
        counts = [
            each
            for each in same
            if each.standing(now) is not ApprovalStatus.EXPIRED and usable(each.id)
        ]
        return counts[-1] if counts else None

    async def wait(self, approval: str) -> Approval:
        """Follow the run's questions until one is answered, or its time seems to be up."""

        async def look() -> str | None:
            current = approvals.find(await self.state(), approval).given
            return None if current is ApprovalStatus.PENDING else waiting.READY

        found = approvals.find(await self.state(), approval)
        left_s = max(PAUSE_S, (found.expires - time.time_ns() - self._ahead_ns) / 1e9)
        await waiting.until(self._log, look, lambda _: True, left_s, of=self.stream)
        return approvals.find(await self.state(), approval)

    async def expire(self, approval: str, actor: Actor) -> Approval:
        """Say that nobody answered in time; where an answer came after all, that stands."""
        await self.record(ApprovalExpired(approval=approval), actor)
        return approvals.find(await self.state(), approval)


def folded(state: ApprovalsState, commits: Iterable[Stored]) -> ApprovalsState:
    """The questions after more commits of their stream."""
    state = state.copy()
    for stored in commits:
        for recorded in stored.commit.events:
            by = By(stored.commit.actor.agent, stored.stamp, recorded.id, stored.commit.label)
            approvals.evolve(state, revive(recorded), by)
    return state


class ListedApproval(Brief, msgspec.Struct, frozen=True):
    """A question of a workspace: of which run, and where it stands at the log's time now.

    Attributes:
        run: The run's id.
        approval: The question, and what was answered.
        standing: Where it stands: pending, granted, denied or expired.
    """

    run: str
    approval: Approval
    standing: ApprovalStatus


async def listed(workspace: Workspace, runs: Iterable[str] | None = None) -> list[ListedApproval]:
    """The questions of all runs that ever asked, or of some runs, the oldest first."""
    targets = sorted(await workspace.log.runs(approvals.KEY) if runs is None else runs)
    head = await workspace.log.head()
    now = (await workspace.log.at(head)).stamp if head else 0
    found: list[ListedApproval] = []
    for begin in range(0, len(targets), STREAMS_MAX):
        streams = [stream_of(run) for run in targets[begin : begin + STREAMS_MAX]]
        commits: dict[str, list[Stored]] = {}
        for stored in await workspace.log.read_streams(streams):
            if isinstance(stored.stream, KeyStream):
                commits.setdefault(stored.stream.run, []).append(stored)
        for run, own in commits.items():
            state = folded(approvals.initial(), own)
            found += [
                ListedApproval(run, each, each.standing(now)) for each in state.requests.values()
            ]
    return sorted(found, key=lambda each: (each.approval.asked_at, each.run))


async def find(workspace: Workspace, approval: str) -> ListedApproval:
    """Find a question by its id, which tells its run. Raises NotFound."""
    runs = [run for run in await workspace.log.runs(approvals.KEY) if ids.is_marked(approval, run)]
    for each in await listed(workspace, runs) if runs else []:
        if each.approval.id == approval:
            return each
    raise NotFound(f"approval {approval!r:.80}", "see 'hansard approvals'")


async def answer(
    workspace: Workspace,
    approval: str,
    *,
    granted: bool,
    by: str | Actor = OS_USER,
    because: str = "",
    role: str | None = None,
) -> Approval:
    """Grant or deny what an agent asks; the question as it then stands.

    by: who says so, not the agent that asked, nor who acts for it. Where it is another agent of
    the run, or `role` is given and defined, that role must have `approve`; that it has not is on
    record.
    Raises Refused (it is answered already, or its time is up), NotFound, RoleRefused, BadName.
    """
    actor = Actor.of(by)
    by = ids.name("by", actor.agent)
    because = workspace.text(because)
    found = await find(workspace, approval)
    asker = found.approval.asked.agent
    if asker != by and asker in actor.on_behalf_of:
        message = (
            f"approval {approval} was asked for by agent {asker!r}, for whom {by!r} acts: "
            "let somebody else answer it"
        )
        raise Refused(message)
    life = await workspace.states.life(found.run)
    role = role if role is not None else life.roster.get(by)
    if role is not None and by != asker:
        permit = await permits.read(workspace, role)
        await refusals.demand(workspace, permit, trusts(Trust.APPROVE, approval), actor)
    kind: type[Answer] = ApprovalGranted if granted else ApprovalDenied
    store = Approvals(workspace.states, found.run)
    await store.record(kind(approval=approval, by=by, because=because), actor)
    current = approvals.find(await store.state(), approval)
    given = ApprovalStatus.GRANTED if granted else ApprovalStatus.DENIED
    if current.given is not given:  # it was stored after its time
        message = f"approval {approval} is {current.standing(await store.log_time()).value} already"
        raise Refused(message)
    return current
