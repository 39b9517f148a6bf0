"""Roll a log again and again, and be killed at one of its requests.

Given: the server's port, the workspace, the address of the archive, how many requests to send to
the broker and the store before it is killed (0: never), and how often to roll.
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


async def main(port: str, workspace: str, folder: str, requests: int, rolls: int) -> None:
    """Tend the log."""
    options = BrokerOptions(
        urls=(f"nats://127.0.0.1:{port}",), user="admin", password="admin", name="roller"
    )
    admin = await Broker.open(options)
    left = requests

    def counted(request: Any) -> Any:
        async def call(*arguments: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return await request(*arguments, **more)

        return call

    for part, name in ((Broker, "request"), (ObjectStore, "_call")):
        setattr(part, name, counted(getattr(part, name)))  # to be killed inside of it
    for _ in range(rolls):
        await roll.tend(admin, workspace, None, archive_at(workspace, folder), keep_s=0)
    await admin.close()


if __name__ == "__main__":
    port, workspace, folder, *numbers = sys.argv[1:]
    asyncio.run(main(port, workspace, folder, int(numbers[0]), int(numbers[1])))
