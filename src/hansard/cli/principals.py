"""Who may log in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hansard.cli._common import Json, do, options

principals_app = typer.Typer(
    name="principals",
    help="Show who may log in with which token, and take that away.",
    rich_markup_mode=None,
    invoke_without_command=True,
)

By = Annotated[str, typer.Option(metavar="NAME", help="Who says so.")]


def credentials(  # noqa: PLR0913, PLR0917 -- the command's options are the function's parameters
    role: Annotated[str, typer.Argument(metavar="ROLE", help="The role; it must have rules.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose they are; else the role's name.")
    ] = None,
    kind: Annotated[
        Literal["agent", "person", "service"] | None,
        typer.Option(help="What it is, where it is new [agent]."),
    ] = None,
    expires: Annotated[
        str, typer.Option(metavar="LIFE", help="How long they are valid: 12h, 30d, 8w, never.")
    ] = "30d",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; else hansard-NAME.json."),
    ] = None,
    about: Annotated[str, typer.Option(metavar="TEXT", help="For the record.")] = "",
    on_behalf_of: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Whom it acts for, the nearest first; may be repeated."),
    ] = None,
    by: By = "person",
    json: Json = False,
) -> None:
    """Make a login that reaches the service in one role, and nothing else.

    The file is private to its owner. Run again after an error or a kill, it finishes what was
    begun; what is there and valid stays.
    """
    from hansard.cli.commands.credentials import Wanted
    from hansard.cli.commands.credentials import credentials as work

    wanted = Wanted(
        role=role,
        name=name,
        kind=kind,
        expires=expires,
        output=output,
        about=about,
        by=by,
        on_behalf_of=tuple(on_behalf_of or ()),
    )
    do(lambda: work(options(), wanted, json=json), json=json)


@principals_app.callback()
def principals(context: typer.Context, json: Json = False) -> None:
    """Show who may log in: every principal with its tokens, whether they are valid, and the label
    that it carries from run to run.
    """
    if context.invoked_subcommand is not None:
        return
    from hansard.cli.commands.principals import principals as work

    do(lambda: work(options(), json=json), json=json)


@principals_app.command("register")
def register_principal(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.")],
    kind: Annotated[
        Literal["agent", "person", "service"], typer.Option(help="What it is, for good.")
    ] = "person",
    about: Annotated[str, typer.Option(metavar="TEXT", help="For the record.")] = "",
    by: By = "person",
    json: Json = False,
) -> None:
    """Make a principal known that does not log in: others may then act on behalf of it.

    Whoever is given credentials is registered with the first of them.
    """
    from hansard.cli.commands.principals import register as work

    do(lambda: work(options(), name, kind, about, by, json=json), json=json)


@principals_app.command()
def revoke(
    which: Annotated[
        str, typer.Argument(metavar="TOKEN|NAME", help="A token's id, or a principal.")
    ],
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")] = "",
    by: By = "person",
    json: Json = False,
) -> None:
    """Make tokens worth nothing, at once and for good; whoever is logged in with one is put out.

    Of a principal all its own end, and all that act on behalf of it.
    """
    from hansard.cli.commands.principals import revoke as work

    do(lambda: work(options(), which, because, by, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add them to the command line."""
    app.command()(credentials)
    app.add_typer(principals_app)
