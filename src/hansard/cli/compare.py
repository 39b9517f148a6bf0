"""What compares the arms of an experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hansard.cli._common import Json, do, options


def compare(
    experiment: Annotated[str, typer.Argument(help="The experiment's name.")],
    metric: Annotated[
        str | None, typer.Option(help="Judge by this metric instead of the plan's.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="ARM", help="Compare with this arm [the first one].")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="LABEL", help="Also for each value of a label of runs.")
    ] = None,
    form: Annotated[
        Literal["table", "markdown", "html"],
        typer.Option("--format", "-f", help="How it is written."),
    ] = "table",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write [stdout].")
    ] = None,
    json: Json = False,
) -> None:
    """Compare the arms of an experiment.

    Paired by task, with clustered standard errors, exact McNemar, intervals that hold at one look
    and at any look, and Holm's correction over all that is judged. The verdict is better, worse or
    cannot tell. Trials without a value count as failures unless the plan says otherwise, and what
    leaving them out would change stands beside. Equal log and question give equal bytes.
    """
    from hansard.cli.commands.compare import compare as work
    from hansard.projections.report import Question

    question = Question(experiment=experiment, metric=metric, baseline=baseline, by=by)
    do(lambda: work(options(), question, form, output, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add it to the command line."""
    app.command()(compare)
