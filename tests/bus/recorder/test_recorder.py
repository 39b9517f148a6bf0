"""What the library's test classes do not ask: kills, several processes, limits, restarts."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

import msgspec
import pytest
from eventsourcing.persistence import (
    DataError,
    IntegrityError,
    InterfaceError,
    InternalError,
    OperationalError,
    StoredEvent,
    Tracking,
)
from eventsourcing.utils import Environment

import hansard
from hansard.bus import subjects
from hansard.bus.jetstream._known import Known
from hansard.bus.jetstream.calls import api, publish
from hansard.bus.jetstream.options import BrokerOptions
from hansard.bus.portal import portal
from hansard.bus.recorder import (
    Factory,
    JetStreamApplicationRecorder,
    JetStreamProcessRecorder,
    OutcomeUnknown,
    _wire,
)
from hansard.bus.recorder._access import Access
from hansard.bus.recorder._datastore import Datastore
from hansard.bus.server.lease import peek
from tests.bus.brokers import Nats
from tests.faults._warm import python

pytestmark = pytest.mark.later

SOURCES = str(Path(hansard.__file__).parents[1])
KILLS = 3
WAIT_S = 60.0
"""Longest wait for what is to come."""

Events = list[StoredEvent]
Kind = TypeVar("Kind", bound=JetStreamApplicationRecorder)


def events(count: int = 1, originator_id: UUID | None = None, state: bytes = b"state") -> Events:
    """Stored events of one aggregate."""
    originator_id = originator_id or uuid4()
    return [StoredEvent(originator_id, 1 + i, "topic", state) for i in range(count)]


def script(text: str, *arguments: str, **variables: str) -> str:
    """What a Python process of its own prints; it is told of no broker but by the variables."""
    kept = {key: value for key, value in os.environ.items() if "NATS" not in key}
    return subprocess.run(
        [python(), "-c", text, *arguments],
        env={**kept, "PYTHONPATH": SOURCES, **variables},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=170,
    ).stdout


def impatient(server: Nats, kind: type[Kind], **options: float) -> Kind:
    """A recorder that soon asks again, on a stream of its own that one with patience made."""
    name = uuid4().hex
    patient = Datastore(Access(server.options("admin"), Path(), None))
    kind(patient, name).create_table()
    patient.close()
    soon = server.options("admin", request_timeout_s=0.2, **options)
    recorder = kind(Datastore(Access(soon, Path(), None)), name)
    while True:  # a busy server, too, has answered it once
        with contextlib.suppress(OperationalError):
            recorder.select_events(uuid4())
            return recorder


# ------------------------------------------------------------ kills and lost answers


@pytest.mark.slow
def test_a_killed_server_loses_no_acknowledged_event_and_leaves_no_half_batch(server, factory_of):
    """Whatever `insert_events` returned is there, at the ids it returned; nothing else is."""
    recorder = factory_of().application_recorder()
    acknowledged: dict[UUID | str, Sequence[int]] = {}
    failures: list[Exception] = []
    over = threading.Event()

    def write(size):
        while not over.is_set():
            batch = events(size)
            try:
                acknowledged[batch[0].originator_id] = recorder.insert_events(batch)
            except Exception as error:
                failures.append(error)
                raise

    chance = random.Random(8)
    with ThreadPoolExecutor(4) as pool:
        for size in (1, 1, 7, 40):
            pool.submit(write, size)
        for _ in range(KILLS):
            time.sleep(chance.uniform(0.2, 0.6))
            server.kill()
            server.start()
        time.sleep(0.3)
        over.set()

    assert not failures
    stored = recorder.select_notifications(None, 1_000_000)
    assert [each.id for each in stored] == list(range(1, len(stored) + 1))
    found: dict[UUID | str, list[int]] = {}
    for each in stored:
        found.setdefault(each.originator_id, []).append(each.id)
    assert found == acknowledged
    assert {len(ids) for ids in found.values()} == {1, 7, 40}


@pytest.mark.parametrize("count", [1, 3])
def test_an_insert_whose_answer_was_lost_is_recognised(server, count):
    """Sent again after a silence, it is found to be stored, and is stored once."""
    recorder = impatient(server, JetStreamApplicationRecorder, append_timeout_s=30.0)
    batch = events(count)
    server.freeze()
    try:
        with ThreadPoolExecutor(1) as pool:
            inserting = pool.submit(recorder.insert_events, batch)
            time.sleep(1.0)  # several requests time out; the server will still read them
            assert not inserting.done()
            server.process.send_signal(signal.SIGCONT)
            assert inserting.result(WAIT_S) == list(range(1, count + 1))
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert recorder.select_events(batch[0].originator_id) == batch
    with pytest.raises(IntegrityError, match="already recorded"):
        recorder.insert_events(batch)
    recorder.datastore.close()


@pytest.mark.slow
def test_a_tracked_insert_whose_answer_was_lost_is_recognised(server):
    """Its own tracking record does not make the second sending a conflict."""
    recorder = impatient(server, JetStreamProcessRecorder)
    server.freeze()
    try:
        with ThreadPoolExecutor(2) as pool:
            both = pool.submit(recorder.insert_events, events(2), tracking=Tracking("up", 5))
            alone = pool.submit(recorder.insert_tracking, Tracking("other", 6))
            time.sleep(1.0)
            server.process.send_signal(signal.SIGCONT)
            ids = both.result(20)
            alone.result(20)
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert [each.id for each in recorder.select_notifications(None, 10)] == ids
    assert (recorder.max_tracking_id("up"), recorder.max_tracking_id("other")) == (5, 6)
    recorder.datastore.close()


def test_no_answer_at_all_is_told_as_an_unknown_outcome(server):
    """The error says that the events may be stored or not; it is an OperationalError."""
    recorder = impatient(server, JetStreamApplicationRecorder, append_timeout_s=1.0)
    batch = events()
    server.freeze()
    try:
        with pytest.raises(OutcomeUnknown, match=r"unknown.* may be stored or nothing") as caught:
            recorder.insert_events(batch)
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert isinstance(caught.value, OperationalError)
    assert caught.value.waited_s >= 1.0
    # This server only slept: what it was sent is stored once it wakes up.
    deadline = time.monotonic() + WAIT_S
    while not recorder.select_events(batch[0].originator_id) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert recorder.select_events(batch[0].originator_id) == batch
    recorder.datastore.close()


def test_no_server_is_an_operational_error_with_the_address():
    """Nothing was sent, the error says where nobody answered, and nothing goes on trying."""
    before = _tasks()
    options = BrokerOptions(urls=("nats://127.0.0.1:9",), connect_timeout_s=0.5)
    recorder = JetStreamApplicationRecorder(Datastore(Access(options, Path(), None)), "app")
    with pytest.raises(OperationalError, match=r"127\.0\.0\.1:9"):
        recorder.insert_events(events())
    assert not {task for task in _tasks() - before if not task.done()}
    recorder.datastore.close()


# ------------------------------------------------------------ several writers

RACER = """
import os, sys
from uuid import UUID
from eventsourcing.persistence import IntegrityError, StoredEvent
from hansard.bus.recorder import Factory
factory = Factory(dict(os.environ))
recorder = factory.application_recorder()
print("ready", flush=True)
sys.stdin.readline()
won = []
for version in range(1, int(sys.argv[2]) + 1):
    try:
        recorder.insert_events([StoredEvent(UUID(sys.argv[1]), version, "t", sys.argv[3].encode())])
        won.append(version)
    except IntegrityError:
        pass
factory.close()
print(*won)
"""


@pytest.mark.thorough(
    quick="tests/bus/recorder/test_recorder.py::test_of_many_threads_one_tracks_a_notification"
)
def test_of_two_processes_one_wins_each_version(variables):
    """Each version of an aggregate is stored once, by the process that was told so."""
    originator_id, versions = uuid4(), 150
    command = [python(), "-c", RACER, str(originator_id), str(versions)]
    racers = {
        name: subprocess.Popen(
            [*command, name],
            env={**os.environ, "PYTHONPATH": SOURCES, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("a", "b")
    }
    for racer in racers.values():
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    with ThreadPoolExecutor(2) as pool:
        said = {name: pool.submit(racer.communicate, "go\n", 60) for name, racer in racers.items()}
    told = {name: each.result()[0].split() for name, each in said.items()}
    factory = Factory(variables)
    stored = factory.aggregate_recorder().select_events(originator_id)
    factory.close()
    assert [event.originator_version for event in stored] == list(range(1, versions + 1))
    winners = {event.originator_version: event.state.decode() for event in stored}
    assert {name: [int(v) for v in won] for name, won in told.items()} == {
        name: [version for version, winner in winners.items() if winner == name] for name in "ab"
    }


def test_a_tracking_record_is_refused_unless_it_is_the_latest_of_all_writers(factory_of):
    """What one recorder remembers of its own never lets an older position in."""
    first, second = factory_of().process_recorder(), factory_of().process_recorder()
    first.insert_tracking(Tracking("up", 1))
    second.insert_events(events(), tracking=Tracking("up", 2))
    first.insert_events(events(), tracking=Tracking("up", 3))
    for recorder, late in ((second, 3), (first, 2), (second, 1)):
        with pytest.raises(IntegrityError, match="processed before"):
            recorder.insert_events(events(), tracking=Tracking("up", late))
    second.insert_tracking(Tracking("up", 5))
    with pytest.raises(IntegrityError, match="5 was processed before"):
        first.insert_tracking(Tracking("up", 4))  # the newest that `first` remembers is 3
    assert first.max_tracking_id("up") == 5
    assert len(second.select_notifications(None, 10)) == 2


def test_of_many_threads_one_tracks_a_notification(factory_of):
    """Exactly-once processing: the losers' events are not stored."""
    recorders = [factory_of().process_recorder() for _ in range(2)]

    def process(number):
        try:
            recorders[number % 2].insert_events(events(), tracking=Tracking("up", number // 6 + 1))
        except IntegrityError:
            return 0
        return 1

    with ThreadPoolExecutor(6) as pool:
        won = sum(pool.map(process, range(60)))
    stored = recorders[0].select_notifications(None, 100)
    assert len(stored) == won
    assert 1 <= won <= 10
    assert recorders[1].max_tracking_id("up") == 10


# ------------------------------------------------------------ limits


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (events(state=b"x" * 1024 * 1024), r"1,048,\d{3} bytes as a message"),
        (events(2, state=b"x" * (1024 * 1024 - 4096)), "the server takes 1,040,384"),
        (events(1_001), "1,001 records at once are more than the 1,000"),
        (events(20, state=b"x" * 500_000), "8,388,608 can be stored at once"),
        ([StoredEvent(uuid4(), 1, "topic", cast("Any", "text"))], "its state must be bytes"),
        ([StoredEvent("\udc80", 1, "topic", b"")], "cannot be stored"),
        ([StoredEvent(uuid4(), 2**70, "topic", b"")], "cannot be stored"),
        ([StoredEvent(cast("Any", 7), 1, "topic", b"")], "its id must be a UUID or text"),
    ],
    ids=["event", "event in a batch", "number", "sum", "text", "surrogate", "version", "id"],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_sent(factory_of, batch, said):
    """The error has the size and the limit; nothing is stored and the recorder goes on."""
    recorder = factory_of().application_recorder()
    with pytest.raises(DataError, match=said):
        recorder.insert_events(batch)
    assert recorder.max_notification_id() is None
    assert recorder.insert_events(events(3)) == [1, 2, 3]


def test_the_largest_events_that_are_taken_come_back(factory_of):
    """One just under the server's limit, and eight megabytes in one batch."""
    recorder = factory_of().application_recorder()
    one = events(state=os.urandom(1024 * 1024 - 9 * 1024))
    eight = events(16, state=os.urandom(512 * 1024 - 128))
    assert recorder.insert_events(one) == [1]
    assert recorder.insert_events(eight) == list(range(2, 18))
    assert recorder.select_events(one[0].originator_id) == one
    assert recorder.select_events(eight[0].originator_id) == eight
    assert len(recorder.select_notifications(None, 100)) == 17


# ------------------------------------------------------------ opening, closing, forking

APPLICATION = """
import sys
from decimal import Decimal
from uuid import UUID
from eventsourcing.tests.application import BankAccounts
with BankAccounts() as bank:
    if len(sys.argv) == 1:
        account = bank.open_account("Alice", "alice@example.com")
        bank.credit_account(account, Decimal("10.50"))
        bank.take_snapshot(account)
        bank.credit_account(account, Decimal("0.25"))
        print(account)
    else:
        account = UUID(sys.argv[1])
        print(bank.get_balance(account), len(list(bank.snapshots.get(account))),
              bank.recorder.max_notification_id())
"""


@pytest.mark.slow
def test_an_application_keeps_its_state_over_a_restart(tmp_path):
    """With nothing but the environment; the embedded server ends with its only user."""
    data = tmp_path / "data"
    variables = {"PERSISTENCE_MODULE": "hansard.bus.recorder", "HANSARD_DATA_DIR": str(data)}
    account = script(APPLICATION, **variables)
    deadline = time.monotonic() + WAIT_S
    while peek(data) is not None:
        assert time.monotonic() < deadline, "the embedded server outlived its only user"
        time.sleep(0.05)
    assert script(APPLICATION, account.strip(), **variables).split() == ["10.75", "1", "3"]


def test_closing_lets_go_of_the_embedded_broker(tmp_path):
    """After `close` its server ends, every recorder says so, and closing again changes nothing."""
    factory = Factory({"HANSARD_DATA_DIR": str(tmp_path / "data")})
    recorder = factory.application_recorder()
    recorder.insert_events(events())
    assert peek(tmp_path / "data") is not None
    factory.close()
    factory.close()
    with pytest.raises(InterfaceError, match="closed"):
        recorder.select_notifications(None, 1)
    deadline = time.monotonic() + WAIT_S
    while peek(tmp_path / "data") is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert peek(tmp_path / "data") is None


@pytest.mark.slow
def test_closing_ends_the_calls_of_other_threads(server):
    """Who waits for an answer is told that it will not come, and that an insert is in doubt."""
    recorder = impatient(server, JetStreamApplicationRecorder, append_timeout_s=30.0)
    server.freeze()
    try:
        with ThreadPoolExecutor(2) as pool:
            calls: list[Future[Any]] = [
                pool.submit(recorder.max_notification_id),
                pool.submit(recorder.insert_events, events()),
            ]
            time.sleep(0.2)
            began = time.monotonic()
            recorder.datastore.close()
            for call in calls:
                with pytest.raises(InterfaceError, match="may be stored or not"):
                    call.result()
            assert time.monotonic() - began < 20  # of the 30 that an insert is tried
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_a_factory_that_is_dropped_closes_its_connections(variables):
    """Applications are often not closed: the collector does it."""
    before = _tasks()
    recorder = Factory(variables).application_recorder()
    recorder.max_notification_id()
    assert _tasks() - before
    del recorder
    gc.collect()
    deadline = time.monotonic() + WAIT_S
    while (left := _tasks() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left


def _tasks() -> set[asyncio.Task[Any]]:
    """Return what runs on the process's loop: each connection has tasks of its own, which
    `asyncio.all_tasks` does not list.
    """
    found = (each for each in gc.get_objects() if isinstance(each, asyncio.Task))
    return {task for task in found if task.get_loop() is portal().loop and not task.done()}


async def test_a_recorder_may_be_called_inside_a_running_loop(factory_of):
    """It blocks that loop, as the library's other recorders do, and does not dead-lock."""
    recorder = factory_of().application_recorder()
    assert recorder.insert_events(events(2)) == [1, 2]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_opens_connections_of_its_own(factory_of):
    """Servers that fork after loading: parent and child both go on."""
    recorder = factory_of().application_recorder()
    recorder.insert_events(events())
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if recorder.insert_events(events(2)) == [2, 3] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert recorder.insert_events(events()) == [4]
    assert recorder.max_notification_id() == 4


# ------------------------------------------------------------ streams and settings


def test_without_its_stream_a_recorder_says_how_to_make_it(factory_of):
    """CREATE_TABLE=no makes nothing; once the stream is there, the same recorder works."""
    recorder = factory_of(CREATE_TABLE="no").application_recorder()
    began = time.monotonic()
    for ask in (lambda: recorder.insert_events(events()), recorder.max_notification_id):
        with pytest.raises(OperationalError, match=r"does not exist.*CREATE_TABLE"):
            ask()
    assert time.monotonic() - began < 20  # of the 30 that an insert is tried
    factory_of().application_recorder()
    assert recorder.insert_events(events()) == [1]


def test_a_stream_with_other_settings_is_refused(factory_of):
    """One that would store a version twice is never written to."""
    factory = factory_of(CREATE_TABLE="no")
    recorder = factory.application_recorder()
    config = recorder.place.config() | {"max_msgs_per_subject": 2}
    factory.datastore.run(lambda c: api(c.writes, f"STREAM.CREATE.{config['name']}", config))
    with pytest.raises(OperationalError, match="max_msgs_per_subject is 2, not 1"):
        recorder.insert_events(events())
    assert (
        factory.datastore.run(lambda c: api(c.writes, f"STREAM.INFO.{config['name']}"))["state"][
            "messages"
        ]
        == 0
    )


def test_names_never_share_a_stream():
    """Hostile names of applications, too: what differs is stored apart, in names NATS takes."""
    names = [
        "",
        "a",
        "a.b",
        "a b",
        "a*",
        ">",
        "a+events",
        "=",
        "é",
        "x" * 300,
        "X",
        "x",
        "a-events",
    ]
    streams = [subjects.recorder_stream(name, "events") for name in names]
    streams += [subjects.recorder_stream(name, "snapshots") for name in names]
    assert max(Counter(streams).values()) == 1
    assert not [name for name in streams if set(name) & set(" .*>/\\") or len(name) > 255]


def test_the_environment_of_the_application_decides(variables, monkeypatch):
    """Only what is given is read: the application's own variables, the common ones, Hansard's."""
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:9")
    name = f"Own{uuid4().hex}"
    own = {f"{name.upper()}_{key}": value for key, value in variables.items()}
    rest = {f"HANSARD_{key}": value for key, value in variables.items()}
    for given in (own | {"NATS_URL": "nats://127.0.0.1:9"}, rest):
        factory = Factory(Environment(name, given))
        assert factory.application_recorder().max_notification_id() is None
        factory.close()
    with pytest.raises(OSError, match="HANSARD_DURABILITY is 'sure'"):
        Factory({"HANSARD_DURABILITY": "sure"})


def test_a_user_without_rights_to_make_streams_can_use_them(factory_of):
    """Who runs an application need not be who sets it up."""
    humble = {"NATS_USER": "runtime", "NATS_PASSWORD": "runtime"}
    with pytest.raises(OperationalError, match="permissions violation"):
        factory_of(**humble).application_recorder()
    factory_of().application_recorder()
    recorder = factory_of(**humble).application_recorder()
    assert recorder.insert_events(events(2)) == [1, 2]
    with pytest.raises(OperationalError, match="Authorization Violation"):
        factory_of(NATS_PASSWORD="wrong").application_recorder()


# ------------------------------------------------------------ the stored form

GOLDEN = bytes.fromhex(
    "9701c410000102030405060708090a0b0c0d0e0f"
    "d92430313233343536372d383961622d636465662d303132332d343536373839616263646566"
    "c302aa6d6f643a437265646974c4047b22780a"
)


def test_the_stored_form_never_changes():
    """Bytes written by the first version are what is written and read today."""
    mark = bytes(range(16))
    originator_id = UUID("01234567-89ab-cdef-0123-456789abcdef")
    event = StoredEvent(originator_id, 2, "mod:Credit", b'{"x\n')
    subject = f"p.n.e.event.{originator_id}.2"
    body = _wire.event_body(event, mark)
    assert body == GOLDEN
    assert _wire.event_subject("p.n.e", event) == subject
    assert _wire.stored_event("p.n.e", subject, GOLDEN) == event
    assert _wire.tracking_body(Tracking("up", 7), mark) == bytes.fromhex(
        "9401c410000102030405060708090a0b0c0d0e0fa2757007"
    )


def test_a_message_that_is_not_its_subject_s_is_refused(factory_of):
    """Whoever writes into the stream by hand is noticed when it is read."""
    factory = factory_of()
    recorder = factory.application_recorder()
    [event] = events()
    prefix = recorder.place.prefix
    newer = msgspec.msgpack.encode((9, b"m", "x", False, 1, "t", b""))
    for version, body in ((5, _wire.event_body(event, b"m")), (6, b"text"), (7, newer)):
        subject = f"{prefix}.event.{event.originator_id}.{version}"
        factory.datastore.run(lambda c, s=subject, b=body: publish(c.writes, s, b, b"", Known()))
        with pytest.raises(InternalError, match=rf"\.{version}'"):
            recorder.select_events(event.originator_id, gt=version - 1)
