"""Sends something, which somebody has to grant; may stop for ever around an append."""

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
    """What was sent."""
    settings = inside.job.settings
    rules = [hansard.ask_first("send_*", timeout=60)]
    with hansard.connect(workspace=inside.job.workspace, gate=rules) as record:
        log = record.workspace.log = Holding(record.workspace.log, inside)
        record.workspace.states.log = log
        with record.run("post", run=inside.job.run, agent="ada", role="writer") as session:
            named = "key" if settings["effects"] == "idempotent" else None

            @session.tool(effects=settings["effects"], key_argument=named)
            def send_mail(to: str, key: str = "") -> str:
                inside.world.effect("send_mail", to, key)
                return f"sent to {to}"

            return [send_mail("bob")]


if __name__ == "__main__":
    run_program(main)
