"""A full disk under the broker, and room again; nats-server keeps its error until a restart."""

import asyncio
import contextlib
import errno
import json
import os
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import structlog

import hansard
from hansard.broker.access import Credentials
from hansard.broker.files import Durability
from hansard.broker.lease import BadDataDir, Host, hindrance, join, peek
from hansard.bus.errors import AppendUnknown, NotWritable, explained
from hansard.bus.file_lock import Unwritable
from hansard.bus.jetstream import BrokerOptions, JetStreamLog, open_log
from hansard.bus.log import Stored
from hansard.bus.portal import portal
from hansard.client import opening
from hansard.client.credentials import drafting
from hansard.domain.agent import CheckpointSaved
from hansard.domain.ids import AgentStream, KeyStream
from hansard.operations.protocol.faults import of_service
from hansard.projections.errors import NoRoom
from hansard.projections.runner import wait_for
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles
from tests.bus.brokers import append
from tests.cli.support import Call, ran
from tests.cli.test_up import up
from tests.faults._disks import Disk, Embedded, small_disk
from tests.faults._whole import holes, repeats, torn, whole_log
from tests.faults.support import Stage, all_go_on, missing, read_acks
from tests.projections.support import Messages, digests, fill, new_store

NOTICED_S = 60.0
"""Longest time in seconds until a full disk is known; a busy machine reads the report late."""

PROJECTED_S = 60.0
"""Longest start of `hansard up`, or restart of the projector, on a busy machine, in seconds."""

LARGE = "x" * 200_000
BODY = b'"' + b"." * 2_000 + b'"'
FULL = r"the disk of .* is full"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Yield an empty disk of 64 MiB."""
    with small_disk(tmp_path / "disk", 64) as made:
        yield made


@pytest.fixture
def call_there(
    disk: Disk, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """Yield the command line for a record on that disk with one letter."""
    data_dir = disk.folder / "data"
    with hansard.connect("lab", data_dir=data_dir) as record:
        with record.run("w", run="r1", agent="a", role="r") as session:
            session.message("user", "a letter", tokens=3)
        yield lambda *arguments: ran(
            capsys, monkeypatch, ["--data-dir", data_dir, "-w", "lab", *arguments]
        )
    structlog.reset_defaults()


@pytest.fixture
def _short_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait for an answer for half a second instead of five."""
    short = partial(BrokerOptions, request_timeout_s=0.5)
    monkeypatch.setattr(opening, "BrokerOptions", short)


def until(holds: Callable[[], object], what: str, within_s: float = NOTICED_S) -> None:
    """Wait until it holds; fails when it does not."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def filled(disk: Disk, obstacle: Path) -> None:
    """Fill the disk until the server cannot write; something must be written meanwhile."""

    def obstacle_text() -> bytes:
        disk.full()
        return obstacle.read_bytes().strip()

    until(obstacle_text, "nobody says that the disk is full")


async def hindered(host: Host) -> NotWritable:
    """Wait until the supervisor says that the server cannot write; what it says."""
    async with asyncio.timeout(NOTICED_S):
        while (obstacle := host.obstacle()) is None:  # noqa: ASYNC110 -- a file tells it
            await asyncio.sleep(0.02)
    assert isinstance(obstacle, NotWritable)
    return obstacle


@asynccontextmanager
async def opened(data_dir: Path, disk_wait_s: float) -> AsyncIterator[tuple[Host, JetStreamLog]]:
    """Yield the host and the log of an embedded broker."""
    host = await Host.open(data_dir, None)
    info = host.info

    def options(user: str, password: str) -> BrokerOptions:
        return BrokerOptions(
            urls=(info.url,),
            user=user,
            password=password,
            request_timeout_s=1.0,
            disk_wait_s=disk_wait_s,
            host=host,
        )

    runtime = options(info.runtime.user, info.runtime.password)
    admin = options(info.admin.user, info.admin.password)
    log = await open_log(runtime, "lab", "strict", admin=admin)
    try:
        yield host, log
    finally:
        await log.close()
        host.close()


async def everything(log: JetStreamLog) -> list[Stored]:
    """Return every commit of a log."""
    return [stored async for stored in log.follow(0, until=await log.head())]


@pytest.mark.slow
async def test_room_is_enough_for_what_waits_to_go_on(disk: Disk):
    """On a full disk reads are answered, and writes of every kind wait and are stored once."""
    async with opened(disk.folder / "data", disk_wait_s=60.0) as (host, log):
        first = await log.append(append(KeyStream("r1", "a")))
        disk.full()
        waiting = asyncio.gather(
            log.append(append(KeyStream("r1", "b"), text=LARGE)),
            log.append_all(
                [append(KeyStream("r1", "c"), text=LARGE), append(KeyStream("r1", "d"))]
            ),
            log.append_bulk([append(KeyStream("bulk", str(n)), text=LARGE) for n in range(20)]),
            log.blobs.put(b"blob" * 200_000),
        )
        error = await hindered(host)
        assert "is full (0 bytes and" in str(error)
        assert str(disk.folder / "data") in str(error)
        assert [s.commit.id for s in await log.read(KeyStream("r1", "a"))] == [first.commit.id]
        assert not waiting.done()
        disk.free()
        one, two, new, blob = await asyncio.wait_for(waiting, 60)
        assert host.obstacle() is None
        assert await log.blobs.get(blob, 800_000) == b"blob" * 200_000
        commits = await everything(log)
        acked = {first.commit.id, one.commit.id, *(each.commit.id for each in two)}
        assert acked <= {each.commit.id for each in commits}
        assert (len(commits), new) == (24, 20)
        assert (repeats(commits), holes(commits), torn(commits)) == ([], [], [])


@pytest.mark.thorough(quick="bus/test_jetstream_faults.py::test_unknown")
async def test_what_waits_in_vain_ends_and_says_why(disk: Disk):
    """The wait is bounded and its outcome unknown; the same commit sent again is stored once."""
    async with opened(disk.folder / "data", disk_wait_s=0.2) as (host, log):
        await log.append(append(KeyStream("r1", "a")))
        disk.full()
        lost = append(KeyStream("r1", "b"), text=LARGE)
        with pytest.raises(AppendUnknown, match=FULL) as unknown:
            await log.append(lost)
        assert str(disk.folder / "data") in str(unknown.value)
        assert unknown.value.commit_id == lost.commit.id
        with pytest.raises(NotWritable, match=FULL):
            await log.blobs.put(b"blob" * 200_000)
        disk.free()
        await asyncio.to_thread(until, lambda: host.obstacle() is None, "it is still hindered")
        again = await log.append(lost)
        assert again.commit.id == lost.commit.id
        assert [each.commit.id for each in await log.read(KeyStream("r1", "b"))] == [lost.commit.id]


@pytest.mark.later
async def test_a_disk_without_files_left_is_a_full_one(disk: Disk):
    """A server that cannot create its next file reports it, and goes on once there is room."""
    async with opened(disk.folder / "data", disk_wait_s=60.0) as (host, log):
        await log.append(append(KeyStream("r1", "a")))
        disk.no_more_files()
        large = [append(KeyStream("r2", str(n)), text=LARGE) for n in range(60)]
        bulk = asyncio.ensure_future(log.append_bulk(large[:10]))
        waiting = asyncio.gather(*(log.append(each) for each in large[10:]))
        error = await hindered(host)
        assert "and 0 files free" in str(error)
        disk.free()
        assert await asyncio.wait_for(bulk, 60) == 10
        acked = {stored.commit.id for stored in await asyncio.wait_for(waiting, 60)}
        commits = await everything(log)
        assert acked <= {stored.commit.id for stored in commits}
        assert (len(commits), repeats(commits)) == (61, [])


@pytest.mark.later
async def test_a_transaction_that_finds_no_room_waits_for_it(disk: Disk):
    """nats-server reports an incomplete batch; the error names the disk, and a retry succeeds."""
    async with opened(disk.folder / "data", disk_wait_s=0.2) as (_, log):
        await log.append(append(KeyStream("r1", "a")))
        disk.no_more_files()
        both = [append(KeyStream("r1", "b")), append(KeyStream("r1", "c"))]
        with pytest.raises(NotWritable, match=FULL) as refused:
            await log.append_all(both)
        assert str(disk.folder / "data") in str(refused.value)
        disk.free()
        assert len(await log.append_all(both)) == 2
        assert len(await everything(log)) == 3


def test_a_step_whose_outcome_finds_no_room_waits_for_it(disk: Disk):
    """An effect whose outcome finds no room is not repeated; the outcome is stored later."""
    data_dir = disk.folder / "data"
    effects: list[str] = []
    with hansard.connect("lab", data_dir=data_dir, disk_wait_s=60.0) as record:
        obstacle = data_dir / "server.obstacle"

        def make_room() -> None:
            until(lambda: obstacle.read_bytes().strip(), "nobody says that the disk is full")
            disk.free()

        room = threading.Thread(target=make_room)
        with record.run("w", run="r1", agent="a", role="r") as session:

            @session.tool
            def send(word: str) -> str:
                effects.append(word)
                disk.full()
                room.start()
                return word * 5_000

            assert send("letter") == "letter" * 5_000
        room.join(NOTICED_S)
        [step] = record.state("r1").agent("a").steps.values()
        assert (step.status, effects) == ("completed", ["letter"])


@pytest.mark.slow
@pytest.mark.usefixtures("_short_requests")
def test_a_step_whose_outcome_finds_no_room_in_time_is_in_doubt(disk: Disk):
    """An agent learns in bounded time that its record is unknown; the effect is not repeated."""
    data_dir = disk.folder / "data"
    effects: list[str] = []

    def work(mode: str | None, disk_wait_s: float) -> None:
        with (
            hansard.connect("lab", data_dir=data_dir, disk_wait_s=disk_wait_s) as record,
            record.run("w", run="r1", agent="a", role="r", mode=mode) as session,
        ):

            @session.tool
            def send(word: str) -> str:
                effects.append(word)
                disk.full()
                return word * 5_000

            send("letter")

    with join(data_dir):
        with pytest.raises(AppendUnknown, match=FULL):
            work(None, 0.2)
        disk.free()
        until(lambda: hindrance(data_dir) is None, "it is still hindered")
        with pytest.raises(hansard.InDoubt):
            work("resume", 60.0)
    assert effects == ["letter"]


@pytest.mark.later
def test_a_workspace_that_finds_no_room_is_made_later(disk: Disk):
    """A workspace that finds no room names the disk, and can be made once there is room."""
    with hansard.connect("lab", data_dir=disk.folder / "data"):
        disk.full()
        with pytest.raises(NotWritable, match=FULL) as refused:
            hansard.connect("more", data_dir=disk.folder / "data")
        assert str(disk.folder / "data") in str(refused.value)
        disk.free()
        with hansard.connect("more", data_dir=disk.folder / "data") as record:
            assert (
                portal().run(record.workspace.log.append(append(KeyStream("r", "a")))).position == 1
            )


@pytest.mark.parametrize("arguments", [("export", "r1", "-o"), ("run", "html", "r1", "-o")])
def test_a_file_that_finds_no_room_is_not_there_in_part(disk: Disk, record, call, arguments):
    """A file that finds no room leaves the old one as it was, and nothing beside it."""
    with record.run("w", run="r1", agent="a", role="r") as session:
        session.decide("Which?", selected="a", alternatives=["a", "b"])
        session.message("user", "x" * 30_000, tokens=3)
    path = disk.folder / "file"
    path.write_text("what stood there")
    disk.full()
    output = call(*arguments, path)
    assert output.code == 2
    assert re.search(FULL, output.err)
    assert str(path) in output.err
    assert "free some space, or give another place with -o" in output.err
    assert path.read_text() == "what stood there"
    assert {each.name for each in disk.folder.iterdir()} == {"file", "filler"}
    disk.free()
    assert call(*arguments, path).code == 0
    assert path.read_text() != "what stood there"


def test_credentials_that_find_no_room_are_given_later(disk: Disk):
    """No file is there that nobody can use, and the same secrets are written once there is room."""
    place = disk.folder / "agent.json"
    credentials = Credentials(
        url="nats://127.0.0.1:4222",
        workspace="lab",
        role="r",
        principal="p",
        nkey_seed="n" * 50_000,
        inbox="i",
        token="t",
    )
    with drafting(place) as draft:
        disk.full()
        with pytest.raises(Unwritable, match=FULL) as refused:
            draft.write(credentials)
        assert str(place) in str(refused.value)
        assert draft.load() is None
        assert not place.exists()
        disk.free()
        draft.write(credentials)
        draft.finish()
    assert place.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("_short_requests")
def test_the_status_says_what_hinders(disk: Disk, call_there):
    """`status` reports the fact and the path of a refused write until there is room."""
    assert call_there("status", "--json").lines[0]["hindered"] is None
    with hansard.connect("lab", data_dir=disk.folder / "data", disk_wait_s=0.2) as record:
        disk.full()
        with pytest.raises(AppendUnknown):
            portal().run(record.workspace.log.append(append(KeyStream("r1", "a"), text=LARGE)))
    message = call_there("status", "--json").lines[0]["hindered"]
    assert re.search(FULL, message)
    assert str(disk.folder) in message
    assert "hindered" in call_there("status").out
    disk.free()

    def at_rest() -> bool:
        status = call_there("status", "--json")  # an error while the server is started again
        return status.code == 0 and status.lines[0]["hindered"] is None

    until(at_rest, "it still says so")


@pytest.mark.thorough(quick="test_a_file_that_finds_no_room_is_not_there_in_part")
def test_a_search_that_finds_no_room_says_so(disk: Disk, call_there):
    """The index is not called damaged, and is made once there is room."""
    disk.full()
    output = call_there("search", "letter")
    assert output.code == 2
    assert re.search(FULL, output.err)
    assert "rebuild" not in output.err
    disk.free()
    assert "letter" in call_there("search", "letter").out


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "is full"),
        (errno.EDQUOT, "the quota on the disk of '/x/y' is used up: free some space"),
        (errno.EROFS, "is mounted read-only: mount it for writing"),
        (errno.EACCES, "is not writable for user"),
        (errno.EPERM, "is not writable for user"),
        (errno.EIO, "fails: see the system's log"),
        (errno.EMFILE, "cannot be written"),
    ],
)
def test_what_a_disk_refuses_is_reported_with_path_and_remedy(code, words):
    """Also of what another program quotes: nats-server in lower case, DuckDB among other words."""
    error = OSError(code, os.strerror(code), "/x/y")
    for cause in (error, f"write /x/y: {os.strerror(code).lower()}"):
        text = explained("/x/y", cause)
        assert words in text
        assert "'/x/y'" in text
        assert ": " in text


def test_a_restricted_agent_is_not_shown_where_the_disk_is():
    """A restricted agent learns that a disk made its record unknown, but no path of the host."""
    error = AppendUnknown(
        KeyStream("r1", "k"), 3, "c1", 2.0, str(NotWritable(Path("/srv/x"), "full"))
    )
    assert "/srv/x" in str(error)
    fault = of_service(error, {})
    assert b"/srv/x" not in msgspec.json.encode(fault)
    assert "the service's disk takes nothing" in fault.message


@pytest.mark.thorough(quick="test_a_workspace_that_finds_no_room_is_made_later")
def test_a_broker_is_not_started_on_a_full_disk(disk: Disk):
    """Starting a broker on a full disk raises an error with its path; with room it starts."""
    data_dir = disk.folder / "data"
    with join(data_dir):
        pass
    until(lambda: peek(data_dir) is None, "the broker does not end")
    disk.full()
    with pytest.raises(NotWritable, match=FULL) as refused:
        join(data_dir, timeout_s=NOTICED_S)
    assert str(data_dir) in str(refused.value)
    disk.free()
    with join(data_dir) as lease:
        assert lease.supervised


@pytest.mark.later
def test_a_read_only_disk_is_reported(disk: Disk):
    """A broker is not started there; the error has the fact and the path."""
    data_dir = disk.folder / "data"
    with join(data_dir):
        pass
    until(lambda: peek(data_dir) is None, "the broker does not end")
    until(disk.read_only, "something has a file open for writing there")
    with pytest.raises(BadDataDir, match="Read-only file system") as refused:
        join(data_dir, timeout_s=NOTICED_S)
    assert str(data_dir) in str(refused.value)


@pytest.mark.thorough(quick="test_a_batch_that_finds_no_room_is_not_there_in_part")
def test_the_projector_goes_on_by_itself_once_there_is_room(disk: Disk):
    """`hansard up` reports once why it does not project, and catches up by itself."""
    data_dir = disk.folder / "data"
    obstacle = data_dir / "server.obstacle"
    place = TableFiles.of(data_dir, "lab")
    with (
        up(data_dir, "-w", "lab", "--json") as process,
        hansard.connect("lab", data_dir=data_dir, disk_wait_s=60.0) as record,
    ):
        with record.run("w", run="r1", agent="a", role="r") as session:

            @session.tool
            def work(number: int, size: int) -> str:
                return str(number) * size

            work(1, 10)
            log = record.workspace.log
            portal().run(wait_for(place, portal().run(log.head()), PROJECTED_S))
            is_full, written = threading.Event(), [1]

            def write() -> None:
                while not is_full.is_set():
                    written.append(written[-1] + 1)
                    work(written[-1], 5_000)

            writer = threading.Thread(target=write)
            writer.start()
            filled(disk, obstacle)
            is_full.set()
            disk.free()
            writer.join(PROJECTED_S)
            assert not writer.is_alive()
        head = portal().run(log.head())
        assert portal().run(wait_for(place, head, PROJECTED_S)) == head
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PROJECTED_S)
    facts = [line["fact"] for line in map(json.loads, output.splitlines()) if "fact" in line]
    assert len(facts) <= 1  # it may have been written before the disk was full
    assert all(re.search(FULL, fact) and str(data_dir) in fact for fact in facts)
    with contextlib.closing(Store(place.path, read_only=True)) as store:
        assert store.all("SELECT count(*) FROM steps WHERE status = 'completed'") == [
            (len(written),)
        ]


@pytest.mark.slow
def test_a_batch_that_finds_no_room_is_not_there_in_part(disk: Disk):
    """The error names the tables' path; once there is room they hold every row."""
    messages = Messages()
    for number in range(200):
        saved = CheckpointSaved(name=str(number), data=msgspec.Raw(BODY), fingerprint="")
        messages.add(AgentStream("r1", "role", "agent"), number + 1, [saved])
    path = disk.folder / "a.duckdb"
    with contextlib.closing(new_store(path)) as store:
        disk.full()
        with pytest.raises(NoRoom, match=FULL) as refused:
            fill(store, messages.all)
        assert str(path) in str(refused.value)
        assert store.progress.position == 0
    disk.free()
    with contextlib.closing(Store(path)) as store:
        assert store.all("SELECT count(*) FROM events") == [(0,)]
        fill(store, messages.all)
        assert store.digests() == digests(disk.folder / "b.duckdb", messages.all, ())


@pytest.mark.thorough(quick="test_room_is_enough_for_what_waits_to_go_on")
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("durability", Durability)
def test_agents_go_on_by_themselves_once_there_is_room(
    disk: Disk, durability: Durability, tmp_path, evidence, rounds
):
    """Agents and writers outlive a full disk: no commit is lost or stored twice."""
    server, stop = Embedded(disk.folder / "data"), tmp_path / "stop"
    obstacle = server.data_dir / "server.obstacle"
    agents, number = rounds(2, 8), rounds(1, 3)
    place = TableFiles.of(server.data_dir, "load")
    with join(server.data_dir, durability), up(server.data_dir, "-w", "load", "--json"):
        stage = Stage(server, tmp_path, "load")
        try:
            children = [stage.start("appender", name="appender", streams=20, stop=str(stop))]
            stage.begin("r2")
            children += [
                stage.start("worker", name=f"worker{n}", stop=str(stop)) for n in range(agents)
            ]
            for _ in range(number):
                all_go_on(children)
                filled(disk, obstacle)
                disk.free()
            all_go_on(children)
            stop.touch()
            reports = [child.end(60.0) for child in children]
            assert [report.error for report in reports] == [""] * len(children)
            acks = [ack for child in children for ack in read_acks(child.job.acks)]
            commits = whole_log(server, stage.workspace)
            assert portal().run(wait_for(place, len(commits), PROJECTED_S)) == len(commits)
        finally:
            stage.close()
    lost, repeated = missing(acks, commits), repeats(commits)
    assert (lost, repeated, holes(commits), torn(commits)) == ([], [], [], [])
    evidence.record(
        f"disk.full.{durability.value}",
        agents=agents,
        fills=number,
        acknowledged=len(acks),
        stored=len(commits),
        lost=len(lost),
        repeated=len(repeated),
    )
