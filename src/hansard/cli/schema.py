"""Command `hansard schema`: JSON Schemas of snapshots, events and exports."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hansard.cli import output
from hansard.cli.common import Commands, argument
from hansard.inspect.schemas import Schema, schema

app = Commands()


@app.command("schema")
async def show(
    which: Annotated[
        Schema,
        argument(
            "WHAT",
            "snapshot: an agent's state. events: a commit and its events, as they are stored. "
            "export: a line of 'hansard export'.",
        ),
    ],
) -> None:
    """Print a JSON Schema of snapshots, events or exports."""
    made = schema(which)
    pretty = msgspec.json.format(msgspec.json.encode(made), indent=2).decode()
    output.show(made, pretty)
