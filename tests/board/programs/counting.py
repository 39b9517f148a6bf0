"""One of several processes that change one key: by counter, resolver, or retry."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hansard
from hansard.domain.board import BoardConflict
from tests.faults._inside import Inside, run_program


def _bump(value: dict[str, Any] | None, who: str, number: int) -> dict[str, Any]:
    return {"n": (value["n"] if value else 0) + 1, "by": [who, number]}


def by_counter(session: hansard.Session, number: int) -> int:
    """Add one, however many others write."""
    return session.board.add("hits")


def by_resolver(session: hansard.Session, number: int) -> int:
    """Put one more than the value last seen by this session, or than the current one."""
    who = session.agent
    mine = _bump(session.board.get("value"), who, number)
    return session.board.put("value", mine, resolve=lambda _, theirs: _bump(theirs, who, number))


def by_asking_again(session: hansard.Session, number: int) -> int:
    """Put one more than the value read, and read again after each conflict."""
    while True:
        mine = _bump(session.board.get("value"), session.agent, number)
        try:
            return session.board.put("value", mine)
        except BoardConflict:
            continue


HOW: dict[str, Callable[[hansard.Session, int], int]] = {
    "counter": by_counter,
    "resolver": by_resolver,
    "again": by_asking_again,
}


def main(inside: Inside) -> list[int]:
    """Return the result of each change: the new total, or the new version."""
    settings = inside.job.settings
    with hansard.connect(workspace=inside.job.workspace) as record:
        place = {"run": inside.job.run, "agent": settings["agent"], "role": "clerk"}
        with record.run("team", **place) as session:
            Path(inside.job.marker).touch()
            while not Path(settings["go"]).exists():
                time.sleep(0.001)
            return [HOW[settings["how"]](session, number) for number in range(settings["count"])]


if __name__ == "__main__":
    run_program(main)
