"""Puts on record what was answered in SQL to whoever asked as a role."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from hansard.agents.access.views import rules_at
from hansard.agents.workspace import Workspace
from hansard.bus.log import AtPosition
from hansard.bus.os_user import OS_USER
from hansard.domain import ids
from hansard.domain.choices import NOTHING
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.query import KIND, QueryAnswered


async def answered(
    workspace: Workspace,
    role: str,
    asked: str,
    *,
    head: int,
    position: int,
    rows: int,
    cut: bool,
    by: str | Actor = OS_USER,
) -> None:
    """State that a question was answered from a role's tables, before the answer is given.

    asked: its digest (`digest_of`); head: the log's position that the tables were made up to;
    position: the role's own there.
    Raises BadName, Unreachable, and Conflict after 50 lost races.
    """
    ids.name("by", Actor.of(by).agent)
    stream = WorkspaceStream(KIND, ids.name("role", role))
    _, rules = await rules_at(workspace.states, role, AtPosition(head))
    at = (await workspace.log.at(head)).commit.id if head else ""
    told = QueryAnswered(
        role=role,
        at=at,
        rules=rules,
        statement=asked,
        position=position,
        rows=rows,
        cut=cut,
    )
    await workspace.add_lasting(stream, by, told)


def digest_of(
    statement: str, parameters: Sequence[object], tables: Mapping[str, bytes] = NOTHING
) -> str:
    """Of what was asked: of the SQL alone where it has no parameters and came with no tables."""
    told = msgspec.json.encode(list(parameters)) if parameters else b""
    for name, data in tables.items():
        told += f"\n{name} {hashlib.sha256(data).hexdigest()}".encode()
    return hashlib.sha256(statement.encode() + told).hexdigest()
