"""Budgets counted in the log: one stream a budget, shared by all processes of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from hansard.agents.policy.gate import Budget
from hansard.agents.workspace import transact
from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit, revive_all
from hansard.bus.log import Append, EventLog
from hansard.domain import budget as budgets
from hansard.domain.budget import BudgetState
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import KeyStream
from hansard.domain.label import LOWEST, Label
from hansard.state.replay import States

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
            lambda state: budgets.reserve(state, call, budget.reserve, budget.limit),
            self.demand,
        )

    async def spend(self, budget: Budget, call: str, amount: float) -> None:
        """Replace a call's reservation by its actual usage."""
        used = (
            amount if self.demand is None else max(amount, 0.0)
        )  # a negative amount would release others' share
        await self._change(budget, lambda state: budgets.spend(state, call, used))

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
        stream = KeyStream(self._run, budgets.key_of(budget.name))
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
            budgets.evolve(self.state, event)
        return True
