"""Command `hansard schema`: JSON Schemas of snapshots, events and exports."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from hansard.cli import output
from hansard.cli.common import Json, new_app, work
from hansard.inspect.schemas import Schema, schema

app = new_app()


@app.command("schema")
@work
async def show(
    which: Annotated[
        Schema,
        typer.Argument(
            metavar="WHAT",
            help="snapshot: an agent's state. events: a commit and its events, as they are stored. "
            "export: a line of 'hansard export'.",
        ),
    ],
    json: Json = False,
) -> None:
    """Print a JSON Schema of snapshots, events or exports."""
    made = schema(which)
    pretty = msgspec.json.format(msgspec.json.encode(made), indent=2).decode()
    output.show(made, pretty, json=json)
