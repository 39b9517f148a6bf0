"""Roles on record: applied, withdrawn, read at any point; and the events of a run that a role may
see.

The rules at a point decide what is visible at that point.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive, revive_all
from hansard.bus.file_lock import read_text
from hansard.bus.log import AtPosition, Stored, UpTo
from hansard.bus.reads import RunInFull
from hansard.domain import ids
from hansard.domain import run as runs
from hansard.domain.errors import Refused, UnknownEvent
from hansard.domain.events import Commit, Recorded
from hansard.domain.ids import RunStream, WorkspaceStream
from hansard.domain.label import join, parse
from hansard.domain.payload import MARK
from hansard.domain.roles import check
from hansard.domain.roles import check as role_file
from hansard.domain.roles.check import RoleState
from hansard.domain.roles.model import KIND, RoleDefined, RoleEvent, RoleWithdrawn
from hansard.domain.roles.view import (
    Facts,
    ShownEvent,
    UnjudgedEvent,
    aggregate_of,
    facts,
    files_of,
    view,
)
from hansard.domain.run import RunState

FILE_BYTES_MAX = 1024 * 1024
"""Most bytes of a file of roles: far more than the largest needs."""


async def read(workspace: Workspace, name: str, up_to: UpTo = None) -> RoleState:
    """Return a role at a point; one not defined at that point has no rules.

    Raises BadName, and UnknownEvent for an event of a newer version: nothing is then allowed.
    """
    stored = await workspace.log.read(WorkspaceStream(KIND, ids.name("role", name)), up_to=up_to)
    return _folded(stored)


async def defined(workspace: Workspace) -> dict[str, RoleDefined]:
    """Return the roles that have rules, by name, with their rules. Raises UnknownEvent."""
    by_name: dict[str, list[Stored]] = {}
    for stored in await workspace.log.read_kind(KIND):
        if isinstance(stored.stream, WorkspaceStream):
            by_name.setdefault(stored.stream.id, []).append(stored)
    rules = {name: _folded(by_name[name]).rules for name in sorted(by_name)}
    return {name: each for name, each in rules.items() if each is not None}


def _folded(stored: Iterable[Stored]) -> RoleState:
    return check.fold(check.initial(), revive_all(item.commit for item in stored))


async def apply(
    workspace: Workspace,
    name: str,
    rules: RoleDefined,
    *,
    by: str = OS_USER,
) -> bool:
    """Set the rules of a role; return False if it already has them.

    Raises BadValue and BadName for invalid rules, and Conflict after 50 lost races.
    """
    about = workspace.text(rules.about)
    return await _tell(workspace, name, msgspec.structs.replace(rules, about=about), by)


def read_file(path: str | os.PathLike[str]) -> dict[str, RoleDefined]:
    """Read and check a file of roles (`hansard.domain.roles.check`). Raises BadValue, BadName."""
    remedy = "give a TOML file of roles, see docs/roles.md"
    return role_file.parse(read_text(Path(path), FILE_BYTES_MAX, remedy), str(path))


async def apply_all(
    workspace: Workspace,
    rules_by_role: Mapping[str, RoleDefined],
    *,
    by: str = OS_USER,
) -> dict[str, bool]:
    """Set the rules of several roles, one after another; return for each whether they changed.

    Raises as `apply`.
    """
    return {
        name: await apply(workspace, name, rules, by=by) for name, rules in rules_by_role.items()
    }


async def withdraw(
    workspace: Workspace,
    name: str,
    *,
    reason: str = "",
    by: str = OS_USER,
) -> bool:
    """Withdraw a role's rules; return False if already withdrawn. Raises Refused, BadName."""
    return await _tell(workspace, name, RoleWithdrawn(because=workspace.text(reason)), by)


async def _tell(workspace: Workspace, name: str, event: RoleEvent, by: str) -> bool:
    stream = WorkspaceStream(KIND, ids.name("role", name))
    return await workspace.record_lasting(
        stream, by, lambda record: check.decide(_folded(record), event)
    )


async def visible_events(
    workspace: Workspace, name: str, run: str, at: object = None, key: bytes | None = None
) -> list[tuple[int, ShownEvent]]:
    """Return the events of a run at a point that a role may see by its rules at that point,
    numbered for that role.

    key: key of hashed values (`hansard.domain.roles.view`). Reads the whole run, and does not
    record that the events were served. Raises NotFound, BadName, UnknownEvent, and BadValue if a
    mask needs the key.
    """
    position = await workspace.log.end(await workspace.points.up_to(run, at))
    found = await read(workspace, name, AtPosition(position))
    history = await workspace.states.history(run, AtPosition(position))
    return list(view(found.rules, facts_of_run(run, history), key))


def refers(stored: Stored) -> bool:
    """Return whether a commit may have values that refer to earlier ones."""
    return any(MARK in bytes(each.data) for each in stored.commit.events)


def facts_of_run(
    run: str, history: Sequence[Stored], *, shares: bool | None = None
) -> Iterator[UnjudgedEvent]:
    """Yield a run's events from the first, each with the facts for its rules: roster and labels at
    that point.

    References to earlier values are resolved, so that rules see the agent's full value. shares:
    whether any commit `refers`, if known.
    """
    life = runs.initial()
    if shares is None:
        shares = any(map(refers, history))
    in_full = RunInFull() if shares else None
    for stored in history:
        if isinstance(stored.stream, RunStream):
            _live(life, stored.commit)
        commit = stored.commit
        if in_full is not None:
            commit = in_full.commit(stored.stream, commit)
        for recorded in commit.events:
            yield UnjudgedEvent(
                facts=facts_of(stored, recorded, life),
                id=recorded.id,
                commit=stored.commit.id,
                at=stored.commit.at,
                data=recorded.data,
                run=run,
                occurred_at=recorded.occurred_at,
                sealed=recorded.enc is not None,
            )


def _live(life: RunState, commit: Commit) -> None:
    """Fold the known events of a run's life; an event of a newer version names no author."""
    for recorded in commit.events:
        try:
            event = revive(recorded)
            runs.begun_under(life, [event], commit.label)
            runs.evolve(life, event)
        except (UnknownEvent, Refused):
            continue


def facts_of(
    stored: Stored, recorded: Recorded, life: RunState, fields: tuple[str, ...] = ()
) -> Facts:
    """Return the facts that rules evaluate for an event. `life`: the state of its run at its
    commit.
    """
    actor, label = stored.commit.actor.agent, stored.commit.label
    if life.label:
        label = join(label, parse(life.label)).stored
    found = facts(recorded.type, stored.stream, actor, life.roster, life.labels, fields, label)
    data = bytes(recorded.data)
    about, files = aggregate_of(stored.stream, data), files_of(stored.stream, data)
    if not about and not files:
        return found
    return msgspec.structs.replace(found, aggregate=about, paths=files)
