"""Declassification: lowering the label of an agent, a key, or a principal, recorded with its
approver.

Any process may do it in a name; a caller acting in a defined role needs the permission to approve.
Events recorded before keep their labels.
"""

from __future__ import annotations

import functools

import msgspec

from hansard._version import PROTOCOL_VERSION, SERVER_VERSION
from hansard.agents.access import principals
from hansard.agents.policy import permits
from hansard.agents.workspace import Workspace, transact
from hansard.bus.errors import NotFound
from hansard.bus.log import Append
from hansard.domain import agent as agents
from hansard.domain import decider, ids
from hansard.domain.agent import Begin
from hansard.domain.board import BoardState, key_name
from hansard.domain.errors import BadValue
from hansard.domain.ids import KeyStream
from hansard.domain.label import LOWEST, Label, parse
from hansard.domain.roles.authorize import Trust
from hansard.domain.values import recordable
from hansard.state.replay import RunView


class Lowering(msgspec.Struct, frozen=True, kw_only=True):
    """Request to lower the label of an agent or key of a run, or of a principal: the new label
    (such as `untrusted`; by default public and trusted), the approver, the reason, and the role
    that the approver acts in, if any.
    """

    agent: str | None = None
    key: str | None = None
    principal: str | None = None
    to: str = ""
    approver: str
    because: str
    role: str | None = None


_Lowered = tuple[Label, Append]
"""The previous label, and the commit that lowers it."""


async def declassify(workspace: Workspace, run: str | None, request: Lowering) -> Label:
    """Lower the label of an agent, a key or a principal; return the previous label.

    Lowering an agent's label takes its next epoch, which fences a session still at work; lowering a
    principal's ends its sessions. Both may hold data that was not yet recorded.

    Raises Refused if the label would not be lowered, RoleRefused if the role may not approve,
    NotFound, BadName, BadValue, and Conflict after 50 lost races.
    """
    _check(run, request)
    approver = ids.name("approver", request.approver)
    target = parse(request.to, "to")
    if not recordable(request.because, None).strip():
        raise BadValue("reason", "it is empty", "give the reason for lowering the label")
    because = workspace.text(request.because)
    if request.role is not None:
        permit = await permits.read(workspace, request.role)
        permit.demand(permits.trusts(Trust.APPROVE, "declassify"))
    if request.principal is not None:
        return await principals.lower(workspace, request.principal, target, approver, because)
    run = run or ""

    def of_agent(view: RunView) -> _Lowered:
        state = view.agent(str(request.agent))
        before = parse(state.label)
        event = decider.decide(before, target, approver, because)
        begin = Begin(
            state.agent, state.role, SERVER_VERSION, PROTOCOL_VERSION, purpose="declassify"
        )
        events = [*agents.decide(state, begin), event]
        commit = workspace.commit(
            state.version + 1, approver, events, state.epoch + 1, target.stored
        )
        return before, Append(view.stream_of(state.agent), commit)

    def of_key(state: BoardState) -> _Lowered:
        if not state.version:
            remedy = f"see 'hansard board {run}'"
            raise NotFound(f"key {request.key!r:.200} of run {run}", remedy)
        before = state.label or LOWEST
        event = decider.decide(before, target, approver, because)
        commit = workspace.commit(state.version + 1, approver, [event], label=target.stored)
        return before, Append(stream, commit)

    async def append(lowered: _Lowered) -> Label:
        before, command = lowered
        await workspace.log.append(command)
        return before

    if request.agent is not None:
        view = functools.partial(workspace.points.view, run)
        was = await transact(view, of_agent, append)
    else:
        stream = KeyStream(run, key_name(request.key))
        was = await transact(functools.partial(workspace.boards.state, stream), of_key, append)
    return was or LOWEST


def _check(run: str | None, request: Lowering) -> None:
    """Raise BadValue unless exactly one target is named, with a run for an agent or a key."""
    targets = {kind: getattr(request, kind) for kind in ("agent", "key", "principal")}
    if sum(name is not None for name in targets.values()) != 1:
        fact = ", ".join(f"{kind}={name!r:.80}" for kind, name in targets.items())
        raise BadValue("declassify", fact, "give exactly one of agent, key and principal")
    if (run is None) != (request.principal is not None):
        remedy = "give run= for an agent or a key, and leave it out for a principal"
        raise BadValue("declassify", f"run={run!r:.80}", remedy)
