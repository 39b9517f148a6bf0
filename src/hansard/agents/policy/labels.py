"""Declassification: lowering the label of an agent, of a key, or of what a principal carries from
run to run, on record with who answers for it.

Whoever runs this process may do it, in a name; who acts in a role that is defined needs one that
may approve. What was recorded before keeps its label.
"""

from __future__ import annotations

import functools

import msgspec

from hansard._version import PROTOCOL_VERSION, SERVER_VERSION
from hansard.agents.access import principals
from hansard.agents.policy import permits
from hansard.agents.transact import transact
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.bus.log import Append
from hansard.domain import agent as agents
from hansard.domain import ids, label_events
from hansard.domain.agent import Begin
from hansard.domain.board import BoardState, key_name
from hansard.domain.errors import BadValue
from hansard.domain.ids import KeyStream
from hansard.domain.label import LOWEST, Label, parse
from hansard.domain.roles.authorize import Trust
from hansard.domain.values import recordable
from hansard.state.replay import RunView


class Lowering(msgspec.Struct, frozen=True, kw_only=True):
    """Whose label is lowered, of an agent or of a key of a run, or of a principal; to what, such as
    `untrusted`, or to public and trusted; who answers for it and why; and the role that the
    approver acts in, if any.
    """

    agent: str | None = None
    key: str | None = None
    principal: str | None = None
    to: str = ""
    approver: str
    because: str
    role: str | None = None


_Lowered = tuple[Label, Append]
"""What the label was, and the commit that lowers it."""


async def declassify(workspace: Workspace, run: str | None, request: Lowering) -> Label:
    """Lower the label of an agent, a key or a principal; what it was.

    An agent's takes its next epoch, so that a session still at work is fenced, and a principal's
    ends its sessions: what they were shown they may not have said yet. Raises Refused where it
    would not lower the label, RoleRefused where the role may not approve, NotFound, BadName,
    BadValue, and Conflict after 50 lost races.
    """
    _check(run, request)
    approver = ids.name("approver", request.approver)
    target = parse(request.to, "to")
    if not recordable(request.because, None).strip():
        raise BadValue("because", "it is empty", "say why it may be lowered")
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
        event = label_events.decide(before, target, approver, because)
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
        event = label_events.decide(before, target, approver, because)
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
    """Raise BadValue for a label of nobody, of several, or of a run that is not named."""
    given = {kind: getattr(request, kind) for kind in ("agent", "key", "principal")}
    if sum(name is not None for name in given.values()) != 1:
        fact = ", ".join(f"{kind}={name!r:.80}" for kind, name in given.items())
        raise BadValue("declassify", fact, "give an agent, a key or a principal, one of them")
    if (run is None) != (request.principal is not None):
        remedy = "an agent or a key is one of a run, a principal is of none: give run= or leave it"
        raise BadValue("declassify", f"run={run!r:.80}", remedy)
