"""`hansard run html`: a run as one file that a browser opens without a server."""

from __future__ import annotations

import sys
from pathlib import Path

from hansard.commands import _page_data, _page_file, _show
from hansard.commands._open import Options, find_run, reading
from hansard.domain.errors import CallerError

STDOUT = Path("-")


class TwoAnswers(CallerError):
    """The page and the line about it cannot both be what stdout holds."""

    def __init__(self) -> None:
        super().__init__("-o - writes the page to stdout, where --json would write too: leave one")


async def page(options: Options, run: str, output: Path | None, *, json: bool) -> int:
    """Write a run's page and print where it is.

    Holds the run and the page in memory: some five times the page's size. Raises NotFound,
    Unwritable, TwoAnswers, UnknownEvent, Corrupt.
    """
    if output == STDOUT and json:
        raise TwoAnswers
    async with reading(options) as workspace:
        run = await find_run(workspace, run)
        found = await _page_data.gather(workspace, run)
    data = _page_file.render(found)
    if output == STDOUT:
        sys.stdout.buffer.write(data)
        return 0
    path = output or _page_file.default_path(run)
    _page_file.write(path, data)
    events = len(found.events.id)
    if json:
        _show.emit({"run": run, "path": str(path), "bytes": len(data), "events": events})
        return 0
    _show.write(str(path))
    for sha256, why in found.absent.items():
        _show.hint(f"blob {sha256} is not in the page: {why}")
    return 0
