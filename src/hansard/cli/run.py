"""`hansard run ...`: one run."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from hansard.cli._common import At, Command, Json, Run, do, options

run_app = typer.Typer(
    name="run",
    help="Look at one run, replay it, resume it, fork it, settle its doubts, end it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@run_app.command()
def show(
    run: Run,
    at: At = None,
    agent: Annotated[str | None, typer.Option(help="Only this agent.")] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="As one snapshot an agent, in its exchange shape.")
    ] = False,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="As the chain of snapshots around each call.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the state of a run, now or at any point."""
    from hansard.cli.commands.run import What
    from hansard.cli.commands.run import show as work

    what = What(run=run, at=at, agent=agent, snapshot=snapshot, snapshots=snapshots, json=json)
    do(lambda: work(options(), what), json=json)


@run_app.command()
def trace(
    run: Run,
    at: At = None,
    full: Annotated[
        bool, typer.Option("--full", help="Values whole: nothing cut, large ones fetched.")
    ] = False,
    json: Json = False,
) -> None:
    """List the steps of a run, nested as they ran."""
    from hansard.cli.commands.trace import trace as work

    do(lambda: work(options(), run, at, full=full, json=json), json=json)


@run_app.command()
def replay(
    run: Run,
    command: Command = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="With a command: allow changed tools too.")
    ] = False,
    json: Json = False,
) -> None:
    """Replay a run: no tool runs.

    With a command, that program runs against the record: each call is answered from it, and one
    that is not on record is an error. Without a command, every call is derived again from the
    recorded arguments and results and compared; exits with 1 where one differs.
    """
    from hansard.cli.commands.replay import replay as work

    do(lambda: work(options(), run, command or [], offline=offline, json=json), json=json)


@run_app.command()
def resume(run: Run, command: Command = None) -> None:
    """Go on with a run: run its program again.

    Nothing recorded is ever executed: without a command it says how to go on.
    """
    from hansard.cli.commands.resume_fork_settle import resume as work

    do(lambda: work(options(), run, command or []))


@run_app.command()
def fork(
    run: Run,
    at: At = None,
    effects: Annotated[
        Literal["shadow", "live"],
        typer.Option(help="What the fork's tools with effects do: nothing new, or run."),
    ] = "shadow",
    json: Json = False,
) -> None:
    """Begin a new run where another stood; prints its id."""
    from hansard.cli.commands.resume_fork_settle import fork as work
    from hansard.domain.run import ForkEffects

    do(lambda: work(options(), run, at, ForkEffects(effects), json=json), json=json)


@run_app.command()
def settle(  # noqa: PLR0913, PLR0917 -- the command's options are the function's parameters
    run: Run,
    step: Annotated[
        str, typer.Argument(metavar="STEP", help="agent#number, or number where one agent is.")
    ],
    happened: Annotated[
        str | None,
        typer.Option(metavar="RESULT", help="It happened; its result as JSON, else as text."),
    ] = None,
    did_not_happen: Annotated[
        bool, typer.Option("--did-not-happen", help="It did not happen and may run again.")
    ] = False,
    reuse: Annotated[
        bool, typer.Option("--reuse", help="Diverged: take the recorded outcome over.")
    ] = False,
    run_again: Annotated[
        bool, typer.Option("--run-again", help="Diverged: run it again, effect and all.")
    ] = False,
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")] = "",
    by: Annotated[str, typer.Option(metavar="NAME", help="Who says so.")] = "person",
    json: Json = False,
) -> None:
    """Say what is true of a step in doubt or diverged."""
    from hansard.cli.commands.resume_fork_settle import Said
    from hansard.cli.commands.resume_fork_settle import settle as work

    said = Said(
        happened=happened,
        did_not_happen=did_not_happen,
        reuse=reuse,
        run_again=run_again,
        because=because,
        by=by,
    )
    do(lambda: work(options(), run, step, said, json=json), json=json)


Because = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the record.")]
By = Annotated[str, typer.Option(metavar="NAME", help="Who says so.")]


@run_app.command()
def reopen(
    run: Run,
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task's id, see 'hansard team'.")],
    because: Because = "",
    by: By = "person",
    json: Json = False,
) -> None:
    """Have a task that failed be done after all: it may be claimed again."""
    from hansard.cli.commands.resume_fork_settle import Word
    from hansard.cli.commands.resume_fork_settle import reopen as work

    do(lambda: work(options(), run, task, Word(by=by, because=because), json=json), json=json)


@run_app.command()
def finish(run: Run, because: Because = "", by: By = "person", json: Json = False) -> None:
    """Say that a run has ended as it should, whoever has not left it."""
    from hansard.cli.commands.resume_fork_settle import Word, end

    word = Word(by=by, because=because)
    do(lambda: end(options(), run, word, cancels=False, json=json), json=json)


@run_app.command()
def cancel(run: Run, because: Because = "", by: By = "person", json: Json = False) -> None:
    """Say that a run is cancelled, whoever has not left it; it stops nobody."""
    from hansard.cli.commands.resume_fork_settle import Word, end

    word = Word(by=by, because=because)
    do(lambda: end(options(), run, word, cancels=True, json=json), json=json)
