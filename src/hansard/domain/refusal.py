"""Refusals by an agent's role, other than refused calls. Events of the agent's stream.

The events are the storage format: a tag never changes its meaning, a field is only added with a
default.
"""

from __future__ import annotations

import msgspec

from hansard.domain.events import Event, event


@event("agent.refused.v1")
class AgentRefused(Event, frozen=True, kw_only=True):
    """The agent's role refused an action; no part of it was done.

    `what` is a `kind` of event, a `key` to write, one to `read`, a `task`, or a permission of a
    role (`settle`, `approve`, `query`); `name` names the one refused. `rule` is the rule that
    refused, `because` the missing permission. Refused calls are `step.blocked`.
    """

    what: str
    name: str
    rule: str
    because: str


class Refusal(msgspec.Struct, frozen=True):
    """The last refusal of one thing by the agent's role, and its epoch.

    Attributes:
        epoch: The agent's session, from 1.
        event: The refused action, and the reason.
    """

    epoch: int
    event: AgentRefused


class Refuse(msgspec.Struct, frozen=True):
    """Record a refusal; the same refusal again in one session is not recorded."""

    event: AgentRefused


Refused = dict[str, Refusal]
"""The refusals of an agent by what was refused."""


def refusal_key(what: str, name: str) -> str:
    """Return the key of a refusal."""
    return f"{what} {name}"


def fold(refused: Refused, event: AgentRefused, epoch: int) -> None:
    """Apply a refusal to a state that the caller owns."""
    refused[refusal_key(event.what, event.name)] = Refusal(epoch, event)


def decide(refused: Refused, command: Refuse, epoch: int) -> tuple[AgentRefused, ...]:
    """Return the events of a command; none where the refusal is already on record in this
    session.
    """
    target = command.event
    value = refused.get(refusal_key(target.what, target.name))
    return () if value == Refusal(epoch, target) else (target,)
