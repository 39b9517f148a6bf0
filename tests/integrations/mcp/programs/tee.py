"""Runs a command, and keeps its input and output: FOLDER NAME COMMAND..."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import IO


def copy(source: IO[bytes], to: IO[bytes], kept: Path) -> None:
    """Line by line, each kept before it goes on."""
    with kept.open("ab", buffering=0) as file:
        for line in source:
            file.write(line)
            to.write(line)
            to.flush()
    to.close()


def main(folder: str, name: str, command: list[str]) -> int:
    """Copy until the server ends; return its exit code."""
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdin is not None
    assert running.stdout is not None
    place = Path(folder)
    into = threading.Thread(
        target=copy, args=(sys.stdin.buffer, running.stdin, place / f"{name}.in"), daemon=True
    )
    into.start()
    copy(running.stdout, sys.stdout.buffer, place / f"{name}.out")
    return running.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
