"""`hansard savings`: what replays saved, of a run, a workflow, a month."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import typer

from hansard.cli import output
from hansard.cli.common import Json, noun, within, work
from hansard.cli.opening import answering
from hansard.cli.output import Column, Part
from hansard.inspect.find import find_run_in
from hansard.inspect.savings import SAVINGS, SavingsAnswer, Wanted, added, savings_of

app = noun()

COLUMNS = (
    Column("of", whole=True),
    Column("sessions", right=True),
    Column("unknown", lambda row: str(row.sessions_unknown), right=True),
    Column("calls", lambda row: _known(row.calls, "{:,}"), right=True),
    Column("effects", lambda row: _known(row.effects, "{:,}"), right=True),
    Column("tokens in", lambda row: _known(row.input_tokens, "{:,.0f}"), right=True),
    Column("tokens out", lambda row: _known(row.output_tokens, "{:,.0f}"), right=True),
    Column("USD", lambda row: _known(row.cost, "{:,.4f}"), right=True),
    Column("seconds", lambda row: _known(row.seconds, "{:,.2f}"), right=True),
)


@app.command()
@work
async def savings(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only of this run; 'last' is the newest.")
    ] = None,
    workflow: Annotated[str | None, typer.Option(help="Only of runs of this workflow.")] = None,
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="Only of sessions that began then, UTC.")
    ] = None,
    by: Annotated[
        Literal["run", "workflow", "month"], typer.Option(help="What it is added up for.")
    ] = "run",
    json: Json = False,
) -> None:
    """Show what resumes and forks answered from the record.

    Calls, tokens, money, seconds, and effects not repeated, as the recorded calls had used them.
    What is not recorded is unknown, never 0; a session that was killed has not told.
    """
    async with answering() as reader:
        of = find_run_in(reader, run) if run is not None else None
        rows = reader.rows(SAVINGS, Wanted(of, workflow, month, by).parameters)
        found = SavingsAnswer(position=reader.position, rows=savings_of(rows))
    asked = within(run=of, workflow=workflow, month=month)
    output.show(found, lambda found: _listed(found, asked), json=json)


def _known(amount: float | None, form: str) -> str:
    return "unknown" if amount is None else form.format(amount)


def _listed(found: SavingsAnswer, asked: str) -> Iterator[Part]:
    if found.rows:
        yield output.listing(COLUMNS, found.rows)
        yield f"in all: {added(found.rows).line()}"
    else:
        yield f"no session{asked} went on with a run: nothing was answered from the record"
    yield f"as of position {found.position}"
