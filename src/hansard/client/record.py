"""The record: begins, joins, resumes, replays and forks runs.

Long because a record is one class, with the arguments and errors of each method. Its methods are
written once, in `AsyncRecord`; `Record` runs them on the loop of the process
(`hansard.agents.flow`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

import msgspec

from hansard.agents import runs as opening
from hansard.agents.access import roles
from hansard.agents.access.principals import Lowering, declassify
from hansard.agents.annotations.windows import Conversation, conversation
from hansard.agents.artifacts import experiences
from hansard.agents.artifacts.experiences import (
    InstalledBundle,
    PublishedBundle,
    install,
    publish,
)
from hansard.agents.artifacts.versions import label_of_runs
from hansard.agents.errors import ToolError
from hansard.agents.experiments import plans as experiments
from hansard.agents.experiments import scoring
from hansard.agents.experiments.scoring import Evaluated, Evaluation
from hansard.agents.memory.store import MemoryStore
from hansard.agents.memory.twins import AsyncMemorySpace, MemorySpace
from hansard.agents.policy.approvals import ListedApproval, listed
from hansard.agents.runs import fork
from hansard.agents.steps.scope import ambient, guard_secrets, kept
from hansard.agents.workspace import RunFilter, RunQuery, Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.portal import Portal
from hansard.client.beginning import end_session
from hansard.client.common import AsyncCommonRecord, CommonRecord, waits
from hansard.client.open_tables import OpenTables, Tables
from hansard.client.optimizing import (
    Evaluate,
    Optimized,
    OptimizeOptions,
    Propose,
    optimize,
    optimize_async,
    optimize_request,
)
from hansard.client.options import (
    Defaults,
    RunOptions,
    session_options,
)
from hansard.client.session import (
    AsyncCommonSession,
    AsyncSession,
    CommonSession,
    Session,
    SessionRankers,
    async_session_of,
)
from hansard.client.session import opened as made
from hansard.domain.actions.cache import ActionCache, compared, with_slots
from hansard.domain.approval import ApprovalStatus
from hansard.domain.choices import NOTHING, by_name, chosen, first
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience.experience import Experience
from hansard.domain.experiment import ExperimentRegistered, ExperimentState
from hansard.domain.label import Label
from hansard.domain.memory.events import ORG
from hansard.domain.prompt import PromptText
from hansard.domain.redaction import Redaction, check_names
from hansard.domain.roles.model import RoleDefined
from hansard.domain.run import ForkEffects, RunState
from hansard.domain.snapshot import Snapshot
from hansard.inspect import experience as found_experiences
from hansard.inspect import experiments as inspected
from hansard.inspect import state as snapshots
from hansard.inspect.actions import action_cache
from hansard.inspect.answer import Answer
from hansard.inspect.experience import ExperienceHits, Sentences, learned
from hansard.inspect.experiments import PromptLog
from hansard.inspect.trace import Payloads
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.snapshots import Reader
from hansard.state.replay import RunView

A = TypeVar("A")
R = TypeVar("R", bound=Answer)


def sessions() -> list[CommonSession | AsyncCommonSession]:
    """Return the open sessions of this process that `record.open` returned, the oldest first.

    A call of a `@hansard.tool` outside any block goes to such a session if there is exactly one.
    """
    return kept()


S = TypeVar("S", bound=CommonSession | AsyncCommonSession)


@overload
def current_session() -> CommonSession: ...
@overload
def current_session(kind: type[S]) -> S: ...
def current_session(kind: type[Any] = CommonSession) -> Any:
    """Return the session to which a call of a `@hansard.tool` would go here.

    It is that of the innermost block, else the only one that `record.open` opened.

    Args:
        kind: The class that the caller relies on, such as `hansard.AsyncSession`.

    Raises:
        ToolError: No session is current, several are open outside any block, or the current one is
            not of this class.
    """
    session = ambient("hansard.current_session()")
    if not isinstance(session, kind):
        message = (
            f"the current session is a {type(session).__name__}, not a {kind.__name__}: call "
            f"hansard.current_session(hansard.{type(session).__name__})"
        )
        raise ToolError(message)
    return session


def _names_of(plan: ExperimentRegistered) -> dict[str, object]:
    """Return the parts of a plan that are used as names elsewhere."""
    return {
        "arms": [arm.name for arm in plan.arms],
        "metrics": [metric.name for metric in plan.metrics],
        "unit": plan.unit,
        "cluster": plan.cluster,
    }


def _rules_of(rules: RoleDefined) -> object:
    """Return the parts of a role's rules that are used as names elsewhere: all but `about`."""
    return msgspec.to_builtins(msgspec.structs.replace(rules, about=""))


def _brief_of(record: object, workspace: Workspace) -> dict[str, Any]:
    log = workspace.log
    return {
        "workspace": log.workspace,
        "durability": log.durability,
        "sessions": first(kept(record), lambda each: f"{each.agent} in run {each.run}"),
    }


SyncTwin = Callable[[Workspace, Portal, Defaults, OpenTables | None], Any]
"""Builds the record of the sync client, for code that blocks in a thread."""


@guard_secrets("record")
class AsyncRecord(AsyncCommonRecord[AsyncSession]):
    """A workspace's record for the async client. Returned by `hansard.connect_async`.

    A method that writes returns once the write is acknowledged.
    """

    def __init__(
        self,
        workspace: Workspace,
        defaults: Defaults,
        tables: OpenTables | None,
        sync: SyncTwin,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.workspace = self._workspace = workspace.redacting(defaults.redact)
        self._defaults = defaults
        self._open_tables = tables
        self._sync = sync
        self._loop = loop
        self._tables: Tables | None = None
        self._native_place: Any = None

    def _read(self, reads: Callable[[Reader], R], what: str, *words: object) -> Awaitable[R]:
        del what, words
        return self._opened_tables().read(reads)

    def _ask(
        self,
        what: str,
        statement: str,
        parameters: Sequence[object],
        tables: Mapping[str, Any] = NOTHING,
    ) -> Awaitable[SqlAnswer]:
        del what
        return self._opened_tables().ask(statement, tuple(parameters), tables)

    def _find(self, reader: Reader, query: found_experiences.ExperienceQuery) -> ExperienceHits:
        return found_experiences.find(reader, query, self._experience_index)

    async def _label_of_runs(self, runs: Sequence[str]) -> Label | None:
        return await label_of_runs(self.workspace, runs)

    @property
    def _redaction(self) -> Redaction | None:
        """The redaction applied to all that is recorded here."""
        return self.workspace.redaction

    def _opened_tables(self) -> Tables:
        """Return the tables; open them at the first query. Raises Refused if there are none."""
        if self._tables is None:
            if self._open_tables is None:
                message = (
                    "a record in memory has no SQL tables: connect to a workspace with a broker"
                )
                raise Refused(message)
            self._tables = self._open_tables()
        return self._tables

    @functools.cached_property
    def _experience_index(self) -> found_experiences.ExperienceIndex:
        """The index of the last search for experiences; the next search updates it."""
        from hansard.projections.file_search import FileWords  # noqa: PLC0415 -- takes sqlite

        return found_experiences.ExperienceIndex(FileWords())

    async def _closed(self) -> None:
        if "_experience_index" in self.__dict__:
            self._experience_index.close()
        if self._native_place is not None:
            from hansard.state import native  # noqa: PLC0415 -- it is loaded already

            native.close_place(self._native_place)
        try:
            if self._tables is not None:
                await self._tables.close()
        finally:
            await self.workspace.close()

    def application_env(self) -> dict[str, str]:
        """Return environment variables that connect `eventsourcing` applications to this record.

        For code that creates applications itself, such as `SingleThreadedRunner(system,
        env=record.application_env())`. They are valid in this process, while the record is open.
        """
        from hansard.state import native  # noqa: PLC0415 -- most programs need no library

        if self._native_place is None:
            log, blobs = self.workspace.log, self.workspace.blobs
            self._native_place = native.Place(
                log, blobs, self.workspace.clock, self._loop or asyncio.get_running_loop()
            )
        return native.environment_of(self._native_place)

    def application(
        self, cls: Callable[[dict[str, str]], A], *, env: Mapping[str, str] = NOTHING
    ) -> A:
        """Create an application of the `eventsourcing` library on this record.

        Its events go to the same streams as those of sessions, under the same names and tags,
        without a step.

        The library blocks, so its calls must be made where no event loop runs; with the async
        client in a thread, `await asyncio.to_thread(app.open_account, "ada")`. Otherwise they raise
        `SyncInLoop`.

        Args:
            cls: The application's class. Its aggregates must be declared
                (`hansard.aggregate_type`).
            env: Further variables of the library: `AGGREGATES` names the aggregates that its
                notification log contains; all declared ones by default.
        """
        return cls({**env, **self.application_env()})

    def _memory_of(self, space: str) -> MemoryStore:
        return MemoryStore(self.workspace, space)

    def _place(self) -> str:
        return self.workspace.command

    def _brief(self) -> dict[str, Any]:
        return _brief_of(self, self.workspace)

    async def _disconnect(self) -> None:
        await self._closed()

    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncSession:
        request = session_options(self._defaults, workflow, options)
        acting = self._defaults.acting(agent, role)
        opened = await opening.open_agent_here(self.workspace, *acting, request)
        ending = partial(end_session, self.workspace, opened, self._defaults.report)
        return async_session_of(opened.engine, opened.arm, ending)

    def memory(self, space: str = ORG) -> AsyncMemorySpace:
        """Return a memory space: its files, for trusted people and programs.

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: The space's name is none of these.
        """
        return AsyncMemorySpace(self._memory_of(space), SessionRankers())

    async def evaluate(
        self,
        runs: Iterable[str],
        evaluator: Callable[[RunView], Any],
        *,
        by: str,
        again: bool = False,
    ) -> Evaluated:
        """Judge runs by a function or coroutine function; see `Record.evaluate`."""
        work = Evaluation(self.workspace, by, again=again)
        return await scoring.evaluate_async(work, runs, evaluator)

    async def optimize(
        self,
        reference: str,
        tasks: Mapping[str, Any],
        *,
        evaluate: Callable[[PromptText, Any], Any],
        propose: Callable[[str, Sequence[Mapping[str, Any]]], Any],
        **options: Unpack[OptimizeOptions],
    ) -> Optimized:
        """Optimize a prompt; see `Record.optimize`.

        `evaluate` and `propose` may be coroutine functions, which run on this loop: each call of
        one is a step, and no tool declared in Hansard may be called inside it. Plain functions run
        in a thread. After a cancellation, calling it again resumes the optimization.
        """
        made = optimize_request(reference, tasks, evaluate, propose, options)
        check_names("record.optimize", {"tasks": list(made.tasks)}, self.workspace.redaction)
        return await optimize_async(
            made,
            lambda portal: self._sync(self.workspace, portal, self._defaults, self._open_tables),
        )

    async def fork(
        self,
        run: str,
        *,
        at: object = None,
        effects: ForkEffects | str = ForkEffects.SHADOW,
        labels: Mapping[str, str] = NOTHING,
    ) -> str:
        """Fork a run: begin a new one at a point of another; return its id.

        It is one commit, whatever the length of the run.

        Args:
            run: The parent.
            at: The point of the parent at which the fork begins; its end by default.
            effects: `SHADOW`: tools with effects return the parent's outcome or their `shadow=`,
                else raise `ShadowedEffect`. `LIVE`: they run.
            labels: Texts by name, to find the run by.

        Raises:
            NotFound: There is no such run or point.
            BadName: `at` is not a point.
        """
        named = by_name("labels", labels)
        return await fork(self.workspace, run, at, chosen(ForkEffects, effects, "effects"), named)

    async def state(self, run: str, at: object = None) -> RunView:
        """Return the state of a run, its agents and shared state, at a point; by default now.

        Raises:
            NotFound: There is no such run or point.
            BadName: `at` is not a point.
        """
        return await self.workspace.points.view(run, at)

    async def actions(
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
        fetch = Payloads(self.workspace)
        found = await action_cache(self.workspace, run, fetch)
        if other is not None:
            found = compared(found, await action_cache(self.workspace, other, fetch))
        return with_slots(found, by_name("params", params))

    async def experience(
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
            self.workspace,
            name,
            list(runs),
            named,
            description,
            params={run: by_name(f"params[{run!r:.80}]", each) for run, each in values.items()},
            plan=plan,
            lessons=lessons,
            parent=parent,
        )

    async def keep_experience(
        self, experience: Experience, *, reason: str = "", by: str = OS_USER
    ) -> int:
        """Keep an experience in the record as the next version of its name; return the version.

        An experience equal to the newest version adds none, nor does one of which the newest
        version is a heal, or that a person has confirmed since: that version stays in use. It gets
        the label of the runs that it was learned from.

        Args:
            experience: The result of `experience`.
            reason: The reason on record.
            by: The author on record.

        Raises:
            BadValue: The experience could not be read back.
        """
        names = {"name": experience.name}
        check_names("record.keep_experience", names, self.workspace.redaction)
        label = await label_of_runs(self.workspace, (*experience.sources, *experience.failed))
        keep = experiences.keep
        kept = await keep(self.workspace, experience, reason=reason, by=by, label=label)
        return kept.version

    async def publish_experience(
        self,
        name: str,
        path: str | Path,
        *,
        license: str,  # noqa: A002 -- the usual name
        key: str | Path | None = None,
        version: int | None = None,
        reason: str = "",
        by: str = OS_USER,
    ) -> PublishedBundle:
        """Write a version of an experience to a bundle file for others, signed if a key is given.

        Args:
            name: The experience's name.
            path: The file to write.
            license: The license: an SPDX expression, or text.
            key: A file with a private Ed25519 key in PEM.
            version: The version; the newest by default.
            reason: The reason on record.
            by: The publisher on record.

        Raises:
            NotFound: There is no such experience.
            Refused: The experience has a label, or may not be used.
            BadValue: The experience seems to hold a secret or personal value, the file exists with
                other content, or the key is invalid.
        """
        return await publish(
            self.workspace,
            name,
            Path(path),
            terms=license,
            key=Path(key) if key is not None else None,
            point="" if version is None else str(version),
            reason=reason,
            by=by,
        )

    async def install_experience(
        self,
        path: str | Path,
        *,
        name: str = "",
        key: str | Path | None = None,
        reason: str = "",
        by: str = OS_USER,
    ) -> InstalledBundle:
        """Keep the experience of a bundle, untrusted.

        It is not replayed until a person confirms its digest with `confirm_experience`. No code of
        it is run.

        Args:
            path: The bundle.
            name: The name in the record; by default the bundle's own.
            key: A file with a public Ed25519 key (PEM) that must have signed it.
            reason: The reason on record.
            by: The installer on record.

        Raises:
            BadValue: The file is not a bundle, was changed, or is not signed by that key; nothing
                was kept.
            Refused: The name is in use by an experience that did not come in bundles of the same
                key.
        """
        given = Path(key) if key is not None else None
        return await install(self.workspace, Path(path), name=name, key=given, reason=reason, by=by)

    async def snapshots(
        self, run: str, *, agent: str | None = None, at: object = None
    ) -> list[Snapshot]:
        """Return the chain of snapshots of each agent of a run.

        The chain is the agent's initial request, the state before and after each call, and its
        final state; each names the one before it.

        Args:
            run: The run's id.
            agent: Only the snapshots of this agent.
            at: Only those up to this point; by default now.

        Raises:
            NotFound: There is no such run, agent or point.
        """
        return await snapshots.of_run(self.workspace, run, agent, at)

    async def snapshot(self, snapshot: str, *, run: str | None = None) -> Snapshot:
        """Return a snapshot by its id; every version of an agent's stream has one.

        Args:
            snapshot: The snapshot's id.
            run: The run that it belongs to. Without it the runs are read one after the other, the
                newest first, which is slow if there are many.

        Raises:
            NotFound: No snapshot has this id.
        """
        return await snapshots.one(self.workspace, snapshot, run)

    @contextlib.asynccontextmanager
    async def replay_from(
        self,
        snapshot: str | Snapshot,
        *,
        effects: ForkEffects | str = ForkEffects.SHADOW,
        **options: Unpack[RunOptions],
    ) -> AsyncGenerator[AsyncSession, None]:
        """Open a session that continues from a snapshot, as its agent.

        From the agent's newest snapshot (no call began or ended after it) the run is resumed; from
        an older one it is forked, and `session.run` is the fork's id.

        Args:
            snapshot: The snapshot, or its id; `run=` then names its run (see `snapshot`).
            effects: The treatment of tools with effects in a fork: see `fork`.
            **options: See `RunOptions`.

        Raises:
            NotFound: No snapshot has this id.
        """
        found = snapshot
        if not isinstance(found, Snapshot):
            found = await self.snapshot(found, run=options.get("run"))
        named: Any = dict(options)
        named["run"] = found.run
        if not await snapshots.is_newest(self.workspace, found):
            named["run"] = await self.fork(found.run, at=found.snapshot_id, effects=effects)
        async with self.run(agent=found.agent, role=found.role, **named) as session:
            yield session

    async def runs(self, **request: Unpack[RunQuery]) -> list[tuple[str, RunState]]:
        """List runs with their state, newest first. Filters combine with AND.

        The filters are status, workflow, agent and role (of an agent that ever joined), experiment
        (of trials), since and until (the start of the run, a time with a zone). Raises BadOption,
        BadValue.
        """
        return await self.workspace.runs(RunFilter.of(request))

    async def conversation(self, name: str, *, before: str | None = None) -> Conversation:
        """Return the turns of a conversation over its runs, and the context to continue from.

        `before` is a run of it: only earlier turns are returned, also if that run is resumed.
        """
        return await conversation(self.workspace, name, before)

    async def approvals(self, *, answered: bool = False) -> list[ListedApproval]:
        """List the questions of agents in all runs that wait for an answer, oldest first.

        With `answered`, also those that were granted or denied, or that expired.
        """
        found = await listed(self.workspace)
        return [each for each in found if answered or each.standing is ApprovalStatus.PENDING]

    async def register(
        self,
        name: str,
        plan: ExperimentRegistered,
        *,
        replace: bool = False,
        reason: str = "",
        by: str = OS_USER,
    ) -> bool:
        """Register an experiment; return False if it is already registered with the same plan.

        With `replace` this plan replaces the registered one, which is allowed until a run of it
        begins; `reason` then explains it. Reads the state of every run.

        Raises:
            Refused: The experiment has another plan; the message shows the difference. With
                `replace`: a run of it began, it is stopped, or it is not registered.
            BadName, BadValue: A name is malformed, or the plan contradicts itself.
        """
        check_names("record.register", _names_of(plan), self.workspace.redaction)
        if replace:
            return await experiments.replace(self.workspace, name, plan, reason=reason, by=by)
        if reason:
            fact = f"{reason!r:.80} without replace=True"
            raise BadValue("reason", fact, "give replace=True, or omit reason=")
        return await experiments.register(self.workspace, name, plan, by=by)

    async def stop(self, name: str, *, reason: str = "", by: str = OS_USER) -> bool:
        """Stop assigning runs to an experiment; return False if it is already stopped."""
        return await experiments.stop(self.workspace, name, reason=reason, by=by)

    async def experiment(self, name: str) -> ExperimentState:
        """Return the present state of an experiment; one that is not registered has no plan."""
        return await experiments.state(self.workspace, name)

    async def score(
        self, run: str, metrics: Mapping[str, float], *, by: str, reason: str = ""
    ) -> bool:
        """Record metrics of a run; return False if the same judge's last ones are equal.

        Args:
            run: The run.
            metrics: Finite numbers by name.
            by: The judge on record.
            reason: The reason on record.

        Raises:
            NotFound: There is no such run.
            BadName, BadValue: A name is malformed, or a metric is not a finite number.
        """
        named = by_name("metrics", metrics)
        return await scoring.score(self.workspace, run, named, by=by, reason=reason)

    async def price(
        self,
        model: str,
        amounts: Mapping[str, float],
        *,
        since: datetime,
        currency: str = "USD",
        source: str = "",
        by: str = OS_USER,
    ) -> bool:
        """Record the price of a model; return False if all of it is already on record.

        Args:
            model: The model.
            amounts: The price of a million of each usage, such as `{"input_tokens": 2.5}`.
            since: The time from which the price applies.
            currency: The currency.
            source: The source of the price.
            by: The author on record.

        Raises:
            BadName, BadValue: A name is malformed, an amount is not a finite number, or none is
                given.
        """
        named = by_name("amounts", amounts)
        source = self.workspace.text(source)
        terms = scoring.Terms(since=since, currency=currency, source=source)
        return await scoring.state(self.workspace, model, named, terms, by=by)

    async def prompt_log(self, name: str) -> PromptLog:
        """Return the versions of a prompt with mean scores of their runs, and its alias history.

        It is the output of `hansard prompt log`.

        Raises:
            NotFound: There is no such prompt.
            ProjectionError, Refused: As `sql`.
        """
        return await self._opened_tables().read(lambda reader: inspected.log(reader, name))

    async def apply_role(self, name: str, rules: RoleDefined, *, by: str = OS_USER) -> bool:
        """Set the rules of a role, replacing earlier ones; return False if they are unchanged.

        Usually roles are set from a file, with `apply_roles`.

        Raises:
            BadName, BadValue: A rule is invalid; the message names it.
        """
        check_names("record.apply_role", {"rules": _rules_of(rules)}, self.workspace.redaction)
        return await roles.apply(self.workspace, name, rules, by=by)

    async def declassify(
        self,
        run: str | None = None,
        *,
        agent: str | None = None,
        key: str | None = None,
        principal: str | None = None,
        to: str = "",
        approver: str,
        reason: str,
        role: str | None = None,
    ) -> Label:
        """Lower the label of an agent, a key of a run, or a principal; return the earlier label.

        An open session of the agent is fenced; a principal's sessions end.

        Args:
            run: The run; None for a principal.
            agent: The agent whose label is lowered, or
            key: the key of shared state, or
            principal: the principal. Give one of the three.
            to: The new label, such as `untrusted`; public and trusted if empty.
            approver: The person who answers for it.
            reason: The reason why it may be lowered.
            role: The role that the approver acts in; it must have `approve`.

        Raises:
            Refused: The new label is not lower.
            NotFound: There is no such run, agent or key.
            RoleRefused: The role may not approve.
            BadName, BadValue: A name is malformed, or `reason` is empty.
        """
        lowering = Lowering(
            agent=agent,
            key=key,
            principal=principal,
            to=to,
            approver=approver,
            because=reason,
            role=role,
        )
        return await declassify(self.workspace, run, lowering)

    async def apply_roles(
        self, path: str | os.PathLike[str], *, by: str = OS_USER
    ) -> dict[str, bool]:
        """Set the rules of each role in a TOML file; return by role whether they changed.

        All rules are checked before the first is set. It is what `hansard roles apply FILE` does.

        Args:
            path: The file (docs/roles.md).
            by: The author on record.

        Raises:
            BadName, BadValue: The file or a rule is invalid; the message names the place. No role
                has changed.
            NotOffered: A restricted agent may not set rules.
        """
        found = roles.read_file(path)
        items = [_rules_of(rules) for rules in found.values()]
        names = {"roles": [*found], "by": by, "rules": items}
        check_names("record.apply_roles", names, self.workspace.redaction)
        return await roles.apply_all(self.workspace, found, by=by)


@guard_secrets("record")
class Record(CommonRecord[Session]):
    """A workspace's record for the sync client. Returned by `hansard.connect`.

    A method that writes returns once the write is acknowledged.
    """

    def __init__(
        self,
        workspace: Workspace,
        portal: Portal,
        defaults: Defaults,
        tables: OpenTables | None = None,
    ) -> None:
        self._async: AsyncRecord = AsyncRecord(workspace, defaults, tables, Record, portal.loop)
        self.workspace = self._async.workspace
        self._portal = portal
        self._defaults = defaults

    @property
    def _redaction(self) -> Redaction | None:
        return self.workspace.redaction

    fork = waits(AsyncRecord.fork)
    state = waits(AsyncRecord.state)
    actions = waits(AsyncRecord.actions)
    experience = waits(AsyncRecord.experience)
    keep_experience = waits(AsyncRecord.keep_experience)
    publish_experience = waits(AsyncRecord.publish_experience)
    install_experience = waits(AsyncRecord.install_experience)
    snapshots = waits(AsyncRecord.snapshots)
    snapshot = waits(AsyncRecord.snapshot)
    runs = waits(AsyncRecord.runs)
    conversation = waits(AsyncRecord.conversation)
    approvals = waits(AsyncRecord.approvals)
    register = waits(AsyncRecord.register)
    stop = waits(AsyncRecord.stop)
    experiment = waits(AsyncRecord.experiment)
    score = waits(AsyncRecord.score)
    price = waits(AsyncRecord.price)
    prompt_log = waits(AsyncRecord.prompt_log)
    apply_role = waits(AsyncRecord.apply_role)
    declassify = waits(AsyncRecord.declassify)
    apply_roles = waits(AsyncRecord.apply_roles)

    def application_env(self) -> dict[str, str]:
        """See `AsyncRecord.application_env`."""
        return self._async.application_env()

    def application(
        self, cls: Callable[[dict[str, str]], A], *, env: Mapping[str, str] = NOTHING
    ) -> A:
        """See `AsyncRecord.application`."""
        return self._async.application(cls, env=env)

    def _disconnect(self) -> None:
        self._portal.release(self._async._disconnect())  # noqa: SLF001 -- of the async client that it waits for

    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> Session:
        begin = opening.open_agent(
            self.workspace,
            *self._defaults.acting(agent, role),
            session_options(self._defaults, workflow, options),
            self._portal.post,
            self._portal.future,
        )
        opened = self._portal.run(begin)
        ending = partial(end_session, self.workspace, opened, self._defaults.report)
        return made(opened.engine, opened.arm, self._portal, ending)

    def memory(self, space: str = ORG) -> MemorySpace:
        """Return a memory space: its files, for trusted people and programs.

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: The space's name is none of these.
        """
        return MemorySpace(MemoryStore(self.workspace, space), SessionRankers(), self._portal)

    def evaluate(
        self,
        runs: Iterable[str],
        evaluator: Callable[[RunView], Any],
        *,
        by: str,
        again: bool = False,
    ) -> Evaluated:
        """Judge runs by a function, one after another.

        Args:
            runs: The runs' ids.
            evaluator: A function of a run's `RunView` that returns metrics as a dict. If it raises,
                that run is left unjudged, and the others are judged.
            by: The judge on record.
            again: True to judge also the runs that `by` has judged; by default they are skipped.

        Raises:
            NotFound: There is no such run.
            BadValue: `evaluator` is a coroutine function: use the async client.
        """
        work = Evaluation(self.workspace, by, again=again)
        return scoring.evaluate(work, runs, evaluator, self._portal.run)

    def optimize(
        self,
        reference: str,
        tasks: Mapping[str, Any],
        *,
        evaluate: Evaluate,
        propose: Propose,
        **options: Unpack[OptimizeOptions],
    ) -> Optimized:
        """Optimize a prompt (docs/prompts.md).

        Candidates are proposed and evaluated on one part of the tasks. The best is compared with
        the base version on the held-out tasks, in an experiment that is registered first. An alias
        is moved if the verdict is *better*.

        The optimization is a run. After a kill, or an error of `evaluate` or `propose`, call it
        again: it is resumed, and results on record are not computed again.

        Args:
            reference: The version to begin with.
            tasks: The tasks, by name: values that can be recorded.
            evaluate: Returns the score of a text on a task, the higher the better.
            propose: Returns another text, from one and its result on each task.
            **options: See `OptimizeOptions`.

        Raises:
            BadValue: There are too few tasks, the budget is too small for them, or a function
                returned no score or no text.
            NotFound: There is no such prompt.
            Refused: The optimization began with other tasks, or there is no such version.
        """
        made = optimize_request(reference, tasks, evaluate, propose, options)
        check_names("record.optimize", {"tasks": list(made.tasks)}, self.workspace.redaction)
        return optimize(self, made)

    @contextlib.contextmanager
    def replay_from(
        self,
        snapshot: str | Snapshot,
        *,
        effects: ForkEffects | str = ForkEffects.SHADOW,
        **options: Unpack[RunOptions],
    ) -> Generator[Session, None, None]:
        """Open a session that continues from a snapshot, as its agent.

        From the agent's newest snapshot (no call began or ended after it) the run is resumed; from
        an older one it is forked, and `session.run` is the fork's id.

        Args:
            snapshot: The snapshot, or its id; `run=` then names its run (see `snapshot`).
            effects: The treatment of tools with effects in a fork: see `fork`.
            **options: See `RunOptions`.

        Raises:
            NotFound: No snapshot has this id.
        """
        found = snapshot
        if not isinstance(found, Snapshot):
            found = self.snapshot(found, run=options.get("run"))
        named: Any = dict(options)
        named["run"] = found.run
        if not self._portal.run(snapshots.is_newest(self.workspace, found)):
            named["run"] = self.fork(found.run, at=found.snapshot_id, effects=effects)
        with self.run(agent=found.agent, role=found.role, **named) as session:
            yield session

    def _place(self) -> str:
        return self.workspace.command

    def _brief(self) -> dict[str, Any]:
        return _brief_of(self, self.workspace)
