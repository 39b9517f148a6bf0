"""What a call must pass before it runs: the role's permit, the gate's rules, a person, the budgets.

A refusal is on record before it is raised; nothing of what was refused is.
"""

from __future__ import annotations

import functools
from typing import NoReturn

from hansard.agents import clearances
from hansard.agents import gate as gates
from hansard.agents.approvals import Asking, refusal
from hansard.agents.board_store import Boards
from hansard.agents.carried import Carried
from hansard.agents.errors import Blocked
from hansard.agents.failures import recordable
from hansard.agents.flow import Flow, Io
from hansard.agents.ledger import is_final
from hansard.agents.outcomes import Call, Outcomes
from hansard.agents.permits import TOOL, Need, refused
from hansard.agents.scope import Scope
from hansard.domain.agent import Tell
from hansard.domain.steps import StepBlocked


class Gated:
    """The part of a session's steps that lets calls through, or not."""

    def __init__(self, outcomes: Outcomes, budgets: gates.Budgets, boards: Boards) -> None:
        self.outcomes = outcomes
        self.ledger = outcomes.ledger
        self.settings = outcomes.settings
        self.stream = outcomes.stream
        self.boards = boards
        self.clearances = clearances.Clearances(boards.states, outcomes.stream)
        self.carried: Carried | None = None
        """What the principal carries whose session this is; None of a trusted program."""
        self._budgets = budgets
        self._asking = Asking(outcomes, boards.states)

    @property
    def asks_anything(self) -> bool:
        """Whether a call must be asked about at all."""
        return bool(self.settings.rules) or self.settings.permit.enforced

    def gate(self, call: Call) -> Flow[list[gates.Budget]]:
        """Pass the gate, or record the refusal and raise Blocked. Returns the budgets held."""
        asked, verdict = yield from self.ask_rules(call)
        yield from clearances.demand_taken(self, call)
        if verdict.asks is not None and call.approval is None:
            yield from self._ask_first(call, verdict.asks)
        held: list[gates.Budget] = []
        for rule in self.settings.rules:
            if isinstance(rule, gates.Budget) and rule.matches(asked):
                name, granted = self.budget_call(call), False
                try:
                    granted = yield Io(functools.partial(self._budgets.reserve, rule, name))
                except Blocked as error:
                    yield from self.release(call, held)
                    yield from self.blocked(call, error.rule, error.reason)
                if not granted:
                    yield from self.release(call, held)
                    reason = f"its limit of {rule.limit:g} {rule.unit} is used up"
                    yield from self.blocked(call, rule.name, reason)
                held.append(rule)
        return held

    def ask_rules(self, call: Call) -> Flow[tuple[gates.GateCall, gates.Verdict]]:
        """Pass the permit and the rules; nobody is asked, and budgets are not counted."""
        yield from self.permitted(call)
        asked = gates.GateCall(
            call.spec.name,
            call.arguments,
            self.stream.run,
            self.stream.agent,
            self.stream.role,
            call.effects.value,
        )
        verdict = gates.ask(self.settings.rules, asked)
        if not verdict.allowed:
            yield from self.blocked(call, verdict.rule, verdict.reason)
        return asked, verdict

    def _ask_first(self, call: Call, rule: gates.AskFirst) -> Flow[None]:
        """Wait until somebody has granted a call."""
        found = yield from clearances.told_answer(
            self, (yield from self._asking.obtain(call, rule))
        )
        if call.approval is None:
            yield from self.blocked(call, rule.title(), refusal(found))

    def permitted(self, call: Call) -> Flow[None]:
        """Pass the role's permit: a refused call is a step, what else is refused is not."""
        permit = self.settings.permit
        if call.needs is not None:
            yield from self.outcomes.demand(*call.needs)
        elif permit.enforced and not self.settings.mode.reads_only:
            told = permit.refusal(Need(TOOL, call.spec.name))
            if told is not None:
                yield from self.blocked(call, told.rule, told.because, refused(told))

    def release(self, call: Call, held: list[gates.Budget]) -> Flow[None]:
        """Give back what was reserved for a call that does not run after all."""
        for budget in held:
            name = self.budget_call(call)
            yield Io(functools.partial(self._budgets.spend, budget, name, 0.0))

    def budget_call(self, call: Call) -> str:
        """What a budget knows this attempt of a call by: an earlier session's is another."""
        if not call.number:
            call.number = self.ledger.next_step()
        return f"{self.stream.agent}#{call.number}.{call.attempt}@{self.ledger.state.epoch}"

    def blocked(
        self, call: Call, rule: str, reason: str, error: Blocked | None = None
    ) -> Flow[NoReturn]:
        """Put on record that a call is refused, and raise it."""
        step = self.ledger.state.steps.get(call.number)
        untouched = call.step is not None and not call.told
        if not untouched and (step is None or not is_final(step)):
            told = [] if call.told else [Tell((yield from self.outcomes.requested(call)))]
            reason = recordable(reason, self.settings.scrub)
            named = recordable(rule, self.settings.scrub)
            event = StepBlocked(step=call.number, rule=named, reason=reason)
            yield from self.outcomes.tell(*told, Tell(event))
        raise error if error is not None else Blocked(rule, reason, call.spec.name)

    def spend(self, held: list[gates.Budget], name: str, scope: Scope) -> Flow[None]:
        """Replace what was reserved by what was used."""
        for budget in held:
            amount = budget.used(scope.usage)
            yield Io(functools.partial(self._budgets.spend, budget, name, amount))
