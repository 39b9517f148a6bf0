"""Action caches and experiences of a record, and what went out of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from hansard.agents.artifacts import caches as kept_caches
from hansard.agents.artifacts import experiences as kept_experiences
from hansard.agents.artifacts.experiences import KeptVersion
from hansard.agents.policy import permits
from hansard.agents.policy.permits import Need, states, trusts
from hansard.bus.clock import OS_USER
from hansard.domain.actions.cache import ActionCache, checked
from hansard.domain.actions.kept import ACTIONS, ActionsLookedAt, ActionsReverted, ActionsSaved
from hansard.domain.experience.experience import Experience
from hansard.domain.experience.kept import EXPERIENCES, ExperienceConfirmed, ExperienceRetired
from hansard.domain.roles.authorize import Trust
from hansard.inspect import actions as kept_actions
from hansard.inspect import kept_experiences as found_experiences
from hansard.inspect import what_left as left
from hansard.inspect.actions import ActionsLog, KeptCaches
from hansard.inspect.kept_experiences import (
    HITS_MAX,
    ExperienceHits,
    ExperienceLog,
    KeptExperiences,
)
from hansard.inspect.payloads import Payloads
from hansard.inspect.what_left import SentOut
from hansard.operations.declare import By, Name, Noun, Prose, Takes, operation
from hansard.projections.reader import Reader


def _states(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag), permits.actions())


def _confirms(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag), permits.experiences())


def _logs(_: Any) -> tuple[Need, ...]:
    return trusts(Trust.QUERY, "experience_log"), permits.experiences()


def _reads(what: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (trusts(Trust.QUERY, what), permits.actions())


class ActionCaches(Noun):
    """Action caches, kept by name in versions."""

    @operation(needs=_states(ActionsSaved.tag), shows=ACTIONS, begins=True)
    async def keep_actions(
        self, name: Name, cache: ActionCache, *, because: Prose = "", by: By = OS_USER
    ) -> int:
        """Keep an action cache in the record by a name, as its next version: that version's number.
        One that says what the newest version says makes none. It has the label of the run that it
        is of, where that is in this record.

        Args:
            name: The name.
            cache: What `actions` gave, or is in a file.
            because: Why.
            by: Who says so.

        Raises:
            BadValue: It is none that can be replayed.
            BadName: It is no name.
        """
        label = await self._label_of_runs([checked(cache).run])
        found = await kept_caches.save(
            self._workspace, name, cache, because=because, by=by, label=label
        )
        return found.version

    @operation(needs=lambda _: (permits.actions(),), shows=ACTIONS)
    async def kept_actions(self, name: Name, version: int | None = None) -> ActionCache:
        """An action cache that the record keeps, the newest version if none is named. Replayed with
        `session.run_actions`, what a model finds elsewhere is its next version.

        Raises:
            NotFound: There is no such cache, or its bytes were erased.
            Refused: There is no such version.
            BadName: It is no name.
        """
        return await kept_caches.get(self._workspace, name, version)

    @operation(needs=_reads("action_caches"), takes=Takes.LONG)
    async def action_caches(self) -> KeptCaches:
        """The action caches that the record keeps, and how many heals nobody has looked at: what
        `hansard actions list` prints. Raises ProjectionError, Refused as `sql`.
        """
        return await self._read(kept_actions.caches, "action_caches")

    @operation(needs=_reads("actions_log"), takes=Takes.LONG)
    async def actions_log(self, name: Name) -> ActionsLog:
        """The versions of an action cache: who changed what, when and why: what
        `hansard actions log` prints.

        Raises:
            NotFound: There is no such cache.
            ProjectionError, Refused: As `sql`.
        """
        return await self._read(partial(kept_actions.log, name=name), "actions_log", name)

    @operation(needs=_states(ActionsReverted.tag), shows=ACTIONS)
    async def revert_actions(
        self, name: Name, to: int, *, because: Prose = "", by: By = OS_USER
    ) -> int:
        """Have an earlier version of an action cache be the next one: that one's number.

        Args:
            name: The cache's.
            to: The version.
            because: Why.
            by: Who says so.

        Raises:
            NotFound: There is no such cache.
            Refused: There is no such version.
        """
        found = await kept_caches.revert(self._workspace, name, to, because=because, by=by)
        return found.version

    @operation(needs=_states(ActionsLookedAt.tag), shows=ACTIONS)
    async def look_at_actions(
        self, name: Name, version: int | None = None, *, because: Prose = "", by: By = OS_USER
    ) -> int:
        """State that somebody looked at all versions of an action cache up to one, and lets them
        stand: `hansard audit` asks for heals that nobody looked at. That version's number.

        Args:
            name: The cache's.
            version: The newest if none is named.
            because: What was found.
            by: Who looked.

        Raises:
            NotFound: There is no such cache.
            Refused: There is no such version.
        """
        found = await kept_caches.look_at(self._workspace, name, version, because=because, by=by)
        return found.version


class Experiences(Noun):
    """Experiences, kept by name in versions."""

    async def kept_experience(self, name: Name, version: int | None = None) -> Experience:
        """An experience that the record keeps, the newest version if none is named. Nothing of it
        is run. `session.run_experience(name)` does it, where it may be used.

        Raises:
            NotFound: There is no such experience, or its bytes were erased.
            Refused: There is no such version.
            BadName, BadValue: It is no name.
        """
        found = await self._kept_experience(name, version)
        return found.experience

    @operation(needs=lambda _: (permits.experiences(),), shows=EXPERIENCES)
    async def _kept_experience(self, name: Name, version: int | None = None) -> KeptVersion:
        """A version of an experience that is kept, with what it may be used for."""
        return await kept_experiences.get(self._workspace, name, version)

    @operation(needs=lambda _: (trusts(Trust.QUERY, "experiences"),), takes=Takes.LONG)
    async def experiences(self) -> KeptExperiences:
        """The experiences that the record keeps, by name: what `hansard experience list` prints.

        Raises:
            ProjectionError, Refused: As `sql`.
        """
        return await self._read(found_experiences.experiences, "experiences")

    @operation(needs=_logs, takes=Takes.LONG)
    async def experience_log(self, name: Name) -> ExperienceLog:
        """What is on record of an experience, the oldest first: its versions, its replays, and what
        was said of it.

        Raises:
            NotFound: There is no such experience.
            ProjectionError, Refused: As `sql`.
        """
        return await self._read(partial(found_experiences.log, name=name), "experience_log", name)

    @operation(needs=lambda _: (trusts(Trust.QUERY, "find_experience"),), takes=Takes.LONG)
    async def find_experience(
        self,
        task: str = "",
        *,
        tools: Sequence[str] = (),
        address: str = "",
        limit: int = HITS_MAX,
        retired: bool = False,
    ) -> ExperienceHits:
        """The experiences that fit a task, the best first, each with why: whether it is said like
        theirs, its words, how sure it is that they succeed, what they cost.

        Args:
            task: The task's text, or words of it.
            tools: All of which it calls.
            address: Where it is done: an address, or a host.
            limit: So many at most.
            retired: Whether those that are retired are found, too.

        Raises:
            BadValue: Nothing is asked for, or it cannot be taken.
            BadQuery: The text has no words.
            ProjectionError, Refused: As `sql`.
        """
        query = found_experiences.ExperienceQuery(
            task=task, tools=tuple(tools), address=address, limit=limit, retired=retired
        )
        reads = partial(self._find, query=query)
        return await self._read(reads, "find_experience", task, address)

    def _find(self, reader: Reader, query: found_experiences.ExperienceQuery) -> ExperienceHits:
        """The experiences that fit. A search keeps nothing: no rank tells of another role's."""
        from hansard.projections.search.files import FileWords  # noqa: PLC0415 -- takes sqlite

        with closing(found_experiences.ExperienceIndex(FileWords())) as index:
            return found_experiences.find(reader, query, index)

    @operation(needs=_confirms(ExperienceConfirmed.tag), shows=EXPERIENCES)
    async def confirm_experience(
        self,
        name: Name,
        checks: Sequence[str] = (),
        *,
        digest: str = "",
        because: Prose = "",
        by: By = OS_USER,
    ) -> int:
        """State that a person confirms the check functions of an experience: it may act with them,
        as the next version, whose number this is. A heal is looked at so, too, and what is retired
        or quarantined may be used again.

        Args:
            name: The experience's.
            checks: Of those that are proposed, only these.
            digest: Which version was looked at, or its digest's beginning; the newest if none is
                named. What came in a bundle takes it.
            because: What was found.
            by: Who confirms it.

        Raises:
            NotFound: There is no such experience.
            BadValue: No proposed check has that name, or no digest is named where it must be.
            Refused: No version has that digest.
        """
        found = await kept_experiences.confirm(
            self._workspace,
            name,
            list(checks),
            digest=digest,
            because=because,
            by=by,
        )
        return found.version

    @operation(needs=_confirms(ExperienceRetired.tag), shows=EXPERIENCES)
    async def retire_experience(self, name: Name, *, because: Prose = "", by: By = OS_USER) -> bool:
        """State that an experience is not to be used any more, until a version is confirmed again;
        whether that is new.

        Args:
            name: The experience's.
            because: Why.
            by: Who says so.

        Raises:
            NotFound: There is no such experience.
        """
        found = await kept_experiences.retire(self._workspace, name, because=because, by=by)
        return found.is_new

    @operation(needs=lambda _: (trusts(Trust.QUERY, "what_left"),), takes=Takes.LONG)
    async def what_left(self, run: Name) -> list[SentOut]:
        """All that went out of a run, in order: each call of a model, a page or a tool that was
        made, with what it was given, as it is on record. A secret stands there by its name. In SQL
        `model_inputs` has what went to models.

        Raises:
            NotFound: There is no such run.
        """
        return await left.what_left(self._workspace, run, Payloads(self._workspace))
