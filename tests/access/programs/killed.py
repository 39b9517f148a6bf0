"""`hansard credentials` that kills itself at a point: killed.py POINT ARGUMENTS...

The commands are untouched: a function of theirs is wrapped, and the process is gone with SIGKILL
before it is called, or after it has returned.
"""

import functools
import inspect
import os
import signal
import sys
from typing import Any

import hansard.agents.access.principals
import hansard.broker.logins
import hansard.cli.roles
import hansard.client.credentials
from hansard.cli import main

POINTS: dict[str, tuple[Any, str]] = {
    "draft": (hansard.client.credentials.Draft, "write"),
    "register": (hansard.agents.access.principals, "register"),
    "issue": (hansard.agents.access.principals, "issue"),
    "access": (hansard.broker.logins, "replace_private"),
    "config": (hansard.broker.logins, "write"),
    "reload": (hansard.broker.logins, "_have_reloaded"),
    "finish": (hansard.client.credentials.Draft, "finish"),
    "tell": (hansard.cli.roles, "_print_credentials"),
}
"""Points of `hansard credentials`, in their order."""

ENDING: dict[str, tuple[Any, str]] = {"revoke": (hansard.agents.access.principals, "revoke")}
"""Points of `hansard principals revoke`: one call for each token."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _wrap(place: Any, name: str, when: str) -> None:
    inner = getattr(place, name)

    @functools.wraps(inner)
    def plain(*args: Any, **more: Any) -> Any:
        if when == "before":
            _die()
        inner(*args, **more)
        return _die()

    @functools.wraps(inner)
    async def waited(*args: Any, **more: Any) -> Any:
        if when == "before":
            _die()
        await inner(*args, **more)
        return _die()

    setattr(place, name, waited if inspect.iscoroutinefunction(inner) else plain)


if __name__ == "__main__":
    at, _, point = sys.argv[1].partition(" ")
    _wrap(*(POINTS | ENDING)[point], at)
    sys.argv = ["hansard", *sys.argv[2:]]
    main()
