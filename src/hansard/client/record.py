"""The record: where runs are begun, joined, resumed, replayed and forked.

Long because a record is one class, with what each method takes and raises. Its methods are written
once, in `AsyncRecord`; `Record` runs them on the loop of the process (`hansard.agents.flow`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

import msgspec

from hansard.agents import opening
from hansard.agents.access import roles, views
from hansard.agents.access.views import View
from hansard.agents.actions import kept_experiences
from hansard.agents.actions import store as kept_caches
from hansard.agents.actions.experience_bundles import (
    InstalledBundle,
    PublishedBundle,
    install,
    publish,
)
from hansard.agents.annotations.conversations import Conversation, conversation
from hansard.agents.artifacts import label_of_runs
from hansard.agents.callables import is_coroutine_function
from hansard.agents.errors import ToolError
from hansard.agents.experiments import plans as experiments
from hansard.agents.experiments import scoring
from hansard.agents.experiments.scoring import Evaluated, Evaluation
from hansard.agents.flow import on_portal
from hansard.agents.memory.store import MemoryStore
from hansard.agents.memory.twins import AsyncMemorySpace, MemorySpace
from hansard.agents.policy.approvals import ListedApproval, answer, listed
from hansard.agents.policy.labels import Lowering, declassify
from hansard.agents.prompts import store
from hansard.agents.prompts import store as prompts
from hansard.agents.prompts.store import Evolver, Prompt
from hansard.agents.run_index import RunFilter, RunsWanted
from hansard.agents.runs import cancel, finish, fork, reopen, settle
from hansard.agents.steps import reused
from hansard.agents.steps.scope import ambient, guard_secrets, kept
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.portal import Portal
from hansard.client.beginning import ended
from hansard.client.common import AsyncSessions, SyncSessions
from hansard.client.open_tables import OpenTables, Tables
from hansard.client.optimizing import (
    Evaluate,
    Optimized,
    OptimizeOptions,
    Propose,
    optimize,
    optimize_async,
    wanted_of,
)
from hansard.client.options import (
    PRODUCTION,
    Defaults,
    Promotion,
    PromptAliasOptions,
    PromptVersionOptions,
    RunOptions,
    drafted,
    moving,
    wanted,
)
from hansard.client.options import promote as promoted
from hansard.client.reports import (
    AuditOptions,
    AuditQuestion,
    AuditReport,
    CompareOptions,
    ComparisonReport,
    DecisionList,
    DecisionReport,
    explained,
    question_of,
    shown,
)
from hansard.client.session import (
    AsyncCommonSession,
    AsyncSession,
    CommonSession,
    Session,
    SessionRankers,
    opened_async,
)
from hansard.client.session import opened as made
from hansard.client.sql_answer import SqlAnswer
from hansard.domain.actions.cache import ActionCache, checked, compared, with_slots
from hansard.domain.approval import ApprovalStatus
from hansard.domain.choices import NOTHING, by_name, chosen, first
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience.experience import Experience
from hansard.domain.experiment import ExperimentRegistered, ExperimentState
from hansard.domain.label import Label
from hansard.domain.memory.events import ORG
from hansard.domain.prompt import PromptText
from hansard.domain.redaction import Redaction, check_names
from hansard.domain.reuse import AnswersInvalidated
from hansard.domain.roles.model import RoleDefined
from hansard.domain.run import ForkEffects, RunState
from hansard.domain.snapshot import Snapshot
from hansard.domain.steps import Verdict
from hansard.inspect import actions as kept_actions
from hansard.inspect import kept_experiences as found_experiences
from hansard.inspect import prompts as inspected
from hansard.inspect import snapshots
from hansard.inspect.actions import ActionsLog, KeptCaches, action_cache
from hansard.inspect.comparison_parts import compare
from hansard.inspect.experience import Sentences, learned
from hansard.inspect.kept_experiences import ExperienceHits, ExperienceLog, KeptExperiences
from hansard.inspect.payloads import Payloads
from hansard.inspect.prompts import PromptEvidence, PromptLog, PromptReport
from hansard.inspect.savings import SavingsAnswer, Wanted, savings
from hansard.inspect.what_left import SentOut, what_left
from hansard.inspect.why import why
from hansard.state.replay import RunView

A = TypeVar("A")


def sessions() -> list[CommonSession | AsyncCommonSession]:
    """The sessions of this process that `record.open` opened and nobody has closed, the oldest
    first. A call of a `@hansard.tool` outside of any block goes to the only one of them.
    """
    return kept()


S = TypeVar("S", bound=CommonSession | AsyncCommonSession)


@overload
def current_session() -> CommonSession: ...
@overload
def current_session(kind: type[S]) -> S: ...
def current_session(kind: type[Any] = CommonSession) -> Any:
    """Return the session that a call of a `@hansard.tool` would go to here: that of the innermost
    block, else the only one that `record.open` opened.

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
    """What of a plan others go by."""
    return {
        "arms": [arm.name for arm in plan.arms],
        "metrics": [metric.name for metric in plan.metrics],
        "unit": plan.unit,
        "cluster": plan.cluster,
    }


def _rules_of(rules: RoleDefined) -> object:
    """What of a role's rules others go by: all but what they are about."""
    return msgspec.to_builtins(msgspec.structs.replace(rules, about=""))


class _OfWorkspace:
    """What both twins have of their workspace."""

    workspace: Workspace
    _defaults: Defaults
    _open_tables: OpenTables | None
    _tables: Tables | None = None
    _lent: Any = None

    @property
    def _redaction(self) -> Redaction | None:
        """What is taken out of all that is recorded here."""
        return self.workspace.redaction

    @abstractmethod
    def _its_loop(self) -> asyncio.AbstractEventLoop:
        """The loop that the log is used on."""

    def _asked(self) -> Tables:
        """The tables, from the first question on. Raises Refused where there are none."""
        if self._tables is None:
            if self._open_tables is None:
                message = "a record in memory has no tables: connect to a workspace that has"
                raise Refused(message)
            self._tables = self._open_tables()
        return self._tables

    @functools.cached_property
    def _experience_index(self) -> found_experiences.ExperienceIndex:
        """The experiences that were searched last: the next search takes in what differs."""
        from hansard.projections.search.files import FileWords  # noqa: PLC0415 -- takes sqlite

        return found_experiences.ExperienceIndex(FileWords())

    async def _closed(self) -> None:
        if "_experience_index" in self.__dict__:
            self._experience_index.close()
        if self._lent is not None:
            from hansard.state.recorder import native  # noqa: PLC0415 -- it is loaded already

            native.taken_back(self._lent)
        try:
            if self._tables is not None:
                await self._tables.close()
        finally:
            await self.workspace.close()

    def application_env(self) -> dict[str, str]:
        """The environment by which applications of the `eventsourcing` library read and write the
        streams of this record: for what makes them itself, such as
        `SingleThreadedRunner(system, env=record.application_env())`. It is good in this process,
        while the record is open.
        """
        from hansard.state.recorder import native  # noqa: PLC0415 -- most programs need no library

        if self._lent is None:
            log, blobs = self.workspace.log, self.workspace.blobs
            self._lent = native.Place(log, blobs, self.workspace.clock, self._its_loop())
        return native.lent(self._lent)

    def application(
        self, cls: Callable[[dict[str, str]], A], *, env: Mapping[str, str] = NOTHING
    ) -> A:
        """An application of the `eventsourcing` library on this record: what it saves stands in the
        same streams as what sessions save, under the same names and tags, without a step.

        The library waits where it is called, so its calls must be made where no event loop runs;
        with the async client in a thread, `await asyncio.to_thread(app.open_account, "ada")`. Else
        they raise `SyncInLoop`.

        Args:
            cls: The application's class. Its aggregates are declared (`hansard.aggregate_type`).
            env: More of the library's variables: `AGGREGATES` names those aggregates of which its
                notification log tells, all that are declared if it is not given.
        """
        return cls({**env, **self.application_env()})

    async def _viewed(
        self, run: str, at: object, role: str | None, key: bytes | None, by: str
    ) -> View:
        if role is None:
            raise BadValue("view", "no role is given", "say as which role: view(run, role=...)")
        return (await views.serve(self.workspace, role, run, at, by=by, key=key)).view

    async def _applied(self, path: str | os.PathLike[str], by: str) -> dict[str, bool]:
        found = roles.read_file(path)
        told = [_rules_of(rules) for rules in found.values()]
        names = {"roles": [*found], "by": by, "rules": told}
        check_names("record.apply_roles", names, self.workspace.redaction)
        return await roles.apply_all(self.workspace, found, by=by)

    def _memory_of(self, space: str) -> MemoryStore:
        return MemoryStore(self.workspace, space)

    def _place(self) -> str:
        return self.workspace.command

    def _brief(self) -> dict[str, Any]:
        log = self.workspace.log
        return {
            "workspace": log.workspace,
            "durability": log.durability,
            "sessions": first(kept(self), lambda each: f"{each.agent} in run {each.run}"),
        }


SyncTwin = Callable[[Workspace, Portal, Defaults, OpenTables | None], Any]
"""Makes the record of the sync client, for what waits in a thread."""


@guard_secrets("record")
class OnPortal(_OfWorkspace, SyncSessions[Session]):
    """What the sync twin does its own way: it waits for the bus's loop in another thread."""

    def __init__(
        self,
        workspace: Workspace,
        portal: Portal,
        defaults: Defaults,
        tables: OpenTables | None = None,
    ) -> None:
        self.workspace = workspace.redacting(defaults.redact)
        self._portal = portal
        self._defaults = defaults
        self._open_tables = tables

    def _its_loop(self) -> asyncio.AbstractEventLoop:
        return self._portal.loop

    def _let_go(self) -> None:
        self._portal.release(self._closed())

    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> Session:
        begin = opening.open_agent(
            self.workspace,
            *self._defaults.acting(agent, role),
            wanted(self._defaults, workflow, options),
            self._portal.post,
            self._portal.future,
        )
        opened = self._portal.run(begin)
        ending = partial(ended, self.workspace, opened, self._defaults.report)
        return made(opened.engine, opened.arm, self._portal, ending)

    def memory(self, space: str = ORG) -> MemorySpace:
        """A space of memory: its files, for people and programs that are trusted with them.

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: It is none of these.
        """
        return MemorySpace(self._memory_of(space), SessionRankers(), self._portal)

    def evaluate(
        self,
        runs: Iterable[str],
        evaluator: Callable[[RunView], Any],
        *,
        by: str,
        again: bool = False,
    ) -> Evaluated:
        """Have a function judge runs, one after another.

        Args:
            runs: Their ids.
            evaluator: It is given each run's `RunView`, and returns metrics as a dict. A run of
                which it raises is left unjudged, and the others are judged.
            by: Who judges.
            again: Judge those, too, that `by` has judged; else they are skipped.

        Raises:
            NotFound: There is no such run.
            BadValue: `evaluator` is a coroutine function: use the async client.
        """
        work = Evaluation(self.workspace, by, again=again)
        return scoring.evaluate(work, runs, evaluator, self._portal.run)

    def evolve(
        self,
        reference: str,
        feedback: str | Sequence[str],
        *,
        using: Evolver | None = None,
        because: str = "",
        by: str = OS_USER,
    ) -> Prompt:
        """Add the version of a prompt that answers what was said of it; the newest version as it
        stands where that changes nothing.

        Args:
            reference: The prompt, or which version of it.
            feedback: What was said: `too_verbose` and `missing_context` have rules of their own; or
                several of these, answered in turn.
            using: A function of the prompt and what was said of it, which gives the new text; it
                may ask a model. It answers all of `feedback` in the place of the rules.
            because: Why.
            by: Who adds it.

        Raises:
            BadValue: No rule answers it, or what `using` gave is no text, or it is a coroutine
                function.
            NotFound: There is no such prompt.
            Refused: It has no such version.
        """
        said = store.told(feedback)
        before = self._portal.run(prompts.get(self.workspace, reference))
        after = before
        for each in said:
            rule = store.rule_of(each, using)
            if is_coroutine_function(rule):
                remedy = "give a plain function, or use the async client"
                raise BadValue("using", "it is a coroutine function", remedy)
            after = store.evolved(after, rule(after, each))
        return self._portal.run(
            store.added(self.workspace, before, after, said, because=because, by=by)
        )

    def optimize(
        self,
        reference: str,
        tasks: Mapping[str, Any],
        *,
        evaluate: Evaluate,
        propose: Propose,
        **options: Unpack[OptimizeOptions],
    ) -> Optimized:
        """Optimise a prompt: candidates are proposed and evaluated on one part of the tasks, the
        best is compared with the version on those that were held out, in an experiment that is
        registered before, and an alias is moved where the verdict is *better* (docs/prompts.md).

        It is a run. After a kill, or an error of `evaluate` or `propose`, call it again: it is
        resumed, and what was answered is not asked again.

        Args:
            reference: The version to begin with.
            tasks: What is to be solved, by name: values that can be recorded.
            evaluate: Gives the score of a text on a task, the higher the better.
            propose: Gives another text, from one and how it did on each task.
            **options: See `OptimizeOptions`.

        Raises:
            BadValue: There are too few tasks, the budget is too small for them, or a function gave
                what is none.
            NotFound: There is no such prompt.
            Refused: It was begun with other tasks, or there is no such version.
        """
        made = wanted_of(reference, tasks, evaluate, propose, options)
        check_names("record.optimize", {"tasks": list(made.tasks)}, self.workspace.redaction)
        return optimize(self, made)


@guard_secrets("record")
class OnLoop(_OfWorkspace, AsyncSessions[AsyncSession]):
    """What the async twin does its own way."""

    def __init__(
        self,
        workspace: Workspace,
        defaults: Defaults,
        tables: OpenTables | None,
        sync: SyncTwin,
    ) -> None:
        self.workspace = workspace.redacting(defaults.redact)
        self._defaults = defaults
        self._open_tables = tables
        self._sync = sync

    def _its_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def _let_go(self) -> None:
        await self._closed()

    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncSession:
        asked = wanted(self._defaults, workflow, options)
        acting = self._defaults.acting(agent, role)
        opened = await opening.open_agent_here(self.workspace, *acting, asked)
        ending = partial(ended, self.workspace, opened, self._defaults.report)
        return opened_async(opened.engine, opened.arm, ending)

    def memory(self, space: str = ORG) -> AsyncMemorySpace:
        """A space of memory: its files, for people and programs that are trusted with them.

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: It is none of these.
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
        """Have a function or coroutine function judge runs; see `Record.evaluate`."""
        work = Evaluation(self.workspace, by, again=again)
        return await scoring.evaluate_async(work, runs, evaluator)

    async def evolve(
        self,
        reference: str,
        feedback: str | Sequence[str],
        *,
        using: Evolver | None = None,
        because: str = "",
        by: str = OS_USER,
    ) -> Prompt:
        """Add the version of a prompt that answers what was said of it; see `Record.evolve`.
        `using` may be a coroutine function.
        """
        said = store.told(feedback)
        before = await prompts.get(self.workspace, reference)
        after = before
        for each in said:
            text = store.rule_of(each, using)(after, each)
            after = store.evolved(after, await text if inspect.isawaitable(text) else text)
        return await store.added(self.workspace, before, after, said, because=because, by=by)

    async def optimize(
        self,
        reference: str,
        tasks: Mapping[str, Any],
        *,
        evaluate: Callable[[PromptText, Any], Any],
        propose: Callable[[str, Sequence[Mapping[str, Any]]], Any],
        **options: Unpack[OptimizeOptions],
    ) -> Optimized:
        """Optimise a prompt; see `Record.optimize`. `evaluate` and `propose` may be coroutine
        functions, which run on this loop: each call of one is a step, and no tool that is declared
        in Hansard may be called inside it. Others are called in a thread. Cancelled, it is gone on
        with when it is called again.
        """
        made = wanted_of(reference, tasks, evaluate, propose, options)
        check_names("record.optimize", {"tasks": list(made.tasks)}, self.workspace.redaction)
        return await optimize_async(
            made,
            lambda portal: self._sync(self.workspace, portal, self._defaults, self._open_tables),
        )


@guard_secrets("record")
class AsyncRecord(OnLoop):
    """A workspace's record for the async client. Made by `hansard.connect_async`.

    What writes is acknowledged when it returns.
    """

    async def fork(
        self,
        run: str,
        *,
        at: object = None,
        effects: ForkEffects | str = ForkEffects.SHADOW,
        labels: Mapping[str, str] = NOTHING,
    ) -> str:
        """Begin a new run where another stood; its id. One commit, whatever the run's length.

        Args:
            run: The parent.
            at: Where it begins; now, if nothing is given.
            effects: `SHADOW`: tools with effects return the parent's outcome or their `shadow=`,
                else raise `ShadowedEffect`. `LIVE`: they run.
            labels: Texts by name, to find the run by.

        Raises:
            NotFound: There is no such run or point.
            BadName: `at` is no point.
        """
        named = by_name("labels", labels)
        return await fork(self.workspace, run, at, chosen(ForkEffects, effects, "effects"), named)

    async def state(self, run: str, at: object = None) -> RunView:
        """A whole run, its agents and shared state, as it stood at a point; now without one.

        Raises:
            NotFound: There is no such run or point.
            BadName: `at` is no point.
        """
        return await self.workspace.points.view(run, at)

    async def actions(
        self, run: str, *, params: Mapping[str, str] = NOTHING, other: str | None = None
    ) -> ActionCache:
        """What a run did to pages and by tools, and succeeded with, to be done again.

        Args:
            run: Its id.
            params: A slot for each of these values, by its name.
            other: Another run of the same actions: each argument that differs is a slot.

        Raises:
            NotFound: There is no such run.
            BadValue: The other run did something else, or a slot's name stands in a text already.
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
        """What runs of one kind of task teach, without a model: a graph of their actions, with
        slots for what differs. It has no check functions until a person confirms them.

        Args:
            name: The experience's: `[a-z0-9-]`.
            runs: Ids of runs; of one that failed no action is taken.
            tasks: What was asked for, by run; else the first message of a user in it.
            params: Values by run, each by the name of its slot, the same slots for each run. A
                value is a slot wherever it occurs as a word in the run's task and actions. Needed
                where two values are adjacent in the task.
            description: What it is for.
            plan: A function of yours, with a model or without, that is given a
                `actions.LearnedFrom` and gives `actions.Lesson`s: what is done. One that rests on
                no step of a run that succeeded is dropped, and counted.
            lessons: The same, of what to do and to avoid; they may rest on runs that failed.
            parent: What is learned further: its runs are learned from, too, and this is its next
                version.

        Raises:
            NotFound: There is no such run.
            BadValue: Nothing says what was asked for, the runs are of several kinds of task, no
                two of them did alike, a value of `params` is nowhere in its run, a slot holds
                adjacent values, or a function gives no sentences.
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

    async def what_left(self, run: str) -> list[SentOut]:
        """All that went out of a run, in order: each call of a model, a page or a tool that was
        made, with what it was given, as it is on record. A secret stands there by its name. In SQL
        `model_inputs` has what went to models.

        Raises:
            NotFound: There is no such run.
        """
        return await what_left(self.workspace, run, Payloads(self.workspace))

    async def keep_experience(
        self, experience: Experience, *, because: str = "", by: str = OS_USER
    ) -> int:
        """Keep what was learned in the record by its name, as its next version: that version's
        number. One that says what the newest version says makes none, nor one of which that is a
        heal, or that a person has confirmed since: it stays in use. It has the label of the runs
        that it was learned from.

        Args:
            experience: What `experience` gave.
            because: Why.
            by: Who says so.

        Raises:
            BadValue: It is none that can be read again.
        """
        names = {"name": experience.name}
        check_names("record.keep_experience", names, self.workspace.redaction)
        label = await label_of_runs(self.workspace, (*experience.sources, *experience.failed))
        keep = kept_experiences.keep
        kept = await keep(self.workspace, experience, because=because, by=by, label=label)
        return kept.version

    async def kept_experience(self, name: str, version: int | None = None) -> Experience:
        """An experience that the record keeps, the newest version if none is named. Nothing of it
        is run. `session.run_experience(name)` does it, where it may be used.

        Raises:
            NotFound: There is no such experience, or its bytes were erased.
            Refused: There is no such version.
            BadName, BadValue: It is no name.
        """
        found = await kept_experiences.get(self.workspace, name, version)
        return found.experience

    async def experiences(self) -> KeptExperiences:
        """The experiences that the record keeps, by name: what `hansard experience list` prints.

        Raises:
            ProjectionError, Refused: As `sql`.
        """
        return await self._asked().read(found_experiences.experiences)

    async def experience_log(self, name: str) -> ExperienceLog:
        """What is on record of an experience, the oldest first: its versions, its replays, and what
        was said of it.

        Raises:
            NotFound: There is no such experience.
            ProjectionError, Refused: As `sql`.
        """
        return await self._asked().read(lambda reader: found_experiences.log(reader, name))

    async def find_experience(
        self,
        task: str = "",
        *,
        tools: Sequence[str] = (),
        address: str = "",
        limit: int = found_experiences.HITS_MAX,
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
        wanted = found_experiences.Wanted(
            task=task, tools=tuple(tools), address=address, limit=limit, retired=retired
        )
        index = self._experience_index
        return await self._asked().read(
            lambda reader: found_experiences.find(reader, wanted, index)
        )

    async def confirm_experience(
        self,
        name: str,
        checks: Sequence[str] = (),
        *,
        digest: str = "",
        because: str = "",
        by: str = OS_USER,
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
        confirmed = await kept_experiences.confirm(
            self.workspace, name, list(checks), digest=digest, because=because, by=by
        )
        return confirmed.version

    async def publish_experience(
        self,
        name: str,
        path: str | Path,
        *,
        license: str,  # noqa: A002 -- what it is called everywhere
        key: str | Path | None = None,
        version: int | None = None,
        because: str = "",
        by: str = OS_USER,
    ) -> PublishedBundle:
        """Write a version of an experience as one file for others, signed if there is a key.

        Args:
            name: The experience's.
            path: The file to write.
            license: Under which terms: an SPDX expression, or words.
            key: A file with a private Ed25519 key in PEM.
            version: The newest if none is named.
            because: Why.
            by: Who publishes it.

        Raises:
            NotFound: There is no such experience.
            Refused: It has a label, or is not to be used.
            BadValue: It holds what looks like a secret or a personal value, the file is there and
                is another, or the key is none.
        """
        return await publish(
            self.workspace,
            name,
            Path(path),
            terms=license,
            key=Path(key) if key is not None else None,
            point="" if version is None else str(version),
            because=because,
            by=by,
        )

    async def install_experience(
        self,
        path: str | Path,
        *,
        name: str = "",
        key: str | Path | None = None,
        because: str = "",
        by: str = OS_USER,
    ) -> InstalledBundle:
        """Keep a bundle, untrusted: nothing is done by it until a person confirms its digest with
        `confirm_experience`. Nothing of it is run.

        Args:
            path: The bundle.
            name: What the record is to keep it by; its own name if none is given.
            key: A file with a public Ed25519 key (PEM) that must have signed it.
            because: Why.
            by: Who installs it.

        Raises:
            BadValue: It is none, was changed, or is not signed by that key; nothing was kept.
            Refused: The name is taken by what did not come in bundles of the same key.
        """
        given = Path(key) if key is not None else None
        return await install(
            self.workspace, Path(path), name=name, key=given, because=because, by=by
        )

    async def retire_experience(self, name: str, *, because: str = "", by: str = OS_USER) -> bool:
        """State that an experience is not to be used any more, until a version is confirmed again;
        whether that is new.

        Args:
            name: The experience's.
            because: Why.
            by: Who says so.

        Raises:
            NotFound: There is no such experience.
        """
        retire = kept_experiences.retire
        return (await retire(self.workspace, name, because=because, by=by)).is_new

    async def keep_actions(
        self, name: str, cache: ActionCache, *, because: str = "", by: str = OS_USER
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
        label = await label_of_runs(self.workspace, [checked(cache).run])
        keep = kept_caches.save
        kept = await keep(self.workspace, name, cache, because=because, by=by, label=label)
        return kept.version

    async def kept_actions(self, name: str, version: int | None = None) -> ActionCache:
        """An action cache that the record keeps, the newest version if none is named. Replayed with
        `session.run_actions`, what a model finds elsewhere is its next version.

        Raises:
            NotFound: There is no such cache, or its bytes were erased.
            Refused: There is no such version.
            BadName: It is no name.
        """
        return await kept_caches.get(self.workspace, name, version)

    async def action_caches(self) -> KeptCaches:
        """The action caches that the record keeps, and how many heals nobody has looked at: what
        `hansard actions list` prints. Raises ProjectionError, Refused as `sql`.
        """
        return await self._asked().read(kept_actions.caches)

    async def actions_log(self, name: str) -> ActionsLog:
        """The versions of an action cache: who changed what, when and why: what
        `hansard actions log` prints.

        Raises:
            NotFound: There is no such cache.
            ProjectionError, Refused: As `sql`.
        """
        return await self._asked().read(lambda reader: kept_actions.log(reader, name))

    async def revert_actions(
        self, name: str, to: int, *, because: str = "", by: str = OS_USER
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
        revert = kept_caches.revert
        return (await revert(self.workspace, name, to, because=because, by=by)).version

    async def look_at_actions(
        self, name: str, version: int | None = None, *, because: str = "", by: str = OS_USER
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
        look_at = kept_caches.look_at
        return (await look_at(self.workspace, name, version, because=because, by=by)).version

    async def snapshots(
        self, run: str, *, agent: str | None = None, at: object = None
    ) -> list[Snapshot]:
        """The chain of snapshots of each agent of a run: its initial request, the state before and
        after each call, its final state; each names the one before it.

        Args:
            run: Which run.
            agent: That agent's alone.
            at: Up to that point; now without one.

        Raises:
            NotFound: There is no such run, agent or point.
        """
        return await snapshots.of_run(self.workspace, run, agent, at)

    async def snapshot(self, snapshot: str, *, run: str | None = None) -> Snapshot:
        """The snapshot of an id; any version of an agent's stream has one.

        Args:
            snapshot: Its id.
            run: Where it is. Without it the runs are read one after the other, the newest first:
                of many that takes long.

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
        """A session that goes on from a snapshot, as its agent. At the agent's newest one (no call
        began or ended after it) the run is resumed; at an older one it is forked there, and
        `session.run` is the fork's id.

        Args:
            snapshot: It, or its id; then `run=` says where to look for it (see `snapshot`).
            effects: What tools with effects do in a fork: see `fork`.
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

    async def runs(self, **wanted: Unpack[RunsWanted]) -> list[tuple[str, RunState]]:
        """Every run with its life, the newest first; those that are all that is asked for: status,
        workflow, agent and role (of one who ever joined), experiment (of trials), since and until
        (when it began, a time with its zone). Raises BadOption, BadValue.
        """
        return await self.workspace.runs(RunFilter.of(wanted))

    async def conversation(self, name: str, *, before: str | None = None) -> Conversation:
        """What a conversation held over its runs: turns, and the context to go on from.

        before: a run of it; only what came earlier, also when that run is resumed.
        """
        return await conversation(self.workspace, name, before)

    async def settle(
        self,
        run: str,
        step: str,
        verdict: Verdict | str,
        *,
        result: Any = None,
        by: str = OS_USER,
        because: str = "",
    ) -> None:
        """Say what is true of a step in doubt, or that diverged. A session of the agent that is
        still at work is fenced.

        Args:
            run: The run.
            step: The step, as `agent#number` or the address of one of its events (`1234.2`).
            verdict: What is true of it.
            result: What it returned, where it happened.
            by: Who says so.
            because: Why.

        Raises:
            Refused: The step is not of a kind that can be settled so.
            NotFound: There is no such run or step.
            BadName, BadValue: `by` is no name, or `result` cannot be recorded.
        """
        await settle(self.workspace, run, step, verdict, result=result, by=by, because=because)

    async def finish(
        self, run: str, *, by: str = OS_USER, because: str = "", failed: str | None = None
    ) -> bool:
        """End a run as completed, or as failed, also where agents have not left it. Return False
        if it is so already.

        Args:
            run: Its id.
            by: Who says so.
            because: Why it counts as completed.
            failed: The reason why the run counts as failed; None ends it as completed.

        Raises:
            NotFound: There is no such run.
            Refused: It ended otherwise.
            BadValue: `failed` is empty, or `because` is given beside it.
        """
        return await finish(self.workspace, run, by=by, because=because, failed=failed)

    async def cancel(self, run: str, *, by: str = OS_USER, because: str = "") -> bool:
        """Say that a run is cancelled; False where it is already. Who is at work is not stopped,
        and goes on recording.

        Args:
            run: Its id.
            by: Who says so.
            because: Why.

        Raises:
            NotFound: There is no such run.
            Refused: It ended otherwise.
        """
        return await cancel(self.workspace, run, by=by, because=because)

    async def reopen(self, run: str, task: str, *, by: str = OS_USER, because: str = "") -> bool:
        """Have a task of a run that failed be done after all; False where it is not over.

        Args:
            run: Its id.
            task: The task's id.
            by: Who says so.
            because: Why.

        Raises:
            Refused: There is no such task, it is done, or tasks would wait for each other.
        """
        return await reopen(self.workspace, run, task, by=by, because=because)

    async def approve(
        self, approval: str, *, by: str = OS_USER, because: str = "", role: str | None = None
    ) -> None:
        """Grant what an agent asks.

        Args:
            approval: The question's id, as `approvals()` or `hansard approvals` shows it.
            by: Who says so: not the agent that asked, nor who acts for it.
            because: Why.
            role: The role that `by` acts in; it must have `approve`.

        Raises:
            Refused: It is answered already, its time is up, or `by` may not answer it.
            NotFound: There is no such question.
            RoleRefused: The role may not approve; that is on record.
        """
        await answer(
            self.workspace,
            approval,
            granted=True,
            by=by,
            because=because,
            role=role,
        )

    async def deny(
        self, approval: str, *, by: str = OS_USER, because: str = "", role: str | None = None
    ) -> None:
        """Deny what an agent asks.

        Args:
            approval: The question's id, as `approvals()` or `hansard approvals` shows it.
            by: Who says so: not the agent that asked, nor who acts for it.
            because: Why.
            role: The role that `by` acts in; it must have `approve`.

        Raises:
            Refused: It is answered already, its time is up, or `by` may not answer it.
            NotFound: There is no such question.
            RoleRefused: The role may not approve; that is on record.
        """
        await answer(
            self.workspace,
            approval,
            granted=False,
            by=by,
            because=because,
            role=role,
        )

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
        because: str = "",
        by: str = OS_USER,
    ) -> bool:
        """Register an experiment; False where it is registered with the same plan already.

        replace: put this plan in the place of the registered one, which may be done while no run of
            it began: `because` says why. Reads the life of every run.

        Raises:
            Refused: It has another plan; the message has the difference. With `replace`: a run of
                it began, it is stopped, or it is not registered.
            BadName, BadValue: A name is not one, or the plan contradicts itself.
        """
        check_names("record.register", _names_of(plan), self.workspace.redaction)
        if replace:
            return await experiments.replace(self.workspace, name, plan, because=because, by=by)
        if because:
            fact = f"{because!r:.80}, but nothing is replaced"
            raise BadValue("because", fact, "give replace=True, or leave it out")
        return await experiments.register(self.workspace, name, plan, by=by)

    async def stop(self, name: str, *, because: str = "", by: str = OS_USER) -> bool:
        """Assign no run to an experiment any more; False where it is stopped already."""
        return await experiments.stop(self.workspace, name, because=because, by=by)

    async def experiment(self, name: str) -> ExperimentState:
        """An experiment as it stands; one that is not registered has no plan."""
        return await experiments.state(self.workspace, name)

    async def score(
        self, run: str, metrics: Mapping[str, float], *, by: str, because: str = ""
    ) -> bool:
        """Put on record what came of a run; False where the same judge said just that last.

        Args:
            run: The run.
            metrics: Finite numbers by name.
            by: Who judges.
            because: Why.

        Raises:
            NotFound: There is no such run.
            BadName, BadValue: A name is not one, or a metric no finite number.
        """
        named = by_name("metrics", metrics)
        return await scoring.score(self.workspace, run, named, by=by, because=because)

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
        """State what the use of a model costs; False where all of it is stated already.

        Args:
            model: The model.
            amounts: What a million of each usage costs, such as `{"input_tokens": 2.5}`.
            since: From when on.
            currency: In which currency.
            source: Where the price stands.
            by: Who says so.

        Raises:
            BadName, BadValue: A name is not one, an amount no finite number, or none is given.
        """
        named = by_name("amounts", amounts)
        source = self.workspace.text(source)
        terms = scoring.Terms(since=since, currency=currency, source=source)
        return await scoring.state(self.workspace, model, named, terms, by=by)

    async def prompt(self, reference: str) -> Prompt:
        """A version of a prompt: `.format(query=...)` gives its text, and a call that is given that
        text has the version on record (docs/prompts.md).

        Args:
            reference: `rag@production` by an alias, `rag@3` by its number, `rag` for the newest
                that is not retired.

        Raises:
            NotFound: There is no such prompt.
            Refused: It has no such version or alias.
            BadName: It is no reference.
        """
        return await prompts.get(self.workspace, reference)

    async def prompts(self) -> list[Prompt]:
        """The prompts, by their names, each as its newest version that is not retired. Reads all
        that is on record of prompts.
        """
        return await prompts.newest(self.workspace)

    async def add_prompt(
        self, name: str, text: str, *, by: str = OS_USER, **options: Unpack[PromptVersionOptions]
    ) -> int:
        """Add a version to a prompt, which begins with its first: its number, or that of the
        version that says the same already.

        Args:
            name: The prompt's name; without `@`.
            text: The text; `{query}` is a variable, and `{{query}}` stands for itself, as any other
                brace does. At most 64 KiB.
            by: Who adds it.
            **options: See `PromptVersionOptions`.

        Raises:
            BadName, BadValue: A name is not one; the text is empty, too long or a secret.
            Refused: There is no such parent.
        """
        draft = drafted(text, options)
        return (await prompts.add(self.workspace, name, draft, by=by)).version

    async def alias_prompt(
        self,
        reference: str,
        alias: str,
        *,
        by: str = OS_USER,
        **options: Unpack[PromptAliasOptions],
    ) -> bool:
        """Have an alias name a version; False where it does already. What it named before stays on
        record.

        Args:
            reference: The version: `rag@3`.
            alias: The alias, such as `production`.
            by: Who moves it.
            **options: See `PromptAliasOptions`.

        Raises:
            PromptConflict: It was moved by somebody else meanwhile, or does not name what it is
                `expected` to; the error has both versions.
            Refused: The version is retired, or there is none.
            NotFound: There is no such prompt.
            BadName: It is no alias, or no reference.
        """
        move = moving(alias, options)
        return (await prompts.move(self.workspace, reference, move, by=by)).is_new

    async def give_feedback(
        self,
        reference: str,
        text: str = "",
        *,
        rating: float | None = None,
        run: str = "",
        by: str = OS_USER,
    ) -> int:
        """Put on record what somebody said of a version of a prompt: that version's number.

        Args:
            reference: Which one.
            text: What was said: a rule's name, such as `too_verbose`, or a sentence.
            rating: How satisfied they were, from 0 to 1.
            run: The run that it was said of.
            by: Who says so.

        Raises:
            NotFound: There is no such prompt or run.
            Refused: There is no such version.
            BadValue: The rating is no such number, or neither text nor rating is given.
        """
        given = await prompts.feed_back(
            self.workspace, reference, text, rating=rating, run=run, by=by
        )
        return given.version

    async def retire_prompt(self, reference: str, *, because: str = "", by: str = OS_USER) -> bool:
        """Have a version not be used any more: it can be read, and no alias may name it. False
        where it is retired.

        Args:
            reference: Which one.
            because: Why.
            by: Who says so.

        Raises:
            Refused: An alias names it, or there is no such version.
            NotFound: There is no such prompt.
            BadValue: No version is named.
        """
        retire = prompts.retire
        return (await retire(self.workspace, reference, because=because, by=by)).is_new

    async def invalidate(
        self, *, tool: str = "", run: str = "", key: str = "", because: str = "", by: str = OS_USER
    ) -> None:
        """Declare answers stale that later runs might be given by `reuse=`: those on record, and
        those of calls that are under way. What was given already stays as it is.

        Args:
            tool: Those of a tool, whatever its version.
            run: Those of a run.
            key: Those of one call (`hansard reuse list`).
            because: Why.
            by: Who says so.

        Raises:
            BadValue: Not exactly one of them is named.
        """
        told = AnswersInvalidated(tool=tool, run=run, key=key, because=because)
        await reused.invalidate(self.workspace, told, by=by)

    async def prompt_log(self, name: str) -> PromptLog:
        """All versions of a prompt, with the means of what their runs came to, and the history of
        its aliases: what `hansard prompt log` prints.

        Raises:
            NotFound: There is no such prompt.
            ProjectionError, Refused: As `sql`.
        """
        return await self._asked().read(lambda reader: inspected.log(reader, name))

    async def prompt_report(self, name: str | None = None, *, alpha: float = 0.05) -> PromptReport:
        """How the versions of a prompt did, or of all: what `hansard prompt report` prints.

        Args:
            name: The prompt; all of them without one.
            alpha: One less the confidence of the intervals.

        Raises:
            NotFound: There is no such prompt.
            BadValue: `alpha` is not between 0 and 1.
            ProjectionError, Refused: As `sql`.
        """
        return await self._asked().read(lambda reader: inspected.report(reader, name, alpha))

    async def promote(
        self,
        reference: str,
        alias: str = PRODUCTION,
        *,
        experiment: str | None = None,
        because: str = "",
        by: str = OS_USER,
    ) -> PromptEvidence | None:
        """Move an alias to a version that an experiment says is better than the one that the alias
        names; what the experiment says, None where none was asked.

        Args:
            reference: The version.
            alias: The alias.
            experiment: Whose verdict counts: an experiment with both versions as prompts of arms;
                the newest such without one.
            because: Why it is moved without a verdict; with it no experiment is asked.
            by: Who moves it.

        Raises:
            Refused: The verdict is another one than *better*, or nothing compares the two.
            PromptConflict: The alias was moved by somebody else meanwhile.
            NotFound: There is no such prompt.
            BadValue: Both an experiment and `because` are given.
            ProjectionError: As `sql`.
        """
        move = Promotion(reference, alias, experiment, because, by)
        return await promoted(self.workspace, self._asked().read, move)

    async def apply_role(self, name: str, rules: RoleDefined, *, by: str = OS_USER) -> bool:
        """Give a role its rules, in place of those that it had; False where it has just them.

        `apply_roles` does it with a file, which is the usual way.

        Raises:
            BadName, BadValue: The rules are broken; the message says where.
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
        because: str,
        role: str | None = None,
    ) -> Label:
        """Lower the label of an agent or a key of a run, or of a principal; what it was.

        A session of the agent that is still at work is fenced; a principal's sessions end.

        Args:
            run: The run; none for a principal.
            agent: Whose label it is: an agent's, or
            key: a key's of shared state, or
            principal: a principal's. Give one of the three.
            to: What it becomes, such as `untrusted`; public and trusted if empty.
            approver: Who answers for it.
            because: Why it may be lowered.
            role: The role that the approver acts in; it must have `approve`.

        Raises:
            Refused: It would not lower the label.
            NotFound: There is no such run, agent or key.
            RoleRefused: The role may not approve.
            BadName, BadValue: A name is not one, or `because` is empty.
        """
        lowering = Lowering(
            agent=agent,
            key=key,
            principal=principal,
            to=to,
            approver=approver,
            because=because,
            role=role,
        )
        return await declassify(self.workspace, run, lowering)

    async def apply_roles(
        self, path: str | os.PathLike[str], *, by: str = OS_USER
    ) -> dict[str, bool]:
        """Give each role of a TOML file its rules, all of which are checked first; of each whether
        that is new. It is what `hansard roles apply FILE` does.

        Args:
            path: The file (docs/roles.md).
            by: Who says so.

        Raises:
            BadName, BadValue: The file or a rule is broken; the message says where. No role has
                changed then.
            NotOffered: A restricted agent gives no rules.
        """
        return await self._applied(path, by)

    async def view(
        self,
        run: str,
        at: object = None,
        *,
        role: str | None = None,
        key: bytes | None = None,
        by: str = OS_USER,
    ) -> View:
        """What a role may see of a run; that it was served is put on record.

        Args:
            run: The run.
            at: A point of it; now without one. For a restricted agent the id of an event that it
                was shown.
            role: Which role; a restricted agent's own needs no name, and another is one whose view
                it may be shown.
            key: 32 secret bytes or more, where a mask of the role hashes.
            by: Who looks; of a restricted agent its principal.

        Raises:
            NotFound: There is no such run or point.
            BadName, BadValue: `at` is no point, no role is given, or a mask needs the key.
        """
        return await self._viewed(run, at, role, key, by)

    async def view_roles(self) -> list[str]:
        """The roles that have rules, whose views can be asked for; of a restricted agent's those
        that its role may be shown, its own first.
        """
        return [*await roles.defined(self.workspace)]

    async def sql(
        self, question: str, *parameters: object, tables: Mapping[str, Any] = NOTHING
    ) -> SqlAnswer:
        """The answer of the tables to one statement that reads, as of the newest position of the
        log when it was asked; `SqlAnswer.position` says which (docs/sql.md).

        What the tables lack is projected first: by this process, or waited for where another does.
        Where that takes longer than 10 s the answer is of what stands, which is logged. A worker
        process answers, without files, network and secrets, within 10 s and 512 MiB, at most 10,000
        rows. A restricted agent is answered from its role's own tables, where the role may query.

        Args:
            question: SQL, with `?` or `$1` where a parameter goes.
            *parameters: Texts, finite numbers, booleans, dates, times, None, and lists of them;
                also as scalars and arrays of numpy and pandas.
            tables: Tables of your own to join, by name, for this question alone: pandas and polars
                data frames, pyarrow tables, lists of dicts, dicts of lists, answers of `sql`, paths
                of files (Parquet, CSV, JSON, NDJSON, Arrow). 16 at most, which come to 256 MiB as
                Arrow; for a restricted agent to 512 KiB. No name may be one of the record's tables.

        Raises:
            SqlError: It is no statement that reads, DuckDB cannot answer it, or it costs too much.
            ProjectionError: The tables cannot be made or read.
            BadValue: A parameter is none, or a table; or a restricted agent's answer is too long
                for a message.
            RoleRefused: The role may not query.
            Refused: The record is one in memory, which has no tables.
        """
        return await self._asked().ask(question, parameters, tables)

    async def savings(
        self,
        run: str | None = None,
        *,
        workflow: str | None = None,
        month: str | None = None,
        by: str = "run",
    ) -> SavingsAnswer:
        """What replays saved: the calls that sessions were answered from the record when they went
        on with an agent, and what those calls had used, the earliest first. Strict and offline
        replays write nothing, so they are not among them (`session.saved` tells of each).

        Args:
            run: Of this run alone.
            workflow: Of runs of this workflow alone.
            month: Of sessions that began in this month, in UTC: `2026-01`.
            by: What it is added up for: `run`, `workflow` or `month`.

        Raises:
            BadValue: There is no such month, or nothing of that name to add up for.
            SqlError, ProjectionError: As `sql`.
        """
        return await savings(self._asked().ask, Wanted(run, workflow, month, by))

    async def compare(self, experiment: str, **options: Unpack[CompareOptions]) -> ComparisonReport:
        """The arms of an experiment beside each other: what `hansard compare` prints. A notebook
        shows it as tables, and so does `rich.print`.

        Args:
            experiment: Its name.
            **options: See `CompareOptions`.

        Raises:
            CallerError: There is no such experiment, metric, arm or label; it says which there are.
            BadOption, BadValue: There is no such option, or it cannot be this.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        question = question_of(experiment, options)
        found = await self._asked().read(lambda reader: compare(reader, question))
        return shown(found, ComparisonReport)

    async def audit(self, run: str | None = None, **options: Unpack[AuditOptions]) -> AuditReport:
        """What is missing or odd: what `hansard audit` prints, worst first.

        Args:
            run: Of this run alone, `last` being the newest; else of all of the record.
            **options: See `AuditOptions`.

        Raises:
            NotFound: There is no such run.
            CallerError: There is no such kind, experiment or severity; it says which there are.
            BadOption, BadValue: There is no such option, or it cannot be this.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return await self._asked().read(AuditQuestion.of(run, options).answer)

    async def why(self, decision: str) -> DecisionReport | DecisionList:
        """Why something was decided, or the decisions of a run: what `hansard why` prints.

        Args:
            decision: An event's id or a prefix no other has, its address (`position.index`), or a
                run, `last` being the newest: then its decisions are listed.

        Raises:
            NotFound: There is none.
            CallerError: Several begin so, or the event there is no decision.
            ProjectionError, RoleRefused, Refused: As `sql`.
        """
        return explained(await self._asked().read(lambda reader: why(reader, decision)))


@guard_secrets("record")
class Record(OnPortal):
    """A workspace's record for the sync client. Made by `hansard.connect`.

    What writes is acknowledged when it returns.
    """

    fork = on_portal(AsyncRecord.fork)
    state = on_portal(AsyncRecord.state)
    actions = on_portal(AsyncRecord.actions)
    experience = on_portal(AsyncRecord.experience)
    what_left = on_portal(AsyncRecord.what_left)
    keep_experience = on_portal(AsyncRecord.keep_experience)
    kept_experience = on_portal(AsyncRecord.kept_experience)
    experiences = on_portal(AsyncRecord.experiences)
    experience_log = on_portal(AsyncRecord.experience_log)
    find_experience = on_portal(AsyncRecord.find_experience)
    confirm_experience = on_portal(AsyncRecord.confirm_experience)
    publish_experience = on_portal(AsyncRecord.publish_experience)
    install_experience = on_portal(AsyncRecord.install_experience)
    retire_experience = on_portal(AsyncRecord.retire_experience)
    keep_actions = on_portal(AsyncRecord.keep_actions)
    kept_actions = on_portal(AsyncRecord.kept_actions)
    action_caches = on_portal(AsyncRecord.action_caches)
    actions_log = on_portal(AsyncRecord.actions_log)
    revert_actions = on_portal(AsyncRecord.revert_actions)
    look_at_actions = on_portal(AsyncRecord.look_at_actions)
    snapshots = on_portal(AsyncRecord.snapshots)
    snapshot = on_portal(AsyncRecord.snapshot)
    runs = on_portal(AsyncRecord.runs)
    conversation = on_portal(AsyncRecord.conversation)
    settle = on_portal(AsyncRecord.settle)
    finish = on_portal(AsyncRecord.finish)
    cancel = on_portal(AsyncRecord.cancel)
    reopen = on_portal(AsyncRecord.reopen)
    approve = on_portal(AsyncRecord.approve)
    deny = on_portal(AsyncRecord.deny)
    approvals = on_portal(AsyncRecord.approvals)
    register = on_portal(AsyncRecord.register)
    stop = on_portal(AsyncRecord.stop)
    experiment = on_portal(AsyncRecord.experiment)
    score = on_portal(AsyncRecord.score)
    price = on_portal(AsyncRecord.price)
    prompt = on_portal(AsyncRecord.prompt)
    prompts = on_portal(AsyncRecord.prompts)
    add_prompt = on_portal(AsyncRecord.add_prompt)
    alias_prompt = on_portal(AsyncRecord.alias_prompt)
    give_feedback = on_portal(AsyncRecord.give_feedback)
    retire_prompt = on_portal(AsyncRecord.retire_prompt)
    invalidate = on_portal(AsyncRecord.invalidate)
    prompt_log = on_portal(AsyncRecord.prompt_log)
    prompt_report = on_portal(AsyncRecord.prompt_report)
    promote = on_portal(AsyncRecord.promote)
    apply_role = on_portal(AsyncRecord.apply_role)
    declassify = on_portal(AsyncRecord.declassify)
    apply_roles = on_portal(AsyncRecord.apply_roles)
    view = on_portal(AsyncRecord.view)
    view_roles = on_portal(AsyncRecord.view_roles)
    sql = on_portal(AsyncRecord.sql)
    savings = on_portal(AsyncRecord.savings)
    compare = on_portal(AsyncRecord.compare)
    audit = on_portal(AsyncRecord.audit)
    why = on_portal(AsyncRecord.why)

    @contextlib.contextmanager
    def replay_from(
        self,
        snapshot: str | Snapshot,
        *,
        effects: ForkEffects | str = ForkEffects.SHADOW,
        **options: Unpack[RunOptions],
    ) -> Generator[Session, None, None]:
        """A session that goes on from a snapshot, as its agent. At the agent's newest one (no call
        began or ended after it) the run is resumed; at an older one it is forked there, and
        `session.run` is the fork's id.

        Args:
            snapshot: It, or its id; then `run=` says where to look for it (see `snapshot`).
            effects: What tools with effects do in a fork: see `fork`.
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
