"""Refusals of what is done outside of a session, on record: answering approvals, querying.

They stand with the principal's refused access, or with that of strangers; an agent's own session
has its refusals in its stream (`hansard.agents.policy.permits`).
"""

from __future__ import annotations

from hansard.agents.policy.permits import Need, Permit, refused
from hansard.agents.workspace import Workspace
from hansard.domain import access, principal
from hansard.domain.access import AccessRefused
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream


async def demand(workspace: Workspace, permit: Permit, need: Need, by: str | Actor) -> None:
    """Raise RoleRefused where a role does not allow what somebody wants, put on record before."""
    told = permit.refusal(need)
    if told is not None:
        await note(workspace, by, permit.role, told.what, told.because)
        raise refused(told)


async def note(
    workspace: Workspace, by: str | Actor, role: str, operation: str, because: str
) -> None:
    """Put on record that somebody was refused something. Raises Conflict after 50 lost races."""
    name = Actor.of(by).agent
    known = await workspace.log.last(WorkspaceStream(principal.KIND, name)) is not None
    stream = WorkspaceStream(access.KIND, name if known else access.STRANGER)
    said = AccessRefused(principal=name, role=role, operation=operation, because=because)
    await workspace.add_lasting(stream, by, said)
