"""`hansard rebuild`: the workspace's tables made again from its log, or compared with that."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from hansard.broker import process
from hansard.cli import output
from hansard.cli.common import Json, noun, work
from hansard.cli.opening import place_of, reading_raw, settings
from hansard.cli.output import Column, Part
from hansard.client.opening import data_dir_of
from hansard.inspect.status import Rebuild
from hansard.projections import rebuild as rebuilding
from hansard.projections.table_files import TableFiles

app = noun()


@app.command()
@work
async def rebuild(
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with the tables that stand; replace nothing.")
    ] = False,
    json: Json = False,
) -> int:
    """Rebuild the workspace's tables from its log.

    They are made beside the old ones and then put in their place. With --verify, they are made up
    to where the old ones stand, compared table by table, and thrown away; exits with 1 where any
    differs. Not while 'hansard up' projects the same workspace.
    """
    given = settings()
    if not verify:
        process.refuse(data_dir_of(given))
    place = place_of(given)
    rebuilt = rebuilding.verify if verify else rebuilding.rebuild
    began_s = time.monotonic()
    async with reading_raw() as raw:
        with output.positions() as progress:
            made = await rebuilt(raw, place, progress)
    found = Rebuild(made, time.monotonic() - began_s)
    output.show(found, lambda found: _people(found, place), json=json)
    return 1 if made.differing else 0


COLUMNS = (
    Column("table", whole=True),
    Column("rows", right=True),
    Column(
        "digest",
        lambda table: table.digest[:16] + " differs" * (table.equal is False),
        whole=True,
    ),
)


def _people(found: Rebuild, place: TableFiles) -> Iterator[Part]:
    made = found.made
    yield output.listing(COLUMNS, found.tables)
    yield ""
    if made.before is not None:
        differing = ", ".join(made.differing)
        said = f"differ from the log: {differing}" if differing else "are what the log says"
        yield f"the tables up to position {made.position} {said}"
    else:
        yield f"made {place.path} up to position {made.position} in {found.took_s:.1f} s"
