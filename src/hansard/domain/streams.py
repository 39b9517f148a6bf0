"""Which events a stream may hold: every event type that this version knows, by kind of stream."""

from __future__ import annotations

from typing import Any, get_args

from hansard.domain import agent, budget, conversation, experiment, price, run
from hansard.domain.events import Event
from hansard.domain.ids import AgentStream, Board, Lasting, Life, StreamId

_BELONGS: dict[type[StreamId], frozenset[Any]] = {
    Life: frozenset(get_args(run.RunEvent)),
    AgentStream: frozenset(get_args(agent.AgentEvent)),
    Board: frozenset({budget.Reserved, budget.Spent}),
}

_LASTING: dict[str, frozenset[Any]] = {
    conversation.KIND: frozenset({conversation.RunJoined}),
    experiment.KIND: frozenset(get_args(experiment.ExperimentEvent)),
    price.KIND: frozenset({price.PriceStated}),
}


def belongs(stream: StreamId, event: Event) -> bool:
    """Whether an event is of a type that the stream may hold."""
    if isinstance(stream, Lasting):
        return type(event) in _LASTING.get(stream.kind, ())
    return type(event) in _BELONGS[type(stream)]
