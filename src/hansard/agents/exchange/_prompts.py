"""Which prompts belong to a run: those that its calls were given, up to its end."""

from __future__ import annotations

from collections.abc import Sequence

from hansard.agents.exchange import _events
from hansard.agents.workspace import Workspace
from hansard.bus.log import AtPosition, Stored
from hansard.domain.ids import AgentStream, WorkspaceStream
from hansard.domain.prompt import KIND
from hansard.domain.steps import StepRequested

_NAMED = b'"prompts":'


async def of_run(workspace: Workspace, commits: Sequence[Stored]) -> dict[str, list[Stored]]:
    """The prompts that the steps among a run's commits name, with their own commits up to the last
    of the run's.
    """
    named = (
        each for each in commits if isinstance(each.stream, AgentStream) and _NAMED in each.body
    )
    names = {
        use.prompt for _, event in _events.known(named, StepRequested) for use in event.prompts
    }
    up_to = AtPosition(max((stored.position for stored in commits), default=0))
    return {
        name: await workspace.log.read(WorkspaceStream(KIND, name), up_to=up_to)
        for name in sorted(names)
    }
