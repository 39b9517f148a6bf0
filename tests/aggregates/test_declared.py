"""`hansard.aggregate_type`: declarations, and the records made under them."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from eventsourcing.domain import Aggregate, event

import hansard
from hansard.domain import aggregate_types
from tests.agents.twins import Lab
from tests.aggregates.book import Account, Order


@pytest.fixture
def declarations() -> Iterator[dict[str, Any]]:
    """Yield the declarations by name, restored after the test."""
    by_name: dict[Any, Any] = aggregate_types._BY_NAME
    by_class: dict[Any, Any] = aggregate_types._BY_CLASS
    kept = dict(by_name), dict(by_class)
    yield by_name
    for held, before in zip((by_name, by_class), kept, strict=True):
        held.clear()
        held.update(before)


class LaterOrder(Aggregate):
    @event("Placed")
    def __init__(self, symbol: str, side: str, quantity: int, limit: Decimal, why: str) -> None:
        self.symbol, self.side, self.why = symbol, side, why


async def test_what_an_older_tag_holds_is_read_by_a_newer_one(lab: Lab, declarations):
    """A chain of functions reads older state; without it an error names tag and remedy."""
    async with lab.connect() as record, record.run(run="r") as session:
        order = Order("SYN", 1, Decimal(1))
        await session.save(order)
        del declarations["order"]
        declaration: dict[str, Any] = {"name": "order", "events": {"order-placed.v3": "Placed"}}
        hansard.aggregate_type(LaterOrder, **declaration)
        with pytest.raises(
            hansard.errors.UndeclaredEvent, match=r"order-placed\.v1.*declare"
        ) as error:
            await session.get(LaterOrder, order.id)
        stored = await record.io(record.raw.workspace.log.read_kind("aggregate"))
        assert (error.value.tag, error.value.position) == ("order-placed.v1", stored[0].position)
        hansard.aggregate_type(
            LaterOrder,
            **declaration,
            older={
                "order-placed.v1": ("order-placed.v2", lambda state: {"side": "buy", **state}),
                "order-placed.v2": ("order-placed.v3", lambda state: {"why": "?", **state}),
            },
        )
        later = await session.get(LaterOrder, order.id)
        assert (later.symbol, later.side, later.why) == ("SYN", "buy", "?")


async def test_an_aggregate_of_another_class_is_not_read_as_one(lab: Lab):
    """An id belongs to one aggregate, of one class."""
    async with lab.connect() as record, record.run(run="r") as session:
        account = Account("ada")
        await session.save(account)
        with pytest.raises(hansard.Corrupt, match="is of a 'account', not of a 'order'"):
            await session.get(Order, account.id)


class Sound:
    """No aggregate."""


BROKEN: dict[str, tuple[Any, dict[str, Any]]] = {
    "class of the aggregates": ("order", {"name": "x", "events": {}}),
    "INITIAL_VERSION": (Sound, {"name": "x", "events": {}}),
    "no events": (LaterOrder, {"name": "x", "events": {}}),
    "an event of the aggregate": (LaterOrder, {"name": "x", "events": {"a.v1": Sound}}),
    "is no tag": (LaterOrder, {"name": "x", "events": {"placed": "Placed"}}),
    "is the name of": (LaterOrder, {"name": "order", "events": {"a.v1": "Placed"}}),
    "is 'order' already": (Order, {"name": "x", "events": {"a.v1": "Placed"}}),
    "no name of a class": (LaterOrder, {"name": "a/b", "events": {"a.v1": "Placed"}}),
    "two tags": (LaterOrder, {"name": "x", "events": {"a.v1": "Placed", "a.v2": "Placed"}}),
    "leads to": (
        LaterOrder,
        {"name": "x", "events": {"a.v2": "Placed"}, "older": {"a.v1": ("a.v3", dict)}},
    ),
}


@pytest.mark.parametrize("words", BROKEN)
def test_a_broken_declaration_says_what_is_wrong(words: str, declarations):
    """A declaration that cannot be used is refused, with the fact and the remedy."""
    cls, declaration = BROKEN[words]
    with pytest.raises(hansard.BadValue, match=words):
        hansard.aggregate_type(cls, **declaration)
