"""Tasks and messages of a run as a session knows them, read incrementally.

Everything here runs on the bus's loop.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hansard.bus.log import OVER, READY, TIMEOUT, Stored, until
from hansard.domain import team as task
from hansard.domain.errors import BadValue
from hansard.domain.ids import AgentStream
from hansard.domain.roles.authorize import TaskVisibility
from hansard.domain.team import Claim, TeamState, claimable, is_for, may_become_claimable, meant_for
from hansard.state.replay import Mail, States, evolve_team, mail_of, mails, tasks_of

if TYPE_CHECKING:
    from hansard.agents.steps.engine import StepEngine


class Mailbox:
    """Messages of a run for one agent. Each is visited once, and none is copied: a mailbox only
    grows. `version`: that of the run's newest message; `sent`: number of messages that the agent
    sent.
    """

    def __init__(self, agent: str, role: str) -> None:
        self.version = 0
        self.sent = 0
        self._agent = agent
        self._role = role
        self._mine: list[Mail] = []

    def take(self, commits: Sequence[Stored]) -> None:
        """Add commits of the run's stream of messages; those already present are skipped."""
        for stored in commits:
            if stored.commit.version <= self.version:
                continue  # of a concurrent read
            for mail in mails([stored]):
                self.sent += mail.sender == self._agent
                if is_for(mail.sent, self._agent, self._role):
                    self._mine.append(mail)
            self.version = stored.commit.last_version

    def between(self, after: int, to: int) -> list[Mail]:
        """Return the messages for the agent with versions in (after, to], in order."""
        return self._mine[self.count_to(after) : self.count_to(to)]

    def count_to(self, to: int) -> int:
        """Return the number of messages for the agent up to a version."""
        return bisect.bisect_right(self._mine, to, key=lambda mail: mail.version)

    def up_to(self, count: int) -> int:
        """Return the version of the last of `count` messages for the agent; 0 for none."""
        return self._mine[count - 1].version if count else 0


class TeamStore:
    """Reads a run's tasks and messages; each read requests the new commits."""

    def __init__(self, states: States, stream: AgentStream) -> None:
        """Create it; `stream` is that of the agent."""
        self.states = states
        self.tasks = tasks_of(stream.run)
        self.mail = mail_of(stream.run)
        self._team: TeamState | None = None
        self._mailbox = Mailbox(stream.agent, stream.role)

    async def team(self) -> TeamState:
        """Return the current tasks; must not be modified. Raises Corrupt, UnknownEvent,
        Unreachable.
        """
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

    async def sight(self, engine: StepEngine) -> TaskVisibility | None:
        """Return the filter of tasks for a session's agent; None if it may see all."""
        permit, stream = engine.settings.permit, engine.stream
        if not permit.is_limited:
            return None
        roster = (await self.states.life(stream.run)).roster
        return TaskVisibility(stream.agent, stream.role, permit.rules, roster)

    async def mailbox(self) -> Mailbox:
        """Return the run's messages for this agent, as of now; the mailbox only grows."""
        box = self._mailbox
        if box.version:
            commits = await self.states.log.read(self.mail, after=box.version)
        else:
            commits = await self.states.commits(self.mail)
        box.take(commits)
        return box

    async def log_time(self) -> int:
        """Return the log's current time: that of its newest commit, in ns since 1970."""
        log = self.states.log
        return (await log.at(await log.head())).stamp


LOOK_S_MIN = 0.25
"""Shortest wait for a lease to expire, in seconds: the estimate uses this process's clock, which
may be ahead of the log's, by which it is decided.
"""

WAIT_S_MAX = 365 * 24 * 3_600.0


async def for_claim(store: TeamStore, command: Claim, timeout_s: float | None) -> str:
    """Wait until the agent may have a task to claim. Without a timeout, return OVER once no
    remaining task could become the agent's.
    """
    log = store.states.log

    async def look() -> str | None:
        state = await store.team()
        if claimable(state, command, await store.log_time()) is not None:
            return READY
        over = timeout_s is None and not may_become_claimable(state, command)
        return OVER if over else None

    lease_s = await _next_lease(store, command)
    bounds = [each for each in (lease_s, timeout_s) if each is not None]
    text = await until(log, look, lambda _: True, min(bounds) if bounds else None, of=store.tasks)
    looked_at_lease = lease_s is not None and (timeout_s is None or lease_s < timeout_s)
    return READY if text == TIMEOUT and looked_at_lease else text


async def _next_lease(store: TeamStore, command: Claim) -> float | None:
    """Return the estimated seconds until the first lease of a task for an agent expires; None if
    there is none.

    The log's time advances only with its commits: the claim's own commit decides at that moment.
    """
    state = await store.team()
    ends = [
        task.expires
        for task in state.tasks.values()
        if task.holder and not task.is_over and meant_for(task, command)
    ]
    if not ends:
        return None
    return max(LOOK_S_MIN, (min(ends) - time.time_ns()) / 1e9)


def seconds(what: str, value: float | None) -> float | None:
    """Return a checked number of seconds; None for no limit. Raises BadValue."""
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= WAIT_S_MAX:
        raise BadValue(what, f"{value!r:.40}", "give seconds, 0 or more, or None for no end")
    return float(value)
