"""A task claimed for a block of code: kept alive while that runs, and ended with it."""

from __future__ import annotations

import functools
from typing import Any

from hansard.agents.flow import Flow, Io
from hansard.agents.outcomes import UNTOUCHED
from hansard.agents.team import LEASE_S, Task, TeamFlows
from hansard.agents.team_beat import Heartbeat
from hansard.domain.task import ClaimLost

INTERRUPTED = "interrupted"


class Claimed:
    """The flows of one `claimed()` block."""

    def __init__(self, flows: TeamFlows) -> None:
        self._flows = flows
        self._task: Task | None = None
        self._beat: Heartbeat | None = None

    def begin(
        self, role: str | None, lease: float | None, timeout: float | None
    ) -> Flow[Task | None]:
        """Claim, and keep the claim alive."""
        flows = self._flows
        task, known = yield from flows.claim(role, lease, timeout)
        self._task = task
        if task is not None and not flows.core.settings.mode.reads_only:
            lease_ms = round((LEASE_S if lease is None else lease) * 1_000)
            self._beat = Heartbeat(
                flows.core.boards,
                flows.store,
                flows.core.ledger.actor,
                task.id,
                task.number,
                lease_ms,
            )
            self._beat.label = lambda: flows.core.ledger.label.stored
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
        if isinstance(error, (*UNTOUCHED, ClaimLost)):
            return
        try:
            if isinstance(error, Exception):
                yield from self._flows.fail(task, error)
            else:
                yield from self._flows.release(task, INTERRUPTED)
        except Exception as failed:  # noqa: BLE001 -- the block's own error is the stronger news
            error.add_note(f"how task {task.id!r} ended could not be recorded: {failed}")
