"""`hansard run score`, `hansard price`: numbers that people or programs state."""

from __future__ import annotations

from hansard._connect import open_workspace
from hansard.agents import judges, prices
from hansard.commands import _show
from hansard.commands._answers import answering
from hansard.commands._open import Options, find_run, reading
from hansard.commands.experiment import in_utc
from hansard.domain.errors import BadValue

_PRICES = """
SELECT model, usage, amount, currency, since, source, stated_by, position
FROM prices
WHERE $1 IS NULL OR model = $1
QUALIFY row_number() OVER (PARTITION BY model, usage, since ORDER BY version DESC) = 1
ORDER BY model, usage, since
"""


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
        is_new = await judges.score(workspace, run, metrics, by=by, because=because)
    if json:
        _show.emit({"run": run, "by": by, "metrics": metrics, "recorded": is_new})
    else:
        said = "is scored" if is_new else "has just these scores already"
        _show.write(f"run {run} {said} by {by}")
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
    if json:
        _show.emit({"model": model, "amounts": amounts, "since": terms.since, "stated": is_new})
    else:
        _show.write(f"the prices of {model} are stated" + ("" if is_new else " so already"))
    return 0


async def list_prices(options: Options, model: str | None, *, json: bool) -> int:
    """Print prices as they stand, by model, usage and day."""
    async with answering(options) as answers:
        rows = [in_utc(row) for row in answers.rows(_PRICES, [model])]
        position = answers.position
    if json:
        for row in rows:
            _show.emit({"kind": "price", **row, "position": position})
        return 0
    columns = [
        _show.Column("model", whole=True),
        _show.Column("usage", whole=True),
        _show.Column("per million", right=True),
        _show.Column("currency"),
        _show.Column("since", whole=True),
        _show.Column("source"),
    ]
    cells = [
        [
            row["model"],
            row["usage"],
            f"{row['amount']:,.10g}",
            row["currency"],
            _show.moment(row["since"]),
            row["source"] or "",
        ]
        for row in rows
    ]
    _show.write(_show.table(columns, cells) if rows else "no price is stated")
    return 0
