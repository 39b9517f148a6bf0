"""The tables that a command's options lead to: see `hansard.inspect.tables`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial

from hansard.cli import output
from hansard.cli.opening import Options, data_dir_of, reading_raw
from hansard.inspect import tables
from hansard.projections.publish.snapshots import PublishedSnapshot
from hansard.projections.reader import Reader
from hansard.projections.table_files import TableFiles


def answering(
    options: Options, *, wait_for: int | None = None
) -> AbstractAsyncContextManager[Reader]:
    """The newest generation, opened for our own questions."""
    opened = partial(reading_raw, options)
    return tables.answering(place_of(options), opened, output.hint, wait_for=wait_for)


def published(
    options: Options, *, wait_for: int | None = None
) -> AbstractAsyncContextManager[PublishedSnapshot]:
    """The newest generation; what is not as of now is told on stderr."""
    opened = partial(reading_raw, options)
    return tables.published(place_of(options), opened, output.hint, wait_for=wait_for)


def place_of(options: Options) -> TableFiles:
    """The workspace's tables. Raises BadName, SettingsError."""
    settings = options.settings()
    return TableFiles.of(data_dir_of(settings), settings.workspace)
