"""Prices of models, dated, as somebody stated them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.codec import revive_all
from hansard.bus.log import Stored
from hansard.domain import ids
from hansard.domain import price as prices
from hansard.domain.errors import BadValue
from hansard.domain.ids import WorkspaceStream
from hansard.domain.price import KIND, PriceStated


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """From when on, in which currency, and where it was read."""

    since: datetime
    currency: str = "USD"
    source: str = ""


async def state(
    workspace: Workspace, model: str, amounts: Mapping[str, float], terms: Terms, *, by: str
) -> bool:
    """State what a million of each usage of a model costs; False where all is stated already.

    One commit. Raises BadName, BadValue, and Conflict after 50 lost races.
    """
    stream = WorkspaceStream(KIND, ids.name("model", model))
    events = [_stated(usage, amount, terms) for usage, amount in amounts.items()]
    if not events:
        raise BadValue("prices", "none is given", "give some, such as input_tokens=2.5")

    def next_append(stored: list[Stored]) -> list[PriceStated]:
        found = prices.fold(prices.initial(), revive_all(item.commit for item in stored))
        return [each for event in events for each in prices.decide(found, event)]

    return await workspace.tell_lasting(stream, by, next_append)


def _stated(usage: str, amount: float, terms: Terms) -> PriceStated:
    if type(amount) not in (int, float):
        remedy = "give what a million of it costs, as a number"
        raise BadValue(f"price of {usage!r:.80}", f"{amount!r:.80}", remedy)
    try:
        number = float(amount)
    except OverflowError:
        number = float("inf")
    since: object = terms.since
    if not isinstance(since, datetime) or since.utcoffset() is None:
        remedy = "give a datetime with a zone, such as datetime(2024, 10, 1, tzinfo=UTC)"
        raise BadValue("since", f"{since!r:.80}", remedy)
    return PriceStated(
        usage=usage,
        amount=number,
        since=since.astimezone(UTC),
        currency=terms.currency,
        source=terms.source,
    )
