"""Rights to change an aggregate: `hansard check`, readers and tables agree on what counts."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard import testing
from hansard.bus import subjects
from hansard.bus.commits import encode
from hansard.client.record import Record
from hansard.domain.aggregate_types import AggregateChanged, stream_of
from hansard.domain.events import Actor, Tx
from hansard.domain.ids import WorkspaceStream
from hansard.domain.values import dump
from tests.agents.twins import TwinRecord
from tests.aggregates.book import Account, Order
from tests.aggregates.test_applications import Book, tags
from tests.aggregates.test_session import changes, head
from tests.cli.planting import commit, publish_raw
from tests.cli.support import Call
from tests.exchange.support import bring_in, exported, lines_of, log_of


def credited(amount: int, **more: Any) -> AggregateChanged:
    """Return an event as a forger writes it."""
    state = {
        "amount": {"$decimal": str(amount)},
        "timestamp": {"$datetime": "2026-01-01T00:00:00+00:00"},
    }
    return AggregateChanged(
        aggregate="account", event="account-credited.v1", state=dump(state), **more
    )


FORGED: dict[str, tuple[list[AggregateChanged], dict[str, Any]]] = {
    "stands alone": ([credited(1, run="r", step=1)], {"actor": Actor("ada")}),
    "no agent of run 'r'": (
        [credited(1, run="r", step=1)],
        {"actor": Actor("eve"), "tx": Tx("t", 0, 1)},
    ),
    "one of them is missing": ([credited(1, step=1)], {"actor": Actor("ada")}),
    "several aggregates or steps": ([credited(1), credited(1, run="r", step=1)], {}),
    "is not a aggregate.changed.v1": ([], {}),
}


@pytest.mark.later
@pytest.mark.fast(cases=1, slow=0)
@pytest.mark.parametrize("why", FORGED)
def test_what_nobody_may_have_written_counts_nowhere(why, record, data_dir, workspace, call):
    """A commit of a step that cannot have written it takes a version and counts nowhere."""
    with record.run("w", run="r", agent="ada", role="writer") as session:
        account = Account("ada")
        session.save(account)
    stream = WorkspaceStream("aggregate", str(account.id))
    events, fields = FORGED[why]
    made = msgspec.structs.replace(commit(2, *(events or [credited(1)]), epoch=0), **fields)
    if not events:
        bad = msgspec.structs.replace(made.events[0], data=msgspec.Raw(b'{"aggregate":1}'))
        made = msgspec.structs.replace(made, events=(bad,))
    publish_raw(data_dir, (subjects.subject(workspace, stream, 2), encode(stream, made)))
    with record.run("w", run="s", agent="ada", role="writer") as session:
        current = session.get(Account, account.id)
        assert (int(current.balance), current.version) == (0, 1 + len(made.events))
        current.credit(Decimal(7))
        session.save(current)
        assert session.get(Account, account.id).balance == 7
    rows = record.sql("SELECT tag FROM domain_events ORDER BY version").rows
    assert [tag for (tag,) in rows] == ["account-opened.v1", "account-credited.v1"]
    output = call("check")
    assert output.code == 1
    assert why in output.out


def pay(record: Record, run: str, **options: Any) -> Order:
    """Record a run that gets an account and places an order."""
    with record.run("w", run=run, agent="bob", role="trader", **options) as session:
        account = session.get(Account, Account.create_id("ada"))
        order = Order("SYN", 1, Decimal(10))
        account.pay(Decimal(10), order.id)
        session.save(account, order)
        return order


@pytest.mark.later
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
    report = bring_in(data_dir, other, tmp_path / "x.jsonl", data)
    assert report.bads == []
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
    with hansard.Session(
        "w", run="new", agent="ada", role="writer", workspace=other, data_dir=data_dir
    ) as session:
        assert session.get(Account, account.id).balance == 80


# ------------------------------------------------------------ aggregates outlive runs


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


# ------------------------------------------------------------ in memory


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


# ------------------------------------------------------------ aggregates where people look


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
