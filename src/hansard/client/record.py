"""The record: where runs are begun, joined, resumed, replayed and forked.

Long because a record is one class, with what each method takes and raises. Its methods are written
once, in `AsyncRecord`; `Record` runs them on the loop of the process (`hansard.agents.flow`).
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

from hansard.agents import opening
from hansard.agents.access import roles
from hansard.agents.annotations.conversations import Conversation, conversation
from hansard.agents.artifacts import experiences
from hansard.agents.artifacts.bundles import (
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
from hansard.agents.policy.labels import Lowering, declassify
from hansard.agents.run_index import RunFilter, RunQuery
from hansard.agents.runs import fork
from hansard.agents.steps.scope import ambient, guard_secrets, kept
from hansard.agents.workspace import Workspace
from hansard.bus.clock import OS_USER
from hansard.bus.portal import Portal
from hansard.client.beginning import ended
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
    opened_async,
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
from hansard.inspect import kept_experiences as found_experiences
from hansard.inspect import prompts as inspected
from hansard.inspect import state as snapshots
from hansard.inspect.actions import action_cache
from hansard.inspect.answer import Answer
from hansard.inspect.experience import Sentences, learned
from hansard.inspect.kept_experiences import ExperienceHits
from hansard.inspect.payloads import Payloads
from hansard.inspect.prompts import PromptLog
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.reader import Reader
from hansard.state.replay import RunView

A = TypeVar("A")
R = TypeVar("R", bound=Answer)


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


def _brief_of(record: object, workspace: Workspace) -> dict[str, Any]:
    log = workspace.log
    return {
        "workspace": log.workspace,
        "durability": log.durability,
        "sessions": first(kept(record), lambda each: f"{each.agent} in run {each.run}"),
    }


SyncTwin = Callable[[Workspace, Portal, Defaults, OpenTables | None], Any]
"""Makes the record of the sync client, for what waits in a thread."""


@guard_secrets("record")
class AsyncRecord(AsyncCommonRecord[AsyncSession]):
    """A workspace's record for the async client. Made by `hansard.connect_async`.

    What writes is acknowledged when it returns.
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
        self._lent: Any = None

    def _read(self, reads: Callable[[Reader], R], what: str, *words: object) -> Awaitable[R]:
        del what, words
        return self._asked().read(reads)

    def _ask(
        self,
        what: str,
        statement: str,
        parameters: Sequence[object],
        tables: Mapping[str, Any] = NOTHING,
    ) -> Awaitable[SqlAnswer]:
        del what
        return self._asked().ask(statement, tuple(parameters), tables)

    def _find(self, reader: Reader, wanted: found_experiences.ExperienceQuery) -> ExperienceHits:
        return found_experiences.find(reader, wanted, self._experience_index)

    async def _label_of_runs(self, runs: Sequence[str]) -> Label | None:
        return await label_of_runs(self.workspace, runs)

    @property
    def _redaction(self) -> Redaction | None:
        """What is taken out of all that is recorded here."""
        return self.workspace.redaction

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
            self._lent = native.Place(
                log, blobs, self.workspace.clock, self._loop or asyncio.get_running_loop()
            )
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

    def _memory_of(self, space: str) -> MemoryStore:
        return MemoryStore(self.workspace, space)

    def _place(self) -> str:
        return self.workspace.command

    def _brief(self) -> dict[str, Any]:
        return _brief_of(self, self.workspace)

    async def _let_go(self) -> None:
        await self._closed()

    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncSession:
        request = session_options(self._defaults, workflow, options)
        acting = self._defaults.acting(agent, role)
        opened = await opening.open_agent_here(self.workspace, *acting, request)
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
        keep = experiences.keep
        kept = await keep(self.workspace, experience, because=because, by=by, label=label)
        return kept.version

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

    async def runs(self, **request: Unpack[RunQuery]) -> list[tuple[str, RunState]]:
        """Every run with its life, the newest first; those that are all that is asked for: status,
        workflow, agent and role (of one who ever joined), experiment (of trials), since and until
        (when it began, a time with its zone). Raises BadOption, BadValue.
        """
        return await self.workspace.runs(RunFilter.of(request))

    async def conversation(self, name: str, *, before: str | None = None) -> Conversation:
        """What a conversation held over its runs: turns, and the context to go on from.

        before: a run of it; only what came earlier, also when that run is resumed.
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

    async def prompt_log(self, name: str) -> PromptLog:
        """All versions of a prompt, with the means of what their runs came to, and the history of
        its aliases: what `hansard prompt log` prints.

        Raises:
            NotFound: There is no such prompt.
            ProjectionError, Refused: As `sql`.
        """
        return await self._asked().read(lambda reader: inspected.log(reader, name))

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
        found = roles.read_file(path)
        items = [_rules_of(rules) for rules in found.values()]
        names = {"roles": [*found], "by": by, "rules": items}
        check_names("record.apply_roles", names, self.workspace.redaction)
        return await roles.apply_all(self.workspace, found, by=by)


@guard_secrets("record")
class Record(CommonRecord[Session]):
    """A workspace's record for the sync client. Made by `hansard.connect`.

    What writes is acknowledged when it returns.
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

    def _let_go(self) -> None:
        self._portal.release(self._async._let_go())  # noqa: SLF001 -- of the async client that it waits for

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
        ending = partial(ended, self.workspace, opened, self._defaults.report)
        return made(opened.engine, opened.arm, self._portal, ending)

    def memory(self, space: str = ORG) -> MemorySpace:
        """A space of memory: its files, for people and programs that are trusted with them.

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: It is none of these.
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

    def _place(self) -> str:
        return self.workspace.command

    def _brief(self) -> dict[str, Any]:
        return _brief_of(self, self.workspace)
