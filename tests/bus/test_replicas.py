"""Streams with three replicas, any of which answers: reads include all required commits."""

import asyncio
import contextlib
import hashlib
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

import hansard
from hansard.bus import subjects
from hansard.bus.archive import archive_at
from hansard.bus.errors import BrokerError, BusError, NotFound, ReplicaBehind
from hansard.bus.jetstream import JetStreamLog, direct, open_log, roll, streams
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import api, described, is_authoritative, late_of
from hansard.bus.jetstream.generations import survey
from hansard.bus.jetstream.log import Figures, RawWorkspace
from hansard.bus.jetstream.streams import outside_durability
from hansard.bus.jetstream.wire import NoAnswer
from hansard.bus.log import COMMIT_BYTES_MAX, AtPosition, AtTime, Stored
from hansard.cli import status
from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from tests.access.support import eventually
from tests.bus import brokers, cluster
from tests.bus.brokers import append
from tests.bus.cluster import ELECTED_S, Cluster, Member
from tests.cli.support import ran
from tests.evidence import Evidence

pytestmark = pytest.mark.later

ALICE = AgentStream("r1", "researcher", "alice")
KEY = KeyStream("r1", "plan")
LIFE = RunStream("r1")
PRICE = WorkspaceStream("price", "one")
OF_ALL = (ALICE, KEY, LIFE, PRICE)

CAUGHT_UP_S = 20.0
DIRECT_S = 2.5
QUICK_S = 14.0

PARTED_S = 120.0
"""Seconds in which a parted cluster elects, and acknowledges 100 commits, on a busy machine."""

ROLLED_S = 120.0
"""Seconds in which a roll is done on a busy machine."""

READS_MIN = 10_000
"""Fewest reads in the trial with stops and kills."""
"""Less than READ_WAIT_S, which a read waits for a replica that lags."""
"""A follower answers no Direct Get before."""


@pytest.fixture(autouse=True)
def _all_go_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """Continue all servers after a test that failed while one was stopped."""
    yield
    if "servers" in request.fixturenames:
        cluster: Cluster = request.getfixturevalue("servers")
        for member in cluster.members:
            member.go_on()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield one cluster for these tests, each of which has a workspace of its own."""
    with cluster.running(tmp_path_factory.mktemp("cluster")) as servers:
        asyncio.run(servers.elected())
        yield servers


@contextlib.asynccontextmanager
async def closing(*logs: JetStreamLog) -> AsyncIterator[None]:
    """Close logs at the end of a block, whatever happens."""
    try:
        yield
    finally:
        for log in logs:
            await log.close()


async def parted(servers: Cluster, name: str) -> tuple[Member, Member]:
    """Return a leader, and a follower that answers Direct Gets, as they are on return."""
    async with asyncio.timeout(3 * CAUGHT_UP_S):
        while True:
            cluster = (await servers.info(name))["cluster"]
            leader, follower = (
                servers.member(each) for each in (cluster["leader"], cluster["replicas"][0]["name"])
            )
            await answering(servers, name, follower)
            if await servers.leader(name) is leader:
                return leader, follower


async def answering(servers: Cluster, name: str, follower: Member) -> None:
    """Wait until a follower answers Direct Gets itself: without its leader no other would."""
    broker = await Broker.open(servers.options("admin"))
    try:
        async with asyncio.timeout(CAUGHT_UP_S):
            while True:
                info = await api(broker, f"STREAM.INFO.{name}")
                peers = {each["name"]: each for each in info["cluster"]["replicas"]}
                if peers[follower.name]["current"]:
                    break
                await asyncio.sleep(0.05)
        await asyncio.sleep(DIRECT_S)
    finally:
        await broker.close()


async def grown(log: JetStreamLog, at: dict[StreamId, int], more: int) -> int:
    """Append to each stream; the position of the last."""
    position = 0
    for _ in range(more):
        for stream in OF_ALL:
            at[stream] = at.get(stream, 0) + 1
            position = (await log.append(append(stream, at[stream]))).position
    return position


async def follow(log: JetStreamLog, taken: list[int]) -> None:
    """Note the position of each commit."""
    async for stored in log.follow():
        taken.append(stored.position)  # noqa: PERF401 -- it is read while it grows


async def reached(taken: list[int], position: int) -> None:
    """Wait until a follower has reached a position."""

    async def there() -> bool:
        return bool(taken) and taken[-1] >= position

    await brokers.until(there, within_s=60)


@pytest.mark.slow
async def test_a_follower_that_was_stopped_and_goes_on(servers: Cluster, rounds: Any):
    """After a stop a follower answers every read as of the given position."""
    first = await servers.log("stopped")
    name = subjects.log_stream("stopped")
    leader, follower = await parted(servers, name)
    writer = await servers.log("stopped", first=leader)
    reader = await servers.log("stopped", first=follower)
    at: dict[StreamId, int] = {}
    async with closing(first, writer, reader):
        await grown(writer, at, 1)
        assert len(await reader.read(ALICE)) == 1
        for _ in range(rounds(4, 20)):
            follower.freeze()
            position = await grown(writer, at, 10)
            blob = random.randbytes(70_000)
            sha256 = await writer.blobs.put(blob)
            point = AtPosition(position)
            reads: dict[str, Awaitable[Any]] = {
                "read": reader.read(ALICE, up_to=point),
                "tail": reader.read(ALICE, after=1, up_to=point),
                "streams": reader.read_streams([ALICE, KEY], point),
                "run": reader.read_run("r1", point),
                "boards": reader.read_boards("r1", point),
                "kind": reader.read_kind("price", point),
                "at": reader.at(position),
                "blob": reader.blobs.get(sha256, len(blob)),
                "new": reader.read(ALICE),
                "newest": reader.last(PRICE),
                "head": reader.head(),
            }
            tasks = {key: asyncio.ensure_future(each) for key, each in reads.items()}
            await asyncio.sleep(0.02)  # they are in flight, and wait in its socket
            follower.go_on()
            got = {key: await task for key, task in tasks.items()}
            own = at[ALICE]
            counts = {key: len(value) for key, value in got.items() if isinstance(value, list)}
            assert counts == {
                "read": own,
                "tail": own - 1,
                "streams": 2 * own,
                "run": 3 * own,
                "boards": own,
                "kind": own,
                "new": own,
            }
            assert got["at"].position == got["newest"].position == got["head"] == position
            assert hashlib.sha256(got["blob"]).hexdigest() == sha256


@pytest.mark.slow
async def test_a_state_is_whole_as_of_its_position(servers: Cluster, rounds: Any):
    """A state holds everything acknowledged up to its position, read from leader or follower."""

    def connected(member: Member) -> Any:
        return hansard.connect_async(
            "state", nats=member.url, nats_user="admin", nats_password="admin", nats_replicas=3
        )

    name = subjects.log_stream("state")
    async with (
        connected(servers.members[0]) as record,
        record.run("talk", agent="ada", role="writer") as session,
    ):
        await session.board.append("notes", 0)
        run = session.run
        leader, follower = await parted(servers, name)
        async with (
            connected(leader) as own,
            own.run(agent="bob", role="writer", run=run) as writer,
            connected(follower) as reader,
        ):
            await reader.state(run)
            written = 1
            for _ in range(rounds(4, 20)):
                follower.freeze()
                for _ in range(8):
                    await writer.board.append("notes", written)
                    written += 1
                reads = [asyncio.ensure_future(reader.state(run)) for _ in range(8)]
                await asyncio.sleep(0.02)
                follower.go_on()
                for view in await asyncio.gather(*reads):
                    assert view.boards["notes"].version == written


@pytest.mark.slow
async def test_a_server_that_hangs_is_not_waited_for(servers: Cluster, monkeypatch: Any):
    """A client without a local copy reads from another server than one that hangs."""
    monkeypatch.setattr(direct, "READ_WAIT_S", 120.0)
    async with contextlib.AsyncExitStack() as opened:

        async def connected(**options: Any) -> Broker:
            broker = await Broker.open(servers.options("admin", **options))
            opened.push_async_callback(broker.close)
            return broker

        admin = await connected()
        config = {"name": "two", "subjects": ["two.*"], "num_replicas": 2, "allow_direct": True}
        await api(admin, "STREAM.CREATE.two", config)
        for number in range(3):
            await admin.request(f"two.{number}", b"{}")
        leader, follower = await parted(servers, "two")
        [empty] = [each for each in servers.members if each not in (leader, follower)]
        reader = direct.Direct(await connected(first=empty, request_timeout_s=1_000.0))
        await reader.info("two")
        follower.freeze()
        async with asyncio.timeout(100):
            answers = await asyncio.gather(*(reader.many("two", ["two.*"], 0) for _ in range(4)))
        assert [len(messages) for messages in answers] == [3] * 4


@pytest.mark.slow
async def test_writes_are_read(servers: Cluster, rounds: Any):
    """An acknowledged commit is read at once, by its writer and by readers without notice."""
    writer = await servers.log("own")
    others = [await servers.log("own", first=member) for member in servers.members]
    async with closing(writer, *others):
        await parted(servers, subjects.log_stream("own"))
        missed: Counter[str] = Counter()
        for number in range(rounds(60, 500)):
            key = KeyStream("r1", f"k{number}")
            stored = await writer.append(append(key, 1))
            missed["own"] += await writer.read(key) == []
            other = others[number % len(others)]
            missed["other"] += await other.read(key) == []
            missed["last"] += await others[(number + 1) % len(others)].last(key) is None
            missed["time"] += (await other.read_boards("r1"))[-1].position < stored.position
        assert not +missed


@pytest.mark.thorough  # it reads while a server is stopped, which may be asked each time
async def test_a_time_reaches_what_was_written_before(servers: Cluster):
    """A read up to a time ends where the log does then, not where a replica does."""
    name = subjects.log_stream("time")
    first = await servers.log("time")
    leader, follower = await parted(servers, name)
    writer = await servers.log("time", first=leader)
    reader = await servers.log("time", first=follower)
    at: dict[StreamId, int] = {}
    async with closing(first, writer, reader):
        await grown(writer, at, 1)
        follower.freeze()
        middle = await grown(writer, at, 5)
        stamp = (await writer.at(middle)).stamp
        await grown(writer, at, 5)
        pending = asyncio.ensure_future(reader.read_run("r1", AtTime(stamp)))
        await asyncio.sleep(0.02)
        follower.go_on()
        assert len(await pending) == 3 * 6
        assert await reader.end(AtTime(stamp)) == middle


async def test_a_point_beyond_the_end(servers: Cluster):
    """A point beyond the newest commit reads all commits, without waiting for more."""
    log = await servers.log("beyond")
    async with closing(log):
        await log.append(append(ALICE, 1))
        async with asyncio.timeout(QUICK_S):
            assert len(await log.read(ALICE, up_to=AtPosition(1_000))) == 1
            assert await log.read(KEY, up_to=AtPosition(1_000)) == []
            with pytest.raises(NotFound, match="the log ends at 1"):
                await log.at(1_000)


@pytest.mark.thorough(quick="test_writes_are_read")
async def test_answers_of_several_pages(servers: Cluster):
    """Answers too numerous or too large for one page are complete from any server."""
    first = await servers.log("pages")
    name = subjects.log_stream("pages")
    leader, follower = await parted(servers, name)
    writer = await servers.log("pages", first=leader)
    reader = await servers.log("pages", first=follower)
    async with closing(first, writer, reader):
        await writer.append_bulk(append(ALICE, version) for version in range(1, 1_201))
        follower.freeze()
        await writer.append_bulk(append(ALICE, version) for version in range(1_201, 1_301))
        text = "x" * (COMMIT_BYTES_MAX - 1_000)
        await writer.append_bulk(append(KEY, version, text=text) for version in range(1, 41))
        reads = [
            asyncio.ensure_future(each)
            for each in (
                reader.read(ALICE),
                reader.read(ALICE, after=1_150),
                reader.read_streams([ALICE, LIFE], AtPosition(1_300)),
                reader.read(KEY),
            )
        ]
        last = asyncio.ensure_future(reader.last(ALICE))
        await asyncio.sleep(0.02)
        follower.go_on()
        assert [len(await each) for each in reads] == [1_300, 150, 1_300, 40]
        newest = await last
        assert newest is not None
        assert newest.position == 1_300


async def test_an_empty_log(servers: Cluster):
    """Reading an empty log does not wait."""
    log = await servers.log("empty")
    async with closing(log):
        async with asyncio.timeout(QUICK_S):
            assert await log.read(ALICE) == await log.read_run("r1") == []
            assert await log.runs() == []
            assert await log.last(ALICE) is None
            assert await log.head() == 0


async def test_what_no_replica_has(servers: Cluster, monkeypatch: pytest.MonkeyPatch):
    """A read that no replica can answer fails in time, with position, progress and servers."""
    monkeypatch.setattr(direct, "READ_WAIT_S", 0.3)
    log = await servers.log("never")
    async with closing(log):
        await log.append(append(ALICE, 1))
        known = log._direct.known.of(subjects.log_stream("never"))
        known.position = 7  # as if it had been acknowledged
        for read in (log.read(ALICE), log.read_run("r1"), log.last(ALICE), log.head()):
            with pytest.raises(
                ReplicaBehind, match=r"up to position 7, .* ends at 1 \(n\d leads; n\d"
            ):
                await read


async def test_what_one_broker_lost(tmp_path: Path):
    """A loss by a single server, which no replica can repair, is reported at once."""
    with brokers.running(tmp_path) as nats:
        log = await nats.log()
        async with closing(log):
            await log.append(append(ALICE, 1))
            log._direct.known.of(subjects.log_stream("lab")).position = 7
            with pytest.raises(Corrupt, match="ends at 1, but 7 was read before"):
                await log.head()


async def test_one_broker_gets_no_further_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """On one server a read costs only its own requests."""
    sent: list[str] = []
    original = Broker.send_all

    async def counted(self: Broker, messages: list[tuple[str, bytes, str, bytes]]) -> None:
        sent.extend(body.decode() for _, body, *_ in messages)
        await original(self, messages)

    with brokers.running(tmp_path) as nats:
        log = await nats.log()
        async with closing(log):
            await log.append(append(ALICE, 1))
            assert len(await log.read(ALICE)) == 1
            monkeypatch.setattr(Broker, "send_all", counted)
            for read, most in (
                (log.read(ALICE), 1),
                (log.read(ALICE, after=1), 1),
                (log.read(KEY), 1),
                (log.read_streams([ALICE, KEY]), 1),
                (log.last(ALICE), 1),
                (log.at(1), 1),
                (log.read_run("r1"), 2),
                (log.read(ALICE, up_to=AtPosition(1)), 1),
            ):
                sent.clear()
                await read
                assert len(sent) == most, sent
            prefix = subjects.prefix("lab", KEY)
            sent.clear()
            await log.read(KEY)
            assert sent == [f'{{"multi_last":["{prefix}.*"],"max_bytes":8388608}}']


async def test_an_erased_blob(servers: Cluster):
    """An erased blob is missing on every replica, and not mistaken for a lagging one."""
    log = await servers.log("erased")
    admin = await Broker.open(servers.options("admin"))
    async with closing(log):
        hashes = [await log.blobs.put(bytes([number]) * 70_000) for number in range(3)]
        name = subjects.blob_stream("erased")
        for gone in (hashes[0], hashes[2], hashes[1]):
            filter_ = subjects.blob_subject("erased", gone, 0)
            await api(admin, f"STREAM.PURGE.{name}", {"filter": filter_})
            async with asyncio.timeout(QUICK_S):
                with pytest.raises(NotFound, match="erased"):
                    await log.blobs.get(gone, 70_000)
    await admin.close()


@pytest.mark.thorough(quick="test_writes_are_read")
async def test_replicas_raised_while_a_client_runs(servers: Cluster):
    """A client that began with one replica reads acknowledged commits when there are three."""
    log = await servers.log("raised", replicas=1)
    admin = await Broker.open(servers.options("admin", request_timeout_s=20))
    name = subjects.log_stream("raised")
    async with closing(log):
        await log.append_bulk(append(ALICE, version) for version in range(1, 2_001))
        for stream in (name, subjects.blob_stream("raised"), subjects.snapshot_stream("raised")):
            config = (await api(admin, f"STREAM.INFO.{stream}"))["config"]
            await api(admin, f"STREAM.UPDATE.{stream}", config | {"num_replicas": 3})
        until = asyncio.get_running_loop().time() + 2 * DIRECT_S
        number = 0
        while asyncio.get_running_loop().time() < until:
            number += 1
            key = KeyStream("r1", f"k{number}")
            stored = await log.append(append(key, 1))
            assert await log.read(key) == [await log.at(stored.position)]
            assert (await log.last(key)) is not None
    await admin.close()


@pytest.mark.thorough(quick="test_a_follower_that_was_stopped_and_goes_on")
async def test_a_follower_of_the_log(servers: Cluster, rounds: Any):
    """Following through stops of each server in turn: every commit once, in order."""
    log = await servers.log("follow")
    async with closing(log):
        at: dict[StreamId, int] = {}
        taken: list[int] = []

        following = asyncio.create_task(follow(log, taken))
        position = await grown(log, at, 5)
        for number in range(rounds(3, 12)):
            member = servers.members[number % len(servers.members)]
            member.freeze()
            await asyncio.sleep(0.5)
            member.go_on()
            position = await grown(log, at, 20)
        await reached(taken, position)
        following.cancel()
        assert taken == list(range(1, position + 1))


def test_who_is_believed():
    """A position comes from a leader with a recent quorum; without a leader, from any replica."""

    def info(leader: str, *active_s: float, replicas: int = 3) -> dict[str, Any]:
        peers = [{"name": f"n{i}", "active": int(s * 1e9)} for i, s in enumerate(active_s, 2)]
        led = {"name": "lab", "leader": leader, "replicas": peers}
        return {"config": {"num_replicas": replicas}, "cluster": led}

    assert is_authoritative(info("n1", 0.5, 1.2))
    assert not is_authoritative(info("n1", 60, 1.2))  # n2 may lead, by the vote of n3
    assert is_authoritative(info("n1", 60, 1.2), since_s=1.3)
    assert not is_authoritative(info("n1", 60, 1.2), since_s=1.2)
    sealed = info("n1", 60, 1.2)
    sealed["config"]["sealed"] = True
    assert is_authoritative(sealed)
    assert not is_authoritative(info("n1", 60, 4))
    assert not is_authoritative(info("n1", 0, 0))  # it has no news of the others yet
    assert not is_authoritative(info("", 0.5, 0.5))
    assert is_authoritative(info("", replicas=1))
    assert not is_authoritative(info("n1", 0.5, 60, 60, 60, replicas=5), since_s=9)
    assert is_authoritative(info("n1", 0.5, 60, 60, 0.5, replicas=5), since_s=9)
    assert is_authoritative({"config": {}, "cluster": {"leader": "alone"}})


def test_status(servers, capsys, monkeypatch):
    """`status` shows replicas, leader, the meaning of an acknowledgement, and missing servers."""

    async def made() -> None:
        await (await servers.log("shown", replicas=3)).close()
        await (await servers.log("fewer", replicas=1)).close()

    asyncio.run(made())
    for name, value in servers.environment.items():
        monkeypatch.setenv(name, value)
    output = ran(capsys, monkeypatch, ["-w", "shown", "--replicas", 3, "status"])
    assert output.code == 0
    assert re.search(r"^replicas +3, led by n[123]$", output.out, re.MULTILINE)
    assert "on the disks of 2 of 3 servers" in output.out
    assert "replicas requested" not in output.err
    output = ran(capsys, monkeypatch, ["-w", "fewer", "--replicas", 3, "status"])
    assert "'hansard_log-fewer' has 1 of the 3 replicas requested" in output.err
    _, workspace = ran(capsys, monkeypatch, ["-w", "shown", "status", "--json"]).lines
    assert workspace["replicas"] == 3
    assert workspace["leader"] in {"n1", "n2", "n3"}
    assert [each["replicas"] for each in workspace["streams"]] == [3, 3, 3]
    structlog.reset_defaults()


def test_who_is_late():
    """A server that the leader does not hear of, or that lags, is named, once."""
    peers = [
        {"name": "n1", "current": True},
        {"name": "n2", "current": False, "lag": 7},
        {"name": "n3", "current": True, "offline": True},
    ]
    info = {"config": {}, "cluster": {"name": "lab", "leader": "n4", "replicas": peers}}
    assert late_of(info) == ["n2", "n3"]
    assert described(info) == ("n4 leads; n1 is current; n2 is late, 7 behind; n3 is offline")
    log = Figures("log", 0, 0, 0, 0, 0, late=["n2", "n3"])
    shown = [log, msgspec.structs.replace(log, name="blob", late=["n2"])]
    assert status._late(shown) == ["n2 is away or lags: log, blob", "n3 is away or lags: log"]


class TestDurability:
    @pytest.mark.slow
    async def test_the_weakest_server_counts(self, tmp_path: Path):
        """A cluster promises the durability of its weakest server, if a quorum answers."""
        with cluster.running(tmp_path, syncs=("always", "always", '"10ms"')) as servers:
            await servers.elected()
            system = servers.options("system", first=servers.members[0])
            assert await outside_durability(system) == "relaxed"
            servers.members[2].kill()
            assert await outside_durability(system) == "strict"
            servers.members[1].kill()
            assert await outside_durability(system) == "unknown"

    async def test_all_strict(self, servers: Cluster):
        """Durability is strict if every server always syncs."""
        assert await outside_durability(servers.options("system")) == "strict"


class TestReplicas:
    async def test_streams_have_the_requested_replicas(
        self, servers: Cluster, caplog: pytest.LogCaptureFixture
    ):
        """Streams have the requested number of replicas; an existing one with fewer is logged."""
        log = await servers.log("three", replicas=3)
        fewer = await servers.log("one", replicas=1)
        async with closing(log, fewer):
            raw = await RawWorkspace.open(servers.options(), "three")
            figures = await raw.figures()
            await raw.close()
            assert [f.replicas for f in figures] == [3, 3, 3]
            assert all(f.leader in {"n1", "n2", "n3"} for f in figures)
            assert not [record for record in caplog.records if "replicas" in record.message]
            again = await servers.log("one", replicas=3)
            await again.close()
            assert "has 1 of the 3 replicas requested" in caplog.text

    @pytest.mark.thorough(quick="test_streams_have_the_requested_replicas")
    async def test_the_list_of_generations_has_as_many_as_the_log(self, servers: Cluster):
        """From the first roll on after those of the log were raised."""
        log = await servers.log("raised", replicas=1)
        async with closing(log):
            admin = await Broker.open(servers.options("admin", request_timeout_s=5.0))
            await log.append(append(ALICE, 1))
            assert (await roll.roll(admin, "raised")).sealed
            await log.append(append(ALICE, 2))
            config = (await servers.info("hansard_log-raised_1"))["config"]
            raised = config | {"num_replicas": 3}
            await api(admin, "STREAM.UPDATE.hansard_log-raised_1", raised)

            async def rolls() -> bool:
                with contextlib.suppress(BrokerError, NoAnswer):  # a replica has not caught up
                    return (await roll.roll(admin, "raised")).sealed
                return False

            await brokers.until(rolls)
            tiers = await servers.info(subjects.tiers_stream("raised"))
            assert tiers["config"]["num_replicas"] == 3
            assert (await log.append(append(ALICE, 3))).position == 3
            assert len(await log.read(ALICE)) == 3
            await admin.close()

    async def test_more_than_there_are_servers(self, servers: Cluster):
        """Replicas that no cluster can hold are refused with the remedy."""
        with pytest.raises(BrokerError, match=r"with 5 replicas.*ask for fewer"):
            await servers.log("many", replicas=5)

    async def test_one_server_is_no_cluster(self, tmp_path: Path):
        """Neither is a server alone."""
        with brokers.running(tmp_path) as nats:
            opening = open_log(
                nats.options(), "lab", "strict", admin=nats.options("admin"), replicas=3
            )
            with pytest.raises(BrokerError, match=r"with 3 replicas.*ask for fewer"):
                await opening

    async def test_settings(self, tmp_path: Path):
        """The embedded broker has one replica, and a value that is not a number is refused."""
        with pytest.raises(hansard.HansardError, match="the embedded broker is one server"):
            await hansard.connect_async(data_dir=tmp_path, nats_replicas=3)
        for wrong in ("0", "6", "three", "-1"):
            with pytest.raises(hansard.HansardError, match="give a number from 1 to 5"):
                await hansard.connect_async(data_dir=tmp_path, nats_replicas=wrong)  # type: ignore[call-overload] # as the environment has it


class Trial:
    def __init__(self, logs: Sequence[JetStreamLog]) -> None:
        self.logs = logs
        self.acked: dict[KeyStream, list[int]] = {KeyStream(f"r{i}", "plan"): [] for i in range(8)}
        self.head = 0
        self.figures: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def write(self, stop: asyncio.Event) -> None:
        """Append to one stream after the other."""
        log = self.logs[0]
        while not stop.is_set():
            for stream, positions in self.acked.items():
                new = append(stream, len(positions) + 1)
                stored: Stored | None = None
                while stored is None:
                    try:
                        stored = await log.append(new)
                    except BusError:
                        self.figures["appends tried again"] += 1
                positions.append(stored.position)
                self.head = stored.position
                self.figures["acknowledged"] += 1
                await asyncio.sleep(0.01)

    async def read(self, log: JetStreamLog, dice: random.Random, stop: asyncio.Event) -> None:
        """Read in every way, at old points and at the newest."""
        while not stop.is_set():
            stream = dice.choice(list(self.acked))
            point = dice.choice([None, self.head, dice.randint(1, max(1, self.head))])
            least = sum(position <= (point or self.head) for position in self.acked[stream])
            way = dice.choice(["read", "streams", "boards", "last", "run"])
            try:
                count = await self._count(log, way, stream, point)
            except (BusError, TimeoutError) as error:
                self.figures[f"failed with {type(error).__name__}"] += 1
                continue
            self.figures["reads"] += 1
            whole = point is not None and way != "last"
            if count < least or (whole and count > least):
                self.wrong.append(f"{way} of {stream} at {point}: {count}, not {least}")

    @staticmethod
    async def _count(log: JetStreamLog, way: str, stream: KeyStream, point: int | None) -> int:
        """Return how many of a stream's commits a way of reading finds."""
        up_to = None if point is None else AtPosition(point)
        match way:
            case "read":
                return len(await log.read(stream, up_to=up_to))
            case "streams":
                return len(await log.read_streams([stream], up_to))
            case "boards":
                return len(await log.read_boards(stream.run, up_to))
            case "run":
                return len(await log.read_run(stream.run, up_to))
            case _:
                last = await log.last(stream)
                return 0 if last is None else last.commit.version


@pytest.mark.thorough
async def test_stops_and_kills(tmp_path: Path, evidence: Evidence):
    """None of 10,000 reads over 40 stops and kills is stale; those without an answer fail."""
    with cluster.running(tmp_path / "cluster") as servers:
        await servers.elected()
        logs = [await servers.log("lab")]
        logs += [await servers.log("lab", first=member) for member in servers.members]
        trial, stop, dice = Trial(logs), asyncio.Event(), random.Random(5)
        taken: list[int] = []

        async with closing(*logs):
            tasks = [
                asyncio.create_task(trial.write(stop)),
                asyncio.create_task(follow(logs[1], taken)),
            ]
            tasks += [
                asyncio.create_task(trial.read(log, random.Random(number), stop))
                for number, log in enumerate(logs)
            ]
            for _ in range(40):
                member = dice.choice(servers.members)
                if dice.random() < 0.5:
                    member.freeze()
                    await asyncio.sleep(dice.choice([0.2, 1, 6]))
                    member.go_on()
                else:
                    member.kill()
                    await asyncio.sleep(dice.choice([0.2, 2]))
                    await asyncio.to_thread(member.start)
                await asyncio.sleep(2)
            # A busy machine has made fewer so far.
            await eventually(lambda: trial.figures["reads"] > READS_MIN, within_s=300)
            stop.set()
            await asyncio.gather(tasks[0], *tasks[2:])
            await reached(taken, trial.head)
            tasks[1].cancel()
    evidence.record("replicas.stops_and_kills", stale=len(trial.wrong), **trial.figures)
    assert not trial.wrong, trial.wrong[:20]
    assert taken == list(range(1, taken[-1] + 1))


class Parted:
    """A cluster of which a stream's leader and some followers do not reach each other: a reader at
    the leader, and writers at one of the others, who elect another leader.
    """

    def __init__(self, servers: Cluster, leader: Member, *followers: Member) -> None:
        self.servers, self.leader, self.followers = servers, leader, followers
        self.acked = 0
        self._over = asyncio.Event()

    async def _write(self, log: JetStreamLog, stream: KeyStream) -> None:
        new = append(stream, 1)
        while not self._over.is_set():
            with contextlib.suppress(BusError):
                self.acked = max(self.acked, (await log.append(new)).position)
                new = append(stream, new.commit.version + 1)
            await asyncio.sleep(0.02)

    async def check_reads(
        self, reader: JetStreamLog, writer: JetStreamLog, run: str, more: Awaitable[object]
    ) -> None:
        """Read until 100 more commits are acknowledged; do `more` after the parting."""
        writing = [
            asyncio.create_task(self._write(writer, KeyStream(run, f"k{n}"))) for n in range(5)
        ]
        for follower in self.followers:
            self.servers.part(self.leader.name, deaf=[follower.name])
            self.servers.part(follower.name, deaf=[self.leader.name])
        doing = asyncio.ensure_future(more)
        before = self.acked
        async with asyncio.timeout(PARTED_S):
            while self.acked <= before + 100:
                least = self.acked
                with contextlib.suppress(BusError):
                    assert await reader.head() >= least
                await asyncio.sleep(0.002)
        self.servers.join(broken=True)
        self._over.set()
        await asyncio.gather(doing, *writing)


@pytest.mark.thorough(quick="test_who_is_believed")
async def test_no_stale_read_between_two_that_are_parted(tmp_path: Path, rounds: Any):
    """A leader and one follower do not reach each other; the third server elects the follower, and
    the leader knows of it up to a second later.
    """
    with cluster.running(tmp_path / "cluster", linked=True) as servers:
        await servers.elected()
        first, name = await servers.log("lab"), subjects.log_stream("lab")
        for number in range(rounds(1, 5)):
            leader, follower = await parted(servers, name)
            reader = await servers.log("lab", first=leader)
            writer = await servers.log("lab", first=follower, request_timeout_s=0.1)
            trial = Parted(servers, leader, follower)
            await trial.check_reads(reader, writer, f"r{number}", asyncio.sleep(0))
            async with closing(reader, writer):
                pass
        await first.close()


@pytest.mark.thorough(quick="test_who_is_believed")
async def test_no_stale_read_while_the_next_generation_opens(tmp_path: Path, rounds: Any):
    """After the seal a reader has no open generation to look at, only the lists of streams and of
    generations; the leader of both is alone while the others open the next generation.
    """

    async def alone(servers: Cluster, admin: Broker, system: Broker) -> Member:
        """Have the server that lists the streams lead the generations and their list."""
        async with asyncio.timeout(PARTED_S):
            while True:
                _, data = await system.request("$SYS.REQ.SERVER.PING.JSZ", b"{}")
                name = msgspec.json.decode(data)["data"]["meta_cluster"].get("leader")
                names = await direct.stream_names(admin)
                logs = [each for each in names if "_log-lab" in each or "_tiers-lab" in each]
                leaders = {each: (await servers.leader(each)).name for each in logs}
                if {*leaders.values()} == {name}:
                    return servers.member(name)
                for each in (each for each, leader in leaders.items() if leader != name):
                    with contextlib.suppress(BusError):
                        body = {"placement": {"preferred": name}}
                        await api(admin, f"STREAM.LEADER.STEPDOWN.{each}", body)
                await asyncio.sleep(1)

    async def opened(admin: Broker) -> None:
        async with asyncio.timeout(PARTED_S):
            while True:
                with contextlib.suppress(BusError):
                    await streams.open_next(admin, "lab")
                    return
                await asyncio.sleep(0.1)

    with cluster.running(tmp_path / "cluster", linked=True) as servers:
        await servers.elected()
        first, key = await servers.log("lab"), KeyStream("first", "k")
        admin = await Broker.open(servers.options("admin", request_timeout_s=ELECTED_S))
        system = await Broker.open(servers.options("system"))
        await first.append(append(key))
        await roll.roll(admin, "lab")  # it makes the list
        for number in range(rounds(1, 5)):
            await first.append(append(key, number + 2))
            leader = await alone(servers, admin, system)
            followers = [each for each in servers.members if each is not leader]
            reader = await servers.log("lab", first=leader)
            writer = await servers.log("lab", first=followers[0], request_timeout_s=0.1)
            quick = servers.options("admin", first=followers[0], request_timeout_s=0.3)
            opener = await Broker.open(quick)
            at = await survey(direct.Direct(admin), "lab")
            assert await streams.seal(admin, "lab", at.streams[-1])
            trial = Parted(servers, leader, *followers)
            trial.acked = await reader.head()
            assert reader._generations.view.open is None
            await trial.check_reads(reader, writer, f"r{number}", opened(opener))
            async with closing(reader, writer):
                await opener.close()
        for each in (first, admin, system):
            await each.close()


@pytest.mark.thorough(quick="bus/test_generations.py::test_followers_go_on_over_rolls")
@pytest.mark.parametrize("replicas", [1, 3])
async def test_no_stale_read_over_rolls(servers: Cluster, tmp_path: Path, replicas: int):
    """What a client at one server appended is read at another, while the log is rolled."""
    workspace = f"rolls-{replicas}"
    logs = [
        await servers.log(workspace, replicas=replicas, first=member) for member in servers.members
    ]
    admin = await Broker.open(servers.options("admin"))
    over, taken = asyncio.Event(), list[int]()

    async def write(number: int) -> int:
        stream, version = KeyStream("r1", f"k{number}"), 0
        while not over.is_set():
            version += 1
            stored = await logs[number].append(append(stream, version))
            taken.append(stored.position)
            for log in logs:
                newest = await log.last(stream)
                assert newest is not None
                assert newest.position >= stored.position
                assert len(await log.read(stream)) >= version
        return version

    writers = [asyncio.create_task(write(number)) for number in range(len(logs))]
    archive = archive_at(workspace, str(tmp_path))
    opened, first = 0, 1
    for _ in range(4):
        await reached(taken, first)  # an empty generation is not rolled
        await asyncio.sleep(0.5)
        for writer in writers:
            assert not writer.done(), writer.result()
        before, at = opened, None
        async with asyncio.timeout(ROLLED_S):
            while at is None:  # repeated, as `hansard up` does
                with contextlib.suppress(BusError):
                    await roll.tend(admin, workspace, None, archive, keep_s=0)
                    at = await survey(direct.Direct(admin), workspace)
        opened, first = at.streams[-1].number, at.streams[-1].first
        assert opened > before
        assert [each.number for each in at.streams] == [opened]
        assert [each.generation for each in at.archived] == [*range(opened)]
    over.set()
    versions = await asyncio.gather(*writers)
    whole = [each async for each in logs[0].follow(0, until=await logs[1].head())]
    assert len(whole) == sum(versions)
    async with closing(*logs):
        await admin.close()


@pytest.mark.thorough(quick="bus/test_generations.py::test_followers_go_on_over_rolls")
@pytest.mark.parametrize("replicas", [1, 3])
async def test_the_leader_shows_a_roll_whose_notice_is_late(servers: Cluster, replicas: int):
    """The connection between two servers may hang: the notice is not heard here at all."""
    workspace, stream = f"late-{replicas}", KeyStream("r1", "k")
    logs = [
        await servers.log(workspace, replicas=replicas, first=member) for member in servers.members
    ]
    await logs[0].append(append(stream, 1))
    for log in logs:
        await log.last(stream)
        stop = log._generations._listening
        assert stop is not None
        await stop()
    admin = await Broker.open(servers.options("admin"))
    await roll.roll(admin, workspace)
    await logs[0].append(append(stream, 2))
    for log in logs[1:]:
        newest = await log.last(stream)
        assert newest is not None
        assert newest.commit.version == 2
        assert len(await log.read(stream)) == 2
    async with closing(*logs):
        await admin.close()


@pytest.mark.thorough(quick="bus/test_generations.py::test_followers_go_on_over_rolls")
@pytest.mark.parametrize("replicas", [1, 3])
async def test_a_follower_goes_on_over_a_roll_without_its_notice(servers: Cluster, replicas: int):
    """A client that follows, and reads nothing else, looks for a roll now and then."""
    workspace, stream = f"deaf-{replicas}", KeyStream("r1", "k")
    writer = await servers.log(workspace, replicas=replicas, first=servers.members[0])
    reader = await servers.log(workspace, replicas=replicas, first=servers.members[1])
    taken: list[int] = []
    following = asyncio.create_task(follow(reader, taken))
    await writer.append(append(stream, 1))
    await reached(taken, 1)
    stop = reader._generations._listening
    assert stop is not None
    await stop()
    admin = await Broker.open(servers.options("admin"))
    await roll.roll(admin, workspace)
    await writer.append(append(stream, 2))
    await reached(taken, 2)
    following.cancel()
    async with closing(writer, reader):
        await admin.close()


@pytest.mark.thorough(quick="bus/test_generations.py::test_followers_go_on_over_rolls")
@pytest.mark.parametrize("moment", ["before", "amid"])
async def test_a_log_is_not_rolled_while_a_server_is_stopped(
    servers: Cluster, monkeypatch: pytest.MonkeyPatch, moment: str
):
    """A server that does not hear of the roll may lead the old generation later, and accept what a
    client sends that did not hear of it either.
    """
    first, stream = await servers.log(moment), KeyStream("r1", "k")
    name = subjects.log_stream(moment)
    await first.append(append(stream, 1))
    leader, follower = await parted(servers, name)
    patient: dict[str, Any] = {"request_timeout_s": 60.0, "append_timeout_s": 90.0}
    apart = await servers.log(moment, first=follower, **patient)
    await apart.append(append(stream, 2))
    admin = await Broker.open(servers.options("admin", first=leader))
    late: list[asyncio.Task[Stored]] = []

    async def stopped() -> None:
        follower.freeze()
        late.append(asyncio.create_task(apart.append(append(KeyStream("r2", "late"), 1))))
        await asyncio.sleep(direct.LEASE_S + 2)

    async def amid(broker: Broker, subject: str, body: dict[str, Any] | None = None) -> Any:
        answer = await api(broker, subject, body)
        if subject.startswith("STREAM.UPDATE.") and not late:
            await stopped()
        return answer

    if moment == "before":
        await stopped()
    else:
        monkeypatch.setattr(streams, "api", amid)
    with pytest.raises(BrokerError, match="does not follow it: start it"):
        await roll.roll(admin, moment)
    assert (await first.append(append(stream, 3))).position == 3
    follower.go_on()
    stored = await late[0]
    assert (await first.at(stored.position)).commit.id == stored.commit.id

    async def rolls() -> bool:
        with contextlib.suppress(BrokerError):
            return (await roll.roll(admin, moment)).sealed
        return False

    await brokers.until(rolls, 60)
    assert (await apart.append(append(stream, 4))).position == stored.position + 1
    assert len(await first.read(stream)) == 4
    async with closing(first, apart):
        await admin.close()
