"""Grants: live reads of runs between workspaces of one record.

A grant is on record in both workspaces, under one id. The granting workspace's record decides, and
is read for each view: an end or a withdrawal counts at once. Each view is on record there as
served, and in the receiving workspace as read.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

import msgspec

from hansard.agents.access import roles
from hansard.agents.access.roles import View
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.commits import revive_all
from hansard.bus.errors import NotFound
from hansard.bus.log import Stored
from hansard.domain import ids
from hansard.domain.choices import moment
from hansard.domain.errors import BadValue, Refused
from hansard.domain.ids import WorkspaceStream, uuid8
from hansard.domain.roles import view
from hansard.ext.share import SHARE, ShareGranted, ShareRead, ShareWithdrawn, copies
from hansard.extending import By, C_co, Name, Noun, Takes, operation, states, trusted
from hansard.inspect.answer import find_run


class Grant(ShareGranted, frozen=True, kw_only=True, omit_defaults=False):
    """A grant as it was given.

    Attributes:
        grant: Its id.
        ended: The reason why it is not in force; empty if it is.
        changed_at: The time at which this workspace recorded the grant or its withdrawal, ISO 8601.
        is_new: Whether the call that returns this gave, withdrew or completed it.
    """

    grant: str
    ended: str = ""
    changed_at: str
    is_new: bool = False


async def _grant(workspace: Workspace, grant: str, *, is_new: bool = False) -> Grant:
    """Return a grant as a workspace has it on record. Raises NotFound."""
    stream = WorkspaceStream(SHARE, ids.name("grant", grant))
    found, ended, at = None, "", ""
    for stored in await workspace.log.read(stream):
        for event in revive_all([stored.commit]):
            if not isinstance(event, ShareRead):
                at = datetime.fromtimestamp(stored.stamp // 10**9, UTC).isoformat()
            if isinstance(event, ShareGranted):
                found, ended = event, ""
            elif isinstance(event, ShareWithdrawn):
                ended = "withdrawn"
    if found is None:
        raise NotFound(f"grant {grant!r:.80}", "hansard share list shows those of a workspace")
    if found.until and workspace.clock.now() >= datetime.fromisoformat(found.until):
        ended = ended or f"ended at {found.until}"
    fields = msgspec.structs.asdict(found)
    return Grant(grant=grant, ended=ended, changed_at=at, is_new=is_new, **fields)


async def _state(
    workspace: Workspace, grant: str, event: ShareGranted | ShareWithdrawn, by: str
) -> bool:
    """Record a grant, or its withdrawal; return False if it is the newest on record."""
    stream = WorkspaceStream(SHARE, grant)

    def news(stored: list[Stored]) -> list[ShareGranted | ShareWithdrawn]:
        known = [e for e in revive_all(s.commit for s in stored) if not isinstance(e, ShareRead)]
        return [] if known and type(known[-1]) is type(event) else [event]

    return await workspace.repository.record(stream, by, news)


class Shares(Noun[C_co], noun="share"):
    """Grants between workspaces of one record."""

    @contextlib.asynccontextmanager
    async def _other(self, name: str) -> AsyncGenerator[Workspace]:
        if self._workspace.open_other is None:
            raise Refused("this workspace is open alone: connect to the record's broker")
        other = await self._workspace.open_other(ids.workspace_name(name))
        try:
            yield other
        finally:
            await other.close()

    @trusted
    async def grant(
        self,
        runs: Sequence[str],
        *,
        to: str,
        as_: str,
        until: str = "",
        by: str = OS_USER,
        reason: str = "",
    ) -> Grant:
        """Let another workspace of this record read runs as a role sees them.

        Granting the same again changes nothing; it completes a call that was killed.

        Args:
            runs: The runs: ids, unique prefixes of them, or 'last'.
            to: The workspace that may read.
            as_: The role of this workspace.
            until: The time from which on it may not, ISO 8601.
            by: The author on record.
            reason: The reason on record.

        Raises:
            NotFound: There is no such run or workspace.
            BadValue: The role has no rules, or a mask that hashes, whose key cannot be shared.
        """
        workspace = self._workspace
        rules = await copies.rules_of(workspace, as_)
        view.check_key(rules, None)
        end = moment("until", until) if until else None
        if to == workspace.log.workspace:
            raise BadValue("to", f"{to!r} is this workspace", "name the workspace that may read")
        if end is not None and end <= workspace.clock.now():
            raise BadValue("until", f"{until!r:.80} has passed", "give a later time")
        event = ShareGranted(
            workspace=workspace.log.workspace,
            to=to,
            role=as_,
            runs=tuple(dict.fromkeys([await find_run(workspace, run) for run in runs])),
            until=end.isoformat() if end is not None else "",
            because=workspace.text(reason),
        )
        grant = uuid8("hansard.grant", event.workspace, to, as_, event.until, *sorted(event.runs))
        async with self._other(to) as receiver:
            is_new = await _state(workspace, grant, event, by)
            is_new |= await _state(receiver, grant, event, by)
        return await _grant(workspace, grant, is_new=is_new)

    @trusted
    async def withdraw(self, grant: str, *, by: str = OS_USER, reason: str = "") -> Grant:
        """Withdraw a grant: no read is answered from here on.

        Args:
            grant: Its id, as 'hansard share list' shows it.
            by: The author on record.
            reason: The reason on record.

        Raises:
            NotFound: There is no such grant.
            Refused: Another workspace gave it.
        """
        found, here = await _grant(self._workspace, grant), self._workspace.log.workspace
        if found.workspace != here:
            message = f"grant {grant} is of workspace {found.workspace}, not of {here}: do it there"
            raise Refused(message)
        event = ShareWithdrawn(because=self._workspace.text(reason))
        is_new = await _state(self._workspace, grant, event, by)
        async with self._other(found.to) as receiver:
            is_new |= await _state(receiver, grant, event, by)
        return await _grant(self._workspace, grant, is_new=is_new)

    @trusted
    async def list(self) -> list[Grant]:
        """List the grants that this workspace gave or received."""
        streams = {each.stream for each in await self._workspace.log.read_kind(SHARE)}
        names = sorted(each.id for each in streams if isinstance(each, WorkspaceStream))
        return [await _grant(self._workspace, name) for name in names]

    @operation(needs=states(ShareRead), takes=Takes.RUN)
    async def read(self, grant: Name, run: Name, *, by: By = OS_USER) -> View:
        """Read a run that another workspace shares, as it is now. To replay or fork it, add a pack.

        Args:
            grant: The grant's id.
            run: The id of a run of the grant, or a unique prefix of it.
            by: The reader on record, in both workspaces.

        Raises:
            NotFound: There is no such grant or run for this workspace, or the caller's role is not
                cleared for it.
            Refused: The grant was withdrawn, or has ended.
        """
        here = self._workspace.log.workspace
        received = await _grant(self._workspace, grant)
        matching = [each for each in received.runs if run and each.startswith(run)]
        run = matching[0] if len(matching) == 1 else run
        async with self._other(received.workspace) as giver:
            found = await _demand(giver, grant, run, here)
            made = await roles.derive(giver.states, found.role, run)
            if not await self._context.shows(made.label):
                raise _no_run(grant, run)
            await _demand(giver, grant, run, here)  # it may have ended meanwhile
            await roles.record(giver, made, f"workspace {here}")
        event = ShareRead(run=run, events=len(made.view.events), digest=made.view.digest)
        stream = WorkspaceStream(SHARE, grant)
        await self._workspace.repository.append(stream, by, event, made.label)
        return made.view


async def _demand(giver: Workspace, grant: str, run: str, here: str) -> Grant:
    """Return a grant of a run to a workspace that is in force. Raises NotFound, Refused."""
    found = await _grant(giver, grant)
    if (found.workspace, found.to) != (giver.log.workspace, here) or run not in found.runs:
        raise _no_run(grant, run)
    if found.ended:
        raise Refused(f"grant {grant} is not in force: {found.ended}; request another one")
    return found


def _no_run(grant: str, run: str) -> NotFound:
    """Return one answer for a run that is not shared, and one that the caller may not see."""
    return NotFound(f"run {run!r:.80} of grant {grant}", "hansard share list shows the runs")
