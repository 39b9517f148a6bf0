"""`hansard.aggregate_type`: declarations, and the records made under them."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.domain import (
    Aggregate,
    BaseAggregate,
    CanInitAggregate,
    CanMutateAggregate,
    MetaDomainEvent,
    event,
)

import hansard
from hansard.domain import aggregate_types
from tests.agents.twins import Lab, TwinRecord
from tests.aggregates.book import Account, Order
from tests.aggregates.test_session import changes


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


# ------------------------------------------------------------ ids that are texts


@dataclass(frozen=True)
class Happened(metaclass=MetaDomainEvent):
    """Fields of events with text ids, as in the library's guide."""

    originator_id: str
    originator_version: int
    timestamp: Any


class Dog(BaseAggregate[str]):
    """A dog by a text."""

    class Event(Happened, CanMutateAggregate[str]):
        """Base of the aggregate's events."""

    @dataclass(frozen=True)
    class Born(Event, CanInitAggregate[str]):
        """Creation of the aggregate."""

        originator_topic: str
        name: str

    class Learnt(Event):
        """A trick."""

        trick: str

    @staticmethod
    def create_id(name: str) -> str:
        """Return a name, or a random one for 'new'."""
        return f"dog-{uuid4()}" if name == "new" else name

    @event(Born)
    def __init__(self, name: str) -> None:
        self.name = name
        self.tricks: list[str] = []

    @event(Learnt)
    def learn(self, trick: str) -> None:
        """A trick."""
        self.tricks.append(trick)


hansard.aggregate_type(
    Dog, name="dog", events={"dog-born.v1": Dog.Born, "dog-learnt.v1": Dog.Learnt}
)

IDS = ["rex", "a/b.c *>", "ünï", "x" * 900, "01a208ee-af9a-7411-bcb6-391c6fcfb197"]


async def test_any_text_is_an_id(lab: Lab):
    """Saved, got and saved again under a text that no subject could carry as it is."""
    async with lab.connect() as record, record.run(run="r") as session:
        for name in IDS:
            dog = Dog(name)
            await session.save(dog)
            dog.learn("sit")
            await session.save(dog)
            stored = await session.get(Dog, name)
            assert (stored.id, stored.tricks, stored.version) == (name, ["sit"], 2)
        with pytest.raises(hansard.errors.BadName):
            await session.get(Dog, "")


async def _born(record: TwinRecord, **options: Any) -> str:
    async with record.run(run="r", **options) as session:
        dog = Dog("new")
        await session.save(dog)
        dog.learn("sit")
        await session.save(dog)
        return str(dog.id)


async def test_a_text_of_chance_is_the_one_on_record_when_replayed(record: TwinRecord):
    """An id with a UUID of chance in it counts as made up, as a UUID does."""
    named = await _born(record)
    for options in ({"mode": "strict"}, {}):
        assert await _born(record, **options) == named
    assert len(await changes(record, named)) == 2
