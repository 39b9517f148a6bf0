"""Action caches and experiences of a record, and the egress of a run."""

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
from hansard.inspect import experience as found_experiences
from hansard.inspect import trace as left
from hansard.inspect.actions import ActionsLog, KeptCaches
from hansard.inspect.experience import (
    HITS_MAX,
    ExperienceHits,
    ExperienceLog,
    KeptExperiences,
)
from hansard.inspect.trace import Payloads, SentOut
from hansard.operations.declare import By, Name, Noun, Prose, Takes, operation
from hansard.projections.snapshots import Reader


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
        self, name: Name, cache: ActionCache, *, reason: Prose = "", by: By = OS_USER
    ) -> int:
        """Keep an action cache in the record by a name, as its next version; return the version.

        A cache equal to the newest version adds none. It gets the label of the run that it is of,
        if that is in this record.

        Args:
            name: The name.
            cache: The result of `actions`, or the content of a file.
            reason: The reason on record.
            by: The author on record.

        Raises:
            BadValue: The cache cannot be replayed.
            BadName: The name is malformed.
        """
        label = await self._label_of_runs([checked(cache).run])
        found = await kept_caches.save(
            self._workspace, name, cache, reason=reason, by=by, label=label
        )
        return found.version

    @operation(needs=lambda _: (permits.actions(),), shows=ACTIONS)
    async def kept_actions(self, name: Name, version: int | None = None) -> ActionCache:
        """Return a kept action cache, by default its newest version.

        When it is replayed with `session.run_actions`, elements that a model finds elsewhere become
        its next version.

        Raises:
            NotFound: There is no such cache, or its bytes were erased.
            Refused: There is no such version.
            BadName: The name is malformed.
        """
        return await kept_caches.get(self._workspace, name, version)

    @operation(needs=_reads("action_caches"), takes=Takes.LONG)
    async def action_caches(self) -> KeptCaches:
        """List the kept action caches, with the number of heals that nobody has reviewed.

        It is the output of `hansard actions list`. Raises ProjectionError, Refused as `sql`.
        """
        return await self._read(kept_actions.caches, "action_caches")

    @operation(needs=_reads("actions_log"), takes=Takes.LONG)
    async def actions_log(self, name: Name) -> ActionsLog:
        """Return the versions of an action cache: who changed what, when and why.

        It is the output of `hansard actions log`.

        Raises:
            NotFound: There is no such cache.
            ProjectionError, Refused: As `sql`.
        """
        return await self._read(partial(kept_actions.log, name=name), "actions_log", name)

    @operation(needs=_states(ActionsReverted.tag), shows=ACTIONS)
    async def revert_actions(
        self, name: Name, to: int, *, reason: Prose = "", by: By = OS_USER
    ) -> int:
        """Add an earlier version of an action cache again as the next one; return its number.

        Args:
            name: The cache's name.
            to: The version.
            reason: The reason on record.
            by: The author on record.

        Raises:
            NotFound: There is no such cache.
            Refused: There is no such version.
        """
        found = await kept_caches.revert(self._workspace, name, to, reason=reason, by=by)
        return found.version

    @operation(needs=_states(ActionsLookedAt.tag), shows=ACTIONS)
    async def review_actions(
        self, name: Name, version: int | None = None, *, reason: Prose = "", by: By = OS_USER
    ) -> int:
        """Record that a person reviewed the versions of an action cache up to one; return it.

        `hansard audit` lists heals that nobody has reviewed.

        Args:
            name: The cache's name.
            version: The version; by default the newest.
            reason: The finding.
            by: The reviewer on record.

        Raises:
            NotFound: There is no such cache.
            Refused: There is no such version.
        """
        found = await kept_caches.review(self._workspace, name, version, reason=reason, by=by)
        return found.version


class Experiences(Noun):
    """Experiences, kept by name in versions."""

    async def kept_experience(self, name: Name, version: int | None = None) -> Experience:
        """Return a kept experience, by default its newest version. No code of it is run.

        `session.run_experience(name)` replays it, if it may be used.

        Raises:
            NotFound: There is no such experience, or its bytes were erased.
            Refused: There is no such version.
            BadName, BadValue: The name is malformed.
        """
        found = await self._kept_experience(name, version)
        return found.experience

    @operation(needs=lambda _: (permits.experiences(),), shows=EXPERIENCES)
    async def _kept_experience(self, name: Name, version: int | None = None) -> KeptVersion:
        """Return a version of a kept experience, with its permitted use."""
        return await kept_experiences.get(self._workspace, name, version)

    @operation(needs=lambda _: (trusts(Trust.QUERY, "experiences"),), takes=Takes.LONG)
    async def experiences(self) -> KeptExperiences:
        """List the kept experiences, by name: the output of `hansard experience list`.

        Raises:
            ProjectionError, Refused: As `sql`.
        """
        return await self._read(found_experiences.experiences, "experiences")

    @operation(needs=_logs, takes=Takes.LONG)
    async def experience_log(self, name: Name) -> ExperienceLog:
        """Return the history of an experience, oldest first: its versions, replays and statements.

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
        """Find the experiences that fit a task, the best first.

        Each has the reasons: similar wording, common words, the estimated rate of success, the
        cost.

        Args:
            task: The task's text, or words of it.
            tools: Tools, all of which it must call.
            address: The place of the task: an address, or a host.
            limit: Most results.
            retired: True to include retired ones.

        Raises:
            BadValue: No criterion is given, or one is invalid.
            BadQuery: The text has no words.
            ProjectionError, Refused: As `sql`.
        """
        query = found_experiences.ExperienceQuery(
            task=task, tools=tuple(tools), address=address, limit=limit, retired=retired
        )
        reads = partial(self._find, query=query)
        return await self._read(reads, "find_experience", task, address)

    def _find(self, reader: Reader, query: found_experiences.ExperienceQuery) -> ExperienceHits:
        """Search with a new index: one that is kept would rank by what other roles see."""
        from hansard.projections.file_search import FileWords  # noqa: PLC0415 -- takes sqlite

        with closing(found_experiences.ExperienceIndex(FileWords())) as index:
            return found_experiences.find(reader, query, index)

    @operation(needs=_confirms(ExperienceConfirmed.tag), shows=EXPERIENCES)
    async def confirm_experience(
        self,
        name: Name,
        checks: Sequence[str] = (),
        *,
        digest: str = "",
        reason: Prose = "",
        by: By = OS_USER,
    ) -> int:
        """Record that a person confirms an experience's check functions; return the new version.

        It may then act with them. A heal counts as reviewed, and a retired or quarantined
        experience may be used again.

        Args:
            name: The experience's name.
            checks: Only these of the proposed checks.
            digest: The digest, or its beginning, of the version that was reviewed; by default the
                newest. Required for one from a bundle.
            reason: The finding.
            by: The confirming person on record.

        Raises:
            NotFound: There is no such experience.
            BadValue: No proposed check has that name, or a required digest is missing.
            Refused: No version has that digest.
        """
        found = await kept_experiences.confirm(
            self._workspace,
            name,
            list(checks),
            digest=digest,
            reason=reason,
            by=by,
        )
        return found.version

    @operation(needs=_confirms(ExperienceRetired.tag), shows=EXPERIENCES)
    async def retire_experience(self, name: Name, *, reason: Prose = "", by: By = OS_USER) -> bool:
        """Retire an experience until a version is confirmed again; return False if it already is.

        Args:
            name: The experience's name.
            reason: The reason on record.
            by: The author on record.

        Raises:
            NotFound: There is no such experience.
        """
        found = await kept_experiences.retire(self._workspace, name, reason=reason, by=by)
        return found.is_new

    @operation(needs=lambda _: (trusts(Trust.QUERY, "egress"),), takes=Takes.LONG)
    async def egress(self, run: Name) -> list[SentOut]:
        """Return all egress of a run, in order: each executed call of a model, a page or a tool.

        Calls have their recorded arguments; a secret is replaced by its name. In SQL `model_inputs`
        has the inputs of models.

        Raises:
            NotFound: There is no such run.
        """
        return await left.what_left(self._workspace, run, Payloads(self._workspace))
