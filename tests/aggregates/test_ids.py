"""Ids that are texts, of any kind and length."""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from eventsourcing.domain import (
    BaseAggregate,
    CanInitAggregate,
    CanMutateAggregate,
    MetaDomainEvent,
    event,
)

import hansard
from tests.agents.twins import Lab, TwinRecord
from tests.aggregates.test_session import changes


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
