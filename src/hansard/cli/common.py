"""Options that many commands share, and the decorators that run a command."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, ParamSpec

import typer

from hansard.cli.exit_codes import PIPE_CLOSED

P = ParamSpec("P")

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, a unique prefix, or 'last'.")]
POINT = (
    "A position (1234), an event's address (1234.2), a step (researcher_1#8), agent@version "
    "(researcher_1@12), life@version, a time (2026-11-21T10:00:00Z), or the id of a commit, event "
    "or snapshot."
)

At = Annotated[str | None, typer.Option(metavar="POINT", help=POINT)]
Agent = Annotated[str | None, typer.Option(help="Only this agent.")]
By = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Author, for the record [the operating system's user].",
        show_default=False,
    ),
]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Reason, for the record.")]
Command = Annotated[
    list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="A program, after '--'.")
]


class GlobalOptions:
    """Global options, for the command that follows them in the same process."""

    values: dict[str, Any] = {}
    debug = False


def new_app(**value: Any) -> typer.Typer:
    """Create the typer application of a module's commands."""
    return typer.Typer(add_completion=False, rich_markup_mode=None, **value)


def within(**filters: str | None) -> str:
    """Return the filters in use as a part of a sentence about an empty answer; "" for none."""
    given = [f"{name} {value!r:.80}" for name, value in filters.items() if value is not None]
    return f" of {', '.join(given)}" if given else ""


CommandResult = Coroutine[Any, Any, int | None] | int | None
"""Result of a command function: an exit code (None is 0), or a coroutine that returns one."""


def work(function: Callable[P, CommandResult]) -> Callable[P, None]:
    """Make a function a command that runs to completion.

    A command that calls functions of its user is not a coroutine function: they run in the main
    thread, where Ctrl-C ends them.
    """
    return _run(function, service=False)


def service(function: Callable[P, CommandResult]) -> Callable[P, None]:
    """Make a function a command that serves until it is stopped and logs JSON."""
    return _run(function, service=True)


def _run(function: Callable[P, CommandResult], *, service: bool) -> Callable[P, None]:
    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        command = functools.partial(function, *args, **kwargs)
        do(command, json=bool(kwargs.get("json")), service=service)

    return run


def keep() -> None:
    """Exempt all existing objects from garbage collection, to the end of the process.

    Not done if DuckDB is loaded, which would report leaks at exit.
    """
    if "_duckdb" not in sys.modules:
        gc.freeze()


def collect() -> None:
    """Enable garbage collection, which `main` disabled, except for imported objects."""
    if not gc.isenabled():
        keep()
        gc.enable()


def do(command: Callable[[], CommandResult], *, json: bool, service: bool = False) -> None:
    """Run a command to its end and exit with its code."""
    import asyncio

    from hansard import logging
    from hansard.domain.value_types import reading

    try:
        with reading(), contextlib.ExitStack() as stack:
            stream = None
            if service:
                from hansard.cli.background_printer import log_stream

                stream = stack.enter_context(log_stream(sys.stderr))
            logging.setup(json=json, debug=GlobalOptions.debug, service=service, stream=stream)
            result = command()
            code = asyncio.run(result) if isinstance(result, Coroutine) else result
        sys.stdout.flush()
    except BrokenPipeError:
        raise typer.Exit(PIPE_CLOSED) from None
    raise typer.Exit(code or 0)
