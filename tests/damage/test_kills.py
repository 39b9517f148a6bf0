"""Intact logs: never reported as damaged, whichever process is killed at any moment."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

import hansard
from hansard.broker import lease
from hansard.broker.lease import peek
from hansard.bus import marks
from tests.cli.support import Call, Ran, environment, ran
from tests.conftest import THOROUGH
from tests.damage.conftest import marked, stopped
from tests.damage.damages import WORKSPACE
from tests.faults._warm import python, start

pytestmark = pytest.mark.slow

WRITER = """
import sys, hansard
with hansard.connect() as record:
    while True:
        with record.run("w", agent="a", role="r") as session:
            for number in range(50):
                session.message("user", f"{number}" + "x" * 500)
            session.checkpoint("big", text="y" * 100_000)
        print(flush=True)
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a data directory; at the end no process uses it."""
    folder = tmp_path / "data"
    yield folder
    stopped(folder)


@pytest.fixture
def cli(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    """Yield the command line over it, in this process."""

    def run(*arguments: object) -> Ran:
        words = ["--data-dir", home, "-w", WORKSPACE, *arguments]
        return ran(capsys, monkeypatch, words)

    yield run
    structlog.reset_defaults()


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    listing = subprocess.run(
        ["ps", "-ax", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listing.stdout.splitlines()]
    return [int(child) for child, parent in rows if int(parent) == pid]


def victims(home: Path, writer: int, up: int) -> dict[str, int]:
    """Return the processes that may be killed."""
    info = peek(home)
    pids = {"writer": writer, "projector": up}
    if info is not None:
        pids |= {"server": info.server_pid, "supervisor": info.supervisor_pid}
        keeper = [pid for pid in children(info.supervisor_pid) if pid != info.server_pid]
        pids |= dict.fromkeys(["marker"] if keeper else [], keeper[0] if keeper else 0)
    return pids


def kill(pid: int) -> None:
    """SIGKILL, if it is still there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


@pytest.mark.slow(cases=1)
@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("durability", ["strict", "relaxed"])
def test_an_honest_log_is_never_called_damaged(durability, home, tmp_path, cli, rounds):
    """After kills of server, supervisor, projector and writer `check` finds no damage."""
    env = environment(home, HANSARD_WORKSPACE=WORKSPACE, HANSARD_DURABILITY=durability)
    chance = random.Random(f"{durability}")
    for number in range(rounds(1, 40)):
        up = start(["-m", "hansard", "up"], tmp_path, env)
        writer = subprocess.Popen(
            [python(), "-c", WRITER], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() or number, writer.stderr
            time.sleep(chance.uniform(0, 1.5 if THOROUGH else 0.5))  # at any moment
            pids = victims(home, writer.pid, up.pid)
            names = chance.sample(sorted(pids), 1 + number % 2)
            for name in names:
                kill(pids[name])
            time.sleep(chance.uniform(0, 0.5))
        finally:
            for process in (writer, up):
                process.kill()
                process.communicate()
        stopped(home)
        result = cli("check")
        assert result.code == 0, f"round {number}, {names} killed: {result.out}\n{result.err}"
        hansard.connect(workspace=WORKSPACE, data_dir=home, durability=durability).close()
        stopped(home)


SUPERVISOR = """
import runpy
from hansard.broker import marker

marker.AGAIN_S = 1.0
runpy.run_module("hansard.broker.supervisor", run_name="__main__", alter_sys=True)
"""
"""The supervisor, which starts a killed keeper again after a second instead of ten."""


class _Sys:
    """A substitute for the `sys` of `lease`."""

    def __init__(self, executable: Path) -> None:
        self.executable = str(executable)


@pytest.fixture
def _restarted_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start that supervisor for a data directory."""
    script = tmp_path / "python"
    code = shlex.quote(SUPERVISOR)
    script.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -P -c {code} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setattr(lease, "sys", _Sys(script))


@pytest.mark.usefixtures("_restarted_soon")
def test_a_mark_follows_the_log(home: Path, cli: Call):
    """A mark follows within a second, and its keeper is restarted after a kill."""
    with hansard.connect(workspace=WORKSPACE, data_dir=home) as record:
        for _ in range(2):
            with record.run("w", agent="a", role="r") as session:
                session.message("user", "x" * 70_000)
            head = json.loads(cli("status", "--json").out.splitlines()[-1])["position"]
            marked(home, WORKSPACE, head)
            kept = marks.read(home, WORKSPACE)
            assert kept is not None
            assert (kept.late, kept.lost, kept.durability) == (None, None, "strict")
            assert kept.mark.position == kept.mark.count == kept.mark.chained == head
            assert kept.blobs == record_blobs(cli)
            info = peek(home)
            assert info is not None
            [keeper] = [pid for pid in children(info.supervisor_pid) if pid != info.server_pid]
            kill(keeper)


def record_blobs(cli: Call) -> int:
    """Return the newest sequence of the stream of blobs."""
    streams = json.loads(cli("status", "--json").out.splitlines()[-1])["streams"]
    [last] = [each["last"] for each in streams if each["name"].startswith("hansard_blob")]
    return int(last)
