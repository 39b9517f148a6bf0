"""What a session may do, by the rules of its role as they stood when it was opened.

A role that was never defined in the workspace is a name and nothing else: its agents may do all.
One that is defined may do what its rules say, one that was withdrawn nothing: see
`hansard.domain.roles.authorize`. What is refused is on record before the error is raised.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hansard.agents.access import roles
from hansard.agents.errors import Blocked, RoleRefused
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.log import EventLog
from hansard.domain import access, choices, principal
from hansard.domain.access import AccessRefused
from hansard.domain.budget import key_of as budget_key
from hansard.domain.events import Actor
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.label import LOWEST, Confidentiality, Label
from hansard.domain.refusal import AgentRefused
from hansard.domain.roles import authorize
from hansard.domain.roles.authorize import Permission, Trust
from hansard.domain.roles.judge import (
    clearance,
    may_use_actions,
    may_use_experiences,
    may_use_prompts,
    sees_all,
)
from hansard.domain.roles.model import KIND as MODEL_KIND
from hansard.domain.roles.model import RoleDefined, behind_space
from hansard.domain.team.task import TeamState
from hansard.domain.team.task_rules import Claim
from hansard.state.replay import States

# Labels at work: who may be told of what, by the roles' clearances as they stand now.
#
# A role that was never defined in the workspace is a name and nothing else: its agents are cleared
# for all. One that is defined is cleared for what its rules say, one that was withdrawn for what is
# public. Nothing is read for what has no label.

RULE = "label"
"""What refusals for a label's sake are known by."""

LABEL = "label"
"""What is refused where a principal may not open a run, for what it carries."""


async def clearance_of(log: EventLog, role: str) -> Confidentiality:
    """A role's clearance now. Raises UnknownEvent where a newer version wrote of it."""
    last = await log.last(WorkspaceStream(MODEL_KIND, role))
    if last is None:
        return Confidentiality.SECRET
    event = revive(last.commit.events[-1])  # each says the whole of a role's rules
    return clearance(event) if isinstance(event, RoleDefined) else Confidentiality.PUBLIC


class Clearances:
    """The clearances of a workspace's roles, as an agent of a run meets them. On the bus's loop."""

    def __init__(self, states: States, stream: AgentStream) -> None:
        self._states = states
        self._stream = stream

    async def of(self, role: str) -> Confidentiality:
        """A role's clearance now. Raises UnknownEvent where a newer version wrote of it."""
        return await clearance_of(self._states.log, role)

    async def mine(self) -> Confidentiality:
        """The clearance of the agent's own role."""
        return await self.of(self._stream.role)

    async def role_of(self, agent: str) -> str | None:
        """The role of an agent of the run; None for one that has not joined it."""
        return (await self._states.life(self._stream.run)).roster.get(agent)

    async def claim(self, state: TeamState, command: Claim) -> Claim:
        """A claim of a task by an agent of the role, with what it is cleared for."""
        if all(is_public(task.label) for task in state.tasks.values()):
            return command
        return msgspec.structs.replace(command, cleared=await self.mine())

    async def demand(self, label: Label | None, what: str, tool: str) -> None:
        """Raise Blocked where the agent's role is not cleared for what is labelled so."""
        if is_public(label):
            return
        cleared = await self.mine()
        if label is not None and not label.flows_to(cleared):
            raise Blocked(RULE, _above(label, what, self._stream.role, cleared), tool)

    async def receives(self, label: Label, role: str | None, agent: str | None) -> str:
        """Why a role or agent may not be told what is labelled so; empty where it may. An agent
        that has not joined yet is asked for its clearance when it reads.
        """
        if is_public(label):
            return ""
        if agent:
            role = await self.role_of(agent) or role
        if not role:
            return ""
        cleared = await self.of(role)
        if label.flows_to(cleared):
            return ""
        return (
            f"this agent was shown what is labelled {str(label)!r}, and role {role!r} is cleared "
            f"for {cleared.value!r} alone; {remedy(label, role)}"
        )


def is_public(label: Label | None) -> bool:
    """Whether everybody is cleared for what is labelled so."""
    return label is None or label.confidentiality is LOWEST.confidentiality


def _above(label: Label, what: str, role: str, cleared: Confidentiality) -> str:
    return (
        f"{what} is labelled higher than role {role!r} is cleared for ({cleared.value!r}); "
        f"{remedy(label, role)}"
    )


def remedy(label: Label, role: str) -> str:
    """What to ask for where a role is not cleared for what is labelled so."""
    target = label.confidentiality.value
    return (
        f'ask for: clearance = "{target}" in [roles.{role}], or for a declassification by somebody '
        "who may approve"
    )


KIND, KEY, READ, TASK, TOOL = "kind", "key", "read", "task", "tool"
BUDGET, SAVE, REBUILD = "budget", "save", "rebuild"
PROMPT, ACTIONS, EXPERIENCES = "prompt", "actions", "experiences"
SEE_FILE, CHANGE_FILE = "file", "change"
VIEW = "view"
"""What may be refused; besides, what a role is trusted with: see `Trust`."""


class Need(msgspec.Struct, frozen=True):
    """What an operation needs: to put an event of a kind on record, to read a key of shared state
    or to write it, to claim tasks of a role, to count on a budget, to read prompts, action
    caches or experiences, to be shown a role's view, or to be trusted with something.
    """

    what: str
    name: str


def states(tag: str) -> Need:
    """To put an event of a kind on record."""
    return Need(KIND, tag)


def reads(key: str) -> Need:
    """To read a key."""
    return Need(READ, key)


def writes(key: str) -> Need:
    """To write a key."""
    return Need(KEY, key)


def claims(role: str) -> Need:
    """To claim tasks that are meant for a role."""
    return Need(TASK, role)


def counts(budget: str) -> Need:
    """To have calls counted on a budget of the run."""
    return Need(BUDGET, budget)


def saves(aggregate: str) -> Need:
    """To save aggregates of a name."""
    return Need(SAVE, aggregate)


def rebuilds(aggregate: str) -> Need:
    """To get aggregates of a name."""
    return Need(REBUILD, aggregate)


def prompts() -> Need:
    """To read prompts."""
    return Need(PROMPT, "prompts")


def actions() -> Need:
    """To read action caches."""
    return Need(ACTIONS, "action caches")


def experiences() -> Need:
    """To read experiences."""
    return Need(EXPERIENCES, "experiences")


def sees_file(space: str, path: str) -> Need:
    """To see a file of memory."""
    return Need(SEE_FILE, behind_space(space, path))


def changes_file(space: str, path: str) -> Need:
    """To change a file of memory."""
    return Need(CHANGE_FILE, behind_space(space, path))


def views(role: str) -> Need:
    """To be shown a role's view."""
    return Need(VIEW, role)


def trusts(trust: Trust, name: str) -> Need:
    """To be trusted with something, of which thing."""
    return Need(trust.value, name)


class Permit(msgspec.Struct, frozen=True):
    """What a role may do. `enforced` is False for one that was never defined: it may do all."""

    role: str = ""
    rules: RoleDefined | None = None
    enforced: bool = False

    @property
    def rule(self) -> str:
        """What its refusals are known by."""
        return f"role {self.role}"

    @property
    def is_limited(self) -> bool:
        """Whether there may be something that the role is not to know of."""
        return self.enforced and (self.rules is None or not sees_all(self.rules))

    def ask(self, need: Need) -> Permission:
        """Whether something is allowed."""
        if not self.enforced:
            return Permission(allowed=True)
        match need.what:
            case "tool":
                return authorize.may_call(self.rules, need.name)
            case "kind":
                return authorize.may_state(self.rules, need.name)
            case "key":
                return authorize.may_write(self.rules, need.name)
            case "read":
                return authorize.sees_whole_key(self.rules, need.name)
            case "budget":
                return authorize.may_count(self.rules, budget_key(need.name))
            case "save":
                return authorize.may_save(self.rules, need.name)
            case "rebuild":
                return authorize.sees_whole_aggregate(self.rules, need.name)
            case "prompt":
                return may_use_prompts(self.rules)
            case "actions":
                return may_use_actions(self.rules)
            case "experiences":
                return may_use_experiences(self.rules)
            case "file":
                return authorize.sees_whole_file(self.rules, need.name)
            case "change":
                return authorize.may_change(self.rules, need.name)
            case "view" if need.name == self.role:
                return Permission(allowed=True, rule="every role")
            case "view":
                return authorize.may_view(self.rules, need.name)
            case "task":
                return authorize.may_claim(self.rules, self.role, need.name)
            case _:
                return authorize.may_be_trusted(self.rules, Trust(need.what))

    def because(self, permission: Permission) -> str:
        """Why something is refused, and what to ask for."""
        ask_for, name = permission.ask_for, choices.key(self.role)
        match permission.where:
            case "may":
                ask_for = f"{ask_for} in [roles.{name}.may]"
            case "sees":
                ask_for = f"[[roles.{name}.sees]] with nothing but {ask_for}"
            case _:
                pass  # a word on what to do
        return f"{permission.because}; ask for: {ask_for}"

    def refusal(self, need: Need) -> AgentRefused | None:
        """What is put on record of something that is not allowed; None where it is."""
        permission = self.ask(need)
        if permission.allowed:
            return None
        because = self.because(permission)
        return AgentRefused(what=need.what, name=need.name, rule=self.rule, because=because)

    def demand(self, need: Need) -> None:
        """Raise RoleRefused for what is not allowed, where no agent's stream is there for it."""
        refusal = self.refusal(need)
        if refusal is not None:
            raise refused(refusal)


FREE = Permit()


def viewable(permit: Permit, defined: Mapping[str, RoleDefined]) -> list[str]:
    """Of roles that have rules those whose views a role may be shown, its own first."""
    others = [
        name
        for name, rules in defined.items()
        if name != permit.role
        and permit.ask(views(name)).allowed
        and (not permit.enforced or authorize.is_cleared_for(permit.rules, rules.clearance))
    ]
    return [*([permit.role] if permit.role in defined else []), *others]


def refused(refusal: AgentRefused) -> RoleRefused:
    """What is on record of a refusal as the error."""
    return RoleRefused(refusal.what, refusal.name, refusal.rule, refusal.because)


async def read(workspace: Workspace, role: str, *, restricted: bool = False) -> Permit:
    """A role's permit as of now; `restricted` enforces one that was never defined, too.

    Raises BadName, and UnknownEvent where a newer version wrote of it: nothing is then allowed.
    """
    found = await roles.read(workspace, role)
    return Permit(role, found.rules, enforced=restricted or found.version > 0)


async def demand(workspace: Workspace, permit: Permit, need: Need, by: str | Actor) -> None:
    """Raise RoleRefused where a role does not allow what somebody wants, put on record before."""
    refusal = permit.refusal(need)
    if refusal is not None:
        await note(workspace, by, permit.role, refusal.what, refusal.because)
        raise refused(refusal)


async def note(
    workspace: Workspace, by: str | Actor, role: str, operation: str, because: str
) -> None:
    """Put on record that somebody was refused something. Raises Conflict after 50 lost races."""
    name = Actor.of(by).agent
    known = await workspace.log.last(WorkspaceStream(principal.KIND, name)) is not None
    stream = WorkspaceStream(access.KIND, name if known else access.STRANGER)
    event = AccessRefused(principal=name, role=role, operation=operation, because=because)
    await workspace.add_lasting(stream, by, event)
