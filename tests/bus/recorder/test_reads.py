"""Reading and following: as the library's in-memory recorder does, at any size."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from uuid import UUID, uuid4

import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import InterfaceError, StoredEvent, Tracking
from eventsourcing.popo import POPOApplicationRecorder
from eventsourcing.system import NewMultiThreadedRunner, ProcessApplication, System
from eventsourcing.utils import Environment
from hypothesis import given, settings
from hypothesis import strategies as st

from hansard.bus.recorder import Factory
from tests.conftest import THOROUGH

pytestmark = pytest.mark.later

IDS = [UUID(int=1), UUID(int=2), "text id", "a.b c*>", "é" * 60, ""]
BOUND = st.none() | st.integers(-1, 8)


@pytest.fixture(scope="module")
def recorder_of(variables):
    """An application recorder on a stream of its own."""
    made = []

    def make():
        made.append(Factory(Environment(uuid4().hex, variables)))
        return made[-1].application_recorder()

    yield make
    for factory in made:
        factory.close()


def event_of(
    originator_id: UUID | None = None,
    version: int = 1,
    topic: str = "topic",
    state: bytes = b"state",
) -> StoredEvent:
    """One stored event."""
    return StoredEvent(originator_id or uuid4(), version, topic, state)


inserts = st.lists(
    st.lists(
        st.tuples(st.sampled_from(IDS), st.sampled_from(["t", "u", "é"]), st.binary(max_size=40)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=6,
)
ranges = st.lists(
    st.tuples(st.sampled_from(IDS), BOUND, BOUND, st.booleans(), st.none() | st.integers(1, 4)),
    min_size=1,
    max_size=4,
)
pages = st.lists(
    st.tuples(BOUND, st.integers(1, 9), BOUND, st.sets(st.sampled_from("tué")), st.booleans()),
    min_size=1,
    max_size=4,
)


@pytest.mark.slow
@settings(max_examples=25 if THOROUGH else 12)
@given(inserts=inserts, ranges=ranges, pages=pages)
def test_every_read_is_as_the_in_memory_recorder_s(recorder_of, inserts, ranges, pages):
    """The law: after the same inserts, the same questions have the same answers."""
    ours, theirs = recorder_of(), POPOApplicationRecorder()
    versions = dict.fromkeys(IDS, 0)
    for insert in inserts:
        batch = []
        for originator_id, topic, state in insert:
            versions[originator_id] += 1
            batch.append(StoredEvent(originator_id, versions[originator_id], topic, state))
        assert ours.insert_events(batch) == theirs.insert_events(batch)
    for originator_id, gt, lte, desc, limit in ranges:
        asked = {"gt": gt, "lte": lte, "desc": desc, "limit": limit}
        expected = theirs.select_events(originator_id, **asked)
        assert ours.select_events(originator_id, **asked) == expected
    for start, limit, stop, topics, inclusive in pages:
        told = [
            each.select_notifications(
                start, limit, stop, sorted(topics), inclusive_of_start=inclusive
            )
            for each in (ours, theirs)
        ]
        assert told[0] == told[1]
    assert ours.max_notification_id() == theirs.max_notification_id()


@pytest.mark.thorough(
    quick="tests/bus/recorder/test_reads.py::test_pages_that_the_server_cuts_for_their_size_are_read_on"
)
def test_an_aggregate_may_have_more_events_than_one_request_returns(recorder_of):
    """JetStream answers at most 1,024 subjects at once; nobody notices."""
    recorder, originator_id = recorder_of(), uuid4()
    stored = [event_of(originator_id, version) for version in range(2_500)]
    for start in range(0, len(stored), 1_000):
        recorder.insert_events(stored[start : start + 1_000])
    assert recorder.select_events(originator_id) == stored
    assert recorder.select_events(originator_id, desc=True, limit=2) == stored[:-3:-1]
    assert recorder.select_events(originator_id, gt=1_200, lte=2_300) == stored[1_201:2_301]
    assert [each.id for each in recorder.select_notifications(None, 2_400)] == [*range(1, 2_401)]
    assert [each.id for each in recorder.select_notifications(2_000, 9_999)] == [
        *range(2_000, 2_501)
    ]


def test_pages_that_the_server_cuts_for_their_size_are_read_on(recorder_of):
    """Thirty large events are more than one answer holds."""
    recorder = recorder_of()
    stored = [event_of(state=bytes([number]) * 700_000) for number in range(30)]
    for each in stored:
        recorder.insert_events([each])
    told = recorder.select_notifications(None, 100)
    assert [each.state[:1] for each in told] == [each.state[:1] for each in stored]


def test_the_highest_version_is_found_though_it_was_not_stored_last(recorder_of):
    """Snapshots may be taken of an earlier version after a later one."""
    recorder, originator_id = recorder_of(), uuid4()
    for version in (10, 9, 2):
        recorder.insert_events([event_of(originator_id, version)])
    newest = recorder.select_events(originator_id, desc=True, limit=1)
    every = recorder.select_events(originator_id)
    assert [each.originator_version for each in newest] == [10]
    assert [each.originator_version for each in every] == [2, 9, 10]


def test_tracking_records_are_no_notifications(factory_of):
    """They take ids, which are then missing; no page, no maximum and no subscription shows them."""
    recorder = factory_of().process_recorder()
    for number in range(1, 6):
        recorder.insert_tracking(Tracking("up", number))
    assert recorder.max_notification_id() is None
    recorder.insert_events([event_of(topic="first")], tracking=Tracking("up", 6))
    recorder.insert_tracking(Tracking("up", 7))
    [ids] = [recorder.insert_events([event_of(), event_of()])]
    recorder.insert_tracking(Tracking("up", 8))
    assert recorder.max_notification_id() == ids[-1]
    assert len(recorder.select_notifications(None, 2)) == 2
    assert len(recorder.select_notifications(1, 99)) == 3
    with recorder.subscribe(topics=["first", "topic"]) as subscription:
        assert [each.topic for each in islice(subscription, 3)] == ["first", "topic", "topic"]


# ------------------------------------------------------------ subscriptions


def test_a_subscription_has_no_gap_and_no_repeat_over_a_kill(server, recorder_of):
    """The server is killed twice while one thread writes and another follows."""
    recorder, wanted = recorder_of(), 900

    def write():
        for number in range(wanted // 3):
            recorder.insert_events([event_of() for _ in range(3 if number % 10 == 0 else 1)])
        return recorder.max_notification_id()

    with ThreadPoolExecutor(1) as pool, recorder.subscribe() as subscription:
        writing = pool.submit(write)
        seen = [next(subscription).id]
        for pause in (0.1, 0.3):
            time.sleep(pause)
            server.kill()
            server.start()
        last = writing.result(60)
        while seen[-1] < last:
            seen.append(next(subscription).id)
    assert seen == [*range(1, last + 1)]


def test_a_subscription_outlives_a_connection_that_was_given_up(recorder_of):
    """The client closes for good after some errors; another connection takes over."""
    recorder = recorder_of()
    recorder.insert_events([event_of()])
    with recorder.subscribe() as subscription, ThreadPoolExecutor(1) as pool:
        assert next(subscription).id == 1
        recorder.datastore.run(lambda connections: connections.reads._nc.close())
        recorder.insert_events([event_of(), event_of()])
        assert pool.submit(lambda: [next(subscription).id for _ in range(2)]).result(20) == [2, 3]


def test_a_slow_reader_gets_everything(recorder_of):
    """More is stored than waits in memory; what waits at the server comes later."""
    recorder = recorder_of()
    for _ in range(5):
        recorder.insert_events([event_of() for _ in range(1_000)])
    with recorder.subscribe(gt=10) as subscription:
        time.sleep(0.5)
        seen = [each.id for each in islice(subscription, 4_990)]
    assert seen == [*range(11, 5_001)]


def test_a_subscription_after_the_end_waits_for_what_comes_later(recorder_of):
    """`gt` may name an id that is not given yet: what is up to it is left out."""
    recorder = recorder_of()
    recorder.insert_events([event_of()])
    with recorder.subscribe(gt=3) as subscription, ThreadPoolExecutor(1) as pool:
        first = pool.submit(next, subscription)
        for _ in range(4):
            recorder.insert_events([event_of()])
        assert first.result(10).id == 4


def test_a_waiting_reader_is_ended_by_stop_and_by_close(factory_of):
    """`stop` in another thread ends the iteration; closing the factory does so with an error."""
    factory = factory_of()
    recorder = factory.application_recorder()
    subscription = recorder.subscribe()
    ended = threading.Timer(0.2, subscription.stop)
    ended.start()
    assert list(subscription) == []
    assert list(subscription) == []
    waiting = recorder.subscribe()
    closing = threading.Timer(0.2, factory.close)
    closing.start()
    for _ in range(2):
        with pytest.raises(InterfaceError, match="closed"):
            next(waiting)
    closing.join()


# ------------------------------------------------------------ the library's own machinery


class Counted(Aggregate):
    """Counts."""

    class Started(Aggregate.Created):
        """It began."""

    @event(Started)
    def __init__(self) -> None:
        self.count = 0

    @event("Added")
    def add(self) -> None:
        """One more."""
        self.count += 1


class Orders(Application[UUID]):
    """Upstream."""

    def order(self) -> UUID:
        """A new aggregate with two events."""
        aggregate = Counted()
        aggregate.add()
        self.save(aggregate)
        return aggregate.id


class Doubles(ProcessApplication[UUID]):
    """Downstream: answers each start with an aggregate of its own."""

    def policy(self, domain_event, processing_event):
        """One for each that began."""
        if isinstance(domain_event, Counted.Started):
            processing_event.collect_events(Counted())


def test_a_system_processes_each_event_once(variables):
    """The library's multi-threaded runner, over two applications with streams of their own."""
    runner: NewMultiThreadedRunner[UUID] = NewMultiThreadedRunner(
        System(pipes=[[Orders, Doubles]]), variables
    )
    with runner:
        orders, doubles = runner.get(Orders), runner.get(Doubles)
        for _ in range(20):
            orders.order()
        doubles.recorder.wait("Orders", orders.recorder.max_notification_id(), timeout=30)
        made = doubles.recorder.select_notifications(None, 100)
        assert len(made) == 20
        assert doubles.recorder.max_tracking_id("Orders") == 40
