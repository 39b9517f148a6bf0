"""`hansard rebuild`: the workspace's tables made anew from its log, or compared with that."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hansard.bus import private_copy
from hansard.commands import _show
from hansard.commands._open import Options, data_dir_of, reading_raw
from hansard.projections import rebuild as rebuilding
from hansard.projections.place import Place
from hansard.projections.rebuild import Rebuilt


async def rebuild(options: Options, *, verify: bool, json: bool) -> int:
    """Rebuild or compare, and print each table; 1 where a comparison finds a difference."""
    settings = options.settings()
    if not verify:
        private_copy.refuse(data_dir_of(settings))
    place = Place.of(data_dir_of(settings), settings.workspace)
    work = rebuilding.verify if verify else rebuilding.rebuild
    began_s = time.monotonic()
    async with reading_raw(options) as raw:
        with _progress() as progress:
            made = await work(raw, place, progress)
    took_s = time.monotonic() - began_s
    if json:
        _emit(made, took_s)
    else:
        _print(made, place, took_s, verify=verify)
    return 1 if made.differing else 0


def _emit(made: Rebuilt, took_s: float) -> None:
    for name, digest in made.tables.items():
        line = {"kind": "table", "table": name, "rows": digest.rows, "digest": digest.sum}
        if made.before is not None:
            line["equal"] = name not in made.differing
        _show.emit(line)
    differing = made.differing if made.before is not None else None
    told = {"kind": "rebuilt", "position": made.position, "seconds": round(took_s, 3)}
    _show.emit(told if differing is None else {**told, "differing": differing})


def _print(made: Rebuilt, place: Place, took_s: float, *, verify: bool) -> None:
    columns = [
        _show.Column("table", whole=True),
        _show.Column("rows", right=True),
        _show.Column("digest", whole=True),
    ]
    rows = [
        [name, f"{digest.rows:,}", digest.sum[:16] + (" differs" if name in made.differing else "")]
        for name, digest in made.tables.items()
    ]
    _show.write(_show.table(tuple(columns), rows), "")
    if verify:
        found = ", ".join(made.differing)
        said = f"differ from the log: {found}" if found else "are what the log says"
        _show.write(f"the tables up to position {made.position} {said}")
    else:
        _show.write(f"made {place.path} up to position {made.position} in {took_s:.1f} s")


@contextmanager
def _progress() -> Generator[rebuilding.Progress]:
    """A bar on stderr where that is a terminal; nothing where it is not."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("positions", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
