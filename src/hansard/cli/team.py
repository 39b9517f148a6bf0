"""The agents of a run and what they are to do."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.cli._common import At, Json, Run, do, options


def team(
    run: Run,
    at: At = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then show each change, until all is done.")
    ] = False,
    json: Json = False,
) -> None:
    """Show a run's agents and tasks: who does what, what waits, whose lease runs out."""
    from hansard.cli.commands.team import team as work

    do(lambda: work(options(), run, at, follow=follow, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add it to the command line."""
    app.command()(team)
