"""Rules that the library's test classes do not state: undeclared events, limits, forks, doubt."""

import os
import time
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, cast
from uuid import UUID, uuid4

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import (
    DataError,
    InfrastructureFactoryError,
    InterfaceError,
    JSONTranscoder,
    StoredEvent,
)
from eventsourcing.tests.application import BankAccounts

import hansard
from hansard.broker.lease import peek
from hansard.bus.portal import portal
from hansard.domain import aggregate_types
from hansard.domain.errors import BadValue
from hansard.state.native import NativeApplicationRecorder, NativeMapper, OutcomeUnknown, Place
from tests.aggregates.book import Account
from tests.bus.brokers import CLOCK, running

pytestmark = pytest.mark.later

MODULE = "hansard.ext.eventsourcing"


class Dog(Aggregate):
    @event("Registered")
    def __init__(self, name: str) -> None:
        self.name = name

    @event("Renamed")
    def rename(self, name: str) -> None:
        """Give it another name."""
        self.name = name


class Kennel(Application[UUID]):
    env: ClassVar[dict[str, str]] = {"UNDECLARED": "store"}


class Shelter(Kennel):
    """The same under another name."""


def events(count: int = 1, state: bytes = b"state", first: int = 1) -> list[StoredEvent]:
    """Stored events of one new aggregate."""
    originator_id = uuid4()
    return [StoredEvent(originator_id, first + i, "topic", state) for i in range(count)]


def names(app: Application[UUID]) -> list[str]:
    """Return the names of the dogs that an application's notifications are about."""
    events: list[Any] = [app.mapper.to_domain_event(e) for e in app.notification_log.select(1, 10)]
    return [each.name for each in events]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of an application that opens its own record."""
    return {
        "PERSISTENCE_MODULE": MODULE,
        "HANSARD_DATA_DIR": str(tmp_path / "data"),
        "UNDECLARED": "store",
    }


def test_undeclared_events_are_refused_unless_the_environment_takes_them(record: hansard.Record):
    """The mapper and the recorder both refuse, and say how to declare or store them."""
    with record.application(Application[UUID]) as app:
        with pytest.raises(BadValue, match=r"declare it: .*UNDECLARED=store"):
            app.save(Dog("Fido"))
        with pytest.raises(DataError, match="declare it"):
            app.recorder.insert_events(events())
        assert app.recorder.max_notification_id() is None
    with pytest.raises(InfrastructureFactoryError, match="'refuse' or 'store'"):
        record.application(Application[UUID], env={"UNDECLARED": "yes"})


def test_undeclared_events_of_applications_on_one_record_do_not_mix(record: hansard.Record):
    """Each application is notified of its own; SQL shows topic and bytes, and `check` passes."""
    with record.application(Kennel) as one, record.application(Shelter) as other:
        fido = Dog("Fido")
        one.save(fido)
        other.save(Dog("Rex"))
        assert (names(one), names(other)) == (["Fido"], ["Rex"])
        assert one.repository.get(fido.id) == fido
    rows = record.sql("SELECT aggregate, state->>'topic' FROM domain_events ORDER BY position").rows
    assert tuple(rows[0]) == ("(undeclared)", f"{__name__}:Dog.Registered")


def test_events_that_were_stored_undeclared_are_read_once_their_class_is_declared(record):
    """Later events are stored as declared."""
    with record.application(Kennel) as app:
        dog = Dog("Fido")
        app.save(dog)
        tags = {"dog-registered.v1": "Registered", "dog-renamed.v1": "Renamed"}
        hansard.aggregate_type(Dog, name="kennel-dog", events=tags)
        try:
            dog = cast("Dog", app.repository.get(dog.id))
            dog.rename("Rex")
            app.save(dog)
            assert app.repository.get(dog.id) == dog
        finally:
            aggregate_types._BY_NAME.pop("kennel-dog")
            aggregate_types._BY_CLASS.pop(Dog)
    rows = record.sql("SELECT aggregate, tag FROM domain_events ORDER BY version").rows
    assert [tuple(row) for row in rows] == [
        ("(undeclared)", "stored.v1"),
        ("kennel-dog", "dog-renamed.v1"),
    ]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (events(1_001), "1,001 events .* the limit is 1,000"),
        ([StoredEvent("\udc80", 1, "topic", b"")], "aggregate id"),
        ([StoredEvent(cast("Any", 7), 1, "topic", b"")], "aggregate id"),
        ([StoredEvent(uuid4(), 1, "topic", cast("Any", "text"))], "bytes"),
    ],
    ids=["number", "surrogate", "id", "text"],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_sent(record, batch, message):
    """Nothing is stored, and the recorder continues."""
    with record.application(Kennel) as app:
        with pytest.raises(DataError, match=message):
            app.recorder.insert_events(batch)
        assert app.recorder.max_notification_id() is None
        assert len(app.recorder.insert_events(events(3))) == 3


def test_large_states_and_versions_from_zero_come_back(record: hansard.Record):
    """A large state is a blob; the library may count from 0."""
    with record.application(Kennel) as app:
        batch = events(3, os.urandom(300_000), first=0)
        app.recorder.insert_events(batch[:1])
        app.recorder.insert_events(batch[1:])
        named = batch[0].originator_id
        assert app.recorder.select_events(named) == batch
        assert app.recorder.select_events(named, gt=0, lte=1) == batch[1:2]
        assert [e.state for e in app.recorder.select_notifications(1, 9)] == [batch[0].state] * 3


def test_an_application_keeps_its_state_with_nothing_but_the_environment(environment):
    """Closing it lets go of the embedded server, which then ends."""
    with BankAccounts(env=environment) as bank:
        account = bank.open_account("Alice", "alice@example.com")
        bank.credit_account(account, Decimal("10.50"))
    data, deadline = Path(environment["HANSARD_DATA_DIR"]), time.monotonic() + 60
    while peek(data) is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert peek(data) is None
    with BankAccounts(env=environment) as bank:
        assert bank.get_balance(account) == Decimal("10.50")
    with pytest.raises(InterfaceError, match="closed"):
        bank.get_balance(account)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_must_make_the_application_again(environment):
    """It does not wait for the parent's thread; a new application of its own works."""
    with Kennel(env=environment) as app:
        app.save(Dog("Fido"))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    app.save(Dog("Rex"))
                except InterfaceError as error:
                    code = 2 if "forked" not in str(error) else 0
                if code == 0:
                    Kennel(env=environment).save(Dog("Rex"))
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert names(app) == ["Fido", "Rex"]


def test_no_answer_is_an_unknown_outcome(tmp_path: Path):
    """The error is an OperationalError and says that the events may be stored."""
    with running(tmp_path) as nats:
        opening = nats.log(append_timeout_s=1.0, request_timeout_s=0.2)
        log = portal().run(opening)
        place = Place(log, log.blobs, CLOCK, portal().loop)
        recorder, batch = NativeApplicationRecorder(place), Account("ada").collect_events()
        nats.freeze()
        try:
            with pytest.raises(OutcomeUnknown, match="may be stored or not"):
                recorder.insert_events([NativeMapper(JSONTranscoder()).to_stored_event(*batch)])
        finally:
            nats.go_on()
        portal().run(log.close())
