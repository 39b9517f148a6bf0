"""Budgets counted in the log: one stream a budget, shared by all processes of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from hansard.agents.policy.gate import Budget
from hansard.agents.transact import transact
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
"""Most tries to count something: each one that is lost lets another agent's call through."""


Demand = Callable[[Label | None, str, str], Awaitable[None]]
"""Raises Blocked where an agent may not be told of what is labelled so: the label, what it is, and
the tool that is called.
"""


class LogBudgets:
    """Reserves and corrects in the log."""

    def __init__(
        self, log: EventLog, states: States, run: str, actor: str | Actor, clock: Clock
    ) -> None:
        self.label: Callable[[], Label | None] = lambda: None
        """The agent's label, when it is asked for."""
        self.demand: Demand | None = None
        """Asked before a share is set aside, of an agent that is told only what its role may see;
        what such an agent uses is at least nothing. None: it may be told all.
        """
        self._log = log
        self._states = states
        self._run = run
        self._actor = Actor.of(actor)
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def reserve(self, budget: Budget, call: str) -> bool:
        """Set a call's share aside; False where the limit does not allow it. Raises Blocked."""
        return await self._change(
            budget,
            lambda state: budgets.reserve(state, call, budget.reserve, budget.limit),
            self.demand,
        )

    async def spend(self, budget: Budget, call: str, amount: float) -> None:
        """Replace a call's share by what it took."""
        used = amount if self.demand is None else max(amount, 0.0)  # it gives others no room
        await self._change(budget, lambda state: budgets.spend(state, call, used))

    async def _change(
        self,
        budget: Budget,
        decide: Callable[[BudgetState], Sequence[Event] | None],
        demand: Demand | None = None,
    ) -> bool:
        """By what is known, as long as that allows it: others may have given back since."""
        known = self._known.setdefault(budget.name, _Known())
        if known.state.version and await self._tell(budget, known, decide, demand, fresh=False):
            return True
        return await self._tell(budget, known, decide, demand, fresh=True)

    async def _tell(
        self,
        budget: Budget,
        known: _Known,
        decide: Callable[[BudgetState], Sequence[Event] | None],
        demand: Demand | None,
        *,
        fresh: bool,
    ) -> bool:
        """Count something; False where the limit does not allow it. `fresh`: read before the first
        try, too.
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

    async def _read(self, stream: KeyStream, known: _Known) -> None:
        """Take in what was counted since; all of it, parents' too, where nothing is known."""
        if known.state.version:
            found = await self._log.read(stream, after=known.state.version)
        else:
            found = await self._states.commits(stream)
        for stored in found:
            if known.follow(stored.commit):
                known.told = known.told.join(stored.commit.label)

    async def _demand(self, budget: Budget, known: _Known, demand: Demand | None) -> None:
        if demand is not None and known.told != known.demanded:
            label = known.told
            await demand(label.stored, f"what is counted on budget {budget.name!r}", budget.name)
            known.demanded = label


class _Known(msgspec.Struct):
    """A budget as it was last read or written here; `told` is the label of what was read,
    `demanded` that which the agent was found cleared for.
    """

    state: BudgetState = msgspec.field(default_factory=BudgetState)
    told: Label = LOWEST
    demanded: Label | None = None

    def follow(self, commit: Commit) -> bool:
        """Count a commit; False where it is counted: calls side by side read the same ones."""
        if commit.version <= self.state.version:
            return False
        for event in revive_all([commit]):
            budgets.evolve(self.state, event)
        return True
