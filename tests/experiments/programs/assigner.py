"""Registers an experiment, then does runs of it; may stop for ever around one kind of append."""

import asyncio
from collections.abc import Sequence
from typing import Any

import hansard
from hansard.bus.log import Append, EventLog, Stored
from tests.faults._inside import Inside, run_program


class Holding:
    """The real log, but for the first append of an event type: it never comes back from it."""

    def __init__(self, log: EventLog, inside: Inside) -> None:
        self._log = log
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, append: Append) -> Stored:
        """The real append, and perhaps no end."""
        await self._hold("before", [append])
        stored = await self._log.append(append)
        await self._hold("after", [append])
        return stored

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """The real append of several, and perhaps no end."""
        await self._hold("before", appends)
        stored = await self._log.append_all(appends)
        await self._hold("after", appends)
        return stored

    async def _hold(self, when: str, appends: Sequence[Append]) -> None:
        settings = self._inside.job.settings
        tags = {event.type for append in appends for event in append.commit.events}
        if settings.get("when") == when and settings["tag"] in tags:
            self._inside.stops.reach()
            await asyncio.Event().wait()


def main(inside: Inside) -> list[str]:
    """Each run's arm, once all are done."""
    arms = []
    with hansard.connect(workspace=inside.job.workspace) as record:
        record.workspace.log = Holding(record.workspace.log, inside)
        record.register("greeting", hansard.plan(arms=["plain", "bold"], metrics=["reward"]))
        inside.world.note("registered")
        for n in range(inside.job.settings["runs"]):
            place: dict[str, Any] = {"experiment": "greeting", "task": f"t-{n}", "trial": 0}
            with record.run("w", run=f"run-{n}", **place) as session:
                assert session.arm is not None
                inside.world.note("exposed", run=session.run, arm=session.arm.name)
                arms.append(session.arm.name)
    return arms


if __name__ == "__main__":
    run_program(main)
