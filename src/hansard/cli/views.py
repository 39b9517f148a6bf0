"""What an agent knew when it decided."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.cli._common import Json, do, options
from hansard.cli.roles import HashKey


def knew(
    moment: Annotated[
        str,
        typer.Argument(
            metavar="DECISION|EVENT|RUN@POINT",
            help="An event's id or its address (position.index): as its agent stood before it. Or "
            "a run and a point of it (last@1234): the agent that acted last.",
        ),
    ],
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="As this role sees it, not the agent's own.")
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option(
            metavar="POINT",
            help="The role's rules as of a position, a time or 'now', not as they stood then.",
        ),
    ] = None,
    key: HashKey = None,
    json: Json = False,
) -> None:
    """Show what an agent knew when it decided: its state, and what its role could see.

    The events have the role's own numbers; what was served to the agent before is listed with it.
    """
    from hansard.cli.commands.views import knew as work

    do(lambda: work(options(), moment, role, rules, key, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add them to the command line."""
    app.command()(knew)
