"""A claim kept alive while its task is worked on: its lease is extended each third of its length.

A heartbeat is a commit to the run's tasks alone and no step: when it comes depends on time, so no
replay could ask for it again, and it must not stand between the agent's own calls.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from hansard.agents.team.store import TeamStore
from hansard.agents.transact import retry
from hansard.bus.clock import Clock
from hansard.bus.commits import new_commit
from hansard.bus.errors import BusError, Closed
from hansard.bus.log import Append
from hansard.bus.states.boards import Boards
from hansard.domain.errors import HansardError
from hansard.domain.events import Actor
from hansard.domain.label import Label
from hansard.domain.team.task import TaskExtended, TaskStatus

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
