"""Endless log that is the same each time: the commit at a position follows from the number."""

from functools import cache

from hansard.bus.log import RawMessage
from hansard.domain import agent, run, steps
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream, RunStream, StreamId
from tests.projections.support import Messages

LENGTH = 5
"""Commits a run."""


def message(position: int) -> RawMessage:
    """Return the commit at a position."""
    number, part = divmod(position - 1, LENGTH)
    stream, version, events = _part(f"run {number}", part, number)
    made = Messages()
    made.all = [None] * (position - 1)  # type: ignore[list-item]  # only their number is used
    return made.add(stream, version, events)


@cache
def _began() -> agent.SessionBegan:
    return agent.SessionBegan(
        epoch=1, agent="ada", role="writer", server_version="1", protocol_version="1"
    )


def _part(name: str, part: int, number: int) -> tuple[StreamId, int, list[Event]]:
    life, ada = RunStream(name), AgentStream(name, "writer", "ada")
    request = steps.StepRequested(
        step=1,
        tool="t",
        effects=steps.Effects.ONCE,
        arguments=steps.NULL,
        call="c",
        fingerprint="f",
    )
    done = steps.StepCompleted(
        step=1, result=steps.NULL, digest="d", usage={"cost": number / 8}, duration_ms=1.5
    )
    parts: list[tuple[StreamId, int, list[Event]]] = [
        (life, 1, [run.RunStarted(workflow="w")]),
        (ada, 1, [_began(), request]),
        (ada, 3, [steps.StepInDoubt(step=1, error=steps.Failure("E", "x" * (number % 50)))]),
        (ada, 4, [done]),
        (life, 2, [run.RunCompleted()]),
    ]
    return parts[part]
