"""Runs an example, writes down each place that it reaches, and dies of SIGKILL at one of them.

    python _watched.py EXAMPLE PLACES KILL_AT [TICKET]

A place is a line, or a function's begin or end, of the example itself. KILL_AT is the number of a
place, or a place by its name the first time; 0 is none. The example is unaware of it. A place is
listed before the kill there.
"""

import os
import runpy
import signal
import sys
import threading
from types import FrameType
from typing import Any


def watch(example: str, places: str, kill_at: str) -> None:
    """Write down places, one a line, and kill this process at one of them."""
    come_to = 0
    listed = os.open(places, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal come_to
        code = frame.f_code
        if code.co_filename != example or code.co_name.startswith("<"):
            return None
        line = f":{frame.f_lineno - code.co_firstlineno}" if event == "line" else ""
        place = f"{event} {code.co_name}{line}"
        os.write(listed, f"{place}\n".encode())
        come_to += 1
        if kill_at in (str(come_to), place):
            os.kill(os.getpid(), signal.SIGKILL)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)


def main(example: str, places: str, kill_at: str, *arguments: str) -> None:
    """Run an example as the program that it is."""
    sys.argv = [example, *arguments]
    watch(example, places, kill_at)
    runpy.run_path(example, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
