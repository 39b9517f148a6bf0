"""Questions to a record: views of runs, SQL, and the reports that are made of its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Unpack

from hansard.agents.access import roles
from hansard.agents.access import views as served_views
from hansard.agents.access.views import View
from hansard.agents.policy.permits import Need, trusts, views
from hansard.bus.clock import OS_USER
from hansard.domain.choices import NOTHING
from hansard.domain.errors import BadValue
from hansard.domain.roles.authorize import Trust
from hansard.inspect import savings as savings_by
from hansard.inspect.comparison_parts import compare
from hansard.inspect.savings import SavingsAnswer
from hansard.inspect.why import why
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
from hansard.projections.reader import Reader
from hansard.projections.report import Question

TABLES_BYTES_MAX = 512 * 1024
"""Of tables that go along with a question: it is one message."""


def _parameters(given: Sequence[object], *_: object) -> list[Any]:
    from hansard.projections.sql_sandbox.answer import parameter  # noqa: PLC0415 -- of few questions

    return [wire.dump(parameter(each), "a parameter of SQL") for each in given]


def _frames(given: Mapping[str, Any], *_: object) -> dict[str, bytes]:
    if not given:
        return {}
    from hansard.operations.own_tables import as_arrow  # noqa: PLC0415 -- pyarrow takes long

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
    """What is on record, as a role sees it."""

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
        """What a role may see of a run; that it was served is put on record.

        Args:
            run: The run.
            at: A point of it; now without one. For a restricted agent the id of an event that it
                was shown.
            role: Which role; a restricted agent's own needs no name, and another is one whose view
                it may be shown.
            key: 32 secret bytes or more, where a mask of the role hashes.
            by: Who looks; of a restricted agent its principal.

        Raises:
            NotFound: There is no such run or point.
            BadName, BadValue: `at` is no point, no role is given, or a mask needs the key.
        """
        if role is None:
            raise BadValue("view", "no role is given", "say as which role: view(run, role=...)")
        return (await served_views.serve(self._workspace, role, run, at, by=by, key=key)).view

    @operation(needs=free)
    async def view_roles(self) -> list[str]:
        """The roles that have rules, whose views can be asked for; of a restricted agent's those
        that its role may be shown, its own first.
        """
        return [*await roles.defined(self._workspace)]

    async def sql(
        self, question: str, *parameters: object, tables: Mapping[str, Any] = NOTHING
    ) -> SqlAnswer:
        """The answer of the tables to one statement that reads, as of the newest position of the
        log when it was asked; `SqlAnswer.position` says which (docs/sql.md).

        What the tables lack is projected first: by this process, or waited for where another does.
        Where that takes longer than 10 s the answer is of what stands, which is logged. A worker
        process answers, without files, network and secrets, within 10 s and 512 MiB, at most 10,000
        rows. A restricted agent is answered from its role's own tables, where the role may query.

        Args:
            question: SQL, with `?` or `$1` where a parameter goes.
            *parameters: Texts, finite numbers, booleans, dates, times, None, and lists of them;
                also as scalars and arrays of numpy and pandas.
            tables: Tables of your own to join, by name, for this question alone: pandas and polars
                data frames, pyarrow tables, lists of dicts, dicts of lists, answers of `sql`, paths
                of files (Parquet, CSV, JSON, NDJSON, Arrow). 16 at most, which come to 256 MiB as
                Arrow; for a restricted agent to 512 KiB. No name may be one of the record's tables.

        Raises:
            SqlError: It is no statement that reads, DuckDB cannot answer it, or it costs too much.
            ProjectionError: The tables cannot be made or read.
            BadValue: A parameter is none, or a table; or a restricted agent's answer is too long
                for a message.
            RoleRefused: The role may not query.
            Refused: The record is one in memory, which has no tables.
        """
        return await self._sql(question, parameters, tables)

    @operation(needs=_query("sql"), takes=Takes.LONG)
    async def _sql(
        self, statement: str, parameters: Parameters = (), tables: Frames = NOTHING
    ) -> SqlAnswer:
        """The answer to a statement; a role's is of its own database."""
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
        """What replays saved: the calls that sessions were answered from the record when they went
        on with an agent, and what those calls had used, the earliest first. Strict and offline
        replays write nothing, so they are not among them (`session.saved` tells of each).

        Args:
            run: Of this run alone.
            workflow: Of runs of this workflow alone.
            month: Of sessions that began in this month, in UTC: `2026-01`.
            by: What it is added up for: `run`, `workflow` or `month`.

        Raises:
            BadValue: There is no such month, or nothing of that name to add up for.
            SqlError, ProjectionError: As `sql`.
        """
        query = savings_by.SavingsQuery(run, workflow, month, by)
        return await savings_by.savings(partial(self._ask, "savings"), query)

    async def compare(self, experiment: str, **options: Unpack[CompareOptions]) -> ComparisonReport:
        """The arms of an experiment beside each other: what `hansard compare` prints. A notebook
        shows it as tables, and so does `rich.print`.

        Args:
            experiment: Its name.
            **options: See `CompareOptions`.

        Raises:
            CallerError: There is no such experiment, metric, arm or label; it says which there are.
            BadOption, BadValue: There is no such option, or it cannot be this.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return await self._compare(question_of(experiment, options))

    @operation(needs=_query("compare"), takes=Takes.LONG)
    async def _compare(self, question: Question) -> ComparisonReport:
        """The arms of an experiment beside each other."""

        def reads(reader: Reader) -> ComparisonReport:
            return shown(compare(reader, question), ComparisonReport)

        return await self._read(reads, "compare", question)

    async def audit(self, run: str | None = None, **options: Unpack[AuditOptions]) -> AuditReport:
        """What is missing or odd: what `hansard audit` prints, worst first.

        Args:
            run: Of this run alone, `last` being the newest; else of all of the record.
            **options: See `AuditOptions`.

        Raises:
            NotFound: There is no such run.
            CallerError: There is no such kind, experiment or severity; it says which there are.
            BadOption, BadValue: There is no such option, or it cannot be this.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return await self._audit(AuditQuestion.of(run, options))

    @operation(needs=_query("audit"), takes=Takes.LONG)
    async def _audit(self, question: AuditQuestion) -> AuditReport:
        """What is missing or odd."""
        return await self._read(question.answer, "audit", question)

    @operation(needs=_query("why"), takes=Takes.LONG)
    async def why(self, decision: str) -> DecisionReport | DecisionList:
        """Why something was decided, or the decisions of a run: what `hansard why` prints.

        Args:
            decision: An event's id or a prefix no other has, its address (`position.index`), or a
                run, `last` being the newest: then its decisions are listed.

        Raises:
            NotFound: There is none.
            CallerError: Several begin so, or the event there is no decision.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return await self._read(lambda reader: explained(why(reader, decision)), "why", decision)
