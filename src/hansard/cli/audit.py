"""`hansard audit` and `hansard trail`: what is missing or odd, and what happened in a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.text import Text

from hansard.cli import output
from hansard.cli.answers import answering
from hansard.cli.common import Json, Run, noun, work
from hansard.cli.output import Column, Hint, Part
from hansard.domain.counted import counted
from hansard.inspect import audit as reads
from hansard.inspect.audit import VIEWS, Audit, Trail
from hansard.inspect.find_in_tables import find_run
from hansard.inspect.texts import plain_text

app = noun()

SHOWN_MAX = 20
"""Findings of one view that people are shown; --json gives all."""


@app.command()
@work
async def audit(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only this run; 'last' is the newest.")
    ] = None,
    flip: Annotated[
        float, typer.Option(min=0, metavar="X", help="How far thresholds of decisions are moved.")
    ] = 0.01,
    json: Json = False,
) -> int:
    """Look for what is missing or odd.

    Intents without an outcome, refused calls that ran all the same, retry storms, decisions that
    nearly went the other way, costs that do not add up, trials that do not fit their plan. Exits
    with 1 where anything is found.
    """
    async with answering() as reader:
        made = reads.audit(reader, find_run(reader, run) if run is not None else None, flip)
    output.show(made, _findings, json=json)
    return 1 if made.found else 0


@app.command()
@work
async def trail(run: Run, json: Json = False) -> None:
    """Show what happened in a run, one line an event that matters, in words."""
    async with answering() as reader:
        made = reads.trail(reader, find_run(reader, run))
    output.show(made, _events, json=json)


def _findings(made: Audit) -> Iterator[Part]:
    views = (
        Column("view", lambda view: view, whole=True),
        Column("found", lambda view: _count(made.summary.views[view]), right=True),
        Column("what it looks for", lambda view: VIEWS[view].format(flip=made.flip)),
    )
    yield output.listing(views, VIEWS)
    yield ""
    run = made.summary.run
    for view, count in made.summary.views.items():
        for row in [row for row in made.found if row["view"] == view][:SHOWN_MAX]:
            where = f" [{row['address']}]" if row["address"] else ""
            of_run = f"run {row['run']}: " if run is None and row["run"] is not None else ""
            yield plain_text(f"{row['kind']}: {of_run}{row['fact']}{where}")
        if count > SHOWN_MAX:
            yield Hint(f"and {count - SHOWN_MAX:,} more of {view}: see them with --json")
    of = f"run {run}" if run is not None else "the workspace"
    said = counted(len(made.found), "finding") if made.found else "nothing is missing or odd"
    yield f"{of}, as of position {made.summary.position}: {said}"


def _call(row: dict[str, Any]) -> str:
    if row["step"] is None:
        return ""
    tool = f" {row['tool']}" if row["tool"] is not None else ""
    return output.cut(f"#{row['step']}{tool}")


EVENTS = (
    Column("at", lambda row: row["address"], whole=True),
    Column("time", lambda row: row["at"][11:23]),
    Column("who", lambda row: row["who"], short=True),
    Column("what", lambda row: row["what"]),
    Column("call", _call),
    Column("detail", lambda row: output.cut(row["detail"] or "", 120)),
)


def _events(made: Trail) -> Iterator[Part]:
    yield output.listing(EVENTS, made.events)
    yield ""
    told = made.summary
    began = f" from {made.events[0]['at'][:10]} on" if made.events else ""
    count = counted(told.events, "event")
    yield f"{count} of run {told.run}{began}, as of position {told.position}"


def _count(found: int) -> Text:
    return output.cell(f"{found:,}", "red" if found else "")
