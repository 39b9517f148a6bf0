"""What is asked outside of a session: to open one, a role's view of a run, and SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from hansard.agents import opening, permits, views
from hansard.agents.approvals import answer, listed
from hansard.agents.experiments import NotPlaced
from hansard.agents.gatekeeper import Principal
from hansard.agents.ledger import Mode
from hansard.agents.opening import Options
from hansard.agents.runs import settle
from hansard.agents.views import Derived
from hansard.agents.workspace import Workspace
from hansard.bus.errors import NotFound
from hansard.domain import ids
from hansard.domain.errors import BadValue, Refused
from hansard.domain.events import Actor
from hansard.domain.role_may import Trust
from hansard.domain.steps import Verdict
from hansard.service import operations, shapes, wire
from hansard.service.errors import NotOffered
from hansard.service.hosted import Hosted
from hansard.service.program import Program
from hansard.service.wire import Ask, Open, Request

ASKED_MAX = 4
"""So many of these are answered at a time: each may read a whole run."""

Sql = Callable[[str, Actor, str], Awaitable[Any]]
"""Answers SQL from a role's own database: role, who asks, statement. It is a plain value."""


async def open_session(workspace: Workspace, who: Principal, asked: Open) -> Hosted:
    """Open a session for a principal: as the agent of its name, in the role of its token.

    Raises NotOffered, RoleRefused, Refused, BadName, BadValue.
    """
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
    )
    try:
        found = await opening.open_agent_here(workspace, who.name, who.role, options)
    except NotPlaced:
        raise  # of what the role sees: else it was refused before
    except (NotFound, Refused) as error:
        # Its text may tell of the run's roster, workflow or conversation.
        message = (
            f"run {asked.run!r:.80} cannot be opened so by {who.name!r} as {who.role!r}: give the "
            "id of a run that has begun, its workflow or none, and the role that it had in it"
        )
        raise Refused(message) from error
    return Hosted(workspace, found, program)


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
        epoch=hosted.opened.core.ledger.state.epoch,
        arm=shapes.told_arm(hosted.opened.arm),
    )


class Lobby:
    """Answers what is asked outside of a session."""

    def __init__(self, workspace: Workspace, sql: Sql | None) -> None:
        self._workspace = workspace
        self._sql = sql
        self._asking = asyncio.Semaphore(ASKED_MAX)

    async def ask(self, verb: str, who: Principal, request: Request) -> bytes:
        """The answer. Raises BadValue, NotOffered, Refused, NotFound."""
        async with self._asking:
            return await self._answered(verb, who, request)

    async def _answered(self, verb: str, who: Principal, request: Request) -> bytes:
        asked = wire.read(request.data, Ask)
        match verb:
            case "view":
                return await self._view(who, asked)
            case "sql":
                return await self._answer(who, asked.statement)
            case "approve" | "deny":
                await self._approve(who, asked, granted=verb == "approve")
            case "settle":
                await self._settle(who, asked)
            case _:
                raise BadValue("request", f"{verb!r:.40} is none", "use the client of this version")
        return wire.encode(wire.Value())

    async def _view(self, who: Principal, asked: Ask) -> bytes:
        key = bytes.fromhex(asked.key) if asked.key is not None else None
        run = ids.name("run", asked.run)
        made = await self._derived(who, run, key)
        if made is None:
            raise NotFound(f"run {run!r:.80}", "give the id of one that the role is shown any of")
        if asked.at is not None:
            if all(shown.id != asked.at for _, shown in made.view.events):
                raise operations.not_shown(asked.at)
            made = await views.derive(self._workspace.states, who.role, run, asked.at, key)
        await views.record(self._workspace, made, who.actor)
        return wire.encode(wire.Value(shapes.shape("views.view")[0](made.view)))

    async def _answer(self, who: Principal, statement: str) -> bytes:
        if self._sql is None:
            raise NotOffered("record.sql()", "the service that answers keeps no role databases")
        permit = await permits.read(self._workspace, who.role, restricted=True)
        permit.demand(permits.trusts(Trust.QUERY, "sql"))
        return wire.encode(wire.Value(wire.dump(await self._sql(who.role, who.actor, statement))))

    async def _approve(self, who: Principal, asked: Ask, *, granted: bool) -> None:
        """Grant or deny what an agent asks. A question that the role is not shown is none to it."""
        await self._trusted(who, Trust.APPROVE, asked.approval)
        found = [
            each.run for each in await listed(self._workspace) if each.approval.id == asked.approval
        ]
        about = {"approval": asked.approval}
        if not found or not await self._sees(who, found[0], "approval.requested", about):
            raise NotFound(f"approval {asked.approval!r:.80}", "give one that the role is shown")
        await answer(
            self._workspace,
            asked.approval,
            granted=granted,
            by=who.actor,
            because=asked.because,
            role=who.role,
        )

    async def _settle(self, who: Principal, asked: Ask) -> None:
        """Say what is true of a step. One that the role is not shown is none to it."""
        await self._trusted(who, Trust.SETTLE, asked.step)
        agent, _, number = asked.step.rpartition("#")
        about = {"step": int(number) if number.isdigit() else None}
        if not await self._sees(who, asked.run, "step.requested", about, agent):
            raise NotFound(f"step {asked.step!r:.80}", "give agent#number of one that it is shown")
        if asked.verdict not in {each.value for each in Verdict}:
            raise BadValue("verdict", f"{asked.verdict!r:.40}", f"give one of {[*Verdict]}")
        await settle(
            self._workspace,
            asked.run,
            asked.step,
            asked.verdict,
            result=wire.load(asked.result),
            by=who.actor,
            because=asked.because,
        )

    async def _derived(self, who: Principal, run: str, key: bytes | None = None) -> Derived | None:
        """A run as the role sees it; None where it sees nothing, whether or not there is a run."""
        try:
            made = await views.derive(self._workspace.states, who.role, run, None, key)
        except NotFound:
            return None
        return made if made.view.events else None

    async def _trusted(self, who: Principal, trust: Trust, name: str) -> None:
        (await permits.read(self._workspace, who.role)).demand(permits.trusts(trust, name))

    async def _sees(
        self, who: Principal, run: str, kind: str, about: dict[str, Any], agent: str = ""
    ) -> bool:
        """Whether the role is shown an event of a kind that says something."""
        made = await self._derived(who, ids.name("run", run))
        return made is not None and any(
            shown.type.startswith(f"{kind}.")
            and agent in ("", shown.agent)
            and about.items() <= msgspec.json.decode(shown.data).items()
            for _, shown in made.view.events
        )
