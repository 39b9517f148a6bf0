"""Remembers things behind, and is killed at one point of its journal.

    python behind.py DATA_DIR WORKSPACE FOLDER ACKNOWLEDGED FIRST KILLED_AT

ACKNOWLEDGED gets a line each change that was acknowledged. A point is before or after a write of
the journal, a mark, a sync or a commit.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hansard
from hansard.agents.memory.behind import BehindStore, Journal

CHANGES = 6


def main() -> None:
    """Go on until it is killed, or through."""
    data_dir, workspace, folder, told, first, killed_at = sys.argv[1:]
    left = [int(killed_at)]

    def point() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner: Any, name: str) -> None:
        was: Callable[..., Any] = getattr(owner, name)

        def plain(*args: Any, **kwargs: Any) -> Any:
            point()
            found = was(*args, **kwargs)
            point()
            return found

        async def waited(*args: Any, **kwargs: Any) -> Any:
            point()
            found = await was(*args, **kwargs)
            point()
            return found

        setattr(owner, name, waited if name == "_send" else plain)

    def half(fd: int, line: bytes) -> int:
        point()
        return write(fd, line[: max(1, len(line) // 2)])

    write = os.write
    around(BehindStore, "_send")
    for name in ("add", "done", "_say"):
        around(Journal, name)
    for name in ("fdatasync", "ftruncate"):
        around(os, name)
    with (
        hansard.connect(workspace, data_dir=data_dir) as record,
        Path(told).open("a") as acknowledged,
    ):
        space = record.memory("agent/ada")
        space.behind(folder)
        os.write = half  # type: ignore[assignment] # lines are written in halves
        for number in range(int(first), int(first) + CHANGES):
            space.remember(f"change {number}", by="ada")
            acknowledged.write(f"{number}\n")
            acknowledged.flush()
        space.flush()


main()
