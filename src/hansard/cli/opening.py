"""Open a workspace from a command's options."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import importlib
import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hansard import settings as configuration
from hansard.agents.workspace import Workspace
from hansard.bus.jetstream.log import RawWorkspace
from hansard.cli import output
from hansard.cli.common import GlobalOptions
from hansard.client import opening, unfinished
from hansard.client.opening import data_dir_of, readable
from hansard.domain.errors import BadValue
from hansard.inspect import tables
from hansard.inspect.answer import address, find_run
from hansard.projections.snapshots import PublishedSnapshot, Reader
from hansard.projections.table_files import TableFiles
from hansard.settings import Settings

if TYPE_CHECKING:
    from hansard.inspect.audit import WaitingAgent
    from hansard.inspect.run import Run, RunState

# Functions named in options as `module:function`.


def named(text: str, option: str = "--with") -> Callable[..., Any]:
    """Import a function given as `module:function`, relative to the current directory.

    Exceptions raised while the module is imported propagate. Raises BadValue.
    """
    module, colon, name = text.partition(":")
    if not (colon and module and name):
        raise BadValue(option, f"{text!r:.80}", "give MODULE:FUNCTION, such as upkeep:shorter")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        value = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        remedy = f"call it where {module} can be imported"
        raise BadValue(option, f"there is no module {module!r:.80}", remedy) from error
    except AttributeError as error:
        raise BadValue(option, f"{module} has no {name!r:.80}", "name a function of it") from error
    if not callable(value):
        raise BadValue(option, f"{text!r:.80} is no function", "name a function")
    made: Callable[..., Any] = value
    return made


def interruptible(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Wrap a function as a coroutine function that Ctrl-C ends at once.

    A plain function runs in a daemon thread, which the process does not wait for.
    """

    async def called(*arguments: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                future.set_result(context.run(function, *arguments))
            except BaseException as error:  # noqa: BLE001 -- raised again where it is awaited
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        value = await asyncio.wrap_future(future)
        return await value if inspect.isawaitable(value) else value

    return called


def settings() -> Settings:
    """Return the settings from the global options, and from the environment for the rest.

    A data directory that cannot be written is replaced by a private copy of it. Of several
    workspaces the last one is taken, as of any option; only `hansard up` takes several.

    Raises SettingsError, NotCopied, BadDataDir.
    """
    config = configuration.load(**GlobalOptions.values)
    _report_place(data_dir_of(config))
    if config.credentials:
        _warn_of_credentials(config.credentials)
    return readable(config, output.hint)


def connecting() -> dict[str, Any]:
    """Return the global options as arguments of `hansard.connect`."""
    options = {name: value for name, value in GlobalOptions.values.items() if value is not None}
    if "nats_url" in options:
        options["nats"] = options.pop("nats_url")
    return options


def variable(option: str, name: str) -> str:
    """Return the value of an environment variable that an option names. Raises BadValue."""
    value = os.environ.get(name)
    if not value:
        raise BadValue(option, f"{name!r:.80} is not set", "set it, or name another")
    return value


@functools.cache
def _warn_of_credentials(file: str) -> None:
    """Print that commands do not use a restricted agent's credentials."""
    output.hint(
        f"HANSARD_CREDENTIALS ({file}) is not used by commands: this one has full rights to the "
        "record; what the agent's role may see, hansard.connect() in a program shows"
    )


@functools.cache
def _report_place(folder: Path) -> None:
    """Print the record in use if it was not named and is not in the working directory."""
    above = None if os.environ.get("HANSARD_DATA_DIR") else configuration.nearest_parent(Path.cwd())
    if above is not None and folder.is_relative_to(above):
        output.hint(f"the record in {folder}")


def reading_raw(*, damaged: bool = False) -> AbstractAsyncContextManager[RawWorkspace]:
    """Open an existing workspace without decoding: see `hansard.client.opening`."""
    return opening.reading_raw(settings(), damaged=damaged, tell=output.hint)


def reading() -> AbstractAsyncContextManager[Workspace]:
    """Open an existing workspace: see `hansard.client.opening`."""
    return opening.reading(settings(), output.hint)


@contextlib.asynccontextmanager
async def reading_run(text: str) -> AsyncGenerator[tuple[Workspace, str]]:
    """Open the workspace and resolve a run. Raises as `reading` and `find_run`."""
    async with reading() as workspace:
        yield workspace, await find_run(workspace, text)


async def agents_at_work(workspace: Workspace, run: Run | RunState) -> dict[str, bool]:
    """Return of the agents that a run waits for whether their process is at work, if known."""
    return await unfinished.processes(workspace, settings(), run.run, run.agents, run.at_work)


def process_of(call: WaitingAgent) -> bool | None:
    """Return whether an agent's process is at work; None if that is not known here."""
    session = unfinished.session_file(settings(), call.run, call.agent, call.role)
    return session.is_alive(call.joined) if session is not None else None


def beginning() -> AbstractAsyncContextManager[Workspace]:
    """Open the workspace, creating it if it does not exist: see `hansard.client.opening`."""
    return opening.beginning(settings())


# The workspace's tables, for queries: see `hansard.inspect.tables`.


def answering() -> AbstractAsyncContextManager[Reader]:
    """Open the newest generation of the tables for the command line's own queries."""
    return tables.answering(place_of(settings()), reading_raw, output.hint, output.positions)


def published(wait_for: int | None) -> AbstractAsyncContextManager[PublishedSnapshot]:
    """Open the newest generation; a delay behind the log is reported on stderr."""
    return tables.published(
        place_of(settings()), reading_raw, output.hint, output.positions, wait_for=wait_for
    )


def place_of(config: Settings) -> TableFiles:
    """Return the files of the workspace's tables. Raises BadName."""
    return TableFiles.of(data_dir_of(config), config.workspace)


async def address_of(text: str) -> tuple[int, int]:
    """Return an event's address (position, index) from its address or id. Raises NotFound."""
    place = address(text)
    if place is None:
        from hansard.inspect.answer import find_event

        async with answering() as reader:
            place = find_event(reader, text)
    return place
