"""The library's applications on a record: one log for their saves and those of sessions."""

import asyncio
import os
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, ClassVar
from unittest.mock import patch
from uuid import UUID

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import IntegrityError, InterfaceError, Tracking
from eventsourcing.popo import POPOTrackingRecorder
from eventsourcing.projection import Projection, ProjectionRunner
from eventsourcing.system import ProcessApplication, SingleThreadedRunner, System
from eventsourcing.tests import application
from eventsourcing.tests.domain import BankAccount, EmailAddress

import hansard
from hansard.client.record import Record
from hansard.domain import aggregate_types
from tests.aggregates.book import Account, Order
from tests.cli.support import Call

pytestmark = pytest.mark.later


class Book(Application[UUID]):
    is_snapshotting_enabled = True

    def open(self, owner: str) -> UUID:
        """Open an account with a balance of 100."""
        account = Account(owner)
        account.credit(Decimal(100))
        self.save(account)
        return account.id


def tags(app: Application[UUID]) -> list[str]:
    """Return the class names of all events in a notification log."""
    names: list[str] = []
    start = 1
    while page := app.notification_log.select(start, 10):
        names += [each.topic.rpartition(".")[2] for each in page]
        start = page[-1].id + 1
    return names


def test_snapshots_of_the_library_are_used(record: Record):
    """State rebuilt from a snapshot equals that of all events; a new process starts without any."""
    with record.application(Book) as app:
        named = app.open("ada")
        account: Account = app.repository.get(named)
        for _ in range(30):
            account.credit(Decimal(1))
        app.save(account)
        app.take_snapshot(named, version=20)
        with patch.object(Account.Credited, "apply", side_effect=AssertionError):  # type: ignore[attr-defined] # made by @event
            assert app.repository.get(named, version=20).version == 20
        assert app.repository.get(named) == account
    with record.application(Book) as app:
        assert app.repository.get(named) == account


def test_a_range_of_versions_may_begin_and_end_inside_of_commits(record: Record):
    """Whatever was saved together, each range of versions has just those events."""
    with record.application(Book) as app:
        account = Account("ada")
        for count in (1, 3, 1, 4):
            for _ in range(count):
                account.credit(Decimal(1))
            app.save(account)
        last = account.version
        for gt in range(last + 2):
            for lte in (None, *range(last + 2)):
                selected = app.recorder.select_events(account.id, gt=gt, lte=lte)
                until = last if lte is None else min(lte, last)
                expected = list(range(gt + 1, until + 1))
                assert [each.originator_version for each in selected] == expected, (gt, lte)
        newest = app.recorder.select_events(account.id, desc=True, limit=2)
        assert [each.originator_version for each in newest] == [last, last - 1]


class Counter(Aggregate):
    @event("Began")
    def __init__(self) -> None:
        self.orders = 0

    @event("Counted")
    def count(self) -> None:
        """Add one."""
        self.orders += 1


hansard.aggregate_type(
    Counter, name="counter", events={"counter-began.v1": "Began", "counter-counted.v1": "Counted"}
)


class Orders(ProcessApplication[UUID]):
    env: ClassVar[dict[str, str]] = {"AGGREGATES": "order"}

    def policy(self, domain_event: Any, processing_event: Any) -> None:
        """Ignore the event: this application follows none."""


class Counts(ProcessApplication[UUID]):
    env: ClassVar[dict[str, str]] = {"AGGREGATES": "counter"}

    def policy(self, domain_event: Any, processing_event: Any) -> None:
        """Count an order, under the account that is its symbol's."""
        if isinstance(domain_event, Order.Placed):  # type: ignore[attr-defined] # made by @event
            known: list[Any] = list(self.notification_log.select(1, 1))
            counter = self.repository.get(known[0].originator_id) if known else Counter()
            counter.count()
            processing_event.collect_events(counter)


def counted(runner: SingleThreadedRunner[UUID]) -> list[int]:
    """Return the values of the counters."""
    app = runner.get(Counts)
    ids: set[Any] = {each.originator_id for each in app.notification_log.select(1, 10)}
    return [app.repository.get(each).orders for each in ids]


def test_a_single_threaded_runner_follows_the_same_log(record: Record, call: Call):
    """Its position is recorded with its results, so another runner continues without repeats."""
    system = System(pipes=[[Orders, Counts]])
    with record.run("w", agent="ada", role="writer") as session:
        session.save(Order("A", 1, Decimal(1)), Account("ada"))
    for saved in (2, 4):
        with SingleThreadedRunner[UUID](system, env=record.application_env()) as runner:
            runner.get(Orders).save(Order("B", 1, Decimal(1)))
            assert counted(runner) == [saved]
            with record.run("w", agent="ada", role="writer") as session:
                session.save(Order("C", 1, Decimal(1)))
            runner.get(Counts).pull_and_process("Orders")
            assert counted(runner) == [saved + 1]
            recorder = runner.get(Counts).recorder
            position = recorder.max_tracking_id("Orders")
            assert position is not None
            with pytest.raises(IntegrityError):
                recorder.insert_tracking(Tracking("Orders", position))
    assert call("check").code == 0


class Symbols(POPOTrackingRecorder):
    def __init__(self) -> None:
        super().__init__()
        self.symbols: list[str] = []


class SymbolsOfOrders(Projection[Symbols]):
    name = "symbols"

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        """Take note of an order."""
        if isinstance(domain_event, Order.Placed):  # type: ignore[attr-defined] # made by @event
            self.view.symbols.append(domain_event.symbol)
        self.view.insert_tracking(tracking)


def test_a_projection_of_the_library_follows_what_sessions_save(record: Record):
    """The projection reads existing and new events."""
    with record.run("w", agent="ada", role="writer") as session:
        session.save(Order("A", 1, Decimal(1)), Account("ada"))
        env = {**record.application_env(), "SYMBOLS_PERSISTENCE_MODULE": "eventsourcing.popo"}
        with ProjectionRunner(
            application_class=Book, projection_class=SymbolsOfOrders, view_class=Symbols, env=env
        ) as runner:
            runner.wait(runner.app.recorder.max_notification_id(), timeout=10)
            session.save(Order("B", 1, Decimal(1)))
            runner.wait(runner.app.recorder.max_notification_id(), timeout=10)
            assert runner.projection.view.symbols == ["A", "B"]


async def test_the_async_client_s_applications_are_called_in_threads(data_dir, workspace):
    """A call in the loop is an error; in a thread it works until its record is closed."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        app = record.application(Book)
        with pytest.raises(hansard.errors.SyncInLoop):
            app.open("ada")
        named = await asyncio.to_thread(app.open, "ada")
        async with record.run("w", agent="ada", role="writer") as session:
            assert (await session.get(Account, named)).balance == 100
    with pytest.raises(InterfaceError, match="closed"):
        await asyncio.to_thread(app.open, "bob")


class _Declared:
    def __enter__(self) -> None:
        hansard.value_type(
            EmailAddress,
            tag="test.email.v1",
            encode=lambda one: one.address,
            decode=EmailAddress,
            same=lambda one, other: one.address == other.address,
        )
        hansard.aggregate_type(
            BankAccount,
            name="bank-account",
            events={
                "opened.v1": "Opened",
                "appended.v1": "TransactionAppended",
                "limit-set.v1": "OverdraftLimitSet",
                "closed.v1": "Closed",
            },
        )

    def __exit__(self, *_: object) -> None:
        aggregate_types._BY_NAME.pop("bank-account")
        aggregate_types._BY_CLASS.pop(BankAccount)


@pytest.fixture
def example(record: Record) -> Iterator[None]:
    """Yield the environment in which the library's example application is made."""
    with patch.dict(os.environ, record.application_env()), _Declared():
        yield


@pytest.mark.usefixtures("example")
class TestExampleApplication(application.ExampleApplicationTestCase):
    """The library's own test of its example application, unmodified."""

    expected_factory_topic = "hansard.state.native:NativeFactory"
