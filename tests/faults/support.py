"""The outside of these tests: start a program, stop it dead, look at the log and at the world."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

import hansard
from hansard.bus.commits import revive
from hansard.bus.log import Stored
from hansard.bus.portal import portal
from hansard.domain.steps import StepSettled
from hansard.state.replay import RunView
from tests.faults._broker import Reachable
from tests.faults._inside import Acked, Job, Point, World, acked
from tests.faults._warm import Process, paths, start

PROGRAMS = Path(__file__).with_name("programs")

REACH_S = 30.0
"""Longest time until a program's stop or end, in seconds: it starts in about 0.4 s."""

POLL_S = 0.002

PROGRESS_S = 40.0
"""Longest wait for a writer's next acknowledgement, in seconds: an append is tried for 30 s."""


class Report(msgspec.Struct, frozen=True):
    """A program's results, or its error and the step that the error is about."""

    results: Any
    error: str
    message: str
    step: int


class Child:
    """A program that runs as a process of its own."""

    def __init__(self, process: Process, job: Job) -> None:
        self.process = process
        self.job = job

    def reach(self, marker: Path | None = None) -> None:
        """Wait until it has reached its point."""
        path = marker or Path(self.job.marker)
        deadline = time.monotonic() + REACH_S
        while not path.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill_all()
                out, err = self.process.communicate()
                message = f"{path.name} was not reached: {out.decode()} {err.decode()[-3_000:]}"
                raise AssertionError(message)
            time.sleep(POLL_S)

    def kill(self) -> None:
        """SIGKILL it, then wait until whatever it had started in the world has ended too."""
        self.process.kill()
        self._communicate()

    def kill_all(self) -> None:
        """SIGKILL it and whatever it has started: they are a process group of their own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, within_s: float = REACH_S) -> Report:
        """Wait for its end and read its report."""
        out, err = self._communicate(within_s)
        lines = out.splitlines()
        if self.process.returncode or not lines:
            message = f"it ended with {self.process.returncode}: {err.decode()[-3_000:]}"
            raise AssertionError(message)
        return msgspec.json.decode(lines[-1], type=Report)

    def _communicate(self, within_s: float = REACH_S) -> tuple[bytes, bytes]:
        # Its effects are processes that hold the same pipe: end of file means all have ended.
        try:
            return self.process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.kill_all()
            _, err = self.process.communicate()
            message = f"it did not end: {err.decode()[-3_000:]}"
            raise AssertionError(message) from None


class Stage:
    """One run of one program in a workspace of its own, with a world around it."""

    def __init__(self, server: Reachable, folder: Path, workspace: str) -> None:
        self.server = server
        self.workspace = workspace
        self.folder = folder
        self.run = "r1"
        self._count = 0
        self._children: list[Child] = []
        self._record: hansard.Record | None = None
        self.begin("r1")

    def begin(self, run: str) -> None:
        """Go on with another run, in another world."""
        self.run = run
        self.world_folder = self.folder / f"world-{run}"
        self.world_folder.mkdir()
        self.world = World(self.world_folder)

    @property
    def record(self) -> hansard.Record:
        """The workspace as this test sees it: over a connection of its own."""
        if self._record is None:
            self._record = hansard.connect(workspace=self.workspace, **self.server.login)
        return self._record

    def start(
        self,
        program: str | Path,
        point: Point = Point.NOWHERE,
        tool: str = "act",
        *,
        freeze: bool = False,
        **settings: Any,
    ) -> Child:
        """Start a program, in a folder of its own and with nothing but the broker's address."""
        self._count += 1
        home = self.folder / f"process-{self._count}"
        home.mkdir()
        job = Job(
            workspace=self.workspace,
            run=self.run,
            world=str(self.world_folder),
            acks=str(home / "acks"),
            marker=str(home / "reached"),
            point=point,
            tool=tool,
            freeze=freeze,
            settings=settings,
        )
        path = program if isinstance(program, Path) else PROGRAMS / f"{program}.py"
        process = start(
            [str(path), msgspec.json.encode(job).decode()],
            home,
            {"PATH": os.environ.get("PATH", ""), **paths(), **self.server.environment},
            afresh=freeze,  # only a parent can wait for a stop
        )
        child = Child(process, job)
        self._children.append(child)
        return child

    def killed_at(
        self, program: str | Path, point: Point, tool: str = "act", **settings: Any
    ) -> Child:
        """Start a program, let it reach a point, SIGKILL it there."""
        child = self.start(program, point, tool, **settings)
        child.reach()
        child.kill()
        return child

    def frozen_at(
        self, program: str | Path, point: Point, tool: str = "act", **settings: Any
    ) -> Child:
        """Start a program, let it reach a point and stop there by SIGSTOP."""
        child = self.start(program, point, tool, freeze=True, **settings)
        child.reach()
        os.waitid(os.P_PID, child.process.pid, os.WSTOPPED)
        return child

    def go_on(self, program: str | Path, **settings: Any) -> Report:
        """Resume in a new process and return its report."""
        return self.start(program, **settings).end()

    def view(self) -> RunView:
        """Return the run's state in the log."""
        return self.record.state(self.run)

    def commits(self) -> list[Stored]:
        """Return every commit of the run, by position."""
        return portal().run(self.record.workspace.log.read_run(self.run))

    def settlements(self) -> list[StepSettled]:
        """Return the settlements on record, in order."""
        events = (revive(event) for stored in self.commits() for event in stored.commit.events)
        return [event for event in events if isinstance(event, StepSettled)]

    def lost(self) -> list[Acked]:
        """Acknowledged commits of any process of this run that are not in the log as they were."""
        return missing(self.acks(), self.commits())

    def acks(self) -> list[Acked]:
        """Return the commits that processes of this run noted as acknowledged."""
        files = (Path(child.job.acks) for child in self._children if child.job.run == self.run)
        return [ack for file in files for ack in read_acks(file)]

    def close(self) -> None:
        """End whatever still runs."""
        for child in self._children:
            if child.process.poll() is None:
                child.kill_all()
                child.process.communicate()
        if self._record is not None:
            self._record.close()


def acks_of(child: Child) -> int:
    """Return how many commits a program has noted as acknowledged."""
    path = Path(child.job.acks)
    return path.read_bytes().count(b"\n") if path.exists() else 0


def all_go_on(children: list[Child]) -> None:
    """Wait until each writer has had one more acknowledgement."""
    before = [acks_of(child) for child in children]
    deadline = time.monotonic() + PROGRESS_S
    while any(acks_of(child) <= had for child, had in zip(children, before, strict=True)):
        assert time.monotonic() < deadline, "a writer got no acknowledgement any more"
        for child in children:
            assert child.process.poll() is None, child.end()
        time.sleep(0.02)


def read_acks(file: str | Path) -> list[Acked]:
    """Return the complete lines of an `acks` file; a line cut by a kill does not count."""
    path = Path(file)
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [msgspec.json.decode(line, type=Acked) for line in whole.splitlines()]


def missing(acks: Iterable[Acked], commits: Iterable[Stored]) -> list[Acked]:
    """Acknowledged commits that are not in the log at their position, byte for byte."""
    stored_acks = {acked(stored) for stored in commits}
    return [ack for ack in acks if ack not in stored_acks]
