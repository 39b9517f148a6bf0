"""Requests outside of a session: to open one, and to read a record as a role sees it."""

from __future__ import annotations

import builtins
import contextlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

import msgspec

from hansard.agents import runs as opening
from hansard.agents.access import roles
from hansard.agents.access.carried import AccumulatedLabel
from hansard.agents.access.principals import Authenticator, Principal
from hansard.agents.access.roles import DerivedView, View
from hansard.agents.artifacts import prompts as store
from hansard.agents.artifacts import versions
from hansard.agents.artifacts.prompts import Prompt
from hansard.agents.errors import RoleRefused
from hansard.agents.experiments import NotPlaced
from hansard.agents.memory.reading import VisibilityFilter
from hansard.agents.memory.store import MemoryStore
from hansard.agents.policy import permits
from hansard.agents.policy.approvals import listed
from hansard.agents.policy.permits import clearance_of
from hansard.agents.runs import Options
from hansard.agents.steps.ledger import Mode
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.client.role_answers import ask_as, read_as
from hansard.client.tables import program_answer
from hansard.domain import choices, ids
from hansard.domain.choices import NOTHING
from hansard.domain.errors import BadValue, Refused
from hansard.domain.ids import RunStream
from hansard.domain.label import Label
from hansard.domain.prompt import split
from hansard.domain.roles.authorize import Trust, is_cleared_for
from hansard.domain.roles.view import cleared
from hansard.domain.steps import Verdict
from hansard.domain.team import Circle
from hansard.inspect import trace as left
from hansard.inspect.answer import Answer
from hansard.inspect.trace import SentOut
from hansard.operations.declare import Async, Context, Operation, Takes, part, permitted
from hansard.operations.memory import Spaces
from hansard.operations.prompts import Prompts
from hansard.operations.protocol import wire
from hansard.operations.protocol.faults import NotOffered, ServiceGone
from hansard.operations.protocol.remote_call import Program
from hansard.operations.protocol.wire import Open, Request
from hansard.operations.record import RecordOperations
from hansard.operations.roles import Approvals, Roles
from hansard.operations.session import of_slices, of_verb, read
from hansard.operations.sql_answer import SqlAnswer
from hansard.projections.snapshots import Reader
from hansard.projections.sql_sandbox.rows import Limits
from hansard.service import hosted as operations
from hansard.service.fair_queue import Bounds, FairQueue
from hansard.service.hosted import Hosted
from hansard.settings import Settings

_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


OPENINGS = Bounds(what="openings", places=8, places_each=4)
"""Limits of openings of sessions: each reads a run's life and an agent."""

SHORT = Bounds(what="views and answers", places=4)
"""Limits of views and of statements about runs: each reads a whole run."""

LONG = Bounds(
    what="questions in SQL",
    places=3,
    waiting_each=8,
    wait_s=60.0,
    retry_after_s=10.0,  # the query under way has ended after that
)
"""Limits of SQL queries: each gets a core and memory for up to ten seconds."""

R = TypeVar("R", bound=Answer)


LIMITS = Limits(bytes_max=256 * 1024)
"""Limits of an answer to a restricted agent: it is one message."""


class RoleTables:
    """Queries on the databases of roles, in the data directory; `workspace` is the open one."""

    def __init__(self, settings: Settings, workspace: Workspace | None = None) -> None:
        self._settings = settings
        self._workspace = workspace

    async def ask(
        self,
        asker: Asker,
        statement: str,
        parameters: Sequence[object],
        tables: Mapping[str, bytes] = NOTHING,
    ) -> SqlAnswer:
        """Answer an SQL statement; `tables` are the caller's own, as Arrow.

        Raises BadValue if the answer is too long for a message.
        """
        who, carried = asker.who, asker.carried
        answer = await ask_as(
            self._settings,
            who.role,
            statement,
            LIMITS,
            by=who.actor,
            carried=carried,
            parameters=parameters,
            tables=tables,
            within=self._workspace,
        )
        if answer.cut is not None:
            fact = f"the answer has more {answer.cut} than one message holds"
            raise BadValue("sql", fact, "aggregate, or use LIMIT")
        return program_answer(answer)

    async def read(self, asker: Asker, question: str, reads: Callable[[Reader], R]) -> R:
        """Run one of our own reads; `question` names it on record."""
        who, carried = asker.who, asker.carried
        return await read_as(
            self._settings,
            who.role,
            question,
            reads,
            by=who.actor,
            carried=carried,
            within=self._workspace,
        )


class Asker(msgspec.Struct, frozen=True):
    """The caller: its principal and role, its accumulated label, and the workspace as it writes."""

    who: Principal
    carried: AccumulatedLabel
    workspace: Workspace

    @classmethod
    async def of(cls, authenticator: Authenticator, workspace: Workspace, who: Principal) -> Asker:
        """Build the caller of an authenticated principal."""
        carried = authenticator.carried(who, workspace.log)
        await carried.begin()
        return cls(who, carried, workspace.through(carried.log))


async def _session(asker: Asker, request: Open, nonce: str, reads: FairQueue) -> Hosted:
    who, workspace = asker.who, asker.workspace
    asker.carried.run = request.run or ""
    if request.agent != who.name:
        remedy = f"take part as {who.name!r}, the principal of the credentials"
        raise NotOffered(f"agent={request.agent!r:.80}", remedy)
    if request.mode is not None and request.mode not in {each.value for each in Mode}:
        raise BadValue(
            "mode", f"{request.mode!r:.40}", f"give one of {[each.value for each in Mode]}"
        )
    program = Program(request.budgets, request.settles)
    await _demand_budgets(workspace, who, program, request.mode)
    options = Options(
        workflow=request.workflow,
        run=request.run,
        mode=request.mode,
        gate=program.rules,
        secrets=program.secrets,
        settle=program.settle,
        labels=request.labels,
        program=request.program,
        correlation=request.correlation,
        traceparent=request.traceparent,
        experiment=request.experiment,
        arm=request.arm,
        task=request.task,
        trial=request.trial,
        unit=request.unit,
        on_behalf_of=who.actor_chain,
        restricted=True,
        opening=ids.uuid8("opening", who.name, nonce),
        begins=nonce if _UUID7.fullmatch(nonce) else "",
        reopens=request.reopens,
    )
    try:
        engine = await opening.open_agent_here(workspace, who.name, who.role, options)
    except NotPlaced:
        raise  # only about data that the role sees
    except opening.OpenedBefore as error:
        raise ServiceGone(str(error)) from error
    except (NotFound, Refused) as error:
        # Its text may reveal the run's roster, workflow or conversation.
        message = (
            f"run {request.run!r:.80} cannot be opened by {who.name!r} as {who.role!r}: give "
            "the id of a run that has begun, its workflow or none, and its role in that run"
        )
        raise Refused(message) from error
    asker.carried.run = engine.run
    return Hosted(workspace, engine, program, asker.carried, partial(reads.place, who.name))


async def _demand_budgets(
    workspace: Workspace, who: Principal, program: Program, mode: str | None
) -> None:
    """Raise RoleRefused if the role may not count calls on a budget."""
    if not program.rules.budgets or (mode is not None and Mode(mode).reads_only):
        return
    permit = await permits.read(workspace, who.role, restricted=True)
    for budget in program.rules.budgets:
        permit.demand(permits.counts(budget.name))


def opened(hosted: Hosted, name: str, instance: str) -> wire.Opened:
    """Build the answer to an opening."""
    return wire.Opened(
        session=name,
        instance=instance,
        run=hosted.opened.run,
        mode=hosted.session.mode.value,
        epoch=hosted.opened.engine.ledger.state.epoch,
        arm=wire.encode_arm(hosted.opened.arm),
    )


class WorkspaceRequests:
    """Answers requests outside of a session."""

    def __init__(self, tables: RoleTables | None) -> None:
        self._tables = tables
        self._openings = FairQueue(OPENINGS)
        self._short = FairQueue(SHORT)
        self._long = FairQueue(LONG)

    async def open_session(self, asker: Asker, request: Open, nonce: str) -> Hosted:
        """Open a session for a principal: as the agent of its name, in the role of its token.

        A session opened under the same nonce before, by any service, is not opened again. Raises
        NotOffered, RoleRefused, Refused, BadName, BadValue, ServiceBusy.
        """
        async with self._openings.place(asker.who.name):
            return await _session(asker, request, nonce, self._short)

    async def ask(self, verb: str, asker: Asker, request: Request) -> bytes:
        """Answer a request; the label of the answer's data is recorded as shown first.

        Raises BadValue, RoleRefused, NotOffered, Refused, NotFound, ServiceBusy.
        """
        operation = of_verb(verb)
        if operation is None:
            remedy = "use the client of this version; of a slice, install its package here, too"
            raise BadValue("request", f"there is no operation {verb!r:.40} of a record", remedy)
        actual, query = read(request.data)
        if actual is not operation:
            raise BadValue("request", f"{actual.name!r} as {operation.name!r}", "ask for one")
        answer = await self.perform(operation, asker, query)
        return wire.encode(wire.Value(await wire.encode_result(answer)))

    async def perform(self, operation: Operation, asker: Asker, query: Any) -> Any:
        """Return the result of an operation for a caller in a role, in its turn.

        The label of the result is recorded as shown first. Raises as `ask`.
        """
        async with self.place(asker, operation.takes):
            context = RoleContext(asker, self._tables)
            if needs := operation.needs(query):
                permit = await context.permit()
                for need in needs:
                    permit.demand(need)
            await context.show(operation, query)
            return await operation.answer(RoleRecord(context), query, asker.who.actor)

    async def read(
        self, asker: Asker, reads: Callable[[Reader], R], what: str, *words: object
    ) -> R:
        """Run one of our own reads on the tables of a caller's role, in its turn.

        Raises RoleRefused without the permission to query, ServiceBusy, and as the read.
        """
        async with self.place(asker, Takes.LONG):
            context = RoleContext(asker, self._tables)
            (await context.permit()).demand(permits.trusts(Trust.QUERY, what))
            return await context.read(reads, what, *words)

    def place(self, asker: Asker, takes: Takes) -> AbstractAsyncContextManager[None]:
        """Wait for a caller's turn, and hold its place. Raises ServiceBusy."""
        queue = self._long if takes is Takes.LONG else self._short
        return queue.place(asker.who.name)


class RoleContext(Context):
    """The workspace and tables as the caller's role sees them."""

    def __init__(self, asker: Asker, tables: RoleTables | None) -> None:
        self.asker = asker
        self.workspace = asker.workspace
        self._tables = tables

    async def permit(self, role: str = "") -> permits.Permit:
        """Return the permissions of the caller's role, or another."""
        asker = self.asker
        return await permits.read(asker.workspace, role or asker.who.role, restricted=True)

    async def show(self, operation: Operation, request: Any) -> None:
        """Record that the artifact which a request names is shown.

        Raises NotFound if it does not exist, unless it begins now, or if the role is not cleared
        for it.
        """
        if operation.shows is None:
            return
        name = request.name if hasattr(request, "name") else split(request.reference)[0]
        history = await versions.find(self.workspace, operation.shows, name)
        if operation.begins and not history.commits:
            return
        if not history.commits or not await self.shows(history.label):
            raise versions.missing(operation.shows, name)

    async def shows(self, label: Label | None) -> bool:
        """Record that data of a label is shown; return False if the role is not cleared for it."""
        rules = (await self.permit()).rules
        if rules is None or not cleared(rules, label):
            return False
        await self.asker.carried.shown(label)
        return True

    async def label_of_runs(self, runs: Sequence[str]) -> None:
        """Return None: naming a run reveals nothing of it."""

    async def read(self, reads: Callable[[Reader], R], what: str, *words: object) -> R:
        """Run a read; the request and its words are recorded.

        Raises NotOffered, and as the read.
        """
        parts = [
            msgspec.json.encode(each).decode() if isinstance(each, msgspec.Struct) else f"{each}"
            for each in words
        ]
        question = " ".join([what.replace("_", " "), *parts])
        return await self._its_tables(what).read(self.asker, question, reads)

    async def ask(
        self,
        what: str,
        statement: str,
        parameters: Sequence[object],
        tables: Mapping[str, Any] = NOTHING,
    ) -> SqlAnswer:
        """Answer a statement from the role's database. Raises NotOffered, and as the query."""
        return await self._its_tables(what).ask(self.asker, statement, parameters, tables)

    def _its_tables(self, what: str) -> RoleTables:
        if self._tables is None:
            raise NotOffered(f"record.{what}()", "this service has no role databases")
        return self._tables

    # -------------------------------------------------------- results that differ for a role

    async def derived(
        self, run: str, key: bytes | None = None, role: str = ""
    ) -> DerivedView | None:
        """Return a run as the role sees it; None if it sees nothing of it, or it does not exist."""
        workspace = self.workspace
        if await workspace.log.last(RunStream(run)) is None:
            return None
        role = role or self.asker.who.role
        made = await roles.derive(workspace.states, role, run, None, key)
        return made if made.view.events else None

    async def shown_data(
        self, run: str, kind: str, about: dict[str, Any], agent: str = ""
    ) -> dict[str, Any] | None:
        """Return the visible data of an event of a kind with these values; None if none is shown.

        The answer depends on all that it is shown of the run, which counts as shown.
        """
        made = await self.derived(ids.name("run", run))
        if made is None:
            return None
        self.asker.carried.run = run
        await self.asker.carried.shown(made.label)
        for _, shown in made.view.events:
            if shown.type.startswith(f"{kind}.") and agent in ("", shown.agent):
                data: dict[str, Any] = msgspec.json.decode(shown.data)
                if about.items() <= data.items():
                    return data
        return None


# ------------------------------------------------------------ results that differ for a role


def differs(method: Any) -> Any:
    """Decorate a method that answers a role in place of a noun's own."""
    return method


class RoleSpaces(Spaces[Async]):
    """Memory spaces as the role sees them."""

    _context: RoleContext

    async def _shown(self, label: Label | None) -> None:
        await self._context.asker.carried.shown(label)

    async def _space(self, space: str) -> MemoryStore:
        asker, role = self._context.asker, self._context.asker.who.role
        clearance = partial(clearance_of, asker.workspace.log, role)
        sight = VisibilityFilter(
            await self._context.permit(), clearance, lambda: asker.carried.label
        )
        return MemoryStore(asker.workspace, space, sight=sight)

    # -------------------------------------------------------- the role's database


class RolePrompts(Prompts[Async]):
    """Prompts as the role sees them."""

    _context: RoleContext

    @differs
    async def list(self) -> builtins.list[Prompt]:
        """List the prompts, recorded as shown; those above the role's clearance are omitted."""
        rules = (await self._context.permit()).rules
        newest = await store.newest(self._workspace)
        prompts = [each for each in newest if rules is not None and cleared(rules, each.label)]
        for label in {each.label for each in prompts}:
            await self._context.asker.carried.shown(label)
        return prompts


class RoleRoles(Roles[Async]):
    """Roles as the role sees them."""

    _context: RoleContext

    @differs
    async def viewable(self) -> list[str]:
        """List the roles with rules whose views the role may be shown, its own first."""
        return permits.viewable(await self._context.permit(), await roles.defined(self._workspace))

    @differs
    async def permitted(self) -> builtins.list[str]:
        """List the operations that the role permits with some arguments."""
        of_slices()  # their operations count, too
        return permitted(await self._context.permit())

    @differs
    async def view(
        self,
        run: str,
        at: object = None,
        *,
        role: str | None = None,
        key: bytes | None = None,
        by: Any = None,
    ) -> View:
        """Return a run as the role sees it, or another role; record it as shown."""
        del by
        asker, run, role = (
            self._context.asker,
            ids.name("run", run),
            role or self._context.asker.who.role,
        )
        asker.carried.run = run
        if role != asker.who.role:
            await self._demand_cleared(role)
        made = await self._context.derived(run, key, role)
        if made is None:
            raise NotFound(
                f"run {run!r:.80}", "give the id of a run of which the role sees an event"
            )
        await self._context.asker.carried.shown(made.label)
        if at is not None:
            point = str(at)
            if all(shown.id != point for _, shown in made.view.events):
                raise operations.not_shown(point)
            made = await roles.derive(asker.workspace.states, role, run, point, key)
            await self._context.asker.carried.shown(made.label)
        await roles.record(asker.workspace, made, asker.who.actor)
        return made.view

    async def _demand_cleared(self, role: str) -> None:
        """Raise RoleRefused for the view of a role with a higher clearance than the caller's.

        It depends on that role's rules alone, whatever the run holds.
        """
        permit, seen = await self._context.permit(), (await self._context.permit(role)).rules
        if seen is not None and not is_cleared_for(permit.rules, seen.clearance):
            because = (
                f"role {role!r:.80} is cleared for {seen.clearance}, and this role is not; "
                f"its rules need: clearance = {choices.text(seen.clearance)}"
            )
            raise RoleRefused(permits.VIEW, role, permit.rule, because)


class RoleApprovals(Approvals[Async]):
    """Requests for approval that the role is shown."""

    _context: RoleContext

    @differs
    async def grant(
        self, approval: str, *, by: Any = "", reason: str = "", role: str | None = None
    ) -> None:
        """Grant a request for approval that the role is shown."""
        del role
        await self._demand_question(approval)
        await super().grant(approval, by=by, reason=reason, role=self._context.asker.who.role)

    @differs
    async def deny(
        self, approval: str, *, by: Any = "", reason: str = "", role: str | None = None
    ) -> None:
        """Deny a request for approval that the role is shown."""
        del role
        await self._demand_question(approval)
        await super().deny(approval, by=by, reason=reason, role=self._context.asker.who.role)

    async def _demand_question(self, approval: str) -> None:
        """Raise NotFound for a request for approval that the role is not shown."""
        runs = [each.run for each in await listed(self._workspace) if each.approval.id == approval]
        run = runs[0] if runs else ids.uuid8("approval", approval)  # there is none
        if not await self._context.shown_data(run, "approval.requested", {"approval": approval}):
            raise NotFound(f"approval {approval!r:.80}", "give one that the role is shown")


class RoleRecord(RecordOperations[Async]):
    """A workspace's record as the caller's role sees it.

    The permissions for an operation were checked before. A method here answers in place of one
    whose result differs for a role.
    """

    _context: RoleContext
    memory = part(RoleSpaces)
    prompts = part(RolePrompts)
    roles = part(RoleRoles)
    approvals = part(RoleApprovals)

    @differs
    async def egress(self, run: str) -> list[SentOut]:
        """Return the egress of a run, from the role's own database."""
        return (await self._context.read(partial(left.by_tables, run=run), "egress", run)).sent

    @differs
    async def settle(
        self,
        run: str,
        step: str,
        verdict: Verdict | str,
        *,
        result: Any = None,
        by: Any = "",
        reason: str = "",
    ) -> None:
        """Settle a step that the role is shown; another does not exist for it."""
        with contextlib.suppress(NotFound):  # treated as a step that is not shown
            step = await self._workspace.points.step_name(run, step)
        agent, _, number = step.rpartition("#")
        about = {"step": int(number) if number.isdigit() else None}
        if not await self._context.shown_data(run, "step.requested", about, agent):
            raise NotFound(
                f"step {step!r:.80}", "give agent#number of a step that the role is shown"
            )
        await super().settle(run, step, verdict, result=result, by=by, reason=reason)

    @differs
    async def reopen(self, run: str, task: str, *, by: Any = "", reason: str = "") -> bool:
        """Reopen a task that the role is shown; others, and what they wait for, are hidden."""
        if not await self._context.shown_data(run, "task.failed", {"task": task}):
            raise NotFound(f"failed task {task!r:.80}", "give one that the role is shown")
        try:
            return await super().reopen(run, task, by=by, reason=reason)
        except Circle as circle:
            message = f"task {task!r} would wait for a task that waits for it: nothing was changed"
            raise Refused(message) from circle

    @differs
    async def finish(
        self, run: str, *, by: Any = "", reason: str = "", failed: str | None = None
    ) -> bool:
        """End a run of which the role is shown any event."""
        async with self._ending(run):
            return await super().finish(run, by=by, reason=reason, failed=failed)

    @differs
    async def cancel(self, run: str, *, by: Any = "", reason: str = "") -> bool:
        """Cancel a run of which the role is shown any event."""
        async with self._ending(run):
            return await super().cancel(run, by=by, reason=reason)

    @contextlib.asynccontextmanager
    async def _ending(self, run: str) -> AsyncGenerator[None, None]:
        """Raise NotFound for a run of which the role is shown nothing."""
        run = ids.name("run", run)
        made = await self._context.derived(run)
        if made is None:
            raise NotFound(
                f"run {run!r:.80}", "give the id of a run of which the role sees an event"
            )
        self._context.asker.carried.run = run
        await self._context.asker.carried.shown(
            made.label
        )  # the response depends on the run's state
        try:
            yield
        except Refused as error:  # its text reveals how the run ended
            message = f"run {run!r:.80} has already ended with another status: resume it first"
            raise Refused(message) from error
