"""Aggregates in SQL: by tag, of their run, and for roles as far as their rules allow."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from hansard.client.record import Record
from tests.aggregates.book import Account, Order
from tests.cli.support import Call

pytestmark = pytest.mark.slow


@pytest.fixture
def traded(record: Record) -> tuple[Account, Order]:
    """Return an account and an order, saved by two runs."""
    with record.run("w", run="one", agent="ada", role="writer", correlation="c-1") as session:
        account = Account("ada")
        account.credit(Decimal(100))
        session.save(account)
    with record.run("w", run="two", agent="bob", role="trader") as session:
        current = session.get(Account, account.id)
        order = Order("SYN", 3, Decimal("12.50"))
        current.pay(Decimal("37.50"), order.id)
        session.decide("Buy?", selected="buy", inputs=[current])
        session.save(current, order)
        session.decide("Enough?", selected="yes", inputs=[order, current])
    return current, order


@pytest.mark.thorough(quick="test_a_role_has_what_its_rules_show")
def test_each_event_is_a_row_by_tag(record: Record, traded: tuple[Account, Order]):
    """A row has the event's fields, its step and run, and the session's correlation id."""
    account, order = traded
    rows = record.sql(
        "SELECT aggregate, aggregate_id, version, tag, run, agent, step, correlation "
        "FROM domain_events ORDER BY position, version"
    ).rows
    one, two = str(account.id), str(order.id)
    assert [tuple(row) for row in rows] == [
        ("account", one, 1, "account-opened.v1", "one", "ada", 1, "c-1"),
        ("account", one, 2, "account-credited.v1", "one", "ada", 1, "c-1"),
        ("account", one, 3, "account-paid.v1", "two", "bob", 2, None),
        ("order", two, 1, "order-placed.v1", "two", "bob", 2, None),
    ]
    [state] = record.sql(
        "SELECT state->>'$.limit.\"$decimal\"' FROM domain_events WHERE tag = 'order-placed.v1'"
    ).rows
    assert tuple(state) == ("12.50",)
    counted = record.sql("SELECT aggregate, version, last_tag FROM aggregates ORDER BY 1").rows
    assert [tuple(row) for row in counted] == [
        ("account", 3, "account-paid.v1"),
        ("order", 1, "order-placed.v1"),
    ]
    joined = record.sql(
        "SELECT count(*) FROM domain_events AS d JOIN steps AS s ON s.run = d.run AND "
        "s.agent = d.agent AND s.step = d.step AND s.tool = 'aggregate.save'"
    ).rows
    assert tuple(joined[0]) == (4,)


@pytest.mark.thorough(quick="audit/test_why.py::test_a_decision_is_shown_with_its_context")
def test_trail_why_and_knew_have_them(record: Record, traded: tuple[Account, Order]):
    """The trail has the events, a decision names the newest one, and `knew` lists them."""
    trail = record.sql("SELECT what, tool, step, detail FROM trail('two')").rows
    changed = [tuple(row) for row in trail if row[0] == "changed"]
    assert [row[:3] for row in changed] == [("changed", "aggregate.save", 2)] * 2
    assert changed[1][3].startswith("order: order-placed.v1")
    decisions = record.sql("SELECT decision FROM decided('two')").rows
    for (decision,), tags in zip(
        decisions, (["account-credited.v1"], ["order-placed.v1", "account-paid.v1"]), strict=True
    ):
        rows = record.sql("SELECT name, value->>'$.words' FROM inputs(?)", decision).rows
        assert [row[0] for row in rows] == ["changed"] * len(tags)
        assert all(tag in row[1] for row, tag in zip(rows, tags, strict=True))
        knew = record.sql(
            "SELECT d.tag FROM knew(?) AS k JOIN domain_events AS d USING (event) ORDER BY version",
            decision,
        ).rows
        assert [tag for (tag,) in knew] == ["account-opened.v1", "account-credited.v1"]


ROLES = """
[roles.auditor]
sees = [
    { name = "runs", kinds = ["run.*"] },
    { name = "orders", kinds = ["aggregate.*"], aggregates = ["order/*"] },
]
masks = [{ name = "no limits", kinds = ["aggregate.changed"], fields = ["state.limit"] }]
may = { query = true }
[roles.clerk]
sees = [{ name = "all but what is apart", kinds = ["**"] }]
may = { query = true }
[roles.whole]
clearance = "secret"
sees = [{ name = "all, and what is apart", kinds = ["**", "aggregate.*"] }]
may = { query = true }
[roles.tags]
sees = [
    { name = "what happened, not what it holds", kinds = ["aggregate.*"], fields = ["event"] },
]
may = { query = true }
"""


def roles_asking(
    record: Record, folder: Path, call: Call
) -> Callable[[str], list[dict[str, object]]]:
    """Return a function that queries the events of aggregates as a role."""
    (folder / "roles.toml").write_text(ROLES)
    record.roles.apply_file(folder / "roles.toml")

    def rows_of(role: str) -> list[dict[str, object]]:
        done = call("sql", "SELECT * FROM domain_events", "--role", role, "--json")
        rows = [json.loads(line) for line in done.out.splitlines()]
        return [row for row in rows if "aggregate" in row]

    return rows_of


def test_a_role_has_what_its_rules_show(record, traded, tmp_path, call):
    """A role sees kinds by name and tag, masked inside; without a rule nothing."""
    rows_of = roles_asking(record, tmp_path, call)
    [order] = rows_of("auditor")
    assert (order["aggregate"], order["tag"]) == ("order", "order-placed.v1")
    state = order["state"]
    state = json.loads(state) if isinstance(state, str) else state
    assert isinstance(state, dict)
    assert state.keys() == {"symbol", "quantity", "timestamp"}
    assert [order[name] for name in ("run", "step", "agent", "causation")] == [None] * 4
    assert rows_of("clerk") == []


@pytest.mark.thorough(quick="test_a_role_has_what_its_rules_show")
def test_a_role_has_what_is_apart_or_the_tags_alone(record, traded, tmp_path, call):
    """A role with clearance and name sees the step's owner; one that sees tags has no state."""
    rows_of = roles_asking(record, tmp_path, call)
    assert [(row["run"], row["step"]) for row in rows_of("whole")] == [
        *[("one", 1)] * 2,
        *[("two", 2)] * 2,
    ]
    assert sorted(str(row["tag"]) for row in rows_of("tags")) == [
        "account-credited.v1",
        "account-opened.v1",
        "account-paid.v1",
        "order-placed.v1",
    ]
    assert {row["state"] for row in rows_of("tags")} == {None}
