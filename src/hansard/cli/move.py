"""What brings runs in and takes them out: import and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hansard.cli._common import Json, do, options


def import_(
    format_: Annotated[
        Literal["tau-bench", "tau2-bench", "chat-jsonl", "events"],
        typer.Argument(metavar="FORMAT", help="tau-bench, tau2-bench, chat-jsonl or events."),
    ],
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="What to import; '-' is stdin.")
    ],
    experiment: Annotated[
        str | None, typer.Option(help="The experiment of runs that name none.")
    ] = None,
    arm: Annotated[str | None, typer.Option(help="The arm of runs that name none.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first bad record instead of skipping it.")
    ] = False,
    json: Json = False,
) -> None:
    """Import recorded runs.

    Their ids derive from their content: importing again changes nothing, and a killed import goes
    on where it stood. Bad records are told with file, line and reason, and skipped; exits with 1
    where there were any. `events` are the files of 'hansard export'.
    """
    from hansard.cli.commands.importing import What
    from hansard.cli.commands.importing import import_ as work

    what = What(
        format=format_, files=files, experiment=experiment, arm=arm, strict=strict, json=json
    )
    do(lambda: work(options(), what), json=json)


def export(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Ids, prefixes no other has, or 'last'.")
    ],
    role: Annotated[
        str | None,
        typer.Option(help="Only what this role sees; such a file cannot be imported again."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write [stdout].")
    ] = None,
) -> None:
    """Write runs as JSON lines with their exact stored bytes, large payloads included.

    A fork brings its parents, a run of a conversation the runs before it. 'hansard import events'
    reads the file.
    """
    from hansard.cli.commands.exporting import export as work

    do(lambda: work(options(), runs, role, output))


def register(app: typer.Typer) -> None:
    """Add both to the command line."""
    app.command("import")(import_)
    app.command("export")(export)
