"""Aggregates in the log in memory, for users' own tests."""

from decimal import Decimal

import pytest

import hansard
from hansard import testing
from tests.aggregates.book import Account
from tests.aggregates.test_applications import Book, tags


def test_the_log_in_memory_has_them_too():
    """Saved and got, raced for, replayed, and by an application."""
    memory = testing.Memory()
    with memory.record() as record:
        with record.run("w", run="r", agent="ada", role="writer") as session:
            account = Account("ada")
            assert session.save(account) == [1]
            late = session.get(Account, account.id)
            account.credit(Decimal(5))
            session.save(account)
            late.credit(Decimal(6))
            with pytest.raises(hansard.errors.AggregateConflict):
                session.save(late)
            assert session.get(Account, account.id, version=2) == account
        with record.application(Book) as app:
            assert app.repository.get(account.id) == account
            assert tags(app) == ["Opened", "Credited"]
    with (
        pytest.raises(hansard.errors.ReplayDiffers),  # it ends before the race
        memory.record(mode="strict") as record,
        record.run("w", run="r", agent="ada", role="writer") as session,
    ):
        again = Account("ada")
        session.save(again)
        assert again.created_on == account.created_on
        session.get(Account, account.id)
        again.credit(Decimal(5))
        session.save(again)
        assert again == account
