"""Approvals: requested by a session before a call runs (`hansard.agents.steps.gating`), and
answered by another party; budgets, which calls count against; and declassification.

The request is stored before anybody waits for its answer, so a session that is killed and resumed
waits for the same request. Waiting follows the log; expiry is decided by the log's time
(`hansard.domain.approval`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from hansard._version import PROTOCOL_VERSION, SERVER_VERSION
from hansard.agents.access import principals
from hansard.agents.policy import permits
from hansard.agents.policy.gate import Budget
from hansard.agents.policy.permits import trusts
from hansard.agents.workspace import Workspace
from hansard.bus import log
from hansard.bus.clock import OS_USER, Clock
from hansard.bus.commits import new_commit, revive_all
from hansard.bus.errors import NotFound
from hansard.bus.log import Append, EventLog, Stored
from hansard.domain import agent as agents
from hansard.domain import approval as approvals
from hansard.domain import decider, ids
from hansard.domain.agent import Begin
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
    BudgetState,
)
from hansard.domain.board import BoardState, key_name
from hansard.domain.choices import Brief
from hansard.domain.decider import evolve
from hansard.domain.errors import BadName, BadValue, Refused
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import KeyStream
from hansard.domain.label import LOWEST, Label, parse
from hansard.domain.roles.authorize import Trust
from hansard.domain.values import recordable
from hansard.state.replay import RunView, States
from hansard.state.repository import followed, transact

# Budgets counted in the log: one stream a budget, shared by all processes of a run.

TRIES_MAX = 200
"""Largest number of attempts to count; each lost race means that another call was counted."""


Demand = Callable[[Label | None, str, str], Awaitable[None]]
"""Raises Blocked if the agent is not cleared for a label; takes the label, a description of the
labelled data, and the tool that is called."""


class LogBudgets:
    """Reserves and corrects budgets in the log."""

    def __init__(
        self, log: EventLog, states: States, run: str, actor: str | Actor, clock: Clock
    ) -> None:
        self.label: Callable[[], Label | None] = lambda: None
        """Returns the agent's current label."""
        self.demand: Demand | None = None
        """Checked before a reservation by an agent with limited visibility, whose usage counts as
        at least zero. None: the agent sees everything."""
        self._log = log
        self._states = states
        self._run = run
        self._actor = Actor.of(actor)
        self._clock = clock
        self._known: dict[str, _CachedBudget] = {}

    async def reserve(self, budget: Budget, call: str) -> bool:
        """Reserve a call's share; return False if the limit does not allow it. Raises Blocked."""
        return await self._change(
            budget,
            lambda state: approvals.reserve(state, call, budget.reserve, budget.limit),
            self.demand,
        )

    async def spend(self, budget: Budget, call: str, amount: float) -> None:
        """Replace a call's reservation by its actual usage."""
        used = (
            amount if self.demand is None else max(amount, 0.0)
        )  # a negative amount would release others' share
        await self._change(budget, lambda state: approvals.spend(state, call, used))

    async def _change(
        self,
        budget: Budget,
        decide: Callable[[BudgetState], Sequence[Event] | None],
        demand: Demand | None = None,
    ) -> bool:
        """Decide on the known state, and again on the current state if that denies: others may have
        released reservations.
        """
        known = self._known.setdefault(budget.name, _CachedBudget())
        if known.state.version and await self._apply(budget, known, decide, demand, fresh=False):
            return True
        return await self._apply(budget, known, decide, demand, fresh=True)

    async def _apply(
        self,
        budget: Budget,
        known: _CachedBudget,
        decide: Callable[[BudgetState], Sequence[Event] | None],
        demand: Demand | None,
        *,
        fresh: bool,
    ) -> bool:
        """Count something; return False if the limit does not allow it. `fresh`: read before the
        first attempt as well.
        """
        stream = KeyStream(self._run, approvals.key_of(budget.name))
        allowed = False

        async def read() -> BudgetState:
            nonlocal fresh
            if fresh:
                await self._read(stream, known)
            fresh = True
            await self._demand(budget, known, demand)
            return known.state

        def next_append(state: BudgetState) -> Commit | None:
            nonlocal allowed
            events = decide(state)
            allowed = events is not None
            if not events:
                return None
            version = state.version + 1
            return new_commit(self._clock, version, self._actor, events, label=self.label())

        async def append(commit: Commit) -> None:
            await self._log.append(Append(stream, commit))
            known.follow(commit)

        await transact(read, next_append, append, TRIES_MAX)
        return allowed

    async def _read(self, stream: KeyStream, known: _CachedBudget) -> None:
        """Read what was counted since; if nothing is known, read all, including the parents'
        counts.
        """
        if known.state.version:
            commits = await self._log.read(stream, after=known.state.version)
        else:
            commits = await self._states.commits(stream)
        for stored in commits:
            if known.follow(stored.commit):
                known.read_label = known.read_label.join(stored.commit.label)

    async def _demand(self, budget: Budget, known: _CachedBudget, demand: Demand | None) -> None:
        if demand is not None and known.read_label != known.demanded:
            label = known.read_label
            await demand(label.stored, f"what is counted on budget {budget.name!r}", budget.name)
            known.demanded = label


class _CachedBudget(msgspec.Struct):
    """A budget as last read or written here. `read_label` joins the labels of what was read,
    `demanded` is the label that the agent was found cleared for.
    """

    state: BudgetState = msgspec.field(default_factory=BudgetState)
    read_label: Label = LOWEST
    demanded: Label | None = None

    def follow(self, commit: Commit) -> bool:
        """Apply a commit; return False if it was already applied: concurrent calls read the same
        ones.
        """
        if commit.version <= self.state.version:
            return False
        for event in revive_all([commit]):
            evolve(self.state, event)
        return True


STREAMS_MAX = 200
"""Largest number of runs whose requests are read at once."""

PAUSE_S = 0.25
"""Shortest wait for a request's expiry, in seconds. The wait is computed with this process's clock,
which may be ahead of the log's, and the log's time decides."""


def stream_of(run: str) -> KeyStream:
    """Return the stream of a run's approvals."""
    return KeyStream(run, approvals.KEY)


class Approvals:
    """Approval requests of one run, read incrementally. Runs on the bus's loop."""

    def __init__(self, states: States, run: str) -> None:
        self.stream = stream_of(run)
        self._log: EventLog = states.log
        self._states = states
        self._clock = Clock()
        self._known: ApprovalsState | None = None
        self._ahead_ns = 0
        """Lead of the log's clock over this process's at the last own commit, in ns."""
        self.label: Callable[[], Label | None] = lambda: None
        """Returns the writer's current label."""

    async def state(self) -> ApprovalsState:
        """Return the current requests; do not modify them. A fork starts without its parent's."""
        known = self._known
        if known is None:
            forked = await self._states.forked(self.stream.run)
            cut = forked.at.get(str(self.stream), 0) if forked is not None else 0
            known = approvals.initial(cut)
        known = followed(known, await self._log.read(self.stream, after=known.version))
        self._known = known
        return known

    async def log_time(self) -> int:
        """Return the log's time: that of its newest commit, in ns since 1970."""
        return (await self._log.at(await self._log.head())).stamp

    async def record(self, command: ApprovalEvent, actor: str | Actor) -> None:
        """Record a command. Raises Refused, BadValue, and Conflict after 50 lost races."""

        async def read() -> tuple[ApprovalsState, int]:
            return await self.state(), await self.log_time()

        def next_append(current: tuple[ApprovalsState, int]) -> Append | None:
            state, now = current
            events = approvals.decide(state, command, now)
            if not events:
                return None
            version, by = state.version + 1, Actor.of(actor)
            commit = new_commit(self._clock, version, by, events, label=self.label())
            return Append(self.stream, commit)

        if await transact(read, next_append, self._log.append) is not None:
            self._ahead_ns = await self.log_time() - time.time_ns()

    async def ask(
        self, request: ApprovalRequested, actor: Actor, usable: Callable[[str], bool]
    ) -> Approval:
        """Return the call's request that is still valid, and record one if there is none."""
        approval = await self._valid(request, usable)
        if approval is None:
            await self.record(request, actor)
            approval = await self._valid(request, usable)
        if approval is None:  # an older request was answered just now
            message = f"approval of {request.tool}: it was answered meanwhile: try again"
            raise Refused(message)
        return approval

    async def _valid(
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

    def left_s(self, request: Approval) -> float:
        """Return the time until a request expires, by this process's clock, in seconds."""
        return (request.expires - time.time_ns() - self._ahead_ns) / 1e9

    async def wait(self, approval: str, most_s: float) -> Approval:
        """Follow the run's requests until this one is answered or has probably expired, for this
        time at most.
        """

        async def look() -> str | None:
            current = approvals.find(await self.state(), approval).given
            return None if current is ApprovalStatus.PENDING else log.READY

        request = approvals.find(await self.state(), approval)
        left_s = min(most_s, max(PAUSE_S, self.left_s(request)))
        await log.until(self._log, look, lambda _: True, left_s, of=self.stream)
        return approvals.find(await self.state(), approval)

    async def expire(self, approval: str, actor: Actor) -> Approval:
        """Record the expiry of a request; an answer that was stored before it prevails."""
        await self.record(ApprovalExpired(approval=approval), actor)
        return approvals.find(await self.state(), approval)


class ListedApproval(Brief, msgspec.Struct, frozen=True):
    """An approval request of a workspace, with its run and status at the time of the reading.

    Attributes:
        run: The run's id.
        approval: The request, and its answer.
        standing: Its status: pending, granted, denied or expired.
    """

    run: str
    approval: Approval
    standing: ApprovalStatus


async def listed(workspace: Workspace, runs: Iterable[str] | None = None) -> list[ListedApproval]:
    """Return the requests of all runs, or of some runs, oldest first.

    One is expired by the clock of the reading or by the log's, as for an answer that is given now:
    the log's does not advance while nobody writes.
    """
    targets = sorted(await workspace.log.runs(approvals.KEY) if runs is None else runs)
    head = await workspace.log.head()
    stamp = (await workspace.log.at(head)).stamp if head else 0
    now = max(stamp, int(workspace.clock.now().timestamp() * 1e9))
    requests: list[ListedApproval] = []
    for begin in range(0, len(targets), STREAMS_MAX):
        streams = [stream_of(run) for run in targets[begin : begin + STREAMS_MAX]]
        commits: dict[str, list[Stored]] = {}
        for stored in await workspace.log.read_streams(streams):
            if isinstance(stored.stream, KeyStream):
                commits.setdefault(stored.stream.run, []).append(stored)
        for run, own in commits.items():
            state = followed(approvals.initial(), own)
            requests += [
                ListedApproval(run, each, each.standing(now)) for each in state.requests.values()
            ]
    return sorted(requests, key=lambda each: (each.approval.requested_at, each.run))


async def find(workspace: Workspace, approval: str) -> ListedApproval:
    """Find a request by its id, which identifies its run, or a unique prefix, for which all are
    read.

    Raises NotFound, BadName.
    """
    runs = await workspace.log.runs(approvals.KEY)
    if len(approval) == ids.ID_CHARACTERS:
        runs = [run for run in runs if ids.is_marked(approval, run)]
    requests = await listed(workspace, runs) if runs else []
    matches = [each for each in requests if each.approval.id.startswith(approval)]
    if not approval or not matches:
        raise NotFound(f"approval {approval!r:.80}", "see 'hansard approvals --all'")
    if len(matches) > 1:
        known = ", ".join(each.approval.id for each in matches[:2])
        raise BadName(
            "approval", approval, f"give more characters of one of {len(matches)}: {known}"
        )
    return matches[0]


async def answer(
    workspace: Workspace,
    approval: str,
    *,
    granted: bool,
    by: str | Actor = OS_USER,
    reason: str = "",
    role: str | None = None,
) -> Approval:
    """Grant or deny a request; return it with the answer.

    by: The approver: neither the requesting agent, nor anyone acting for it. A `role` must have
    `approve`, and so must the role of another agent of the run, if defined; a refusal is recorded.

    Raises Refused (already answered or expired), NotFound, RoleRefused, BadName.
    """
    actor = Actor.of(by)
    by = ids.name("by", actor.agent)
    reason = workspace.text(reason)
    request = await find(workspace, approval)
    approval = request.approval.id
    asker = request.approval.request.agent
    if asker != by and asker in actor.on_behalf_of:
        message = (
            f"approval {approval} was requested by agent {asker!r}, for whom {by!r} acts: "
            "another approver must answer it"
        )
        raise Refused(message)
    life = await workspace.states.life(request.run)
    acting = role if role is not None else life.roster.get(by)
    if acting is not None and by != asker:
        permit = await permits.read(workspace, acting, restricted=role is not None)
        await permits.demand(workspace, permit, trusts(Trust.APPROVE, approval), actor)
    kind: type[Answer] = ApprovalGranted if granted else ApprovalDenied
    store = Approvals(workspace.states, request.run)
    await store.record(kind(approval=approval, by=by, because=reason), actor)
    current = approvals.find(await store.state(), approval)
    status = ApprovalStatus.GRANTED if granted else ApprovalStatus.DENIED
    if current.given is not status:  # stored after its expiry, or after another answer
        message = f"approval {approval} is {current.standing(await store.log_time()).value} already"
        raise Refused(message)
    return current


# Declassification: lowering the label of an agent, a key, or a principal, recorded with its
# approver.
#
# Any process may do it in a name; a role that is given needs the permission to approve. Events
# recorded before keep their labels.


class Lowering(msgspec.Struct, frozen=True, kw_only=True):
    """Request to lower the label of an agent or key of a run, or of a principal: the new label
    (such as `untrusted`; by default public and trusted), the approver, the reason, and the role
    that the approver acts in, if any.
    """

    agent: str | None = None
    key: str | None = None
    principal: str | None = None
    to: str = ""
    approver: str
    because: str
    role: str | None = None


_Lowered = tuple[Label, Append]
"""The previous label, and the commit that lowers it."""


async def declassify(workspace: Workspace, run: str | None, request: Lowering) -> Label:
    """Lower the label of an agent, a key or a principal; return the previous label.

    Lowering an agent's label takes its next epoch, which fences a session still at work; lowering a
    principal's ends its sessions. Both may hold data that was not yet recorded.

    Raises Refused if the label would not be lowered, RoleRefused if the role may not approve,
    NotFound, BadName, BadValue, and Conflict after 50 lost races.
    """
    _check(run, request)
    approver = ids.name("approver", request.approver)
    target = parse(request.to, "to")
    if not recordable(request.because, None).strip():
        raise BadValue("reason", "it is empty", "give the reason for lowering the label")
    because = workspace.text(request.because)
    if request.role is not None:
        permit = await permits.read(workspace, request.role, restricted=True)
        permit.demand(permits.trusts(Trust.APPROVE, "declassify"))
    if request.principal is not None:
        return await principals.lower(workspace, request.principal, target, approver, because)
    run = run or ""

    def of_agent(view: RunView) -> _Lowered:
        state = view.agent(str(request.agent))
        before = parse(state.label)
        event = decider.lowered(before, target, approver, because)
        begin = Begin(
            state.agent, state.role, SERVER_VERSION, PROTOCOL_VERSION, purpose="declassify"
        )
        events = [*agents.decide(state, begin), event]
        commit = workspace.commit(
            state.version + 1, approver, events, state.epoch + 1, target.stored
        )
        return before, Append(view.stream_of(state.agent), commit)

    def of_key(state: BoardState) -> _Lowered:
        if not state.version:
            remedy = f"see 'hansard board {run}'"
            raise NotFound(f"key {request.key!r:.200} of run {run}", remedy)
        before = state.label or LOWEST
        event = decider.lowered(before, target, approver, because)
        commit = workspace.commit(state.version + 1, approver, [event], label=target.stored)
        return before, Append(stream, commit)

    async def append(lowered: _Lowered) -> Label:
        before, command = lowered
        await workspace.log.append(command)
        return before

    if request.agent is not None:
        view = functools.partial(workspace.points.view, run)
        was = await transact(view, of_agent, append)
    else:
        stream = KeyStream(run, key_name(request.key))
        was = await transact(functools.partial(workspace.boards.state, stream), of_key, append)
    return was or LOWEST


def _check(run: str | None, request: Lowering) -> None:
    """Raise BadValue unless exactly one target is named, with a run for an agent or a key."""
    targets = {kind: getattr(request, kind) for kind in ("agent", "key", "principal")}
    if sum(name is not None for name in targets.values()) != 1:
        fact = ", ".join(f"{kind}={name!r:.80}" for kind, name in targets.items())
        raise BadValue("declassify", fact, "give exactly one of agent, key and principal")
    if (run is None) != (request.principal is not None):
        remedy = "give run= for an agent or a key, and leave it out for a principal"
        raise BadValue("declassify", f"run={run!r:.80}", remedy)
