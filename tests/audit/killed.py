"""A run whose process is killed in the middle of a call: killed.py DATA_DIR WORKSPACE RUN"""

import sys
import time
from pathlib import Path

import hansard

with (
    hansard.connect(sys.argv[2], data_dir=Path(sys.argv[1])) as record,
    record.run("mailing", run=sys.argv[3], agent="sender", role="sender") as session,
):

    @session.tool
    def send(to: str) -> str:
        """Block forever."""
        sys.stdout.write("asked\n")
        sys.stdout.flush()
        time.sleep(60)
        return to

    send("x@example.org")
