"""What a person or a program says of runs: settled steps, answers to questions, ends."""

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
from hansard.domain.team.task import TaskReopened
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
    """Runs: steps in doubt, open questions, failed tasks, ends, answers that are reused."""

    @operation(needs=lambda request: (trusts(Trust.SETTLE, request.step),), takes=Takes.RUN)
    async def settle(
        self,
        run: str,
        step: str,
        verdict: Annotated[Verdict | str, choice(Verdict)],
        *,
        result: Content = None,
        by: By = OS_USER,
        because: Prose = "",
    ) -> None:
        """Say what is true of a step in doubt, or that diverged. A session of the agent that is
        still at work is fenced.

        Args:
            run: The run.
            step: The step, as `agent#number` or the address of one of its events (`1234.2`).
            verdict: What is true of it.
            result: What it returned, where it happened.
            by: Who says so.
            because: Why.

        Raises:
            Refused: The step is not of a kind that can be settled so.
            NotFound: There is no such run or step.
            BadName, BadValue: `by` is no name, or `result` cannot be recorded.
        """
        await runs.settle(
            self._workspace, run, step, verdict, result=result, by=by, because=because
        )

    @operation(needs=_states(RunCompleted.tag), takes=Takes.RUN)
    async def finish(
        self, run: str, *, by: By = OS_USER, because: Prose = "", failed: Here[str | None] = None
    ) -> bool:
        """End a run as completed, or as failed, also where agents have not left it. Return False
        if it is so already.

        Args:
            run: Its id.
            by: Who says so.
            because: Why it counts as completed.
            failed: The reason why the run counts as failed; None ends it as completed.

        Raises:
            NotFound: There is no such run.
            Refused: It ended otherwise.
            BadValue: `failed` is empty, or `because` is given beside it.
        """
        return await runs.finish(self._workspace, run, by=by, because=because, failed=failed)

    @operation(needs=_states(RunCancelled.tag), takes=Takes.RUN)
    async def cancel(self, run: str, *, by: By = OS_USER, because: Prose = "") -> bool:
        """Say that a run is cancelled; False where it is already. Who is at work is not stopped,
        and goes on recording.

        Args:
            run: Its id.
            by: Who says so.
            because: Why.

        Raises:
            NotFound: There is no such run.
            Refused: It ended otherwise.
        """
        return await runs.cancel(self._workspace, run, by=by, because=because)

    @operation(needs=_states(TaskReopened.tag), takes=Takes.RUN)
    async def reopen(self, run: str, task: str, *, by: By = OS_USER, because: Prose = "") -> bool:
        """Have a task of a run that failed be done after all; False where it is not over.

        Args:
            run: Its id.
            task: The task's id.
            by: Who says so.
            because: Why.

        Raises:
            Refused: There is no such task, it is done, or tasks would wait for each other.
        """
        return await runs.reopen(self._workspace, run, task, by=by, because=because)

    @operation(needs=lambda request: (trusts(Trust.APPROVE, request.approval),), takes=Takes.RUN)
    async def approve(
        self, approval: str, *, by: By = OS_USER, because: Prose = "", role: Here[str | None] = None
    ) -> None:
        """Grant what an agent asks.

        Args:
            approval: The question's id, as `approvals()` or `hansard approvals` shows it.
            by: Who says so: not the agent that asked, nor who acts for it.
            because: Why.
            role: The role that `by` acts in; it must have `approve`.

        Raises:
            Refused: It is answered already, its time is up, or `by` may not answer it.
            NotFound: There is no such question.
            RoleRefused: The role may not approve; that is on record.
        """
        await answer(
            self._workspace,
            approval,
            granted=True,
            by=by,
            because=because,
            role=role,
        )

    @operation(needs=lambda request: (trusts(Trust.APPROVE, request.approval),), takes=Takes.RUN)
    async def deny(
        self, approval: str, *, by: By = OS_USER, because: Prose = "", role: Here[str | None] = None
    ) -> None:
        """Deny what an agent asks.

        Args:
            approval: The question's id, as `approvals()` or `hansard approvals` shows it.
            by: Who says so: not the agent that asked, nor who acts for it.
            because: Why.
            role: The role that `by` acts in; it must have `approve`.

        Raises:
            Refused: It is answered already, its time is up, or `by` may not answer it.
            NotFound: There is no such question.
            RoleRefused: The role may not approve; that is on record.
        """
        await answer(
            self._workspace,
            approval,
            granted=False,
            by=by,
            because=because,
            role=role,
        )

    @operation(needs=_states(AnswersInvalidated.tag))
    async def invalidate(
        self,
        *,
        tool: Name = "",
        run: Name = "",
        key: Name = "",
        because: Prose = "",
        by: By = OS_USER,
    ) -> None:
        """Declare answers stale that later runs might be given by `reuse=`: those on record, and
        those of calls that are under way. What was given already stays as it is.

        Args:
            tool: Those of a tool, whatever its version.
            run: Those of a run.
            key: Those of one call (`hansard reuse list`).
            because: Why.
            by: Who says so.

        Raises:
            BadValue: Not exactly one of them is named.
        """
        report = AnswersInvalidated(tool=tool, run=run, key=key, because=because)
        await reused.invalidate(self._workspace, report, by=by)
