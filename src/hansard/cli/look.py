"""What looks at a run from its sides: its context, its state, its page, its conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hansard.cli._common import POINT, At, Json, Run, do, options
from hansard.cli.run import run_app

conversation_app = typer.Typer(
    name="conversation",
    help="Look at what continues over several runs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Agent = Annotated[str | None, typer.Option(help="Only this agent.")]


@run_app.command()
def context(run: Run, at: At = None, agent: Agent = None, json: Json = False) -> None:
    """Show the context window of a run's agents as it stood at a point."""
    from hansard.cli.commands.context import context as work

    do(lambda: work(options(), run, at, agent, json=json), json=json)


@run_app.command()
def state(
    run: Run,
    at: At = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="P Q", help="What changed between two points; 'now' is the newest."),
    ] = None,
    agent: Agent = None,
    json: Json = False,
) -> None:
    """Show the whole state of a run at a point, or what changed between two."""
    from hansard.cli.commands.state import state as work

    do(lambda: work(options(), run, at, diff, agent, json=json), json=json)


@run_app.command()
def html(
    run: Run,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The file to write; '-' is stdout [RUN.html]."),
    ] = None,
    json: Json = False,
) -> None:
    """Write a run as one HTML file that needs no server.

    It opens at the first event: the state, board and tasks at each, messages as a chat, search.
    """
    from hansard.cli.commands.page import page as work

    do(lambda: work(options(), run, output, json=json), json=json)


@conversation_app.command("show")
def show_conversation(
    conversation: Annotated[str, typer.Argument(metavar="ID", help="The conversation's id.")],
    at: Annotated[str | None, typer.Option(metavar="POINT", help=POINT)] = None,
    json: Json = False,
) -> None:
    """Show a conversation's runs and messages."""
    from hansard.cli.commands.conversation import show as work

    do(lambda: work(options(), conversation, at, json=json), json=json)
