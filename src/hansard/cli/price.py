"""Command `hansard price`: prices of models, as stated by people or programs."""

from __future__ import annotations

from typing import Annotated

from hansard.agents.experiments import scoring
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import By, Commands, argument, option
from hansard.cli.opening import answering, beginning
from hansard.cli.output import Column, Part
from hansard.domain.choices import moment
from hansard.domain.errors import BadValue
from hansard.inspect import experiments
from hansard.inspect.experiments import Price

app = Commands()

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
async def state_price(
    model: Annotated[str, argument("MODEL", "Name of the model in the record.")],
    amounts: Annotated[
        list[str], argument("USAGE=AMOUNT...", "Of one million: input_tokens=2.5 output_tokens=10.")
    ],
    since: Annotated[str, option("First time, with zone.", "TIME")],
    currency: Annotated[str, option("ISO 4217 code.", "CODE")] = "USD",
    source: Annotated[str, option("Source of the price.", "TEXT")] = "",
    by: By = OS_USER,
) -> None:
    """State what one million of each usage of a model costs."""
    terms = scoring.Terms(since=moment("--since", since), currency=currency, source=source)
    prices = numbers(amounts)
    async with beginning() as workspace:
        is_new = await scoring.state(workspace, model, prices, terms, by=by)
    text = f"the prices of {model} are stated" + ("" if is_new else " so already")
    fields = {"model": model, "amounts": prices, "since": terms.since, "stated": is_new}
    output.show(fields, text)


@app.command("list")
async def list_prices(
    model: Annotated[str | None, argument("[MODEL]", "Only of this model.")] = None,
) -> None:
    """List stated prices, the newest for each day."""
    async with answering() as reader:
        found = experiments.list_prices(reader, model)
    output.show(found, _render_list)


def _render_list(found: list[Price]) -> list[Part]:
    return [output.listing(COLUMNS, found) if found else "no prices are stated"]
