"""Requests to run forks: each is run once, by the worker's own program, whatever is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.client.record import AsyncRecord
from hansard.domain.errors import Refused
from hansard.ext.worker import KIND
from hansard.ext.worker import requests as working
from hansard.ext.worker.requests import Work, Worker, WorkRequest, WorkStatus
from tests.faults._warm import python

PROGRAM = """
import os, sys, time
import hansard

@hansard.tool(effects="pure")
def order(number: int) -> str:
    return "lost"

@hansard.tool(effects="once")
def refund(number: int) -> str:
    with open(os.environ["WORLD"], "a") as world:
        world.write(f"refund {number}\\n")
    return "paid"

with hansard.connect() as record, record.run("refunds", agent="clerk", role="r") as session:
    if order(17) == "lost":
        refund(17)
    time.sleep(float(os.environ.get("SLOW_S", "0")))
    session.message("assistant", "done")
print("the end of", session.run)
"""


class Place:
    """A workspace with a program, its world, and `hansard` on the command line."""

    def __init__(self, data_dir: Path, workspace: str, folder: Path, monkeypatch: Any) -> None:
        self.program, self.world = folder / "program.py", folder / "world"
        self.program.write_text(PROGRAM)
        monkeypatch.setenv("WORLD", str(self.world))
        self._options = ("--data-dir", str(data_dir), "--workspace", workspace)
        self._variables = {"HANSARD_DATA_DIR": str(data_dir), "HANSARD_WORKSPACE": workspace}
        self._monkeypatch = monkeypatch

    def begin(self, *command: str) -> subprocess.Popen[str]:
        """Start a command of `hansard`."""
        words = [python(), "-m", "hansard", *self._options, *command]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_program(self) -> None:
        """Run the program once, outside of any fork."""
        for name, text in self._variables.items():
            self._monkeypatch.setenv(name, text)
        subprocess.run([python(), self.program], check=True, capture_output=True)

    def worker(self, *options: str) -> subprocess.Popen[str]:
        """Start a worker of the program."""
        command = ("--", python(), str(self.program))
        return self.begin("worker", "refunds", "--json", *options, *command)


@pytest.fixture
def place(data_dir: Path, workspace: str, tmp_path: Path, monkeypatch: Any) -> Place:
    """Return a workspace with one run of the program."""
    made = Place(data_dir, workspace, tmp_path, monkeypatch)
    made.run_program()
    return made


async def edited_fork(record: AsyncRecord) -> str:
    """Fork the only run with another result of its first step."""
    [(run, _)] = await record.runs()
    edit = hansard.replace("clerk#1", result="delivered")
    return await record.fork(run, edits=[edit], by="eve")


async def test_runs_the_requested_fork(place: Place, data_dir: Path, workspace: str) -> None:
    """The worker runs its own program in the fork; no effect happens, and all is on record."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        fork = await edited_fork(record)
        work: Any = record.noun(Work)
        assert await work.request(fork, by="eve", reason="the carrier was wrong")
        assert not await work.request(fork)
        [request] = await work.list()
        assert (request.run, request.status, request.by) == (fork, WorkStatus.REQUESTED, "eve")
        out, err = place.worker("--once", "--name", "w1").communicate(timeout=60)
        lines = [msgspec.json.decode(line) for line in out.splitlines()]
        assert [line.get("status") for line in lines] == [None, "claimed", "ended"], err
        [request] = await work.list(fork)
        assert (request.status, request.code, request.worker) == (WorkStatus.ENDED, 0, "w1")
        assert "the end of" in request.last
        assert (await record.runs())[0][1].status == "completed"
        assert place.world.read_text() == "refund 17\n"
        rows = await record.sql("SELECT tool, status FROM steps WHERE run = ?", fork)
        assert rows.rows == [("order", "completed")]
        [row] = (await record.sql("SELECT run, last_event, claims, code FROM work")).rows
        assert row == (fork, "ended", 1, 0)
        assert await work.request(fork)
        with pytest.raises(Refused, match="is no fork"):
            await work.request((await record.runs())[1][0])


@pytest.mark.slow
async def test_a_killed_worker(
    place: Place, data_dir: Path, workspace: str, monkeypatch: Any
) -> None:
    """After SIGKILL another worker takes the request when the lease has ended; SIGTERM frees it."""
    monkeypatch.setenv("SLOW_S", "30")
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        fork = await edited_fork(record)
        work: Any = record.noun(Work)
        await work.request(fork)
        with place.worker("--name", "w1") as stopped:
            await claimed(work, "w1")
            stopped.send_signal(signal.SIGTERM)
            stopped.communicate(timeout=30)
        [request] = await work.list()
        assert request.status is WorkStatus.REQUESTED
        with place.worker("--name", "w2") as killed:
            await claimed(work, "w2")
            killed.kill()
            killed.communicate(timeout=30)
        [request] = await work.list()
        assert not request.is_free(datetime.now(UTC))
        now = datetime.fromisoformat(request.lease_until)
        assert request.is_free(now)
        monkeypatch.setenv("SLOW_S", "0")
        reports: list[WorkRequest] = []

        async def execute(run: str) -> tuple[int, str]:
            return 0, run

        monkeypatch.setattr(working, "_now", lambda: now)
        worker = Worker(record.workspace, "refunds", "w3", execute, reports.append)
        assert await worker.work(once=True) == 1
        assert [each.status for each in reports] == [WorkStatus.CLAIMED, WorkStatus.ENDED]
        assert (reports[-1].worker, reports[-1].claims) == ("w3", 3)


async def claimed(work: Any, worker: str) -> None:
    """Wait until a worker has the only request."""
    request: Any = None
    for _ in range(300):
        [request] = await work.list()
        if request.worker == worker and request.status is WorkStatus.CLAIMED:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(request)


async def test_one_worker_takes_a_request(data_dir: Path, workspace: str) -> None:
    """Of workers at the same time, each request is taken by exactly one."""
    async with hansard.connect_async(workspace, data_dir=data_dir) as record:
        async with record.run("refunds", agent="clerk", role="r") as session:
            parent = session.run
        forks = [await record.fork(parent) for _ in range(6)]
        work: Any = record.noun(Work)
        for fork in forks:
            await work.request(fork)
        executed: list[str] = []

        async def execute(run: str) -> tuple[int, str]:
            executed.append(run)
            await asyncio.sleep(0.05)
            return 0, ""

        workers = [
            Worker(record.workspace, "refunds", f"w{n}", execute, lambda _: None) for n in range(3)
        ]
        other = Worker(record.workspace, "other", "o", execute, lambda _: None)
        taken = await asyncio.gather(*(each.work(once=True) for each in (*workers, other)))
        assert sorted(executed) == sorted(forks)
        assert (sum(taken), taken[-1]) == (6, 0)
        assert all(each.status is WorkStatus.ENDED for each in await work.list())
        commits = await record.workspace.log.read_kind(KIND)
        assert len(commits) == 18, "a request, a claim and an end for each"
