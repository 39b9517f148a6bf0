"""`session.save` and `session.get`: aggregates of a program's own, saved with their steps."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

import hansard
from hansard.bus.log import Stored
from hansard.domain.aggregate_types import AggregateChanged
from hansard.domain.ids import WorkspaceStream
from tests.agents.twins import Lab, TwinRecord
from tests.aggregates.book import Account, Order

pytestmark = pytest.mark.fast(cases=99, slow=0)


async def commits_of(record: TwinRecord, named: object) -> list[Stored]:
    """Return an aggregate's commits from the log."""
    stream = WorkspaceStream("aggregate", str(named))
    commits: list[Stored] = await record.io(record.raw.workspace.log.read(stream))
    return commits


async def head(record: TwinRecord) -> int:
    """Return the newest position."""
    return int(await record.io(record.raw.workspace.log.head()))


async def changes(record: TwinRecord, named: object) -> list[AggregateChanged]:
    """Return the recorded changes of an aggregate."""
    stored = await commits_of(record, named)
    return [
        msgspec.json.decode(recorded.data, type=AggregateChanged)
        for each in stored
        for recorded in each.commit.events
    ]


async def test_what_was_saved_is_got(lab: Lab):
    """An aggregate is restored exactly, now and at a version, position, time or id."""
    async with lab.connect() as record, record.run(run="r") as session:
        account, order = Account("ada"), Order("SYN", 3, Decimal("12.50"))
        account.credit(Decimal("100.00"))
        assert await session.save(account, order) == [2, 1]
        assert not account.pending_events
        account.pay(Decimal("37.50"), order.id)
        order.cancel(("late", "dear"))
        assert await session.save(account, order) == [3, 2]
        assert await session.save(account) == [3]
        read = await session.get(Account, account.id)
        assert read == account
        assert (read.balance, read.orders) == (Decimal("62.50"), [order.id])
        assert (await session.get(Order, str(order.id))).because == ("late", "dear")
        assert (await session.get(Account, account.id, version=1)).balance == 0
        assert (await session.get(Account, account.id, at="@2")).balance == 100
        stored = await commits_of(record, account.id)
        first = stored[0]
        [end, *_] = await commits_of(record, order.id)  # inside a transaction is before it
        points = [end.position, end.time, end.time.isoformat(), first.commit.id]
        for at in (*points, first.commit.events[0].id, str(end.position + 1)):
            assert (await session.get(Account, account.id, at=at)).version == 2, at
        before = datetime(2020, 1, 1, tzinfo=UTC)
        for nothing in ({"at": before}, {"at": first.position}):
            with pytest.raises(hansard.NotFound):
                await session.get(Account, account.id, **nothing)


async def test_a_save_and_its_step_are_one_transaction(lab: Lab):
    """Save and outcome share a transaction, actor and correlation; no class path is stored."""
    async with lab.connect() as record, record.run(run="r", correlation="order 7") as session:
        account, order = Account("ada"), Order("SYN", 3, Decimal("12.50"))
        await session.save(account, order)
        stored = await record.commits("r")
        outcome = next(
            (each, recorded)
            for each in stored
            for recorded in each.commit.events
            if recorded.type == "step.completed.v1"
        )
        for named in (account.id, order.id):
            [commit] = await commits_of(record, named)
            tx, whole = commit.commit.tx, outcome[0].commit.tx
            assert tx is not None
            assert whole is not None
            assert tx.id == whole.id
            assert commit.commit.causation == outcome[1].id
            assert (commit.commit.correlation, commit.commit.actor.agent) == ("order 7", "ada")
            assert b"tests" not in commit.body
            assert b"book" not in commit.body
            assert b"Order" not in commit.body
        [change] = await changes(record, order.id)
        assert (change.aggregate, change.event) == ("order", "order-placed.v1")
        assert (change.run, change.step) == ("r", 1)
        state = msgspec.json.decode(change.state)
        assert state | {"timestamp": 0} == {
            "symbol": "SYN",
            "quantity": 3,
            "limit": {"$decimal": "12.50"},
            "timestamp": 0,
        }


async def _trade(record: TwinRecord, **options: Any) -> list[Any]:
    """Run a program that makes up an id; return its results."""
    facts: list[Any] = []
    async with record.run(run="r", **options) as session:
        account = Account("ada")
        account.credit(Decimal("100.00"))
        await session.save(account)
        order = Order("SYN", 3, Decimal("12.50"))
        account = await session.get(Account, account.id)
        account.pay(Decimal("37.50"), order.id)
        await session.save(account, order)
        facts += [order.id, order.created_on, account.modified_on, account.orders, account.version]
        order.cancel(("late",))
        await session.save(order)
        facts += [order.version, repr(order)]
    return facts


async def test_a_program_that_runs_again_gets_what_was_saved(record: TwinRecord):
    """A replayed save writes nothing and restores the recorded ids and times."""
    facts = await _trade(record)
    commits = await head(record)
    for options in ({"mode": "strict"}, {"mode": "offline"}):
        assert await _trade(record, **options) == facts
        assert await head(record) == commits
    assert await _trade(record) == facts
    [order] = {each for each in facts if isinstance(each, UUID)}
    assert [each.event for each in await changes(record, order)] == [
        "order-placed.v1",
        "order-cancelled.v1",
    ]


async def test_the_second_of_two_savers_gets_a_conflict_and_decides_again(record: TwinRecord):
    """One of two conflicting saves fails and shows both sides; its replay fails, too."""

    async def second(record: TwinRecord, **options: Any) -> list[Any]:
        async with record.run(run="r", agent="bob", role="trader", **options) as session:
            account = await session.get(Account, Account.create_id("ada"))
            other = Order("SYN", 1, Decimal(80))
            account.pay(Decimal(80), other.id)
            if not options:
                async with record.run(run="r") as rival:
                    theirs = await rival.get(Account, account.id)
                    theirs.pay(Decimal(70), account.id)
                    await rival.save(theirs)
            with pytest.raises(hansard.errors.AggregateConflict) as conflict:
                await session.save(account, other)
            account = await session.get(Account, account.id)
            account.credit(Decimal(5))
            await session.save(account)
            return [*conflict.value.args[1:4], *conflict.value.args[5:], account.balance, other.id]

    async with record.run(run="r") as session:
        account = Account("ada")
        account.credit(Decimal(100))
        await session.save(account)
    *facts, balance, refused = await second(record)
    assert facts[:2] == ["account", str(account.id)]
    assert facts[2] == 2
    mine, theirs, author = facts[3:]
    assert '"account-paid.v1"' in mine
    assert '"$decimal":"80"' in mine
    assert '"$decimal":"70"' in theirs
    assert author == "ada"
    assert balance == 35
    assert not await changes(record, refused)
    assert (await second(record, mode="strict"))[:-1] == [*facts, balance]


async def test_what_cannot_be_recorded_is_refused_before_anything_is(lab: Lab):
    """An undeclared, inexact, secret or doubled aggregate is refused without step or event."""
    colour: Any = object()
    async with lab.connect(redact={"key": "sk-secret"}) as record, record.run(run="r") as session:
        account = Account("ada")
        wrong: dict[str, list[Any]] = {
            "declared": [object()],
            "twice": [account, account],
            "cannot be recorded": [Order(colour, 1, Decimal(1))],
            "come back": [Order("sk-secret", 1, Decimal(1))],
        }
        for words, aggregates in wrong.items():
            with pytest.raises(hansard.BadValue, match=words):
                await session.save(*aggregates)
        account.trigger_event(Account.Event)
        with pytest.raises(hansard.BadValue, match="not declared"):
            await session.save(account)
        with pytest.raises(hansard.BadValue, match="declared"):
            await session.get(dict, "x")
        with pytest.raises(hansard.errors.BadName, match="UUID"):
            await session.get(Account, "x")
        assert not session.raw.state.steps
        assert not await changes(record, account.id)


async def test_a_payload_of_any_size_comes_back(lab: Lab):
    """Large data of an event is a blob, and is read back unchanged."""
    async with lab.connect() as record, record.run(run="r") as session:
        order = Order("S" * 300_000, 1, Decimal(1))
        await session.save(order)
        assert (await session.get(Order, order.id)).symbol == "S" * 300_000
        [stored] = await commits_of(record, order.id)
        assert len(stored.body) < 2_000


async def test_a_version_that_never_stood_is_not_written(lab: Lab):
    """A foreign aggregate is compared with the stored version, so that no gap is left."""
    async with lab.connect() as record, record.run(run="r") as session:
        account = Account("ada")
        account.collect_events()
        account.credit(Decimal(1))
        with pytest.raises(hansard.errors.AggregateConflict, match="at version 0, not 1"):
            await session.save(account)
        assert not await changes(record, account.id)
