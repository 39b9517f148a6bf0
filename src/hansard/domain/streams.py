"""Event types by kind of stream: every type that this version knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from hansard.domain import (
    access,
    agent,
    aggregate_types,
    approval,
    board,
    budget,
    conversation,
    decider,
    experiment,
    ids,
    imported,
    price,
    principal,
    prompt,
    reuse,
    run,
    team,
)
from hansard.domain.actions import kept
from hansard.domain.errors import BadValue
from hansard.domain.events import Event
from hansard.domain.experience import kept as kept_experiences
from hansard.domain.ids import AgentStream, KeyStream, RunStream, StreamId, WorkspaceStream
from hansard.domain.memory import events as memory_events
from hansard.domain.roles import model as role_events

_BELONGS: dict[type[StreamId], frozenset[Any]] = {
    RunStream: frozenset(get_args(run.RunEvent)),
    AgentStream: frozenset(get_args(agent.AgentEvent)),
    KeyStream: frozenset(
        {
            budget.Reserved,
            budget.Spent,
            team.MailSent,
            decider.LabelDeclassified,
            access.ViewServed,
            *get_args(approval.ApprovalEvent),
            *get_args(board.BoardEvent),
            *get_args(team.TaskEvent),
        }
    ),
}

_LASTING: dict[str, frozenset[Any]] = {
    access.KIND: frozenset({access.AccessRefused}),
    kept.KIND: frozenset(get_args(kept.ActionsEvent)),
    kept_experiences.KIND: frozenset(get_args(kept_experiences.ExperienceEvent)),
    aggregate_types.KIND: frozenset({aggregate_types.AggregateChanged}),
    aggregate_types.FOLLOWER: frozenset({aggregate_types.AggregateFollowed}),
    conversation.KIND: frozenset({conversation.RunJoined}),
    experiment.KIND: frozenset(get_args(experiment.ExperimentEvent)),
    imported.KIND: frozenset({imported.ImportEnded}),
    memory_events.KIND: frozenset(get_args(memory_events.MemoryEvent)),
    price.KIND: frozenset({price.PriceStated}),
    principal.KIND: frozenset(get_args(principal.PrincipalEvent)),
    prompt.KIND: frozenset(get_args(prompt.PromptEvent)),
    access.QUERY_KIND: frozenset({access.QueryAnswered}),
    reuse.KIND: frozenset(get_args(reuse.ReuseEvent)),
    role_events.KIND: frozenset(get_args(role_events.RoleEvent)),
}


def register(kind: str, events: Iterable[type[Event]]) -> None:
    """Let streams of a new kind hold events. Raises BadName, and BadValue for a known kind."""
    if ids.name("kind", kind) in _LASTING:
        raise BadValue("kind", f"streams of kind {kind!r} exist already", "choose another name")
    _LASTING[kind] = frozenset(events)


def may_hold(stream: StreamId, kind: type[Event]) -> bool:
    """Return whether a stream may hold events of a type."""
    if isinstance(stream, WorkspaceStream):
        return kind in _LASTING.get(stream.kind, ())
    return kind in _BELONGS[type(stream)]
