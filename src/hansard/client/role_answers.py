"""The tables of one role, to be asked: brought up to what it sees now, by its rules of now.

What is said to who asks under a role is what a role may know: its own position, and nothing of what
others project or of how far the log is. A role that was never defined and one that was withdrawn
get the same answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from hansard.agents.access import roles, views
from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.policy import permits as refusals
from hansard.agents.policy.permits import Permit, trusts
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.bus.log import AtPosition
from hansard.client.opening import data_dir_of, open_workspace, reading_raw
from hansard.domain import ids
from hansard.domain.choices import NOTHING
from hansard.domain.errors import HansardError
from hansard.domain.events import Actor
from hansard.domain.label import HIGHEST, parse
from hansard.domain.roles.authorize import Trust
from hansard.domain.roles.model import RoleDefined
from hansard.inspect.answer import Answer as Read
from hansard.inspect.tables import read
from hansard.projections.errors import ProjectionError
from hansard.projections.publish import snapshots as published
from hansard.projections.reader import Reader
from hansard.projections.roles.build import bring_up
from hansard.projections.roles.table_files import Kept, load, role_place
from hansard.projections.sql_sandbox.answer import ARROW, Answer
from hansard.projections.sql_sandbox.limits import ONE_QUESTION, Limits
from hansard.projections.sql_sandbox.sandbox import Door
from hansard.projections.store import Store
from hansard.projections.table_files import TableFiles
from hansard.settings import Settings

R = TypeVar("R", bound=Read)

READ_S = 60.0
"""Longest time of one of our own reads for whoever asks as a role: others wait for its place."""


def _unknown(role: str) -> NotFound:
    return NotFound(f"role {role!r}", "ask whoever keeps the roles for one that may query")


@contextlib.asynccontextmanager
async def _opened(settings: Settings, workspace: Workspace | None) -> AsyncGenerator[Workspace]:
    """A workspace that is open already, or else is for as long as the block runs."""
    if workspace is not None:
        yield workspace
        return
    workspace = await open_workspace(settings)
    try:
        yield workspace
    finally:
        await workspace.close()


@contextlib.asynccontextmanager
async def role_published(
    settings: Settings, role: str, by: str | Actor, within: Workspace | None = None
) -> AsyncGenerator[TableFiles]:
    """A role's tables, published as it sees the log now; they are not removed meanwhile. `within`
    is their workspace, if it is open.

    Raises NotFound (no such role, or not any more), RoleRefused, BadName, ProjectionError,
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


async def ask_as(  # noqa: PLR0913, PLR0917 -- what is asked, of what, as whom
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
    """A question answered from a role's tables, and nothing else is within its reach; that it was
    answered is on record before the answer is given. Raises as `role_published`, and SqlError.

    tables: of whoever asks, as Arrow IPC streams by name; they are joined with what the role sees,
    and with nothing else. take, arrow: as of `Door.ask`; `take` is given rows before their answer
    is on record, so they may be handed on only when this is done. carried: that of a principal who
    asks: it counts as shown all that stands in the tables, since what an answer drew on is not
    known. within: as of `role_published`.
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
        later = load(place)  # it may be of a generation that was published meanwhile
    value = _AnswerRecord(
        views.digest_of(statement, parameters, tables),
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
    """What one of our own reads finds in a role's tables; that it was answered is on record before
    it is given. Raises as `role_published`, TooCostly, and what `reads` raises.

    question: its text, for its digest. carried, within: as of `ask_as`.
    """
    ids.name("by", Actor.of(by).agent)
    async with role_published(settings, role, by, within) as place:
        kept = load(place)
        with published.holding(place) as generation:
            if generation is None:
                raise ProjectionError(f"role {role!r} has no tables: ask again")
            store = await asyncio.to_thread(Store, generation.path, read_only=True)
            try:
                found = await read(Reader(store), reads, READ_S)
            except HansardError:  # its text may say what there is
                if carried is not None:
                    await carried.shown(parse(kept.seen.label) if kept is not None else HIGHEST)
                raise
            finally:
                await asyncio.to_thread(store.close)
        later = load(place)
    value = _AnswerRecord(views.digest_of(question, ()), generation.position, len([*found.lines()]))
    async with _opened(settings, within) as workspace:
        await _on_record(workspace, role, value, by, carried, (kept, later))
    return found


class _AnswerRecord(msgspec.Struct, frozen=True):
    """What was answered: the question's digest, as of when, how much of it."""

    asked: str
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
    """State that it was answered; `stood` is of the tables before and after."""
    kept, _ = stood
    if carried is not None:
        for each in stood:
            await carried.shown(parse(each.seen.label) if each is not None else HIGHEST)
    await views.answered(
        workspace if carried is None else workspace.through(carried.log),
        role,
        report.asked,
        head=kept.position if kept is not None else 0,
        position=report.position,
        rows=report.rows,
        cut=report.cut,
        by=by,
    )
