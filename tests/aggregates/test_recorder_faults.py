"""Faults during saves of the eventsourcing library's applications: kills, lost and doubled answers,
lagging servers.
"""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from eventsourcing.persistence import StoredEvent

from hansard.bus.clock import Clock
from hansard.bus.jetstream import JetStreamLog, open_log
from hansard.bus.portal import portal
from hansard.bus.subjects import log_stream
from hansard.state.native import STEP, NativeApplicationRecorder, Place
from tests.aggregates.programs.saving import Book
from tests.bus import brokers, cluster
from tests.bus.ack_relay import AckRelay, Repeat
from tests.bus.brokers import Nats
from tests.faults.support import Stage

pytestmark = [pytest.mark.later, pytest.mark.slow]

SAVING = Path(__file__).with_name("programs") / "saving.py"
ORDERS = 2
KILLS = 3
BEGUN_S_MAX = 60.0


def events(count: int = 1, named: Any = None, first: int = 1) -> list[StoredEvent]:
    """Stored events of one aggregate."""
    named = named or uuid4()
    return [StoredEvent(named, first + i, "topic", b"state") for i in range(count)]


@contextmanager
def recorder_of(log: JetStreamLog) -> Iterator[NativeApplicationRecorder]:
    """Yield a recorder over a log of the portal's loop, which is closed at the end."""
    loop = portal().loop
    try:
        yield NativeApplicationRecorder(Place(log, log.blobs, Clock(), loop), is_open=True)
    finally:
        portal().run(log.close())


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    """Yield a server of the test's own."""
    with brokers.running(tmp_path / "nats") as server:
        yield server


def check(stage: Stage, owner: str) -> int:
    """Check that orders and payments come in pairs; return the number of an owner's orders."""
    book = stage.record.application(Book)
    notes = book.recorder.select_notifications(None, 1_000)
    assert [each.id for each in notes] == sorted({each.id for each in notes})
    placed = {each.originator_id for each in notes if each.topic.endswith("Order.Placed")}
    payments = Counter(each.originator_id for each in notes if each.topic.endswith("Account.Paid"))
    account = book.account(owner)
    orders = account.orders
    assert placed.issuperset(orders)
    assert len(placed) == payments.total()
    assert len(set(orders)) == len(orders) == payments[account.id]
    assert account.balance == 100 - sum(range(1, len(orders) + 1))
    return len(orders)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_program_killed_amid_a_save_leaves_all_of_it_or_nothing(stage: Stage, when: str):
    """SIGKILL before or after each append of an application: an order and its payment are both
    there or neither is; started again, it has placed each order once.
    """
    number = 1
    while True:
        owner = f"{when}-{number}"
        stage.begin(owner)
        arguments: dict[str, Any] = {"owner": owner, "orders": ORDERS}
        child = stage.start(SAVING, number=number, when=when, **arguments)
        deadline = time.monotonic() + BEGUN_S_MAX
        while not Path(child.job.marker).exists() and child.process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if child.process.poll() is not None:  # it has fewer appends than that
            assert child.end().results == ORDERS
            break
        child.kill()
        assert check(stage, owner) <= ORDERS
        report = stage.go_on(SAVING, **arguments)
        assert (report.error, report.results) == ("", ORDERS), report.message
        assert check(stage, owner) == ORDERS
        number += 1
    assert number == ORDERS + 2  # one append opens the account


def test_a_killed_server_loses_no_acknowledged_event(nats: Nats):
    """Each event has the id that `insert_events` returned and is complete; there are no others."""
    acknowledged: dict[Any, list[int]] = {}
    over = threading.Event()

    def write(recorder: NativeApplicationRecorder, size: int) -> None:
        while not over.is_set():
            batch = events(size)
            acknowledged[batch[0].originator_id] = list(recorder.insert_events(batch) or ())

    chance = random.Random(8)
    with recorder_of(portal().run(nats.log())) as recorder:
        with ThreadPoolExecutor(3) as pool:
            writing = [pool.submit(write, recorder, size) for size in (1, 7, 40)]
            for _ in range(KILLS):
                time.sleep(chance.uniform(0.2, 0.6))
                nats.kill()
                nats.start()
            time.sleep(0.3)
            over.set()
        for each in writing:
            each.result()
        notified: dict[Any, list[int]] = {}
        for note in recorder.select_notifications(None, 1_000_000):
            notified.setdefault(note.originator_id, []).append(note.id)
    assert notified == acknowledged
    assert {len(ids) for ids in notified.values()} == {1, 7, 40}


def test_later_notifications_are_selected_too(nats: Nats):
    """A recorder keeps events that it has read ahead, and reads later ones from the log."""
    with recorder_of(portal().run(nats.log())) as recorder:
        for count in range(1, 4):
            recorder.insert_events(events())
            assert len(recorder.select_notifications(None, 100)) == count


@pytest.mark.parametrize("repeat", [*Repeat])
def test_a_doubled_acknowledgement_is_not_taken_for_the_next_save(nats: Nats, repeat: Repeat):
    """Each save that was reported is read back, once, at the id that was returned."""
    relay = AckRelay(nats.port)
    options = msgspec.structs.replace(
        nats.options(request_timeout_s=0.4), urls=(f"nats://127.0.0.1:{relay.port}",)
    )
    log = portal().run(open_log(options, "lab", "strict", admin=nats.options("admin")))
    named = uuid4()
    try:
        with recorder_of(log) as recorder:
            ids = list(recorder.insert_events(events(1, named)) or ())
            relay.arm("hansard.lab.", repeat)
            for version in range(2, 6):
                ids += recorder.insert_events(events(1, named, version)) or ()
            notes = recorder.select_notifications(None, 100)
    finally:
        relay.close()
    assert relay.dropped == 1
    assert [(each.id, each.originator_version) for each in notes] == list(
        zip(ids, range(1, 6), strict=True)
    )


def test_a_replica_that_lagged_gives_what_was_acknowledged(tmp_path: Path):
    """Over a follower that was stopped while another connection saved: the events of an aggregate
    and the notifications up to the newest are whole.
    """
    with cluster.running(tmp_path / "cluster") as servers:
        asyncio.run(servers.elected())
        leader, follower = portal().run(_parted(servers))
        named = uuid4()
        with (
            recorder_of(portal().run(servers.log("lab", first=leader))) as writer,
            recorder_of(portal().run(servers.log("lab", first=follower))) as reader,
        ):
            writer.insert_events(events(1, named))
            assert len(reader.select_events(named)) == 1
            for version in range(2, 32, 10):
                follower.freeze()
                ids = writer.insert_events(events(10, named, version))
                with ThreadPoolExecutor(2) as pool:
                    selecting = pool.submit(reader.select_events, named)
                    noting = pool.submit(reader.select_notifications, None, 1_000)
                    time.sleep(0.02)  # they are in flight, and wait in its socket
                    follower.go_on()
                    assert len(selecting.result()) == version + 9
                    newest = noting.result()[-1].id
                assert newest == (ids or [0])[-1]
                assert newest % STEP == 9


async def _parted(servers: cluster.Cluster) -> tuple[cluster.Member, cluster.Member]:
    """Return the leader of a workspace's stream, and a follower."""
    log = await servers.log("lab")
    await log.close()
    name = log_stream("lab")
    return await servers.leader(name), (await servers.followers(name))[0]
