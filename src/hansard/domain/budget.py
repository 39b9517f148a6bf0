"""A budget: the amount that all agents of a run together may still spend. One aggregate a limit.

An amount is reserved before a call and corrected after it, so the sum holds over processes and
after a kill. A reservation whose call never ended stays reserved: the call may have been made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import msgspec

from hansard.domain.decider import By, State
from hansard.domain.events import Event, event


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
