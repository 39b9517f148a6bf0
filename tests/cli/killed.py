"""A command that kills itself at a point: about an append, or a step that a file takes."""

import signal
from collections.abc import Callable
from pathlib import Path

from tests.cli.support import environment
from tests.faults._warm import run

PROGRAM = """
import os, signal, sys
from pathlib import Path
from hansard.bus.jetstream.log import JetStreamLog

left = int(sys.argv.pop(1))

def step():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

def counted(function):
    def run(*given, **named):
        step()
        found = function(*given, **named)
        step()
        return found
    return run

def appended(stored):
    async def append(log, *given):
        step()
        found = await stored(log, *given)
        step()
        return found
    return append

for name in ("append", "append_again", "append_all"):
    setattr(JetStreamLog, name, appended(getattr(JetStreamLog, name)))
JetStreamLog.append_here = counted(JetStreamLog.append_here)
for owner, name in [(os, "fsync"), *((Path, each) for each in ("replace", "rename", "unlink"))]:
    setattr(owner, name, counted(getattr(owner, name)))
"""

COMMAND = "from hansard.cli import main\nmain()\n"

Killed = Callable[..., bool]
"""Function that runs a program up to a point and returns whether it was killed there."""


def killed_at(data_dir: Path, workspace: str) -> Killed:
    """Return a function that runs a command of `hansard` and kills it at a point."""

    def ask(point: int, *arguments: object) -> bool:
        return was_killed(
            data_dir, point, COMMAND, "--data-dir", data_dir, "-w", workspace, *arguments
        )

    return ask


def was_killed(data_dir: Path, point: int, program: str, *arguments: object) -> bool:
    """Return whether a program was killed at a point; it may end before it."""
    command = ["-c", PROGRAM + program, str(point), *map(str, arguments)]
    ran = run(command, cwd=Path.cwd(), env=environment(data_dir), timeout=120)
    assert ran.returncode in {0, -signal.SIGKILL}, ran.stderr
    return ran.returncode != 0
