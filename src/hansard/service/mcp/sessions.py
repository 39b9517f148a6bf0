"""The runs that a client of the server is at work in: a session each, as long as the server runs.

A client of MCP is no program that is run again from its start, so that nothing it asks is answered
from what is on record: each session makes its calls in a scope of its own, also one that takes the
place of another that was lost. When the server ends, its sessions are left as they are, not ended:
the run is taken up again by its id.
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
"""Of a run that a client begins without a name for it, and of the one for what names no run."""


class Work(msgspec.Struct):
    """A session, the scope that its calls are made in, and the tasks that it claimed."""

    session: Any
    scope: Scope
    claims: Claims

    @property
    def point(self) -> str | None:
        """The point that it is at now, as `hansard run show --at` takes it; a restricted agent's
        client does not know it.
        """
        state = getattr(self.session.engine.ledger, "state", None)
        return None if state is None else f"{self.session.agent}@{state.version}"


REFUSED_S = 5.0
"""So long after the service refused a client's credentials it is not asked again, in seconds."""

NO_RUN = ids.uuid8("no run is called so")
"""What is asked for to learn whether the service knows a client's credentials."""


class Sessions:
    """Those of one client, who is one agent in one role, and which tools it is offered: groups and
    names (`hansard.service.mcp.tools`), under a prefix.
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
        """Remember that the service refused the client's credentials, if that is what it is; where
        it did not answer, that may be why.
        """
        if isinstance(error, AccessRefused):
            self._refused_s = time.monotonic()
        self._is_unsure = self._is_unsure or isinstance(error, AccessRefused | ServiceGone)

    @property
    def refused(self) -> bool:
        """Whether the service refused the client's credentials, a moment ago."""
        return self._refused_s is not None and time.monotonic() - self._refused_s < REFUSED_S

    async def are_refused(self) -> bool:
        """Whether the service refuses the client's credentials: as it said a moment ago, else it is
        asked, if it refused them before or did not answer. What it cannot say now is as before.
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
        """What the record stands on; None of a restricted client's."""
        with contextlib.suppress(NotOffered):
            return self.record.workspace
        return None

    async def demand(self, need: Need) -> None:
        """Raise RoleRefused for what the client's role may not; a restricted client's service asks
        for itself.
        """
        if self.workspace is not None:
            permit = await permits.read(self.workspace, (await self.own()).session.role)
            permit.demand(need)

    async def shown(self, label: Label | None) -> None:
        """Have what the client does from now on be labelled by what it was shown; a restricted
        client's service does that itself.
        """
        if self.workspace is not None:
            (await self.own()).session.engine.ledger.shown(label)

    async def begin(self, workflow: str | None, **options: Any) -> Work:
        """A run that begins, or is joined with `run=`. Raises as `record.run`."""
        session = await self.record.open(workflow, **self._who, **options)
        drop(session)  # it is not ended with the record: the run goes on after this process
        ledger = session.engine.ledger
        scope = ledger.root.item(f"mcp-{secrets.token_hex(4)}")
        work = self._works[session.run] = Work(session, scope, set())
        return work

    async def of(self, run: str) -> Work:
        """The session in a run. Raises as `record.run`, and NotFound."""
        async with self._lock:
            if not await self._is_there(run):
                await self._demand(run)
                await self.begin(None, run=run)
            return self._works[run]

    async def _is_there(self, run: str) -> bool:
        """Whether a session stands in a run; one of a restricted client's that the service no
        longer knows, as after its role's rules changed, is forgotten.
        """
        work = self._works.get(run)
        link = None if work is None else getattr(work.session.engine, "link", None)
        if link is not None and not await link.is_there():
            self._works.pop(run, None)
        return run in self._works

    async def _demand(self, run: str) -> None:
        """Raise NotFound for a run that is not there: it is not begun by a mistyped id."""
        try:
            await self.record.state(run)
        except NotOffered:
            await self.record.view(run)

    async def own(self) -> Work:
        """That of the client's own run, in which stands what names none."""
        async with self._lock:
            if self._own is None:
                work = await self.begin(WORKFLOW)
                self._own = work.session.run
                return work
            if not await self._is_there(self._own):  # its session was lost
                return await self.begin(None, run=self._own)
            return self._works[self._own]

    async def leave(self, run: str, error: BaseException | None = None) -> Work:
        """End this agent's session there, which is given; with the last of its agents the run
        ends.
        """
        work = await self.of(run)
        del self._works[run]
        await work.session.close(error)
        return work

    @property
    def runs(self) -> list[str]:
        """Those that the client is at work in, the newest first."""
        return [*reversed(self._works)]

    def under_way(self, run: object, *, in_run: bool) -> Work | None:
        """The session that a call is made in that names this run, or none, if it is there."""
        name = run if in_run else self._own
        return self._works.get(name) if isinstance(name, str) else None

    @contextlib.asynccontextmanager
    async def at_work(self, work: Work) -> AsyncGenerator[Work]:
        """Calls made inside are this session's; one that was taken over, or lost, is forgotten."""
        token = enter(work.scope)
        try:
            yield work
        except (Fenced, SessionEnded, ServiceGone, AccessRefused):
            self._works.pop(work.session.run, None)
            raise
        finally:
            leave(token)

    async def close(self) -> None:
        """End the client's own run; leave the others as they are."""
        if self._own is not None and self._own in self._works:
            await self.leave(self._own)
