"""A recorded run to rebuild, and clients that have read nothing yet."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from benchmarks import _world
from hansard.agents.workspace import Workspace
from hansard.bus.log import Snapshots
from hansard.client.options import Defaults
from hansard.client.record import AsyncRecord
from hansard.domain.ids import AgentStream
from hansard.state.replay import States

ARGUMENT_BYTES = 300


class Recorded(msgspec.Struct):
    """A run of one agent: its id, its stream, and the position and last version of each commit that
    ends a state; positions within a commit over several streams have none.
    """

    run: str
    stream: AgentStream
    positions: list[int]
    versions: list[int]


async def record_run(record: AsyncRecord, steps: int) -> Recorded:
    """Record a completed run of so many steps, every tenth with effects."""
    async with record.run("bench", agent="stepper", role="worker") as session:

        @session.tool(effects="pure")
        async def look(query: str, number: int) -> str:
            return f"{number} {query[:200]}"

        @session.tool(effects="once")
        async def send(text: str, number: int) -> int:
            return number + len(text)

        for number in range(steps):
            tool = send if number % 10 == 9 else look
            await tool(_world.text(ARGUMENT_BYTES), number)
        run = session.run
    stream = AgentStream(run, "worker", "stepper")
    stored = [
        each
        for each in await record.workspace.log.read(stream)
        if each.commit.tx is None or each.commit.tx.index + 1 == each.commit.tx.count
    ]
    return Recorded(
        run,
        stream,
        [each.position for each in stored],
        [each.commit.last_version for each in stored],
    )


def fresh(record: AsyncRecord) -> AsyncRecord:
    """Return a record over the same connections without anything in memory."""
    old = record.workspace
    made = Workspace(old.log, old.blobs, old.clock, _nothing, snapshots=old.snapshots)
    return AsyncRecord(made, Defaults())


class Forgotten:
    """A store of snapshots that finds none; they are still made."""

    def __init__(self, kept: Snapshots) -> None:
        self._kept = kept

    async def put(self, subject: str, data: bytes) -> bool:
        """Store it by the real method."""
        return await self._kept.put(subject, data)

    async def get_many(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Fetch the values, and drop them."""
        await self._kept.get_many(keys)
        return {}


def first_reader(record: AsyncRecord) -> AsyncRecord:
    """Return a `fresh` record of a run without snapshots."""
    made = fresh(record)
    old = record.workspace
    assert old.snapshots is not None
    made.workspace.states = States(old.log, Forgotten(old.snapshots))
    return made


async def _nothing() -> None:
    """Do nothing: the connections belong to another."""
