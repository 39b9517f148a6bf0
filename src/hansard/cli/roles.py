"""What roles see and may do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hansard.cli._common import At, Json, Run, do, options

roles_app = typer.Typer(
    name="roles",
    help="Say what each role sees and may do, deny by default, and ask why.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

By = Annotated[str, typer.Option(metavar="NAME", help="Who says so.")]
HashKey = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="A file of 32 secret bytes or more, where a mask of the role hashes."
    ),
]
RoleAt = Annotated[
    str | None,
    typer.Option(
        metavar="POINT", help="The rules as of a position (1234) or a time (2026-11-21T10:00:00Z)."
    ),
]


@roles_app.command()
def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Roles and their rules.")],
    by: By = "person",
    json: Json = False,
) -> None:
    """Give the roles of a file their rules, each as a whole.

    Every rule is checked before the first role is changed. The same rules again change nothing; a
    role that is not in the file stays as it is.
    """
    from hansard.cli.commands.roles import apply as work

    do(lambda: work(options(), file, by, json=json), json=json)


@roles_app.command()
def show(
    role: Annotated[
        str | None, typer.Argument(metavar="[ROLE]", help="Its rules; else a list of all roles.")
    ] = None,
    at: RoleAt = None,
    json: Json = False,
) -> None:
    """Show a role's rules as a file that can be applied again, or list the roles."""
    from hansard.cli.commands.roles import show as work

    do(lambda: work(options(), role, at, json=json), json=json)


@roles_app.command()
def explain(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="The role.")],
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="An event's id, or its address (position.index).")
    ],
    at: RoleAt = None,
    json: Json = False,
) -> None:
    """Tell whether a role sees an event: which rule decides, and what each other rule lacks."""
    from hansard.cli.commands.roles import explain as work

    do(lambda: work(options(), role, event, at, json=json), json=json)


@roles_app.command()
def withdraw(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="The role.")],
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")] = "",
    by: By = "person",
    json: Json = False,
) -> None:
    """Take a role's rules away: from here on it sees nothing and may do nothing."""
    from hansard.cli.commands.roles import withdraw as work

    do(lambda: work(options(), role, because, by, json=json), json=json)


@roles_app.command()
def view(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="The role.")],
    run: Run,
    at: At = None,
    key: HashKey = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who looks.")] = "person",
    follow: Annotated[bool, typer.Option("--follow", help="Then show each change.")] = False,
    json: Json = False,
) -> None:
    """Show what a role may see of a run: now, or at a point by its rules as they stood then.

    Events have the role's own numbers. That it was looked at is put on record.
    """
    from hansard.cli.commands.views import view as work

    do(lambda: work(options(), role, run, at, key, by, follow=follow, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add them to the command line."""
    app.add_typer(roles_app)
