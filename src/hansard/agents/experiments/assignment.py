"""What a restricted agent is told of its run's place in an experiment: what its role sees."""

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
from hansard.domain.roles.judge import Facts, facts, may_be_placed, sees_arm, sees_plan
from hansard.domain.run import RunAssigned, RunState

PLACE = "place"
"""What is refused: to have a run placed, or to be told whether it has the place that is asked."""


class Placing(msgspec.Struct, frozen=True):
    """An agent's role, as its rules stand when it opens a run."""

    permit: Permit
    agent: str

    def demand(self, request: PlacementRequest, run: Facts, *, begins: bool) -> None:
        """Raise RoleRefused where something is asked of the run's place that the role may not have
        or know. begins: there is no such run yet.
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
        """A run's arm as far as the role sees it: all, its name, or nothing."""
        if arm is None or not sees_arm(self.permit.rules, run):
            return None
        return arm if sees_plan(self.permit.rules) else Arm(arm.name)

    def new(self, run: str, labels: Mapping[str, str]) -> Facts:
        """What the place of a run that the agent begins is judged by."""
        roster = {self.agent: self.permit.role}
        return facts(RunAssigned.tag, RunStream(run), self.agent, roster, labels)


async def read(workspace: Workspace, role: str, agent: str) -> Placing:
    """A role's rules as of now. Raises UnknownEvent where a newer version wrote of it."""
    return Placing(await permits.read(workspace, role, restricted=True), agent)


def begun(run: str, life: RunState, first: Stored) -> Facts:
    """What the place of a run that has begun is judged by: that of its first commit, which holds
    the place where there is one.
    """
    actor, label = first.commit.actor.agent, first.commit.label
    return facts(RunAssigned.tag, RunStream(run), actor, life.roster, life.labels, (), label)
