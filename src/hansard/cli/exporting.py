"""Command `hansard export`: runs as JSON lines, verbatim or as a role sees them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from hansard.agents.exchange.writer import Missing, export_view
from hansard.agents.exchange.writer import export as write_out
from hansard.agents.workspace import Workspace
from hansard.bus.file_lock import whole
from hansard.cli import output as _show
from hansard.cli.common import Commands, argument, option
from hansard.cli.opening import reading
from hansard.domain.choices import counted
from hansard.inspect.find import find_run

NAMED_MAX = 5
"""Most runs included in addition that are listed by id."""

Write = Callable[[bytes], object]


app = Commands()


@app.command(plain=True)
async def export(
    runs: Annotated[list[str], argument("RUN...", "Ids, unique prefixes, or 'last'.")],
    role: Annotated[
        str | None, option("Only what this role sees; such a file cannot be imported again.")
    ] = None,
    output: Annotated[
        Path | None, option("The file to write [stdout].", None, "--output", "-o")
    ] = None,
) -> int:
    """Export runs as JSON lines with their exact stored bytes.

    Large payloads are included, and so are the parents of a fork and the earlier runs of a
    conversation. 'hansard import events' reads the file.
    """
    async with reading() as workspace:
        known = set(await workspace.log.runs())
        names = [run if run in known else await find_run(workspace, run) for run in runs]
        names = list(dict.fromkeys(names))
        with _target(output) as write:
            if role is None:
                missing = await _export_all(workspace, names, write)
            else:
                missing = await _view(workspace, names, role, write)
    for each in missing:
        _show.hint(f"missing: {each.what}: {each.why}")
    return 1 if missing else 0


async def _export_all(workspace: Workspace, names: list[str], write: Write) -> list[Missing]:
    report = await write_out(workspace, names, write)
    others = [run for run in report.carries if run not in names]
    counts = (len(report.carries), "run"), (report.commits, "commit"), (report.blobs, "blob")
    text = ", ".join(counted(number, of) for number, of in counts)
    if others:
        more = ", ..." if len(others) > NAMED_MAX else ""
        text += f"; carried along: {', '.join(others[:NAMED_MAX])}{more}"
    _show.hint(text)
    return report.missing


async def _view(workspace: Workspace, names: list[str], role: str, write: Write) -> list[Missing]:
    report = await export_view(workspace, names, role, write)
    _show.hint(
        f"{counted(report.events, 'event')} and {counted(report.blobs, 'blob')} "
        f"as role {role!r} sees them: "
        "a view, which cannot be imported"
    )
    return report.missing


@contextmanager
def _target(output: Path | None) -> Generator[Write]:
    """Open stdout, or a file that is written completely or not at all. Raises Unwritable."""
    if output is None or str(output) == "-":
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    with whole(output) as file:
        yield file.write
