"""One step whose result comes line by line, cut by a kill after its second line."""

from collections.abc import Iterator
from typing import Any

from tests.faults._inside import Inside, Point, run_program


def main(inside: Inside) -> list[Any]:
    """Return the lines that the agent received."""
    policy = inside.job.settings["policy"]
    with (
        inside.connect() as record,
        record.run("lines", run=inside.job.run, agent="worker", role="worker") as session,
    ):

        @session.tool(effects=policy)
        def lines(count: int) -> Iterator[str]:
            inside.world.effect("lines", str(count))
            for number in range(count):
                if number == 2:
                    inside.stops.here(Point.AFTER_EFFECT, "lines")
                yield f"line {number}"

        return list(lines(4))


if __name__ == "__main__":
    run_program(main)
