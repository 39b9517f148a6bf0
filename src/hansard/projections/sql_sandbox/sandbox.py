"""The SQL door: untrusted queries, answered from published generations of one place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Self

import msgspec
from msgspec.structs import replace

from hansard.domain.choices import NOTHING
from hansard.domain.errors import BadValue
from hansard.projections.errors import NotAllowed, QueryFailed, SqlClosed, TooCostly
from hansard.projections.publish import snapshots as published
from hansard.projections.publish.snapshots import PublishedSnapshot
from hansard.projections.sql_sandbox import answer as given_tables
from hansard.projections.sql_sandbox.answer import Answer
from hansard.projections.sql_sandbox.limits import (
    SQL_CHARACTERS_MAX,
    AnswerHead,
    Bounds,
    Limits,
    Query,
    TableHeader,
)
from hansard.projections.sql_sandbox.pool import Pool, Take
from hansard.projections.table_files import TableFiles

WAIT_S = 10.0
"""Longest wait for a position to be published, in seconds."""

TRIES_MAX = 3
"""Attempts with the newest generation, since a rebuild removes published ones."""


_NOTHING = "nothing is published of this workspace: run 'hansard up', or ask with 'hansard sql'"


class Door:
    """Answers untrusted SQL. Use it in `async with`; several queries may run at once.

    Every caller sees all that is published there: the workspace's tables, or those of one role
    (`hansard.projections.roles`). `arrow`: answers may be requested as Arrow, and tables may be
    passed; the workers then load pyarrow.
    """

    def __init__(
        self, place: TableFiles, bounds: Bounds | None = None, *, arrow: bool = False
    ) -> None:
        self._place = place
        self._arrow = arrow
        self._pool: Pool | None = None
        self._bounds = bounds if bounds is not None else Bounds()

    async def __aenter__(self) -> Self:
        """Start the spare workers, at least one, since a query is about to follow."""
        self._pool = Pool(self._place.published, self._bounds, arrow=self._arrow)
        if self._place.published.exists():
            self._pool.warm(at_least=1)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the workers."""
        if self._pool is not None:
            await self._pool.close()

    async def ask(
        self,
        sql: str,
        limits: Limits | None = None,
        *,
        parameters: Sequence[object] = (),
        tables: Mapping[str, bytes] = NOTHING,
        take: Callable[[Answer], None] | None = None,
        arrow: bool = False,
        wait_for: int | None = None,
        wait_s: float = WAIT_S,
    ) -> Answer:
        """Answer one read-only statement, from the newest generation, or from one at `wait_for`,
        for which it waits.

        parameters: for the placeholders of the statement: texts, numbers, true or false, None,
            dates, times,
        lists of them. tables: additional tables by name, as Arrow IPC streams, for this query only.
        take: receives the rows as they arrive, in at least one answer; the returned answer then has
            none. arrow:
        return Arrow, if the door supports it.

        Raises NotAllowed, QueryFailed, TooCostly, SqlBusy, SqlClosed, Behind, the errors of `take`,
        and BadValue for an invalid parameter or table.
        """
        _check(sql)
        filling = [given_tables.parameter(each) for each in parameters]
        _check_size(filling)
        given_tables.check(tables)
        if wait_for is not None:
            await published.wait_for(self._place, wait_for, wait_s)
        if self._pool is None:
            raise SqlClosed("the SQL door is not open: use it in 'async with'")
        allowed = limits if limits is not None else Limits()
        gone = ""
        for _ in range(TRIES_MAX):
            if published.newest(self._place) is None:
                raise SqlClosed(_missing(self._place))
            async with self._pool.worker() as worker:
                with published.holding(self._place) as generation:
                    question = _question(generation, sql, allowed, filling, tables)
                    question = replace(question, streamed=take is not None, arrow=arrow)
                    receiver = _receiver(question, take)
                    answer, body = await worker.ask(question, tables.values(), receiver)
            if answer.wrong != "gone":
                return _answer(answer, body, question)
            gone = answer.text
        raise SqlClosed(f"the published tables cannot be opened ({gone}): run 'hansard rebuild'")


def _receiver(question: Query, take: Callable[[Answer], None] | None) -> Take | None:
    """Return a receiver of an answer's chunks, if `take` is given."""
    if take is None:
        return None
    return lambda chunk: take(Answer(question.position, chunk, 0, is_arrow=question.arrow))


def _check(sql: str) -> None:
    if len(sql) > SQL_CHARACTERS_MAX:
        raise NotAllowed(
            f"the question has {len(sql):,} characters, the most is {SQL_CHARACTERS_MAX:,}: "
            "shorten it"
        )
    if "\0" in sql:
        raise NotAllowed(f"the question has a NUL at character {sql.index(chr(0))}: remove it")
    with contextlib.suppress(UnicodeEncodeError):
        sql.encode()
        return
    raise NotAllowed("the question has characters that UTF-8 does not: remove them")


def _check_size(parameters: list[object]) -> None:
    size = len(msgspec.json.encode(parameters))
    if size > SQL_CHARACTERS_MAX:
        raise NotAllowed(
            f"the parameters have {size:,} bytes, the most is {SQL_CHARACTERS_MAX:,}: give fewer"
        )


def _missing(place: TableFiles) -> str:
    """Describe why no generation can answer: none was published, or the newest is damaged."""
    damaged = published.unreadable(place)
    if not damaged:
        return _NOTHING
    return (
        f"the published tables are damaged: '{damaged[-1]}' is not what was published; publish "
        "them again with 'hansard up', or ask with 'hansard sql'"
    )


def _question(
    generation: PublishedSnapshot | None,
    sql: str,
    limits: Limits,
    parameters: list[object],
    tables: Mapping[str, bytes],
) -> Query:
    if generation is None:
        raise SqlClosed(_NOTHING)
    items = [TableHeader(name, len(data)) for name, data in tables.items()]
    return Query(generation.folder.name, generation.position, sql, limits, parameters, items)


def _answer(value: AnswerHead, body: bytes, question: Query) -> Answer:
    match value.wrong:
        case None:
            took = (value.engine_ms, value.open_ms)
            cut, is_arrow = value.cut, question.arrow
            return Answer(question.position, body, value.rows, cut, *took, is_arrow)
        case "not allowed":
            raise NotAllowed(value.text)
        case "table":
            raise BadValue(given_tables.WHERE, value.text, "give another, or another name")
        case "memory":
            raise TooCostly("memory", f"{question.limits.memory_mib:,} MiB of memory")
        case _:
            raise QueryFailed(value.text)
