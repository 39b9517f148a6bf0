"""`hansard rebuild`: the workspace's tables made anew from its log, or compared with that."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from hansard.bus.server import private_copy
from hansard.cli import output
from hansard.cli.opening import Options, data_dir_of, reading_raw
from hansard.cli.output import Column, Part
from hansard.inspect.rebuild import Rebuild
from hansard.projections import rebuild as rebuilding
from hansard.projections.table_files import TableFiles


async def rebuild(options: Options, *, verify: bool, json: bool) -> int:
    """Rebuild or compare, and print each table; 1 where a comparison finds a difference."""
    settings = options.settings()
    if not verify:
        private_copy.refuse(data_dir_of(settings))
    place = TableFiles.of(data_dir_of(settings), settings.workspace)
    work = rebuilding.verify if verify else rebuilding.rebuild
    began_s = time.monotonic()
    async with reading_raw(options) as raw:
        with positions() as progress:
            made = await work(raw, place, progress)
    found = Rebuild(made, time.monotonic() - began_s)
    output.show(found, lambda found: _people(found, place), json=json)
    return 1 if made.differing else 0


COLUMNS = (
    Column("table", whole=True),
    Column("rows", right=True),
    Column(
        "digest",
        lambda table: table.digest[:16] + " differs" * (table.equal is False),
        whole=True,
    ),
)


def _people(found: Rebuild, place: TableFiles) -> Iterator[Part]:
    made = found.made
    yield output.listing(COLUMNS, found.tables)
    yield ""
    if made.before is not None:
        differing = ", ".join(made.differing)
        said = f"differ from the log: {differing}" if differing else "are what the log says"
        yield f"the tables up to position {made.position} {said}"
    else:
        yield f"made {place.path} up to position {made.position} in {found.took_s:.1f} s"


@contextmanager
def positions() -> Generator[rebuilding.Progress]:
    """A bar for the positions of a log."""
    with output.progress("positions") as update:
        yield lambda done, total: update("positions", done, total)
