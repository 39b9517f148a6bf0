"""The `hansard` command: reads the arguments and hands them to `hansard.commands`.

Exit codes: 0 done; 1 something is wrong (a finding, a difference, no broker); 2 an error, told in
one line on stderr; 130 interrupted; 141 the reader of a pipe left.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hansard._version import __version__
from hansard.domain.errors import HansardError

if TYPE_CHECKING:
    from hansard.commands._open import Options

ERROR, INTERRUPTED, PIPE_CLOSED = 2, 130, 141

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
run_app = typer.Typer(
    name="run",
    help="Look at one run, replay it, resume it, fork it, settle its doubts.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(run_app)

VALUED = {"--workspace", "-w", "--data-dir", "--nats", "--durability"}
FLAGS = {"--debug"}
"""The global options, with and without a value, which `hoisted` brings to the front."""

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout.")]
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, a prefix no other has, or 'last'.")
]
At = Annotated[
    str | None,
    typer.Option(
        metavar="POINT",
        help="A position (1234), agent@version (researcher_1@12), life@version, a time "
        "(2026-11-21T10:00:00Z), or the id of a commit, event or snapshot.",
    ),
]
Command = Annotated[
    list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="A program, after '--'.")
]


class _Given:
    """The global options, for the command that follows them in the same process."""

    values: dict[str, Any] = {}
    debug = False


def _options() -> Options:
    from hansard.commands._open import Options

    return Options(**_Given.values)


def _do(work: Callable[[], Coroutine[Any, Any, int]], *, json: bool = False) -> None:
    """Run a command to its end and exit with its code."""
    import asyncio

    from hansard import logging

    logging.setup(json=json, debug=_Given.debug)
    try:
        code = asyncio.run(work())
        sys.stdout.flush()
    except BrokenPipeError:
        raise typer.Exit(PIPE_CLOSED) from None
    raise typer.Exit(code)


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
    _Given.values = {
        "workspace": workspace,
        "data_dir": data_dir,
        "nats_url": nats,
        "durability": durability,
    }
    _Given.debug = debug


@app.command()
def up(
    after: Annotated[
        int | None,
        typer.Option(min=0, metavar="POSITION", help="Show the log from here; else what is new."),
    ] = None,
    json: Json = False,
) -> None:
    """Hold the broker; show each commit as it is made."""
    from hansard.commands.up import up as work

    _do(lambda: work(_options(), after, json=json), json=json)


@app.command()
def status(
    start: Annotated[bool, typer.Option("--start", help="Start the broker if none runs.")] = False,
    json: Json = False,
) -> None:
    """Show the broker and what the workspace holds."""
    from hansard.commands.status import status as work

    _do(lambda: work(_options(), start=start, json=json), json=json)


@app.command()
def demo(
    seed: Annotated[int | None, typer.Option(help="Kill at the same moments again.")] = None,
    json: Json = False,
) -> None:
    """Watch three agents work, be killed, and resume.

    About a minute, offline, on real input: the standard library's own source.
    """
    from hansard.demo import main as work

    raise typer.Exit(work(json=json, data_dir=_Given.values.get("data_dir"), seed=seed))


@app.command()
def check(json: Json = False) -> None:
    """Recheck a whole workspace.

    Holes in positions and versions, bodies against subjects, transactions, epochs, references
    between events, and every blob. Exits with 1 where anything is wrong.
    """
    from hansard.commands.check import check as work

    _do(lambda: work(_options(), json=json), json=json)


@app.command()
def runs(
    status: Annotated[
        Literal["open", "completed", "failed", "cancelled"] | None,
        typer.Option(help="Only runs of this status."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Most runs to show; 0 shows all.")] = 20,
    json: Json = False,
) -> None:
    """List the runs, the newest first."""
    from hansard.commands.runs import runs as work
    from hansard.domain.run import RunStatus

    wanted = RunStatus(status) if status is not None else None
    _do(lambda: work(_options(), wanted, limit, json=json), json=json)


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
    from hansard.commands.run import What
    from hansard.commands.run import show as work

    what = What(run=run, at=at, agent=agent, snapshot=snapshot, snapshots=snapshots, json=json)
    _do(lambda: work(_options(), what), json=json)


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
    from hansard.commands.trace import trace as work

    _do(lambda: work(_options(), run, at, full=full, json=json), json=json)


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
    from hansard.commands.replay import replay as work

    _do(lambda: work(_options(), run, command or [], offline=offline, json=json), json=json)


@run_app.command()
def resume(run: Run, command: Command = None) -> None:
    """Go on with a run: run its program again.

    Nothing recorded is ever executed: without a command it says how to go on.
    """
    from hansard.commands.going import resume as work

    _do(lambda: work(_options(), run, command or []))


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
    from hansard.commands.going import fork as work
    from hansard.domain.run import ForkEffects

    _do(lambda: work(_options(), run, at, ForkEffects(effects), json=json), json=json)


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
    from hansard.commands.going import Said
    from hansard.commands.going import settle as work

    said = Said(
        happened=happened,
        did_not_happen=did_not_happen,
        reuse=reuse,
        run_again=run_again,
        because=because,
        by=by,
    )
    _do(lambda: work(_options(), run, step, said, json=json), json=json)


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


def main() -> None:
    """Run the command line and exit."""
    code = ERROR
    try:
        app(args=hoisted(sys.argv[1:]), prog_name="hansard")
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
    from hansard.commands._open import masked
    from hansard.commands._show import plain_text

    if _Given.debug:
        import traceback

        traceback.print_exception(error)
    sys.stderr.write(f"error: {plain_text(masked(str(error)), lines=True)}\n")
