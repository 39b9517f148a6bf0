"""A projector as a program: follows a workspace's log until it is killed, or up to a position.

python project.py DATA_DIR WORKSPACE [UNTIL]
"""

import asyncio
import sys
from pathlib import Path

from hansard.bus.jetstream.log import RawWorkspace
from hansard.projections import runner
from hansard.projections.runner import Projector
from hansard.projections.table_files import TableFiles
from tests.cli.planting import options

runner.BATCH_EVENTS_MAX = 2_000
"""Small, so that a kill meets many batches."""


async def main(home: Path, workspace: str, until: int | None) -> None:
    """Project."""
    raw = await RawWorkspace.open(options(home), workspace)
    projector = await Projector.open(raw, TableFiles.of(home, workspace))
    try:
        await projector.run(until)
    finally:
        await projector.close()
        await raw.close()


if __name__ == "__main__":
    home, workspace, *rest = sys.argv[1:]
    asyncio.run(main(Path(home), workspace, int(rest[0]) if rest else None))
