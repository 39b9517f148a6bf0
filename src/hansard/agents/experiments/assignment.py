"""Visibility of a run's place in an experiment for a restricted agent, by its role."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hansard.agents.experiments.plans import Arm, PlacementRequest
from hansard.agents.policy import permits
from hansard.agents.policy.permits import Permit
from hansard.agents.workspace import Workspace
from hansard.bus.log import Stored
from hansard.domain.ids import RunStream
from hansard.domain.refusal import AgentRefused
from hansard.domain.roles.view import Facts, facts, may_be_placed, sees_arm, sees_plan
from hansard.domain.run import RunAssigned, RunState

PLACE = "place"
"""Operation name of refusals: to place a run, or to confirm its place."""


class Placing(msgspec.Struct, frozen=True):
    """An agent's role, with its rules at the time it opens a run."""

    permit: Permit
    agent: str

    def demand(self, request: PlacementRequest, run: Facts, *, begins: bool) -> None:
        """Raise RoleRefused if the request states a place that the role may not set or know.
        begins: the run does not exist yet.
        """
        named = [kind for kind in request.__struct_fields__ if getattr(request, kind) is not None]
        if not named:
            return
        begins = begins and request.experiment is not None
        permission = may_be_placed(self.permit.rules, run, begins=begins)
        if not permission.allowed:
            because = self.permit.because(permission)
            rule = self.permit.rule
            raise permits.refused(
                AgentRefused(what=PLACE, name=named[0], rule=rule, because=because)
            )

    def arm(self, arm: Arm | None, run: Facts) -> Arm | None:
        """Return a run's arm as visible to the role: all of it, its name, or None."""
        if arm is None or not sees_arm(self.permit.rules, run):
            return None
        return arm if sees_plan(self.permit.rules) else Arm(arm.name)

    def new(self, run: str, labels: Mapping[str, str]) -> Facts:
        """Return the facts by which the place of a run that the agent starts is authorised."""
        roster = {self.agent: self.permit.role}
        return facts(RunAssigned.tag, RunStream(run), self.agent, roster, labels)


async def read(workspace: Workspace, role: str, agent: str) -> Placing:
    """Read a role's current rules. Raises UnknownEvent if a newer version wrote them."""
    return Placing(await permits.read(workspace, role, restricted=True), agent)


def begun(run: str, life: RunState, first: Stored) -> Facts:
    """Return the facts by which the place of an existing run is authorised: those of its first
    commit, which holds the place if there is one.
    """
    actor, label = first.commit.actor.agent, first.commit.label
    return facts(RunAssigned.tag, RunStream(run), actor, life.roster, life.labels, (), label)
