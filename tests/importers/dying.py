"""The command line, killed while it sends to the broker: `dying.py AT ARGUMENTS...`.

At AT it has sent half of the bytes that it sends at once, which may be several messages. At none
for 0: it then says on standard error how often it sent any.
"""

from __future__ import annotations

import os
import signal
import sys

from nats.aio.client import Client

from hansard.cli import main

BOUNDARIES = "boundaries: "


def killed_at(at: int) -> list[int]:
    """Have this process be killed while it sends for the `at`-th time; what is given counts."""
    inner, count = Client._send_command, [0]

    async def sends(self: Client, command: bytes, priority: bool = False) -> None:
        count[0] += 1
        if count[0] == at:
            await inner(self, command[: len(command) // 2], priority)
            await self._flush_pending(force_flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        await inner(self, command, priority)

    setattr(Client, "_send_command", sends)  # noqa: B010 -- a method is no variable to type checkers
    return count


if __name__ == "__main__":
    counted = killed_at(int(sys.argv[1]))
    sys.argv = ["hansard", *sys.argv[2:]]
    try:
        main()
    finally:
        print(f"{BOUNDARIES}{counted[0]}", file=sys.stderr)  # noqa: T201 -- its answer
