"""From a command's options to an open workspace."""

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
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.cli import output
from hansard.cli.common import GlobalOptions
from hansard.client import opening, unfinished
from hansard.client.opening import data_dir_of, readable
from hansard.domain.errors import BadValue
from hansard.inspect import tables
from hansard.inspect.find import address, find_run
from hansard.projections.publish.snapshots import PublishedSnapshot
from hansard.projections.reader import Reader
from hansard.projections.table_files import TableFiles
from hansard.settings import Settings

if TYPE_CHECKING:
    from hansard.inspect.run import Run, RunState

# Functions that a command is given by name, `module:function`, from where it is called.


def named(text: str, option: str = "--with") -> Callable[..., Any]:
    """The function of a module; the folder in which the command is called counts. Raises BadValue.

    What the module raises when it is imported is its own.
    """
    module, colon, name = text.partition(":")
    if not (colon and module and name):
        raise BadValue(option, f"{text!r:.80}", "give MODULE:FUNCTION, such as upkeep:shorter")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        remedy = f"call it where {module} can be imported"
        raise BadValue(option, f"there is no module {module!r:.80}", remedy) from error
    except AttributeError as error:
        raise BadValue(option, f"{module} has no {name!r:.80}", "name a function of it") from error
    if not callable(found):
        raise BadValue(option, f"{text!r:.80} is no function", "name a function")
    made: Callable[..., Any] = found
    return made


def interruptible(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return a function as a coroutine function that Ctrl-C ends at once: a plain one runs in a
    daemon thread, for which the process does not wait.
    """

    async def called(*given: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*given)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        context = contextvars.copy_context()

        def work() -> None:
            try:
                future.set_result(context.run(function, *given))
            except BaseException as error:  # noqa: BLE001 -- raised again where it is awaited
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        found = await asyncio.wrap_future(future)
        return await found if inspect.isawaitable(found) else found

    return called


def settings() -> Settings:
    """The settings that the global options lead to; what they do not say comes from the
    environment. A data directory that cannot be written is a private copy of it.

    Raises SettingsError, NotCopied, BadDataDir.
    """
    found = configuration.load(**GlobalOptions.values)
    _tell_found(data_dir_of(found))
    return readable(found, output.hint)


def connecting() -> dict[str, Any]:
    """What the global options say, as `hansard.connect` takes it."""
    given = {name: value for name, value in GlobalOptions.values.items() if value is not None}
    if "nats_url" in given:
        given["nats"] = given.pop("nats_url")
    return given


@functools.cache
def _tell_found(folder: Path) -> None:
    """Say which record is meant where nobody named it and it is not in the working directory."""
    above = None if os.environ.get("HANSARD_DATA_DIR") else configuration.found_above(Path.cwd())
    if above is not None and folder.is_relative_to(above):
        output.hint(f"the record in {folder}")


def reading_raw(*, damaged: bool = False) -> AbstractAsyncContextManager[RawWorkspace]:
    """The workspace, which must exist, undecoded: see `hansard.client.opening`."""
    return opening.reading_raw(settings(), damaged=damaged)


def reading() -> AbstractAsyncContextManager[Workspace]:
    """The workspace, which must exist: see `hansard.client.opening`."""
    return opening.reading(settings())


@contextlib.asynccontextmanager
async def reading_run(text: str) -> AsyncGenerator[tuple[Workspace, str]]:
    """The workspace, and the run that is meant. Raises as `reading` and `find_run`."""
    async with reading() as workspace:
        yield workspace, await find_run(workspace, text)


async def gone(workspace: Workspace, run: Run | RunState) -> list[str]:
    """Return the agents that a run waits for and whose process is known to have ended."""
    return await unfinished.gone(workspace, settings(), run.run, run.agents, run.at_work)


def beginning() -> AbstractAsyncContextManager[Workspace]:
    """The workspace, which is made where it is not there: see `hansard.client.opening`."""
    return opening.beginning(settings())


# The workspace's tables, to be asked: see `hansard.inspect.tables`.


def answering() -> AbstractAsyncContextManager[Reader]:
    """The newest generation of the tables, opened for our own questions."""
    return tables.answering(place_of(settings()), reading_raw, output.hint, output.positions)


def published(wait_for: int | None) -> AbstractAsyncContextManager[PublishedSnapshot]:
    """The newest generation; what is not as of now is told on stderr."""
    return tables.published(
        place_of(settings()), reading_raw, output.hint, output.positions, wait_for=wait_for
    )


def place_of(found: Settings) -> TableFiles:
    """The workspace's tables. Raises BadName."""
    return TableFiles.of(data_dir_of(found), found.workspace)


async def address_of(text: str) -> tuple[int, int]:
    """Where an event stands, from its address or its id. Raises NotFound."""
    found = address(text)
    if found is None:
        from hansard.inspect.find import find_event

        async with answering() as reader:
            found = find_event(reader, text)
    return found
