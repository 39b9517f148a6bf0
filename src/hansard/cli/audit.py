"""What an auditor asks: why, what happened, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hansard.cli._common import Json, Run, do, options


def why(
    decision: Annotated[
        str,
        typer.Argument(
            metavar="DECISION",
            help="An event's id or a prefix no other has, its address (position.index), or a run: "
            "its decisions are listed.",
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write one HTML file instead; '-' is stdout."),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--all", help="List all of what is many, as --json and --html do.")
    ] = False,
    json: Json = False,
) -> None:
    """Show why something was decided.

    What was asked and chosen, from which inputs, what its agent had been given by then, what else
    could have been chosen and how near it was, what the gate said, under which versions of prompts,
    models and tools, who acted, and what came of it.
    """
    from hansard.cli.commands.why import why as work

    do(lambda: work(options(), decision, html, json=json, whole=whole), json=json)


def audit(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only this run; 'last' is the newest.")
    ] = None,
    flip: Annotated[
        float, typer.Option(min=0, metavar="X", help="How far thresholds of decisions are moved.")
    ] = 0.01,
    json: Json = False,
) -> None:
    """Look for what is missing or odd.

    Intents without an outcome, refused calls that ran all the same, retry storms, decisions that
    nearly went the other way, costs that do not add up, trials that do not fit their plan. Exits
    with 1 where anything is found.
    """
    from hansard.cli.commands.audit import audit as work

    do(lambda: work(options(), run, flip, json=json), json=json)


def trail(run: Run, json: Json = False) -> None:
    """Show what happened in a run, one line an event that matters, in words."""
    from hansard.cli.commands.audit import trail as work

    do(lambda: work(options(), run, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add them to the command line."""
    for command in (why, audit, trail):
        app.command()(command)
