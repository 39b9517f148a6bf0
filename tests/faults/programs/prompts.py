"""Model calls with a growing prompt, large at times; killed at a given write.

Given: the data directory, the workspace, the run, and where to be killed: `blob:2` (after the
second blob is stored), `append:5` (after the fifth commit is), or `never`.
"""

import os
import signal
import sys
from typing import Any

import hansard
from hansard.bus.jetstream._append import Appender
from hansard.bus.jetstream.blobs import JetStreamBlobs

CALLS = 10
LARGE_CHARACTERS = 70_000


def message(number: int) -> dict[str, str]:
    """Return the message of a turn; every third is too large for an event."""
    size = LARGE_CHARACTERS if number % 3 == 2 else 900
    text = "".join(f"{number}/{n} was said, " for n in range(size // 14))
    return {"role": "user", "content": text}


def prompt(count: int) -> dict[str, Any]:
    """Return the prompt of a call."""
    return {"model": "m", "messages": [message(number) for number in range(count)]}


def _killed(cls: Any, name: str, at: int) -> None:
    """Be killed after the call that is the `at`-th, of those that a thread sends itself, too."""
    done, here = getattr(cls, name), getattr(cls, f"{name}_here", None)
    count = 0

    def counted(result: Any) -> Any:
        nonlocal count
        count += result is not None or here is None
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    async def killed(*arguments: Any, **more: Any) -> Any:
        return counted(await done(*arguments, **more))

    setattr(cls, name, killed)
    if here is not None:
        setattr(cls, f"{name}_here", lambda *arguments: counted(here(*arguments)))


def main(folder: str, workspace: str, run: str, kill: str) -> None:
    """Call the model as often as the run has not yet."""
    with hansard.connect(workspace, data_dir=folder) as record, record.run("w", run=run) as session:

        @session.tool(effects="pure", kind="model")
        def think(prompt: dict[str, Any]) -> str:
            return f"{len(prompt['messages'])} messages, " * 30

        what, _, number = kill.partition(":")
        if what != "never":
            kinds = {"blob": (JetStreamBlobs, "put"), "append": (Appender, "append")}
            _killed(*kinds[what], int(number))
        for count in range(1, CALLS + 1):
            think(prompt(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
