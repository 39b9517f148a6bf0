"""One write of an experience, killed at a given point.

Given: the data directory, the workspace, what is done (`publish`, `install`, `confirm` or
`retire`), a folder with the files it takes, and where to be killed: `before` the commit, `after`
it, before the `file` is in its place, or `never`.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import hansard
from hansard.bus.jetstream._append import Appender


def _killed(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, workspace: str, what: str, files: str, kill: str) -> None:
    """Do it."""
    place = Path(files)
    append = Appender.append

    async def after(self: Any, *given: Any, **more: Any) -> Any:
        await append(self, *given, **more)
        _killed()

    with hansard.connect(workspace, data_dir=folder) as record:
        if kill in ("before", "after"):
            setattr(Appender, "append", _killed if kill == "before" else after)  # noqa: B010 -- a method is no variable to type checkers
        elif kill == "file":
            os.replace = _killed
        match what:
            case "publish":
                file = place / "published.tar"
                key = place / "key.pem"
                record.experiences.publish("invite", file, license="Apache-2.0", key=key)
            case "install":
                record.experiences.install(place / "bundle.tar", name="theirs")
            case "confirm":
                record.experiences.confirm("invite")
            case _:
                record.experiences.retire("invite", reason="killed")


if __name__ == "__main__":
    main(*sys.argv[1:])
