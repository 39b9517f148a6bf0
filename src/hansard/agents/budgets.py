"""Budgets counted in the log: one stream a budget, shared by all processes of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from hansard.domain.label import Label

CONFLICTS_MAX = 200
"""Most lost races before giving up: each one lets another agent's call through."""


class LogBudgets:
    """Reserves and corrects in the log."""

    def __init__(self, log: EventLog, states: States, run: str, agent: str, clock: Clock) -> None:
        self.label: Callable[[], Label | None] = lambda: None
        """The agent's label, when it is asked for."""
        self._log = log
        self._states = states
        self._run = run
        self._agent = agent
        self._clock = clock
        self._known: dict[str, BudgetState] = {}

    async def reserve(self, budget: Budget, call: str) -> bool:
        """Set a call's share aside; False where the limit does not allow it."""
        return await self._change(
            budget, lambda state: budgets.reserve(state, call, budget.reserve, budget.limit)
        )

    async def spend(self, budget: Budget, call: str, amount: float) -> None:
        """Replace a call's share by what it took."""
        await self._change(budget, lambda state: budgets.spend(state, call, amount))

    async def _change(
        self, budget: Budget, decide: Callable[[BudgetState], Sequence[Event] | None]
    ) -> bool:
        stream = Board(self._run, f"budget {budget.name}")
        for race in range(CONFLICTS_MAX):
            state = self._known.get(budget.name)
            if state is None:
                commits = [stored.commit for stored in await self._states.commits(stream)]
                state = budgets.fold(BudgetState(), revive_all(commits))
            events = decide(state)
            if not events:
                self._known[budget.name] = state
                return events is not None
            commit = Commit(
                id=self._clock.new_id(),
                version=state.version + 1,
                at=self._clock.now(),
                actor=Actor(self._agent),
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
