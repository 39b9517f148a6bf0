"""The nursery's other side: services and clients that are forked, and that kill themselves."""

import atexit
import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tests.faults._warm import paths, python
from tests.service.programs.nursery import Job
from tests.service.support import House

PROGRAM = Path(__file__).parent / "programs" / "nursery.py"


class Child:
    """A process that the nursery started. `notes`: the file of the points that it reached."""

    def __init__(self, nursery: "Nursery", job: Job) -> None:
        self.notes = Path(job.notes)
        self._nursery = nursery
        self.pid: int = nursery.ask(job)["pid"]

    def heard(self) -> dict[str, Any]:
        """Return the first message of the process."""
        return self._nursery.hear()

    def ended(self) -> tuple[int, Any]:
        """Return the exit status (as in `subprocess`) and the client's output, None without any."""
        report = self._nursery.ask(self.pid)
        answer = report.get("results")
        while "status" not in report:
            report = self._nursery.hear()
        return report["status"], answer

    def reached(self) -> list[str]:
        """Return the points that it reached."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []


class Forking:
    """A process that has all imported, and forks."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [python(), str(PROGRAM)],
            env={"PATH": "", **paths()},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        atexit.register(self.end)

    def ask(self, line: bytes) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def hear(self) -> bytes:
        """Return the next output line."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def gone(self) -> bool:
        """Return whether the process ended by itself."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End it."""
        atexit.unregister(self.end)
        self._process.kill()
        self._process.communicate()


forking = functools.cache(Forking)
"""Nursery of this process, without state of a test; imports take it a second."""


class Nursery:
    """Has services and clients of a house forked."""

    def __init__(self, house: House, folder: Path) -> None:
        self._house = house
        self._folder = folder
        self._count = 0
        self._living = 0
        self._process = forking()

    def ask(self, what: Job | int) -> dict[str, Any]:
        """Send a line, and return the next output line."""
        self._process.ask(msgspec.json.encode(what))
        report = self.hear()
        self._living += "pid" in report
        return report

    def hear(self) -> dict[str, Any]:
        """Return the next output line."""
        report: dict[str, Any] = msgspec.json.decode(self._process.hear())
        self._living -= "status" in report
        return report

    def _job(self, what: str, dies: int | None, **more: str) -> Job:
        self._count += 1
        return Job(
            what=what,
            data_dir=str(self._house.data_dir),
            workspace=self._house.workspace,
            notes=str(self._folder / f"points-{self._count}"),
            dies=-1 if dies is None else dies,
            **more,
        )

    @contextlib.contextmanager
    def service(self, dies: int | None = None) -> Iterator[Child]:
        """Yield a running service, killed at its point, or else at the end."""
        child = Child(self, self._job("service", dies))
        report = child.heard()
        assert report == {"up": True}, report
        try:
            yield child
        finally:
            with contextlib.suppress(ProcessLookupError):  # not reaped yet: nobody else's pid
                os.kill(child.pid, signal.SIGKILL)
            child.ended()

    def client(self, run: str, file: Path, dies: int | None = None) -> Child:
        """Start a client that goes through the small program once."""
        login = str(self._house.login())
        return Child(self, self._job("client", dies, run=run, file=str(file), credentials=login))

    def close(self) -> None:
        """Close the nursery; output of a running process would go to the next reader."""
        if self._living or self._process.gone():
            self._process.end()
            forking.cache_clear()
