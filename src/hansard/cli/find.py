"""What finds: words in everything that is recorded, and where two runs part."""

from __future__ import annotations

from typing import Annotated

import typer

from hansard.cli._common import Json, do, options
from hansard.cli.run import run_app


def search(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORDS", help='Words, all of them to be found; "..." is a phrase.'),
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Only this run: its id, a prefix, or 'last'.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent.")] = None,
    type_: Annotated[
        str | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only events of this type, e.g. decision.made."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most events to show; 0 shows all.")] = 20,
    query: Annotated[
        bool, typer.Option("--query", help="WORDS are a query in SQLite's FTS5 syntax.")
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Make the index anew from the log first.")
    ] = False,
    json: Json = False,
) -> None:
    """Search what events say, the best fit first.

    Searched are all texts and keys in the events' data, without regard to case and accents; of
    what is kept apart for its size, the reference. The index is brought up to the newest event
    before; while another process does that, the answer is as of what is indexed.
    """
    from hansard.cli.commands.search import Asked
    from hansard.cli.commands.search import search as work

    asked = Asked(
        words=" ".join(words or []),
        is_query=query,
        run=run,
        agent=agent,
        type=type_,
        limit=limit,
        rebuild=rebuild,
        json=json,
    )
    do(lambda: work(options(), asked), json=json)


@run_app.command("diff")
def run_diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A run's id, a prefix, or 'last'.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one's.")],
    json: Json = False,
) -> None:
    """Compare two runs step by step.

    Agents are matched by name, else by role; their calls and decisions by what was asked. Shown are
    where the runs part, other arguments and other results, what only one of them did, and what each
    cost. What was said in messages is not compared. Exits with 1 where they differ.
    """
    from hansard.cli.commands.run_diff import diff as work

    do(lambda: work(options(), a, b, json=json), json=json)


def register(app: typer.Typer) -> None:
    """Add it to the command line."""
    app.command()(search)
