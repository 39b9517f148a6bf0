"""A budget: what all agents of a run together may still spend. One aggregate a limit.

Reserved before a call, corrected after it; so the sum holds over processes and after a kill. A
reservation whose call never ended stays reserved: the call may have been made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import msgspec

from hansard.domain.events import Event, event


@event("budget.reserved.v1")
class Reserved(Event, frozen=True, kw_only=True):
    """Some of a budget was set aside for one call: `call` names agent, step, attempt and epoch."""

    call: str
    amount: float


@event("budget.spent.v1")
class Spent(Event, frozen=True, kw_only=True):
    """What a call really took; it replaces its reservation."""

    call: str
    amount: float


def key_of(name: str) -> str:
    """The key of a run's shared state where a budget is counted."""
    return f"budget {name}"


class BudgetState(msgspec.Struct):
    """What is gone, by call. `gone` is the exact sum, kept along: a call costs the same however
    many were counted before it.
    """

    version: int = 0
    calls: dict[str, float] = msgspec.field(default_factory=dict)
    gone: Fraction = Fraction(0)

    @property
    def total(self) -> float:
        """The sum of what is reserved and spent."""
        return _float(self.gone)


def _float(amount: Fraction) -> float:
    try:
        return float(amount)
    except OverflowError:
        return math.copysign(math.inf, amount)


def evolve(state: BudgetState, event: Event) -> None:
    """Fold one more event into a state that the caller owns."""
    state.version += 1
    if isinstance(event, Reserved | Spent):
        before = state.calls.get(event.call, 0.0)
        if event.amount != before:
            state.gone += Fraction(event.amount) - Fraction(before)
        state.calls[event.call] = event.amount


def fold(state: BudgetState, events: Iterable[Event]) -> BudgetState:
    """The state after more events; the given one is left as it is. Copies it: see `evolve`."""
    state = BudgetState(state.version, dict(state.calls), state.gone)
    for each in events:
        evolve(state, each)
    return state


def reserve(state: BudgetState, call: str, amount: float, limit: float) -> Sequence[Event] | None:
    """The events that set `amount` aside; None where `limit` does not allow it."""
    if call in state.calls:
        return ()
    if _float(state.gone + Fraction(amount)) > limit:
        return None
    return (Reserved(call=call, amount=amount),)


def spend(state: BudgetState, call: str, amount: float) -> Sequence[Event]:
    """The events that correct a reservation; none where it was exact."""
    return () if state.calls.get(call) == amount else (Spent(call=call, amount=amount),)
