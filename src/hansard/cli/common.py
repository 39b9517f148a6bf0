"""Options that many commands share, and how a command runs."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import re
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

import typer

from hansard.domain.errors import BadValue

ERROR = 2
INTERRUPTED = 130
PIPE_CLOSED = 141
"""Exit codes other than success; see the docstring of `hansard.cli`. 141: the reader of a pipe
closed it or stopped reading.
"""


SLICES = {
    "agents-sessions": "Show conversations of the OpenAI Agents SDK.",
    "claude": "Show and change transcripts of the Claude Agent SDK.",
    "otel": "Make runs of OpenTelemetry traces.",
    "pack": "Make, find, add and withdraw signed packs of runs.",
    "share": "Let other workspaces of the record read runs live.",
    "work": "Request forks of workers, and list the requests.",
}
"""Help of our own slices that have commands, which is shown without importing them."""


def option(help_: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Declare an option of a command; without names it has that of its parameter."""
    return typer.Option(*names, metavar=metavar, help=help_, **more)


def flag(name: str, help_: str) -> Any:
    """Declare an option without a value."""
    return typer.Option(name, help=help_)


def help_of(documentation: str) -> str:
    """Return the description of a method as that of its command, which prints what it returns."""
    text = re.sub(r"; return [^.]*\.|(?<=\.)\s+Return [^.]*\.", _ends, documentation)
    return re.sub(r"^Return ", "Show ", text.strip())


def _ends(returns: re.Match[str]) -> str:
    return "." if returns[0].startswith(";") else ""


def argument(metavar: str, help_: str) -> Any:
    """Declare an argument of a command."""
    return typer.Argument(metavar=metavar, help=help_)


Json = Annotated[bool, flag("--json", "One JSON object a line on stdout.")]
Run = Annotated[str, argument("RUN", "A run's id, a unique prefix, or 'last'.")]
POINT = (
    "A position (1234), an event's address (1234.2), a step (researcher_1#8), agent@version "
    "(researcher_1@12), life@version, a time (2026-11-21T10:00:00Z), or the id of a commit, event "
    "or snapshot."
)

At = Annotated[str | None, option(POINT, "POINT")]
Agent = Annotated[str | None, option("Only this agent.")]
By = Annotated[
    str, option("Author, for the record [the operating system's user].", "NAME", show_default=False)
]
Reason = Annotated[str, option("Reason, for the record.", "TEXT")]
OutputFile = Annotated[Path | None, option("The file to write [stdout].", None, "--output", "-o")]
AllowHost = Annotated[
    list[str] | None, option("With --http: a host name that clients may use. Repeatable.", "NAME")
]
Command = Annotated[list[str] | None, argument("[-- COMMAND...]", "A program, after '--'.")]


def pairs(items: list[str] | None, option: str, form: str = "NAME=VALUE") -> dict[str, str]:
    """Parse the values of an option by name. Raises BadValue, also for a name that occurs twice."""
    fields: dict[str, str] = {}
    for each in items or ():
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise BadValue(option, f"{each!r:.80}", f"give {form}")
        if name in fields:
            raise BadValue(option, f"{name!r:.80} is given twice", "give each name once")
        fields[name] = value
    return fields


class GlobalOptions:
    """Global options and `--json`, for the command that follows them in the same process."""

    values: dict[str, Any] = {}
    workspaces: tuple[str, ...] = ()
    """The workspaces of `-w`; only `hansard up` takes several."""
    debug = False
    json = False


def within(**filters: str | None) -> str:
    """Return the filters in use as a part of a sentence about an empty answer; "" for none."""
    texts = [f"{name} {value!r:.80}" for name, value in filters.items() if value is not None]
    return f" of {', '.join(texts)}" if texts else ""


CommandResult = Coroutine[Any, Any, int | None] | int | None
"""Result of a command function: an exit code (None is 0), or a coroutine that returns one."""

LogTo = Callable[[TextIO], AbstractContextManager[Any]]
"""Opens a stream for the log over another one."""

Function = TypeVar("Function", bound=Callable[..., CommandResult])


class Commands(typer.Typer):
    """Commands of one module. Each runs to completion and exits with the code that it returns.

    A command that calls functions of its user is not a coroutine function: they run in the main
    thread, where Ctrl-C ends them.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(add_completion=False, rich_markup_mode=None, **options)

    def command(
        self,
        name: str | None = None,
        *,
        plain: bool = False,
        service: LogTo | None = None,
        **more: Any,
    ) -> Callable[[Function], Function]:
        """Register a function as a command with `--json`.

        plain: the command has no `--json`. service: it serves until it is stopped, and logs JSON to
        the stream that this opens over stderr.
        """
        register = super().command(name, **more)

        def add(function: Function) -> Function:
            @functools.wraps(function)
            def run(*args: Any, json: bool = False, **kwargs: Any) -> None:
                do(functools.partial(function, *args, **kwargs), json=json, service=service)

            signature = inspect.signature(function, eval_str=True)
            parameters = [*signature.parameters.values(), *([] if plain else [_JSON])]
            read = signature.replace(parameters=parameters)
            run.__signature__ = read  # type: ignore[attr-defined]  # typer reads it
            run.__annotations__ = {**run.__annotations__, _JSON.name: Json}
            register(run)
            return function

        return add


_JSON = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
"""Parameter that each command has in addition to those of its function."""


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


def do(command: Callable[[], CommandResult], *, json: bool, service: LogTo | None = None) -> None:
    """Run a command to its end and exit with its code."""
    import asyncio

    from hansard import logging
    from hansard.domain.value_types import reading

    GlobalOptions.json = json
    try:
        with reading(), contextlib.ExitStack() as stack:
            is_service = service is not None
            stream = stack.enter_context(service(sys.stderr)) if service is not None else None
            logging.setup(json=json, debug=GlobalOptions.debug, service=is_service, stream=stream)
            result = command()
            code = asyncio.run(result) if isinstance(result, Coroutine) else result
        sys.stdout.flush()
    except BrokenPipeError:
        raise typer.Exit(PIPE_CLOSED) from None
    raise typer.Exit(code or 0)
