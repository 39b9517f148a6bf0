"""What makes the tables that questions are asked of."""

from __future__ import annotations

from typing import Annotated

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
    from hansard.commands.rebuild import rebuild as work

    do(lambda: work(options(), verify=verify, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add it to the command line."""
    app.command()(rebuild)
