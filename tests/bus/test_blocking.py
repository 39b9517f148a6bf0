"""Commits that a thread sends itself: as those of the loop, whatever happens to them."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import nkeys
import pytest

import hansard
from hansard.bus.errors import AppendUnknown, Unreachable
from hansard.bus.jetstream import JetStreamLog, blocking, open_log
from hansard.bus.jetstream.direct import Known
from hansard.bus.log import Append, Stored
from hansard.domain.ids import AgentStream
from tests.bus.brokers import Nats, append, running

ALICE = AgentStream("r1", "researcher", "alice")
BOB = AgentStream("r1", "researcher", "bob")
SEED = b"SUAMLK2ZNL35WSMW37E7UD4VZ7ELPKW7DHC3BWBSD2GCZ7IUQQXZIORRBU"
WAIT_S = 60.0


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    """Yield a server of the test's own."""
    with running(tmp_path / "nats") as server:
        yield server


async def here(log: JetStreamLog, request: Append) -> Stored | None:
    """Append in a thread, which sends the commit itself."""
    return await asyncio.to_thread(log.append_here, request)


async def connected(log: JetStreamLog) -> Stored:
    """Send the first commit from the thread itself: its connection is opened on first use."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                stored = await here(log, append(ALICE, await log.head() + 1))
            except AppendUnknown:  # the connection is closed
                stored = None
            if stored is not None:
                return stored
            await asyncio.sleep(0.01)


async def test_what_a_thread_sends_is_in_the_log(nats: Nats):
    """A thread's commits are read like the loop's; any but the next version is left to the loop."""
    log = await nats.log()
    assert await here(log, append(ALICE, 1)) is None
    assert await log.head() == 0
    first = await connected(log)
    await log.append(append(ALICE, 2))
    third = append(ALICE, 3)
    stored = await here(log, third)
    assert stored is not None
    assert (first.position, stored.position) == (1, 3)
    assert [each.commit for each in await log.read(ALICE)][2] == third.commit
    assert await here(log, append(ALICE, 3)) is None
    assert await log.head() == 3
    await log.close()
    assert await here(log, append(ALICE, 4)) is None


async def test_with_an_nkey(tmp_path: Path):
    """The connection is made as any other one, so whatever logs in there logs in here."""
    nats = Nats(tmp_path)
    pair = nkeys.from_seed(bytearray(SEED))
    nats.configure("{ user: runtime, password: runtime,", f"{{ nkey: {pair.public_key.decode()},")
    nats.start()
    try:
        admin = nats.options("admin")
        runtime = msgspec.structs.replace(admin, user=None, password=None, nkey=SEED.decode())
        log = await open_log(runtime, "lab", "strict", admin=admin)
        assert (await connected(log)).position == 1
        await log.close()
    finally:
        nats.kill()


async def test_one_thread_at_a_time(nats: Nats):
    """While one thread waits for its answer, another uses the loop at once."""
    log = await nats.log()
    await connected(log)
    nats.freeze()
    both = {asyncio.ensure_future(here(log, append(each, 1))) for each in (BOB, ALICE)}
    try:
        done, waiting = await asyncio.wait(
            both, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED
        )
        assert [each.result() for each in done] == [None]
    finally:
        nats.go_on()
    [late] = waiting
    stood = await asyncio.wait_for(late, WAIT_S)
    assert stood is None or stood.stream == BOB  # alice's first version was taken before
    await log.close()


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("ends", ["late", "killed"])
async def test_no_answer_is_unknown_and_the_same_commit_is_sent_again(
    nats: Nats, ends: str, monkeypatch: pytest.MonkeyPatch
):
    """After a short wait the loop sends the same commit again, and it is stored once."""
    monkeypatch.setattr(blocking, "RETRY_S", 0.2)
    log = await nats.log(request_timeout_s=0.2)
    await connected(log)
    nats.freeze()
    unsure = append(BOB, 1)
    with pytest.raises(AppendUnknown):
        await here(log, unsure)
    if ends == "killed":
        nats.kill()
        nats.start()
    else:
        nats.go_on()
    stored = await asyncio.wait_for(log.append_again(unsure, time.monotonic()), WAIT_S)
    assert [each.commit for each in await log.read(BOB)] == [unsure.commit]
    assert stored.commit == unsure.commit
    assert (await connected(log)).stream == ALICE  # and it is connected again
    await log.close()


async def test_signals_do_not_make_the_wait_longer(nats: Nats):
    """A profiler, a timer, a terminal that is resized: each interrupts the thread that waits."""
    log = await nats.log(request_timeout_s=0.2)
    await connected(log)
    nats.freeze()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    mine: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def publish() -> None:
        mine.get_loop().call_soon_threadsafe(mine.set_result, threading.get_ident())
        with pytest.raises(AppendUnknown):
            log.append_here(append(BOB, 1))
        done.set()
        left.wait(WAIT_S)  # what is signalled is there

    done, left = threading.Event(), threading.Event()
    publishing = asyncio.create_task(asyncio.to_thread(publish))
    try:
        thread = await mine
        for _ in range(200):
            if done.is_set():
                break
            signal.pthread_kill(thread, signal.SIGUSR1)
            await asyncio.sleep(0.05)
        assert done.is_set()
    finally:
        left.set()
        nats.go_on()
        await publishing
        signal.signal(signal.SIGUSR1, before)
    await log.close()


async def test_what_may_be_stored_is_never_reported_as_unstored(nats: Nats):
    """If the broker stays away, the outcome of an earlier publish stays unknown."""
    log = await nats.log(request_timeout_s=0.2, append_timeout_s=0.5)
    await connected(log)
    nats.freeze()
    unsure = append(BOB, 1)
    with pytest.raises(AppendUnknown):
        await here(log, unsure)
    nats.kill()
    with pytest.raises(AppendUnknown):
        await log.append_again(unsure, time.monotonic())
    with pytest.raises(Unreachable):  # none of it was sent
        await log.append(append(ALICE, 9))
    await log.close()


@pytest.mark.slow
async def test_a_connection_that_nobody_uses_is_held(tmp_path, monkeypatch):
    """The server pings often, and ends a connection after two unanswered pings."""
    monkeypatch.setattr(blocking, "POLL_S", 0.05)
    nats = Nats(tmp_path)
    nats.configure("max_payload", "ping_interval: 200ms\nping_max: 2\nmax_payload")
    nats.start()
    try:
        log = await nats.log()
        first = await connected(log)
        await asyncio.sleep(1.5)
        again = await here(log, append(ALICE, 2))
        assert again is not None
        assert again.position == first.position + 1
        await log.close()
    finally:
        nats.kill()


def test_an_interrupt_while_a_thread_waits_for_its_answer(nats: Nats):
    """The commit in flight is recorded once, and the session's next one comes after it."""
    login: dict[str, Any] = {"nats": f"nats://127.0.0.1:{nats.port}", "nats_user": "admin"}
    with hansard.connect(workspace="lab", nats_password="admin", **login) as record:
        log = record.workspace.log
        sent: list[Stored] = []

        class Seen(JetStreamLog):
            def append_here(self, append: Append) -> Stored | None:
                stored = super().append_here(append)
                sent.extend([stored] if stored is not None else [])
                return stored

        assert isinstance(log, JetStreamLog)
        log.__class__ = Seen
        with record.run("cut", run="r1", agent="ada", role="worker") as session:
            while not sent:
                session.checkpoint("before")
            nats.freeze()
            cut = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            cut.start()
            try:
                with pytest.raises(KeyboardInterrupt):
                    session.checkpoint("cut")
            finally:
                cut.join()
                nats.go_on()
            session.checkpoint("after")
    texts = [each for each in asyncio.run(_texts(nats)) if '"before"' not in each]
    assert [each for each in texts if '"cut"' in each or '"after"' in each] == texts[-3:-1]
    assert ['"cut"' in each for each in texts[-3:-1]] == [True, False]


async def _texts(nats: Nats) -> list[str]:
    """Return the events of the interrupted session, in order, as JSON."""
    log = await nats.log()
    commits = await log.read(AgentStream("r1", "worker", "ada"))
    await log.close()
    return [bytes(event.data).decode() for each in commits for event in each.commit.events]


@pytest.mark.slow
def test_what_is_known_of_a_position_never_goes_back():
    """A read after any acknowledgement reaches the newest position, whichever thread notes last."""
    known, threads, rounds = Known(), 3, 100_000
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def notes(first: int) -> None:
        for position in range(first, threads * rounds, threads):
            known.reach(position, "lab.x", 9)

    try:
        working = [threading.Thread(target=notes, args=[number]) for number in range(threads)]
        for each in working:
            each.start()
        seen, went_back = 0, 0
        while any(each.is_alive() for each in working):
            now = known.position
            went_back += now < seen
            seen = max(seen, now)
    finally:
        sys.setswitchinterval(interval)
    assert went_back == 0


async def test_closing_also_closes_a_connection_whose_thread_was_interrupted(
    nats: Nats, monkeypatch: pytest.MonkeyPatch
):
    """An interrupt between taking the lock and its `try` leaves it locked."""
    monkeypatch.setattr(blocking, "CLOSE_S", 0.1)
    log = await nats.log()
    await connected(log)
    connection = log._blocking._socket
    assert connection is not None
    assert log._blocking._lock.acquire(blocking=False)
    await log.close()
    assert connection.fileno() == -1


async def test_a_thread_interrupted_while_its_connection_is_made_stops_nobody(nats: Nats):
    """The loop does not wait for the lock that such a thread holds for ever."""
    log = await nats.log()
    assert await here(log, append(ALICE, 1)) is None  # it asks for a connection
    assert log._blocking._lock.acquire(blocking=False)
    async with asyncio.timeout(WAIT_S):
        while log._blocking._pending:  # noqa: ASYNC110 -- there is no event for it
            await asyncio.sleep(0.01)
    assert (await log.append(append(ALICE, 1))).position == 1
    await log.close()


async def test_connecting_that_is_cut_off_leaves_nothing_that_goes_on(nats: Nats):
    """A thread's connect that is cut off anywhere leaves no pending task of nats-py."""
    log = await nats.log()
    before = asyncio.all_tasks()
    for turns in range(60):
        connecting = asyncio.create_task(log._blocking._broker.plain_socket())
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait({connecting})
        if not connecting.cancelled() and (connection := connecting.result()) is not None:
            connection[0].close()
        assert asyncio.all_tasks() == before
    await log.close()
