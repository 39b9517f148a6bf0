"""Command `hansard price`: prices of models, as stated by people or programs."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.agents.experiments import scoring
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import By, Json, new_app, work
from hansard.cli.opening import answering, beginning
from hansard.cli.output import Column, Part
from hansard.domain.errors import BadValue
from hansard.domain.times import moment
from hansard.inspect import experiments
from hansard.inspect.experiments import Price

app = new_app()

COLUMNS = (
    Column("model", whole=True),
    Column("usage", whole=True),
    Column("per million", lambda price: f"{price.amount:,.10g}", right=True),
    Column("currency"),
    Column("since", whole=True),
    Column("source"),
)


def numbers(arguments: list[str]) -> dict[str, float]:
    """Parse `name=number` arguments. Raises BadValue."""
    found: dict[str, float] = {}
    for text in arguments:
        name, _, number = text.rpartition("=")
        try:
            amount = float(number)
        except ValueError:
            amount = None
        if not name or amount is None:
            raise BadValue("argument", f"{text!r:.80} is not name=number", "give such as reward=1")
        if name in found:
            raise BadValue("argument", f"{name!r} is given twice", "give each name once")
        found[name] = amount
    return found


@app.command("state")
@work
async def state_price(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model in the record.")],
    amounts: Annotated[
        list[str],
        typer.Argument(
            metavar="USAGE=AMOUNT...", help="Of one million: input_tokens=2.5 output_tokens=10."
        ),
    ],
    since: Annotated[str, typer.Option(metavar="TIME", help="First time, with zone.")],
    currency: Annotated[str, typer.Option(metavar="CODE", help="ISO 4217 code.")] = "USD",
    source: Annotated[str, typer.Option(metavar="TEXT", help="Source of the price.")] = "",
    by: By = OS_USER,
    json: Json = False,
) -> None:
    """State what one million of each usage of a model costs."""
    terms = scoring.Terms(since=moment("--since", since), currency=currency, source=source)
    prices = numbers(amounts)
    async with beginning() as workspace:
        is_new = await scoring.state(workspace, model, prices, terms, by=by)
    text = f"the prices of {model} are stated" + ("" if is_new else " so already")
    fields = {"model": model, "amounts": prices, "since": terms.since, "stated": is_new}
    output.show(fields, text, json=json)


@app.command("list")
@work
async def list_prices(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Only of this model.")
    ] = None,
    json: Json = False,
) -> None:
    """List stated prices, the newest for each day."""
    async with answering() as reader:
        found = experiments.list_prices(reader, model)
    output.show(found, _render_list, json=json)


def _render_list(found: list[Price]) -> list[Part]:
    return [output.listing(COLUMNS, found) if found else "no prices are stated"]
