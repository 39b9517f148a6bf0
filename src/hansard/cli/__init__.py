"""The `hansard` command: reads the arguments and hands them to `hansard.cli.commands`.

Exit codes: 0 done; 1 something is wrong (a finding, a difference, no broker); 2 an error, told in
one line on stderr; 130 interrupted; 141 the reader of a pipe left.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import typer
import typer.main

from hansard._version import __version__
from hansard.cli import (
    approvals,
    ask,
    audit,
    board,
    compare,
    experiment,
    find,
    move,
    principals,
    roles,
    team,
    views,
)
from hansard.cli._common import PIPE_CLOSED, Given, Json, do, options
from hansard.cli.look import conversation_app
from hansard.cli.run import run_app
from hansard.domain.errors import HansardError

ERROR, INTERRUPTED = 2, 130

app = typer.Typer(
    name="hansard",
    help="The verbatim, replayable record of what a team of AI agents did.",
    epilog="Global options may stand anywhere before '--'. Every command that reads takes --json: "
    "one JSON object a line on stdout.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

VALUED = {"--workspace", "-w", "--data-dir", "--nats", "--durability", "--replicas"}
FLAGS = {"--debug"}
"""The global options, with and without a value, which `hoisted` brings to the front."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hansard {__version__}")
        raise typer.Exit


@app.callback()
def _globals(
    workspace: Annotated[
        str | None, typer.Option("--workspace", "-w", help="The workspace [HANSARD_WORKSPACE].")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the embedded broker keeps its files [HANSARD_DATA_DIR]."),
    ] = None,
    nats: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An outside broker instead [HANSARD_NATS_URL]."),
    ] = None,
    durability: Annotated[
        Literal["strict", "relaxed"] | None,
        typer.Option(help="What the embedded broker's acks promise [HANSARD_DURABILITY]."),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=5,
            help="Make a workspace's streams with so many replicas on an outside cluster "
            "[HANSARD_NATS_REPLICAS].",
        ),
    ] = None,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="HANSARD_DEBUG", help="Log more; show tracebacks."),
    ] = False,
    version: Annotated[  # noqa: ARG001 -- its callback prints and leaves
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    Given.values = {
        "workspace": workspace,
        "data_dir": data_dir,
        "nats_url": nats,
        "durability": durability,
        "nats_replicas": replicas,
    }
    Given.debug = debug


@app.command()
def up(
    after: Annotated[
        int | None,
        typer.Option(min=0, metavar="POSITION", help="Show the log from here; else what is new."),
    ] = None,
    json: Json = False,
) -> None:
    """Hold the broker, project, serve restricted agents; show each commit as it is made.

    Of all workspaces that are there, and of those begun meanwhile; with --workspace of that one
    alone, which is made if it is missing (projected are all).
    """
    from hansard.cli.commands.up import up as work

    do(lambda: work(options(), after, json=json), json=json)


@app.command()
def status(
    start: Annotated[bool, typer.Option("--start", help="Start the broker if none runs.")] = False,
    json: Json = False,
) -> None:
    """Show the broker and what the workspace holds."""
    from hansard.cli.commands.status import status as work

    do(lambda: work(options(), start=start, json=json), json=json)


@app.command()
def demo(
    seed: Annotated[int | None, typer.Option(help="Kill at the same moments again.")] = None,
    json: Json = False,
) -> None:
    """Watch three agents work, be killed, and resume.

    About a minute, offline, on real input: the standard library's own source.
    """
    from hansard.demo import main as work

    raise typer.Exit(work(json=json, data_dir=Given.values.get("data_dir"), seed=seed))


@app.command()
def check(json: Json = False) -> None:
    """Recheck a whole workspace.

    Holes in positions and versions, bodies against subjects, transactions, epochs, references
    between events, and every blob; and the whole log beside what was known of it: the broker's
    mark and the tables. Exits with 1 where anything is wrong.
    """
    from hansard.cli.commands.check import check as work

    do(lambda: work(options(), json=json), json=json)


@app.command()
def runs(  # noqa: PLR0913, PLR0917 -- the command's options are the function's parameters
    status: Annotated[
        Literal["open", "completed", "failed", "cancelled", "unknown"] | None,
        typer.Option(help="Only runs of this status; unknown: nothing of its life can count."),
    ] = None,
    workflow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of this workflow.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs that this agent has joined.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs that --agent, or one, joined so.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only trials of this experiment.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs begun then or later: with zone.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only runs begun then or before: with zone.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most runs to show; 0 shows all.")] = 20,
    json: Json = False,
) -> None:
    """List the runs, the newest first; those that are all that is asked for."""
    from hansard.agents.run_index import RunFilter
    from hansard.cli.commands.runs import runs as work

    given = {
        "status": status,
        "workflow": workflow,
        "agent": agent,
        "role": role,
        "experiment": experiment,
        "since": since,
        "until": until,
    }
    wanted = RunFilter.of(given, "--{}")
    do(lambda: work(options(), wanted, limit, json=json), json=json)


approvals.register(app)
move.register(app)
ask.register(app)
audit.register(app)
board.register(app)
compare.register(app)
experiment.register(app)
find.register(app)
principals.register(app)
roles.register(app)
team.register(app)
views.register(app)
app.add_typer(run_app)
app.add_typer(conversation_app)


def hoisted(arguments: list[str]) -> list[str]:
    """The arguments with the global options in front, so that they may stand anywhere."""
    front: list[str] = []
    rest: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument = waiting.pop(0)
        if argument == "--":
            return [*front, *rest, argument, *waiting]
        if argument in FLAGS or ("=" in argument and argument.partition("=")[0] in VALUED):
            front.append(argument)
        elif argument in VALUED:
            front += [argument, *waiting[:1]]
            waiting = waiting[1:]
        else:
            rest.append(argument)
    return [*front, *rest]


@cache
def _command() -> Callable[..., object]:
    """What `app` says, made once a process: it takes some 30 ms."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the command line and exit."""
    code = ERROR
    try:
        _command()(args=hoisted(sys.argv[1:]), prog_name="hansard")
    except HansardError as error:
        _tell(error)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else ERROR
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.exit(code)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads what is left
    sys.exit(PIPE_CLOSED)


def _tell(error: HansardError) -> None:
    """An error as its fact, value and remedy; the traceback only where it is asked for."""
    from hansard.cli.opening import masked
    from hansard.inspect.texts import plain_text

    if Given.debug:
        import traceback

        traceback.print_exception(error)
    sys.stderr.write(f"error: {plain_text(masked(str(error)), lines=True)}\n")
