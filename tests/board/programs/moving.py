"""Moves amounts between keys, one transaction each; may stop for ever around one kind of append.

Which keys and how much follows from the agent's name and the number of the transfer alone, so that
a process that goes on after a kill is told what the first one was told.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import hansard
from hansard.bus.log import Append, EventLog, Stored
from hansard.domain.board import BoardConflict
from tests.faults._inside import Inside, run_program

ACCOUNTS = ("a", "b", "c")


class Holding:
    """The real log, but for the first append of an event type: it never comes back from it."""

    def __init__(self, log: EventLog, inside: Inside) -> None:
        self._log = log
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append_all(self, appends: Sequence[Append]) -> list[Stored]:
        """The real append of several, and perhaps no end."""
        await self._hold("before", appends)
        stored = await self._log.append_all(appends)
        await self._hold("after", appends)
        return stored

    async def _hold(self, when: str, appends: Sequence[Append]) -> None:
        settings = self._inside.job.settings
        tags = {event.type for append in appends for event in append.commit.events}
        if settings.get("when") == when and "board.put.v1" in tags:
            self._inside.stops.reach()
            await asyncio.Event().wait()


def transfer(session: hansard.Session, number: int) -> None:
    """One transfer, again until nobody else was in its way."""
    chance = random.Random(f"{session.agent} {number}")
    giver, taker = chance.sample(ACCOUNTS, 2)
    amount = chance.randint(1, 9)
    while True:
        try:
            with session.board.transaction() as tx:
                tx.put(giver, tx.get(giver) - amount)
                tx.put(taker, tx.get(taker) + amount)
                tx.append("ledger", [session.agent, number])
        except BoardConflict:
            continue
        return


def main(inside: Inside) -> int:
    """How many transfers were made, those of earlier processes included."""
    settings = inside.job.settings
    with hansard.connect(workspace=inside.job.workspace) as record:
        record.workspace.log = Holding(record.workspace.log, inside)
        place = {"run": inside.job.run, "agent": settings["agent"], "role": "clerk"}
        with record.run("team", **place) as session:
            inside.world.note("began", agent=settings["agent"])
            for number in range(settings["count"]):
                transfer(session, number)
                inside.world.note("done", agent=settings["agent"], number=number)
    return int(settings["count"])


if __name__ == "__main__":
    run_program(main)
