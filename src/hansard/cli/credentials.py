"""`hansard credentials`: a login that reaches the service and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from hansard.bus.clock import OS_USER
from hansard.cli import output as _show
from hansard.cli.common import By, Json, noun, work
from hansard.cli.opening import settings
from hansard.cli.output import Hint, Part
from hansard.client.credentials import Made, Wanted, acting_for, make

app = noun()


@app.command()
@work
async def credentials(  # noqa: PLR0913, PLR0917 -- the command's options are its parameters
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
    by: By = OS_USER,
    json: Json = False,
) -> None:
    """Create a login that reaches the service in one role.

    It reaches nothing else. The file is private to its owner. Run again after an error or a
    kill, it finishes what was begun; what is there and valid stays.
    """
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
    _tell(await make(settings(), wanted), json=json)


def _tell(made: Made, *, json: bool) -> None:
    _show.show(made, _people, json=json)


def _people(told: Made) -> Iterator[Part]:
    said = "are in" if told.new else "are there already, in"
    yield f"credentials of principal {told.principal}, role {told.role}, {said}:"
    yield f"  {told.file}"
    if told.on_behalf_of:
        yield f"acts {acting_for(told.on_behalf_of)}"
    yield f"valid until {told.expires or 'they are revoked'}; token {told.token}"
    if told.broker_entry is None:
        yield Hint("whoever has the file can log in with it: it is not shown again, nor on record")
        return
    yield Hint("the broker is not ours: add this to the users of its account, and reload it")
    yield told.broker_entry
