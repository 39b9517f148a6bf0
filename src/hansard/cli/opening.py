"""From a command's options to an open workspace, and from what was typed to a run.

A command that only reads makes nothing: no data directory, no workspace. A mistyped name is an
error and not an empty answer.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from hansard import settings as configuration
from hansard.agents import run_index
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.jetstream.raw import RawWorkspace
from hansard.bus.marks import Witness
from hansard.cli import output
from hansard.client.connect import find_broker, open_workspace, readable
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


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The global options; what is None comes from the environment."""

    workspace: str | None = None
    data_dir: Path | None = None
    nats_url: str | None = None
    durability: str | None = None
    nats_replicas: int | None = None

    def settings(self) -> Settings:
        """The settings they lead to; a data directory that cannot be written is a private copy of
        it. Raises SettingsError, NotCopied, BadDataDir.
        """
        given: dict[str, Any] = msgspec.structs.asdict(self)
        settings = configuration.load(**given)
        _tell_found(data_dir_of(settings))
        return readable(settings, output.hint)

    def names_workspace(self) -> bool:
        """Whether they, or the environment, say which workspace is meant. Raises SettingsError."""
        given: dict[str, Any] = msgspec.structs.asdict(self)
        return configuration.names_workspace(**given)


@functools.cache
def _tell_found(folder: Path) -> None:
    """Say which record is meant where nobody named it and it is not in the working directory."""
    above = None if os.environ.get("HANSARD_DATA_DIR") else configuration.found_above(Path.cwd())
    if above is not None and folder.is_relative_to(above):
        output.hint(f"the record in {folder}")


def masked(text: str) -> str:
    """A text without the passwords of the addresses in it."""
    return _PASSWORD.sub("***", text)


def data_dir_of(settings: Settings) -> Path:
    """The embedded broker's folder, in full."""
    return Path(settings.data_dir).absolute()


def check_data_dir(settings: Settings) -> None:
    """Raise NotFound where there is no embedded broker's folder, and none other is named."""
    folder = data_dir_of(settings)
    if settings.nats_url is None and not folder.is_dir():
        remedy = "give --data-dir or --nats, or begin a record with 'hansard up' or connect()"
        raise NotFound(f"data directory {str(folder)!r}", remedy)


async def check_workspace(raw: RawWorkspace, witness: Witness | None = None) -> None:
    """Raise NotFound where the broker has no such workspace; with a witness Corrupt where it had
    one.
    """
    found = await raw.workspaces()
    if raw.workspace not in found:
        if witness is not None:
            await raw.refuse_loss(witness)
        known = ", ".join(found) or "none yet"
        raise NotFound(f"workspace {raw.workspace!r}", f"give --workspace; there are: {known}")


@contextlib.asynccontextmanager
async def reading_raw(options: Options, *, damaged: bool = False) -> AsyncGenerator[RawWorkspace]:
    """A workspace that exists, undecoded. Raises NotFound, Unreachable, ServerError, BadName, and
    Corrupt where the broker lost something of it; `damaged` only where it is not there at all.
    """
    settings = options.settings()
    check_data_dir(settings)
    broker = await find_broker(settings)
    try:
        raw = await RawWorkspace.open(broker.runtime, settings.workspace)
        try:
            await check_workspace(raw, broker.witness)
            if broker.witness is not None and not damaged:
                await raw.refuse_loss(broker.witness)
            yield raw
        finally:
            await raw.close()
    finally:
        await broker.release()


@contextlib.asynccontextmanager
async def reading(options: Options) -> AsyncGenerator[Workspace]:
    """A workspace that exists. Raises as `reading_raw`, and Contradiction."""
    async with reading_raw(options):
        workspace = await open_workspace(options.settings())
        try:
            yield workspace
        finally:
            await workspace.close()


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
