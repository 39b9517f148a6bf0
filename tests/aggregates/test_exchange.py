"""Runs that saved aggregates, out of one workspace and into another."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import hansard
from hansard.client.record import Record
from hansard.domain.aggregate_types import stream_of
from hansard.domain.ids import WorkspaceStream
from tests.aggregates.book import Account, Order
from tests.exchange.support import bring_in, exported, lines_of, log_of


def pay(record: Record, run: str, **options: Any) -> Order:
    """A run that gets an account and places an order."""
    with record.run("w", run=run, agent="bob", role="trader", **options) as session:
        account = session.get(Account, Account.create_id("ada"))
        order = Order("SYN", 1, Decimal(10))
        account.pay(Decimal(10), order.id)
        session.save(account, order)
        return order


def test_a_run_brings_the_aggregates_it_saved_and_who_saved_them_before(
    data_dir: Path, workspace: str, tmp_path: Path
):
    """An import has aggregates up to the run's save; a replay there gets the same."""
    other = f"{workspace}-copy"
    with hansard.connect(workspace, data_dir=data_dir) as record:
        with record.run("w", run="one", agent="ada", role="writer") as session:
            account = Account("ada")
            account.credit(Decimal(100))
            session.save(account, Order("OTHER", 1, Decimal(1)))
        order = pay(record, "two")
        pay(record, "three")
        with record.run("w", run="alone", agent="ada", role="writer") as session:
            session.save(Account("eve"))
    data = exported(data_dir, workspace, "two")
    assert lines_of(data)[0]["carries"] == ["one", "two"]
    told = bring_in(data_dir, other, tmp_path / "x.jsonl", data)
    assert told.bads == []
    lasting = [each for each in log_of(data_dir, other) if isinstance(each.stream, WorkspaceStream)]
    assert len({each.stream for each in lasting}) == 3
    assert sum(each.stream == stream_of(account.id) for each in lasting) == 2
    with hansard.connect(other, data_dir=data_dir) as record:
        again = pay(record, "two", mode="strict")
        assert (again.id, again.created_on) == (order.id, order.created_on)
    more = bring_in(
        data_dir, other, tmp_path / "y.jsonl", exported(data_dir, workspace, "three", "alone")
    )
    assert (more.bads, more.tally.runs) == ([], 4)
    with (
        hansard.connect(other, data_dir=data_dir) as record,
        record.run("w", run="new", agent="ada", role="writer") as session,
    ):
        assert session.get(Account, account.id).balance == 80
