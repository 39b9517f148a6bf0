"""Reflection as a run of its own: the runs are read, a function proposes as a step, and one event
says which runs were taken and what came of them.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.agents.memory.upkeep import reflect as upkeep
from hansard.agents.memory.upkeep.reflect import Propose, RunTold, asked_for
from hansard.domain.label import join
from hansard.domain.memory.events import MemoryProposal, MemoryReflected

if TYPE_CHECKING:
    from hansard.client.record import AsyncRecord

AGENT = "reflect"
"""Who reflects."""


class Reflected(msgspec.Struct, frozen=True):
    """What a reflection came to.

    Attributes:
        space: Whose memory.
        runs: The runs that were reflected on; none where nothing was left.
        proposals: What is proposed; no file was changed.
        run: The reflection's own run; empty where nothing was left.
        label: Of what it rests on.
        left: How many runs are left for the next one.
    """

    space: str
    runs: list[str]
    proposals: list[MemoryProposal]
    run: str = ""
    label: str = ""
    left: int = 0


async def reflect(
    record: AsyncRecord,
    space: str,
    files: dict[str, str],
    propose: Propose = asked_for,
    *,
    limit: int = upkeep.RUNS_MAX,
) -> Reflected:
    """Reflect on the runs that have ended and that a space was not told of, the oldest first.

    Killed at any point, each run is reflected on once: what was taken stands in the event that says
    what came of it.

    Args:
        record: The workspace's.
        space: The space that is told: `agent/<name>`, `user/<principal>` or `org`.
        files: Its files as they stand, by path.
        propose: Makes proposals of runs and files; what users asked to be remembered if not given.
        limit: So many runs at most.

    Raises:
        BadName: The space's name is none.
        BadValue: A proposal is none.
        Refused: Another reflection took one of the runs meanwhile; nothing of this one stands.
    """
    workspace = record.workspace
    waiting = await upkeep.unreflected(workspace, space, limit=1_000_000)
    taken = waiting[:limit]
    if not taken:
        return Reflected(space, [], [])
    async with record.run(upkeep.WORKFLOW, agent=AGENT) as session:
        runs: list[RunTold] = []
        label = join()
        for run in taken:
            told, its = await upkeep.told(workspace, run)
            runs.append(told)
            label = join(label, its)
        session.engine.ledger.shown(label.stored)

        @session.tool(effects="pure", kind="model", name="propose")
        async def ask(space: str, runs: list[str]) -> list[dict[str, Any]]:
            del space, runs
            given = propose(told_runs, dict(files))
            found = await given if inspect.isawaitable(given) else given
            made = upkeep.checked(found, files, told_runs)
            plain: list[dict[str, Any]] = msgspec.to_builtins(list(made))
            return plain

        told_runs = runs
        found = await ask(space, taken)
        proposals = [msgspec.convert(each, MemoryProposal) for each in found]
        event = MemoryReflected(
            runs=tuple(taken), proposals=tuple(proposals), reflection=session.run
        )
        await upkeep.record(workspace, space, AGENT, event, label)
    shown = str(label) if label.stored else ""
    left = len(waiting) - len(taken)
    return Reflected(space, taken, proposals, session.run, shown, left)
