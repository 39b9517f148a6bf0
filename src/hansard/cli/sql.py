"""Commands `hansard sql` and `search`: query the published tables, and the text index."""

from __future__ import annotations

import asyncio
import io
import math
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec.structs import replace

from hansard.bus.clock import OS_USER
from hansard.bus.file_lock import whole, write_whole
from hansard.cli import output
from hansard.cli.common import Agent, Commands, GlobalOptions, argument, flag, option, pairs, within
from hansard.cli.opening import place_of, published, reading_raw, reading_run, settings
from hansard.client.opening import data_dir_of
from hansard.domain.choices import counted
from hansard.domain.errors import CallerError, install
from hansard.inspect.answer import plain_text
from hansard.projections.errors import Held, Unusable
from hansard.projections.sql_sandbox.answer import (
    ARROW,
    ARROW_FORMS,
    Answer,
    Form,
    answer_file,
    as_json,
    jsonable,
)
from hansard.projections.sql_sandbox.rows import ONE_QUESTION, Limits
from hansard.projections.sql_sandbox.sandbox import Door

if TYPE_CHECKING:
    from rich.text import Text

    from hansard.projections.full_text import Answer as SearchAnswer
    from hansard.projections.full_text import Hit, IndexPlace

app = Commands()

_INDENT = "    "


@app.command()
async def search(
    words: Annotated[
        list[str] | None, argument("WORDS", 'Words that must all occur; "..." is a phrase.')
    ] = None,
    run: Annotated[str | None, option("Only this run: its id, a prefix, or 'last'.", "RUN")] = None,
    agent: Agent = None,
    type_: Annotated[
        str | None, option("Only events of this type, e.g. decision.made.", "TYPE", "--type")
    ] = None,
    limit: Annotated[int, option("Most events to show; 0 shows all.", min=0)] = 20,
    query: Annotated[bool, flag("--query", "WORDS are a query in SQLite's FTS5 syntax.")] = False,
    rebuild: Annotated[bool, flag("--rebuild", "Rebuild the index from the log first.")] = False,
) -> None:
    """Search the text of events, best match first.

    Searches texts and keys in the events' data, ignoring case and accents, but no blobs. The index
    is updated to the newest event first, unless another process does so.
    """
    expression = " ".join(words or [])
    if not expression.strip() and not rebuild:
        message = "there is nothing to search for: give words, or --rebuild"
        raise CallerError(message)
    from hansard.projections import full_text as index  # not for SQL: it imports DuckDB

    config = settings()
    place = index.IndexPlace.of(data_dir_of(config), config.workspace)
    if run is not None:
        async with reading_run(run) as (_, found_run):
            run = found_run
    busy = await _fill(place, rebuild=rebuild)
    if not expression.strip():
        return
    question = index.Question(
        words=expression, is_query=query, run=run, agent=agent, type=type_, limit=limit or index.ALL
    )
    answer = await asyncio.to_thread(index.ask, place, question)
    if answer is None:
        raise busy or Unusable(place.path, "it was removed meanwhile", place.remedy)
    if busy is not None:
        by = f"process {busy.pid}" if busy.pid else "another process"
        output.hint(f"{by} is indexing: this answers from what it has indexed")
    output.show([*_lines(answer)], [output.Lines(_hit_cells(hit)) for hit in answer.hits])
    if not answer.hits:
        of = within(run=run, agent=agent, type=type_)
        output.hint(
            f"nothing was found in the texts of events{of}: payloads over 64 KiB, which are kept "
            "apart, and ids of runs are not searched; a run by its id: 'hansard run show ID'"
        )
    if answer.more:
        output.hint(f"more than {len(answer.hits)} were found: see --limit")
    output.hint(f"as of position {answer.position}")


async def _fill(place: IndexPlace, *, rebuild: bool) -> Held | None:
    """Update or rebuild the index; return the process that already does, if any."""
    from hansard.projections import full_text as index

    async with reading_raw() as raw:
        with output.positions() as progress:
            if rebuild:
                reached = await index.rebuild(raw, place, progress)
                output.hint(f"made {place.path} up to position {reached}")
                return None
            try:
                await index.bring_up(raw, place, progress)
            except Held as error:
                return error
    return None


def _lines(answer: SearchAnswer) -> Iterator[dict[str, Any]]:
    """Yield each event; `marks` are the delimiters of matches in the snippet."""
    for hit in answer.hits:
        fields = msgspec.structs.asdict(hit)
        snippet, rank = fields.pop("snippet"), fields.pop("rank")
        shown = {"snippet": snippet.text, "marks": snippet.marks, "rank": rank}
        yield {**fields, **shown, "as_of": answer.position}


def _hit_cells(hit: Hit) -> list[Text]:
    """Render a hit: its place, and its text with the matches in brackets."""
    head = output.text(hit.address, style="bold")
    head.append(f"  {output.cut(hit.type)}", style="cyan")
    if hit.run is not None:
        head.append(f"  run {output.cut(hit.run)}")
    if hit.agent is not None:
        head.append(f"  {output.cut(hit.agent)} ({output.cut(hit.role or '')})")
    line, at = output.text(_INDENT), 0
    for begin, end in hit.snippet.marks:
        line.append(plain_text(hit.snippet.text[at:begin]))
        line.append(f"[{plain_text(hit.snippet.text[begin:end])}]", style="bold yellow")
        at = end
    line.append(plain_text(hit.snippet.text[at:]))
    return [head, line]


Format = Literal["table", "ndjson", "csv", "parquet", "arrow"]

Take = Callable[[Answer], None]
"""Callback that takes the rows of an answer as they arrive."""

ENDINGS: dict[str, Format] = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".csv": "csv",
    ".txt": "table",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
"""Output formats by file name extension."""


CUT = 4
"""Exit code of an answer that was cut."""

NO_END = 2**62
"""Limit of rows and bytes of an answer to a file."""

TABLE_BYTES_MAX = 2**30
"""Largest answer written as a text table, in bytes: it is built in memory to find column widths."""

ANSWER_S = 10.0
FILE_S = 600.0
"""Longest time to answer and to write an answer to a file, in seconds."""


TABLES = """
    SELECT table_name AS name, 'table' AS kind, comment FROM duckdb_tables() WHERE NOT internal
    UNION ALL
    SELECT view_name, 'view', comment FROM duckdb_views() WHERE NOT internal
    UNION ALL
    SELECT function_name || '(' || array_to_string(any_value(parameters), ', ') || ')', 'macro',
        any_value(comment)
    FROM duckdb_functions() WHERE NOT internal AND function_type IN ('macro', 'table_macro')
    GROUP BY function_name
    ORDER BY name
"""
COLUMNS = """
    SELECT column_name AS name, column_type AS type, comment
    FROM (DESCRIBE {0}) LEFT JOIN duckdb_columns() AS known USING (column_name)
    WHERE known.table_name = '{0}' ORDER BY column_index
"""
"""Queries of `--tables`, without and with the name of a table."""

Own = Annotated[
    list[str] | None,
    option(
        "A table of your own to join: Parquet, CSV, JSON, NDJSON or Arrow. Repeatable.",
        "NAME=FILE",
        "--with",
    ),
]
CsvFormulas = Annotated[
    bool,
    flag(
        "--csv-formulas",
        "In CSV, write texts that begin a formula (= + - @) as they are, without an apostrophe "
        "before them: a spreadsheet would run them.",
    ),
]


@app.command()
async def sql(
    question: Annotated[
        str | None, argument("SQL", "One statement that reads; '-' or none reads stdin.")
    ] = None,
    file: Annotated[
        Path | None, option("Read the statement from a file.", None, "--file", "-f")
    ] = None,
    list_tables: Annotated[
        bool, flag("--tables", "List tables, views and macros; with a name, its columns.")
    ] = False,
    form: Annotated[
        Format | None, option("Format [by the name of -o, else table].", None, "--format")
    ] = None,
    out: Annotated[Path | None, option("Write the answer there.", "FILE", "--out", "-o")] = None,
    wait_for: Annotated[
        int | None, option("At this position or later [the log's end].", "POSITION", min=0)
    ] = None,
    timeout: Annotated[
        float | None, option("Longest time, in s [10; with -o 600].", "S", min=0.1, max=86_400)
    ] = None,
    rows: Annotated[
        int | None, option("Most rows of the answer [10,000; with -o all there are].", min=1)
    ] = None,
    memory: Annotated[
        int, option("Memory limit of DuckDB, in MiB.", "MIB", min=64, max=65_536)
    ] = 512,
    role: Annotated[
        str | None, option("Answer what this role may see, and put that on record.")
    ] = None,
    by: Annotated[
        str, option("With --role: the reader, for the record.", show_default=False)
    ] = OS_USER,
    own: Own = None,
    csv_formulas: CsvFormulas = False,
) -> int:
    """Query the record in SQL, read-only.

    The query runs in a separate process that has access to nothing else, within limits. 'hansard
    sql --tables' lists the tables, 'hansard sql --tables runs' the columns of one. The position of
    the answer, and whether it was cut, is printed on stderr; Arrow and Parquet also have it in
    their metadata. An answer that was cut exits with 4. With -o the file is written completely or
    not at all, and a table (--format table) has at most 1 GiB.
    """
    request = _format_of(form, out)
    statement = _question(question, file, list_tables=list_tables)
    limits = _limits(rows, timeout, memory, out, request)
    tables = await asyncio.to_thread(_own_tables, own or [])
    arrow = _is_arrow(request, out)
    question_of = partial(_answer_of, statement, limits, wait_for, role, by, tables, arrow)
    if out is not None and request != "table":
        answer = await _stream_to_file(question_of, out, answer_form=request, formulas=csv_formulas)
    else:
        answer = await question_of(None)
        if out is None or answer.cut is None:
            _give(answer, request, out, formulas=csv_formulas)
    nothing = out is not None and answer.cut is not None
    output.hint(_summary(answer, limits) + ("; nothing is written" if nothing else ""))
    return CUT if answer.cut is not None else 0


def _is_arrow(form: Format, out: Path | None) -> bool:
    """Return whether the answer is to be Arrow. Raises CallerError."""
    if form not in ARROW_FORMS:
        return False
    if out is None and sys.stdout.isatty():
        raise CallerError(f"{form} is not for a terminal: give -o FILE")
    if not ARROW:
        raise CallerError(
            f"{form} takes pyarrow, which is not installed: {install('arrow')}, or ask for ndjson "
            "or csv"
        )
    return True


class _Cut(Exception):
    """Error: an answer that must not be cut has more rows than the limit."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


async def _stream_to_file(
    ask: Callable[[Take], Awaitable[Answer]], out: Path, *, answer_form: Form, formulas: bool
) -> Answer:
    """Stream an answer to a file; write no file if it was cut. Raises Unwritable."""
    try:
        with whole(out) as file, answer_file(file, answer_form, formulas=formulas) as writer:
            answer = await ask(writer.take)
            if answer.cut is not None:
                raise _Cut(answer)  # noqa: TRY301 -- by it the file that was begun is let go
            return answer
    except _Cut as cut:
        return cut.answer


def _own_tables(texts: list[str]) -> dict[str, bytes]:
    """Read tables from files here: the worker opens none. Raises CallerError, BadValue."""
    files = pairs(texts, "--with", "NAME=FILE")
    if not files:
        return {}
    from hansard.operations.sql_answer import as_arrow

    return as_arrow(files)


async def _answer_of(
    statement: str,
    limits: Limits,
    wait_for: int | None,
    role: str | None,
    by: str,
    tables: dict[str, bytes],
    arrow: bool,
    take: Take | None,
) -> Answer:
    """Query the workspace's tables, or those that a role may see. Raises CallerError."""
    config = settings()
    if role is None:
        async with (
            Door(  # its worker starts meanwhile
                place_of(config), ONE_QUESTION, arrow=arrow or bool(tables)
            ) as door,
            published(wait_for),
        ):
            return await door.ask(statement, limits, tables=tables, take=take, arrow=arrow)
    if wait_for is not None:
        raise CallerError(
            "--wait-for names a position of the workspace, and a role has its own: leave it out, "
            "a role is always answered as of now"
        )
    from hansard.client.role_answers import ask_as

    return await ask_as(config, role, statement, limits, by, tables=tables, take=take, arrow=arrow)


def _limits(
    rows: int | None, timeout: float | None, memory_mib: int, out: Path | None, form: Format
) -> Limits:
    """Return the query's limits; an answer to a file has no default limit of rows."""
    wall_s = timeout if timeout is not None else ANSWER_S if out is None else FILE_S
    limits = Limits(wall_s=wall_s, cpu_s=math.ceil(wall_s), memory_mib=memory_mib)
    if out is not None:
        most = TABLE_BYTES_MAX if form == "table" else NO_END
        limits = replace(limits, rows_max=NO_END, bytes_max=most)
    return limits if rows is None else replace(limits, rows_max=rows)


def _format_of(form: Format | None, out: Path | None) -> Format:
    """Return the format: the option, else the file's extension, else table. Raises CallerError."""
    if GlobalOptions.json and form not in {None, "ndjson"}:
        raise CallerError(f"--json is --format ndjson, and --format is {form}: give one of them")
    if GlobalOptions.json:
        return "ndjson"
    if form is not None or out is None or not out.suffix:
        return form or "table"
    try:
        return ENDINGS[out.suffix.lower()]
    except KeyError:
        raise CallerError(
            f"{out.name!r} ends in {out.suffix!r}, which is not written: name it "
            f"{', '.join(ENDINGS)}, or say what to write with --format"
        ) from None


def _question(text: str | None, file: Path | None, *, list_tables: bool) -> str:
    """Return the SQL: an argument, a file, stdin or the `--tables` query. Raises CallerError."""
    if list_tables:
        if file is not None or (text is not None and not text.isidentifier()):
            raise CallerError(
                "--tables takes the name of a table: leave out the query, or --tables"
            )
        return TABLES if text is None else COLUMNS.format(text)
    if text is not None and file is not None:
        raise CallerError("there are two queries, an argument and -f: give one of them")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CallerError(
                f"{str(file)!r} cannot be read ({error}): name a text file"
            ) from error
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise CallerError("there is no query: give SQL as an argument, with -f or on stdin")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise CallerError(f"stdin cannot be read ({error}): write UTF-8") from error


def _give(answer: Answer, form: Format, out: Path | None, *, formulas: bool) -> None:
    if form == "table":
        table = _table(answer)
        if out is None:
            output.write(table)
        else:
            write_whole(out, output.plain([table]))
    elif form == "ndjson":
        for row in answer.dicts():
            output.emit(jsonable(row))
    else:
        sink = io.BytesIO()
        with answer_file(sink, form, formulas=formulas) as writer:
            writer.take(answer)
        output.write(output.Bytes(sink.getvalue()))


def _table(answer: Answer) -> output.Lines:
    rows = [[_text(value) for value in row] for row in answer.tuples()]
    columns = [
        output.Column(name, right=is_number, whole=is_number)
        for name, is_number in zip(answer.columns, answer.numeric, strict=True)
    ]
    return output.table(columns, rows)


def _text(value: Any) -> str:
    """Render a value in a table."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list() | dict() | bytes() | tuple():
            return as_json(value)
        case _:
            return str(value)


def _summary(answer: Answer, limits: Limits) -> str:
    rows = f"{counted(answer.rows, 'row')}"
    match answer.cut:
        case "rows":
            more = f", and there are more: give --rows (now {limits.rows_max:,})"
        case "bytes":
            size = output.size(limits.bytes_max)
            more = f", and there are more, beyond {size}: ask for fewer columns or rows"
        case _:
            more = ""
    return f"as of position {answer.position}: {rows}{more}"
