"""The projector on a real broker: it follows, survives, notices another log, and shares nothing."""

import asyncio
import itertools
import os
import random
import threading
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.bus.errors import Unreachable
from hansard.bus.jetstream.log import Chunk, RawWorkspace
from hansard.domain import agent, run, steps
from hansard.domain.events import Commit
from hansard.domain.ids import AgentStream, RunStream, StreamId
from hansard.projections.errors import Held, OtherLog, Unusable
from hansard.projections.runner import LiveStore, Projector, project, rebuild, verify, wait_for
from hansard.projections.store import Store
from hansard.projections.table_files import ProjectorStatus, TableFiles
from tests.cli.planting import commit, options, plant
from tests.faults._warm import Process, start
from tests.projections.support import WORKSPACE
from tests.roles.planted import planted

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0
_numbers = itertools.count(1)


def a_run(record: hansard.Record, calls: int = 2) -> str:
    """Return a small run."""
    with record.run("w", agent="a", role="r") as session:
        send = session.tool(effects="once", name="send")(lambda x: x)
        for number in range(calls):
            send(number)
            session.message("assistant", f"sent {number}")
    return session.run


@pytest.fixture
def workspace(home: Path, record: hansard.Record) -> str:
    """Return a workspace that nobody has used."""
    name = f"p{next(_numbers)}-{os.getpid()}"
    hansard.connect(name, data_dir=home).close()
    return name


@asynccontextmanager
async def source(home: Path, workspace: str = WORKSPACE):
    """Yield a raw workspace."""
    raw = await RawWorkspace.open(options(home), workspace)
    try:
        yield raw
    finally:
        await raw.close()


@asynccontextmanager
async def running(home: Path, workspace: str):
    """Yield a projector that follows."""
    async with source(home, workspace) as raw:
        projector = await Projector.open(raw, TableFiles.of(home, workspace))
        task = asyncio.ensure_future(projector.run())
        try:
            yield projector, task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await projector.close()


async def head_of(home: Path, workspace: str) -> int:
    """Return the newest position."""
    async with source(home, workspace) as raw:
        return (await raw.extent()).last


@pytest.mark.parametrize("moment", ["begun", "closed"])
async def test_nobody_takes_the_tables_while_a_thread_still_has_them(
    home: Path, workspace: str, monkeypatch, moment: str
):
    """Tables stay taken until the projector's thread is through, and no longer."""
    place, entered, goes_on = TableFiles.of(home, workspace), threading.Event(), threading.Event()
    named = "__init__" if moment == "begun" else "close"
    real = getattr(LiveStore, named)

    def slowly(*given: object) -> None:
        entered.set()
        assert goes_on.wait(WAIT_S)
        real(*given)

    async with source(home, workspace) as raw:
        work: Awaitable[object]
        if moment == "closed":
            work = (await Projector.open(raw, place)).close()
        else:
            work = Projector.open(raw, place)
        with monkeypatch.context() as patched:
            patched.setattr(LiveStore, named, slowly)
            left = asyncio.ensure_future(work)
            assert await asyncio.to_thread(entered.wait, WAIT_S)
            left.cancel()
            await asyncio.wait({left}, timeout=0.05)
            with pytest.raises(Held):
                await Projector.open(raw, place)
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await left
        await (await Projector.open(raw, place)).close()


async def test_a_log_failure_is_reported_after_received_messages_are_written(
    tmp_path: Path, monkeypatch
):
    """A log failure is reported after the received messages are written.

    A thread still writes them: the tables are not closed under it.
    """
    log, writing, goes_on = planted(), threading.Event(), threading.Event()
    chunks, write = log.chunks, Store.write

    async def gone(after: int = 0, *, until: int | None = None) -> AsyncGenerator[Chunk, None]:
        async for chunk in chunks(after, until=until):
            yield chunk
        assert await asyncio.to_thread(writing.wait, WAIT_S)
        asyncio.get_running_loop().call_later(0.1, goes_on.set)
        raise Unreachable("nats://gone", "it is away")

    def slowly(store: Store, *given: Any) -> None:
        writing.set()
        assert goes_on.wait(WAIT_S)
        write(store, *given)

    monkeypatch.setattr(log, "chunks", gone)
    monkeypatch.setattr(Store, "write", slowly)
    store = Store(tmp_path / "tables.duckdb")
    with pytest.raises(Unreachable):
        await project(log, store)
    assert store.progress.position == len(log.all)
    store.close()


async def test_it_follows_the_log(home: Path, workspace: str):
    """Tables follow the log, and equal a rebuild."""
    place, reached = TableFiles.of(home, workspace), 0
    async with running(home, workspace) as (projector, _):
        for _ in range(3):
            run_id = await asyncio.to_thread(_recorded, home, workspace)
            reached = await wait_for(place, await head_of(home, workspace), WAIT_S)
            assert reached == projector.store.progress.position
            assert projector.store.all("SELECT count(*) FROM runs WHERE run = $1", [run_id]) == [
                (1,)
            ]
        status = place.status()
        assert status is not None
        assert (status.pid, status.position, status.running) == (os.getpid(), reached, True)
        assert status.head >= reached
        assert status.delay_ms is not None
        assert 0 < status.delay_ms < WAIT_S * 1_000
        with pytest.raises(Held, match=f"process {os.getpid()}"):
            async with running(home, workspace):
                pass
    async with source(home, workspace) as raw:
        compared = await verify(raw, place, lambda _done, _total: None)
    assert (compared.position, compared.differing) == (reached, [])
    assert not place.fresh.exists()


def _recorded(home: Path, workspace: str) -> str:
    with hansard.connect(workspace, data_dir=home) as record:
        return a_run(record)


@pytest.mark.thorough
async def test_a_reconnect_leaves_no_trace(home: Path, workspace: str):
    """Connections that break in the middle of reading: no gap, no repeat."""
    place = TableFiles.of(home, workspace)
    await asyncio.to_thread(_many, home, workspace, 0, 300)
    place.path.parent.mkdir(parents=True, exist_ok=True)
    async with source(home, workspace) as raw:
        store = await asyncio.to_thread(Store, place.path.parent / "broken.duckdb")

        def moved(*_: object) -> None:
            transport = raw._broker._nc._transport
            if transport is not None:
                transport.close()

        until = (await raw.extent()).last
        await asyncio.wait_for(project(raw, store, until=until, moved=moved), WAIT_S)
        digests = store.digests()
        store.close()
        made = await rebuild(raw, place, lambda _done, _total: None)
    assert digests == made.tables


def _many(home: Path, workspace: str, since: int, count: int) -> None:
    """Plant many commits: runs with an agent, a step and its outcome."""
    planted: list[tuple[StreamId, Commit]] = []
    for number in range(since, since + count):
        name = f"run {number}"
        who = AgentStream(name, "writer", "ada")
        began = agent.SessionBegan(
            epoch=1, agent="ada", role="writer", server_version="1", protocol_version="1"
        )
        request = steps.StepRequested(
            step=1, tool="t", effects=steps.Effects.ONCE, arguments=RAW, call="c", fingerprint="f"
        )
        planted += [
            (
                RunStream(name),
                commit(
                    1, run.RunStarted(workflow="w"), run.AgentJoined(agent="ada", role="writer")
                ),
            ),
            (who, commit(1, began, request)),
            (who, commit(3, steps.StepInDoubt(step=1, error=steps.Failure("E", "x" * number)))),
            (
                who,
                commit(4, steps.StepCompleted(step=1, result=RAW, digest="d", usage={"cost": 0.1})),
            ),
            (RunStream(name), commit(3, run.RunCompleted())),
        ]
    plant(home, workspace, *planted)


RAW = steps.NULL


async def test_another_log_is_noticed(home: Path, workspace: str, tmp_path: Path):
    """Tables of one log are not gone on with from another, be it shorter or longer."""
    place = TableFiles(tmp_path / "t.duckdb")
    await asyncio.to_thread(_many, home, workspace, 0, 5)
    place.path.parent.mkdir(parents=True, exist_ok=True)
    async with source(home, workspace) as raw:
        store = await asyncio.to_thread(Store, place.path)
        await project(raw, store, until=20)
        for length, why in ((2, "is at position 20, and"), (9, "does not hold the message")):
            other = f"o{length}-{workspace}"
            await asyncio.to_thread(
                lambda name: hansard.connect(name, data_dir=home).close(), other
            )
            await asyncio.to_thread(_many, home, other, 100, length)
            async with source(home, other) as another:
                with pytest.raises(OtherLog, match=why):
                    await project(another, store)
        assert store.progress.position == 20
        store.close()


async def test_what_cannot_be_written_stops_it_with_the_reason(home, workspace, monkeypatch):
    """A projector whose store fails ends with that error, and releases its lock."""
    await asyncio.to_thread(_many, home, workspace, 0, 3)

    def fails(*_: object) -> None:
        message = "no space left"
        raise OSError(message)

    async with running(home, workspace) as (projector, task):
        monkeypatch.setattr(projector.store, "write", fails)
        with pytest.raises(OSError, match="no space left"):
            await asyncio.wait_for(task, WAIT_S)
    async with running(home, workspace) as (projector, task):
        await wait_for(TableFiles.of(home, workspace), 15, WAIT_S)


async def test_a_rebuild_that_is_killed_leaves_the_old_tables(home: Path, workspace: str):
    """A killed rebuild leaves the old tables, and the next one discards its files."""
    place = TableFiles.of(home, workspace)
    await asyncio.to_thread(_many, home, workspace, 0, 3)
    async with source(home, workspace) as raw:
        first = await rebuild(raw, place, lambda _done, _total: None)
        place.fresh.write_bytes(b"half a database")
        place.fresh.with_name(place.fresh.name + ".wal").write_bytes(b"half a log")
        seen: list[tuple[int, int]] = []
        again = await rebuild(raw, place, lambda done, total: seen.append((done, total)))
    assert again == first
    assert seen[-1] == (15, 15)
    assert sorted(path.name for path in place.path.parent.glob(f"{workspace}*")) == [
        f"{workspace}.duckdb",
        f"{workspace}.lock",
    ]


def _tear(path: Path) -> None:
    """Damage a file as a kill during the write of a block may."""
    with path.open("r+b") as file:
        file.seek(3 * 4096 + 1000)  # behind the headers: the first block
        file.write(b"\xff" * 64)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("published", [True, False])
async def test_tables_that_a_kill_has_torn_begin_again(home, workspace, published, caplog):
    """Torn tables restart from the last published ones, else from the log's beginning, and report
    it.
    """
    place = TableFiles.of(home, workspace)
    await asyncio.to_thread(_many, home, workspace, 0, 5)
    async with running(home, workspace):
        await wait_for(place, await head_of(home, workspace), WAIT_S)
    await asyncio.to_thread(_many, home, workspace, 10, 5)
    child = _start(home, workspace)
    head = await head_of(home, workspace)
    while (place.status() or ProjectorStatus(0)).published < head:  # noqa: ASYNC110 -- another process's file
        await asyncio.sleep(0.01)
    child.kill()
    child.wait()
    _tear(place.path)
    if not published:
        place.withdraw()
    async with source(home, workspace) as raw:
        with pytest.raises(Unusable):  # who looks in vain does not make it another fault
            await verify(raw, place, lambda _done, _total: None)
    async with running(home, workspace):
        await wait_for(place, head, WAIT_S)
    [warned] = [each for each in caplog.records if each.msg == "tables_torn_by_a_kill"]
    assert (vars(warned)["begins_at"] > 0) is published
    async with source(home, workspace) as raw:
        compared = await verify(raw, place, lambda _done, _total: None)
    assert (compared.position, compared.differing) == (head, [])


async def test_tables_that_were_closed_and_are_damaged_are_reported(home: Path, workspace: str):
    """Damage without a kill is reported."""
    place = TableFiles.of(home, workspace)
    await asyncio.to_thread(_many, home, workspace, 0, 5)
    async with running(home, workspace):
        await wait_for(place, await head_of(home, workspace), WAIT_S)
    _tear(place.path)
    with pytest.raises(Unusable, match="hansard rebuild"):
        async with running(home, workspace):
            pass


@pytest.mark.thorough(quick="test_tables_that_a_kill_has_torn_begin_again")
@pytest.mark.long
@pytest.mark.timeout(900)
async def test_kills_under_load_leave_no_trace(home: Path, workspace: str, rounds, evidence):
    """Random kills under load leave tables equal to a rebuild."""
    place, kills = TableFiles.of(home, workspace), rounds(2, 50)
    chance = random.Random(random.getrandbits(32))
    stop = threading.Event()
    planted = threading.Thread(target=_load, args=(home, workspace, stop))
    planted.start()
    moved, seen = 0, 0
    try:
        for _ in range(kills):
            child = _start(home, workspace)
            began = time.monotonic()
            while time.monotonic() - began < WAIT_S:
                status = place.status()
                if (
                    status is not None
                    and status.running
                    and status.pid == child.pid
                    and status.position > seen
                ):
                    break
                await asyncio.sleep(0.005)
            await asyncio.sleep(chance.uniform(0, 0.2))
            child.kill()
            child.wait()
            status = place.status()
            assert status is not None
            moved += status.position > seen
            seen = status.position
    finally:
        stop.set()
        await asyncio.to_thread(planted.join)
    head = await head_of(home, workspace)
    child = _start(home, workspace, str(head))
    assert await asyncio.to_thread(child.wait, WAIT_S * 3) == 0
    async with source(home, workspace) as raw:
        compared = await verify(raw, place, lambda _done, _total: None)
    assert (compared.position, compared.differing) == (head, [])
    assert compared.tables["steps"].rows == head // 5
    assert moved == kills
    evidence.record("kill.projector", kills=kills, commits=head, differing_tables=0)


def _start(home: Path, *arguments: str) -> Process:
    command = ["-m", "tests.projections.project", str(home), *arguments]
    return start(command, ROOT, os.environ)


def _load(home: Path, workspace: str, stop: threading.Event) -> None:
    """Append commits as fast as possible until stopped."""
    for since in itertools.count(0, 20):
        if stop.is_set():
            return
        _many(home, workspace, since, 20)
        time.sleep(0.1)
