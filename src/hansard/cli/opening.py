"""From a command's options to an open workspace, and from what was typed to a run."""

from __future__ import annotations

import functools
import os
import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from hansard import settings as configuration
from hansard.agents import run_index
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.cli import output
from hansard.cli.common import Given
from hansard.client import opening
from hansard.client.connect import readable
from hansard.client.opening import data_dir_of
from hansard.domain.counted import counted
from hansard.domain.errors import CallerError
from hansard.settings import Settings

CANDIDATES_MAX = 8
"""How many runs an ambiguous prefix shows."""

_PASSWORD = re.compile(r"(?<=://)[^@/\s]+(?=@)")


class Ambiguous(CallerError):
    """A prefix that several runs have."""

    def __init__(self, prefix: str, runs: list[str]) -> None:
        shown = "\n  ".join(sorted(runs)[:CANDIDATES_MAX])
        more = len(runs) - CANDIDATES_MAX
        super().__init__(
            f"{counted(len(runs), 'run')} begin with {prefix!r}: "
            f"give more of the id, or 'last'\n  {shown}"
            + (f"\n  and {more} more" if more > 0 else "")
        )
        self.prefix = prefix
        self.runs = runs


def settings() -> Settings:
    """The settings that the global options lead to; what they do not say comes from the
    environment. A data directory that cannot be written is a private copy of it.

    Raises SettingsError, NotCopied, BadDataDir.
    """
    found = configuration.load(**Given.values)
    _tell_found(data_dir_of(found))
    return readable(found, output.hint)


@functools.cache
def _tell_found(folder: Path) -> None:
    """Say which record is meant where nobody named it and it is not in the working directory."""
    above = None if os.environ.get("HANSARD_DATA_DIR") else configuration.found_above(Path.cwd())
    if above is not None and folder.is_relative_to(above):
        output.hint(f"the record in {folder}")


def masked(text: str) -> str:
    """A text without the passwords of the addresses in it."""
    return _PASSWORD.sub("***", text)


def reading_raw(*, damaged: bool = False) -> AbstractAsyncContextManager[RawWorkspace]:
    """The workspace, which must exist, undecoded: see `hansard.client.opening`."""
    return opening.reading_raw(settings(), damaged=damaged)


def reading() -> AbstractAsyncContextManager[Workspace]:
    """The workspace, which must exist: see `hansard.client.opening`."""
    return opening.reading(settings())


def beginning() -> AbstractAsyncContextManager[Workspace]:
    """The workspace, which is made where it is not there: see `hansard.client.opening`."""
    return opening.beginning(settings())


async def find_run(workspace: Workspace, text: str) -> str:
    """A run from its id, a prefix that no other run has, or `last`. Raises NotFound, Ambiguous."""
    remedy = "see 'hansard runs'"
    if text == "last":
        newest = await run_index.read(workspace.log)
        if not newest:
            raise NotFound("the last run", f"workspace {workspace.log.workspace!r} has no runs yet")
        return newest[0].run
    known = await workspace.log.runs()
    if text in known:
        return text
    found = [run for run in known if text and run.startswith(text)]
    if not found:
        raise NotFound(f"run {text!r}", remedy)
    if len(found) > 1:
        raise Ambiguous(text, found)
    return found[0]
