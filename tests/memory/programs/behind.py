"""Remembers things in the background, and is killed before or after one of its appends.

    python behind.py DATA_DIR WORKSPACE FLUSHED FIRST KILLED_AT

FLUSHED gets a line for each change whose flush returned.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import hansard

CHANGES = 6


def main() -> None:
    """Go on until it is killed, or through."""
    data_dir, workspace, flushed, first, killed_at = sys.argv[1:]
    left = int(killed_at)

    def point() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    with (
        hansard.connect(workspace, data_dir=data_dir) as record,
        Path(flushed).open("a") as acknowledged,
    ):
        log: Any = record.workspace.log
        append = log.append

        async def counted(*args: Any, **kwargs: Any) -> Any:
            point()
            result = await append(*args, **kwargs)
            point()
            return result

        log.append = counted
        space = record.memory("agent/ada")
        space.behind()
        for number in range(int(first), int(first) + CHANGES, 2):
            for each in (number, number + 1):
                space.remember(f"change {each}", by="ada")
            space.flush()
            acknowledged.write(f"{number}\n{number + 1}\n")
            acknowledged.flush()


main()
