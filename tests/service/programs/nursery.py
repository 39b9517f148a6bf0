"""Fast starter of services and clients: each is a fork of this process, which has all imported.

A line of JSON on stdin is a `Job`, or a number: wait for that process. The answers on stdout: the
started process (`{"pid": n}`), its output (`{"up": true}` of a service, `{"results": ...}` of a
client), its end (`{"status": n}`).

A process kills itself at its `dies`th point, counted from 0. The points of a service are before and
after each append for a hosted session and before and after each answer except heartbeats; those of
a client before each request, while its answer is in flight, and after it. Each point that is
reached is first noted in a file.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import hansard
from hansard import settings
from hansard.bus.jetstream.client import Requests
from hansard.bus.log import Append, EventLog, Stored
from hansard.client import opening
from hansard.service.running import serving
from hansard.service.server import Service
from tests.service.programs import small

ON_THE_WAY_S = 0.02
"""Seconds that sent data has to leave the client library before a kill."""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `service` or `client` to start; `notes` is the file of its points."""

    what: str
    data_dir: str
    workspace: str
    notes: str
    dies: int = -1
    run: str = ""
    file: str = ""
    credentials: str = ""


class Points:
    """The points of one process, and its end at one of them."""

    def __init__(self, job: Job) -> None:
        self._notes = os.open(job.notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._left = job.dies

    def here(self, name: str) -> None:
        """One point."""
        os.write(self._notes, name.encode() + b"\n")
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    async def sent(self, name: str) -> None:
        """One point after something was sent: it is on its way before a kill."""
        if self._left == 0:
            await asyncio.sleep(ON_THE_WAY_S)
        self.here(name)


class PointedLog:
    """The real log; a point before and after each append."""

    def __init__(self, log: EventLog, points: Points) -> None:
        self._log = log
        self._points = points

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Stored:
        """Return the real append."""
        stored: Stored = await self._around([append], self._log.append(append))
        return stored

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """Return the real append of several."""
        stored: list[Stored] = await self._around(appends, self._log.append_all(appends))
        return stored

    async def append_groups(self, groups: Sequence[Sequence[Append]]) -> list[list[Stored]]:
        """Return the real append of several transactions."""
        appends = [append for group in groups for append in group]
        stored: list[list[Stored]] = await self._around(appends, self._log.append_groups(groups))
        return stored

    async def _around(self, appends: Iterable[Append], work: Awaitable[Any]) -> Any:
        tags = " ".join(event.type for each in appends for event in each.commit.events)
        self._points.here(f"before {tags}")
        result = await work
        self._points.here(f"after {tags}")
        return result


def point_answers(points: Points) -> None:
    """Add points to the service's answers, except to heartbeats."""
    take, answer = Service._take, Requests.answer
    beats: set[str] = set()

    def taking(self: Service, subject: str, reply: str, data: bytes) -> None:
        if subject.endswith(".beat"):
            beats.add(reply)
        take(self, subject, reply, data)

    async def answering(self: Requests, reply: str, payload: bytes) -> None:
        counts = reply not in beats and not reply.endswith(".probe")
        prefix = payload[:24].decode(errors="replace")
        if counts:
            points.here(f"before answering {prefix}")
        await answer(self, reply, payload)
        if counts:
            await points.sent(f"after answering {prefix}")

    Service._take = taking  # type: ignore[method-assign] # it only listens
    Requests.answer = answering  # type: ignore[method-assign] # it only listens


async def service(job: Job) -> None:
    """Serve until killed."""
    points = Points(job)
    point_answers(points)
    config = settings.load({}, workspace=job.workspace, data_dir=Path(job.data_dir))
    broker = await opening.find_broker(config)
    workspace = await opening.open_workspace(config)
    log: Any = PointedLog(workspace.log, points)
    async with serving(workspace, broker.runtime):
        workspace.log = workspace.states.log = log
        say(up=True)
        await asyncio.Event().wait()


def point_requests(points: Points) -> None:
    """Have a client's requests have points, signs of life excepted."""
    ask = Requests.ask

    async def asking(self: Requests, subject: str, payload: bytes, timeout_s: float) -> bytes:
        verb = subject.rpartition(".")[2]
        if verb in {"beat", "ping"}:
            return await ask(self, subject, payload, timeout_s)
        points.here(f"before {verb}")
        task = asyncio.get_running_loop().create_task(ask(self, subject, payload, timeout_s))
        await asyncio.sleep(0)
        await points.sent(f"within {verb}")
        answer = await task
        points.here(f"after {verb}")
        return answer

    Requests.ask = asking  # type: ignore[method-assign] # it only listens


def client(job: Job) -> None:
    """Go through the program once."""
    point_requests(Points(job))
    with hansard.connect(credentials=Path(job.credentials)) as record:
        say(results=small.attempt(record, job.run, Path(job.file), []))


def say(**what: Any) -> None:
    """Print one line for the reader."""
    os.write(1, json.dumps(what).encode() + b"\n")


def start(job: Job) -> int:
    """Fork; the child's work. Gives the parent the child's pid."""
    pid = os.fork()
    if pid:
        return pid
    work: Callable[[], Any] = (
        (lambda: client(job)) if job.what == "client" else (lambda: asyncio.run(service(job)))
    )
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def main() -> None:
    """Start processes and wait for them, as requested on stdin."""
    for line in sys.stdin:
        request = msgspec.json.decode(line, type=Job | int)
        if isinstance(request, Job):
            say(pid=start(request))
        else:
            say(status=os.waitstatus_to_exitcode(os.waitpid(request, 0)[1]))


if __name__ == "__main__":
    main()
