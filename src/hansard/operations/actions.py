"""Action caches and experiences of a record, each kept by name in versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from hansard.agents.artifacts import caches as kept_caches
from hansard.agents.artifacts import experiences as kept_experiences
from hansard.agents.artifacts.experiences import KeptVersion
from hansard.agents.policy import permits
from hansard.agents.policy.permits import Need, states, trusts
from hansard.bus.clock import OS_USER
from hansard.domain.actions import (
    ACTIONS,
    ActionCache,
    ActionsLookedAt,
    ActionsReverted,
    ActionsSaved,
    checked,
    compared,
    with_slots,
)
from hansard.domain.choices import NOTHING, by_name
from hansard.domain.experience.experience import (
    EXPERIENCES,
    Experience,
    ExperienceConfirmed,
    ExperienceRetired,
)
from hansard.domain.redaction import check_names
from hansard.domain.roles.authorize import Trust
from hansard.inspect import actions as kept_actions
from hansard.inspect import experience as found_experiences
from hansard.inspect.actions import ActionsLog, KeptCaches, action_cache
from hansard.inspect.experience import (
    HITS_MAX,
    ExperienceHits,
    ExperienceLog,
    KeptExperiences,
    Sentences,
    learned,
)
from hansard.inspect.trace import Payloads
from hansard.operations.declare import (
    Async,
    By,
    C_co,
    Name,
    Noun,
    Prose,
    Takes,
    composite,
    operation,
    trusted,
)
from hansard.projections.snapshots import Reader


def _states(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag), permits.actions())


def _confirms(tag: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (states(tag), permits.experiences())


def _logs(_: Any) -> tuple[Need, ...]:
    return trusts(Trust.QUERY, "experience_log"), permits.experiences()


def _reads(what: str) -> Callable[[Any], tuple[Need, ...]]:
    return lambda _: (trusts(Trust.QUERY, what), permits.actions())


class Actions(Noun[C_co], noun="actions"):
    """Action caches, kept by name in versions."""

    @operation(needs=_states(ActionsSaved.tag), shows=ACTIONS, begins=True)
    async def keep(
        self, name: Name, cache: ActionCache, *, reason: Prose = "", by: By = OS_USER
    ) -> int:
        """Keep an action cache in the record by a name, as its next version; return the version.

        A cache equal to the newest version adds none. It gets the label of the run that it is of,
        if that is in this record.

        Args:
            name: The name.
            cache: The result of `of_run`, or the content of a file.
            reason: The reason on record.
            by: The author on record.

        Raises:
            BadValue: The cache cannot be replayed.
            BadName: The name is malformed.
        """
        label = await self._context.label_of_runs([checked(cache).run])
        change = await kept_caches.save(
            self._workspace, name, cache, reason=reason, by=by, label=label
        )
        return change.version

    @operation(needs=lambda _: (permits.actions(),), shows=ACTIONS)
    async def get(self, name: Name, version: int | None = None) -> ActionCache:
        """Return a kept action cache, by default its newest version.

        When `AsyncBrowser.run_actions` replays it, elements that a model finds elsewhere become its
        next version.

        Raises:
            NotFound: There is no such cache, or its bytes were erased.
            Refused: There is no such version.
            BadName: The name is malformed.
        """
        return await kept_caches.get(self._workspace, name, version)

    @operation(needs=_reads("action_caches"), takes=Takes.LONG)
    async def list(self) -> KeptCaches:
        """List the kept action caches, with unreviewed heals.

        Raises ProjectionError, Refused as `sql`.
        """
        return await self._context.read(kept_actions.caches, "action_caches")

    @operation(needs=_reads("actions_log"), takes=Takes.LONG)
    async def log(self, name: Name) -> ActionsLog:
        """Return the changes of an action cache, and their reasons.

        Raises:
            NotFound: There is no such cache.
            ProjectionError, Refused: As `sql`.
        """
        return await self._context.read(partial(kept_actions.log, name=name), "actions_log", name)

    @operation(needs=_states(ActionsReverted.tag), shows=ACTIONS)
    async def revert(self, name: Name, to: int, *, reason: Prose = "", by: By = OS_USER) -> int:
        """Add an earlier version of an action cache again as the next one; return its number.

        Args:
            name: The cache's name.
            to: The version's number.
            reason: The reason on record.
            by: The author on record.

        Raises:
            NotFound: There is no such cache.
            Refused: There is no such version.
        """
        change = await kept_caches.revert(self._workspace, name, to, reason=reason, by=by)
        return change.version

    @operation(needs=_states(ActionsLookedAt.tag), shows=ACTIONS)
    async def review(
        self, name: Name, version: int | None = None, *, reason: Prose = "", by: By = OS_USER
    ) -> int:
        """Mark an action cache as reviewed, up to a version; return it.

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
        change = await kept_caches.review(self._workspace, name, version, reason=reason, by=by)
        return change.version

    @trusted
    async def of_run(
        self, run: str, *, params: Mapping[str, str] = NOTHING, other: str | None = None
    ) -> ActionCache:
        """Return the successful actions of a run on pages and by tools, as a cache to be replayed.

        Args:
            run: The run's id.
            params: Values to replace by slots, by the slot's name.
            other: Another run of the same actions: each argument that differs becomes a slot.

        Raises:
            NotFound: There is no such run.
            BadValue: The actions of the other run differ, or a text already contains a slot's name.
        """
        fetch = Payloads(self._workspace)
        cache = await action_cache(self._workspace, run, fetch)
        if other is not None:
            cache = compared(cache, await action_cache(self._workspace, other, fetch))
        return with_slots(cache, by_name("params", params))


class Experiences(Noun[C_co], noun="experiences"):
    """Experiences, kept by name in versions."""

    @composite
    async def get(self: Experiences[Async], name: Name, version: int | None = None) -> Experience:
        """Return a kept experience, by default its newest version. No code of it is run.

        `AsyncBrowser.run_experience(name)` replays it, if it may be used.

        Raises:
            NotFound: There is no such experience, or its bytes were erased.
            Refused: There is no such version.
            BadName, BadValue: The name is malformed.
        """
        kept = await self._get(name, version)
        return kept.experience

    @operation(needs=lambda _: (permits.experiences(),), shows=EXPERIENCES)
    async def _get(self, name: Name, version: int | None = None) -> KeptVersion:
        """Return a version of a kept experience, with its permitted use."""
        return await kept_experiences.get(self._workspace, name, version)

    @operation(needs=lambda _: (trusts(Trust.QUERY, "experiences"),), takes=Takes.LONG)
    async def list(self) -> KeptExperiences:
        """List the kept experiences, by name.

        Raises:
            ProjectionError, Refused: As `sql`.
        """
        return await self._context.read(found_experiences.experiences, "experiences")

    @operation(needs=_logs, takes=Takes.LONG)
    async def log(self, name: Name) -> ExperienceLog:
        """Return the history of an experience, oldest first.

        Raises:
            NotFound: There is no such experience.
            ProjectionError, Refused: As `sql`.
        """
        return await self._context.read(
            partial(found_experiences.log, name=name), "experience_log", name
        )

    @operation(needs=lambda _: (trusts(Trust.QUERY, "find_experience"),), takes=Takes.LONG)
    async def find(
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
            retired: Find retired ones, too.

        Raises:
            BadValue: No criterion is given, or one is invalid.
            BadQuery: The text has no words.
            ProjectionError, Refused: As `sql`.
        """
        query = found_experiences.ExperienceQuery(
            task=task, tools=tuple(tools), address=address, limit=limit, retired=retired
        )

        def reads(reader: Reader) -> ExperienceHits:
            with self._context.experience_index() as index:
                return found_experiences.find(reader, query, index)

        return await self._context.read(reads, "find_experience", task, address)

    @operation(needs=_confirms(ExperienceConfirmed.tag), shows=EXPERIENCES)
    async def confirm(
        self,
        name: Name,
        checks: Sequence[str] = (),
        *,
        digest: str = "",
        reason: Prose = "",
        by: By = OS_USER,
    ) -> int:
        """Confirm an experience's check functions; return the new version.

        It may then act with them. A heal counts as reviewed, and a retired or quarantined
        experience may be used again.

        Args:
            name: The experience's name.
            checks: Only these of the proposed checks.
            digest: The digest, or its beginning, of the version that was reviewed; by default the
                newest. Required for one from a pack.
            reason: The finding.
            by: The confirming person on record.

        Raises:
            NotFound: There is no such experience.
            BadValue: No proposed check has that name, or a required digest is missing.
            Refused: No version has that digest.
        """
        change = await kept_experiences.confirm(
            self._workspace, name, [*checks], digest=digest, reason=reason, by=by
        )
        return change.version

    @operation(needs=_confirms(ExperienceRetired.tag), shows=EXPERIENCES)
    async def retire(self, name: Name, *, reason: Prose = "", by: By = OS_USER) -> bool:
        """Retire an experience until a version is confirmed again; return False if it already is.

        Args:
            name: The experience's name.
            reason: The reason on record.
            by: The author on record.

        Raises:
            NotFound: There is no such experience.
        """
        change = await kept_experiences.retire(self._workspace, name, reason=reason, by=by)
        return change.is_new

    @trusted
    async def learn(
        self,
        name: str,
        runs: Sequence[str],
        *,
        tasks: Mapping[str, str] = NOTHING,
        params: Mapping[str, Mapping[str, str]] = NOTHING,
        description: str = "",
        plan: Sentences | None = None,
        lessons: Sentences | None = None,
        parent: Experience | None = None,
    ) -> Experience:
        """Learn an experience from runs of one kind of task, without a model.

        It is a graph of their actions, with slots for the values that differ. It has no check
        functions until a person confirms them.

        Args:
            name: The experience's name: `[a-z0-9-]`.
            runs: Ids of runs; actions are learned only from those that succeeded.
            tasks: The task's text, by run; by default the first message of a user in it.
            params: Values by run, each by the name of its slot, the same slots for each run. A
                value is a slot wherever it occurs as a word in the run's task and actions. Needed
                if two values are adjacent in the task.
            description: What the experience is for.
            plan: A function of an `actions.LearnedFrom` that returns the plan as `actions.Lesson`s;
                it may call a model. A lesson that refers to no step of a successful run is dropped,
                and counted.
            lessons: The same for what to do and to avoid; these may refer to runs that failed.
            parent: The experience to extend: its runs are learned from, too, and the result is its
                next version.

        Raises:
            NotFound: There is no such run.
            BadValue: A run has no task text, the runs are of several kinds of task, no two of them
                have the same actions, a value of `params` is nowhere in its run, a slot holds
                adjacent values, or a function returned no lessons.
        """
        named = by_name("tasks", tasks)
        values = by_name("params", params)
        return await learned(
            self._workspace,
            name,
            [*runs],
            named,
            description,
            params={run: by_name(f"params[{run!r:.80}]", each) for run, each in values.items()},
            plan=plan,
            lessons=lessons,
            parent=parent,
        )

    @trusted
    async def keep(self, experience: Experience, *, reason: str = "", by: str = OS_USER) -> int:
        """Keep an experience in the record as the next version of its name; return the version.

        An experience equal to the newest version adds none, nor does one of which the newest
        version is a heal, or that a person has confirmed since: that version stays in use. It gets
        the label of the runs that it was learned from.

        Args:
            experience: The result of `learn`.
            reason: The reason on record.
            by: The author on record.

        Raises:
            BadValue: The experience could not be read back.
        """
        names = {"name": experience.name}
        check_names("record.experiences.keep", names, self._workspace.redaction)
        runs = (*experience.sources, *experience.failed)
        label = await self._context.label_of_runs(runs)
        kept = await kept_experiences.keep(
            self._workspace, experience, reason=reason, by=by, label=label
        )
        return kept.version
