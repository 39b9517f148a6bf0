"""What is asked outside of a session: to open one, a role's view of a run, and SQL.

Long because each operation of a record (`hansard.client.operations`) is answered by a method here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from hansard.agents import artifacts, opening, runs
from hansard.agents.access import roles, views
from hansard.agents.access.authenticator import Authenticator, Principal
from hansard.agents.access.carried import Carried
from hansard.agents.access.views import Derived, View
from hansard.agents.actions import kept_experiences
from hansard.agents.actions import store as kept_caches
from hansard.agents.actions.kept_experiences import KeptVersion
from hansard.agents.errors import RoleRefused
from hansard.agents.experiments.plans import NotPlaced
from hansard.agents.memory.reading import MemoryEntry, MemoryVersion
from hansard.agents.memory.sight import Sight
from hansard.agents.memory.store import BlamedLine, MemoryStore
from hansard.agents.memory.twins import MemoryChange
from hansard.agents.opening import Options
from hansard.agents.policy import permits
from hansard.agents.policy.approvals import answer, listed
from hansard.agents.policy.permits import clearance_of
from hansard.agents.prompts import store
from hansard.agents.prompts.store import Draft, Move, Prompt
from hansard.agents.runs import settle
from hansard.agents.steps import reused
from hansard.agents.steps.ledger import Mode
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.client.operations import (
    OPERATIONS,
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
    RecordMemoryBlame,
    RecordMemoryChange,
    RecordMemoryDiff,
    RecordMemoryEntries,
    RecordMemoryEntry,
    RecordMemoryHistory,
    RecordMemoryRevert,
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
    Takes,
    read,
)
from hansard.client.options import Promotion
from hansard.client.options import promote as promoted
from hansard.client.protocol import shapes, wire
from hansard.client.protocol.errors import NotOffered, ServiceGone
from hansard.client.protocol.remote_call import Program
from hansard.client.protocol.wire import Open, Request
from hansard.client.reports import (
    AuditReport,
    ComparisonReport,
    DecisionList,
    DecisionReport,
    explained,
    shown,
)
from hansard.client.sql_answer import SqlAnswer
from hansard.domain import choices, ids
from hansard.domain.actions.cache import ActionCache
from hansard.domain.actions.kept import ACTIONS
from hansard.domain.artifact import ArtifactKind
from hansard.domain.choices import NOTHING
from hansard.domain.errors import BadValue, Refused
from hansard.domain.experience.kept import EXPERIENCES
from hansard.domain.ids import RunStream
from hansard.domain.label import join
from hansard.domain.label import parse as label_of
from hansard.domain.prompt import PROMPTS, split
from hansard.domain.reuse import AnswersInvalidated
from hansard.domain.roles.authorize import is_cleared_for
from hansard.domain.roles.judge import cleared
from hansard.domain.team.task_rules import Circle
from hansard.inspect import actions
from hansard.inspect import kept_experiences as found_experiences
from hansard.inspect import prompts as inspected
from hansard.inspect import what_left as left
from hansard.inspect.actions import ActionsLog, KeptCaches
from hansard.inspect.answer import Answer
from hansard.inspect.comparison_parts import compare
from hansard.inspect.kept_experiences import ExperienceHits, ExperienceLog, KeptExperiences
from hansard.inspect.prompts import PromptEvidence, PromptReport
from hansard.inspect.savings import SavingsAnswer, Wanted, savings
from hansard.inspect.what_left import SentOut
from hansard.inspect.why import why
from hansard.projections.reader import Reader
from hansard.projections.search.files import FileWords
from hansard.service import operations
from hansard.service.fair_queue import Bounds, FairQueue
from hansard.service.hosted import Hosted

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


OPENINGS = Bounds(
    what="openings",
    places=8,
    places_each=4,
    waiting_each=64,
    wait_s=30.0,
    retry_after_s=1.0,
)
"""Of sessions that are being opened: each reads a run's life and an agent."""

SHORT = Bounds(
    what="views and answers",
    places=4,
    places_each=1,
    waiting_each=64,
    wait_s=30.0,
    retry_after_s=1.0,
)
"""Of views, and of what is said of runs: each reads a whole run."""

LONG = Bounds(
    what="questions in SQL",
    places=3,
    places_each=1,
    waiting_each=8,
    wait_s=60.0,
    retry_after_s=10.0,  # by then the one that is answered now has ended
)
"""Of questions in SQL: each is given a core and memory for up to ten seconds."""

R = TypeVar("R", bound=Answer)


class RoleTables(Protocol):
    """Answers from a role's own database."""

    async def ask(
        self,
        asker: Asker,
        statement: str,
        parameters: Sequence[object],
        tables: Mapping[str, bytes] = NOTHING,
    ) -> SqlAnswer:
        """The answer to a statement in SQL; `tables` are the asker's own, as Arrow."""
        ...

    async def read(self, asker: Asker, asked: str, reads: Callable[[Reader], R]) -> R:
        """What one of our own reads finds; `asked` says of what, for the record."""
        ...


class Asker(msgspec.Struct, frozen=True):
    """Who asks: as a principal of which role, what it carries, and the workspace as it writes."""

    who: Principal
    carried: Carried
    workspace: Workspace

    @classmethod
    async def of(cls, authenticator: Authenticator, workspace: Workspace, who: Principal) -> Asker:
        """Somebody who was let in."""
        carried = authenticator.carried(who, workspace.log)
        await carried.begin()
        return cls(who, carried, workspace.through(carried.log))


async def _session(asker: Asker, asked: Open, nonce: str, reads: FairQueue) -> Hosted:
    who, workspace = asker.who, asker.workspace
    asker.carried.run = asked.run or ""
    if asked.agent != who.name:
        remedy = f"take part as {who.name!r}: a name is whose it is, as a principal"
        raise NotOffered(f"agent={asked.agent!r:.80}", remedy)
    if asked.mode is not None and asked.mode not in {each.value for each in Mode}:
        raise BadValue(
            "mode", f"{asked.mode!r:.40}", f"give one of {[each.value for each in Mode]}"
        )
    program = Program(asked.budgets, asked.settles)
    await _demand_budgets(workspace, who, program, asked.mode)
    options = Options(
        workflow=asked.workflow,
        run=asked.run,
        mode=asked.mode,
        gate=program.said,
        secrets=program.lent,
        settle=program.settle,
        labels=asked.labels,
        program=asked.program,
        correlation=asked.correlation,
        traceparent=asked.traceparent,
        experiment=asked.experiment,
        arm=asked.arm,
        task=asked.task,
        trial=asked.trial,
        unit=asked.unit,
        on_behalf_of=who.actor_chain,
        restricted=True,
        opening=ids.uuid8("opening", who.name, nonce),
        begins=nonce if _UUID7.fullmatch(nonce) else "",
    )
    try:
        found = await opening.open_agent_here(workspace, who.name, who.role, options)
    except NotPlaced:
        raise  # of what the role sees: else it was refused before
    except opening.OpenedBefore as error:
        raise ServiceGone(str(error)) from error
    except (NotFound, Refused) as error:
        # Its text may tell of the run's roster, workflow or conversation.
        message = (
            f"run {asked.run!r:.80} cannot be opened so by {who.name!r} as {who.role!r}: give the "
            "id of a run that has begun, its workflow or none, and the role that it had in it"
        )
        raise Refused(message) from error
    asker.carried.run = found.run
    return Hosted(workspace, found, program, asker.carried, partial(reads.place, who.name))


async def _demand_budgets(
    workspace: Workspace, who: Principal, program: Program, mode: str | None
) -> None:
    """Raise RoleRefused where the role may not have calls counted on a budget."""
    if not program.said.budgets or (mode is not None and Mode(mode).reads_only):
        return
    permit = await permits.read(workspace, who.role, restricted=True)
    for budget in program.said.budgets:
        permit.demand(permits.counts(budget.name))


def opened(hosted: Hosted, name: str, instance: str) -> wire.Opened:
    """What the client of a session that was opened is told of it."""
    return wire.Opened(
        session=name,
        instance=instance,
        run=hosted.opened.run,
        mode=hosted.session.mode.value,
        epoch=hosted.opened.engine.ledger.state.epoch,
        arm=shapes.told_arm(hosted.opened.arm),
    )


class _Said(Answer):
    """What an experiment says of two versions."""

    said: PromptEvidence


class WorkspaceRequests:
    """Answers what is asked outside of a session."""

    def __init__(self, tables: RoleTables | None) -> None:
        self._tables = tables
        self._openings = FairQueue(OPENINGS)
        self._short = FairQueue(SHORT)
        self._long = FairQueue(LONG)

    async def open_session(self, asker: Asker, asked: Open, nonce: str) -> Hosted:
        """Open a session for a principal: as the agent of its name, in the role of its token. What
        was opened under the same nonce before, by whichever service, is not opened once more.

        Raises NotOffered, RoleRefused, Refused, BadName, BadValue, ServiceBusy.
        """
        async with self._openings.place(asker.who.name):
            return await _session(asker, asked, nonce, self._short)

    async def ask(self, verb: str, asker: Asker, request: Request) -> bytes:
        """The answer; that it is shown what the answer says is on record before. Raises BadValue,
        RoleRefused, NotOffered, Refused, NotFound, ServiceBusy.
        """
        operation = OPERATIONS.get(f"record.{verb}")
        if operation is None:
            remedy = "use the client of this version"
            raise BadValue("request", f"there is no operation {verb!r:.40} of a record", remedy)
        queue = self._long if operation.takes is Takes.LONG else self._short
        async with queue.place(asker.who.name):
            found, asked = read(request.data)
            if found is not operation:
                raise BadValue("request", f"{found.name!r} as {operation.name!r}", "ask for one")
            if needs := operation.needs(asked):
                permit = await permits.read(asker.workspace, asker.who.role, restricted=True)
                for need in needs:
                    permit.demand(need)
            answer = await getattr(self, verb)(asker, asked)
            return wire.encode(wire.Value(await shapes.told(answer)))

    # Each of these answers the operation of its name; what its role needs for it was asked before.

    async def view(self, asker: Asker, asked: RecordView) -> View:
        """A run as the role sees it, or another, on record as shown."""
        run, role = ids.name("run", asked.run), asked.role or asker.who.role
        asker.carried.run = run
        if role != asker.who.role:
            await self._demand_cleared(asker, role)
        made = await self._derived(asker, run, asked.key, role)
        if made is None:
            raise NotFound(f"run {run!r:.80}", "give the id of one that the role is shown any of")
        await asker.carried.shown(made.label)
        if asked.at is not None:
            if all(shown.id != asked.at for _, shown in made.view.events):
                raise operations.not_shown(asked.at)
            made = await views.derive(asker.workspace.states, role, run, asked.at, asked.key)
            await asker.carried.shown(made.label)
        await views.record(asker.workspace, made, asker.who.actor)
        return made.view

    async def view_roles(self, asker: Asker, asked: RecordViewRoles) -> list[str]:
        """The roles that have rules and whose views the role may be shown, its own first."""
        del asked
        permit = await permits.read(asker.workspace, asker.who.role, restricted=True)
        return permits.viewable(permit, await roles.defined(asker.workspace))

    async def _demand_cleared(self, asker: Asker, role: str) -> None:
        """Refuse the view of a role that is cleared for more than who asks, whatever the run holds:
        what it is shown there follows from that role's rules alone. Raises RoleRefused.
        """
        permit = await permits.read(asker.workspace, asker.who.role, restricted=True)
        seen = (await permits.read(asker.workspace, role, restricted=True)).rules
        if seen is not None and not is_cleared_for(permit.rules, seen.clearance):
            because = (
                f"role {role!r:.80} is cleared for {seen.clearance}, and it is not; "
                f"ask for: clearance = {choices.text(seen.clearance)} in its rules"
            )
            raise RoleRefused(permits.VIEW, role, permit.rule, because)

    async def sql(self, asker: Asker, asked: RecordSql) -> SqlAnswer:
        """The answer of the role's own database. Raises NotOffered."""
        parameters = [wire.load(each) for each in asked.parameters]
        tables = self._its_tables("sql")
        return await tables.ask(asker, asked.statement, parameters, asked.tables)

    async def savings(self, asker: Asker, asked: RecordSavings) -> SavingsAnswer:
        """What replays saved, by the role's own database. Raises NotOffered, BadValue."""
        tables = self._its_tables("savings")

        async def ask(statement: str, parameters: Sequence[object]) -> SqlAnswer:
            return await tables.ask(asker, statement, parameters)

        return await savings(ask, Wanted(asked.run, asked.workflow, asked.month, asked.by))

    async def compare(self, asker: Asker, asked: RecordCompare) -> ComparisonReport:
        """The arms of an experiment beside each other, by the role's own database. Raises
        NotOffered.
        """

        def reads(reader: Reader) -> ComparisonReport:
            return shown(compare(reader, asked.question), ComparisonReport)

        said = msgspec.json.encode(asked.question).decode()
        return await self._from_tables(asker, "compare", (said,), reads)

    async def audit(self, asker: Asker, asked: RecordAudit) -> AuditReport:
        """What is missing or odd, by the role's own database. Raises NotOffered."""
        said = msgspec.json.encode(asked.question).decode()
        return await self._from_tables(asker, "audit", (said,), asked.question.answer)

    async def why(self, asker: Asker, asked: RecordWhy) -> DecisionReport | DecisionList:
        """Why something was decided, by the role's own database. Raises NotOffered, NotFound."""

        def reads(reader: Reader) -> DecisionReport | DecisionList:
            return explained(why(reader, asked.decision))

        return await self._from_tables(asker, "why", (asked.decision,), reads)

    async def prompt(self, asker: Asker, asked: RecordPrompt) -> Prompt:
        """A version of a prompt, on record as shown."""
        await self._demand_shown(asker, PROMPTS, split(asked.reference)[0])
        return await store.get(asker.workspace, asked.reference)

    async def prompts(self, asker: Asker, asked: RecordPrompts) -> list[Prompt]:
        """The prompts, on record as shown; those above the role's clearance are none to it."""
        del asked
        permit = await permits.read(asker.workspace, asker.who.role, restricted=True)
        found = [
            each
            for each in await store.newest(asker.workspace)
            if permit.rules is not None and cleared(permit.rules, each.label)
        ]
        for label in {each.label for each in found}:
            await asker.carried.shown(label)
        return found

    async def add_prompt(self, asker: Asker, asked: RecordAddPrompt) -> int:
        """Add a version."""
        await self._demand_shown(asker, PROMPTS, asked.name, begins=True)
        draft = Draft(
            text=asked.text,
            model=asked.model,
            parameters=operations.data_of(
                OPERATIONS["record.add_prompt"], "parameters", asked.parameters
            ),
            parents=asked.parents,
            feedback_applied=asked.feedback_applied,
            because=asked.because,
        )
        return (await store.add(asker.workspace, asked.name, draft, by=asker.who.actor)).version

    async def alias_prompt(self, asker: Asker, asked: RecordAliasPrompt) -> bool:
        """Have an alias name a version."""
        await self._demand_shown(asker, PROMPTS, split(asked.reference)[0])
        move = Move(
            alias=asked.alias,
            take_away=asked.take_away,
            expected=store.CURRENT if asked.expected is None else asked.expected or None,
            because=asked.because,
        )
        moved = await store.move(asker.workspace, asked.reference, move, by=asker.who.actor)
        return moved.is_new

    async def give_feedback(self, asker: Asker, asked: RecordGiveFeedback) -> int:
        """Say something of a version."""
        await self._demand_shown(asker, PROMPTS, split(asked.reference)[0])
        given = await store.feed_back(
            asker.workspace,
            asked.reference,
            asked.text,
            rating=asked.rating,
            by=asker.who.actor,
        )
        return given.version

    async def retire_prompt(self, asker: Asker, asked: RecordRetirePrompt) -> bool:
        """Have a version not be used any more."""
        await self._demand_shown(asker, PROMPTS, split(asked.reference)[0])
        retired = await store.retire(
            asker.workspace, asked.reference, because=asked.because, by=asker.who.actor
        )
        return retired.is_new

    async def invalidate(self, asker: Asker, asked: RecordInvalidate) -> None:
        """Declare answers stale."""
        told = AnswersInvalidated(
            tool=asked.tool, run=asked.run, key=asked.key, because=asked.because
        )
        await reused.invalidate(asker.workspace, told, by=asker.who.actor)

    async def prompt_report(self, asker: Asker, asked: RecordPromptReport) -> PromptReport:
        """How the versions of prompts did, by the role's own database. Raises NotOffered."""
        said = (asked.name or "", f"{asked.alpha}")
        reads = partial(inspected.report, name=asked.name, alpha=asked.alpha)
        return await self._from_tables(asker, "prompt_report", said, reads)

    async def experiences(self, asker: Asker, _asked: RecordExperiences) -> KeptExperiences:
        """The experiences that are kept, by the role's own database. Raises NotOffered."""
        reads = found_experiences.experiences
        return await self._from_tables(asker, "experiences", (), reads)

    async def find_experience(self, asker: Asker, asked: RecordFindExperience) -> ExperienceHits:
        """The experiences that fit, by the role's own database. Raises NotOffered."""
        wanted = found_experiences.Wanted(
            task=asked.task,
            tools=tuple(asked.tools),
            address=asked.address,
            limit=asked.limit,
            retired=asked.retired,
        )

        def reads(reader: Reader) -> ExperienceHits:
            index = found_experiences.ExperienceIndex(FileWords())
            with closing(index):  # of the role's own: no rank tells of others
                return found_experiences.find(reader, wanted, index)

        said = (asked.task, asked.address)
        return await self._from_tables(asker, "find_experience", said, reads)

    async def what_left(self, asker: Asker, asked: RecordWhatLeft) -> list[SentOut]:
        """What went out of a run, by the role's own database. Raises NotOffered, NotFound."""
        reads = partial(left.by_tables, run=asked.run)
        return (await self._from_tables(asker, "what_left", (asked.run,), reads)).sent

    async def kept_experience(self, asker: Asker, asked: RecordKeptExperience) -> KeptVersion:
        """A version of an experience, on record as shown."""
        await self._demand_shown(asker, EXPERIENCES, asked.name)
        return await kept_experiences.get(asker.workspace, asked.name, asked.version)

    async def experience_log(self, asker: Asker, asked: RecordExperienceLog) -> ExperienceLog:
        """What is on record of an experience, by the role's own database. Raises NotOffered,
        NotFound.
        """
        reads = partial(found_experiences.log, name=asked.name)
        return await self._from_tables(asker, "experience_log", (asked.name,), reads)

    async def confirm_experience(self, asker: Asker, asked: RecordConfirmExperience) -> int:
        """Confirm the check functions of an experience."""
        await self._demand_shown(asker, EXPERIENCES, asked.name)
        confirmed = await kept_experiences.confirm(
            asker.workspace,
            asked.name,
            asked.checks,
            digest=asked.digest,
            because=asked.because,
            by=asker.who.actor,
        )
        return confirmed.version

    async def retire_experience(self, asker: Asker, asked: RecordRetireExperience) -> bool:
        """Have an experience not be used any more."""
        await self._demand_shown(asker, EXPERIENCES, asked.name)
        retired = await kept_experiences.retire(
            asker.workspace, asked.name, because=asked.because, by=asker.who.actor
        )
        return retired.is_new

    async def promote(self, asker: Asker, asked: RecordPromote) -> PromptEvidence | None:
        """Move an alias, by what the role's own database says of an experiment."""
        await self._demand_shown(asker, PROMPTS, split(asked.reference)[0])

        async def read(reads: Callable[[Reader], PromptEvidence]) -> PromptEvidence:
            said = (asked.reference, asked.experiment or "")
            wrapped = await self._from_tables(
                asker, "promote", said, lambda reader: _Said(said=reads(reader))
            )
            return wrapped.said

        given = (asked.reference, asked.alias, asked.experiment, asked.because)
        move = Promotion(*given, by=asker.who.actor)
        return await promoted(asker.workspace, read, move)

    async def _demand_shown(
        self, asker: Asker, kind: ArtifactKind[Any], name: str, *, begins: bool = False
    ) -> None:
        """Put on record that an artifact is shown. Raises NotFound where there is none, unless it
        `begins` now, and where it is above the role's clearance.
        """
        found = await artifacts.find(asker.workspace, kind, name)
        if begins and not found.commits:
            return
        permit = await permits.read(asker.workspace, asker.who.role, restricted=True)
        if not found.commits or permit.rules is None or not cleared(permit.rules, found.label):
            raise artifacts.missing(kind, name)
        await asker.carried.shown(found.label)

    async def keep_actions(self, asker: Asker, asked: RecordKeepActions) -> int:
        """Keep an action cache. Raises NotFound for the name of one above the role's clearance."""
        await self._demand_shown(asker, ACTIONS, asked.name, begins=True)
        kept = await kept_caches.save(
            asker.workspace, asked.name, asked.cache, because=asked.because, by=asker.who.actor
        )
        return kept.version

    async def kept_actions(self, asker: Asker, asked: RecordKeptActions) -> ActionCache:
        """A version of an action cache, on record as shown."""
        await self._demand_shown(asker, ACTIONS, asked.name)
        return await kept_caches.get(asker.workspace, asked.name, asked.version)

    async def action_caches(self, asker: Asker, asked: RecordActionCaches) -> KeptCaches:
        """The action caches, by the role's own database. Raises NotOffered."""
        del asked
        return await self._from_tables(asker, "action_caches", (), actions.caches)

    async def actions_log(self, asker: Asker, asked: RecordActionsLog) -> ActionsLog:
        """The versions of a cache, by the role's own database. Raises NotOffered, NotFound."""
        reads = partial(actions.log, name=asked.name)
        return await self._from_tables(asker, "actions_log", (asked.name,), reads)

    async def revert_actions(self, asker: Asker, asked: RecordRevertActions) -> int:
        """Have an earlier version be the next one."""
        await self._demand_shown(asker, ACTIONS, asked.name)
        reverted = await kept_caches.revert(
            asker.workspace, asked.name, asked.to, because=asked.because, by=asker.who.actor
        )
        return reverted.version

    async def look_at_actions(self, asker: Asker, asked: RecordLookAtActions) -> int:
        """State that versions were looked at."""
        await self._demand_shown(asker, ACTIONS, asked.name)
        looked = await kept_caches.look_at(
            asker.workspace, asked.name, asked.version, because=asked.because, by=asker.who.actor
        )
        return looked.version

    async def memory_entry(self, asker: Asker, asked: RecordMemoryEntry) -> MemoryEntry:
        """A file of a space, on record as shown."""
        store = await self._memory(asker, asked.space)
        found = await store.entry(asked.path, asked.at)
        await asker.carried.shown(label_of(found.label))
        return found

    async def memory_entries(self, asker: Asker, asked: RecordMemoryEntries) -> list[MemoryEntry]:
        """All files of a space that the role sees, on record as shown."""
        found = await (await self._memory(asker, asked.space)).entries(asked.at)
        await asker.carried.shown(join(*(label_of(each.label) for each in found)).stored)
        return found

    async def memory_history(self, asker: Asker, asked: RecordMemoryHistory) -> list[MemoryVersion]:
        """The versions of a file, or the changes of all."""
        store = await self._memory(asker, asked.space)
        await asker.carried.shown(await store.label())
        return await store.versions(asked.path)

    async def memory_diff(self, asker: Asker, asked: RecordMemoryDiff) -> str:
        """What became of files between two points."""
        store = await self._memory(asker, asked.space)
        await asker.carried.shown(await store.label())
        return await store.diff(asked.path, asked.before, asked.after)

    async def memory_blame(self, asker: Asker, asked: RecordMemoryBlame) -> list[BlamedLine]:
        """The change that brought each line of a file."""
        store = await self._memory(asker, asked.space)
        await asker.carried.shown(await store.label())
        return await store.blame(asked.path)

    async def memory_change(self, asker: Asker, asked: RecordMemoryChange) -> None:
        """Change files of a space."""
        store = await self._memory(asker, asked.space)
        files = (await store.state()).files
        named = [
            files[path].label for op in asked.ops for path in (op.path, op.to) if path in files
        ]
        await asker.carried.shown(join(*named).stored)  # what is said goes by how they stand
        change = MemoryChange()
        for each in asked.ops:
            operations.asked_of(change, each)
        await store.change(change.ops, asker.who.actor, asked.because, asked.sources)

    async def memory_revert(self, asker: Asker, asked: RecordMemoryRevert) -> None:
        """Undo a change of a space."""
        store = await self._memory(asker, asked.space)
        await asker.carried.shown(await store.label())
        await store.revert(asked.change, asker.who.actor, asked.because)

    async def _memory(self, asker: Asker, space: str) -> MemoryStore:
        """A space as the role sees it."""
        role, log = asker.who.role, asker.workspace.log
        permit = await permits.read(asker.workspace, role, restricted=True)
        sight = Sight(permit, partial(clearance_of, log, role), lambda: asker.carried.label)
        return MemoryStore(asker.workspace, space, sight=sight)

    async def _from_tables(
        self, asker: Asker, what: str, said: tuple[str, ...], reads: Callable[[Reader], R]
    ) -> R:
        """What one of our own reads finds in the role's own tables; on record is what was asked,
        of what it `said`. Raises NotOffered, and what the read raises.
        """
        words = " ".join([what.replace("_", " "), *said])
        return await self._its_tables(what).read(asker, words, reads)

    def _its_tables(self, what: str) -> RoleTables:
        """Raises NotOffered where there are none."""
        if self._tables is None:
            raise NotOffered(f"record.{what}()", "the service that answers keeps no role databases")
        return self._tables

    async def approve(self, asker: Asker, asked: RecordApprove) -> None:
        """Grant what an agent asks."""
        await self._answer(asker, asked, granted=True)

    async def deny(self, asker: Asker, asked: RecordDeny) -> None:
        """Deny it."""
        await self._answer(asker, asked, granted=False)

    async def _answer(self, asker: Asker, asked: RecordApprove, *, granted: bool) -> None:
        """A question that the role is not shown is none to it."""
        found = [
            each.run for each in await listed(asker.workspace) if each.approval.id == asked.approval
        ]
        about = {"approval": asked.approval}
        run = found[0] if found else ids.uuid8("approval", asked.approval)  # there is none
        if not await self._sees(asker, run, "approval.requested", about):
            raise NotFound(f"approval {asked.approval!r:.80}", "give one that the role is shown")
        await answer(
            asker.workspace,
            asked.approval,
            granted=granted,
            by=asker.who.actor,
            because=asked.because,
            role=asker.who.role,
        )

    async def settle(self, asker: Asker, asked: RecordSettle) -> None:
        """Say what is true of a step. One that the role is not shown is none to it."""
        result = wire.load(asked.result)
        with contextlib.suppress(NotFound):  # answered as a step that is not shown
            step = await asker.workspace.points.step_name(asked.run, asked.step)
            asked = msgspec.structs.replace(asked, step=step)
        agent, _, number = asked.step.rpartition("#")
        about = {"step": int(number) if number.isdigit() else None}
        if not await self._sees(asker, asked.run, "step.requested", about, agent):
            raise NotFound(f"step {asked.step!r:.80}", "give agent#number of one that it is shown")
        await settle(
            asker.workspace,
            asked.run,
            asked.step,
            asked.verdict,
            result=result,
            by=asker.who.actor,
            because=asked.because,
        )

    async def reopen(self, asker: Asker, asked: RecordReopen) -> bool:
        """Have a task that failed be done after all. One that the role is not shown is none to it;
        nor is what that waits for.
        """
        about = {"task": asked.task}
        if not await self._sees(asker, asked.run, "task.failed", about):
            raise NotFound(f"failed task {asked.task!r:.80}", "give one that the role is shown")
        done = runs.reopen(
            asker.workspace, asked.run, asked.task, by=asker.who.actor, because=asked.because
        )
        try:
            return await done
        except Circle as circle:
            message = f"task {asked.task!r} waits for what now waits for it: it stays as it is"
            raise Refused(message) from circle

    async def finish(self, asker: Asker, asked: RecordFinish) -> bool:
        """Say that a run has ended as it should."""
        return await self._end(asker, asked, runs.finish)

    async def cancel(self, asker: Asker, asked: RecordCancel) -> bool:
        """Say that it is cancelled."""
        return await self._end(asker, asked, runs.cancel)

    async def _end(self, asker: Asker, asked: RecordFinish, end: Callable[..., Any]) -> bool:
        """A run of which the role is shown nothing is none to it."""
        run = ids.name("run", asked.run)
        made = await self._derived(asker, run)
        if made is None:
            raise NotFound(f"run {run!r:.80}", "give the id of one that the role is shown any of")
        asker.carried.run = run
        await asker.carried.shown(made.label)  # what is said goes by how the run stands
        try:
            said = await end(asker.workspace, run, by=asker.who.actor, because=asked.because)
        except Refused as error:  # its text tells how the run ended, which may not be shown
            message = f"run {run!r:.80} has ended otherwise: it has to be resumed first"
            raise Refused(message) from error
        return bool(said)

    async def _derived(
        self, asker: Asker, run: str, key: bytes | None = None, role: str = ""
    ) -> Derived | None:
        """A run as the role sees it; None if it sees nothing of it, or there is no such run."""
        if await asker.workspace.log.last(RunStream(run)) is None:
            return None
        made = await views.derive(asker.workspace.states, role or asker.who.role, run, None, key)
        return made if made.view.events else None

    async def _sees(
        self, asker: Asker, run: str, kind: str, about: dict[str, Any], agent: str = ""
    ) -> bool:
        """Whether the role is shown an event of a kind that says something. What the answer is goes
        by all that it is shown of the run, which counts as shown.
        """
        made = await self._derived(asker, ids.name("run", run))
        if made is None:
            return False
        asker.carried.run = run
        await asker.carried.shown(made.label)
        return any(
            shown.type.startswith(f"{kind}.")
            and agent in ("", shown.agent)
            and about.items() <= msgspec.json.decode(shown.data).items()
            for _, shown in made.view.events
        )


operations.demand_handlers({"record": WorkspaceRequests}, by_field=False)
