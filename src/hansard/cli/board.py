"""The shared state of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.cli._common import At, Json, Run, do, options


def board(
    run: Run,
    key: Annotated[
        str | None,
        typer.Argument(metavar="[KEY]", help="What it holds, whole, and its writes; else all."),
    ] = None,
    at: At = None,
    json: Json = False,
) -> None:
    """Show the state that a run's agents share, now or at any point."""
    from hansard.cli.commands.board import board as work

    do(lambda: work(options(), run, key, at, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add it to the command line."""
    app.command()(board)
