"""Labels at work: who may be told of what, by the roles' clearances as they stand now.

A role that was never defined in the workspace is a name and nothing else: its agents are cleared
for all. One that is defined is cleared for what its rules say, one that was withdrawn for what is
public. Nothing is read for what has no label.
"""

from __future__ import annotations

import msgspec

from hansard.agents.errors import Blocked
from hansard.bus.codec import revive
from hansard.bus.log import EventLog
from hansard.bus.states.replay import States
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.label import LOWEST, Confidentiality, Label
from hansard.domain.roles.judge import clearance
from hansard.domain.roles.model import KIND, RoleDefined
from hansard.domain.team.task import TeamState
from hansard.domain.team.task_rules import Claim

RULE = "label"
"""What refusals for a label's sake are known by."""

LABEL = "label"
"""What is refused where a principal may not open a run, for what it carries."""


async def clearance_of(log: EventLog, role: str) -> Confidentiality:
    """A role's clearance now. Raises UnknownEvent where a newer version wrote of it."""
    last = await log.last(WorkspaceStream(KIND, role))
    if last is None:
        return Confidentiality.SECRET
    event = revive(last.commit.events[-1])  # each says the whole of a role's rules
    return clearance(event) if isinstance(event, RoleDefined) else Confidentiality.PUBLIC


class Clearances:
    """The clearances of a workspace's roles, as an agent of a run meets them. On the bus's loop."""

    def __init__(self, states: States, stream: AgentStream) -> None:
        self._states = states
        self._stream = stream

    async def of(self, role: str) -> Confidentiality:
        """A role's clearance now. Raises UnknownEvent where a newer version wrote of it."""
        return await clearance_of(self._states.log, role)

    async def mine(self) -> Confidentiality:
        """The clearance of the agent's own role."""
        return await self.of(self._stream.role)

    async def role_of(self, agent: str) -> str | None:
        """The role of an agent of the run; None for one that has not joined it."""
        return (await self._states.life(self._stream.run)).roster.get(agent)

    async def claim(self, state: TeamState, wanted: Claim) -> Claim:
        """A claim of a task by an agent of the role, with what it is cleared for."""
        if all(is_public(task.label) for task in state.tasks.values()):
            return wanted
        return msgspec.structs.replace(wanted, cleared=await self.mine())

    async def demand(self, label: Label | None, what: str, tool: str) -> None:
        """Raise Blocked where the agent's role is not cleared for what is labelled so."""
        if is_public(label):
            return
        cleared = await self.mine()
        if label is not None and not label.flows_to(cleared):
            raise Blocked(RULE, _above(label, what, self._stream.role, cleared), tool)

    async def receives(self, label: Label, role: str | None, agent: str | None) -> str:
        """Why a role or agent may not be told what is labelled so; empty where it may. An agent
        that has not joined yet is asked for its clearance when it reads.
        """
        if is_public(label):
            return ""
        if agent:
            role = await self.role_of(agent) or role
        if not role:
            return ""
        cleared = await self.of(role)
        if label.flows_to(cleared):
            return ""
        return (
            f"this agent was shown what is labelled {str(label)!r}, and role {role!r} is cleared "
            f"for {cleared.value!r} alone; {remedy(label, role)}"
        )


def is_public(label: Label | None) -> bool:
    """Whether everybody is cleared for what is labelled so."""
    return label is None or label.confidentiality is LOWEST.confidentiality


def _above(label: Label, what: str, role: str, cleared: Confidentiality) -> str:
    return (
        f"{what} is labelled higher than role {role!r} is cleared for ({cleared.value!r}); "
        f"{remedy(label, role)}"
    )


def remedy(label: Label, role: str) -> str:
    """What to ask for where a role is not cleared for what is labelled so."""
    wanted = label.confidentiality.value
    return (
        f'ask for: clearance = "{wanted}" in [roles.{role}], or for a declassification by somebody '
        "who may approve"
    )
