"""Queries on the tables of one role, after an update to the role's present rules and view.

A caller in a role learns only what the role may know: its own position, and nothing about other
projections or the length of the log. A role that was never defined and one that was withdrawn get
the same response.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from hansard.agents.access import roles
from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.policy import permits as refusals
from hansard.agents.policy.permits import Permit, trusts
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition
from hansard.client.opening import beginning, data_dir_of, reading_raw
from hansard.domain import ids
from hansard.domain.choices import NOTHING
from hansard.domain.errors import HansardError
from hansard.domain.events import Actor
from hansard.domain.label import HIGHEST, parse
from hansard.domain.roles.authorize import Trust
from hansard.domain.roles.model import RoleDefined
from hansard.inspect.answer import Answer as Read
from hansard.inspect.tables import opened, read
from hansard.projections import snapshots as published
from hansard.projections.errors import ProjectionError
from hansard.projections.role_tables import Kept, bring_up, load
from hansard.projections.snapshots import Reader
from hansard.projections.sql_sandbox.answer import ARROW, Answer
from hansard.projections.sql_sandbox.rows import ONE_QUESTION, Limits
from hansard.projections.sql_sandbox.sandbox import Door
from hansard.projections.table_files import TableFiles, role_place
from hansard.settings import Settings

R = TypeVar("R", bound=Read)

READ_S = 60.0
"""Seconds that one of our own reads may take for a role; meanwhile others wait for its place."""


def _unknown(role: str) -> NotFound:
    return NotFound(f"role {role!r}", "ask the administrator of the roles for one that may query")


def _opened(
    settings: Settings, workspace: Workspace | None
) -> contextlib.AbstractAsyncContextManager[Workspace]:
    """Return the workspace for a block if it is open already, else open it there."""
    return beginning(settings) if workspace is None else contextlib.nullcontext(workspace)


@contextlib.asynccontextmanager
async def role_published(
    settings: Settings, role: str, by: str | Actor, within: Workspace | None = None
) -> AsyncGenerator[TableFiles]:
    """Publish a role's tables as it may see the log now; keep them while the block runs.

    `within` is their workspace, if it is open.

    Raises NotFound (the role does not exist, or no longer), RoleRefused, BadName, ProjectionError,
    BusError.
    """
    place = role_place(data_dir_of(settings), settings.workspace, role)
    async with reading_raw(settings) as raw, _opened(settings, within) as workspace:

        async def rules_at(position: int) -> RoleDefined | None:
            state = await roles.read(workspace, role, AtPosition(position))
            if state.rules is not None:
                permit = Permit(role, state.rules, enforced=True)
                await refusals.demand(workspace, permit, trusts(Trust.QUERY, "sql"), by)
            return state.rules

        head = (await raw.extent()).last
        is_defined = await rules_at(head) is not None
        if not is_defined and not place.lock.exists():
            raise _unknown(role)
        if not await bring_up(raw, place, rules_at):
            raise _unknown(role)
    with published.holding(place):
        yield place


async def ask_as(  # noqa: PLR0913, PLR0917 -- each is independent
    settings: Settings,
    role: str,
    statement: str,
    limits: Limits,
    by: str | Actor = OS_USER,
    carried: AccumulatedLabel | None = None,
    parameters: Sequence[object] = (),
    tables: Mapping[str, bytes] = NOTHING,
    take: Callable[[Answer], None] | None = None,
    *,
    arrow: bool = False,
    within: Workspace | None = None,
) -> Answer:
    """Answer an SQL query from a role's tables alone; record the answer before it is returned.

    Raises as `role_published`, and SqlError.

    `tables` are the caller's own, as Arrow IPC streams by name; they can be joined only with what
    the role sees. `take`, `arrow`: as of `Door.ask`; `take` gets rows before the answer is on
    record, so they must not be handed on until this returns. `carried`: the accumulated label of
    the principal; it counts as shown everything in the tables, since what an answer used is not
    known. `within`: as of `role_published`.
    """
    ids.name("by", Actor.of(by).agent)
    of_role = role_place(data_dir_of(settings), settings.workspace, role)
    async with (  # the worker starts while the tables are brought up
        Door(of_role, ONE_QUESTION, arrow=ARROW and (arrow or bool(tables))) as door,
        role_published(settings, role, by, within) as place,
    ):
        kept = load(place)
        answer = await door.ask(
            statement, limits, parameters=parameters, tables=tables, take=take, arrow=arrow
        )
        later = load(place)  # another generation may have been published meanwhile
    value = _AnswerRecord(
        roles.digest_of(statement, parameters, tables),
        answer.position,
        answer.rows,
        cut=answer.cut is not None,
    )
    async with _opened(settings, within) as workspace:
        await _on_record(workspace, role, value, by, carried, (kept, later))
    return answer


async def read_as(
    settings: Settings,
    role: str,
    question: str,
    reads: Callable[[Reader], R],
    by: str | Actor = OS_USER,
    carried: AccumulatedLabel | None = None,
    within: Workspace | None = None,
) -> R:
    """Run one of our own reads on a role's tables; record the answer before it is returned.

    Raises as `role_published`, TooCostly, and what `reads` raises.

    `question` is its text, for the digest. `carried`, `within`: as of `ask_as`.
    """
    ids.name("by", Actor.of(by).agent)
    async with role_published(settings, role, by, within) as place:
        kept = load(place)
        with published.holding(place) as generation:
            if generation is None:
                raise ProjectionError(f"role {role!r} has no tables: ask again")
            async with opened(generation) as store:
                try:
                    answer = await read(store, reads, READ_S)
                except HansardError:  # its text may reveal what exists
                    if carried is not None:
                        await carried.shown(parse(kept.seen.label) if kept is not None else HIGHEST)
                    raise
        later = load(place)
    value = _AnswerRecord(
        roles.digest_of(question, ()), generation.position, len([*answer.lines()])
    )
    async with _opened(settings, within) as workspace:
        await _on_record(workspace, role, value, by, carried, (kept, later))
    return answer


class _AnswerRecord(msgspec.Struct, frozen=True):
    """An answer on record: the query's digest, the position and the number of rows."""

    digest: str
    position: int
    rows: int
    cut: bool = False


async def _on_record(
    workspace: Workspace,
    role: str,
    report: _AnswerRecord,
    by: str | Actor,
    carried: AccumulatedLabel | None,
    stood: tuple[Kept | None, Kept | None],
) -> None:
    """Record an answer; `stood` are the tables' states before and after the query."""
    kept, _ = stood
    if carried is not None:
        for each in stood:
            await carried.shown(parse(each.seen.label) if each is not None else HIGHEST)
    await roles.record_query(
        workspace if carried is None else workspace.through(carried.log),
        role,
        report.digest,
        head=kept.position if kept is not None else 0,
        position=report.position,
        rows=report.rows,
        cut=report.cut,
        by=by,
    )
