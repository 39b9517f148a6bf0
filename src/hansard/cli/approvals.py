"""What agents ask before a call runs, and answering it."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.cli._common import Json, do, options

approvals_app = typer.Typer(
    name="approvals",
    help="List what agents ask before a call runs, and grant or deny it.",
    invoke_without_command=True,
    rich_markup_mode=None,
)

Approval = Annotated[
    str, typer.Argument(metavar="ID", help="An approval's id, or a prefix no other has.")
]
By = Annotated[str, typer.Option(metavar="NAME", help="Who says so; not the agent that asks.")]
Because = Annotated[
    str, typer.Option(metavar="TEXT", help="Why, for the record and for the agent.")
]


@approvals_app.callback()
def listing(
    context: typer.Context,
    every: Annotated[
        bool, typer.Option("--all", help="Also what is answered, and what nobody answered in time.")
    ] = False,
    json: Json = False,
) -> None:
    """List what agents ask before a call runs, in all runs; grant or deny it."""
    if context.invoked_subcommand is not None:
        return
    from hansard.cli.commands.approvals import approvals as work

    do(lambda: work(options(), every=every, json=json), json=json)


@approvals_app.command()
def grant(approval: Approval, because: Because = "", by: By = "person", json: Json = False) -> None:
    """Let a call run, once. The agent that waits for it goes on."""
    from hansard.cli.commands.approvals import answer as work

    do(lambda: work(options(), approval, because, by, granted=True, json=json), json=json)


@approvals_app.command()
def deny(approval: Approval, because: Because = "", by: By = "person", json: Json = False) -> None:
    """Refuse a call. The agent that waits for it is told, and why."""
    from hansard.cli.commands.approvals import answer as work

    do(lambda: work(options(), approval, because, by, granted=False, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add them to the command line."""
    app.add_typer(approvals_app)
