"""Labels at work: who may be told of what, by the roles' clearances as they stand now.

A role that was never defined in the workspace is a name and nothing else: its agents are cleared
for all. One that is defined is cleared for what its rules say, one that was withdrawn for what is
public. Nothing is read for what has no label.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hansard.agents.errors import Blocked
from hansard.agents.flow import Flow, Io
from hansard.bus.codec import revive
from hansard.bus.log import EventLog
from hansard.bus.states import States
from hansard.domain.approval import Approval
from hansard.domain.ids import AgentStream, Lasting
from hansard.domain.label import LOWEST, Confidentiality, Label, join, level
from hansard.domain.refusal import AgentRefused, Refuse, refusal_key
from hansard.domain.role_events import KIND, RoleDefined
from hansard.domain.role_judge import clearance
from hansard.domain.task import TeamState
from hansard.domain.task_rules import Claim

if TYPE_CHECKING:  # a gate has its clearances
    from hansard.agents.gating import Gated
    from hansard.agents.outcomes import Call

K = TypeVar("K")

RULE = "label"
"""What refusals for a label's sake are known by."""

LABEL = "label"
"""What is refused where a principal may not open a run, for what it carries."""

RECEIVER = "receiver"
"""What is refused where a hand-off is."""


async def clearance_of(log: EventLog, role: str) -> Confidentiality:
    """A role's clearance now. Raises UnknownEvent where a newer version wrote of it."""
    last = await log.last(Lasting(KIND, role))
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
        if all(_is_public(task.label) for task in state.tasks.values()):
            return wanted
        return msgspec.structs.replace(wanted, cleared=await self.mine())

    async def demand(self, label: Label | None, what: str, tool: str) -> None:
        """Raise Blocked where the agent's role is not cleared for what is labelled so."""
        if _is_public(label):
            return
        cleared = await self.mine()
        if label is not None and not label.flows_to(cleared):
            raise Blocked(RULE, _above(label, what, self._stream.role, cleared), tool)

    async def receives(self, label: Label, role: str | None, agent: str | None) -> str:
        """Why a role or agent may not be told what is labelled so; empty where it may. An agent
        that has not joined yet is asked for its clearance when it reads.
        """
        if _is_public(label):
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


def _is_public(label: Label | None) -> bool:
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


def _label_now(gated: Gated) -> Flow[Label]:
    """The agent's label; of a principal with what it has been shown elsewhere up to now."""
    if gated.carried is not None:
        yield Io(gated.carried.refresh)
    return gated.ledger.label


def demand_cleared(gated: Gated, call: Call, label: Label | None, what: str) -> Flow[None]:
    """Go on if the agent may be shown what is labelled so; else record the refusal and raise
    Blocked. What it may be shown, it counts as shown.
    """
    try:
        if not _is_public(label):
            yield Io(functools.partial(gated.clearances.demand, label, what, call.spec.name))
    except Blocked as error:
        yield from gated.blocked(call, error.rule, error.reason)
    gated.ledger.shown(label)


def demand_receiver(gated: Gated, call: Call, role: str | None, agent: str | None) -> Flow[None]:
    """Go on if a role or agent may be told what this agent was shown; else record the refusal and
    raise Blocked.
    """
    label = yield from _label_now(gated)
    if _is_public(label):
        return
    reason: str = yield Io(functools.partial(gated.clearances.receives, label, role, agent))
    if reason:
        yield from gated.blocked(call, RULE, reason)


def demand_taken(gated: Gated, call: Call) -> Flow[None]:
    """Go on if a call's tool takes what this agent was shown; else record the refusal and raise
    Blocked.
    """
    takes = call.spec.takes
    label = (yield from _label_now(gated)) if takes else LOWEST
    if takes and not label.flows_to(level(takes)):
        yield from gated.blocked(
            call,
            RULE,
            f"this agent was shown what is labelled {str(label)!r}, and {call.spec.name} takes "
            f"{takes!r} at most; ask for a declassification by somebody who may approve",
        )


def told_answer(gated: Gated, found: Approval) -> Flow[Approval]:
    """An answer to a question of the agent's as it may be told: with its words where the agent is
    cleared for them, which it then counts as shown; else whether it was granted, and nothing more.
    """
    if not _is_public(found.label):
        cleared = yield Io(gated.clearances.mine)
        if found.label is not None and not found.label.flows_to(cleared):
            return msgspec.structs.replace(found, because="")
    gated.ledger.shown(found.label)
    return found


def cleared_of(gated: Gated, labels: Mapping[K, Label | None]) -> Flow[list[K]]:
    """Those of some labelled things that the agent may be shown, which it then counts as shown."""
    cleared = Confidentiality.SECRET
    if not all(map(_is_public, labels.values())):
        cleared = yield Io(gated.clearances.mine)
    may = [each for each, label in labels.items() if label is None or label.flows_to(cleared)]
    gated.ledger.shown(join(*(labels[each] for each in may)).stored)
    return may


def demand_hand_off(gated: Gated, to: str) -> Flow[None]:
    """Go on if an agent or role may be told what this agent was shown; else put the refusal on
    record and raise Blocked.
    """
    what = f"hand_off to {to!r:.200}"
    if gated.settings.mode.reads_only:
        known = gated.ledger.state.refused.get(refusal_key(RECEIVER, to))
        if known is not None and known.event.rule == RULE:
            raise Blocked(RULE, known.event.because, what)
        return
    label = yield from _label_now(gated)
    if _is_public(label):
        return
    reason: str = yield Io(functools.partial(gated.clearances.receives, label, to, to))
    if reason:
        told = AgentRefused(what=RECEIVER, name=to, rule=RULE, because=reason)
        yield from gated.outcomes.tell(Refuse(told))
        raise Blocked(RULE, reason, what)
