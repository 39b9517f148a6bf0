"""`hansard run html`: a run as one file that a browser opens without a server."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hansard.bus import subjects
from hansard.cli import output as _show
from hansard.cli.commands._whole_file import write_whole
from hansard.cli.opening import Options, find_run, reading
from hansard.cli.output import Bytes, Hint
from hansard.inspect import page as reads
from hansard.web.pages import run_page


class Written(msgspec.Struct, kw_only=True):
    """A run's page, and where it is."""

    run: str
    path: str
    bytes: int
    events: int


async def page(options: Options, run: str, output: Path | None, *, json: bool) -> int:
    """Write a run's page and print where it is.

    Holds the run and the page in memory: some five times the page's size. Raises NotFound,
    Unwritable, TwoAnswers, UnknownEvent, Corrupt.
    """
    _show.check_one_answer(output, json=json)
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        found = await reads.gather(workspace, run)
    data = run_page(found)
    if output == _show.STDOUT:
        _show.write(Bytes(data))
        return 0
    path = output or default_path(run)
    write_whole(path, data)
    told = Written(run=run, path=str(path), bytes=len(data), events=len(found.events.id))
    absent = [
        Hint(f"blob {sha256} is not in the page: {why}") for sha256, why in found.absent.items()
    ]
    _show.show(told, lambda _: [str(path), *absent], json=json)
    return 0


def default_path(run: str) -> Path:
    """`RUN.html` in the working directory; what a file's name cannot hold is escaped."""
    return Path(f"{subjects.token(run)}.html")
