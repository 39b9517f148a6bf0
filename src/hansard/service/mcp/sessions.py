"""The runs that a client of the server works in: one session each, while the server runs.

An MCP client is not a program that restarts from its beginning, so no call is answered from the
record: each session makes its calls in a scope of its own, also one that replaces a lost session.
When the server ends, its sessions are left open: the run is resumed by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from hansard.agents.errors import SessionEnded
from hansard.agents.policy import permits
from hansard.agents.policy.permits import Need
from hansard.agents.steps.scope import Scope, drop, enter, leave
from hansard.bus.errors import Fenced, NotFound
from hansard.domain import ids
from hansard.domain.errors import HansardError
from hansard.domain.label import Label
from hansard.operations.protocol.errors import AccessRefused, NotOffered, ServiceGone
from hansard.service.mcp.tools import DEFAULT
from hansard.service.operations import Claims

WORKFLOW = "mcp"
"""Default workflow of a client's runs, and that of its own run, for calls that name no run."""


class Work(msgspec.Struct):
    """A session, the scope of its calls, and the tasks that it claimed."""

    session: Any
    scope: Scope
    claims: Claims

    @property
    def point(self) -> str | None:
        """The session's present point, as `hansard run show --at` takes it.

        None for a restricted agent, whose client does not know it.
        """
        state = getattr(self.session.engine.ledger, "state", None)
        return None if state is None else f"{self.session.agent}@{state.version}"


REFUSED_S = 5.0
"""Seconds after a refusal of credentials in which the service is not asked again."""

NO_RUN = ids.uuid8("no run is called so")
"""A run that never exists, requested to check a client's credentials."""


class Sessions:
    """The sessions of one client, which is one agent in one role, and the tools that it is offered.

    Tools are groups and names (`hansard.service.mcp.tools`), under a prefix.
    """

    def __init__(
        self,
        record: Any,
        agent: str | None,
        role: str | None,
        *,
        tools: Sequence[str] = (DEFAULT,),
        prefix: str = "",
    ) -> None:
        self.record = record
        self.tools, self.prefix = tools, prefix
        self._who = {"agent": agent, "role": role}
        self._works: dict[str, Work] = {}
        self._lock = asyncio.Lock()
        self._own: str | None = None
        self._refused_s: float | None = None
        self._is_unsure = False

    def note(self, error: BaseException) -> None:
        """Remember a refusal of the client's credentials, or that the service did not answer."""
        if isinstance(error, AccessRefused):
            self._refused_s = time.monotonic()
        self._is_unsure = self._is_unsure or isinstance(error, AccessRefused | ServiceGone)

    @property
    def refused(self) -> bool:
        """True if the service has just refused the client's credentials."""
        return self._refused_s is not None and time.monotonic() - self._refused_s < REFUSED_S

    async def are_refused(self) -> bool:
        """Return whether the service refuses the client's credentials.

        It is asked if it refused them before or did not answer. If it cannot answer now, the last
        known state holds.
        """
        if self.refused or not self._is_unsure:
            return self.refused
        try:
            await self.record.view(NO_RUN)
        except NotFound:
            self._is_unsure, self._refused_s = False, None
        except HansardError as error:
            self.note(error)
        return self._refused_s is not None

    @property
    def workspace(self) -> Any:
        """The record's workspace; None for a restricted client."""
        with contextlib.suppress(NotOffered):
            return self.record.workspace
        return None

    async def demand(self, need: Need) -> None:
        """Raise RoleRefused for an operation that the client's role does not allow.

        For a restricted client the service checks it.
        """
        if self.workspace is not None:
            permit = await permits.read(self.workspace, (await self.own()).session.role)
            permit.demand(need)

    async def shown(self, label: Label | None) -> None:
        """Join a label into the client's own; later data gets it.

        For a restricted client the service does that.
        """
        if self.workspace is not None:
            (await self.own()).session.engine.ledger.shown(label)

    async def begin(self, workflow: str | None, **options: Any) -> Work:
        """Begin a run, or join one with `run=`. Raises as `record.run`."""
        session = await self.record.open(workflow, **self._who, **options)
        drop(session)  # it outlives the record object: the run continues after this process
        ledger = session.engine.ledger
        scope = ledger.root.item(f"mcp-{secrets.token_hex(4)}")
        work = self._works[session.run] = Work(session, scope, set())
        return work

    async def of(self, run: str) -> Work:
        """Return the session in a run. Raises as `record.run`, and NotFound."""
        async with self._lock:
            if not await self._is_there(run):
                await self._demand(run)
                await self.begin(None, run=run)
            return self._works[run]

    async def _is_there(self, run: str) -> bool:
        """Return whether there is a session in a run.

        A restricted client's session that the service no longer knows, as after a change of its
        role's rules, is forgotten.
        """
        work = self._works.get(run)
        link = None if work is None else getattr(work.session.engine, "link", None)
        if link is not None and not await link.is_known():
            self._works.pop(run, None)
        return run in self._works

    async def _demand(self, run: str) -> None:
        """Raise NotFound for a run that does not exist, so that a mistyped id begins none."""
        try:
            await self.record.state(run)
        except NotOffered:
            await self.record.view(run)

    async def own(self) -> Work:
        """Return the session of the client's own run, for calls that name no run."""
        async with self._lock:
            if self._own is None:
                work = await self.begin(WORKFLOW)
                self._own = work.session.run
                return work
            if not await self._is_there(self._own):  # the session was lost
                return await self.begin(None, run=self._own)
            return self._works[self._own]

    async def leave(self, run: str, error: BaseException | None = None) -> Work:
        """End this agent's session in a run and return it; the last agent's end ends the run."""
        work = await self.of(run)
        del self._works[run]
        await work.session.close(error)
        return work

    @property
    def runs(self) -> list[str]:
        """The runs that the client works in, the newest first."""
        return [*reversed(self._works)]

    def under_way(self, run: object, *, in_run: bool) -> Work | None:
        """Return the open session for a call that names this run, or none."""
        name = run if in_run else self._own
        return self._works.get(name) if isinstance(name, str) else None

    @contextlib.asynccontextmanager
    async def at_work(self, work: Work) -> AsyncGenerator[Work]:
        """Make calls in the block this session's; forget a session that was fenced or lost."""
        token = enter(work.scope)
        try:
            yield work
        except (Fenced, SessionEnded, ServiceGone, AccessRefused):
            self._works.pop(work.session.run, None)
            raise
        finally:
            leave(token)

    async def close(self) -> None:
        """End the client's own run; leave the others open."""
        if self._own is not None and self._own in self._works:
            await self.leave(self._own)
