"""Command `hansard run html`: a run as one HTML file that needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from hansard.cli import output as _show
from hansard.cli.common import Commands, Run, option
from hansard.cli.opening import reading_run
from hansard.cli.output import Hint
from hansard.inspect import page as reads
from hansard.web.pages import page_name, run_page

app = Commands()


class Written(msgspec.Struct, kw_only=True):
    """Path of a run's page."""

    run: str
    path: str
    bytes: int
    events: int


@app.command()
async def html(
    which: Run,
    output: Annotated[
        Path | None, option("The file to write; '-' is stdout [RUN.html].", None, "--output", "-o")
    ] = None,
) -> None:
    """Write a run as one HTML file that needs no server.

    The page opens at the first event and shows the state, board and tasks at each event, messages
    as a chat, and a search.
    """
    # The run and the page are held in memory: some five times the page's size.
    _show.check_one_answer(output)
    async with reading_run(which) as (workspace, run):
        found = await reads.gather(workspace, run)
    data = run_page(found)
    path = output or default_path(run)
    report = Written(run=run, path=str(path), bytes=len(data), events=len(found.events.id))
    absent = [
        Hint(f"blob {sha256} is not in the page: {why}") for sha256, why in found.absent.items()
    ]
    _show.page(data, path, report, *absent)


def default_path(run: str) -> Path:
    """Return `RUN.html` in the working directory; characters not allowed in names are escaped."""
    return Path(page_name(run))
