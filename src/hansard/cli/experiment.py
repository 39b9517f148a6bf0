"""What compares: experiments, what came of runs, and prices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hansard.cli._common import Json, Run, do, options
from hansard.cli.run import run_app

experiment_app = typer.Typer(
    name="experiment",
    help="Register what is compared before the data, and look at how it stands.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
price_app = typer.Typer(
    name="price",
    help="State what a model's use costs from a day on. A recorded cost is never changed by it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The experiment's name.")]
By = Annotated[str, typer.Option(metavar="NAME", help="Who says so.")]
Because = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")]


@experiment_app.command("register")
def register_plan(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="Name and plan.")],
    by: By = "person",
    json: Json = False,
) -> None:
    """Register an experiment: its arms, its metrics and how it is judged.

    A plan is never changed. Registering the same one again changes nothing.
    """
    from hansard.cli.commands.experiment import register as work

    do(lambda: work(options(), file, by, json=json), json=json)


@experiment_app.command("list")
def list_(json: Json = False) -> None:
    """List experiments, registered or met in runs."""
    from hansard.cli.commands.experiment import list_ as work

    do(lambda: work(options(), json=json), json=json)


@experiment_app.command()
def show(name: Name, json: Json = False) -> None:
    """Show a plan, whether it stood before the data, and the runs by arm."""
    from hansard.cli.commands.experiment import show as work

    do(lambda: work(options(), name, json=json), json=json)


@experiment_app.command()
def stop(name: Name, because: Because = "", by: By = "person", json: Json = False) -> None:
    """Assign no run to an experiment any more."""
    from hansard.cli.commands.experiment import stop as work

    do(lambda: work(options(), name, because, by, json=json), json=json)


@experiment_app.command()
def assign(
    name: Name,
    unit: Annotated[str, typer.Argument(metavar="UNIT", help="A task, a run, a conversation ...")],
    json: Json = False,
) -> None:
    """Print the arm that a unit has by its hash; nothing is recorded."""
    from hansard.cli.commands.experiment import assign as work

    do(lambda: work(options(), name, unit, json=json), json=json)


@run_app.command()
def score(
    run: Run,
    metrics: Annotated[
        list[str], typer.Argument(metavar="METRIC=NUMBER...", help="Such as reward=1 cost=0.2.")
    ],
    by: By = "person",
    because: Because = "",
    json: Json = False,
) -> None:
    """Put on record what came of a run."""
    from hansard.cli.commands.figures import score as work

    do(lambda: work(options(), run, metrics, by, because, json=json), json=json)


@price_app.command("state")
def state_price(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="As the record names it.")],
    amounts: Annotated[
        list[str],
        typer.Argument(
            metavar="USAGE=AMOUNT...", help="Of one million: input_tokens=2.5 output_tokens=10."
        ),
    ],
    since: Annotated[str, typer.Option(metavar="TIME", help="From when on: with its zone.")],
    currency: Annotated[str, typer.Option(metavar="CODE", help="As in ISO 4217.")] = "USD",
    source: Annotated[str, typer.Option(metavar="TEXT", help="Where it was read.")] = "",
    by: By = "person",
    json: Json = False,
) -> None:
    """State what one million of each usage of a model costs."""
    from hansard.agents.experiments.prices import Terms
    from hansard.cli.commands.figures import state_price as work
    from hansard.domain.times import moment

    terms = Terms(since=moment("--since", since), currency=currency, source=source)
    do(lambda: work(options(), model, amounts, terms, by, json=json), json=json)


@price_app.command("list")
def list_prices(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Only of this model.")
    ] = None,
    json: Json = False,
) -> None:
    """List the prices as they are stated; of several for one day the newest."""
    from hansard.cli.commands.figures import list_prices as work

    do(lambda: work(options(), model, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add them to the command line; `run score` is with the other commands of a run."""
    app.add_typer(experiment_app)
    app.add_typer(price_app)
