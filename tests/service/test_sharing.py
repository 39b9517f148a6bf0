"""Of several `hansard up` one projects a workspace, and the others fetch what it publishes."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from hansard.bus.jetstream import JetStreamLog
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.log import RawWorkspace
from hansard.domain.ids import KeyStream
from hansard.projections import snapshots
from hansard.projections.errors import Held
from hansard.projections.runner import Projector, rebuild
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles
from hansard.service import sharing
from hansard.service.sharing import Lease, Sharing
from tests.bus.brokers import Nats, append, running, until
from tests.cli.support import environment

pytestmark = pytest.mark.later

WAIT_S = 120.0
"""Longest wait for a process on a busy machine, in seconds: a lease ends after 30 s."""

KEY = KeyStream("r1", "k")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    """Yield a server of its own."""
    with running(tmp_path / "nats") as server:
        yield server


@contextlib.asynccontextmanager
async def leases(nats: Nats, count: int) -> AsyncIterator[list[Lease]]:
    """Yield leases of one workspace, as of several machines."""
    async with contextlib.AsyncExitStack() as stack:
        brokers = [await Broker.open(nats.options()) for _ in range(count)]
        for broker in brokers:
            stack.push_async_callback(broker.close)
        yield [Lease(broker, "lab") for broker in brokers]


async def test_a_lease_has_one_holder(nats: Nats, monkeypatch: pytest.MonkeyPatch):
    """Of ten that ask at once one gets it; another does after its release, or its silence."""
    log = await nats.log("lab")
    async with leases(nats, 10) as several:
        held = await asyncio.gather(*(each.renew() for each in several))
        assert sum(held) == 1
        first = several[held.index(True)]
        others = [each for each in several if each is not first]
        assert await first.renew()
        assert not any([await each.renew() for each in others])
        await first.release()
        second, third = others[:2]
        assert await second.renew()
        assert not await first.renew()
        assert not await third.renew()
        monkeypatch.setattr(sharing, "LEASE_S", 0.0)  # nothing is heard of the holder
        assert await third.renew()
        monkeypatch.undo()
        assert not await second.renew()
        assert await third.renew()
    await log.close()


@pytest.mark.slow
async def test_a_publication_is_fetched_and_continued_elsewhere(
    nats: Nats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another machine has the same tables, and takes over from there; damage is not published."""
    monkeypatch.setattr(sharing, "RENEW_S", 0.05)
    archive, log = str(tmp_path / "archive"), await nats.log("lab")
    places = [TableFiles.of(tmp_path / name, "lab") for name in ("a", "b")]
    source = await RawWorkspace.open(nats.options(), "lab")
    first, second = [await Sharing.open(nats.options(), "lab", archive, each) for each in places]
    try:
        await first.wait()
        projector = await Projector.open(source, places[0])
        for number in range(1, sharing.KEPT + 2):
            await log.append(append(KEY, number))
            await projector.run(number)
            await first._copy()
        await projector.close()
        assert len(await first._descriptions()) == sharing.KEPT
        waiting = asyncio.create_task(second.wait())
        await until(lambda: _position_of(places, 4), WAIT_S)
        with pytest.raises(Held):  # a command there waits for what is fetched, and fills no tables
            await Projector.open(source, places[1])
        assert digests(places[1]) == digests(places[0])
        await log.append(append(KEY, 5))
        await first.close()
        await asyncio.wait_for(waiting, WAIT_S)
        projector = await Projector.open(source, places[1])
        assert projector.store.progress.position == 4
        await projector.run(5)
        await projector.close()
        await second._copy()
        [*_, newest] = await second._descriptions()
        for file in (tmp_path / "archive/lab/published").glob("*/0"):
            file.write_bytes(file.read_bytes()[:-1] + b"x")
        third = TableFiles.of(tmp_path / "c", "lab")
        other = await Sharing.open(nats.options(), "lab", archive, third)
        await other._fetch()
        assert snapshots.newest(third) is None
        assert sharing._position(newest) == 5
        await other.close()
    finally:
        await second.close()
        await source.close()
        await log.close()


@pytest.mark.slow
async def test_a_copy_replaces_what_nobody_can_use(nats: Nats, tmp_path: Path):
    """Parts of a copy that was killed, and the same position as another version published it."""
    log, place = await nats.log("lab"), TableFiles.of(tmp_path / "a", "lab")
    await log.append(append(KEY))
    source = await RawWorkspace.open(nats.options(), "lab")
    sharing_one = await Sharing.open(nats.options(), "lab", str(tmp_path / "archive"), place)
    orphan = tmp_path / "archive/lab/published/0f/0"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"part")
    try:
        await sharing_one.wait()
        projector = await Projector.open(source, place)
        await projector.run(1)
        await projector.close()
        await sharing_one._copy()
        assert not orphan.exists()
        [first] = await sharing_one._descriptions()
        (tmp_path / "archive" / first).write_bytes(b"{}")
        for _ in range(2):
            await sharing_one._copy()
            assert len(await sharing_one._descriptions()) == 2
        other = TableFiles.of(tmp_path / "b", "lab")
        reader = await Sharing.open(nats.options(), "lab", str(tmp_path / "archive"), other)
        assert await reader._fetch() is None
        assert digests(other) == digests(place)
        await reader.close()
    finally:
        await sharing_one.close()
        await source.close()
        await log.close()


def digests(place: TableFiles) -> object:
    """Return the digests of the newest publication."""
    with snapshots.holding(place) as current:
        assert current is not None
        store = Store(current.path, read_only=True)
        try:
            return store.digests()
        finally:
            store.close()


def up(home: Path, nats: Nats, archive: Path) -> subprocess.Popen[bytes]:
    """Start `hansard up` on a data directory of its own."""
    home.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "hansard", "up", "-w", "lab"],
        env=environment(
            home,
            HANSARD_NATS_URL=f"nats://127.0.0.1:{nats.port}",
            HANSARD_NATS_USER="admin",
            HANSARD_NATS_PASSWORD="admin",
            HANSARD_ARCHIVE=str(archive),
            HANSARD_SHARE_TABLES="1",
        ),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def writes_tables(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has opened the tables of the workspace for writing."""
    names: list[str] = []
    for fd in Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            names.append(str(fd.readlink()))
    return any(name.endswith("projections/lab.duckdb") for name in names)


@pytest.mark.thorough(quick="test_a_publication_is_fetched_and_continued_elsewhere")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("machines", [1, 2])
async def test_another_takes_over_from_a_holder(
    nats: Nats, tmp_path: Path, number: signal.Signals, machines: int
):
    """Killed or stopped: another one projects, with each row once; none writes another's file.

    On one machine a stopped process keeps its files, and the other one waits.
    """
    log = await nats.log("lab")
    homes = [tmp_path / "a", tmp_path / ("b" if machines > 1 else "a")]
    places = [TableFiles.of(home, "lab") for home in homes]
    processes = [up(home, nats, tmp_path / "archive") for home in homes]
    over = asyncio.Event()
    writing = asyncio.create_task(_write(log, over))
    try:
        await until(lambda: _position_of(places, 20), WAIT_S)
        [holder] = [each for each in processes if writes_tables(each)]
        [other] = [each for each in processes if each is not holder]
        holder.send_signal(number)
        if (number, machines) == (signal.SIGSTOP, 1):
            for _ in range(20):  # longer than the lease
                await asyncio.sleep(2.0)
                assert not writes_tables(other)
        else:
            await until(lambda: _is(writes_tables(other)), WAIT_S)
        if number is signal.SIGSTOP:
            holder.send_signal(signal.SIGCONT)
            if machines > 1:
                await until(lambda: _is(not writes_tables(holder)), WAIT_S)
        over.set()
        await writing
        head = await log.head()
        mine = places[processes.index(other)]
        readers = [mine] if number is signal.SIGKILL else places
        await until(lambda: _position_of(readers, head), WAIT_S)
    finally:
        over.set()
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(WAIT_S)
    source = await RawWorkspace.open(nats.options(), "lab")
    rebuilt = await rebuild(source, TableFiles.of(tmp_path / "c", "lab"), lambda *_: None)
    assert rebuilt.position == head
    assert rebuilt.tables["events"].rows == head
    assert digests(mine) == rebuilt.tables
    await source.close()
    await log.close()


async def _write(log: JetStreamLog, over: asyncio.Event) -> None:
    version = 0
    while not over.is_set():
        version += 1
        await log.append(append(KEY, version))
        await asyncio.sleep(0.05)


async def _position_of(places: list[TableFiles], least: int) -> bool:
    found = [snapshots.newest(place) for place in places]
    return all(each is not None and each.position >= least for each in found)


async def _is(value: bool) -> bool:
    return value
