"""Aggregates where people look: the run's page, and its trace."""

import json
from decimal import Decimal

import pytest

from hansard.client.record import Record
from tests.aggregates.book import Account, Order
from tests.cli.support import Call

pytestmark = pytest.mark.thorough


@pytest.mark.thorough(quick="aggregates/test_sql.py::test_a_role_has_what_its_rules_show")
def test_a_run_s_page_and_trace_have_what_its_steps_did(record: Record, call: Call, tmp_path):
    """The page has each event, also in a fork; the trace shows the save with its outcome."""
    with record.run("w", run="one", agent="ada", role="writer") as session:
        account, order = Account("ada"), Order("SYN", 1, Decimal("12.50"))
        session.save(account, order)
        session.get(Account, account.id)
    with record.run("w", run="two", agent="bob", role="writer") as session:
        session.save(Account("bob"))
    record.fork("one")
    for run in ("one", "fork"):
        which = "one" if run == "one" else record.sql("SELECT run FROM lineage").rows[0][0]
        done = call("run", "html", which, "--output", tmp_path / f"{run}.html")
        assert done.code == 0, done.err
        text = (tmp_path / f"{run}.html").read_text()
        assert "account-opened.v1" in text
        assert "order-placed.v1" in text
        assert f"aggregate/{order.id}" in text
        assert "/bob" not in text
    lines = [json.loads(line) for line in call("run", "trace", "one", "--json").out.splitlines()]
    assert [line["tool"] for line in lines] == ["aggregate.save", "aggregate.get"]
    assert lines[0]["arguments"]["aggregates"][1]["events"][0]["event"] == "order-placed.v1"
    assert lines[0]["result"]["saved"][1]["id"] == str(order.id)
    assert lines[1]["result"] == {"aggregate": "account", "id": str(account.id), "version": 1}
    assert "order-placed.v1" in call("run", "trace", "one").out
