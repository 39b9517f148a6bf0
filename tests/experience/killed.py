"""One write of an experience, killed at a given point.

Given: the data directory, the workspace, what is done (`confirm` or `retire`), and where to be
killed: `before` the commit, `after` it, or `never`.
"""

import os
import signal
import sys
from typing import Any

import hansard
from hansard.bus.jetstream._append import Appender


def _killed(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, workspace: str, what: str, kill: str) -> None:
    """Do it."""
    append = Appender.append

    async def after(self: Any, *given: Any, **more: Any) -> Any:
        await append(self, *given, **more)
        _killed()

    with hansard.connect(workspace, data_dir=folder) as record:
        if kill in ("before", "after"):
            setattr(Appender, "append", _killed if kill == "before" else after)  # noqa: B010 -- a method is no variable to type checkers
        match what:
            case "confirm":
                record.experiences.confirm("invite")
            case _:
                record.experiences.retire("invite", reason="killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
