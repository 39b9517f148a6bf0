"""`hansard run left`: what went out of a run, to models, pages and tools."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hansard.cli import output
from hansard.cli.common import Json, Run, noun, work
from hansard.cli.opening import reading_run
from hansard.cli.output import Column, Part
from hansard.domain.choices import counted
from hansard.inspect.payloads import Payloads
from hansard.inspect.what_left import WhatLeft, what_left

app = noun()

COLUMNS = (
    Column("step", lambda row: f"{row.agent}#{row.step}"),
    Column("to", lambda row: row.destination),
    Column("kind"),
    Column("tool"),
    Column("status"),
    Column("secrets", lambda row: ", ".join(row.secrets)),
    Column("given", lambda row: msgspec.json.encode(row.arguments).decode()),
)


@app.command()
@work
async def left(which: Run, json: Json = False) -> None:
    """Show what a run sent to models, pages and tools, in order.

    Each call that was made, or may have been (its status is `requested` or `in_doubt`), with what
    it was given, as it is on record: a secret by its name.
    """
    async with reading_run(which) as (workspace, run):
        fetch = Payloads(workspace)
        found = WhatLeft(run=run, sent=await what_left(workspace, run, fetch))
        output.hint_erased(fetch)
    output.show(found, _listed, json=json)


def _listed(found: WhatLeft) -> Iterator[Part]:
    if found.sent:
        yield output.listing(COLUMNS, found.sent)
    places = len({each.destination for each in found.sent})
    yield f"{counted(len(found.sent), 'call')} to {counted(places, 'place')} left run {found.run}"
