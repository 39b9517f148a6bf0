"""What makes the tables that questions are asked of."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from hansard.cli._common import Json, do, options


def rebuild(
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with the tables that stand; replace nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Make the workspace's tables anew from its log.

    They are made beside the old ones and then put in their place. With --verify, they are made up
    to where the old ones stand, compared table by table, and thrown away; exits with 1 where any
    differs. Not while 'hansard up' projects the same workspace.
    """
    from hansard.cli.commands.rebuild import rebuild as work

    do(lambda: work(options(), verify=verify, json=json), json=json)


def sql(  # noqa: PLR0913, PLR0917 -- each is an option of the command
    question: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="One statement that reads; '-' or none reads stdin."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the statement from a file.")
    ] = None,
    form: Annotated[
        Literal["table", "ndjson", "csv", "parquet", "arrow"] | None,
        typer.Option("--format", help="Else what -o's name says, else a table."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the answer there.")
    ] = None,
    wait_for: Annotated[
        int | None,
        typer.Option(min=0, metavar="POSITION", help="As of at least here; else the log's end."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=3_600, metavar="S", help="Longest time to answer, in s.")
    ] = 10.0,
    rows: Annotated[int, typer.Option(min=1, help="Most rows of the answer.")] = 10_000,
    memory: Annotated[
        int, typer.Option(min=64, max=65_536, metavar="MIB", help="What DuckDB may hold, in MiB.")
    ] = 512,
    role: Annotated[
        str | None, typer.Option(help="Answer what this role may see, and put that on record.")
    ] = None,
    by: Annotated[str, typer.Option(help="With --role: who asks, for the record.")] = "person",
    csv_formulas: Annotated[
        bool,
        typer.Option(
            "--csv-formulas",
            help="In CSV, write texts that begin a formula (= + - @) as they are, without an "
            "apostrophe before them: a spreadsheet would run them.",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Ask the record in SQL, read-only.

    Answered from the tables as they are published, in a process that sees nothing else and is
    stopped when it takes too much. 'SHOW TABLES' and 'DESCRIBE runs' say what there is. The
    position that an answer holds for, and whether it is cut, stands on stderr, and in Arrow and
    Parquet in the metadata.
    """
    from hansard.cli.commands.sql import Asked, NotAsked
    from hansard.cli.commands.sql import question as asked
    from hansard.cli.commands.sql import sql as work
    from hansard.projections.sql_sandbox.limits import Limits

    if json and form not in {None, "ndjson"}:
        raise NotAsked(f"--json is --format ndjson, and --format is {form}: give one of them")
    limits = Limits(wall_s=timeout, cpu_s=math.ceil(timeout), rows_max=rows, memory_mib=memory)
    told = Asked(
        sql=asked(question, file),
        format="ndjson" if json else form,
        out=out,
        wait_for=wait_for,
        limits=limits,
        role=role,
        by=by,
        csv_formulas=csv_formulas,
    )
    do(lambda: work(options(), told), json=json)


def register(app: typer.Typer) -> None:
    """Add them to the command line."""
    app.command()(rebuild)
    app.command()(sql)
