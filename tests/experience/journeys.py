"""A journey is booked by tools, without a page: experiences are learned from runs of it.

As a program (`journeys.py FOLDER WORKSPACE RUN KILLED`) it does what the record keeps as `journey`
in a run, and is killed while the tool books, if KILLED is `yes`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import hansard

TASK = 'Book a journey to "Linz".'


def tools(*, dies: bool = False) -> dict[str, Callable[..., Any]]:
    """Return the tools: one searches, the other books."""

    @hansard.tool(effects="pure")
    async def search(city: str) -> list[str]:
        return [f"a train to {city}"]

    @hansard.tool(effects="idempotent")
    async def book(city: str) -> str:
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"booked to {city}"

    return {"search": search, "book": book}


async def booked(record: Any, city: str, *, label: str = "") -> str:
    """Book a journey and return the run's id. label: of the user's message."""
    called = tools()
    async with record.run("journey", agent="host", role="host") as session:
        await session.message("user", f'Book a journey to "{city}".', label=label)
        await called["search"](city)
        await called["book"](city)
        run: str = session.run
        return run


async def kept(record: Any, name: str, runs: Sequence[str]) -> None:
    """Keep and confirm the experience of these runs under a name."""
    learned = await record.experiences.learn(name, list(runs), description=f"Books a {name}")
    await record.experiences.keep(learned)
    await record.experiences.confirm(name)


async def again(record: Any, name: str, run: str, *, dies: bool = False) -> Any:
    """Run the kept experience."""
    async with record.run("again", run=run, agent="host", role="host") as session:
        return await hansard.actions.AsyncReplays(session).run_experience(
            name, task=TASK, tools=tools(dies=dies)
        )


async def main(folder: str, workspace: str, run: str, killed: str) -> None:
    """Do it."""
    async with hansard.connect_async(workspace, data_dir=folder) as record:
        await again(record, "journey", run, dies=killed == "yes")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
