"""What an agent's role refused it, other than calls. Events of the agent's stream.

The events are the storage format: a tag never changes its meaning, a field is only added with a
default.
"""

from __future__ import annotations

import msgspec

from hansard.domain.events import Event, event


@event("agent.refused.v1")
class AgentRefused(Event, frozen=True, kw_only=True):
    """The agent's role did not let it do something; nothing of that was done. `what` is a `kind` of
    event, a `key` to write, one to `read`, a `task`, or what a role may be trusted with (`settle`,
    `approve`, `query`); `name` which one. `rule` is what refused, `because` what was lacking.
    Refused calls are `step.blocked`.
    """

    what: str
    name: str
    rule: str
    because: str


class Refusal(msgspec.Struct, frozen=True):
    """What the agent's role refused last of one thing, and in which epoch.

    Attributes:
        epoch: The agent's session, from 1.
        event: What was refused, and why.
    """

    epoch: int
    event: AgentRefused


class Refuse(msgspec.Struct, frozen=True):
    """Put on record that the role refused something; the same again in one session is not."""

    event: AgentRefused


Refused = dict[str, Refusal]
"""The refusals of an agent by what was refused."""


def refusal_key(what: str, name: str) -> str:
    """What a refusal is known by."""
    return f"{what} {name}"


def fold(refused: Refused, event: AgentRefused, epoch: int) -> None:
    """Take a refusal into a state that the caller owns."""
    refused[refusal_key(event.what, event.name)] = Refusal(epoch, event)


def decide(refused: Refused, command: Refuse, epoch: int) -> tuple[AgentRefused, ...]:
    """The event that a command leads to; none where it is on record in this session."""
    target = command.event
    value = refused.get(refusal_key(target.what, target.name))
    return () if value == Refusal(epoch, target) else (target,)
