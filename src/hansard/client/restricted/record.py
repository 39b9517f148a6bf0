"""The record of a restricted agent, of both clients. Made by `hansard.connect`."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, ClassVar, Unpack

import msgspec

from hansard.agents.access.views import View
from hansard.agents.actions.kept_experiences import KeptVersion
from hansard.agents.callables import is_coroutine_function, name_of
from hansard.agents.experiments.plans import Asked
from hansard.agents.flow import on_portal
from hansard.agents.memory.twins import AsyncMemorySpace, MemorySpace
from hansard.agents.policy.gate import Budget, GateRule
from hansard.agents.prompts import store as evolving
from hansard.agents.prompts import store as stored
from hansard.agents.prompts.store import Evolver, Prompt
from hansard.agents.runs import told_labels
from hansard.agents.steps.ledger import Mode
from hansard.agents.steps.scope import guard_secrets, kept
from hansard.bus.portal import Portal
from hansard.client.beginning import Ended, tell
from hansard.client.common import AsyncSessions, SyncSessions
from hansard.client.operations import (
    Ask,
    RecordActionCaches,
    RecordActionsLog,
    RecordAddPrompt,
    RecordAliasPrompt,
    RecordApprove,
    RecordAudit,
    RecordCancel,
    RecordCompare,
    RecordConfirmExperience,
    RecordDeny,
    RecordExperienceLog,
    RecordExperiences,
    RecordFindExperience,
    RecordFinish,
    RecordGiveFeedback,
    RecordInvalidate,
    RecordKeepActions,
    RecordKeptActions,
    RecordKeptExperience,
    RecordLookAtActions,
    RecordPromote,
    RecordPrompt,
    RecordPromptReport,
    RecordPrompts,
    RecordReopen,
    RecordRetireExperience,
    RecordRetirePrompt,
    RecordRevertActions,
    RecordSavings,
    RecordSettle,
    RecordSql,
    RecordView,
    RecordViewRoles,
    RecordWhatLeft,
    RecordWhy,
    of,
)
from hansard.client.options import (
    PRODUCTION,
    Defaults,
    PromptAliasOptions,
    PromptVersionOptions,
    RunOptions,
    check_rules,
    drafted,
    moving,
)
from hansard.client.protocol import faults, shapes, wire
from hansard.client.protocol.errors import NotOffered
from hansard.client.protocol.remote_call import told_budgets
from hansard.client.record import AsyncRecord, Record
from hansard.client.reports import (
    AuditOptions,
    AuditQuestion,
    AuditReport,
    CompareOptions,
    ComparisonReport,
    DecisionList,
    DecisionReport,
    question_of,
)
from hansard.client.restricted.calls import RemoteEngine
from hansard.client.restricted.engine import Given
from hansard.client.restricted.lacking import TRUSTED, Lacking
from hansard.client.restricted.link import Link, SessionLink, value_of
from hansard.client.restricted.memory import RemoteStore
from hansard.client.restricted.operations import event_point
from hansard.client.restricted.session import AsyncRestrictedSession, RestrictedSession
from hansard.client.session import SessionRankers
from hansard.client.sql_answer import SqlAnswer
from hansard.domain import values
from hansard.domain.actions.cache import ActionCache
from hansard.domain.choices import NOTHING, check_options, chosen, first
from hansard.domain.errors import BadValue, HansardError
from hansard.domain.experience.experience import Experience
from hansard.domain.ids import AgentStream
from hansard.domain.memory.events import ORG
from hansard.domain.redaction import Redaction
from hansard.domain.steps import Verdict
from hansard.domain.values import recordable
from hansard.inspect.actions import ActionsLog, KeptCaches
from hansard.inspect.kept_experiences import HITS_MAX as EXPERIENCES_MAX
from hansard.inspect.kept_experiences import ExperienceHits, ExperienceLog, KeptExperiences
from hansard.inspect.prompts import PromptEvidence, PromptReport
from hansard.inspect.savings import By, Saved, SavingsAnswer
from hansard.inspect.what_left import SentOut

TAKEN = frozenset(
    {"run", "mode", "gate", "redact", "secrets", "settle", "labels", "program"}
    | {"correlation", "traceparent", "experiment", "arm", "task", "trial", "unit"}
)
"""The options of a run that a restricted agent has."""

TABLES_BYTES_MAX = 512 * 1024
"""Of tables that go along with a question: it is one message."""


class Wanted(msgspec.Struct, frozen=True):
    """A session that is to be opened: what the service is asked, and what stays here."""

    asked: wire.Open
    given: Given


def _demand_own_role(link: Link, role: str | None) -> None:
    """Raise NotOffered for another role than that of the credentials."""
    mine = link.credentials.role
    if role not in (None, mine):
        raise NotOffered(f"role={role!r:.80}", f"these credentials are of role {mine!r}")


def wanted(
    link: Link,
    defaults: Defaults,
    workflow: str | None,
    agent: str | None,
    role: str | None,
    options: Mapping[str, Any],
) -> Wanted:
    """What to open. Raises NotOffered, BadName, BadValue."""
    mine = link.credentials
    _demand_own_role(link, role)
    if agent not in (None, mine.principal):
        raise NotOffered(f"agent={agent!r:.80}", f"take part as {mine.principal!r}")
    check_options("record.run", options, RunOptions.__annotations__)
    for name, value in options.items():
        if name not in TAKEN and value not in (None, (), {}):
            raise NotOffered(f"record.run({name}=)", TRUSTED)
    taken = {name: value for name, value in options.items() if value is not None}
    rules: Sequence[GateRule] = taken.get("gate", defaults.gate)
    check_rules(rules)
    settle = taken.get("settle", defaults.settle)
    place = {kind: taken.get(kind) for kind in Asked.__struct_fields__}
    Asked(**place).check()
    budgets = [rule for rule in rules if isinstance(rule, Budget)]
    mode = taken.get("mode", defaults.mode)
    scrub = Redaction.of(taken.get("redact", {}))
    scrub = scrub.joined(link.redaction) if scrub is not None else link.redaction
    run = taken.get("run", defaults.run)
    if workflow is None and run is None:
        workflow = defaults.workflow
    name = PurePath(sys.argv[0]).name if sys.argv else ""
    asked = wire.Open(
        workflow=workflow,
        run=run,
        agent=mine.principal,
        mode=Mode(mode).value if mode is not None else None,
        labels=told_labels(taken.get("labels", {}), scrub),
        program=recordable(taken.get("program", name), scrub),
        correlation=taken.get("correlation"),
        traceparent=taken.get("traceparent"),
        budgets=told_budgets(budgets),
        settles=name_of(settle) if settle is not None else "",
        **place,
    )
    given = Given(
        mode=Mode.LIVE,
        rules=rules,
        scrub=scrub,
        secrets=taken.get("secrets", defaults.secrets),
        settle=settle,
    )
    return Wanted(asked, given)


async def opened(link: Link, what: Wanted) -> RemoteEngine:
    """Open it. Raises AccessRefused, ServiceGone, ServiceBusy, Refused."""
    session = await link.open_session(what.asked, what.given.scrub)
    given = msgspec.structs.replace(what.given, mode=Mode(session.opened.mode))
    mine = link.credentials
    stream = AgentStream(session.opened.run, mine.role, mine.principal)
    return RemoteEngine(session, stream, given)


async def closed(engine: RemoteEngine, report: str | None, error: BaseException | None) -> None:
    """End a session in order. With an error it never raises one of its own: it adds a note."""
    try:
        await _closed(engine, error)
    finally:
        mode = engine.settings.mode
        if report is not None and mode is not Mode.LIVE:
            tell(Ended(engine.stream.run, engine.stream.agent, mode, Saved()), report)


async def _closed(engine: RemoteEngine, error: BaseException | None) -> None:
    link: SessionLink = engine.link
    engine.ledger.ended = True
    if error is not None and link.lost is not None:
        return
    fault = faults.of_program(error, None, engine.settings.scrub) if error is not None else None
    try:
        answer = await link.ask("close", wire.Left(fault=fault))
        notes = wire.load(value_of(answer)) or ()
    except HansardError as failed:
        if error is None:
            raise
        error.add_note(f"the end of the session could not be recorded: {failed}")
    else:
        for note in notes:
            if error is not None and note not in getattr(error, "__notes__", ()):
                error.add_note(note)
    finally:
        await link.end()


async def ask(link: Link, asked: Ask) -> Any:
    """What an operation of the record comes to. Raises RoleRefused, NotFound, Refused, NotOffered,
    BadValue.
    """
    operation = of(asked)
    return shapes.back(value_of(await link.outside(operation.method, asked)), operation.result)


class _OfRole(Lacking):
    """What both twins have of their credentials."""

    _link: Link
    _defaults: Defaults

    _called = "record"
    _instead: ClassVar = {"workspace": TRUSTED}

    @property
    def _redaction(self) -> Redaction | None:
        """What may not leave this process."""
        return self._link.redaction

    def _text(self, text: str) -> str:
        """A reason as it leaves this process: without what is redacted."""
        return recordable(text, self._link.redaction)

    def _settling(
        self, run: str, step: str, verdict: Verdict | str, result: Any, because: str
    ) -> RecordSettle:
        said = chosen(Verdict, verdict, "verdict")
        plain = values.plain(result, "result", self._link.redaction)
        return RecordSettle(run, step, said, values.dump(plain), self._text(because))

    def _adding(self, name: str, text: str, options: Mapping[str, Any]) -> RecordAddPrompt:
        scrub = self._link.redaction
        draft = drafted(text, options)
        told = stored.drafted(draft, scrub)
        if told.metrics:
            raise NotOffered("record.add_prompt(metrics=)", TRUSTED)
        return RecordAddPrompt(
            name=name,
            text=told.text,
            model=told.model,
            parameters=values.dump(values.plain(dict(draft.parameters), "parameters", scrub)),
            parents=list(told.parents),
            feedback_applied=list(told.feedback_applied),
            because=told.because,
        )

    def _evolved(
        self, before: Prompt, after: Prompt, said: Sequence[str], because: str
    ) -> RecordAddPrompt:
        options = {
            "model": before.model,
            "parameters": before.parameters,
            "parents": (before.version,),
            "feedback_applied": tuple(said),
            "because": because,
        }
        return self._adding(before.name, after.text, options)

    def _moving(self, reference: str, alias: str, options: Mapping[str, Any]) -> RecordAliasPrompt:
        move = moving(alias, options)
        return RecordAliasPrompt(
            reference=reference,
            alias=alias,
            because=self._text(move.because),
            expected=None if move.expected == stored.CURRENT else move.expected or 0,
            take_away=move.take_away,
        )

    def _memory_of(self, space: str) -> RemoteStore:
        return RemoteStore(self._link, space)

    def _brief(self) -> dict[str, Any]:
        mine = self._link.credentials
        return {
            "workspace": mine.workspace,
            "principal": mine.principal,
            "role": mine.role,
            "sessions": first(kept(self), lambda each: f"{each.agent} in run {each.run}"),
        }

    def _place(self) -> str:
        return self._link.where


@guard_secrets("record")
class OnPortal(_OfRole, SyncSessions[RestrictedSession]):
    """What the sync twin does its own way: it waits for the bus's loop in another thread."""

    def __init__(self, link: Link, portal: Portal, defaults: Defaults) -> None:
        self._link = link
        link.redaction = Redaction.of(defaults.redact)
        self._portal = portal
        self._defaults = defaults

    def _let_go(self) -> None:
        self._portal.release(self._link.close())

    def _session(self, engine: RemoteEngine) -> RestrictedSession:
        return RestrictedSession(
            engine, engine.arm, self._portal, partial(closed, engine, self._defaults.report)
        )

    def evolve(
        self,
        reference: str,
        feedback: str | Sequence[str],
        *,
        using: Evolver | None = None,
        because: str = "",
    ) -> Prompt:
        """Add the version of a prompt that answers what was said of it, as `Record.evolve`: what
        gives the new text runs here. It needs what `prompt` and `add_prompt` need.
        """
        said = evolving.told(feedback)
        before = after = self._portal.run(ask(self._link, RecordPrompt(reference)))
        for each in said:
            rule = evolving.rule_of(each, using)
            if is_coroutine_function(rule):
                remedy = "give a plain function, or use the async client"
                raise BadValue("using", "it is a coroutine function", remedy)
            after = evolving.evolved(after, rule(after, each))
        version = self._portal.run(ask(self._link, self._evolved(before, after, said, because)))
        found: Prompt = self._portal.run(ask(self._link, RecordPrompt(f"{before.name}@{version}")))
        return found

    def memory(self, space: str = ORG) -> MemorySpace:
        """A space of memory as the role sees it; changed where it may and nobody is to be asked:
        what is asked about a session changes (`session.memory`).

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: It is none of these.
        """
        return MemorySpace(self._memory_of(space), SessionRankers(), self._portal)


@guard_secrets("record")
class OnLoop(_OfRole, AsyncSessions[AsyncRestrictedSession]):
    """What the async twin does its own way."""

    def __init__(self, link: Link, defaults: Defaults) -> None:
        self._link = link
        link.redaction = Redaction.of(defaults.redact)
        self._defaults = defaults

    async def _let_go(self) -> None:
        await self._link.close()

    def _session(self, engine: RemoteEngine) -> AsyncRestrictedSession:
        return AsyncRestrictedSession(
            engine, engine.arm, partial(closed, engine, self._defaults.report)
        )

    async def evolve(
        self,
        reference: str,
        feedback: str | Sequence[str],
        *,
        using: Evolver | None = None,
        because: str = "",
    ) -> Prompt:
        """Add the version of a prompt that answers what was said of it, as `AsyncRecord.evolve`."""
        said = evolving.told(feedback)
        before = after = await ask(self._link, RecordPrompt(reference))
        for each in said:
            text = evolving.rule_of(each, using)(after, each)
            after = evolving.evolved(after, await text if inspect.isawaitable(text) else text)
        version = await ask(self._link, self._evolved(before, after, said, because))
        found: Prompt = await ask(self._link, RecordPrompt(f"{before.name}@{version}"))
        return found

    def memory(self, space: str = ORG) -> AsyncMemorySpace:
        """A space of memory as the role sees it; changed where it may and nobody is to be asked:
        what is asked about a session changes (`session.memory`).

        Args:
            space: `agent/<name>`, `user/<principal>` or `org`.

        Raises:
            BadName: It is none of these.
        """
        return AsyncMemorySpace(self._memory_of(space), SessionRankers())


@guard_secrets("record")
class AsyncRestrictedRecord(OnLoop):
    """A workspace's record for the async client of a restricted agent."""

    _trusted = AsyncRecord

    async def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> AsyncRestrictedSession:
        what = wanted(self._link, self._defaults, workflow, agent, role, options)
        return self._session(await opened(self._link, what))

    async def view(
        self, run: str, at: str | None = None, *, role: str | None = None, key: bytes | None = None
    ) -> View:
        """A run as a role sees it: now, or at an event that it was shown."""
        found: View = await self._ask(RecordView(run, event_point(at), key, role))
        return found

    async def view_roles(self) -> list[str]:
        """The roles whose views its role may be shown, its own first."""
        found: list[str] = await self._ask(RecordViewRoles())
        return found

    async def sql(
        self, question: str, *parameters: object, tables: Mapping[str, Any] = NOTHING
    ) -> SqlAnswer:
        """The answer of the role's own tables, where the role may query."""
        from hansard.projections.sql_sandbox.answer import (  # noqa: PLC0415 -- for whoever asks
            parameter,
        )

        given = [wire.dump(parameter(each), "a parameter of SQL") for each in parameters]
        own: dict[str, bytes] = {}
        if tables:
            from hansard.client.own_tables import as_arrow  # noqa: PLC0415 -- pyarrow takes long

            own = as_arrow(tables, TABLES_BYTES_MAX)
        found: SqlAnswer = await self._ask(RecordSql(question, given, own))
        return found

    async def savings(
        self,
        run: str | None = None,
        *,
        workflow: str | None = None,
        month: str | None = None,
        by: str = "run",
    ) -> SavingsAnswer:
        """What replays saved, by the role's own tables, where the role may query."""
        wanted = chosen(By, by, "by").value
        found: SavingsAnswer = await self._ask(RecordSavings(run, workflow, month, wanted))
        return found

    async def compare(self, experiment: str, **options: Unpack[CompareOptions]) -> ComparisonReport:
        """The arms of an experiment beside each other, by the role's own tables, where the role may
        query.
        """
        asked = RecordCompare(question_of(experiment, options))
        found: ComparisonReport = await self._ask(asked)
        return found

    async def audit(self, run: str | None = None, **options: Unpack[AuditOptions]) -> AuditReport:
        """What is missing or odd, by the role's own tables, where the role may query."""
        found: AuditReport = await self._ask(RecordAudit(AuditQuestion.of(run, options)))
        return found

    async def why(self, decision: str) -> DecisionReport | DecisionList:
        """Why something was decided, by the role's own tables, where the role may query."""
        found: DecisionReport | DecisionList = await self._ask(RecordWhy(decision))
        return found

    async def apply_roles(self, path: str | os.PathLike[str]) -> dict[str, bool]:  # noqa: ARG002 -- as a trusted program has it
        """Raises NotOffered: roles are a trusted program's to give."""
        raise NotOffered("record.apply_roles", TRUSTED)

    async def approve(self, approval: str, *, because: str = "") -> None:
        """Grant what an agent asks, where the role may and is shown the question."""
        await self._ask(RecordApprove(approval, self._text(because)))

    async def deny(self, approval: str, *, because: str = "") -> None:
        """Deny what an agent asks, where the role may and is shown the question."""
        await self._ask(RecordDeny(approval, self._text(because)))

    async def settle(
        self,
        run: str,
        step: str,
        verdict: Verdict | str,
        *,
        result: Any = None,
        because: str = "",
    ) -> None:
        """Say what is true of a step in doubt, where the role may and is shown the step."""
        await self._ask(self._settling(run, step, verdict, result, because))

    async def reopen(self, run: str, task: str, *, because: str = "") -> bool:
        """Have a task that failed be done after all, where the role may state `task.reopened`
        and is shown the task.
        """
        return bool(await self._ask(RecordReopen(run, task, self._text(because))))

    async def finish(self, run: str, *, because: str = "") -> bool:
        """Say that a run has ended as it should, where the role may state `run.completed`."""
        return bool(await self._ask(RecordFinish(run, self._text(because))))

    async def cancel(self, run: str, *, because: str = "") -> bool:
        """Say that a run is cancelled, where the role may state `run.cancelled`."""
        return bool(await self._ask(RecordCancel(run, self._text(because))))

    async def prompt(self, reference: str) -> Prompt:
        """A version of a prompt, where the role sees all of prompts."""
        found: Prompt = await self._ask(RecordPrompt(reference))
        return found

    async def prompts(self) -> list[Prompt]:
        """The prompts that the role is cleared for, where it sees all of prompts."""
        found: list[Prompt] = await self._ask(RecordPrompts())
        return found

    async def add_prompt(
        self, name: str, text: str, **options: Unpack[PromptVersionOptions]
    ) -> int:
        """Add a version to a prompt, where the role may state `prompt.version_added` and sees all
        of prompts.
        """
        return int(await self._ask(self._adding(name, text, options)))

    async def alias_prompt(
        self, reference: str, alias: str, **options: Unpack[PromptAliasOptions]
    ) -> bool:
        """Have an alias name a version, where the role may state `prompt.aliased` and sees all of
        prompts.
        """
        return bool(await self._ask(self._moving(reference, alias, options)))

    async def prompt_report(self, name: str | None = None, *, alpha: float = 0.05) -> PromptReport:
        """How the versions of a prompt did, by the role's own tables, where the role may query and
        sees all of prompts.
        """
        found: PromptReport = await self._ask(RecordPromptReport(name, alpha))
        return found

    async def what_left(self, run: str) -> list[SentOut]:
        """What went out of a run, in order, by the role's own tables, where the role may query:
        calls that the role is not shown are not among them, and a value of more than 64 KiB stands
        there by its digest.
        """
        found: list[SentOut] = await self._ask(RecordWhatLeft(run))
        return found

    async def kept_experience(self, name: str, version: int | None = None) -> Experience:
        """A version of an experience that is kept, where the role sees all of experiences."""
        found: KeptVersion = await self._ask(RecordKeptExperience(name, version))
        return found.experience

    async def experience_log(self, name: str) -> ExperienceLog:
        """What is on record of an experience, by the role's own tables, where the role may query
        and sees all of experiences.
        """
        found: ExperienceLog = await self._ask(RecordExperienceLog(name))
        return found

    async def experiences(self) -> KeptExperiences:
        """The experiences that are kept, by the role's own tables, where the role may query."""
        found: KeptExperiences = await self._ask(RecordExperiences())
        return found

    async def find_experience(
        self,
        task: str = "",
        *,
        tools: Sequence[str] = (),
        address: str = "",
        limit: int = EXPERIENCES_MAX,
        retired: bool = False,
    ) -> ExperienceHits:
        """The experiences that fit a task, the best first, each with why, by the role's own tables,
        where the role may query.
        """
        asked = RecordFindExperience(task, list(tools), address, limit, retired)
        found: ExperienceHits = await self._ask(asked)
        return found

    async def confirm_experience(
        self, name: str, checks: Sequence[str] = (), *, digest: str = "", because: str = ""
    ) -> int:
        """Confirm the check functions of an experience, where the role may state
        `experience.confirmed` and sees all of experiences.
        """
        asked = RecordConfirmExperience(name, list(checks), digest, self._text(because))
        return int(await self._ask(asked))

    async def retire_experience(self, name: str, *, because: str = "") -> bool:
        """Retire an experience, where the role may state `experience.retired` and sees all of
        experiences.
        """
        return bool(await self._ask(RecordRetireExperience(name, self._text(because))))

    async def promote(
        self,
        reference: str,
        alias: str = PRODUCTION,
        *,
        experiment: str | None = None,
        because: str = "",
    ) -> PromptEvidence | None:
        """Move an alias to a version that an experiment says is better, by the role's own tables,
        where the role may state `prompt.aliased`, query, and sees all of prompts; with `because`
        without an experiment.
        """
        asked = RecordPromote(reference, alias, experiment, self._text(because))
        found: PromptEvidence | None = await self._ask(asked)
        return found

    async def give_feedback(
        self, reference: str, text: str = "", *, rating: float | None = None
    ) -> int:
        """Say something of a version, where the role may state `prompt.feedback_given` and sees all
        of prompts.
        """
        return int(await self._ask(RecordGiveFeedback(reference, self._text(text), rating)))

    async def retire_prompt(self, reference: str, *, because: str = "") -> bool:
        """Have a version not be used any more, where the role may state `prompt.retired` and sees
        all of prompts.
        """
        return bool(await self._ask(RecordRetirePrompt(reference, self._text(because))))

    async def invalidate(
        self, *, tool: str = "", run: str = "", key: str = "", because: str = ""
    ) -> None:
        """Declare answers stale that later runs might be given, where the role may state
        `reuse.invalidated`.
        """
        await self._ask(RecordInvalidate(tool=tool, run=run, key=key, because=self._text(because)))

    async def keep_actions(self, name: str, cache: ActionCache, *, because: str = "") -> int:
        """Keep an action cache by a name, as its next version, where the role may state
        `actions.saved` and sees all of action caches.
        """
        return int(await self._ask(RecordKeepActions(name, cache, self._text(because))))

    async def kept_actions(self, name: str, version: int | None = None) -> ActionCache:
        """A version of an action cache that is kept, where the role sees all of action caches."""
        found: ActionCache = await self._ask(RecordKeptActions(name, version))
        return found

    async def action_caches(self) -> KeptCaches:
        """The action caches that are kept, by the role's own tables, where the role may query and
        sees all of action caches.
        """
        found: KeptCaches = await self._ask(RecordActionCaches())
        return found

    async def actions_log(self, name: str) -> ActionsLog:
        """The versions of an action cache, by the role's own tables, where the role may query and
        sees all of action caches.
        """
        found: ActionsLog = await self._ask(RecordActionsLog(name))
        return found

    async def revert_actions(self, name: str, to: int, *, because: str = "") -> int:
        """Have an earlier version of an action cache be the next one, where the role may state
        `actions.reverted` and sees all of action caches.
        """
        return int(await self._ask(RecordRevertActions(name, to, self._text(because))))

    async def look_at_actions(
        self, name: str, version: int | None = None, *, because: str = ""
    ) -> int:
        """State that the versions of an action cache up to one were looked at, where the role may
        state `actions.looked_at` and sees all of action caches.
        """
        return int(await self._ask(RecordLookAtActions(name, version, self._text(because))))

    async def _ask(self, asked: Ask) -> Any:
        return await ask(self._link, asked)


@guard_secrets("record")
class RestrictedRecord(OnPortal):
    """A workspace's record for the sync client of a restricted agent."""

    _trusted = Record

    def _begin(
        self, workflow: str | None, agent: str | None, role: str | None, options: dict[str, Any]
    ) -> RestrictedSession:
        what = wanted(self._link, self._defaults, workflow, agent, role, options)
        return self._session(self._portal.run(opened(self._link, what)))

    view = on_portal(AsyncRestrictedRecord.view)
    view_roles = on_portal(AsyncRestrictedRecord.view_roles)
    sql = on_portal(AsyncRestrictedRecord.sql)
    savings = on_portal(AsyncRestrictedRecord.savings)
    compare = on_portal(AsyncRestrictedRecord.compare)
    audit = on_portal(AsyncRestrictedRecord.audit)
    why = on_portal(AsyncRestrictedRecord.why)
    apply_roles = on_portal(AsyncRestrictedRecord.apply_roles)
    approve = on_portal(AsyncRestrictedRecord.approve)
    deny = on_portal(AsyncRestrictedRecord.deny)
    settle = on_portal(AsyncRestrictedRecord.settle)
    reopen = on_portal(AsyncRestrictedRecord.reopen)
    finish = on_portal(AsyncRestrictedRecord.finish)
    cancel = on_portal(AsyncRestrictedRecord.cancel)
    prompt = on_portal(AsyncRestrictedRecord.prompt)
    prompts = on_portal(AsyncRestrictedRecord.prompts)
    add_prompt = on_portal(AsyncRestrictedRecord.add_prompt)
    alias_prompt = on_portal(AsyncRestrictedRecord.alias_prompt)
    prompt_report = on_portal(AsyncRestrictedRecord.prompt_report)
    what_left = on_portal(AsyncRestrictedRecord.what_left)
    kept_experience = on_portal(AsyncRestrictedRecord.kept_experience)
    experience_log = on_portal(AsyncRestrictedRecord.experience_log)
    experiences = on_portal(AsyncRestrictedRecord.experiences)
    find_experience = on_portal(AsyncRestrictedRecord.find_experience)
    confirm_experience = on_portal(AsyncRestrictedRecord.confirm_experience)
    retire_experience = on_portal(AsyncRestrictedRecord.retire_experience)
    promote = on_portal(AsyncRestrictedRecord.promote)
    give_feedback = on_portal(AsyncRestrictedRecord.give_feedback)
    retire_prompt = on_portal(AsyncRestrictedRecord.retire_prompt)
    invalidate = on_portal(AsyncRestrictedRecord.invalidate)
    keep_actions = on_portal(AsyncRestrictedRecord.keep_actions)
    kept_actions = on_portal(AsyncRestrictedRecord.kept_actions)
    action_caches = on_portal(AsyncRestrictedRecord.action_caches)
    actions_log = on_portal(AsyncRestrictedRecord.actions_log)
    revert_actions = on_portal(AsyncRestrictedRecord.revert_actions)
    look_at_actions = on_portal(AsyncRestrictedRecord.look_at_actions)
    _ask = AsyncRestrictedRecord._ask  # noqa: SLF001 -- of its own twin
