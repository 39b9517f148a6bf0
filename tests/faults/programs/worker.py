"""An agent that works until it is stopped, and notes each result that it receives."""

import itertools
from pathlib import Path

from tests.faults._inside import Inside, run_program


def main(inside: Inside) -> int:
    """Work until stopped; return the number of results."""
    stop, name = Path(inside.job.settings["stop"]), inside.job.settings["name"]
    with (
        inside.connect() as record,
        record.run("under-load", run=inside.job.run, agent=name, role="worker") as session,
    ):

        @session.tool
        def work(number: int) -> int:
            return number * 7

        for number in itertools.count():
            if stop.exists():
                return number
            result = work(number)
            inside.world.note("results", agent=name, number=number, result=result)
            if number % 10 == 0:
                session.checkpoint(f"at {number}", number=number)
    raise AssertionError


if __name__ == "__main__":
    run_program(main)
