"""Writing out what one role sees of runs: a view, not the record.

Deny by default: until roles have rules of their own, a role sees the events of its own agents,
what was handed to it or to one of them, and of the run's life that it was started and ended, and
its own agents' part in it. Lines are numbered for the view alone: no position, version or count
tells of what is not shown, and an id stands only beside its event. A view cannot be imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from hansard.agents.exchange.format import FORMAT, Header, Missing, SeenLine, View
from hansard.agents.exchange.writer import Section
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain.agent import HandedOff
from hansard.domain.errors import UnknownEvent
from hansard.domain.events import Event, Recorded
from hansard.domain.ids import AgentStream, RunStream
from hansard.domain.integrity.authorship import Fold
from hansard.domain.payload.references import blobs_named
from hansard.domain.run import (
    AgentJoined,
    RunAgentLeft,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
)

_NOTHING = msgspec.Raw(b"{}")


class Seen(msgspec.Struct):
    """How many events a view has, and which of their blobs are missing."""

    events: int
    blobs: int
    missing: list[Missing]


async def export_view(
    workspace: Workspace, runs: list[str], role: str, write: Callable[[bytes], object]
) -> Seen:
    """Write what a role sees of runs, one after the other; of a fork also what its agents did
    before it.

    Holds a run in memory. Raises NotFound for a run that is not there and for a role that no agent
    of these runs has.
    """
    asked = list(dict.fromkeys(runs))
    up_to = await workspace.log.end(None)
    await _check_role(workspace, asked, role)
    section = Section(workspace.blobs, write)
    section.line(Header(0, FORMAT, asked, asked, [], View(role)))
    events = 0
    for run in asked:
        history = await workspace.states.history(run)
        for line in seen(run, [each for each in history if each.position <= up_to], role):
            await section.named(blobs_named(bytes(line.data)))
            section.line(msgspec.structs.replace(line, n=section.number))
            events += 1
        await asyncio.sleep(0)
    section.end(events)
    return Seen(events, section.blobs, section.missing)


async def _check_role(workspace: Workspace, runs: list[str], role: str) -> None:
    known: set[str] = set()
    for run in runs:
        known.update((await workspace.states.life(run)).roster.values())
    if role not in known:
        remedy = f"these runs have {', '.join(sorted(known)) or 'none yet'}"
        raise NotFound(f"an agent with role {role!r}", remedy)


def seen(run: str, history: list[Stored], role: str) -> Iterator[SeenLine]:
    """What a role sees of a run's history, not numbered yet; nothing where no agent has it."""
    mine = _agents(run, history, role)
    if not mine:
        return
    for stored in history:
        for recorded in stored.commit.events:
            match stored.stream:
                case AgentStream(_, its, agent) if its == role or _is_for(recorded, {role, *mine}):
                    yield _line(run, agent, its, stored, recorded)
                case RunStream():
                    shown = _of_life(stored, recorded, mine)
                    if shown is not None:
                        yield _line(run, "", "", stored, shown)
                case _:
                    pass


def _agents(run: str, history: list[Stored], role: str) -> set[str]:
    integrity = Fold()
    for stored in history:
        if isinstance(stored.stream, RunStream):
            integrity.learn(stored.stream.run, stored.stream, stored.commit)
    return {agent for agent, its in integrity.members(run).roles.items() if its == role}


def _line(run: str, agent: str, role: str, stored: Stored, recorded: Recorded) -> SeenLine:
    return SeenLine(
        n=0,
        run=run,
        agent=agent,
        role=role,
        type=recorded.type,
        id=recorded.id,
        data=recorded.data,
        at=stored.commit.at.isoformat().replace("+00:00", "Z"),
        occurred_at=recorded.occurred_at,
    )


def _is_for(recorded: Recorded, names: set[str]) -> bool:
    """Whether it is a hand-off to one of these."""
    if recorded.type != HandedOff.tag:
        return False
    event = _known(recorded)
    return isinstance(event, HandedOff) and event.to in names


def _of_life(stored: Stored, recorded: Recorded, mine: set[str]) -> Recorded | None:
    """What a role whose agents are `mine` sees of an event of the run's life."""
    match _known(recorded):
        case RunStarted() | RunCompleted():
            return recorded
        case RunFailed() | RunCancelled():  # why is another agent's own word, unless it is theirs
            if stored.commit.actor.agent in mine:
                return recorded
            return msgspec.structs.replace(recorded, data=_NOTHING)
        case AgentJoined(agent=agent) | RunResumed(agent=agent) | RunAgentLeft(agent=agent):
            return recorded if agent in mine else None
        case _:
            return None


def _known(recorded: Recorded) -> Event | None:
    try:
        return revive(recorded)
    except UnknownEvent:
        return None
