"""A workspace has one home; other regions read copies of its log, and one may be promoted."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus.errors import AppendUnknown, BrokerError, BusError
from hansard.bus.jetstream import JetStreamLog, open_log, regions, streams
from hansard.bus.jetstream.client import Broker
from hansard.bus.jetstream.direct import Direct
from hansard.bus.jetstream.generations import HOME, survey
from hansard.bus.jetstream.log import RawWorkspace
from hansard.bus.subjects import snapshot_prefix, snapshot_stream
from hansard.domain.errors import CallerError
from hansard.domain.ids import AgentStream, KeyStream
from hansard.service.sharing import Lease
from tests.bus.brokers import append
from tests.cli.support import Ran, ran
from tests.faults.regions import Regions, Server, running

WITHIN_S = 60.0
BIG = 100_000
NOT_HOME = "its home is region 'B' now"
STEP = 8
"""Kills of one case are so many requests apart."""
REQUESTS_MAX = 200
Command = Callable[..., Ran]


@pytest.fixture
def two(tmp_path: Path, rounds: Callable[[int, int], int]) -> Iterator[Regions]:
    """Yield two regions: 80 ms apart, there and back, or 10 ms in a quick run."""
    with running(tmp_path / "regions", rounds(5, 40) / 1_000) as made:
        yield made


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Return a function that runs a command in a region."""

    def command(server: Server, *arguments: object, workspace: str = "lab") -> Ran:
        monkeypatch.setenv("HANSARD_DATA_DIR", str(tmp_path / "data" / str(server.port)))
        monkeypatch.setenv("HANSARD_NATS_URL", server.url)
        monkeypatch.setenv("HANSARD_NATS_USER", "admin")
        monkeypatch.setenv("HANSARD_NATS_PASSWORD", "admin")
        return ran(capsys, monkeypatch, ["-w", workspace, *arguments])

    return command


def record_at(server: Server, folder: Path, workspace: str = "lab") -> Any:
    """Connect to a record of a region."""
    return hansard.connect(workspace=workspace, data_dir=folder / "data", **server.login)


def work(session: Any, calls: int) -> None:
    """Make calls, the last one with a result that goes to a blob."""

    @session.tool(effects="pure")
    def text(size: int) -> str:
        return "x" * size

    for number in range(calls):
        text(BIG if number == calls - 1 else number)


def record(server: Server, folder: Path, name: str, calls: int = 2) -> None:
    """Record a run."""
    with record_at(server, folder) as to, to.run("w", run=name, agent="a", role="r") as session:
        work(session, calls)


async def read(server: Server, workspace: str = "lab") -> list[tuple[int, str, bytes]]:
    """Return the log of a region: positions, subjects and bodies."""
    raw = await RawWorkspace.open(server.options, workspace)
    try:
        last = (await raw.extent()).last
        log = [each async for each in raw.follow(0, until=last)]
        return [(each.position, each.subject, each.body) for each in log]
    finally:
        await raw.close()


def messages(server: Server, workspace: str = "lab") -> list[tuple[int, str, bytes]]:
    """Return the log of a region."""
    return asyncio.run(read(server, workspace))


def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def follow(run: Command, server: Server, home: str) -> Ran:
    """Follow a region as soon as it answers."""
    last: list[Ran] = []

    def answers() -> bool:
        last.append(run(server, "region", "follow", home, "--once"))
        assert last[-1].code in (0, 2), last[-1].err
        return last[-1].code == 0

    until(answers)
    return last[-1]


async def followed(here: Broker, there: Broker, workspace: str = "lab") -> None:
    """Follow a home until the copy has all of its log."""
    lag: regions.Lag | None = None
    async with asyncio.timeout(WITHIN_S):
        while lag is None or lag.position != lag.newest:
            with contextlib.suppress(BusError):  # the leaf connection is not there yet
                if await regions.follow(here, there, workspace) is not None:
                    await regions.copy(here, there, workspace)
                lag = await regions.lag(here, workspace)


def catch_up(server: Server, home: str) -> None:
    """Follow a home until the copy has all of its log."""

    async def work() -> None:
        here = await Broker.open(server.options)
        there = await Broker.open(server.options.in_region(home))
        await followed(here, there)
        await here.close()
        await there.close()

    asyncio.run(work())


@pytest.mark.thorough(quick="test_a_promotion_names_what_the_lost_home_accepted_besides")
def test_a_region_reads_with_its_lag_and_writes_to_the_home(
    two: Regions, run: Command, tmp_path: Path
) -> None:
    """Positions and bodies are those of the home, over a roll; reads state their lag."""
    a, b = two.a, two.b
    record(a, tmp_path, "one")
    follow(run, b, "A")
    catch_up(b, "A")
    shown = run(b, "run", "show", "one")
    assert shown.code == 0
    assert "home 'A' 0 ahead" in shown.err

    record(b, tmp_path, "two")  # over the server of region B
    catch_up(b, "A")
    assert messages(a) == messages(b)

    assert run(a, "tiers", "roll").code == 0
    record(a, tmp_path, "three")
    ahead = len(messages(a)) - len(messages(b))
    assert f"home 'A' {ahead} ahead" in run(b, "runs").err
    catch_up(b, "A")
    follow(run, b, "A")  # the copy of the sealed generation is sealed
    record(b, tmp_path, "four")
    catch_up(b, "A")
    assert messages(a) == messages(b)
    assert run(b, "check").code == 0
    refused = run(b, "tiers", "roll")
    assert refused.code == 2
    assert "its home is region 'A'" in refused.err

    two.distance.cut()
    known = messages(b)
    record(a, tmp_path, "five")
    shown = run(b, "runs")
    assert "home 'A' not answering" in shown.err
    assert "five" not in shown.out
    assert messages(b) == known


def sealed_meanwhile(two: Regions, run: Command, folder: Path, shown: list[Ran]) -> None:
    """Record a run in a former home that is sealed meanwhile."""
    with record_at(two.a, folder) as to, to.run("w", run="late", agent="a", role="r") as session:
        work(session, 1)  # nobody in region A can know yet
        two.distance.join()
        shown.append(follow(run, two.b, "A"))
        work(session, 1)


@pytest.mark.slow
def test_a_promotion_names_what_the_lost_home_accepted_besides(
    two: Regions, run: Command, tmp_path: Path
) -> None:
    """It goes on at the cut; the former home is sealed when it is back, and its commits beyond the
    cut are runs of another workspace, byte for byte.
    """
    a, b = two.a, two.b
    with record_at(a, tmp_path) as opened:
        with opened.run("w", run="half", agent="a", role="r") as session:
            work(session, 2)
            follow(run, b, "A")
            catch_up(b, "A")
            shown = run(b, "run", "show", "half")
            assert "home 'A' 0 ahead" in shown.err
            two.distance.cut()
            work(session, 2)
        with opened.run("w", run="whole", agent="a", role="r") as session:
            work(session, 1)
    accepted = messages(a)
    cut = len(messages(b))
    assert cut < len(accepted)
    a.kill()

    refused = run(b, "region", "promote")
    assert refused.code == 2
    assert "--without-home" in refused.err
    assert f"after position {cut:,}" in refused.err
    promoted = run(b, "region", "promote", "--without-home", "--json").lines[0]
    assert (promoted["region"], promoted["former"], promoted["cut"]) == ("B", "A", cut)
    record(b, tmp_path, "new")
    with record_at(b, tmp_path) as opened:
        assert opened.state("half").life.status == "open"

    a.start()
    late: list[Ran] = []
    with pytest.raises(BusError, match=NOT_HOME):
        sealed_meanwhile(two, run, tmp_path, late)
    accepted, text = messages(a), late[0].out
    assert f"after position {cut:,}" in text
    assert all(f" of {name} that it accepted" in text for name in ("half", "whole", "late"))

    record(a, tmp_path, "newer")  # opened in region A, written to region B
    back = follow(run, a, "B")
    assert f"workspace lab-lost-{cut}" in back.out
    catch_up(a, "B")
    assert messages(a) == messages(b)
    runs = {line["run"] for line in run(a, "runs", "--json").lines}
    assert runs == {"half", "new", "newer"}
    assert run(a, "check").code == run(b, "check").code == 0

    lost = f"lab-lost-{cut}"
    mine = {subject.split(".", 2)[2]: body for _, subject, body in accepted}
    brought = {s.split(".", 2)[2]: body for _, s, body in messages(b, lost)}
    assert {mine[name] for name in brought if name in mine} <= {*brought.values()}
    beyond = {subject.split(".", 2)[2] for _, subject, _ in accepted[cut:]}
    assert all(brought[name] == mine[name] for name in beyond)
    with record_at(b, tmp_path, lost) as opened:
        assert opened.state("whole").life.status == "completed"
        assert opened.fork("half") != "half"


@pytest.mark.thorough
def test_a_home_that_was_just_rolled_follows_its_successor(
    two: Regions, run: Command, tmp_path: Path
) -> None:
    """Its newest generation is empty; a promotion back archives nothing of that."""
    a, b = two.a, two.b
    record(a, tmp_path, "one")
    follow(run, b, "A")
    catch_up(b, "A")
    assert run(a, "tiers", "roll").code == 0
    assert run(b, "region", "promote").code == 0
    record(b, tmp_path, "two")
    follow(run, a, "B")
    catch_up(a, "B")
    assert messages(a) == messages(b)
    assert run(a, "region", "promote").code == 0
    record(b, tmp_path, "three")  # opened in region B, written to region A
    follow(run, b, "A")
    catch_up(b, "A")
    assert messages(a) == messages(b)
    assert run(a, "check").code == run(b, "check").code == 0


@pytest.mark.slow
async def test_an_interrupted_promotion_is_named(
    two: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The home is sealed for a region that was not promoted yet: nothing is written until then."""
    log = await open_log(two.a.options, "lab", "unknown")
    await log.append(append(KeyStream("r", "k")))
    here = await Broker.open(two.b.options)
    there = await Broker.open(two.b.options.in_region("A"))
    await followed(here, there)
    [newest] = (await survey(Direct(there), "lab")).streams
    assert await streams.seal(there, "lab", newest, {HOME: "B"})
    remedy = "promotion of (region )?'B' was interrupted.* 'hansard region promote' there again"
    for server in (two.a, two.b):
        with pytest.raises(BrokerError, match=remedy):
            await open_log(server.options, "lab", "unknown")
    monkeypatch.setattr(regions, "HOME_S", WITHIN_S)
    former = await Broker.open(two.a.options)
    for one, other in ((here, there), (former, here)):
        assert re.search(remedy, str(await regions.lag(one, "lab")))
        with pytest.raises(BrokerError, match=remedy):
            await regions.follow(one, other, "lab")
    assert await regions.promote(here, "lab", there) == 1
    late = await open_log(two.a.options, "lab", "unknown")
    assert (await late.append(append(KeyStream("r", "k"), 2))).position == 2
    for each in (log, late, here, there, former):
        await each.close()


@pytest.mark.slow
async def test_machines_beside_a_copy_share_one_lease(two: Regions) -> None:
    """Its stream of snapshots has other subjects than that of the home, which has its own lease. A
    promotion changes them, and the machines continue with the lease of the new home.
    """
    log = await open_log(two.a.options, "lab", "unknown")
    await log.append(append(KeyStream("r", "k")))
    here = await Broker.open(two.b.options)
    there = await Broker.open(two.b.options.in_region("A"))
    await followed(here, there)
    # Another copy, in the same account, has another subject: it does not get what is renewed here.
    config = await streams.config_of(here, snapshot_stream("lab"))
    assert config is not None
    assert config["subjects"] == ["hansard_snap-lab.B"]
    one, other = [Lease(here, "lab") for _ in range(2)]
    home = Lease(there, "lab")
    for _ in range(2):
        assert [await each.renew() for each in (one, other, home)] == [True, False, True]
    await one.release()
    assert await other.renew()
    assert await regions.promote(here, "lab", there) == 1
    for _ in range(2):
        assert [await each.renew() for each in (one, other)] == [True, False]
    for each in (log, here, there):
        await each.close()


class Died(Exception):
    """The promoting process ended."""


class Dying(Broker):
    """A connection whose process ends before its request number `left`."""

    left = 0

    async def send_all(self, messages: list[tuple[str, bytes, str, bytes]]) -> None:
        """See `Broker.send_all`."""
        if not Dying.left:
            raise Died
        Dying.left -= 1
        await super().send_all(messages)


async def writer(log: JetStreamLog, number: int, accepted: list[bytes]) -> str:
    """Append until the region is no home any more; return the error, empty if an append
    was on its way, and its outcome is unknown.
    """
    stream, version = KeyStream(f"r{number}", "k"), 0
    try:
        while True:
            version += 1
            accepted.append((await log.append(append(stream, version))).body)
    except AppendUnknown:
        return ""
    except BusError as error:
        return str(error)


async def promoted(two: Regions, workspace: str, requests: int) -> bool:
    """Promote region B under writers in both, with a kill after some requests; return whether there
    was one.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def connected(server: Server, home: str = "", cls: type[Broker] = Broker) -> Broker:
            options = server.options.in_region(home) if home else server.options
            broker = await cls.open(options)
            stack.push_async_callback(broker.close)
            return broker

        async def opened(server: Server) -> JetStreamLog:
            log = await open_log(server.options, workspace, "unknown")
            stack.push_async_callback(log.close)
            return log

        await (await opened(two.a)).append(append(KeyStream("first", "k")))
        here, there = await connected(two.b), await connected(two.b, "A")
        await followed(here, there, workspace)
        accepted: list[bytes] = []
        logs = [await opened(server) for server in (two.a, two.b, two.a, two.b)]
        writers = asyncio.gather(*(writer(log, n, accepted) for n, log in enumerate(logs)))
        async with asyncio.timeout(WITHIN_S):
            while len(accepted) <= len(logs):  # noqa: ASYNC110 -- writers have no event
                await asyncio.sleep(0.01)

        Dying.left, killed = requests, False
        try:
            one, other = await connected(two.b, "", Dying), await connected(two.b, "A", Dying)
            await regions.promote(one, workspace, other)
        except Died:
            killed = True
            with contextlib.suppress(CallerError):  # it was complete
                await regions.promote(here, workspace, there)
        async with asyncio.timeout(WITHIN_S):
            errors = await writers
        assert all(NOT_HOME in error for error in errors if error)
        log = await opened(two.b)
        accepted.append((await log.append(append(KeyStream("after", "k")))).body)
        key = snapshot_prefix(workspace, AgentStream("r", "role", "a"), "layout")
        for each, data in ((log, b"of the log"), (logs[1], b"of a former home")):
            await each.snapshots.put(key, data)
        async with asyncio.timeout(WITHIN_S):
            names = Direct(here).names
            while len((await names(snapshot_stream(workspace), ">"))[0]) < 2:  # noqa: ASYNC110 -- a copy has no event
                await asyncio.sleep(0.01)
        assert await log.snapshots.get_many([key]) == {key: b"of the log"}
        await followed(await connected(two.a), await connected(two.a, "B"), workspace)
    bodies = {body for _, _, body in await read(two.b, workspace)}
    assert {*accepted} <= bodies
    assert await read(two.a, workspace) == await read(two.b, workspace)
    return killed


@pytest.mark.thorough(quick="test_a_promotion_names_what_the_lost_home_accepted_besides")
@pytest.mark.parametrize("first", range(STEP))
def test_a_home_that_answers_is_promoted_without_loss(tmp_path: Path, first: int) -> None:
    """Writers in both regions get every acknowledged commit into the new home, wherever the
    promoting process is killed.
    """
    with running(tmp_path / "regions", 0.0) as two:

        async def rounds() -> int:
            for requests in range(first, REQUESTS_MAX, STEP):
                if not await promoted(two, f"lab{requests}", requests):
                    return requests
            raise AssertionError

        assert asyncio.run(rounds()) > STEP
