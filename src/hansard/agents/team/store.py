"""The tasks and messages of a run as a session knows them: read on from what was read last.

Everything here runs on the bus's loop.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hansard.bus.log import Stored
from hansard.bus.states.replay import States
from hansard.bus.states.teams import Mail, evolve_team, mail_of, mails, tasks_of
from hansard.domain.ids import AgentStream
from hansard.domain.team import task
from hansard.domain.team.mail import is_for
from hansard.domain.team.task import TeamState
from hansard.domain.team.task_sight import Sight

if TYPE_CHECKING:  # a session's core is not needed to read
    from hansard.agents.steps.engine import StepEngine


class Mailbox:
    """A run's messages as one agent is given them. Each is looked at once, and none is copied: a
    box only grows. `version` is that of the run's newest message, `sent` how many the agent sent.
    """

    def __init__(self, agent: str, role: str) -> None:
        self.version = 0
        self.sent = 0
        self._agent = agent
        self._role = role
        self._mine: list[Mail] = []

    def take(self, commits: Sequence[Stored]) -> None:
        """Take in what follows in the run's stream of messages; what is in already, not again."""
        for stored in commits:
            if stored.commit.version <= self.version:
                continue  # two read at once
            for mail in mails([stored]):
                self.sent += mail.sender == self._agent
                if is_for(mail.sent, self._agent, self._role):
                    self._mine.append(mail)
            self.version = stored.commit.last_version

    def between(self, after: int, to: int) -> list[Mail]:
        """The messages for the agent with versions in (after, to], in order."""
        return self._mine[self.given(after) : self.given(to)]

    def given(self, to: int) -> int:
        """How many messages are for the agent, up to a version."""
        return bisect.bisect_right(self._mine, to, key=lambda mail: mail.version)

    def up_to(self, given: int) -> int:
        """The version of the last of so many messages for the agent; 0 for none."""
        return self._mine[given - 1].version if given else 0


class TeamStore:
    """Reads a run's tasks and messages; each read costs a request for what is new."""

    def __init__(self, states: States, stream: AgentStream) -> None:
        """`stream` is that of the agent who asks."""
        self.states = states
        self.tasks = tasks_of(stream.run)
        self.mail = mail_of(stream.run)
        self._team: TeamState | None = None
        self._mailbox = Mailbox(stream.agent, stream.role)

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

    async def sight(self, engine: StepEngine) -> Sight | None:
        """What a session's agent may know of the tasks; None for all."""
        permit, stream = engine.settings.permit, engine.stream
        if not permit.is_limited:
            return None
        roster = (await self.states.life(stream.run)).roster
        return Sight(stream.agent, stream.role, permit.rules, roster)

    async def mailbox(self) -> Mailbox:
        """The messages of the run for this agent, as of now; what is in it stays."""
        box = self._mailbox
        if box.version:
            commits = await self.states.log.read(self.mail, after=box.version)
        else:
            commits = await self.states.commits(self.mail)
        box.take(commits)
        return box

    async def log_time(self) -> int:
        """The log's time now: that of its newest commit, in ns since 1970."""
        log = self.states.log
        return (await log.at(await log.head())).stamp
