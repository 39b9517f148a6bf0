"""The tasks and messages of a run as a session knows them: read on from what was read last.

Everything here runs on the bus's loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansard.bus.states import States
from hansard.bus.teams import Mail, evolve_team, mail_of, mails, tasks_of
from hansard.domain import task
from hansard.domain.task import TeamState
from hansard.domain.task_sight import Sight

if TYPE_CHECKING:  # a session's core is not needed to read
    from hansard.agents.core import Core


class TeamStore:
    """Reads a run's tasks and messages; each read costs a request for what is new."""

    def __init__(self, states: States, run: str) -> None:
        self.states = states
        self.tasks = tasks_of(run)
        self.mail = mail_of(run)
        self._team: TeamState | None = None
        self._mails: list[Mail] | None = None

    async def team(self) -> TeamState:
        """The tasks as they stand; not to be changed. Raises Corrupt, UnknownEvent, Unreachable."""
        known = self._team
        if known is None:
            commits = await self.states.commits(self.tasks)
            known = task.initial()
        else:
            commits = await self.states.log.read(self.tasks, after=known.version)
            if not commits:
                return known
        state = known.copy()
        for stored in commits:
            evolve_team(state, stored)
        if self._team is None or self._team.version <= state.version:
            self._team = state
        return state

    async def sight(self, core: Core) -> Sight | None:
        """What a session's agent may know of the tasks; None for all."""
        permit, stream = core.settings.permit, core.stream
        if not permit.is_limited:
            return None
        roster = (await self.states.life(stream.run)).roster
        return Sight(stream.agent, stream.role, permit.rules, roster)

    async def mails(self) -> list[Mail]:
        """All messages of the run, in order; not to be changed."""
        known = self._mails
        if known is None:
            found = mails(await self.states.commits(self.mail))
        else:
            last = known[-1].version if known else 0
            found = [*known, *mails(await self.states.log.read(self.mail, after=last))]
        if self._mails is None or len(self._mails) <= len(found):
            self._mails = found
        return found

    async def log_time(self) -> int:
        """The log's time now: that of its newest commit, in ns since 1970."""
        log = self.states.log
        return (await log.at(await log.head())).stamp
