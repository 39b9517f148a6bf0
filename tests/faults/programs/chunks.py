"""Calls enough for a chunk of the agent's versions, cut by a kill before or after that is sent."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from hansard.bus.log import Snapshots
from hansard.state.histories import PAUSE_S
from tests.faults._inside import Inside, Point, run_program

CALLS = 50


class Watched:
    """The real store of snapshots; stops before or after one is sent."""

    def __init__(self, kept: Snapshots, inside: Inside) -> None:
        self._kept = kept
        self._stops = inside.stops

    async def put(self, subject: str, data: bytes) -> bool:
        """Store, watched."""
        await self._stop(Point.BEFORE_RECEIPT)
        sent = await self._kept.put(subject, data)
        await self._stop(Point.AFTER_RECEIPT)
        return sent

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Read from the real store."""
        return await self._kept.get_many(keys)

    async def _stop(self, point: Point) -> None:
        if self._stops.stops_at(point, "chunk") and not self._stops.reach():
            await asyncio.Event().wait()


def main(inside: Inside) -> list[Any]:
    """Return the results of the calls."""
    with inside.connect() as record:
        assert record.workspace.snapshots is not None
        histories = record.workspace.states._histories
        histories._snapshots = Watched(record.workspace.snapshots, inside)
        with record.run("chunks", run=inside.job.run, agent="worker", role="worker") as session:

            @session.tool(effects="pure")
            def double(number: int) -> int:
                inside.world.note("bodies", number=number)
                return 2 * number

            results = [double(number) for number in range(CALLS)]
            # Who closes waits half a second for what is due, and would have ended before the kill.
            while any(inside.stops.stops_at(each, "chunk") for each in Point):
                time.sleep(PAUSE_S)
            return results


if __name__ == "__main__":
    run_program(main)
