"""Command `hansard health`: a check for a supervisor or a container."""

from __future__ import annotations

from collections.abc import Iterator

from hansard.cli import output
from hansard.cli.common import Commands
from hansard.cli.opening import settings
from hansard.cli.output import Hint, Part
from hansard.client.opening import data_dir_of
from hansard.domain.choices import counted
from hansard.inspect.watch import Health, health

app = Commands()


@app.command(name="health")
async def check_health() -> int:
    """Show whether 'hansard up' is watching, and what it found.

    Reads one file of the data directory; needs no broker. Exits with 1 if no 'hansard up' watches,
    if it could not compare a log for 30 s, or if it found a log damaged or forged since it started.
    """
    found = health(data_dir_of(settings()))
    output.show(found, _render)
    return 0 if found.healthy else 1


def _render(found: Health) -> Iterator[Part]:
    if found.fact is not None:
        yield Hint(found.fact)
    if found.watch is None:
        return
    for name, one in sorted(found.watch.workspaces.items()):
        whole = f", read whole at {one.read_whole:%H:%M:%S} UTC" if one.read_whole else ""
        yield (
            f"{name}: position {one.position}, compared at {one.compared:%H:%M:%S} UTC{whole}, "
            f"{counted(len(one.findings) + one.more, 'finding')}"
        )
        yield from (
            Hint(f"{name}: {each.at:%Y-%m-%d %H:%M:%S} UTC  {each.fact}") for each in one.findings
        )
