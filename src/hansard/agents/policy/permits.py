"""What a session may do, by the rules of its role as they stood when it was opened.

A role that was never defined in the workspace is a name and nothing else: its agents may do all.
One that is defined may do what its rules say, one that was withdrawn nothing: see
`hansard.domain.roles.authorize`. What is refused is on record before the error is raised.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hansard.agents.access import roles
from hansard.agents.errors import RoleRefused
from hansard.agents.workspace import Workspace
from hansard.domain import access, principal, toml
from hansard.domain.access import AccessRefused
from hansard.domain.budget import key_of as budget_key
from hansard.domain.events import Actor
from hansard.domain.ids import WorkspaceStream
from hansard.domain.refusal import AgentRefused
from hansard.domain.roles import authorize
from hansard.domain.roles.assignment import (
    may_use_actions,
    may_use_experiences,
    may_use_prompts,
)
from hansard.domain.roles.authorize import Permission, Trust
from hansard.domain.roles.judge import sees_all
from hansard.domain.roles.model import RoleDefined
from hansard.domain.roles.patterns import behind_space

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
        ask_for, name = permission.ask_for, toml.key(self.role)
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
        told = self.refusal(need)
        if told is not None:
            raise refused(told)


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


def refused(told: AgentRefused) -> RoleRefused:
    """What is on record of a refusal as the error."""
    return RoleRefused(told.what, told.name, told.rule, told.because)


async def read(workspace: Workspace, role: str, *, restricted: bool = False) -> Permit:
    """A role's permit as of now; `restricted` enforces one that was never defined, too.

    Raises BadName, and UnknownEvent where a newer version wrote of it: nothing is then allowed.
    """
    found = await roles.read(workspace, role)
    return Permit(role, found.rules, enforced=restricted or found.version > 0)


async def demand(workspace: Workspace, permit: Permit, need: Need, by: str | Actor) -> None:
    """Raise RoleRefused where a role does not allow what somebody wants, put on record before."""
    told = permit.refusal(need)
    if told is not None:
        await note(workspace, by, permit.role, told.what, told.because)
        raise refused(told)


async def note(
    workspace: Workspace, by: str | Actor, role: str, operation: str, because: str
) -> None:
    """Put on record that somebody was refused something. Raises Conflict after 50 lost races."""
    name = Actor.of(by).agent
    known = await workspace.log.last(WorkspaceStream(principal.KIND, name)) is not None
    stream = WorkspaceStream(access.KIND, name if known else access.STRANGER)
    said = AccessRefused(principal=name, role=role, operation=operation, because=because)
    await workspace.add_lasting(stream, by, said)
