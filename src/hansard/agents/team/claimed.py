"""A task claimed for a block of code: kept alive while that runs, and ended with it."""

from __future__ import annotations

import functools
from typing import Any

from hansard.agents.errors import NeedsSettling
from hansard.agents.flow import Flow, Io
from hansard.agents.steps.recorder import UNTOUCHED
from hansard.agents.steps.scope import Scope
from hansard.agents.team.heartbeat import Heartbeat
from hansard.agents.team.tasks import Task, TeamFlows
from hansard.domain.team.task import ClaimLost

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
