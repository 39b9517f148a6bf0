"""From a command's options to an open workspace."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hansard import settings as configuration
from hansard.agents.workspace import Workspace
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.cli import output
from hansard.cli.common import Given
from hansard.client import opening, unfinished
from hansard.client.opening import data_dir_of, readable
from hansard.inspect.find import find_run
from hansard.settings import Settings

if TYPE_CHECKING:
    from hansard.inspect.run import RunState
    from hansard.inspect.runs import Run


def settings() -> Settings:
    """The settings that the global options lead to; what they do not say comes from the
    environment. A data directory that cannot be written is a private copy of it.

    Raises SettingsError, NotCopied, BadDataDir.
    """
    found = configuration.load(**Given.values)
    _tell_found(data_dir_of(found))
    return readable(found, output.hint)


def connecting() -> dict[str, Any]:
    """What the global options say, as `hansard.connect` takes it."""
    given = {name: value for name, value in Given.values.items() if value is not None}
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
