"""Puts on record what was answered in SQL to whoever asked as a role."""

from __future__ import annotations

import hashlib

from hansard.agents.views import rules_at
from hansard.agents.workspace import Workspace
from hansard.bus.log import Append, AtPosition
from hansard.domain import ids
from hansard.domain.events import Actor
from hansard.domain.ids import Lasting
from hansard.domain.query import KIND, QueryAnswered


async def answered(
    workspace: Workspace,
    role: str,
    statement: str,
    *,
    head: int,
    position: int,
    rows: int,
    cut: bool,
    by: str | Actor = "person",
) -> None:
    """State that a question was answered from a role's tables, before the answer is given.

    head: the log's position that the tables were made up to; position: the role's own there.
    Raises BadName, Unreachable, and Conflict after 50 lost races.
    """
    ids.name("by", Actor.of(by).agent)
    stream = Lasting(KIND, ids.name("role", role))
    _, rules = await rules_at(workspace.states, role, AtPosition(head))
    at = (await workspace.log.at(head)).commit.id if head else ""
    told = QueryAnswered(
        role=role,
        at=at,
        rules=rules,
        statement=hashlib.sha256(statement.encode()).hexdigest(),
        position=position,
        rows=rows,
        cut=cut,
    )

    async def news() -> Append:
        last = await workspace.log.last(stream)
        version = last.commit.last_version + 1 if last is not None else 1
        return Append(stream, workspace.commit(version, by, [told]))

    await workspace.appended(news)
