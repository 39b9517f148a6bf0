"""A log's commits as its readers are given them: what does not fit is replaced when it is read.

What a commit says is compared with its subject as it is decoded, and with the run's roster once
that is known: it is read from the run's life once, and again where somebody is named whom it did
not have. So a reader of streams that fit is told nothing new and pays one small read a run. The
lives of the runs that forks come from are read together, one read a generation of forks.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from hansard.bus import quarantine, subjects
from hansard.bus.log import Stored
from hansard.bus.quarantine import Members, StandIn
from hansard.domain.errors import Corrupt
from hansard.domain.ids import AgentStream, Board, Life, run_of

OTHERS_EVERY = 25
"""After so many commits others on the loop go on: see `hansard.bus.slices`."""

RUNS_MAX = 1_024
"""Most runs whose members are kept in memory; others are read again."""

FORK_DEPTH_MAX = 100
"""Longest line of forks of forks whose members are looked up."""

LivesOf = Callable[[Sequence[str]], Awaitable[Sequence[Stored]]]
"""The commits of some runs' own lives, by position."""

Lives = dict[str, list[Stored]]
"""The commits of runs' own lives by run, each in order."""


def is_stream(subject: str) -> bool:
    """Whether a subject is that of a stream's commit: others hold what nobody reads."""
    try:
        subjects.parse(subject)
    except Corrupt:
        return False
    return True


class Screen:
    """Sifts what is read of one log."""

    def __init__(self, workspace: str, lives_of: LivesOf) -> None:
        self._workspace = workspace
        self._lives_of = lives_of
        self._members: OrderedDict[str, Members] = OrderedDict()

    async def sift(self, commits: list[Stored]) -> list[Stored]:
        """Commits of one read, in order, each as it is or with a stand-in for what it says."""
        lives = await self._parents(commits)
        reading: dict[str, Members] = {}
        looked: set[str] = set()  # once a read: what was read before is in it, or in no life
        sifted: list[Stored] = []
        for index, stored in enumerate(commits, 1):
            if index % OTHERS_EVERY == 0:
                await asyncio.sleep(0)
            stream, commit = stored.stream, stored.commit
            if isinstance(commit, StandIn):
                sifted.append(stored)
                continue
            run = run_of(stream)
            if run is None:
                why = quarantine.broken(stream, commit)
            else:
                members = reading.get(run)
                if members is None:
                    known = self._members.get(run)
                    members = reading[run] = Members() if known is None else _roles_of(known)
                usual = quarantine.goes_on(stream, commit, members)
                if not usual and run not in looked and self._is_new(stored, members):
                    looked.add(run)
                    self._take(members, await self._looked_up(run, 0, lives))
                misfit = "" if usual else quarantine.misfit(stream, commit, members)
                why = misfit or quarantine.broken(stream, commit)
                if not usual and not why and type(stream) is not Board:
                    parent = quarantine.learn(members, stream, commit)
                    if parent:
                        quarantine.inherit(members, await self._looked_up(parent, 1, lives))
            sifted.append(quarantine.replaced(self._workspace, stored, why) if why else stored)
        for run, members in reading.items():
            if members.whole:
                self._keep(run, members)
        return sifted

    @staticmethod
    def _is_new(stored: Stored, members: Members) -> bool:
        """Whether a commit is of somebody whom the roster, as far as it is known, does not have."""
        stream = stored.stream
        if type(stream) is AgentStream:
            return stream.agent not in members.roles
        unknown = type(stream) is Board and stored.commit.actor.agent not in members.roles
        return unknown and quarantine.is_of_agents(stored.commit)

    @staticmethod
    def _take(members: Members, found: Members | None) -> None:
        if found is not None:
            members.roles = {**found.roles, **members.roles}
            members.whole = members.whole or found.whole

    async def _parents(self, commits: Sequence[Stored]) -> Lives:
        """The lives of the runs that the runs of some lives are forks of, and of theirs."""
        lives: Lives = {}
        wanted = _parents_of(commits)
        for _ in range(FORK_DEPTH_MAX):
            if not wanted:
                break
            read = await self._lives_of(sorted(wanted))
            lives |= {run: [] for run in wanted}
            for stored in read:
                lives[run_of(stored.stream) or ""].append(stored)
            wanted = _parents_of(read) - lives.keys()
        return lives

    async def _looked_up(self, run: str, depth: int, lives: Lives) -> Members | None:
        """Who is in a run, from its life and its parents'; None where that is not in this log."""
        if depth > FORK_DEPTH_MAX:
            return None
        members = Members()
        life = lives[run] if run in lives else await self._lives_of([run])
        for stored in life:
            if quarantine.misfit(stored.stream, stored.commit):
                continue
            parent = quarantine.learn(members, stored.stream, stored.commit)
            if parent:
                quarantine.inherit(members, await self._looked_up(parent, depth + 1, lives))
        if members.whole:
            self._keep(run, members)
        return members

    def _keep(self, run: str, members: Members) -> None:
        self._members[run] = _roles_of(members)
        self._members.move_to_end(run)
        while len(self._members) > RUNS_MAX:
            self._members.popitem(last=False)


def _parents_of(commits: Sequence[Stored]) -> set[str]:
    """The runs that the lives among some commits say they are forks of."""
    lives = [stored for stored in commits if type(stored.stream) is Life]
    return {parent for stored in lives if (parent := quarantine.parent_of(stored.commit))}


def _roles_of(members: Members) -> Members:
    """What holds for every reading of a run: epochs are those of a place in it."""
    return Members(dict(members.roles), {}, members.whole)
