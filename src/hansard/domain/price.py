"""Stated prices of a model's use, each valid from a day on. One stream a model.

A price never changes a recorded cost: a recorded cost is checked against it, and use without a
recorded cost is estimated from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

import msgspec

from hansard.domain import ids, values
from hansard.domain.decider import By, Decider, State
from hansard.domain.errors import BadValue
from hansard.domain.events import Event, event

KIND = "price"
"""The kind of its stream; its id is the model."""

CURRENCY_LETTERS = 3
"""Letters of a currency, as in ISO 4217: USD, EUR ..."""


@event("price.stated.v1")
class PriceStated(Event, frozen=True, kw_only=True):
    """From `since` on, one million of `usage` (input_tokens, output_tokens ...) costs `amount`.

    `since` is RFC 3339 with a zone; `source` is where the price was read.
    """

    usage: str
    amount: float
    since: datetime
    currency: str = "USD"
    source: str = ""


class PriceState(State):
    """A model's prices at a version: the newest statement for each usage and day."""

    noun: ClassVar[str] = "a price"

    stated: dict[tuple[str, datetime], PriceStated] = msgspec.field(default_factory=dict)

    def _evolve(self, event: Event, by: By) -> None:
        """Apply one event in place."""
        if not isinstance(event, PriceStated):
            super()._evolve(event, by)
        else:
            self.stated[event.usage, event.since] = event


def decide(state: PriceState, event: PriceStated) -> Sequence[PriceStated]:
    """Return the events of stating a price; none where it is already stated.

    Raises BadName, BadValue.
    """
    ids.name("usage", event.usage)
    if not (math.isfinite(event.amount) and event.amount >= 0):
        remedy = "give the price of a million, 0 or more"
        raise BadValue(f"price of {event.usage}", f"{event.amount}", remedy)
    if event.since.utcoffset() is None:
        fact = f"{event.since.isoformat()} has no zone"
        raise BadValue("since", fact, "give one, such as 2024-10-01T00:00:00Z")
    currency = event.currency
    if not (len(currency) == CURRENCY_LETTERS and currency.isascii() and currency.isupper()):
        raise BadValue("currency", f"{currency!r:.80}", "give its three capital letters: USD")
    values.demand_text(event.source, "source")
    return () if state.stated.get((event.usage, event.since)) == event else (event,)


def check_model(name: object) -> str:
    """Return a model's name, checked. Raises BadName."""
    return ids.name("model", name)


PRICES = Decider(kind=KIND, initial=PriceState, decide=decide, check_name=check_model)
