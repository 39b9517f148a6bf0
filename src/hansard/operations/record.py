"""The operations of a record, of trusted programs and restricted agents: runs, views, SQL.

Those on one kind of thing are its parts: `record.prompts.add(...)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar, Unpack

from hansard.agents import runs
from hansard.agents.annotations.windows import Conversation, conversation
from hansard.agents.edits import Replacement
from hansard.agents.policy.permits import Need, states, trusts
from hansard.agents.steps import reused
from hansard.agents.workspace import RunFilter, RunQuery
from hansard.bus.clock import OS_USER
from hansard.domain.choices import NOTHING, by_name, chosen
from hansard.domain.reuse import AnswersInvalidated
from hansard.domain.roles.authorize import Trust
from hansard.domain.run import ForkEffects, RunCancelled, RunCompleted, RunState
from hansard.domain.snapshot import Snapshot
from hansard.domain.steps import Verdict
from hansard.domain.team import TaskReopened
from hansard.inspect import savings as savings_by
from hansard.inspect import state as snapshots
from hansard.inspect import trace as left
from hansard.inspect.audit import why
from hansard.inspect.savings import SavingsAnswer
from hansard.inspect.trace import Payloads, SentOut
from hansard.operations.actions import Actions, Experiences
from hansard.operations.declare import (
    Async,
    By,
    C_co,
    Codec,
    Content,
    Here,
    Name,
    Noun,
    Prose,
    Takes,
    Value,
    choice,
    composite,
    operation,
    part,
    trusted,
)
from hansard.operations.experiments import Experiments
from hansard.operations.prompts import Prompts
from hansard.operations.protocol import wire
from hansard.operations.reports import (
    AuditOptions,
    AuditQuestion,
    AuditReport,
    DecisionList,
    DecisionReport,
    explained,
)
from hansard.operations.roles import Approvals, Roles
from hansard.operations.sql_answer import SqlAnswer
from hansard.state.replay import RunView

N = TypeVar("N")

TABLES_BYTES_MAX = 512 * 1024
"""Most bytes of tables sent with a query, which is one message."""


def _parameters(items: Sequence[object], *_: object) -> list[Any]:
    from hansard.projections.sql_sandbox.answer import parameter  # noqa: PLC0415 -- needed by few queries

    return [wire.dump(parameter(each), "a parameter of SQL") for each in items]


def _frames(tables: Mapping[str, Any], *_: object) -> dict[str, bytes]:
    if not tables:
        return {}
    from hansard.operations.sql_answer import as_arrow  # noqa: PLC0415 -- pyarrow is slow to import

    return as_arrow(tables, TABLES_BYTES_MAX)


Parameters = Annotated[
    Sequence[object],
    Codec(list[Value], _parameters, lambda items, _: [wire.load(each) for each in items]),
]
Frames = Annotated[Mapping[str, Any], Codec(dict[str, bytes], _frames)]


def _query(what: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (trusts(Trust.QUERY, what),)


def _states(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag),)


class RecordOperations(Noun[C_co]):
    """The operations of a record.

    A trusted program's run in its process; a restricted agent's are sent.
    """

    prompts: Prompts[C_co] = part(Prompts)
    actions: Actions[C_co] = part(Actions)
    experiences: Experiences[C_co] = part(Experiences)
    experiments: Experiments[C_co] = part(Experiments)
    approvals: Approvals[C_co] = part(Approvals)
    roles: Roles[C_co] = part(Roles)

    def noun(self, kind: Callable[[Noun[C_co]], N]) -> N:
        """Return the operations of a slice (docs/extending.md), such as `record.noun(Tickets)`."""
        return kind(self)

    @functools.cached_property
    def _async(self) -> RecordOperations[Async]:
        return RecordOperations(self._context)

    # ------------------------------------------------------------ runs

    @trusted
    async def runs(self, **request: Unpack[RunQuery]) -> list[tuple[str, RunState]]:
        """List runs with their state, newest first. Filters combine with AND.

        The filters are status, workflow, agent and role (of an agent that ever joined), experiment
        (of trials), since and until (the start of the run, a time with a zone). Raises BadOption,
        BadValue.
        """
        return await self._workspace.runs(RunFilter.of(request))

    @trusted
    async def state(self, run: str, at: object = None) -> RunView:
        """Return the state of a run, its agents and shared state, at a point; by default now.

        Raises:
            NotFound: There is no such run or point.
            BadName: `at` is not a point.
        """
        return await self._workspace.points.view(run, at)

    @trusted
    async def fork(
        self,
        run: str,
        *,
        at: object = None,
        effects: ForkEffects | str | None = None,
        labels: Mapping[str, str] = NOTHING,
        edits: Sequence[Replacement] = (),
        by: By = OS_USER,
        reason: str = "",
    ) -> str:
        """Fork a run: begin a new one at a point of another; return its id.

        With edits the fork begins before the first edited call. An edited call returns its new
        result; calls that do not depend on it are answered from the parent's record.
        It is one commit, whatever the length of the run.

        Args:
            run: The parent.
            at: The point of the parent at which the fork begins; its end by default.
            effects: `SHADOW`, the default without edits: tools with effects return the parent's
                outcome or their `shadow=`, else raise `ShadowedEffect`. `MODELS`, the default with
                edits: the same, but idempotent calls of a model that the record does not answer
                run. `LIVE`: they all run.
            labels: Texts by name, to find the run by.
            edits: Other values than on record: `[hansard.replace("agent#3", result=...)]`. Also
                the content of a write to shared state or of a message, and the version of a prompt.
            by: The author of the edits on record.
            reason: The reason for the edits on record.

        Raises:
            NotFound: There is no such run, point or step.
            BadName: `at` is not a point, or an edit does not name a step.
            BadValue: `at` is given beside edits, or a step cannot be edited.
            Refused: The run is a fork, and the step is its parent's.
        """
        named = by_name("labels", labels)
        how = None if effects is None else chosen(ForkEffects, effects, "effects")
        return await runs.fork(self._workspace, run, at, how, named, edits, by=by, reason=reason)

    @trusted
    async def snapshots(
        self, run: str, *, agent: str | None = None, at: object = None
    ) -> list[Snapshot]:
        """Return the chain of snapshots of each agent of a run.

        The chain is the agent's initial request, the state before and after each call, and its
        final state; each names the one before it.

        Args:
            run: The run's id.
            agent: Only the snapshots of this agent.
            at: Only those up to this point; by default now.

        Raises:
            NotFound: There is no such run, agent or point.
        """
        return await snapshots.of_run(self._workspace, run, agent, at)

    @trusted
    async def snapshot(self, snapshot: str, *, run: str | None = None) -> Snapshot:
        """Return a snapshot by its id; every version of an agent's stream has one.

        Args:
            snapshot: The snapshot's id.
            run: The run that it belongs to. Without it the runs are read one after the other, the
                newest first, which is slow if there are many.

        Raises:
            NotFound: No snapshot has this id.
        """
        return await snapshots.one(self._workspace, snapshot, run)

    @trusted
    async def conversation(self, name: str, *, before: str | None = None) -> Conversation:
        """Return the turns of a conversation over its runs, and the context to continue from.

        `before` is a run of it: only earlier turns are returned, also if that run is resumed.
        """
        return await conversation(self._workspace, name, before)

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
            Refused: The step cannot be settled with this verdict; `reuse` and `run_again` need a
                session that ended with the step's divergence.
            NotFound: There is no such run or step.
            BadName, BadValue: `by` is malformed, or `result` cannot be recorded.
        """
        await runs.settle(self._workspace, run, step, verdict, result=result, by=by, reason=reason)

    @operation(needs=_states(RunCompleted.tag), takes=Takes.RUN)
    async def finish(
        self, run: str, *, by: By = OS_USER, reason: Prose = "", failed: Here[str | None] = None
    ) -> bool:
        """End a run as completed, or as failed.

        Agents need not have left it. Return False if it already has that status.

        Args:
            run: The run's id.
            by: The author on record.
            reason: The reason why it counts as completed.
            failed: The reason why the run counts as failed, in place of a general reason.

        Raises:
            NotFound: There is no such run.
            Refused: The run has ended with another status: resume it first.
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
        """Declare answers stale: later runs do not reuse them.

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

    # ------------------------------------------------------------ queries

    @composite
    async def sql(
        self: RecordOperations[Async],
        question: str,
        *parameters: object,
        tables: Mapping[str, Any] = NOTHING,
    ) -> SqlAnswer:
        """Answer one reading SQL statement from the tables (docs/sql.md).

        The answer is as of the newest position of the log at the time of the call;
        `SqlAnswer.position` holds it.

        Tables that are behind are projected first: by this process, or by another one that already
        does. If that takes longer than 10 s the answer is as of the position reached, which is
        logged. A worker process answers, without files, network and secrets, within 10 s and 512
        MiB, with at most 10,000 rows. A restricted agent is answered from its role's own tables, if
        the role may query.

        Args:
            question: SQL, with `?` or `$1` for parameters.
            *parameters: Texts, finite numbers, booleans, dates, times, None, and lists of them;
                also scalars and arrays of numpy and pandas.
            tables: Tables of your own to join, by name, for this query alone: pandas and polars
                data frames, pyarrow tables, lists of dicts, dicts of lists, results of `sql`, paths
                of files (Parquet, CSV, JSON, NDJSON, Arrow). At most 16, of 256 MiB in all as
                Arrow; for a restricted agent 512 KiB. No name may be that of one of the record's
                tables.

        Raises:
            SqlError: It is not a reading statement, DuckDB cannot answer it, or it costs too much.
            ProjectionError: The tables cannot be made or read.
            BadValue: A parameter or table is invalid; or a restricted agent's answer is too long
                for a message.
            RoleRefused: The role may not query.
            Refused: The record is in memory, which has no tables.
        """
        return await self._sql(question, parameters, tables)

    @operation(needs=_query("sql"), takes=Takes.LONG)
    async def _sql(
        self, statement: str, parameters: Parameters = (), tables: Frames = NOTHING
    ) -> SqlAnswer:
        """Answer a statement; for a role, from its own database."""
        return await self._context.ask("sql", statement, parameters, tables)

    @operation(needs=_query("savings"), takes=Takes.LONG)
    async def savings(
        self,
        run: str | None = None,
        *,
        workflow: str | None = None,
        month: str | None = None,
        by: Annotated[str, choice(savings_by.By)] = "run",
    ) -> SavingsAnswer:
        """Return what resumes and forks answered from the record.

        Earliest first. Strict and offline replays write nothing, so they are not included
        (`session.saved` has theirs).

        Args:
            run: Only this run.
            workflow: Only runs of this workflow.
            month: Only sessions that began in this month, in UTC: `2026-01`.
            by: The grouping: `run`, `workflow` or `month`.

        Raises:
            BadValue: There is no such month or grouping.
            SqlError, ProjectionError: As `sql`.
        """
        query = savings_by.SavingsQuery(run, workflow, month, by)
        return await savings_by.savings(partial(self._context.ask, "savings"), query)

    @composite
    async def audit(
        self: RecordOperations[Async], run: str | None = None, **options: Unpack[AuditOptions]
    ) -> AuditReport:
        """Report missing and odd things, worst first: the report that `hansard audit` prints.

        Args:
            run: Only this run, or `last` for the newest; by default the whole record.
            **options: See `AuditOptions`.

        Raises:
            NotFound: There is no such run.
            CallerError: There is no such kind, experiment or severity; the message lists those
                there are.
            BadOption, BadValue: An option is unknown, or its value is invalid.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return await self._audit(AuditQuestion.of(run, options))

    @operation(needs=_query("audit"), takes=Takes.LONG)
    async def _audit(self, question: AuditQuestion) -> AuditReport:
        """Report missing and odd things."""
        return await self._context.read(question.answer, "audit", question)

    @operation(needs=_query("why"), takes=Takes.LONG)
    async def why(self, decision: str) -> DecisionReport | DecisionList:
        """Explain a decision, or list the decisions of a run: what `hansard why` prints.

        Args:
            decision: An event's id or a unique prefix, its address (`position.index`), or a run, or
                `last` for the newest run.

        Raises:
            NotFound: There is no such decision or run.
            CallerError: The prefix is ambiguous, or the event is not a decision.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return await self._context.read(
            lambda reader: explained(why(reader, decision)), "why", decision
        )

    @operation(needs=lambda _: (trusts(Trust.QUERY, "egress"),), takes=Takes.LONG)
    async def egress(self, run: Name) -> list[SentOut]:
        """Return the egress of a run, in order.

        These are the executed calls of models, pages and tools. Calls have their recorded
        arguments; a secret is replaced by its name. In SQL `model_inputs` has the inputs of models.

        Args:
            run: The run's id.

        Raises:
            NotFound: There is no such run.
        """
        return await left.what_left(self._workspace, run, Payloads(self._workspace))
