"""What an intent without an outcome wrote to a key, by the commit that names it as its cause."""

from __future__ import annotations

import msgspec

from hansard.bus.states.replay import States, evolve_board
from hansard.domain.board import BoardState
from hansard.domain.ids import AgentStream, KeyStream
from hansard.domain.steps import Step, StepStatus

SEVERAL = "board.commit"
"""The operation that may write several keys, and so is always one commit with its step."""

UNTOLD = (StepStatus.REQUESTED, StepStatus.IN_DOUBT, StepStatus.NOT_DONE)
"""What a step without an outcome is. Whoever settled it as not done may have looked just before it
wrote.
"""


class Written(msgspec.Struct, frozen=True):
    """What a step wrote to a key: how many events in one commit, and the key's state after it."""

    key: str
    changed: int
    state: BoardState


async def written(states: States, stream: AgentStream, step: Step) -> Written | None:
    """What an intent without an outcome wrote by a commit of its own, by what the log has now.

    None where it wrote nothing; it never will if the agent's stream has gone on after it, as it has
    for every session but the one that has the intent. Costs a read of the key's history.
    """
    writes = step.kind == "board" and step.is_of_world and step.tool != SEVERAL
    if not writes or step.status not in UNTOLD:
        return None
    position = await states.position_of(stream, step.version)
    if position is None:
        return None
    intent = (await states.log.at(position)).commit
    cause = intent.events[step.version - intent.version].id
    key = msgspec.json.decode(step.arguments)["key"]
    state = BoardState()
    for stored in await states.commits(KeyStream(stream.run, key)):
        evolve_board(state, stored)
        if stored.commit.causation == cause:
            return Written(key, len(stored.commit.events), state)
    return None
