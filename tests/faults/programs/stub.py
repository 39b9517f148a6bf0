"""Stand for `python` where another program starts it: run a fork with our input and output."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from types import FrameType

BYTES_MAX = 32
"""Largest size of a number on the socket, in bytes."""


def inherited(fd: int) -> bool:
    """Return whether this process was started with the descriptor."""
    try:
        return os.get_inheritable(fd)
    except OSError:  # of the folder that was listed
        return False


def main() -> int:
    """Ask for the program, hand on signals, and end as it ends."""
    door, *command = sys.argv[1:]
    fds = [int(each) for each in os.listdir("/proc/self/fd") if inherited(int(each))]  # noqa: PTH208 -- pathlib takes long
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as line:
        line.connect(f"\0{door}")
        job = {"command": command, "cwd": os.getcwd(), "env": dict(os.environ), "fds": fds}  # noqa: PTH109 -- pathlib takes long
        socket.send_fds(line, [json.dumps(job).encode()], fds)
        for each in fds:
            os.close(each)  # they end when the program does, and not when this has heard of it
        pid = int(line.recv(BYTES_MAX))

        def hand_on(number: int, _: FrameType | None) -> None:
            os.kill(pid, number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, hand_on)
        code = int(line.recv(BYTES_MAX) or 1)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    os._exit(main())  # nothing is left to be flushed to
