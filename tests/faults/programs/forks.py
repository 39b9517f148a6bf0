"""Uses the sync client, forks, and uses it on both sides."""

import multiprocessing
import os
import warnings
from collections.abc import Callable
from typing import Any

import hansard
from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> list[Any]:
    """Return the parent's results before and after its child."""
    with (
        inside.connect() as record,
        record.run("parent", run=inside.job.run, agent="parent", role="worker") as session,
    ):

        @session.tool
        def work(number: int) -> int:
            inside.world.note("bodies", number=number)
            return number * 7

        before = work(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork beside threads
            code = _forked(inside.job.settings["how"], lambda: _child(inside, work))
        return [before, code, work(2)]


def _forked(how: str, child: Callable[[], None]) -> int:
    """Run something in a forked process; its exit code."""
    if how == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        return process.exitcode or 0
    pid = os.fork()
    if not pid:
        code = 1
        try:
            child()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _child(inside: Inside, inherited: Callable[[int], int]) -> None:
    refused = ""
    try:
        inherited(3)
    except hansard.HansardError as error:
        refused = f"{type(error).__name__}: {error}"
    with (
        inside.connect() as record,
        record.run("child", run="child", agent="child", role="worker") as session,
    ):

        @session.tool
        def work(number: int) -> int:
            return number * 7

        inside.world.note("child", refused=refused, result=work(4))


if __name__ == "__main__":
    run_program(main)
