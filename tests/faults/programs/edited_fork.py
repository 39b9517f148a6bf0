"""A fork with a large edited result, killed before or after a given write.

Given: the data directory, the workspace, the run, and where to be killed: `before append`.
"""

import os
import signal
import sys
from typing import Any

import hansard
from hansard.bus.jetstream._append import Appender
from hansard.bus.jetstream.blobs import JetStreamBlobs

KINDS: dict[str, Any] = {"blob": (JetStreamBlobs, "put"), "append": (Appender, "append")}


def main(folder: str, workspace: str, run: str, kill: str) -> None:
    """Fork the run; the first write of the given kind is the last thing that happens."""
    with hansard.connect(workspace, data_dir=folder) as record:
        when, kind = kill.split()
        cls, name = KINDS[kind]
        write = getattr(cls, name)

        async def killed(*arguments: Any, **more: Any) -> Any:
            if when == "after":
                await write(*arguments, **more)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(cls, name, killed)
        order = {"number": 17, "state": "delivered", "remarks": "x" * 200_000}
        record.fork(run, edits=[hansard.replace("clerk#1", result=order)])


if __name__ == "__main__":
    main(*sys.argv[1:])
