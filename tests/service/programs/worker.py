"""A restricted agent's program: sends each of some lines once, despite kills.

Arguments: run, file, lines. Credentials are read from HANSARD_CREDENTIALS. Prints the error that
stops it.
"""

import os
import sys
import time
from pathlib import Path

import hansard
from hansard.bus.errors import BusError


def say(*what: object) -> None:
    """One line on stdout."""
    sys.stdout.write(" ".join(map(str, what)) + "\n")


def main(run: str, file: Path, lines: int) -> int:
    """Send them; 3 where a step is in doubt (which one is printed), 4 where the service is gone."""
    try:
        with hansard.connect() as record, record.run("sending", run=run) as session:

            @session.tool(effects="once")
            def send(line: int) -> int:
                time.sleep(0.002)
                with file.open("a") as out:
                    out.write(f"{line}\n")
                time.sleep(0.002)
                return line

            @session.tool(effects="idempotent", key_argument="key")
            def mark(line: int, key: str = "") -> str:
                return f"{line} {bool(key)}"

            @session.tool(effects="composite")
            def both(line: int) -> list[object]:
                return [send(line), mark(line)]

            for line in session.resumable(range(lines), every=5):
                both(line)
                session.board.add("sent")
                if line % 7 == 0:
                    with session.board.transaction() as tx:
                        tx.put("last", line, expected="any")
                        tx.append("sevens", line)
            say("done", session.board.get("sent"), len(session.board.get("sevens")))
    except hansard.InDoubt as error:
        say("doubt", error.step.number, error.step.tool)
        return 3
    except BusError as error:
        say("gone", type(error).__name__, error)
        return 4
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.flush()
    os._exit(code)
