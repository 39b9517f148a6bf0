"""Budgets counted in the log: one stream a budget, shared by all processes of a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from hansard.agents.gate import Budget
from hansard.bus.clock import Clock
from hansard.bus.codec import record, revive_all
from hansard.bus.errors import Conflict
from hansard.bus.log import Append, EventLog
from hansard.bus.states import States
from hansard.domain import budget as budgets
from hansard.domain.budget import BudgetState
from hansard.domain.events import Actor, Commit, Event
from hansard.domain.ids import Board
from hansard.domain.label import Label, join

CONFLICTS_MAX = 200
"""Most lost races before giving up: each one lets another agent's call through."""


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
        self._known: dict[str, BudgetState] = {}

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
        stream = Board(self._run, budgets.key_of(budget.name))
        for race in range(CONFLICTS_MAX):
            state = self._known.get(budget.name)
            if state is None:
                commits = [stored.commit for stored in await self._states.commits(stream)]
                if demand is not None:
                    label = join(*(commit.label for commit in commits)).stored
                    await demand(label, f"what is counted on budget {budget.name!r}", budget.name)
                state = budgets.fold(BudgetState(), revive_all(commits))
            events = decide(state)
            if not events:
                self._known[budget.name] = state
                return events is not None
            commit = Commit(
                id=self._clock.new_id(),
                version=state.version + 1,
                at=self._clock.now(),
                actor=self._actor,
                label=self.label(),
                events=tuple(record(event, self._clock.new_id()) for event in events),
            )
            try:
                await self._log.append(Append(stream, commit))
            except Conflict:
                if race == CONFLICTS_MAX - 1:
                    raise
                self._known.pop(budget.name, None)
                continue
            self._known[budget.name] = budgets.fold(state, events)
            return True
        return False
