"""Reads about the server and its workspaces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from hansard.service.http.routes import Context, at_server, read

if TYPE_CHECKING:
    from hansard.service.http.app import App


class WorkspaceHead(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace, and the role of the caller in it.

    Attributes:
        workspace: The name.
        role: The caller's role; null for the operator.
        position: The position of the newest commit; null for a role.
    """

    workspace: str
    role: str | None
    position: int | None


class Health(msgspec.Struct, frozen=True):
    """The state of the process."""

    status: str = "ok"


@read("")
async def workspace(context: Context) -> WorkspaceHead:
    """Return the workspace's name, and the caller's role."""
    who = context.caller.principal
    return WorkspaceHead(
        workspace=context.workspace.name,
        role=None if who is None else who.role,
        position=context.position,
    )


@at_server("GET", "/healthz")
async def healthz(app: App) -> Health:
    """Return "ok" while the process answers."""
    del app
    return Health()
