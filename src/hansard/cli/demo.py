"""Command `hansard demo`: watch three agents work, be killed, and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.cli.common import GlobalOptions, Json, new_app
from hansard.demo import main

app = new_app()


@app.command()
def demo(
    seed: Annotated[int | None, typer.Option(help="Seed of the kill times.")] = None,
    json: Json = False,
) -> None:
    """Watch three agents work, be killed, and resume.

    Takes about a minute, offline, on real input: the standard library's source.
    """
    raise typer.Exit(main(json=json, data_dir=GlobalOptions.values.get("data_dir"), seed=seed))
