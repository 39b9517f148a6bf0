"""What the command line's parts share: the options many commands take, and how one is run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from hansard.cli.opening import Options

PIPE_CLOSED = 141

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line on stdout.")]
Run = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, a prefix no other has, or 'last'.")
]
POINT = (
    "A position (1234), agent@version (researcher_1@12), life@version, a time "
    "(2026-11-21T10:00:00Z), or the id of a commit, event or snapshot."
)

At = Annotated[str | None, typer.Option(metavar="POINT", help=POINT)]
Command = Annotated[
    list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="A program, after '--'.")
]


class Given:
    """The global options, for the command that follows them in the same process."""

    values: dict[str, Any] = {}
    debug = False


def options() -> Options:
    """The global options as they were given."""
    from hansard.cli.opening import Options

    return Options(**Given.values)


def do(work: Callable[[], Coroutine[Any, Any, int]], *, json: bool = False) -> None:
    """Run a command to its end and exit with its code."""
    import asyncio

    from hansard import logging
    from hansard.domain.value_types import reading

    logging.setup(json=json, debug=Given.debug)
    try:
        with reading():
            code = asyncio.run(work())
        sys.stdout.flush()
    except BrokenPipeError:
        raise typer.Exit(PIPE_CLOSED) from None
    raise typer.Exit(code)
