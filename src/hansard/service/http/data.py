"""SQL over HTTP, and the exact bytes of commits and events.

An answer in SQL is written whole to a temporary file before it is sent: a query that fails, or
exceeds its limits, is a problem and never half an answer. A query ends when its client leaves.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, BinaryIO, Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from hansard.bus.errors import NotFound
from hansard.bus.loggers import logger
from hansard.client.opening import data_dir_of
from hansard.client.role_answers import ask_as
from hansard.domain.errors import BadValue
from hansard.inspect.answer import EVENT_REMEDY, address, find_event
from hansard.inspect.tables import published
from hansard.operations.declare import Takes
from hansard.operations.sql_answer import NotInstalled
from hansard.projections.errors import TooCostly
from hansard.projections.sql_sandbox.answer import ARROW, Answer, answer_file, simple
from hansard.projections.sql_sandbox.rows import Limits
from hansard.projections.table_files import TableFiles
from hansard.service.http.routes import Context, read

ROWS, ROWS_MAX = 10_000, 100_000
"""Rows of an answer as one JSON value, by default and at most; other formats have all rows."""

FILE_LIMITS = Limits(wall_s=50.0, cpu_s=50, rows_max=2**62, bytes_max=1024**3)
"""Limits of an answer in another format than JSON."""

MEMORY_BYTES_MAX = 1024 * 1024
"""Bytes of an answer that are kept in memory; more are written to a temporary file."""

CHUNK_BYTES = 256 * 1024

Format = Literal["json", "ndjson", "csv", "arrow"]

MEDIA_TYPES: Mapping[Format, str] = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv",
    "arrow": "application/vnd.apache.arrow.stream",
}

_log = logger(__name__)


class SqlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query in SQL.

    Attributes:
        statement: One statement that reads.
        parameters: Values of its placeholders `$1`, `$2`, ...
        format: The format of the answer; null for that of the header `Accept`, else `json`.
        rows: Most rows of an answer as `json`.
    """

    statement: str
    parameters: list[Any] = []
    format: Format | None = None
    rows: int = ROWS


class SqlRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of an answer.

    Attributes:
        columns: The columns' names.
        rows: The rows.
        position: The position of the tables; for a role the number of its newest event.
        cut: `rows` or `bytes` if that limit cut the answer; else null.
    """

    columns: list[str]
    rows: list[list[Any]]
    position: int
    cut: str | None


@read("/sql", method="POST", result=SqlRows, cancels=True)
async def sql(context: Context, body: SqlRequest) -> SqlRows | Response:
    """Answer a query in SQL from the tables that the caller may see.

    As `json` the answer has at most `rows` rows, and states in `cut` if there are more. `ndjson`,
    `csv` and `arrow` have all rows, up to 1 GiB.
    """
    return await _answered(context, body)


@read("/sql", result=SqlRows, cancels=True)
async def sql_of_address(
    context: Context,
    *,
    statement: str,
    parameters: list[str] = [],  # noqa: B006 -- it is not changed
    format: Format | None = None,  # noqa: A002 -- the parameter's name
    rows: int = ROWS,
) -> SqlRows | Response:
    """Answer a query in SQL, as `POST /sql`; its parameters are texts.

    Args:
        statement: One statement that reads.
        parameters: Values of its placeholders `$1`, `$2`, ..., repeated.
        format: The format of the answer.
        rows: Most rows of an answer as `json`.
    """
    return await _answered(context, SqlRequest(statement, [*parameters], format, rows))


async def _answered(context: Context, query: SqlRequest) -> SqlRows | Response:
    form = query.format or _accepted(context.request.headers.get("accept", ""))
    if form == "arrow" and not ARROW:
        raise NotInstalled("pyarrow", "arrow", "ask for ndjson or csv")
    if not 0 < query.rows <= ROWS_MAX:
        remedy = f"give 1 to {ROWS_MAX:,}; ndjson, csv and arrow have all rows"
        raise BadValue("rows", f"{query.rows}", remedy)
    if form == "json":
        limits = Limits(rows_max=query.rows)
        answer = await _ask(context, query, limits, None, arrow=False)
        rows = [[*map(simple, row)] for row in answer.tuples()]
        return SqlRows(columns=answer.columns, rows=rows, position=answer.position, cut=answer.cut)
    with contextlib.ExitStack() as stack:
        spool = tempfile.SpooledTemporaryFile(MEMORY_BYTES_MAX)  # noqa: SIM115 -- closed once sent
        stack.callback(spool.close)
        file: BinaryIO = spool  # type: ignore[assignment]  # it has the methods of one
        with answer_file(file, form) as writer:
            answer = await _ask(context, query, FILE_LIMITS, writer.take, arrow=form == "arrow")
        if answer.cut is not None:
            raise TooCostly("bytes", f"{FILE_LIMITS.bytes_max:,} bytes of an answer")
        context.position = answer.position
        headers = {"Content-Length": f"{spool.tell()}"}
        spool.seek(0)
        sending = _sending(file, stack.pop_all())
        return StreamingResponse(sending, 200, headers, MEDIA_TYPES[form])


async def _sending(file: BinaryIO, closing: contextlib.ExitStack) -> AsyncGenerator[bytes]:
    with closing:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _accepted(accept: str) -> Format:
    """Return the first known format of an `Accept` header, by default JSON."""
    forms = {kind: form for form, kind in MEDIA_TYPES.items()} | {"application/jsonl": "ndjson"}
    kinds = (each.partition(";")[0].strip().lower() for each in accept.split(","))
    return next((forms[kind] for kind in kinds if kind in forms), "json")


async def _ask(
    context: Context,
    query: SqlRequest,
    limits: Limits,
    take: Callable[[Answer], None] | None,
    *,
    arrow: bool,
) -> Answer:
    """Answer from the tables of the record, or of the caller's role, which is recorded."""
    opened, settings = context.workspace, context.workspace.settings
    parameters: Sequence[object] = query.parameters
    if context.role is not None:
        asker = context.role.asker
        async with opened.requests.place(asker, Takes.LONG):
            return await ask_as(
                settings,
                asker.who.role,
                query.statement,
                limits,
                by=asker.who.actor,
                carried=asker.carried,
                parameters=parameters,
                take=take,
                arrow=arrow,
                within=opened.record.workspace,
            )
    place = TableFiles.of(data_dir_of(settings), settings.workspace)
    door = await opened.door(arrow=arrow)
    async with published(place, opened.raw, _log.warning):
        return await door.ask(
            query.statement, limits, parameters=parameters, take=take, arrow=arrow
        )


# ------------------------------------------------------------ exact bytes


class _Body(msgspec.Struct):
    events: list[msgspec.Raw]


@read("/events/{id}/raw", trusted=True, stream="application/json")
async def event_bytes(context: Context, id: str) -> Response:  # noqa: A002 -- the parameter's name
    """Return the exact bytes of an event, as they are in the log.

    Args:
        id: The event's id, or its address (`position.index`).
    """
    at = address(id)
    if at is None:
        at = await context.tables.read(lambda reader: find_event(reader, id), "events")
    position, index = at
    body = await _commit(context, position, f"event {id!r:.80}")
    events = msgspec.json.decode(body, type=_Body).events
    if index >= len(events):
        raise NotFound(f"event {id!r:.80}", EVENT_REMEDY)
    return Response(bytes(events[index]), media_type="application/json")


@read("/commits/{position}/raw", trusted=True, stream="application/json")
async def commit_bytes(context: Context, position: int) -> Response:
    """Return the exact bytes of a commit: the body of its message in the log.

    Args:
        position: The commit's position.
    """
    body = await _commit(context, position, f"position {position}")
    return Response(body, media_type="application/json")


async def _commit(context: Context, position: int, what: str) -> bytes:
    async with context.workspace.raw() as raw:
        page = await raw.page(position - 1, 1) if position > 0 else []
    if not page or page[0].position != position:
        raise NotFound(what, EVENT_REMEDY)
    return page[0].body
