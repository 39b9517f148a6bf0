"""Permissions of a session, by the rules of its role at the time it was opened.

A role that was never defined in the workspace is only a name: its agents may do everything. A
defined role permits what its rules allow, a withdrawn role nothing: see
`hansard.domain.roles.authorize`. A refusal is recorded before the error is raised.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import msgspec

from hansard.agents.access import roles
from hansard.agents.errors import Blocked, RoleRefused
from hansard.agents.workspace import Workspace
from hansard.bus.commits import revive
from hansard.bus.log import EventLog
from hansard.domain import access, choices, principal, prompt
from hansard.domain import actions as action_caches
from hansard.domain.access import AccessRefused
from hansard.domain.agent import AgentRefused
from hansard.domain.approval import key_of as budget_key
from hansard.domain.events import Actor
from hansard.domain.experience import experience as experience_events
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.label import LOWEST, Confidentiality, Label
from hansard.domain.roles import authorize
from hansard.domain.roles.authorize import Permission, Trust
from hansard.domain.roles.model import KIND as MODEL_KIND
from hansard.domain.roles.model import RoleDefined, behind_space
from hansard.domain.roles.view import clearance, may_use, sees_all
from hansard.domain.team import Claim, TeamState
from hansard.state.replay import States

# Labels: access to labelled data by the roles' current clearances.
#
# A role that was never defined in the workspace is only a name: its agents are cleared for
# everything. A defined role is cleared as its rules state, a withdrawn role for public data only.
# Nothing is read for data without a label.

RULE = "label"
"""Rule name of refusals because of a label."""

LABEL = "label"
"""Operation name of the refusal when a principal's label prevents it from opening a run."""


async def clearance_of(log: EventLog, role: str) -> Confidentiality:
    """Return a role's current clearance. Raises UnknownEvent if a newer version wrote its rules."""
    last = await log.last(WorkspaceStream(MODEL_KIND, role))
    if last is None:
        return Confidentiality.SECRET
    event = revive(last.commit.events[-1])  # each event holds all of a role's rules
    return clearance(event) if isinstance(event, RoleDefined) else Confidentiality.PUBLIC


class Clearances:
    """Clearances of a workspace's roles, for one agent of a run. Runs on the bus's loop."""

    def __init__(self, states: States, stream: AgentStream) -> None:
        self._states = states
        self._stream = stream

    async def of(self, role: str) -> Confidentiality:
        """Return a role's current clearance. Raises UnknownEvent if a newer version wrote its
        rules.
        """
        return await clearance_of(self._states.log, role)

    async def own(self) -> Confidentiality:
        """Return the clearance of the agent's own role."""
        return await self.of(self._stream.role)

    async def role_of(self, agent: str) -> str | None:
        """Return the role of an agent of the run, or None if it has not joined."""
        return (await self._states.life(self._stream.run)).roster.get(agent)

    async def claim(self, state: TeamState, command: Claim) -> Claim:
        """Return the claim with the role's clearance, if any task's label requires one."""
        if all(is_public(task.label) for task in state.tasks.values()):
            return command
        return msgspec.structs.replace(command, cleared=await self.own())

    async def demand(self, label: Label | None, what: str, tool: str) -> None:
        """Raise Blocked if the agent's role is not cleared for the label."""
        if is_public(label):
            return
        cleared = await self.own()
        if label is not None and not label.flows_to(cleared):
            raise Blocked(RULE, _above(label, what, self._stream.role, cleared), tool)

    async def receives(self, label: Label, role: str | None, agent: str | None) -> str:
        """Return the reason that a role or agent is not cleared for the label; empty if it is. An
        agent that has not joined yet is checked when it reads.
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
    """Return whether every role is cleared for the label."""
    return label is None or label.confidentiality is LOWEST.confidentiality


def _above(label: Label, what: str, role: str, cleared: Confidentiality) -> str:
    return (
        f"{what} is labelled higher than role {role!r} is cleared for ({cleared.value!r}); "
        f"{remedy(label, role)}"
    )


def remedy(label: Label, role: str) -> str:
    """Return the remedy for a role that is not cleared for the label."""
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
"""Kinds of operations that may be refused, besides the kinds of trust: see `Trust`."""


class Need(msgspec.Struct, frozen=True):
    """A permission that an operation needs: its kind, and the name that it is for."""

    what: str
    name: str


states = functools.partial(Need, KIND)
"""Return the need to record an event of a type, given its tag."""

reads = functools.partial(Need, READ)
"""Return the need to read a key of the board."""

writes = functools.partial(Need, KEY)
"""Return the need to write a key of the board."""

claims = functools.partial(Need, TASK)
"""Return the need to claim tasks that are meant for a role."""

counts = functools.partial(Need, BUDGET)
"""Return the need to count calls on a budget of the run."""

saves = functools.partial(Need, SAVE)
"""Return the need to save aggregates of a type."""

rebuilds = functools.partial(Need, REBUILD)
"""Return the need to get aggregates of a type."""

views = functools.partial(Need, VIEW)
"""Return the need to see a role's view."""


def prompts() -> Need:
    """Return the need to read prompts."""
    return Need(PROMPT, "prompts")


def actions() -> Need:
    """Return the need to read action caches."""
    return Need(ACTIONS, "action caches")


def experiences() -> Need:
    """Return the need to read experiences."""
    return Need(EXPERIENCES, "experiences")


def sees_file(space: str, path: str) -> Need:
    """Return the need to see a file of memory."""
    return Need(SEE_FILE, behind_space(space, path))


def changes_file(space: str, path: str) -> Need:
    """Return the need to change a file of memory."""
    return Need(CHANGE_FILE, behind_space(space, path))


def trusts(trust: Trust, name: str) -> Need:
    """Return the need for a kind of trust in a named thing."""
    return Need(trust.value, name)


def _may_count(rules: RoleDefined | None, budget: str) -> Permission:
    return authorize.may_count(rules, budget_key(budget))


def _kept(kind: str) -> Callable[[RoleDefined | None, str], Permission]:
    return lambda rules, _: may_use(rules, kind)


_DECISIONS: Mapping[str, Callable[[RoleDefined | None, str], Permission]] = {
    TOOL: authorize.may_call,
    KIND: authorize.may_state,
    KEY: authorize.may_write,
    READ: authorize.sees_whole_key,
    BUDGET: _may_count,
    SAVE: authorize.may_save,
    REBUILD: authorize.sees_whole_aggregate,
    PROMPT: _kept(prompt.KIND),
    ACTIONS: _kept(action_caches.KIND),
    EXPERIENCES: _kept(experience_events.KIND),
    SEE_FILE: authorize.sees_whole_file,
    CHANGE_FILE: authorize.may_change,
    VIEW: authorize.may_view,
}
"""The decision on each kind of need that the role's rules alone decide."""


_SOME = {
    KEY: ("keys", authorize.KEYS),
    READ: ("", authorize.KEYS),
    SEE_FILE: ("", authorize.FILES),
    CHANGE_FILE: ("paths", authorize.FILES),
}
"""The patterns of a role, and the content, on which each need for a name depends."""


class Permit(msgspec.Struct, frozen=True):
    """Permissions of a role. `enforced` is False for a role that was never defined: it may do
    everything.
    """

    role: str = ""
    rules: RoleDefined | None = None
    enforced: bool = False

    @property
    def rule(self) -> str:
        """Rule name of the role's refusals."""
        return f"role {self.role}"

    @property
    def is_limited(self) -> bool:
        """True if parts of the record may be hidden from the role."""
        return self.enforced and (self.rules is None or not sees_all(self.rules))

    def ask(self, need: Need) -> Permission:
        """Return the decision on a need, with its reason."""
        if not self.enforced:
            return Permission(allowed=True)
        if need.what == VIEW and need.name == self.role:
            return Permission(allowed=True, rule="every role")
        if need.what == TASK:
            return authorize.may_claim(self.rules, self.role, need.name)
        decide = _DECISIONS.get(need.what)
        if decide is None:
            return authorize.may_be_trusted(self.rules, Trust(need.what))
        return decide(self.rules, need.name)

    def may(self, need: Need) -> bool:
        """Return whether a need is allowed, for this name or for some other one."""
        if need.what not in _SOME or not self.enforced or self.rules is None:
            return self.ask(need).allowed
        patterns, content = _SOME[need.what]
        has_names = not patterns or bool(getattr(self.rules.may, patterns))
        return has_names and authorize.sees_some(self.rules, content)

    def because(self, permission: Permission) -> str:
        """Return the reason for a refusal, and the permission to request."""
        ask_for, name = permission.ask_for, choices.key(self.role)
        match permission.where:
            case "may":
                ask_for = f"{ask_for} in [roles.{name}.may]"
            case "sees":
                ask_for = f"[[roles.{name}.sees]] with nothing but {ask_for}"
            case _:
                pass  # a remedy as a sentence
        return f"{permission.because}; ask for: {ask_for}"

    def refusal(self, need: Need) -> AgentRefused | None:
        """Return the refusal to record, or None if the need is allowed."""
        permission = self.ask(need)
        if permission.allowed:
            return None
        because = self.because(permission)
        return AgentRefused(what=need.what, name=need.name, rule=self.rule, because=because)

    def demand(self, need: Need) -> None:
        """Raise RoleRefused for a need that is not allowed, if no agent's stream can record it."""
        refusal = self.refusal(need)
        if refusal is not None:
            raise refused(refusal)


FREE = Permit()


def viewable(permit: Permit, defined: Mapping[str, RoleDefined]) -> list[str]:
    """Return the defined roles whose views a role may see, its own first."""
    others = [
        name
        for name, rules in defined.items()
        if name != permit.role
        and permit.ask(views(name)).allowed
        and (not permit.enforced or authorize.is_cleared_for(permit.rules, rules.clearance))
    ]
    return [*([permit.role] if permit.role in defined else []), *others]


def refused(refusal: AgentRefused) -> RoleRefused:
    """Convert a recorded refusal to its error."""
    return RoleRefused(refusal.what, refusal.name, refusal.rule, refusal.because)


async def read(workspace: Workspace, role: str, *, restricted: bool = False) -> Permit:
    """Read a role's current permit; `restricted` also enforces a role that was never defined.

    Raises BadName, and UnknownEvent if a newer version wrote its rules: nothing is allowed then.
    """
    state = await roles.read(workspace, role)
    return Permit(role, state.rules, enforced=restricted or state.version > 0)


async def demand(workspace: Workspace, permit: Permit, need: Need, by: str | Actor) -> None:
    """Raise RoleRefused for a need that the role does not allow, after recording the refusal."""
    refusal = permit.refusal(need)
    if refusal is not None:
        await note(workspace, by, permit.role, refusal.what, refusal.because)
        raise refused(refusal)


async def note(
    workspace: Workspace, by: str | Actor, role: str, operation: str, reason: str
) -> None:
    """Record that a principal was refused an operation. Raises Conflict after 50 lost races."""
    name = Actor.of(by).agent
    known = await workspace.log.last(WorkspaceStream(principal.KIND, name)) is not None
    stream = WorkspaceStream(access.KIND, name if known else access.STRANGER)
    event = AccessRefused(principal=name, role=role, operation=operation, because=reason)
    await workspace.repository.append(stream, by, event)
