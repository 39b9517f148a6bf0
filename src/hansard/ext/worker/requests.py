"""Requests to run forks: made, listed, and worked off by a worker, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive_all
from hansard.bus.log import Kind, Stored
from hansard.bus.loggers import logger
from hansard.domain.ids import WorkspaceStream
from hansard.domain.values import recordable
from hansard.ext.worker import (
    KIND,
    WorkClaimed,
    WorkEnded,
    WorkExtended,
    WorkReleased,
    WorkRequested,
)
from hansard.extending import OS_USER, By, C_co, Event, Name, Noun, Prose, Refused, trusted
from hansard.inspect.answer import find_run

LEASE_S = 60.0
"""Length of a claim's lease, in seconds: a killed worker's request is free after that."""

EXTEND_S = LEASE_S / 4
"""Seconds after which a worker at work extends its lease."""

LAST_CHARACTERS_MAX = 500
"""Most characters of the last line of a program's output that are recorded."""

_log = logger(__name__)


class WorkStatus(StrEnum):
    """Status of a request."""

    REQUESTED = "requested"
    CLAIMED = "claimed"
    ENDED = "ended"


_REQUESTED = WorkStatus.REQUESTED


class WorkRequest(msgspec.Struct, kw_only=True):
    """A request to run a fork, in its present state.

    Attributes:
        run: The fork.
        workflow: Its workflow.
        status: `requested` until a worker takes it, `claimed` until the program has ended.
        by: The author of the request.
        because: The reason.
        requested_at: The log's time of the request.
        worker: The worker that has it, or had it last.
        claims: How many times it was taken.
        lease_until: The log's time at which the newest claim ends, or ended.
        code: Exit code of the program; None before its end.
        last: Last line of the program's output.
    """

    run: str
    workflow: str = ""
    status: WorkStatus = WorkStatus.REQUESTED
    by: str = ""
    because: str = ""
    requested_at: str = ""
    worker: str = ""
    claims: int = 0
    lease_until: str = ""
    code: int | None = None
    last: str = ""

    def take(self, stored: Stored) -> None:
        """Apply a commit of the request's stream; events of a newer version are left out."""
        for event in revive_all([stored.commit]):
            match event:
                case WorkRequested():
                    self.status, self.code, self.last, self.worker = _REQUESTED, None, "", ""
                    self.workflow, self.because = event.workflow, event.because
                    self.by = stored.commit.actor.agent
                    self.requested_at = stored.time.isoformat()
                case WorkClaimed():
                    self.status, self.worker = WorkStatus.CLAIMED, event.worker
                    self.claims = event.number
                    self.lease_until = _end(stored, event.lease_ms)
                case WorkExtended():
                    self.lease_until = _end(stored, event.lease_ms)
                case WorkReleased():
                    self.status = _REQUESTED
                case WorkEnded():
                    self.status, self.code, self.last = WorkStatus.ENDED, event.code, event.last
                case _:
                    pass

    def is_free(self, now: datetime) -> bool:
        """Return whether a worker may take it at a time."""
        return self.status is WorkStatus.REQUESTED or (
            self.status is WorkStatus.CLAIMED and datetime.fromisoformat(self.lease_until) <= now
        )


def _end(stored: Stored, lease_ms: int) -> str:
    return (stored.time + timedelta(milliseconds=lease_ms)).isoformat()


def folded(run: str, commits: Iterable[Stored]) -> WorkRequest:
    """Return the request of a fork from the commits of its stream."""
    request = WorkRequest(run=run)
    for stored in commits:
        request.take(stored)
    return request


class Work(Noun[C_co], noun="queue"):
    """Requests to run forks."""

    @trusted
    async def request(self, run: str, *, by: By = OS_USER, reason: Prose = "") -> bool:
        """Request that a worker run a fork; return False if that is requested already.

        A worker of the fork's workflow takes the request: `hansard worker WORKFLOW -- COMMAND`.

        Args:
            run: The fork's id.
            by: The author on record.
            reason: The reason on record.

        Raises:
            NotFound: There is no such run.
            Refused: The run is no fork: its own program resumes it.
        """
        run = await find_run(self._workspace, run)
        life = await self._workspace.states.life(run)
        if life.forked is None:
            message = f"run {run} is no fork: fork it first, or resume it with its own program"
            raise Refused(message)

        def decide(commits: list[Stored]) -> Sequence[Event]:
            if commits and folded(run, commits).status is not WorkStatus.ENDED:
                return []
            return [WorkRequested(workflow=life.workflow, because=reason)]

        return await _record(self._workspace, run, by, decide)

    @trusted
    async def list(self, run: Name | None = None) -> list[WorkRequest]:
        """List the requests, oldest first.

        Args:
            run: Only that of this fork.
        """
        requests = await listed(self._workspace)
        return [each for each in requests if run in (None, each.run)]


async def listed(workspace: Workspace) -> list[WorkRequest]:
    """Return the requests, oldest first."""
    requests: dict[str, WorkRequest] = {}
    for stored in await workspace.log.read_kind(KIND):
        if isinstance(stored.stream, WorkspaceStream):
            run = stored.stream.id
            requests.setdefault(run, WorkRequest(run=run)).take(stored)
    return [*requests.values()]


def _record(
    workspace: Workspace, run: str, by: Any, decide: Callable[[list[Stored]], Sequence[Event]]
) -> Awaitable[bool]:
    return workspace.repository.record(WorkspaceStream(KIND, run), by, decide)


Execute = Callable[[str], Awaitable[tuple[int, str]]]
"""Runs the program in a fork; returns its exit code and the last line of its output. Ends the
program when it is cancelled.
"""

Report = Callable[[WorkRequest], None]
"""Called when a request was taken, and when its program has ended."""


class Worker:
    """Works off the requests of a workflow, one after the other.

    A request is taken by one worker: the log accepts one claim. A worker that cannot extend its
    lease in time ends the program; its agents' sessions are then fenced by the next worker's.
    """

    def __init__(
        self, workspace: Workspace, workflow: str, name: str, execute: Execute, report: Report
    ) -> None:
        self._workspace = workspace
        self._workflow = workflow
        self._name = name
        self._execute = execute
        self._report = report

    async def work(self, *, once: bool = False) -> int:
        """Work until cancelled; with `once` until no request waits. Return how many were taken."""
        taken = 0
        while True:
            head = await self._workspace.log.head()
            request = await self._next()
            if request is not None:
                taken += await self._one(request)
            elif once:
                return taken
            else:
                await self._news(head)

    async def _next(self) -> WorkRequest | None:
        """Return the oldest request that is free."""
        requests = await listed(self._workspace)
        now = _now()
        free = (each for each in requests if each.workflow == self._workflow and each.is_free(now))
        return next(free, None)

    async def _news(self, head: int) -> None:
        """Wait for an event of a request after a position; no longer than a lease."""
        following = self._workspace.log.follow(head, of=Kind(KIND))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEASE_S), contextlib.aclosing(following) as commits:  # type: ignore[type-var]  # the port says AsyncIterator, its adapters give generators
                async for _ in commits:
                    return

    async def _one(self, request: WorkRequest) -> bool:
        """Take a request and run its fork; return False if another worker was first."""
        number = request.claims + 1
        lease_ms = round(LEASE_S * 1_000)

        def claim(now: WorkRequest) -> Event | None:
            is_mine = now.claims < number and now.is_free(_now())
            return (
                WorkClaimed(number=number, worker=self._name, lease_ms=lease_ms)
                if is_mine
                else None
            )

        def extend(now: WorkRequest) -> Event | None:
            return WorkExtended(number=number, lease_ms=lease_ms) if _holds(now, number) else None

        def release(now: WorkRequest) -> Event | None:
            return WorkReleased(number=number) if _holds(now, number) else None

        if not await self._state(request.run, claim):
            return False
        self._report(await self._read(request.run))
        running = asyncio.ensure_future(self._execute(request.run))
        try:
            while not running.done():
                await asyncio.wait({running}, timeout=EXTEND_S)
                if not running.done() and not await self._state(request.run, extend):
                    _log.warning("another worker took the request", run=request.run)
                    return True
            code, last = running.result()
        except BaseException:
            await _ended(running)
            await asyncio.shield(self._state(request.run, release))
            raise
        finally:
            await _ended(running)
        text = recordable(last[:LAST_CHARACTERS_MAX], self._workspace.redaction)

        def end(now: WorkRequest) -> Event | None:
            ended = WorkEnded(number=number, code=code, last=text)
            return ended if _holds(now, number) else None

        await self._state(request.run, end)
        self._report(await self._read(request.run))
        return True

    async def _state(self, run: str, decide: Callable[[WorkRequest], Event | None]) -> bool:
        """Append an event that follows from a request's state; return False for none."""

        def events(commits: list[Stored]) -> Sequence[Event]:
            event = decide(folded(run, commits))
            return [] if event is None else [event]

        return await _record(self._workspace, run, self._name, events)

    async def _read(self, run: str) -> WorkRequest:
        return folded(run, await self._workspace.log.read(WorkspaceStream(KIND, run)))


def _now() -> datetime:
    """Return the time; the log's clock may differ by less than a lease."""
    return datetime.now(UTC)


def _holds(request: WorkRequest, number: int) -> bool:
    return request.status is WorkStatus.CLAIMED and request.claims == number


async def _ended(running: asyncio.Future[Any]) -> None:
    """Cancel a program, and wait for its end."""
    running.cancel()
    await asyncio.wait({running})
