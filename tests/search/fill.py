"""An indexer as a program: brings an index up until it is killed.

python fill.py DATA_DIR WORKSPACE
"""

import sys
from pathlib import Path

from hansard.projections import runner
from tests.search.support import brought_up

runner.BATCH_EVENTS_MAX = 25
"""Small, so that a kill meets many batches."""

if __name__ == "__main__":
    brought_up(Path(sys.argv[1]), sys.argv[2])
