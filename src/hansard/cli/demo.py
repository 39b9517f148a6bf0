"""`hansard demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.cli.common import GlobalOptions, Json, noun
from hansard.demo import main

app = noun()


@app.command()
def demo(
    seed: Annotated[int | None, typer.Option(help="Kill at the same moments again.")] = None,
    json: Json = False,
) -> None:
    """Watch three agents work, be killed, and resume.

    About a minute, offline, on real input: the standard library's own source.
    """
    raise typer.Exit(main(json=json, data_dir=GlobalOptions.values.get("data_dir"), seed=seed))
