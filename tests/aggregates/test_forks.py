"""Aggregates outlive runs: a fork's are its parent's."""

from decimal import Decimal

import pytest

import hansard
from tests.agents.twins import TwinRecord
from tests.aggregates.book import Account
from tests.aggregates.test_session import changes, head


async def test_a_fork_that_shadows_effects_saves_nothing(record: TwinRecord):
    """Saves of the parent after the cut are reused; a save that it never made is shadowed."""
    async with record.run(run="r") as session:
        account = Account("ada")
        await session.save(account)
        await session.checkpoint("opened")
        account.credit(Decimal(5))
        await session.save(account)
    fork = await record.fork("r", at="ada@4")
    before = await changes(record, account.id)
    async with record.run(run=fork) as session:
        account = Account("ada")
        await session.save(account)
        await session.checkpoint("opened")
        account.credit(Decimal(5))
        assert await session.save(account) == [2]
        account.credit(Decimal(6))
        with pytest.raises(hansard.errors.ShadowedEffect):
            await session.save(account)
        assert (await session.get(Account, account.id)).balance == 5
    assert await changes(record, account.id) == before
    assert len(before) == 2


async def test_a_fork_whose_effects_are_live_saves(record: TwinRecord):
    """The fork saves the next version of the parent's aggregate."""
    async with record.run(run="r") as session:
        account = Account("ada")
        await session.save(account)
    at = await head(record)
    fork = await record.fork("r", at=at, effects="live")
    async with record.run(run=fork) as session:
        account = Account("ada")
        await session.save(account)
        account.credit(Decimal(6))
        assert await session.save(account) == [2]
    assert [each.run for each in await changes(record, account.id)] == ["r", fork]
