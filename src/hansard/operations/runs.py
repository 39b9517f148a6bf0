"""Statements about runs: settled steps, approvals, ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from hansard.agents import runs
from hansard.agents.policy.approvals import answer
from hansard.agents.policy.permits import Need, states, trusts
from hansard.agents.steps import reused
from hansard.bus.clock import OS_USER
from hansard.domain.reuse import AnswersInvalidated
from hansard.domain.roles.authorize import Trust
from hansard.domain.run import RunCancelled, RunCompleted
from hansard.domain.steps import Verdict
from hansard.domain.team import TaskReopened
from hansard.operations.declare import (
    By,
    Content,
    Here,
    Name,
    Noun,
    Prose,
    Takes,
    choice,
    operation,
)


def _states(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag),)


class Runs(Noun):
    """Runs: steps in doubt, approvals, failed tasks, ends, reusable answers."""

    @operation(needs=lambda request: (trusts(Trust.SETTLE, request.step),), takes=Takes.RUN)
    async def settle(
        self,
        run: str,
        step: str,
        verdict: Annotated[Verdict | str, choice(Verdict)],
        *,
        result: Content = None,
        by: By = OS_USER,
        reason: Prose = "",
    ) -> None:
        """Settle a step that is in doubt, or that diverged.

        An open session of the agent is fenced.

        Args:
            run: The run.
            step: The step, as `agent#number` or the address of one of its events (`1234.2`).
            verdict: The truth about the step.
            result: The result of the step, if it happened.
            by: The author on record.
            reason: The reason on record.

        Raises:
            Refused: The step cannot be settled with this verdict.
            NotFound: There is no such run or step.
            BadName, BadValue: `by` is malformed, or `result` cannot be recorded.
        """
        await runs.settle(self._workspace, run, step, verdict, result=result, by=by, reason=reason)

    @operation(needs=_states(RunCompleted.tag), takes=Takes.RUN)
    async def finish(
        self, run: str, *, by: By = OS_USER, reason: Prose = "", failed: Here[str | None] = None
    ) -> bool:
        """End a run as completed, or as failed, even if agents have not left it.

        Return False if it already has that status.

        Args:
            run: The run's id.
            by: The author on record.
            reason: The reason why it counts as completed.
            failed: The reason why the run counts as failed; None ends it as completed.

        Raises:
            NotFound: There is no such run.
            Refused: The run has ended with another status.
            BadValue: `failed` is empty, or `reason` is given beside it.
        """
        return await runs.finish(self._workspace, run, by=by, reason=reason, failed=failed)

    @operation(needs=_states(RunCancelled.tag), takes=Takes.RUN)
    async def cancel(self, run: str, *, by: By = OS_USER, reason: Prose = "") -> bool:
        """Mark a run as cancelled; return False if it already is.

        Agents at work are not stopped, and continue recording.

        Args:
            run: The run's id.
            by: The author on record.
            reason: The reason on record.

        Raises:
            NotFound: There is no such run.
            Refused: The run has ended with another status.
        """
        return await runs.cancel(self._workspace, run, by=by, reason=reason)

    @operation(needs=_states(TaskReopened.tag), takes=Takes.RUN)
    async def reopen(self, run: str, task: str, *, by: By = OS_USER, reason: Prose = "") -> bool:
        """Reopen a failed task of a run; return False if the task has not ended.

        Args:
            run: The run's id.
            task: The task's id.
            by: The author on record.
            reason: The reason on record.

        Raises:
            Refused: There is no such task, it is done, or tasks would wait for each other.
        """
        return await runs.reopen(self._workspace, run, task, by=by, reason=reason)

    @operation(needs=lambda request: (trusts(Trust.APPROVE, request.approval),), takes=Takes.RUN)
    async def approve(
        self, approval: str, *, by: By = OS_USER, reason: Prose = "", role: Here[str | None] = None
    ) -> None:
        """Grant an agent's request for approval.

        Args:
            approval: The request's id, as `approvals()` or `hansard approvals` shows it.
            by: The approver on record: not the requesting agent, nor a principal that acts for it.
            reason: The reason on record.
            role: The role that `by` acts in; it must have `approve`.

        Raises:
            Refused: The request is answered or expired, or `by` may not answer it.
            NotFound: There is no such request.
            RoleRefused: The role may not approve; the refusal is recorded.
        """
        await answer(
            self._workspace,
            approval,
            granted=True,
            by=by,
            reason=reason,
            role=role,
        )

    @operation(needs=lambda request: (trusts(Trust.APPROVE, request.approval),), takes=Takes.RUN)
    async def deny(
        self, approval: str, *, by: By = OS_USER, reason: Prose = "", role: Here[str | None] = None
    ) -> None:
        """Deny an agent's request for approval.

        Args:
            approval: The request's id, as `approvals()` or `hansard approvals` shows it.
            by: The approver on record: not the requesting agent, nor a principal that acts for it.
            reason: The reason on record.
            role: The role that `by` acts in; it must have `approve`.

        Raises:
            Refused: The request is answered or expired, or `by` may not answer it.
            NotFound: There is no such request.
            RoleRefused: The role may not approve; the refusal is recorded.
        """
        await answer(
            self._workspace,
            approval,
            granted=False,
            by=by,
            reason=reason,
            role=role,
        )

    @operation(needs=_states(AnswersInvalidated.tag))
    async def invalidate(
        self,
        *,
        tool: Name = "",
        run: Name = "",
        key: Name = "",
        reason: Prose = "",
        by: By = OS_USER,
    ) -> None:
        """Declare answers stale, so that `reuse=` does not give them to later runs.

        It covers recorded answers, and those of calls under way. Answers already reused stay as
        they are.

        Args:
            tool: The answers of a tool, in any version.
            run: The answers of a run.
            key: The answers of one call (`hansard reuse list`).
            reason: The reason on record.
            by: The author on record.

        Raises:
            BadValue: Not exactly one of tool, run and key is given.
        """
        report = AnswersInvalidated(tool=tool, run=run, key=key, because=reason)
        await reused.invalidate(self._workspace, report, by=by)
