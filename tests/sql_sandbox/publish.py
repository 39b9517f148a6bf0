"""A projector as a program: writes batches and publishes them until it is killed.

python publish.py DATA_DIR WORKSPACE SEED
"""

import random
import sys
from pathlib import Path

from hansard.projections.rows import Rows
from hansard.projections.runner import LiveStore
from hansard.projections.table_files import TableFiles, WriteLock
from tests.sql_sandbox.story import message


def main(home: Path, workspace: str, seed: int) -> None:
    """Continue writing small batches, and at times one larger than DuckDB's log."""
    chance = random.Random(seed)
    store = LiveStore(WriteLock(TableFiles.of(home, workspace)))
    while True:
        rows, at = Rows(store.progress.position), store.progress.position
        size = 70_000 if chance.random() < 0.03 else chance.randrange(1, 400)
        for position in range(at + 1, at + 1 + size):
            rows.add(message(position))
        batch = rows.take()
        assert batch is not None
        store.write(batch, batch.position)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
