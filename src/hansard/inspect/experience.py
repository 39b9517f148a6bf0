"""What runs teach: their actions as doings of a task, and the experience that is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hansard.agents.workspace import Workspace
from hansard.domain.counted import counted
from hansard.domain.errors import BadValue
from hansard.domain.experience import distil
from hansard.domain.experience import experience as experiences
from hansard.domain.experience.demonstration import Demonstration, ShownAction
from hansard.domain.experience.experience import Experience
from hansard.inspect.actions import action_cache
from hansard.inspect.context import contexts
from hansard.inspect.messages import window
from hansard.inspect.payloads import Payloads

RUNS_MAX = 1_000


async def demonstration(
    workspace: Workspace, run: str, fetch: Payloads, task: str = ""
) -> Demonstration:
    """A run as a doing of a task: `task`, or else the first message of a user in it.

    Raises:
        NotFound: There is no such run.
        BadValue: Nothing says what was asked for.
    """
    cache = await action_cache(workspace, run, fetch)
    return Demonstration(
        task=task or await _asked(workspace, run, fetch),
        actions=tuple(ShownAction(action=each) for each in cache.actions),
        success=cache.final_state.success,
        source=run,
        seconds=cache.final_state.duration,
    )


async def learned(
    workspace: Workspace,
    name: str,
    runs: Sequence[str],
    tasks: Mapping[str, str],
    description: str = "",
) -> Experience:
    """What runs of one kind of task teach; it has no checks until a person confirms them.

    Raises:
        NotFound: There is no such run.
        BadValue: Nothing says what was asked for in a run, they are of several kinds of task, or no
            two of them did alike.
    """
    if not 0 < len(runs) <= RUNS_MAX:
        raise BadValue("runs", f"{len(runs):,}", f"give 1 to {RUNS_MAX:,}")
    fetch = Payloads(workspace)
    told = [
        await demonstration(workspace, run, fetch, tasks.get(run, ""))
        for run in dict.fromkeys(runs)
    ]
    found = distil.distilled(told)
    if len(found) > 1:
        kinds = "; ".join(f"{each.wording.said!r:.100}" for each in found[:4])
        fact = f"the runs are of {counted(len(found), 'kind')} of task: {kinds}"
        raise BadValue(f"experience {name!r:.80}", fact, "give runs of one kind")
    return experiences.made(name, found[0], description=description)


async def _asked(workspace: Workspace, run: str, fetch: Payloads) -> str:
    """The first message of a user in a run. Raises NotFound, BadValue."""
    up_to = await workspace.points.up_to(run, None)
    found = await contexts(workspace, run, up_to, None)
    for agent in found.agents:
        for _, message in window(agent.state):
            content = await fetch.value(message.content)
            if message.role == "user" and isinstance(content, str) and content.strip():
                return content.strip()
    remedy = "say it: tasks={run: text}, or --task; or record it: session.message('user', ...)"
    raise BadValue(f"run {run}", "no message of a user says what was asked for", remedy)
