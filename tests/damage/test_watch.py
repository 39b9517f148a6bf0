"""`hansard up` reports a damaged or forged log while it runs: in its log, `status` and `health`."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.broker.lease import peek
from hansard.domain.events import Actor
from hansard.inspect import status as watch
from tests.cli.planting import plant, publish_raw
from tests.cli.support import Call, Ran, environment
from tests.damage.conftest import BOUND_S, STEPS, steps, stopped
from tests.damage.damages import WORKSPACE, Files, flip, middle
from tests.faults._warm import python

pytestmark = pytest.mark.slow

UP = """
import runpy
import hansard.service.running

hansard.service.running.COMPARE_S, hansard.service.running.READ_PAUSE = 0.5, 1
runpy.run_module("hansard", run_name="__main__", alter_sys=True)
"""
"""`hansard`, which watches with shorter pauses."""


@contextmanager
def up(home: Path) -> Iterator[subprocess.Popen[str]]:
    """`hansard up` as a process of its own, which watches the workspace already."""
    process = subprocess.Popen(
        [python(), "-c", UP, "up", "--json"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: watched(home).read_whole is not None)
        yield process
    finally:
        process.kill()
        process.communicate()


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    until_s = time.monotonic() + BOUND_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def watched(home: Path) -> watch.Watched:
    """Return the watching process's report of the workspace."""
    report = watch.read(home)
    return watch.Watched() if report is None else report.workspaces.get(WORKSPACE, watch.Watched())


def reported(process: subprocess.Popen[str], files: Files, cli: Call) -> str:
    """Return the finding, by the exit status of `health`; it is also logged and in `status`."""
    until(lambda: cli("health").code)
    health = cli("health", "--json")
    assert health.code == 1
    [fact, *_] = health.lines[0]["workspaces"][WORKSPACE]["findings"]
    status = cli("status", "--json")
    assert status.code == 1
    assert fact in status.lines[1]["damage"]
    process.terminate()
    out, err = process.communicate(timeout=BOUND_S)
    lines = [json.loads(line) for line in out.splitlines()]
    assert any(fact in line.get("fact", "") for line in lines if line["kind"] == "damage")
    logged = [json.loads(line) for line in err.splitlines()]
    assert any(line["level"] == "error" and line.get("fact") == fact for line in logged)
    gone = cli("health")
    assert (gone.code, "no 'hansard up' watches" in gone.err) == (1, True)
    return str(fact)


def restarted(files: Files, meanwhile: Callable[[], Any]) -> None:
    """Kill the broker, do something to its files, and have its supervisor start it again."""
    info = peek(files.home)
    assert info is not None
    stat = Path(f"/proc/{info.server_pid}/stat").read_text()
    supervisor = int(stat.rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGSTOP)
    try:
        os.kill(info.server_pid, signal.SIGKILL)
        time.sleep(0.2)
        meanwhile()
    finally:
        os.kill(supervisor, signal.SIGCONT)


def test_a_sound_log_is_healthy(files: Files, cli: Call):
    """Each look has its time and position, without a finding, and `status` exits with 0."""
    with up(files.home):
        health = cli("health")
        assert health.code == 0, health.err
        assert "0 findings" in health.out
        assert cli("status").code == 0


@pytest.mark.parametrize("which", [0, 1])
def test_a_block_that_is_gone_under_a_running_broker(which: int, files: Files, cli: Call):
    """The first block, or one in the middle."""
    with up(files.home) as process:
        files.blocks()[which].unlink()
        fact = reported(process, files, cli)
    assert "missing: position" in fact or "cannot be read" in fact


def test_a_byte_that_is_flipped_under_a_running_broker(files: Files, cli: Call):
    """The server's own figures are unchanged: only reading every message reveals it."""
    with up(files.home) as process:
        flip(files.blocks()[1], middle(files.blocks()[1]) + 20_000)
        fact = reported(process, files, cli)
    assert "cannot be read" in fact


def test_a_block_that_is_gone_after_a_restart_of_the_broker(files: Files, cli: Call):
    """The log is compared at each reconnect, and every few seconds."""
    with up(files.home) as process:
        restarted(files, files.blocks()[0].unlink)
        fact = reported(process, files, cli)
    assert "acknowledged commits are gone" in fact


def not_a_commit(home: Path) -> None:
    """Publish an invalid body under a subject of a run."""
    publish_raw(home, (f"hansard.{WORKSPACE}.run.r1.life.9", b'{"id": "forged"}'))


def by_another(home: Path) -> None:
    """Append a complete commit to an agent's stream, in order, as another author."""
    [(stream, step)] = steps(STEPS + 1, STEPS + 1)
    plant(home, WORKSPACE, (stream, msgspec.structs.replace(step, actor=Actor("mallory"))))


@pytest.mark.parametrize("forge", [not_a_commit, by_another])
def test_a_commit_that_somebody_forged(forge: Callable[[Path], None], files: Files, cli: Call):
    """Published with the broker's login past the library, it does not fit its stream."""
    with up(files.home) as process:
        forge(files.home)
        fact = reported(process, files, cli)
    assert "was not written by Hansard" in fact


def test_an_open_record_stops_where_the_log_was_lost_under_it(files: Files):
    """A connected program stops when the broker restarts on damaged files."""
    with hansard.connect(workspace=WORKSPACE, data_dir=files.home) as record:
        runs = record.runs()
        assert runs

        def lose() -> None:
            for block in files.blocks():
                block.unlink()

        restarted(files, lose)
        with pytest.raises(hansard.Corrupt, match="gone"):
            record.state("long")
        with pytest.raises(hansard.Corrupt, match="gone"):
            record.run("w", run="long", agent="a", role="r").__enter__()


def test_health_without_a_watch(tmp_path: Path, cli: Call, files: Files):
    """This covers no watcher, and one without a sign of life for half a minute."""
    result: Ran = cli("health")
    assert (result.code, "no 'hansard up' watches" in result.err) == (1, True)
    watch.write(files.home, watch.Watch(1, datetime(2025, 1, 1, tzinfo=UTC)))
    result = cli("health")
    assert (result.code, "has not reported for" in result.err) == (1, True)
    stopped(files.home)
