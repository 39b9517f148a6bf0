"""`python -m hansard.demo`, for environments without the command `hansard`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hansard.demo import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m hansard.demo", description=main.__doc__)
    parser.add_argument("--json", action="store_true", help="NDJSON instead of text")
    parser.add_argument("--data-dir", type=Path, help="where the record and the reports go")
    parser.add_argument("--seed", type=int, help="the moment of the kill")
    options = parser.parse_args()
    sys.exit(main(options.json, options.data_dir, options.seed))
