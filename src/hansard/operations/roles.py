"""The roles of a record, and the approvals that its agents wait for."""

from __future__ import annotations

import builtins
import os
from typing import Any

import msgspec

from hansard.agents.access import roles
from hansard.agents.access.roles import View
from hansard.agents.policy.approvals import ListedApproval, Lowering, answer, declassify, listed
from hansard.agents.policy.permits import FREE, Need, trusts, views
from hansard.bus.clock import OS_USER
from hansard.bus.errors import NotFound
from hansard.domain.approval import ApprovalStatus
from hansard.domain.errors import BadValue
from hansard.domain.label import Label
from hansard.domain.redaction import check_names
from hansard.domain.roles.authorize import Trust
from hansard.domain.roles.model import RoleDefined
from hansard.operations.declare import (
    By,
    C_co,
    EventPoint,
    Here,
    Name,
    Noun,
    Prose,
    Takes,
    free,
    operation,
    permitted,
    trusted,
)


def _rules_of(rules: RoleDefined) -> object:
    """Return the parts of a role's rules that are used as names elsewhere: all but `about`."""
    return msgspec.to_builtins(msgspec.structs.replace(rules, about=""))


def _views(request: Any) -> tuple[Need, ...]:
    return () if request.role is None else (views(request.role),)


class Roles(Noun[C_co], noun="roles"):
    """The roles of agents, with their rules."""

    @operation(needs=free)
    async def viewable(self) -> list[str]:
        """List the roles with rules, whose views can be requested.

        For a restricted agent those whose views its role may be shown, its own first.
        """
        return [*await roles.defined(self._workspace)]

    @operation(needs=free)
    async def permitted(self) -> builtins.list[str]:
        """List the operations that the role permits with some arguments; to a trusted program, all.

        An operation that is listed may still be refused, such as for the name of a key.
        """
        return permitted(FREE)

    @operation(needs=_views, takes=Takes.RUN)
    async def view(
        self,
        run: str,
        at: EventPoint = None,
        *,
        role: Name | None = None,
        key: bytes | None = None,
        by: By = OS_USER,
    ) -> View:
        """Return the view of a run that a role may see; record that it was served.

        Args:
            run: The run.
            at: A point of it; by default now. For a restricted agent the id of an event that it was
                shown.
            role: The role; by default a restricted agent's own. Another must be one whose view it
                may be shown.
            key: 32 secret bytes or more for masks that hash, in place of the role's own key.
            by: The reader on record; of a restricted agent its principal.

        Raises:
            NotFound: There is no such run or point.
            BadName, BadValue: `at` is not a point, no role is given, or the key is too short.
        """
        if role is None:
            raise BadValue("view", "no role is given", "name one: view(run, role=...)")
        return (await roles.serve(self._workspace, role, run, at, by=by, key=key)).view

    @trusted
    async def apply(self, name: str, rules: RoleDefined, *, by: str = OS_USER) -> bool:
        """Set the rules of a role, replacing earlier ones; return False if they are unchanged.

        Usually roles are set from a file, with `apply_file`.

        Raises:
            BadName, BadValue: A rule is invalid; the message names it.
        """
        check_names("record.roles.apply", {"rules": _rules_of(rules)}, self._workspace.redaction)
        return await roles.apply(self._workspace, name, rules, by=by)

    @trusted
    async def apply_file(
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
        """
        rules_by_role = roles.read_file(path)
        items = [_rules_of(rules) for rules in rules_by_role.values()]
        names = {"roles": [*rules_by_role], "by": by, "rules": items}
        check_names("record.roles.apply_file", names, self._workspace.redaction)
        return await roles.apply_all(self._workspace, rules_by_role, by=by)

    @trusted
    async def show(self, name: str) -> RoleDefined:
        """Return the rules of a role.

        Raises:
            NotFound: The role has no rules: it was never defined, or they were withdrawn.
        """
        rules = (await roles.read(self._workspace, name)).rules
        if rules is None:
            raise NotFound(f"role {name!r} with rules", "record.roles.viewable() lists those")
        return rules

    @trusted
    async def withdraw(self, name: str, *, by: str = OS_USER, reason: str = "") -> bool:
        """Withdraw the rules of a role.

        It sees nothing and may do nothing from now on. Return False if they are withdrawn already.

        Raises:
            Refused: The role was never defined.
        """
        return await roles.withdraw(self._workspace, name, reason=reason, by=by)

    @trusted
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
        return await declassify(self._workspace, run, lowering)


class Approvals(Noun[C_co], noun="approvals"):
    """Questions of agents that wait for a person's answer."""

    @operation(needs=lambda request: (trusts(Trust.APPROVE, request.approval),), takes=Takes.RUN)
    async def grant(
        self, approval: str, *, by: By = OS_USER, reason: Prose = "", role: Here[str | None] = None
    ) -> None:
        """Grant an agent's request for approval.

        Args:
            approval: The request's id, or a unique prefix of it: `hansard approvals` shows it.
            by: The approver on record: not the requesting agent, nor a principal that acts for it.
            reason: The reason on record.
            role: The approver's role; it must have `approve`.

        Raises:
            Refused: The request is answered or expired, or `by` may not answer it.
            NotFound: There is no such request.
            RoleRefused: The role may not approve; the refusal is recorded.
        """
        await answer(self._workspace, approval, granted=True, by=by, reason=reason, role=role)

    @operation(needs=lambda request: (trusts(Trust.APPROVE, request.approval),), takes=Takes.RUN)
    async def deny(
        self, approval: str, *, by: By = OS_USER, reason: Prose = "", role: Here[str | None] = None
    ) -> None:
        """Deny an agent's request for approval.

        Args:
            approval: The request's id, or a unique prefix of it: `hansard approvals` shows it.
            by: The approver on record: not the requesting agent, nor a principal that acts for it.
            reason: The reason on record.
            role: The approver's role; it must have `approve`.

        Raises:
            Refused: The request is answered or expired, or `by` may not answer it.
            NotFound: There is no such request.
            RoleRefused: The role may not approve; the refusal is recorded.
        """
        await answer(self._workspace, approval, granted=False, by=by, reason=reason, role=role)

    @trusted
    async def list(self, *, answered: bool = False) -> builtins.list[ListedApproval]:
        """List the questions of agents in all runs that wait for an answer, oldest first.

        With `answered`, also those that were granted or denied, or that expired.
        """
        approvals = await listed(self._workspace)
        return [each for each in approvals if answered or each.standing is ApprovalStatus.PENDING]
