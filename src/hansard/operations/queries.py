"""Queries of a record: views of runs, SQL, and reports on its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Unpack

from hansard.agents.access import roles
from hansard.agents.access import roles as served_views
from hansard.agents.access.roles import View
from hansard.agents.policy.permits import Need, trusts, views
from hansard.bus.clock import OS_USER
from hansard.domain.choices import NOTHING
from hansard.domain.errors import BadValue
from hansard.domain.roles.authorize import Trust
from hansard.inspect import savings as savings_by
from hansard.inspect.audit import why
from hansard.inspect.comparison_parts import compare
from hansard.inspect.savings import SavingsAnswer
from hansard.operations.declare import (
    By,
    Codec,
    EventPoint,
    Name,
    Noun,
    Takes,
    Value,
    choice,
    free,
    operation,
)
from hansard.operations.protocol import wire
from hansard.operations.reports import (
    AuditOptions,
    AuditQuestion,
    AuditReport,
    CompareOptions,
    ComparisonReport,
    DecisionList,
    DecisionReport,
    explained,
    question_of,
    shown,
)
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.report import Question
from hansard.projections.snapshots import Reader

TABLES_BYTES_MAX = 512 * 1024
"""Most bytes of tables sent with a query, which is one message."""


def _parameters(given: Sequence[object], *_: object) -> list[Any]:
    from hansard.projections.sql_sandbox.answer import parameter  # noqa: PLC0415 -- needed by few queries

    return [wire.dump(parameter(each), "a parameter of SQL") for each in given]


def _frames(given: Mapping[str, Any], *_: object) -> dict[str, bytes]:
    if not given:
        return {}
    from hansard.operations.own_tables import as_arrow  # noqa: PLC0415 -- pyarrow is slow to import

    return as_arrow(given, TABLES_BYTES_MAX)


Parameters = Annotated[
    Sequence[object],
    Codec(list[Value], _parameters, lambda given, _: [wire.load(each) for each in given]),
]
Frames = Annotated[Mapping[str, Any], Codec(dict[str, bytes], _frames)]


def _query(what: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (trusts(Trust.QUERY, what),)


def _views(request: Any) -> tuple[Need, ...]:
    return () if request.role is None else (views(request.role),)


class Queries(Noun):
    """The record, as a role sees it."""

    @operation(needs=_views, takes=Takes.RUN)
    async def view(
        self,
        run: str,
        at: EventPoint = None,
        *,
        role: Name | None = None,
        key: bytes | None = None,
        by: By = OS_USER,
    ) -> View:
        """Return the view of a run that a role may see; record that it was served.

        Args:
            run: The run.
            at: A point of it; by default now. For a restricted agent the id of an event that it was
                shown.
            role: The role; by default a restricted agent's own. Another must be one whose view it
                may be shown.
            key: 32 secret bytes or more, if a mask of the role hashes.
            by: The reader on record; of a restricted agent its principal.

        Raises:
            NotFound: There is no such run or point.
            BadName, BadValue: `at` is not a point, no role is given, or a mask needs the key.
        """
        if role is None:
            raise BadValue("view", "no role is given", "name one: view(run, role=...)")
        return (await served_views.serve(self._workspace, role, run, at, by=by, key=key)).view

    @operation(needs=free)
    async def view_roles(self) -> list[str]:
        """List the roles with rules, whose views can be requested.

        For a restricted agent those whose views its role may be shown, its own first.
        """
        return [*await roles.defined(self._workspace)]

    async def sql(
        self, question: str, *parameters: object, tables: Mapping[str, Any] = NOTHING
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
        return await self._ask("sql", statement, parameters, tables)

    @operation(needs=_query("savings"), takes=Takes.LONG)
    async def savings(
        self,
        run: str | None = None,
        *,
        workflow: str | None = None,
        month: str | None = None,
        by: Annotated[str, choice(savings_by.By)] = "run",
    ) -> SavingsAnswer:
        """Return the usage that answers from the record saved to resumed agents, earliest first.

        It counts the calls that were answered from the record, and the recorded usage of those
        calls. Strict and offline replays write nothing, so they are not included (`session.saved`
        has theirs).

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
        return await savings_by.savings(partial(self._ask, "savings"), query)

    async def compare(self, experiment: str, **options: Unpack[CompareOptions]) -> ComparisonReport:
        """Compare the arms of an experiment: the report that `hansard compare` prints.

        A notebook and `rich.print` show it as tables.

        Args:
            experiment: The experiment's name.
            **options: See `CompareOptions`.

        Raises:
            CallerError: There is no such experiment, metric, arm or label; the message lists those
                there are.
            BadOption, BadValue: An option is unknown, or its value is invalid.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return await self._compare(question_of(experiment, options))

    @operation(needs=_query("compare"), takes=Takes.LONG)
    async def _compare(self, question: Question) -> ComparisonReport:
        """Compare the arms of an experiment."""

        def reads(reader: Reader) -> ComparisonReport:
            return shown(compare(reader, question), ComparisonReport)

        return await self._read(reads, "compare", question)

    async def audit(self, run: str | None = None, **options: Unpack[AuditOptions]) -> AuditReport:
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
        return await self._read(question.answer, "audit", question)

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
        return await self._read(lambda reader: explained(why(reader, decision)), "why", decision)
