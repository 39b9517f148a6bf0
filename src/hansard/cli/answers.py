"""The workspace's tables, to be asked: see `hansard.inspect.tables`."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from hansard.cli import output
from hansard.cli.opening import reading_raw, settings
from hansard.client.opening import data_dir_of
from hansard.inspect import tables
from hansard.inspect.find import address
from hansard.projections.publish.snapshots import PublishedSnapshot
from hansard.projections.reader import Reader
from hansard.projections.table_files import TableFiles
from hansard.settings import Settings


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
        from hansard.inspect.find_in_tables import find_event

        async with answering() as reader:
            found = find_event(reader, text)
    return found
