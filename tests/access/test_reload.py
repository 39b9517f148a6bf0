"""The embedded server learns of restricted logins while it works, and knows them ever after."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard.broker import access
from hansard.broker import logins as server_logins
from hansard.broker.access import AccessNotSynced, Credentials, sync_logins
from hansard.broker.files import ServerFiles, locked
from hansard.broker.lease import Lease, join
from hansard.broker.logins import BrokerUser
from hansard.bus import subjects
from hansard.bus.clock import Clock
from hansard.bus.commits import record as record_event
from hansard.bus.errors import BrokerError
from hansard.bus.jetstream import direct
from hansard.bus.jetstream.client import Broker, BrokerOptions
from hansard.bus.log import Append
from hansard.domain.events import Actor, Commit
from hansard.domain.ids import RunStream
from hansard.domain.run import RunStarted
from tests.access.support import Held, let_in

pytestmark = pytest.mark.later

BACK_S_MAX = 60.0
CLOCK = Clock()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Return the folder of the server's files."""
    return tmp_path / "data"


@pytest.fixture
def lease(data_dir: Path) -> Iterator[Lease]:
    """Yield a server that runs."""
    held = join(data_dir)
    yield held
    held.close()


def user(name: str, workspace: str = "lab") -> tuple[BrokerUser, str]:
    """Return a login, and its secret key."""
    seed = access.new_seed()
    inbox = subjects.restricted_inbox(os.urandom(16).hex())
    return BrokerUser(access.public_key(seed), workspace, "writer", name, inbox), seed


def holder(lease: Lease, made: tuple[BrokerUser, str]) -> Credentials:
    """Return the credentials of a login's holder."""
    return holder_of(lease.info.url, made)


def holder_of(url: str, made: tuple[BrokerUser, str]) -> Credentials:
    """Return the credentials of a login's holder, for the server at an address."""
    known, seed = made
    return Credentials(
        url=url,
        workspace=known.workspace,
        role=known.role,
        principal=known.principal,
        token="",
        nkey_seed=seed,
        inbox=known.inbox,
    )


async def tell(data_dir: Path, *users: BrokerUser, workspace: str = "lab", **more: float) -> bool:
    """Have the server know just these of a workspace."""

    async def logins() -> list[BrokerUser]:
        return list(users)

    return await sync_logins(data_dir, workspace, logins, **more)


@pytest.mark.slow
def test_logins_come_and_go_without_a_restart(lease: Lease, data_dir: Path):
    """Each workspace's are replaced as a whole; the other's stay, and are still connected."""
    ada, bob, eve = user("ada"), user("bob"), user("eve", "lab2")
    assert not let_in(holder(lease, ada))
    assert asyncio.run(tell(data_dir, ada[0], bob[0]))
    assert asyncio.run(tell(data_dir, eve[0], workspace="lab2"))
    with (
        Held(holder(lease, ada)) as one,
        Held(holder(lease, bob)) as two,
        Held(holder(lease, eve)) as three,
    ):
        assert [each.is_in() for each in (one, two, three)] == [True] * 3
        assert not asyncio.run(tell(data_dir, ada[0], bob[0]))
        assert asyncio.run(tell(data_dir, bob[0]))
        assert [each.is_in() for each in (one, two, three)] == [False, True, True]
    assert not let_in(holder(lease, ada))
    assert asyncio.run(tell(data_dir))
    assert [let_in(holder(lease, each)) for each in (bob, eve)] == [False, True]


def test_a_login_of_another_workspace_is_not_added_under_this_one(lease: Lease, data_dir: Path):
    """Credentials handed in for `lab` cannot be a login of `lab2`."""
    eve = user("eve", "lab2")
    asyncio.run(tell(data_dir, eve[0], workspace="lab"))
    assert not let_in(holder(lease, eve))


async def test_who_connects_while_logins_are_reloaded_is_let_in(lease: Lease, data_dir: Path):
    """Connects refused or cut during a reload are retried; an unknown login is refused as ever."""
    runtime = lease.info.runtime
    options = BrokerOptions(
        urls=(lease.info.url,), user=runtime.user, password=runtime.password, connect_timeout_s=60
    )
    both = [[user("ada")[0]], [user("ada")[0]]]

    def reload() -> None:
        with server_logins.changing(data_dir, BACK_S_MAX) as replace:
            for number in range(150):
                replace("lab", both[number % 2])

    reloading = asyncio.ensure_future(asyncio.to_thread(reload))
    opened = 0
    while not reloading.done():
        for broker in await asyncio.gather(*(Broker.open(options) for _ in range(8))):
            await direct.api(broker, "INFO")
            await broker.close()
            opened += 1
        with pytest.raises(BrokerError, match="answered 401"):
            await Broker.open(msgspec.structs.replace(options, password="wrong"))
    await reloading
    assert opened


@pytest.mark.slow
async def test_reloads_under_load_drop_no_connection_and_no_ack(data_dir: Path):
    """30 login changes under load cut no connection and lose or double no commit."""
    async with hansard.connect_async("lab", data_dir=data_dir) as record:
        log = record.workspace.log
        acked: list[str] = []
        done = asyncio.Event()

        async def write(number: int) -> None:
            for count in range(1, 1_000_000):
                if done.is_set():
                    return
                commit = Commit(
                    id=CLOCK.new_id(),
                    version=1,
                    at=CLOCK.now(),
                    actor=Actor("a"),
                    events=(record_event(RunStarted(workflow="w"), CLOCK.new_id()),),
                )
                await log.append(Append(RunStream(f"r{number}-{count}"), commit))
                acked.append(commit.id)

        brokers = (log._writes, log._reads)  # type: ignore[attr-defined]  # of the adapter, not of the port
        before = [broker._nc.stats["reconnects"] for broker in brokers]
        writers = [asyncio.create_task(write(number)) for number in range(4)]
        kept = user("kept")
        await tell(data_dir, kept[0])
        with Held(holder_of(brokers[0].options.urls[0], kept)) as stays:
            for number in range(30):
                others = [user(f"agent {n}")[0] for n in range(number % 3)]
                await tell(data_dir, kept[0], *others)
                assert stays.is_in()
                await asyncio.sleep(0.02)
        done.set()
        await asyncio.gather(*writers)
        assert [broker._nc.stats["reconnects"] for broker in brokers] == before
        assert len(acked) > 100
        runs = await log.runs()
        stored_commits = await log.read_streams([RunStream(run) for run in runs])
        assert sorted(stored.commit.id for stored in stored_commits) == sorted(acked)


def _eventually_in(login: Credentials) -> bool:
    until = time.monotonic() + BACK_S_MAX
    while time.monotonic() < until:
        with contextlib.suppress(OSError):  # it is being restarted
            if let_in(login):
                return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_server_that_its_supervisor_restarts_knows_them_still(lease: Lease, data_dir: Path):
    """A killed server restarts with the same logins, without another notice."""
    ada, gone = user("ada"), user("gone")
    asyncio.run(tell(data_dir, ada[0], gone[0]))
    asyncio.run(tell(data_dir, ada[0]))
    os.kill(lease.info.server_pid, signal.SIGKILL)
    assert _eventually_in(holder(lease, ada))
    assert not let_in(holder(lease, gone))


@pytest.mark.slow
async def test_logins_that_change_while_the_server_is_killed_are_there_at_the_end(data_dir: Path):
    """Changes hold whether the server reads its configuration before, during or after them."""
    with join(data_dir) as lease:
        for number in range(4):  # a supervisor gives a server up that dies more often in a minute
            made = user(f"agent {number}")
            info = join(data_dir)
            os.kill(info.info.server_pid, signal.SIGKILL)
            info.close()
            await asyncio.sleep(number % 5 * 0.03)
            await tell(data_dir, made[0])
            assert await asyncio.to_thread(_eventually_in, holder(lease, made))


@pytest.mark.slow
def test_what_cannot_be_read_lets_nobody_in_and_is_mended(lease: Lease, data_dir: Path):
    """A damaged list of logins stops neither the server nor the next change."""
    ada = user("ada")
    (data_dir / "access.json").write_text("{ damaged")
    os.kill(lease.info.server_pid, signal.SIGKILL)
    time.sleep(0.1)
    assert asyncio.run(tell(data_dir, ada[0]))
    assert let_in(holder(lease, ada))


@pytest.mark.slow
def test_a_login_that_the_server_would_not_start_with_is_left_out(lease: Lease, data_dir: Path):
    """An invalid or duplicate key costs its holder the login, not the server."""
    ada = user("ada")
    odd = msgspec.structs.replace(ada[0], nkey="U" * 56)
    evil = msgspec.structs.replace(ada[0], nkey='U" } ] #')
    asyncio.run(tell(data_dir, odd, ada[0], evil, ada[0]))
    assert let_in(holder(lease, ada))
    text = (data_dir / "access.conf").read_text()
    assert text.count("nkey") == 1
    os.kill(lease.info.server_pid, signal.SIGKILL)
    assert _eventually_in(holder(lease, ada))


@pytest.mark.slow
def test_without_a_server_they_are_kept_for_the_next(data_dir: Path):
    """The error says that no server was notified; the next one to start has the logins."""
    ServerFiles(data_dir).create()
    ada = user("ada")
    with pytest.raises(AccessNotSynced, match="did not reload"):
        asyncio.run(tell(data_dir, ada[0], timeout_s=0.2))
    with join(data_dir) as lease:
        assert let_in(holder(lease, ada))


async def test_who_waits_for_the_lock_says_so_and_leaves_none_behind(data_dir: Path):
    """A held lock is an error after the timeout; a cancelled change releases it."""
    with join(data_dir):
        with locked(ServerFiles(data_dir).access_lock, time.monotonic() + 1) as held:
            assert held
            with pytest.raises(AccessNotSynced, match=r"another process has held .*access\.lock"):
                await tell(data_dir, timeout_s=0.1)

        async def never() -> list[BrokerUser]:
            await asyncio.sleep(0.3)
            return []

        task = asyncio.create_task(sync_logins(data_dir, "lab", never))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await tell(data_dir, user("ada")[0])


async def test_an_error_of_the_callback_is_raised(data_dir: Path):
    """Nothing is changed then."""

    async def broken() -> list[BrokerUser]:
        raise LookupError("no record")

    ada = user("ada")
    with join(data_dir) as lease:
        await tell(data_dir, ada[0])
        with pytest.raises(LookupError, match="no record"):
            await sync_logins(data_dir, "lab", broken)
        assert let_in(holder(lease, ada))


def test_files_and_lines_are_private_and_plain(lease: Lease, data_dir: Path):
    """The lists are 0600; a hostile name is quoted in the configuration, byte by byte."""
    odd = user('a" } { user: x #\n\\')
    asyncio.run(tell(data_dir, odd[0]))
    for name in ("access.json", "access.conf", "access.lock"):
        assert (data_dir / name).stat().st_mode & 0o777 == 0o600
    assert let_in(holder(lease, odd))
    assert "user: x" not in (data_dir / "access.conf").read_text()
    entry = server_logins.entry(odd[0])
    assert "\n" not in entry
    assert entry.count("publish") == 1
