"""The embedded broker under programs that use it: killed with its supervisor; its files gone."""

import contextlib
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hansard
from hansard.broker.files import ServerInfo
from hansard.broker.lease import join, peek
from hansard.bus.errors import StoreGone
from hansard.bus.log import Stored
from hansard.bus.portal import portal
from hansard.domain.ids import KeyStream
from tests.bus.brokers import append
from tests.bus.test_server import commands, eventually, processes_of
from tests.cli.test_up import up
from tests.faults._disks import Embedded
from tests.faults._whole import holes, repeats, torn, whole_log
from tests.faults.support import Child, Stage, all_go_on, missing, read_acks

pytestmark = pytest.mark.slow

HEALED_S = 60.0
"""Longest recovery, in seconds: one on an idle machine, as after a kill of the server alone."""

SEED = 20_261_122
ROUNDS_QUICK, ROUNDS_FULL = 4, 90


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """Yield a data directory; check afterwards that nothing runs there."""
    place = tmp_path / "data"
    yield place
    if not eventually(lambda: not processes_of(place), 10.0):
        left = processes_of(place)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"still running: {left}")


def put(record: hansard.Record, key: str) -> Stored:
    """Append one commit to a stream of its own."""
    return portal().run(record.workspace.log.append(append(KeyStream("r1", key))))


def positions(record: hansard.Record) -> list[int]:
    """Return the positions of the boards' commits."""
    return [stored.position for stored in portal().run(record.workspace.log.read_boards("r1"))]


def running(data_dir: Path) -> ServerInfo:
    """Wait for the server that runs there."""
    deadline = time.monotonic() + HEALED_S
    while (info := peek(data_dir)) is None:
        assert time.monotonic() < deadline, "no server runs"
        time.sleep(0.01)
    return info


def kill(info: ServerInfo, *which: str) -> None:
    """SIGKILL the server, its supervisor or both, in that order."""
    pids = {"server": info.server_pid, "supervisor": info.supervisor_pid}
    for name in which:
        try:
            os.kill(pids[name], signal.SIGKILL)
        except ProcessLookupError:
            assert name == "server"  # it dies with its supervisor
    dead = {info.server_pid} | ({info.supervisor_pid} if "supervisor" in which else set())
    assert eventually(lambda: not dead & commands().keys(), HEALED_S)


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    "which", [("server",), ("supervisor",), ("server", "supervisor"), ("supervisor", "server")]
)
def test_a_broker_that_was_killed_is_there_again(data_dir, which):
    """After server or supervisor is killed, the next write is stored and nothing is lost."""
    with hansard.connect("lab", data_dir=data_dir) as record:
        assert put(record, "a").position == 1
        info = running(data_dir)
        kill(info, *which)
        began = time.monotonic()
        assert put(record, "b").position == 2
        assert time.monotonic() - began < HEALED_S
        assert positions(record) == [1, 2]
        again = running(data_dir)
        assert again.server_pid != info.server_pid
        assert (again.supervisor_pid == info.supervisor_pid) == ("supervisor" not in which)


# ---------------------------------------------------------------- files


DELETED_TRIES = 50


def deleted(data_dir: Path) -> None:
    """Delete the folder as `rm -rf` does, again where files were written to it meanwhile."""
    for _ in range(DELETED_TRIES):
        with contextlib.suppress(OSError):
            shutil.rmtree(data_dir)
        if not data_dir.exists():
            return
    message = f"{data_dir} is still written to"
    raise AssertionError(message)


def renamed(data_dir: Path) -> None:
    """Rename the folder as `mv` does."""
    data_dir.rename(data_dir.with_name("elsewhere"))


def replaced(data_dir: Path) -> None:
    """Replace the folder by a copy with another inode, like a restored backup."""
    data_dir.rename(data_dir.with_name("elsewhere"))
    shutil.copytree(
        data_dir.with_name("elsewhere"), data_dir, ignore=shutil.ignore_patterns("users")
    )


def emptied(data_dir: Path) -> None:
    """Delete the store alone; the directory stays."""
    shutil.rmtree(data_dir / "nats")


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("lose", [deleted, renamed, replaced, emptied])
def test_files_that_are_gone_are_an_error_at_the_next_write(data_dir, lose: Callable[[Path], None]):
    """A write into deleted files is an error, and files in their place are left alone."""
    with hansard.connect("lab", data_dir=data_dir) as record:
        put(record, "a")
        lose(data_dir)
        before = sorted(data_dir.rglob("*"))
        for key in ("b", "c"):
            with pytest.raises(StoreGone) as gone:
                put(record, key)
            assert str(data_dir) in str(gone.value)
        with pytest.raises(StoreGone):
            portal().run(record.workspace.blobs.put(b"blob" * 50_000))
        assert sorted(data_dir.rglob("*")) == before
    with hansard.connect("lab", data_dir=data_dir) as record:
        kept = lose is replaced
        assert positions(record) == ([1] if kept else [])
        assert put(record, "b").position == 1 + kept
    others = data_dir.with_name("elsewhere")
    assert eventually(lambda: not processes_of(others), 10.0)


@pytest.mark.thorough(quick="test_files_that_are_gone_are_an_error_at_the_next_write")
def test_up_ends_where_its_files_are_gone(data_dir):
    """`up` reports that its files are gone, ends, and leaves the folder alone."""
    with up(data_dir, "-w", "lab", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["kind"] == "up"
        deleted(data_dir)
        _, err = process.communicate(timeout=2 * HEALED_S)
    assert process.returncode == 2
    assert "was deleted or moved" in err
    assert not data_dir.exists()


# ---------------------------------------------------------------- rounds of kills


@pytest.mark.thorough(quick="bus/test_jetstream_faults.py::test_kill_under_writers")
@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_no_kill_loses_an_acknowledged_commit(tmp_path, data_dir, evidence, rounds):
    """Whatever process is killed, no acknowledged commit is lost and none is stored twice."""
    number, chance = rounds(ROUNDS_QUICK, ROUNDS_FULL), random.Random(SEED)
    server, stop = Embedded(data_dir), tmp_path / "stop"
    tally = dict.fromkeys(("agent", "server", "supervisor", "both"), 0)
    stage = Stage(server, tmp_path, "load")

    def agent(name: str) -> Child:
        return stage.start("worker", name=name, stop=str(stop))

    with join(data_dir):
        try:
            ended: list[Child] = []
            working = [stage.start("appender", name="appender", streams=20, stop=str(stop))]
            stage.begin("r2")
            working += [agent("worker0"), agent("worker1")]
            for count in range(number):
                all_go_on(working)
                time.sleep(chance.uniform(0.0, 0.3))
                victim = list(tally)[count % 4] if count < 4 else chance.choice(list(tally))
                tally[victim] += 1
                if victim == "agent":
                    child = working.pop(1)
                    child.kill()
                    ended.append(child)
                    working.append(agent(f"worker{2 + count}"))
                    continue
                info = running(data_dir)
                names = ("server", "supervisor") if victim == "both" else (victim,)
                kill(info, *(names if chance.random() < 0.5 else names[::-1]))
            all_go_on(working)
            stop.touch()
            assert [child.end(60.0).error for child in working] == [""] * len(working)
            acks = [ack for child in (*ended, *working) for ack in read_acks(child.job.acks)]
            commits = whole_log(server, stage.workspace)
        finally:
            stage.close()
    lost, repeated = missing(acks, commits), repeats(commits)
    assert (lost, repeated, holes(commits), torn(commits)) == ([], [], [], [])
    evidence.record(
        "kill.embedded",
        rounds=number,
        **tally,
        acknowledged=len(acks),
        stored=len(commits),
        lost=len(lost),
        repeated=len(repeated),
    )
