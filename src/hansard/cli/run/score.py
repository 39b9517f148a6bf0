"""`hansard run score`: what came of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.agents.experiments import scoring
from hansard.bus.clock import OS_USER
from hansard.cli import output
from hansard.cli.common import Because, By, Json, Run, noun, work
from hansard.cli.opening import reading_run
from hansard.cli.price import numbers

app = noun()


@app.command()
@work
async def score(
    which: Run,
    metrics: Annotated[
        list[str], typer.Argument(metavar="METRIC=NUMBER...", help="Such as reward=1 cost=0.2.")
    ],
    by: By = OS_USER,
    because: Because = "",
    json: Json = False,
) -> None:
    """Record a score of a run."""
    given = numbers(metrics)
    async with reading_run(which) as (workspace, run):
        is_new = await scoring.score(workspace, run, given, by=by, because=because)
    said = "is scored" if is_new else "has just these scores already"
    told = {"run": run, "by": by, "metrics": given, "recorded": is_new}
    output.show(told, f"run {run} {said} by {by}", json=json)
