"""`hansard run score`, `hansard price`: numbers that people or programs state."""

from __future__ import annotations

from hansard.agents.experiments import prices, scoring
from hansard.cli import output
from hansard.cli.commands._answers import answering
from hansard.cli.opening import Options, find_run, reading
from hansard.cli.output import Column, Part
from hansard.client.connect import open_workspace
from hansard.domain.errors import BadValue
from hansard.inspect import experiments
from hansard.inspect.experiments import Price

COLUMNS = (
    Column("model", whole=True),
    Column("usage", whole=True),
    Column("per million", lambda price: f"{price.amount:,.10g}", right=True),
    Column("currency"),
    Column("since", whole=True),
    Column("source"),
)


def numbers(given: list[str]) -> dict[str, float]:
    """Numbers by name from `name=number`. Raises BadValue."""
    found: dict[str, float] = {}
    for text in given:
        name, _, number = text.rpartition("=")
        try:
            amount = float(number)
        except ValueError:
            amount = None
        if not name or amount is None:
            raise BadValue("argument", f"{text!r:.80} is no name=number", "give such as reward=1")
        if name in found:
            raise BadValue("argument", f"{name!r} is given twice", "give each name once")
        found[name] = amount
    return found


async def score(
    options: Options, run: str, given: list[str], by: str, because: str, *, json: bool
) -> int:
    """Put on record what came of a run. Raises NotFound, BadValue, BadName."""
    metrics = numbers(given)
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        is_new = await scoring.score(workspace, run, metrics, by=by, because=because)
    said = "is scored" if is_new else "has just these scores already"
    told = {"run": run, "by": by, "metrics": metrics, "recorded": is_new}
    output.show(told, f"run {run} {said} by {by}", json=json)
    return 0


async def state_price(
    options: Options, model: str, given: list[str], terms: prices.Terms, by: str, *, json: bool
) -> int:
    """State what a million of each usage of a model costs. Raises BadValue, BadName."""
    amounts = numbers(given)
    workspace = await open_workspace(options.settings())
    try:
        is_new = await prices.state(workspace, model, amounts, terms, by=by)
    finally:
        await workspace.close()
    said = f"the prices of {model} are stated" + ("" if is_new else " so already")
    told = {"model": model, "amounts": amounts, "since": terms.since, "stated": is_new}
    output.show(told, said, json=json)
    return 0


async def list_prices(options: Options, model: str | None, *, json: bool) -> int:
    """Print prices as they stand, by model, usage and day."""
    async with answering(options) as reader:
        found = experiments.list_prices(reader, model)
    output.show(found, _listed, json=json)
    return 0


def _listed(found: list[Price]) -> list[Part]:
    return [output.listing(COLUMNS, found) if found else "no price is stated"]
