"""Roll a log once, and be killed at one of the requests, or kill a server there.

Given: the server's port, the workspace, the address of the archive, the request to be killed at,
and, if a server is to be killed instead, its process id and the word "broker" or "store". The
request is a number of requests (0: never), to the broker and the store or to the store
alone if that is killed, or the first one whose subject or object's name has this text.
"""

import asyncio
import os
import signal
import sys
from typing import Any

from hansard.bus.archive import archive_at
from hansard.bus.archive.store import ObjectStore
from hansard.bus.jetstream import BrokerOptions, roll
from hansard.bus.jetstream.client import Broker


async def main(
    port: str, workspace: str, folder: str, at: str, pid: str = "", server: str = ""
) -> None:
    """Tend the log."""
    options = BrokerOptions(
        urls=(f"nats://127.0.0.1:{port}",), user="admin", password="admin", name="roller"
    )
    admin = await Broker.open(options)
    left = int(at) if at.isdigit() else 0

    def counted(request: Any) -> Any:
        async def call(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            texts = [each for each in arguments if isinstance(each, str)]
            if left == 0 or (not at.isdigit() and any(at in each for each in texts)):
                os.kill(int(pid or os.getpid()), signal.SIGKILL)
            return await request(*arguments, **more)

        return call

    parts = ((ObjectStore, "_call"), (Broker, "request"))
    for part, name in parts[: 1 if server == "store" else 2]:
        setattr(part, name, counted(getattr(part, name)))  # to be killed inside of it
    await roll.tend(admin, workspace, None, archive_at(workspace, folder), keep_s=0)
    await admin.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
