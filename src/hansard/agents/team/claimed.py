"""A task claimed for a block of code: kept alive while that runs, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import Any

from hansard.agents.errors import NeedsSettling
from hansard.agents.flow import Flow, Io
from hansard.agents.steps.recorder import UNTOUCHED
from hansard.agents.steps.scope import Scope
from hansard.agents.team.store import TeamStore
from hansard.agents.team.tasks import Task, TeamFlows
from hansard.agents.transact import retry
from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit
from hansard.bus.errors import BusError, Closed
from hansard.bus.log import Append
from hansard.domain.errors import HansardError
from hansard.domain.events import Actor
from hansard.domain.label import Label
from hansard.domain.team.task import ClaimLost, TaskExtended, TaskStatus
from hansard.state.boards import Boards

BEATS_A_LEASE = 3
"""So that one lost heartbeat, and a slow one, do not cost the claim."""


class Heartbeat:
    """Extends one claim until it is stopped, or the claim is another's. On the bus's loop."""

    def __init__(
        self, boards: Boards, store: TeamStore, actor: Actor, task: str, number: int, lease_ms: int
    ) -> None:
        self._boards = boards
        self._store = store
        self._actor = actor
        self._clock = Clock()
        self._event = TaskExtended(task=task, number=number, lease_ms=lease_ms)
        self._work: asyncio.Task[None] | None = None
        self.is_over: Callable[[], bool] = lambda: False
        """Whether the session has ended: then nobody is left who could end the task."""
        self.label: Callable[[], Label | None] = lambda: None
        """The agent's label, when it is asked for."""

    async def start(self, *, at_once: bool) -> None:
        """Begin; `at_once` where the claim was made by an earlier session."""
        self._work = asyncio.get_running_loop().create_task(self._beat(at_once=at_once))

    async def stop(self) -> None:
        """End it, and wait until it has."""
        if self._work is not None:
            self._work.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._work

    async def _beat(self, *, at_once: bool) -> None:
        pause_s = self._event.lease_ms / 1_000 / BEATS_A_LEASE
        if not at_once:
            await asyncio.sleep(pause_s)
        while not self.is_over():
            try:
                if not await retry(self._extend):  # others say something of tasks, too
                    return
                wait_s = pause_s
            except Closed:
                return
            except BusError:
                wait_s = pause_s / BEATS_A_LEASE  # it may go again before the lease is over
            except HansardError:
                return  # the record cannot be read: whoever ends the claim is told why
            await asyncio.sleep(wait_s)

    async def _extend(self) -> bool:
        """Extend the claim; False where it does not stand any more."""
        async with self._boards.turn([self._store.tasks]):
            state = await self._store.team()
            task = state.tasks.get(self._event.task)
            if task is None or task.status is not TaskStatus.CLAIMED:
                return False
            if task.number != self._event.number:
                return False
            version, label = state.version + 1, self.label()
            commit = new_commit(self._clock, version, self._actor, [self._event], label=label)
            await self._store.states.log.append(Append(self._store.tasks, commit))
        return True


INTERRUPTED = "interrupted"


class Claimed:
    """The flows of one `claimed()` block."""

    def __init__(self, flows: TeamFlows) -> None:
        self._flows = flows
        self._task: Task | None = None
        self._beat: Heartbeat | None = None
        self._scope: Scope | None = None

    def begin(self, role: str | None, lease: float, timeout: float | None) -> Flow[Task | None]:
        """Claim, and keep the claim alive."""
        flows = self._flows
        task, known = yield from flows.claim(role, lease, timeout)
        self._task = task
        self._scope = flows.engine.scope("team.claimed")
        if task is not None and not flows.engine.settings.mode.reads_only:
            lease_ms = round(lease * 1_000)
            self._beat = Heartbeat(
                flows.engine.boards,
                flows.store,
                flows.engine.ledger.actor,
                task.id,
                task.number,
                lease_ms,
            )
            self._beat.is_over = lambda: flows.engine.ledger.ended
            self._beat.label = lambda: flows.engine.ledger.label.stored
            yield Io(functools.partial(self._beat.start, at_once=known))
        return task

    def end(self, error: BaseException | None) -> Flow[Any]:
        """Stop, and say how it ended, unless that is said or is not for this session to say."""
        if self._beat is not None:
            yield Io(self._beat.stop)
        task = self._task
        if task is None or (task.id, task.number) in self._flows.ended:
            return
        if error is None:
            yield from self._flows.complete(task, task.result)
            return
        if _stops(error) or self._is_in_doubt(task):
            return
        try:
            if isinstance(error, Exception):
                yield from self._flows.fail(task, error)
            else:
                yield from self._flows.release(task, INTERRUPTED)
        except Exception as failed:  # noqa: BLE001 -- the block's own error is the stronger news
            error.add_note(f"how task {task.id!r} ended could not be recorded: {failed}")

    def _is_in_doubt(self, task: Task) -> bool:
        """Whether a call of the block is: what it did to the task's work, somebody has to say."""
        since = self._flows.claimed_by.get((task.id, task.number), 0)
        return self._scope is not None and self._flows.engine.ledger.in_doubt(self._scope, since)


def _stops(error: BaseException) -> bool:
    """Whether an error says that the run stops here, and nothing of the task."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_stops, error.exceptions))
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, NeedsSettling):
            return True
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return isinstance(error, (*UNTOUCHED, ClaimLost))
